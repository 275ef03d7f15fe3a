//! When a worker is idle, and what it does then.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::rx::{NextPoll, Polled, Receive, RxQueue, Sleep};
use crate::testing::{CondSleeper, FedQueue, setup, wait};
use softnet::mem::{PacketList, Pool};
use softnet::testing::{ScriptedRing, frame, pool};
use softnet::time::{Clock, Time};
use softnet::tx::{RingFile, Wake};

/// A receive queue that suppresses notifications until it is armed, and counts how often that is.
/// It never has a packet. Only `poll` waits while it is stalled: a worker that was stopped in
/// another call would never begin the poll that `stall` waits for.
#[derive(Clone, Debug)]
struct Armed {
    fed: FedQueue,
    arms: Arc<AtomicUsize>,
}

impl Armed {
    fn new() -> Armed {
        let (file, _) = UnixDatagram::pair().unwrap();
        let mut fed = FedQueue::default();
        fed.file = Some(Arc::new(OwnedFd::from(file)));
        Armed {
            fed,
            arms: Arc::default(),
        }
    }
}

impl RxQueue for Armed {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        Polled {
            next: NextPoll::Unarmed,
            ..self.fed.poll(rx)
        }
    }

    fn arm(&mut self) -> bool {
        self.arms.fetch_add(1, Ordering::SeqCst);
        true
    }

    fn peek(&mut self) -> bool {
        false
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fed.fd()
    }
}

fn engine(pool: &Pool) -> Engine<OwnQueues<Armed, ScriptedRing>> {
    let mut sleeper = CondSleeper::default();
    sleeper.reports_files = true;
    let config = EngineConfig {
        busy_poll: Duration::ZERO,
        ..EngineConfig::default()
    };
    // No time passes, so no queue is armed for being silent.
    let clock = Clock::virtual_at(Time::ZERO + Duration::from_secs(100));
    let pool = pool.clone();
    Engine::with_config(vec![sleeper], pool, clock, config, OwnQueues::default()).unwrap()
}

/// A bounded run that leaves packets makes the worker go round again: it is not idle before the
/// last, and arms no queue.
#[test]
fn a_worker_is_not_idle_between_two_bounded_runs() {
    const PACKETS: usize = 640;
    let pool = pool(4096);
    let engine = engine(&pool);
    let (queue, (ring, script)) = (Armed::new(), ScriptedRing::new());
    let port = engine
        .add(setup("p", vec![queue.clone()], vec![ring]))
        .unwrap();
    // How often the queue had been armed when a packet was sent.
    let arms = Arc::new(Mutex::new(Vec::new()));
    let (seen, armed) = (arms.clone(), queue.arms.clone());
    script.set_sink(move |_| seen.lock().unwrap().push(armed.load(Ordering::SeqCst)));
    let device = engine.state().port(port).unwrap().device.clone();
    let stalled = queue.fed.stall();
    let packets = (0..PACKETS).map(|mark| frame(&pool, 1, 2, 60, mark as u32));
    let packets: PacketList = packets.collect();
    device.transmit(packets, engine.clock().now());
    // The caller has made the first run.
    assert!(arms.lock().unwrap().len() < PACKETS / 2);
    drop(stalled);
    wait("all packets", || arms.lock().unwrap().len() == PACKETS);
    let arms = arms.lock().unwrap().clone();
    assert!(arms.iter().all(|&seen| seen == arms[0]), "{arms:?}");
    wait("an idle worker", || {
        queue.arms.load(Ordering::SeqCst) > arms[0]
    });
}

/// A sleeper that counts. By the virtual clock each sleep takes 100 ns.
#[derive(Debug)]
struct Counted {
    sleeper: CondSleeper,
    clock: Clock,
    /// Time for which others have the CPU when the worker yields it.
    others: Duration,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    sleeps: AtomicUsize,
    /// Looks at files.
    looks: AtomicUsize,
    yields: AtomicUsize,
}

impl Counted {
    fn new(clock: &Clock, others: Duration) -> (Counted, Arc<Counts>) {
        let mut sleeper = CondSleeper::default();
        sleeper.longest = None;
        let counts = Arc::new(Counts::default());
        let counted = Counted {
            sleeper,
            clock: clock.clone(),
            others,
            counts: counts.clone(),
        };
        (counted, counts)
    }
}

impl Sleep for Counted {
    fn watch(&mut self, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        self.sleeper.watch(fd, token)
    }

    fn watch_ring(&mut self, file: &RingFile, token: usize) -> io::Result<()> {
        self.sleeper.watch_ring(file, token)
    }

    fn unwatch(&mut self, fd: BorrowedFd<'_>) {
        self.sleeper.unwatch(fd);
    }

    fn sleep(&mut self, now: Time, until: Option<Time>, ready: &mut Vec<usize>) {
        if until == Some(Time::ZERO) {
            self.counts.looks.fetch_add(1, Ordering::SeqCst);
        } else {
            self.clock.advance(Duration::from_nanos(100));
            self.counts.sleeps.fetch_add(1, Ordering::SeqCst);
        }
        self.sleeper.sleep(now, until, ready);
    }

    fn yield_cpu(&mut self) {
        self.clock.advance(self.others);
        self.counts.yields.fetch_add(1, Ordering::SeqCst);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.sleeper.waker()
    }
}

/// Yields of a worker that is woken twenty times, if others have the CPU for so long each time.
fn yields(others: Duration) -> usize {
    let clock = Clock::virtual_at(Time::ZERO + Duration::from_secs(100));
    let (sleeper, counts) = Counted::new(&clock, others);
    let engine: Engine<OwnQueues<Armed, ScriptedRing>> =
        Engine::start(vec![sleeper], pool(8), clock, OwnQueues::default()).unwrap();
    for woken in 0..20 {
        wait("the worker to sleep", || {
            counts.sleeps.load(Ordering::SeqCst) > woken
        });
        engine.sync();
    }
    engine.stop(Duration::ZERO);
    counts.yields.load(Ordering::SeqCst)
}

/// A worker that gets its CPU back late sleeps at once, and does not poll for a while. It yields
/// also where no file is to be looked at.
#[test]
fn a_worker_does_not_poll_while_others_want_its_cpu() {
    assert_eq!(yields(Duration::from_millis(1)), 1);
    let yields = yields(Duration::from_micros(1));
    assert!(yields >= 20, "{yields}");
}

/// A receive queue whose packets come when it has just been found empty: whoever looks twice sees
/// one. Each poll takes 60 µs.
#[derive(Debug)]
struct Steady {
    file: UnixDatagram,
    clock: Clock,
    peeks: usize,
}

impl RxQueue for Steady {
    fn poll(&mut self, _: &mut Receive<'_>) -> Polled {
        self.clock.advance(Duration::from_micros(60));
        self.peeks = 0;
        Polled {
            next: NextPoll::Unarmed,
            ..Polled::default()
        }
    }

    fn arm(&mut self) -> bool {
        false
    }

    fn peek(&mut self) -> bool {
        self.peeks += 1;
        self.peeks > 1
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// A worker that finds packets in memory each time that it is idle looks at files all the same:
/// one tells of a ring that has buffers again.
#[test]
fn files_are_looked_at_where_polling_always_finds_packets() {
    let clock = Clock::virtual_at(Time::ZERO + Duration::from_secs(100));
    let (sleeper, counts) = Counted::new(&clock, Duration::ZERO);
    let engine: Engine<OwnQueues<Steady, ScriptedRing>> =
        Engine::start(vec![sleeper], pool(8), clock.clone(), OwnQueues::default()).unwrap();
    let (file, _other) = UnixDatagram::pair().unwrap();
    let queue = Steady {
        file,
        clock,
        peeks: 0,
    };
    engine
        .add(setup("p", vec![queue], vec![ScriptedRing::new().0]))
        .unwrap();
    let looks = || counts.looks.load(Ordering::SeqCst);
    let before = looks();
    wait("looks", || looks() >= before + 10);
    engine.stop(Duration::ZERO);
}

/// A receive queue of which each poll takes 60 µs. It always has more, or never a packet: then it
/// counts how often it is armed.
#[derive(Debug)]
struct Constant {
    file: UnixDatagram,
    clock: Clock,
    /// None: it has more.
    arms: Option<Arc<AtomicUsize>>,
}

impl RxQueue for Constant {
    fn poll(&mut self, _: &mut Receive<'_>) -> Polled {
        self.clock.advance(Duration::from_micros(60));
        Polled {
            more: self.arms.is_none(),
            next: NextPoll::Unarmed,
            ..Polled::default()
        }
    }

    fn arm(&mut self) -> bool {
        if let Some(arms) = &self.arms {
            arms.fetch_add(1, Ordering::SeqCst);
        }
        self.arms.is_some()
    }

    fn peek(&mut self) -> bool {
        self.arms.is_none()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// A worker that is never idle arms queues in which nothing has come for long, once, where there
/// are many: from then on the queue's file tells.
#[test]
fn a_busy_worker_arms_a_silent_queue() {
    let clock = Clock::virtual_at(Time::ZERO + Duration::from_secs(100));
    let (sleeper, _) = Counted::new(&clock, Duration::ZERO);
    let engine: Engine<OwnQueues<Constant, ScriptedRing>> =
        Engine::start(vec![sleeper], pool(8), clock.clone(), OwnQueues::default()).unwrap();
    let arms = Arc::new(AtomicUsize::new(0));
    // Two more than are looked at in every round.
    let silent = (0..18).map(|n| (format!("silent{n}"), Some(arms.clone())));
    for (name, arms) in std::iter::once(("busy".to_owned(), None)).chain(silent) {
        let queue = Constant {
            file: UnixDatagram::pair().unwrap().0,
            clock: clock.clone(),
            arms,
        };
        engine
            .add(setup(&name, vec![queue], vec![ScriptedRing::new().0]))
            .unwrap();
    }
    wait("two to be armed", || arms.load(Ordering::SeqCst) > 1);
    let later = clock.now() + Duration::from_millis(10);
    wait("more rounds", || clock.now() >= later);
    // The others are looked at.
    assert_eq!(arms.load(Ordering::SeqCst), 2);
    engine.stop(Duration::ZERO);
}
