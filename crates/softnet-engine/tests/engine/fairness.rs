//! Ports share a worker's time, whatever one poll or one run of theirs costs. In virtual time,
//! which passes only in the drivers of this test.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use softnet::mem::{PacketList, Pool};
use softnet::testing::{frame, pool};
use softnet::time::{Clock, Time};
use softnet::tx::{RingWaker, Sent, TxRing, Xmit};
use softnet_engine::rx::{Polled, Receive, RxQueue};
use softnet_engine::{Engine, EngineConfig, Opened, OwnQueues, PortSpec, Settings};
use softnet_io::Poller;

/// Drivers have work for so long, from [`BEGIN`].
const END: Time = Time(200_000_000);
const BEGIN: Time = Time(1);
/// A poll that moves 64 packets.
const HONEST: Duration = Duration::from_micros(10);
/// A slow poll.
const SLOW: Duration = Duration::from_millis(1);

/// A queue that always has packets, or so often.
#[derive(Debug)]
struct Queue {
    clock: Clock,
    cost: Duration,
    served: Arc<Served>,
    /// Where packets come from, which go to all others; none if it drops what it gets.
    pool: Option<Pool>,
    /// When there is work next, and from then on this often; none: always.
    due: Option<(Time, Duration)>,
}

impl RxQueue for Queue {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let now = self.clock.now();
        if now < BEGIN || now >= END {
            return Polled::default();
        }
        if let Some((due, every)) = &mut self.due {
            if now < *due {
                return Polled::default();
            }
            let late = now.since(*due).as_nanos() as u64;
            self.served.latest.fetch_max(late, Ordering::Relaxed);
            *due = due.plus_nanos(every.as_nanos() as u64);
        }
        self.served.polls.fetch_add(1, Ordering::Relaxed);
        self.clock.advance(self.cost);
        if let Some(pool) = &self.pool {
            (0..rx.budget).for_each(|_| rx.push(frame(pool, 0, 9, 60, 0)));
        }
        Polled {
            more: self.due.is_none_or(|(due, _)| self.clock.now() >= due),
            ..Polled::default()
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A ring whose device takes so long for a packet. It takes one in a run if that costs something.
#[derive(Debug)]
struct Ring {
    clock: Clock,
    cost: Duration,
    /// The last run, and the one in which it took a packet.
    run: Time,
    taken: Option<Time>,
    served: Arc<Served>,
    waker: Option<RingWaker>,
}

impl TxRing for Ring {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        while self.taken != Some(self.run)
            && let Some(packet) = packets.pop_front()
        {
            // What is queued by then is sent later.
            if self.clock.now() < END {
                self.served.packets.fetch_add(1, Ordering::Relaxed);
            }
            if !self.cost.is_zero() {
                self.clock.advance(self.cost);
                self.taken = Some(self.run);
            }
            sent.count(&packet);
        }
        if packets.is_empty() {
            return Xmit::Complete;
        }
        self.waker.as_ref().unwrap().wake();
        Xmit::Busy
    }

    fn available(&mut self, now: Time) -> Option<u64> {
        self.run = now;
        None
    }

    fn bind(&mut self, waker: RingWaker) {
        self.waker = Some(waker);
    }
}

/// A port: what a poll and what a packet costs.
#[derive(Clone, Copy, Debug)]
struct Port {
    poll: Duration,
    packet: Duration,
    /// It sends to the others.
    sends: bool,
    /// Receive queues.
    queues: usize,
    /// Period of its work; none: always.
    every: Option<Duration>,
}

const BUSY: Port = Port {
    poll: HONEST,
    packet: Duration::ZERO,
    sends: false,
    queues: 1,
    every: None,
};

/// A twentieth of the worker's time.
const UNLOADED: Port = Port {
    every: Some(Duration::from_micros(200)),
    ..BUSY
};

/// Service that a port got.
#[derive(Debug, Default)]
struct Served {
    polls: AtomicU64,
    /// Packets that its ring took.
    packets: AtomicU64,
    /// Longest wait of work, in nanoseconds.
    latest: AtomicU64,
}

impl Served {
    /// The share of the worker's time.
    fn share(&self, port: Port) -> f64 {
        let (polls, packets) = (&self.polls, &self.packets);
        let time = |cost: Duration, count: &AtomicU64| {
            cost.as_secs_f64() * count.load(Ordering::Relaxed) as f64
        };
        let time = time(port.poll, polls) + time(port.packet, packets);
        time / END.since(BEGIN).as_secs_f64()
    }
}

/// Service that the ports got by [`END`].
fn serve(ports: &[Port]) -> Vec<Arc<Served>> {
    let clock = Clock::virtual_at(Time::ZERO);
    let pool = pool(4096);
    let sleepers = vec![Poller::new().unwrap()];
    let config = EngineConfig::default();
    let engine = Engine::with_config(
        sleepers,
        pool.clone(),
        clock.clone(),
        config,
        OwnQueues::default(),
    )
    .unwrap();
    let mut all = Vec::new();
    let mut ids = Vec::new();
    for (number, port) in ports.iter().enumerate() {
        let served = Arc::new(Served::default());
        let queue = |_| Queue {
            clock: clock.clone(),
            cost: port.poll,
            served: served.clone(),
            pool: port.sends.then(|| pool.clone()),
            due: port.every.map(|every| (BEGIN, every)),
        };
        let ring = Ring {
            clock: clock.clone(),
            cost: port.packet,
            run: Time::ZERO,
            taken: None,
            served: served.clone(),
            waker: None,
        };
        let setup = PortSpec::new(format!("p{number}"));
        let device = Opened {
            rx: (0..port.queues).map(queue).collect(),
            tx: vec![ring],
            features: Default::default(),
        };
        ids.push(engine.add_port_with(setup, device).unwrap());
        all.push(served);
    }
    let bridge = engine.add_bridge(Settings::new("br")).unwrap();
    for port in ids {
        engine.set_master(port, Some(bridge)).unwrap();
    }
    clock.advance(BEGIN.since(Time::ZERO));
    let deadline = Instant::now() + Duration::from_secs(60);
    while clock.now() < END {
        assert!(Instant::now() < deadline, "{:?}", engine.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(engine.stop(Duration::ZERO).conservation().holds());
    all
}

/// Ports take no more than their share of the worker's time and a tenth of all, whatever
/// neighbours they have, who get theirs.
fn takes_its_share(attackers: &[Port]) {
    for (busy, unloaded) in [(0, 3), (1, 0), (1, 3), (3, 0), (3, 3)] {
        let neighbours = [vec![BUSY; busy], vec![UNLOADED; unloaded]].concat();
        let ports = [attackers, &neighbours].concat();
        let served = serve(&ports);
        let case = format!("{busy} busy, {unloaded} unloaded: {ports:?} {served:?}");
        let all = (attackers.len() + busy) as f64;
        let shares = ports.iter().zip(&served).take(attackers.len());
        let taken: f64 = shares.map(|(port, served)| served.share(*port)).sum();
        assert!(taken <= attackers.len() as f64 / all + 0.1, "{case}");
        // Neighbours who have work all the time get all that the others do not use.
        let unloaded = 0.05 * unloaded as f64;
        for served in &served[attackers.len()..][..busy] {
            let least = (1.0 - unloaded) / all - 0.05;
            assert!(served.share(BUSY) >= least, "{case}");
        }
        // Who has little to do waits for one turn of each of the others, and for one of all that
        // floods.
        let floods = attackers.iter().any(|port| port.sends);
        let turns = attackers.len() as u32 + u32::from(floods);
        for served in &served[attackers.len() + busy..] {
            assert!(served.share(UNLOADED) >= 0.049, "{case}");
            let longest = SLOW * turns + HONEST * 3 * ports.len() as u32;
            let latest = served.latest.load(Ordering::Relaxed);
            assert!(u128::from(latest) <= longest.as_nanos(), "{case}");
        }
    }
}

/// A port whose polls take long is polled as seldom as one that moves so many packets.
#[test]
fn a_port_whose_polls_are_slow_gets_no_more_time_than_others() {
    takes_its_share(&[Port { poll: SLOW, ..BUSY }]);
}

/// Who floods a port with a slow device takes, together with that port, no
/// more than the shares of the two.
#[test]
fn a_port_whose_device_is_slow_gets_no_more_time_than_others() {
    let slow = Port {
        packet: SLOW,
        ..BUSY
    };
    let floods = Port {
        sends: true,
        ..BUSY
    };
    takes_its_share(&[slow, floods]);
}

/// Queues of one port share its time.
#[test]
fn a_port_with_many_queues_gets_no_more_time_than_others() {
    takes_its_share(&[Port { queues: 8, ..BUSY }]);
}
