//! What drivers tell workers: notifications that are suppressed and asked for, and polls that
//! wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::testing::{ScriptedRing, frame, pool};
use softnet::time::{Clock, Time};
use softnet::tx::{Features, TxPolicy};
use softnet_engine::rx::{CountDrop, Polled, RxQueue, SteeringSpec};
use softnet_engine::{Engine, EngineConfig, PortId, PortSetup};
use softnet_io::Poller;
use softnet_tc::QdiscSpec;

/// Memory that a device shares with its driver.
#[derive(Debug)]
struct Ring {
    packets: Mutex<PacketList>,
    armed: Mutex<bool>,
    polls: AtomicU64,
    /// Packets that come while the driver asks for notifications.
    late: Mutex<PacketList>,
    /// Notifications, and the file that they make readable.
    notify: UnixDatagram,
    file: UnixDatagram,
}

impl Ring {
    fn new() -> Arc<Ring> {
        let (notify, file) = UnixDatagram::pair().unwrap();
        file.set_nonblocking(true).unwrap();
        Arc::new(Ring {
            packets: Mutex::default(),
            armed: Mutex::default(),
            polls: AtomicU64::new(0),
            late: Mutex::default(),
            notify,
            file,
        })
    }

    /// The device delivers, and notifies if it is to. Returns whether it did.
    fn deliver(&self, packet: Packet) -> bool {
        let armed = self.armed.lock().unwrap();
        self.packets.lock().unwrap().push_back(packet);
        if *armed {
            self.notify.send(b"x").unwrap();
        }
        *armed
    }
}

/// A queue in shared memory, with a file or without.
#[derive(Debug)]
struct Queue {
    ring: Arc<Ring>,
    /// None: it has a file.
    next: Option<Time>,
}

impl RxQueue for Queue {
    fn poll(
        &mut self,
        budget: usize,
        _: Time,
        out: &mut PacketList,
        _: &mut dyn CountDrop,
    ) -> Polled {
        self.ring.polls.fetch_add(1, Ordering::Relaxed);
        let mut packets = self.ring.packets.lock().unwrap();
        packets.split_wire_packets(budget, out);
        Polled {
            more: !packets.is_empty(),
            gone: false,
        }
    }

    fn arm(&mut self) -> bool {
        let mut armed = self.ring.armed.lock().unwrap();
        let mut packets = self.ring.packets.lock().unwrap();
        packets.append(&mut self.ring.late.lock().unwrap());
        *armed = packets.is_empty();
        *armed
    }

    fn disarm(&mut self) {
        *self.ring.armed.lock().unwrap() = false;
        while self.ring.file.recv(&mut [0]).is_ok() {}
    }

    fn peek(&mut self) -> Option<bool> {
        Some(!self.ring.packets.lock().unwrap().is_empty())
    }

    fn next_poll(&self) -> Time {
        self.next.unwrap_or(Time::ZERO)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.next.is_none().then(|| self.ring.file.as_fd())
    }
}

struct Net {
    engine: Engine<Queue, ScriptedRing>,
    port: PortId,
    pool: Pool,
    ring: Arc<Ring>,
}

impl Net {
    /// One worker, and a port with one queue.
    fn new(ring: &Arc<Ring>, next: Option<Time>, busy_poll: Duration) -> Net {
        let pool = pool(64);
        let config = EngineConfig {
            busy_poll,
            ..EngineConfig::default()
        };
        let pollers = vec![Poller::new().unwrap()];
        let clock = Clock::monotonic();
        let engine = Engine::with_config(pollers, pool.clone(), clock, config).unwrap();
        let ring = ring.clone();
        let queue = Queue {
            ring: ring.clone(),
            next,
        };
        let setup = PortSetup {
            name: "a".into(),
            rx: vec![queue],
            tx: vec![ScriptedRing::new().0],
            features: Features::default(),
            qdisc: QdiscSpec::default(),
            policy: TxPolicy::default(),
        };
        let port = engine.add_port(setup).unwrap();
        Net {
            engine,
            port,
            pool,
            ring,
        }
    }

    fn received(&self) -> u64 {
        self.engine.stats().conservation().rx
    }

    fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) {
        for _ in 0..10_000 {
            if condition() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("waited in vain for {what}: {:?}", self.engine.stats());
    }

    fn stop(self) {
        assert!(self.engine.stop(Duration::ZERO).conservation().holds());
    }
}

/// What comes while the driver asks for notifications is not notified of: the queue is polled.
#[test]
fn packets_that_come_while_a_queue_is_armed_are_polled() {
    let ring = Ring::new();
    let own = pool(8);
    ring.late
        .lock()
        .unwrap()
        .push_back(frame(&own, 0, 1, 60, 1));
    let net = Net::new(&ring, None, Duration::ZERO);
    net.wait("the packet", || net.received() == 1);
    net.wait("the queue to be armed", || *ring.armed.lock().unwrap());
    net.stop();
}

/// A device that notifies only armed queues gets all its packets received, whether the worker
/// busy-polls or not.
#[test]
fn no_packet_waits_for_a_notification_that_was_suppressed() {
    for busy_poll in [0, 50, 5_000] {
        let net = Net::new(&Ring::new(), None, Duration::from_micros(busy_poll));
        let mut notified = 0;
        for n in 1..=2_000 {
            if net.ring.deliver(frame(&net.pool, 0, 1, 60, n)) {
                notified += 1;
            }
            if n % 7 == 0 {
                net.wait("the packets", || net.received() == u64::from(n));
            }
        }
        net.wait("the last packets", || net.received() == 2_000);
        assert!(notified > 0 || busy_poll > 0, "it never slept");
        net.stop();
    }
}

/// A queue without a file is polled in every round, or when it says.
#[test]
fn a_queue_without_a_file_is_polled_when_it_says() {
    let busy = Net::new(&Ring::new(), Some(Time::ZERO), Duration::ZERO);
    let polls = || busy.ring.polls.load(Ordering::Relaxed);
    busy.wait("polls", || polls() > 100);
    busy.stop();

    let net = Net::new(&Ring::new(), Some(Time::MAX), Duration::ZERO);
    let polls = || net.ring.polls.load(Ordering::Relaxed);
    net.wait("a poll", || polls() == 1);
    let rounds = || net.engine.stats().workers[0].rounds;
    let before = rounds();
    // However often the worker goes round.
    for _ in 0..100 {
        let steering = SteeringSpec::default();
        net.engine.set_steering(net.port, &steering).unwrap();
    }
    assert!(rounds() > before);
    assert_eq!(polls(), 1);
    net.wait("it to sleep", || net.engine.stats().workers[0].sleeps > 0);
    net.stop();
}
