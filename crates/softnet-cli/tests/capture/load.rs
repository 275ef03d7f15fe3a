//! Captures under load: what a port counts is captured, or counted as missed.

use std::io::{Seek, SeekFrom};
use std::time::Instant;

use super::*;

const FILE: &str = "load.pcapng";

impl Shaped {
    /// Has nothing pass but what tests send: neighbours are known, and while the socket is open `b`
    /// has no answers.
    fn quiet(&self) -> UdpSocket {
        let others = [("10.9.0.2", "eth-a"), ("10.9.0.1", "eth-b")];
        for (host, (other, device)) in self.hosts.iter().zip(others) {
            host.ip(&["neigh", "change", other, "dev", device, "nud", "permanent"]);
        }
        let socket = self.hosts[1].run(|| UdpSocket::bind("10.9.0.2:5001"));
        socket.expect("a socket")
    }

    /// Packets that `eth-a` has received and sent.
    fn counted(&self) -> u64 {
        self.packets("eth-a", "rx_packets") + self.packets("eth-a", "tx_packets")
    }

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

    /// Sends datagrams until one of them is in the file, and none is on its way there: all before
    /// it are in the file, or missed.
    fn settle(&self) {
        let mut file = File::open(self.scratch.path(FILE)).expect("a file");
        let socket = self.hosts[0].run(|| UdpSocket::bind("10.9.0.1:0"));
        let socket = socket.expect("a socket");
        let mut number = 0;
        wait_for("the last datagram", || {
            number += 1;
            let last = format!("datagram {number} is the last");
            let _ = socket.send_to(last.as_bytes(), ("10.9.0.2", 5001));
            thread::sleep(Duration::from_millis(50));
            let len = file.metadata().expect("a file").len();
            let end = SeekFrom::Start(len.saturating_sub(4096));
            file.seek(end).expect("a place in the file");
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).expect("its end");
            let mut parts = bytes.windows(last.len());
            parts.any(|part| part == last.as_bytes())
        });
    }

    /// Captures all packets of `eth-a` while `load` runs. Returns its result, and the share of
    /// packets that are captured, in percent; the others are missed.
    fn captured<T>(&self, load: impl FnOnce() -> T) -> (T, f64) {
        let before = self.counted();
        let running = self.capture("eth-a", FILE);
        let result = load();
        self.settle();
        interrupt(running);
        let capture = self.read(FILE);
        fs::remove_file(self.scratch.path(FILE)).expect("a file");
        let captured = capture.packets.len() as u64;
        assert_eq!(captured + capture.missed, capture.matched);
        // A packet is shown first.
        wait_for("the port's count", || {
            self.counted() - before >= capture.matched
        });
        assert_eq!(self.counted() - before, capture.matched);
        (result, 100.0 * captured as f64 / capture.matched as f64)
    }
}

#[test]
fn each_packet_is_captured_or_counted_as_missed() {
    if !may_make_networks() {
        return;
    }
    let daemon = Shaped::start("each", "100gbit");
    let _sink = daemon.quiet();
    let ((), share) = daemon.captured(|| daemon.send(5001, 20_000));
    println!("{share:.1} % captured");
    daemon.end();
}

/// A measurement, not a test: the share of the packets that a capture has at half of the load that
/// one sender can make, and at all of it, and what the port receives of both without a capture.
///
/// `cargo test --release -p softnet-cli --test capture half -- --ignored --nocapture`, on a machine
/// that does nothing else.
#[test]
#[ignore = "a measurement"]
fn captures_at_half_load() {
    let daemon = Shaped::start("half", "100gbit");
    let _sink = daemon.quiet();
    let time = Duration::from_secs(2);
    for _ in 0..7 {
        let whole = daemon.load(f64::INFINITY, time);
        let half = daemon.load(whole / 2.0, time);
        let (seen_half, half_share) = daemon.captured(|| daemon.load(whole / 2.0, time));
        let (seen_whole, whole_share) = daemon.captured(|| daemon.load(f64::INFINITY, time));
        println!(
            "half load: {half:.0} a second, {seen_half:.0} with a capture of {half_share:.1} %; \
             whole: {whole:.0}, {seen_whole:.0} with one of {whole_share:.1} %"
        );
    }
    daemon.end();
}
