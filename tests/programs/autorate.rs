//! A loop like cake-autorate's: it changes the bandwidth 50 times a second while packets flow, and
//! none is lost by it.

use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::common::{NamedNetns, has_program, may_make_networks, two_ports, wait_for};
use super::{Daemon, succeeded};

/// Changes, 20 ms apart.
const CHANGES: usize = 100;

/// Time between two datagrams of the load: 9.6 Mbit/s, which every one of the bandwidths lets
/// through.
const PAUSE: Duration = Duration::from_millis(1);

/// Datagrams on their way at a time. No queue loses so few, whoever gets no CPU and for how long.
const AHEAD: u64 = 200;

#[test]
fn fifty_changes_a_second_lose_nothing() {
    if !may_make_networks() || !has_program("tc") || !has_program("ip") {
        return;
    }
    for (kind, change) in [
        (
            "tbf",
            "qdisc change dev eth-b root tbf burst 64k limit 1m rate",
        ),
        (
            "htb",
            "class change dev eth-b classid 1:1 htb burst 64k quantum 1514 rate",
        ),
        ("cake", "qdisc change dev eth-b root cake bandwidth"),
    ] {
        let (a, b) = (NamedNetns::new("autorate-a"), NamedNetns::new("autorate-b"));
        let config = two_ports((&a, ""), (&b, ""));
        let daemon = Daemon::start("autorate", &config);
        match kind {
            "tbf" => {
                daemon.done("qdisc add dev eth-b root tbf rate 100mbit burst 64k limit 1m");
            }
            "cake" => {
                // What waits while nobody runs is no standing queue.
                daemon.done("qdisc add dev eth-b root cake bandwidth 100mbit rtt 10s");
            }
            _ => {
                daemon.done("qdisc add dev eth-b root handle 1: htb default 1");
                daemon
                    .done("class add dev eth-b parent 1: classid 1:1 htb rate 100mbit burst 64k");
            }
        }
        let (sent, received) = load(&a, &b, || {
            // One process, as it would not keep up with one for each change.
            let script = format!(
                "i=0; while [ $i -lt {CHANGES} ]; do \
                   tc {change} $((20 + i * 37 % 80))mbit || exit 1; i=$((i + 1)); sleep 0.02; \
                 done"
            );
            let mut shell = daemon.exec("sh");
            let output = shell.args(["-c", &script]).stdin(Stdio::null()).output();
            succeeded(&output.expect("softnet"), &script);
        });
        assert!(sent > 100, "{kind}: {sent} datagrams");
        assert_eq!(
            received,
            sent,
            "{kind}: {}",
            daemon.done("-s qdisc show dev eth-b")
        );
        let shown = daemon.done("-s qdisc show dev eth-b");
        assert!(shown.contains("(dropped 0,"), "{kind}: {shown}");
        daemon.stop();
    }
}

/// Ends loops when it is dropped, in a panic too.
struct Ends<'a>([&'a AtomicBool; 2]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        for over in self.0 {
            over.store(true, Ordering::Relaxed);
        }
    }
}

/// Sends from one host to the other while `f` runs, more than once if nothing was sent meanwhile.
/// Returns what was sent and received.
fn load(a: &NamedNetns, b: &NamedNetns, mut f: impl FnMut()) -> (u64, u64) {
    let socket = b.run(|| UdpSocket::bind("10.9.0.2:9000").expect("a socket"));
    // It takes all that is on its way.
    set_socket_recv_buffer_size_force(&socket, 4 << 20).expect("a buffer");
    let time = Some(Duration::from_millis(100));
    socket.set_read_timeout(time).expect("a timeout");
    let sender = a.run(|| UdpSocket::bind("10.9.0.1:0").expect("a socket"));
    let [sent, received, learnt] = [const { AtomicU64::new(0) }; 3];
    let [over, ended] = [const { AtomicBool::new(false) }; 2];
    std::thread::scope(|scope| {
        let _ends = Ends([&over, &ended]);
        scope.spawn(|| {
            let mut bytes = [0; 2000];
            while !ended.load(Ordering::Relaxed) {
                if socket.recv(&mut bytes).is_ok_and(|len| len == 1200) {
                    // Those by which the path is learnt hold zeros.
                    let counter = if bytes[0] == 1 { &received } else { &learnt };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // The path is learnt before it counts.
        wait_for("the path", || {
            let _ = sender.send_to(&[0; 1200], "10.9.0.2:9000");
            std::thread::sleep(Duration::from_millis(10));
            learnt.load(Ordering::Relaxed) > 0
        });
        let load = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let arrived = received.load(Ordering::Relaxed);
                let ahead = sent.load(Ordering::Relaxed).saturating_sub(arrived);
                if ahead < AHEAD && sender.send_to(&[1; 1200], "10.9.0.2:9000").is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(PAUSE);
            }
        });
        // A sender that got no CPU meanwhile was no load.
        wait_for("a load", || {
            f();
            sent.load(Ordering::Relaxed) > 100
        });
        over.store(true, Ordering::Relaxed);
        load.join().expect("it sends until then");
        wait_for("the last datagram", || {
            received.load(Ordering::Relaxed) >= sent.load(Ordering::Relaxed)
        });
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&sent), count(&received))
    })
}
