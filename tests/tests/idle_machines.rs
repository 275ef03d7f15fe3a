//! Virtual machines that do nothing cost no CPU. Alone in its process, whose threads it watches.

use std::fs;
use std::path::Path;
use std::time::Duration;

use softnet_io::vhost_user::SocketSpec;
use softnet_tests::guest::{FrontEnd, Guest, GuestConfig, feature};
use softnet_tests::{Lan, LanConfig, wait_for};

/// Time in which nothing is to happen.
const STILL: Duration = Duration::from_millis(300);
const QUEUES: usize = 2;

/// Context switches of this process's other threads, and the workers' counters.
fn activity(lan: &Lan) -> (u64, Vec<[u64; 3]>) {
    let own = Path::new("/proc/thread-self")
        .canonicalize()
        .expect("a thread");
    let switches = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let lines = status
            .lines()
            .filter(|line| line.contains("_ctxt_switches"));
        let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        lines.filter_map(number).sum::<u64>()
    };
    let threads = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let others = threads.filter(|thread| Some(thread.file_name().as_os_str()) != own.file_name());
    let workers = lan.engine.stats().workers;
    let counted = workers.iter().map(|it| [it.rounds, it.sleeps, it.wakes]);
    (others.map(switches).sum(), counted.collect())
}

fn frame(to: u8, from: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame
}

/// One machine has buffers, the other none, so that packets wait for it: the guest would notify in
/// either case.
#[test]
fn an_idle_machine_costs_no_cpu() {
    for (packed, event_index) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = LanConfig {
            hosts: Vec::new(),
            workers: 2,
            ..LanConfig::default()
        };
        let Some(lan) = Lan::build(config) else {
            return;
        };
        let folder = format!("softnet-idle-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir(&folder).expect("a folder");
        let connect = |name: &str| {
            let socket = SocketSpec {
                path: folder.join(name),
                server: true,
                mode: 0o600,
                group: None,
            };
            let port = lan.add_machine(name, &socket, QUEUES);
            let mut front_end = FrontEnd::connect(&socket.path).expect("a port");
            let mut guest = Guest::new(GuestConfig {
                pairs: QUEUES,
                size: 256,
                packed,
                event_index,
                features: feature::MRG_RXBUF,
            });
            guest.start(&mut front_end).expect("it runs");
            wait_for("the link", || {
                lan.engine.port_stats(port).expect("a port").link.up
            });
            (port, guest, front_end)
        };
        let (_, mut a, front_end_a) = connect("a");
        let (port, mut b, front_end_b) = connect("b");
        (0..QUEUES).for_each(|pair| a.offer(2 * pair, u16::MAX));
        for n in 0..100 {
            let sent = b.send(2 * (n % QUEUES) + 1, &frame(1, 2));
            assert!(sent, "fewer frames than the ring holds");
            wait_for("a frame", || {
                (0..QUEUES).any(|pair| a.ring(2 * pair).receive().is_some())
            });
        }
        for n in 0..10 {
            let sent = a.send(2 * (n % QUEUES) + 1, &frame(2, 1));
            assert!(sent, "fewer frames than the ring holds");
        }
        let queued = || lan.engine.port_stats(port).expect("a port").device.queued;
        wait_for("frames to wait", || queued() == 10);
        let mut before = activity(&lan);
        wait_for("nothing to happen", || {
            std::thread::sleep(STILL);
            let now = activity(&lan);
            let still = now == before;
            before = now;
            still
        });
        assert_eq!(queued(), 10);
        // They are there as soon as something does.
        let mut received = 0;
        (0..QUEUES).for_each(|pair| b.offer(2 * pair, u16::MAX));
        wait_for("the frames that waited", || {
            (0..QUEUES).for_each(|pair| {
                while b.ring(2 * pair).receive().is_some() {
                    received += 1;
                }
            });
            received == 10
        });
        drop((front_end_a, front_end_b));
        lan.stop();
        fs::remove_dir(&folder).expect("the sockets are gone");
    }
}
