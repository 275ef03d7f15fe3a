//! Drivers and workers: notifications that are suppressed and asked for, and polls that wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::testing::{ScriptedRing, frame, pool};
use softnet::time::{Clock, Time};
use softnet::tx::{Features, RingFile, Wake};
use softnet_engine::rx::{NextPoll, Polled, Receive, RxQueue, Sleep, SteeringSpec};
use softnet_engine::{Engine, EngineConfig, Opened, OwnQueues, PortSpec, Settings};
use softnet_io::Poller;

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
    /// Told which thread drops the ring.
    dropped: Mutex<Option<Sender<ThreadId>>>,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped.get_mut().unwrap() {
            dropped.send(std::thread::current().id()).unwrap();
        }
    }
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
            dropped: Mutex::default(),
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
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        self.ring.polls.fetch_add(1, Ordering::Relaxed);
        if rx.by_owner {
            *self.ring.armed.lock().unwrap() = false;
            while self.ring.file.recv(&mut [0]).is_ok() {}
        }
        let mut packets = self.ring.packets.lock().unwrap();
        let mut received = PacketList::new();
        packets.split_wire_packets(rx.budget, &mut received);
        rx.extend(received);
        Polled {
            more: !packets.is_empty(),
            next: self.next.map_or(NextPoll::Unarmed, NextPoll::At),
            ..Polled::default()
        }
    }

    fn arm(&mut self) -> bool {
        let mut armed = self.ring.armed.lock().unwrap();
        let mut packets = self.ring.packets.lock().unwrap();
        packets.append(&mut self.ring.late.lock().unwrap());
        *armed = packets.is_empty();
        *armed
    }

    fn peek(&mut self) -> bool {
        !self.ring.packets.lock().unwrap().is_empty()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.next.is_none().then(|| self.ring.file.as_fd())
    }
}

struct Net {
    engine: Engine<OwnQueues<Queue, ScriptedRing>>,
    port: u32,
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
        let engine =
            Engine::with_config(pollers, pool.clone(), clock, config, OwnQueues::default())
                .unwrap();
        let ring = ring.clone();
        let queue = Queue {
            ring: ring.clone(),
            next,
        };
        let setup = PortSpec::new("a");
        let device = Opened {
            rx: vec![queue],
            tx: vec![ScriptedRing::new().0],
            features: Features::default(),
        };
        let port = engine.add_port_with(setup, device).unwrap();
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

/// No notification tells of packets that come while the driver asks for it: the queue is polled.
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
        net.wait("the queue to be armed", || *net.ring.armed.lock().unwrap());
        for n in 1..=2_000 {
            if net.ring.deliver(frame(&net.pool, 0, 1, 60, n)) {
                notified += 1;
            }
            if n % 7 == 0 {
                net.wait("the packets", || net.received() == u64::from(n));
            }
        }
        net.wait("the last packets", || net.received() == 2_000);
        assert!(notified > 0, "it was armed");
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
    for n in 0..100 {
        let steering = SteeringSpec {
            rps: vec![0; n % 2],
            ..SteeringSpec::default()
        };
        net.engine
            .set_options(net.port, |port| port.steering = steering)
            .unwrap();
    }
    assert!(rounds() > before);
    assert_eq!(polls(), 1);
    net.wait("it to sleep", || net.engine.stats().workers[0].sleeps > 0);
    net.stop();
}

/// Longer than the sleep after which a worker looks ahead.
const REST: Duration = Duration::from_millis(1);

/// A worker that looks ahead polls the queue of a worker that sleeps. The queue stays armed: what
/// comes later is notified of.
#[test]
fn a_queue_that_another_worker_looked_at_stays_armed() {
    let pool = pool(256);
    let pollers = vec![Poller::new().unwrap(), Poller::new().unwrap()];
    let config = EngineConfig {
        busy_poll: Duration::ZERO,
        ..EngineConfig::default()
    };
    let clock = Clock::monotonic();
    let engine =
        Engine::with_config(pollers, pool.clone(), clock, config, OwnQueues::default()).unwrap();
    let rings = [Ring::new(), Ring::new()];
    let mut ports = Vec::new();
    for (name, ring) in ["a", "b"].into_iter().zip(&rings) {
        let (tx, script) = ScriptedRing::new();
        if name == "b" {
            // The replies are there when the write ends, and there is no need to tell of them.
            let (ring, own) = (ring.clone(), pool.clone());
            script.set_sink(move |_| {
                let mut packets = ring.packets.lock().unwrap();
                (0..3).for_each(|_| packets.push_back(frame(&own, 1, 2, 60, 2)));
            });
        }
        let setup = PortSpec::new(name);
        let device = Opened {
            rx: vec![Queue {
                ring: ring.clone(),
                next: None,
            }],
            tx: vec![tx],
            features: Features::default(),
        };
        ports.push(engine.add_port_with(setup, device).unwrap());
    }
    let bridge = engine.add_bridge(Settings::new("br")).unwrap();
    for port in ports {
        engine.set_master(port, Some(bridge)).unwrap();
    }
    let wait = |what: &str, condition: &dyn Fn() -> bool| {
        for _ in 0..10_000 {
            if condition() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("waited in vain for {what}: {:?}", engine.stats());
    };
    let mut sent = 0;
    let armed = |ring: &Ring| *ring.armed.lock().unwrap();
    let looked_ahead = || engine.stats().workers[0].looked_ahead;
    for _ in 0..20 {
        wait("the queues to be armed", &|| {
            rings.iter().all(|ring| armed(ring))
        });
        // Long enough for worker 0 to look ahead, if worker 1 sleeps.
        let asleep = || {
            let workers = engine.stats().workers;
            [workers[0].asleep, workers[1].asleep]
        };
        let since = asleep();
        wait("the workers to sleep", &|| {
            let slept = asleep().into_iter().zip(since);
            slept.into_iter().all(|(now, since)| now >= since + REST)
        });
        let before = looked_ahead();
        assert!(rings[0].deliver(frame(&pool, 2, 1, 60, 1)));
        wait("the frame to be sent", &|| {
            !rings[1].packets.lock().unwrap().is_empty() || looked_ahead() > before
        });
        // Notified of if the queue is armed, as it must be while its worker sleeps.
        rings[1].deliver(frame(&pool, 1, 2, 60, 3));
        sent += 5;
        wait("all packets", &|| engine.stats().conservation().rx == sent);
    }
    assert!(looked_ahead() > 0, "no worker looked ahead");
    assert!(engine.stop(Duration::ZERO).conservation().holds());
}

/// A device's last file may take the kernel long to close: no worker does that.
#[test]
fn a_replaced_device_is_closed_by_who_replaces_it() {
    let net = Net::new(&Ring::new(), None, Duration::ZERO);
    let (sender, dropped) = channel();
    for _ in 0..20 {
        let ring = Ring::new();
        *ring.dropped.lock().unwrap() = Some(sender.clone());
        let (tx, script) = ScriptedRing::new();
        let held = ring.clone();
        script.set_sink(move |_| drop(held.packets.lock().unwrap()));
        let queue = Queue { ring, next: None };
        net.engine.replace(net.port, vec![queue], vec![tx]).unwrap();
        drop(script);
        net.engine.replace(net.port, vec![], vec![]).unwrap();
        assert_eq!(dropped.recv().unwrap(), std::thread::current().id());
    }
    net.stop();
}

/// A queue without a file that is to be polled ten times, once a second.
#[derive(Debug, Default)]
struct Timed {
    polls: u32,
}

impl RxQueue for Timed {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        self.polls += 1;
        let next = NextPoll::At(match self.polls {
            ..10 => rx.now + Duration::from_secs(1),
            _ => Time::MAX,
        });
        Polled {
            next,
            ..Polled::default()
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Sleeps no longer than it takes to set the clock.
#[derive(Debug)]
struct Setter {
    poller: Poller,
    clock: Clock,
    /// Until when it was to sleep.
    sleeps: Sender<Time>,
}

impl Sleep for Setter {
    fn watch(&mut self, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        self.poller.watch(fd, token)
    }

    fn watch_ring(&mut self, file: &RingFile, token: usize) -> io::Result<()> {
        self.poller.watch_ring(file, token)
    }

    fn unwatch(&mut self, fd: BorrowedFd<'_>) {
        self.poller.unwatch(fd);
    }

    fn sleep(&mut self, now: Time, until: Option<Time>, ready: &mut Vec<usize>) {
        let mut look = until;
        if let Some(until) = until.filter(|&until| until != Time::ZERO) {
            self.clock.advance(until.since(now));
            self.sleeps.send(until).unwrap();
            look = Some(Time::ZERO);
        }
        self.poller.sleep(now, look, ready);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.poller.waker()
    }
}

/// A worker that slept until a queue is to be polled polls it at once.
#[test]
fn a_timed_queue_costs_one_sleep_for_each_poll() {
    let (sender, sleeps) = channel();
    let clock = Clock::virtual_at(Time::ZERO + Duration::from_secs(100));
    let sleeper = Setter {
        poller: Poller::new().unwrap(),
        clock: clock.clone(),
        sleeps: sender,
    };
    let config = EngineConfig {
        busy_poll: Duration::ZERO,
        ..EngineConfig::default()
    };
    let engine =
        Engine::with_config(vec![sleeper], pool(8), clock, config, OwnQueues::default()).unwrap();
    let setup = PortSpec::new("a");
    let device = Opened {
        rx: vec![Timed::default()],
        tx: vec![ScriptedRing::new().0],
        features: Features::default(),
    };
    engine.add_port_with(setup, device).unwrap();
    let patience = Duration::from_secs(10);
    let slept: Vec<Time> = (0..9)
        .map(|_| sleeps.recv_timeout(patience).expect("a sleep"))
        .collect();
    let each = (101..110).map(|s| Time::ZERO + Duration::from_secs(s));
    assert!(each.eq(slept.iter().copied()), "{slept:?}");
    engine.stop(Duration::ZERO);
}
