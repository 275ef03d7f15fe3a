//! Captures under load.

use std::time::Instant;

use super::*;

impl Shaped {
    /// Sends datagrams to `b` for a time, at most `rate` a second. Returns how many a second were
    /// received.
    fn load(&self, rate: f64, time: Duration) -> f64 {
        let before = self.packets("eth-a", "rx_packets");
        let start = Instant::now();
        self.hosts[0].run(|| {
            let socket = UdpSocket::bind("10.9.0.1:0").expect("a socket");
            let mut sent = 0.0;
            while start.elapsed() < time {
                if sent > rate * start.elapsed().as_secs_f64() {
                    thread::sleep(Duration::from_micros(200));
                    continue;
                }
                let _ = socket.send_to(&[7; LEN], ("10.9.0.2", 5001));
                sent += 1.0;
            }
        });
        let seconds = start.elapsed().as_secs_f64();
        (self.packets("eth-a", "rx_packets") - before) as f64 / seconds
    }
}

/// A measurement, not a test: the share of the packets that a capture has at half of the load that
/// one sender can make.
///
/// `cargo test --release -p softnet-cli --test capture half -- --ignored --nocapture`, on a machine
/// that does nothing else.
#[test]
#[ignore = "a measurement"]
fn captures_at_half_load() {
    let daemon = Shaped::start("half", "100gbit");
    let whole = daemon.load(f64::INFINITY, Duration::from_secs(2));
    for round in 0..5 {
        let name = format!("half{round}.pcapng");
        let running = daemon.capture("eth-a udp port 5001", &name);
        let half = daemon.load(whole / 2.0, Duration::from_secs(3));
        // What is captured is written meanwhile; what is on its way ends in time.
        thread::sleep(Duration::from_millis(500));
        interrupt(running);
        let capture = daemon.read(&name);
        let share = 100.0 * capture.packets.len() as f64 / capture.matched as f64;
        let (captured, all) = (capture.packets.len(), capture.matched);
        println!("{half:.0} of {whole:.0} a second: {captured} of {all} captured, {share:.1} %");
    }
    daemon.end();
}
