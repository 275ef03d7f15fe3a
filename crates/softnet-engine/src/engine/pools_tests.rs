//! Pools that ports bring along: every worker is registered with each, and nothing that is freed
//! for it waits until it allocates.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::rx::{Polled, Receive, Rfs, RxQueue, SteeringSpec};
use crate::testing::{CondSleeper, setup, wait};
use softnet::mem::{PacketList, Pool, ThreadStats};
use softnet::testing::{ScriptedRing, pool};
use softnet::time::Clock;

/// Receives frames into a pool of its own, as many as it is told, when it is first polled. Its
/// file never becomes readable.
#[derive(Debug)]
struct OwnPool {
    pool: Pool,
    frames: usize,
    /// More may come at any moment.
    busy: Arc<AtomicBool>,
    file: File,
}

impl OwnPool {
    fn new(pool: &Pool, frames: usize, busy: &Arc<AtomicBool>) -> OwnPool {
        OwnPool {
            pool: pool.clone(),
            frames,
            busy: busy.clone(),
            file: File::open("/dev/null").unwrap(),
        }
    }
}

impl RxQueue for OwnPool {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        for _ in 0..rx.budget.min(self.frames) {
            let mut packet = self.pool.alloc().unwrap();
            let mut bytes = [0xFF; 60];
            bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, self.frames as u8]);
            assert!(packet.append(&bytes));
            rx.push(packet);
            self.frames -= 1;
        }
        Polled {
            more: self.frames > 0 || self.busy.load(Ordering::Relaxed),
            ..Polled::default()
        }
    }
    fn pools(&self) -> Vec<&Pool> {
        vec![&self.pool]
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// Two ports on a bridge, and what leaves the engine.
struct Pools {
    engine: Engine<OwnQueues<OwnPool, ScriptedRing>>,
    ports: Vec<u32>,
    large: Pool,
    kept: Arc<Mutex<PacketList>>,
    keeps: bool,
    busy: Arc<AtomicBool>,
}

impl Pools {
    /// The ports receive nothing yet; `keeps`: what leaves is kept, and not freed.
    fn new(workers: usize, keeps: bool) -> Pools {
        let sleeper = |_| {
            let mut sleeper = CondSleeper::default();
            sleeper.longest = None;
            sleeper
        };
        let sleepers = (0..workers).map(sleeper).collect();
        let engine = Engine::start(
            sleepers,
            pool(2048),
            Clock::monotonic(),
            OwnQueues::default(),
        )
        .unwrap();
        let mut pools = Pools {
            engine,
            ports: Vec::new(),
            large: pool(2048),
            kept: Arc::default(),
            keeps,
            busy: Arc::default(),
        };
        for name in ["p0", "p1"] {
            let queue = OwnPool::new(&pools.large, 0, &pools.busy);
            let setup = setup(name, vec![queue], vec![pools.ring()]);
            pools.ports.push(pools.engine.add(setup).unwrap());
        }
        pools.engine.add_bridge_of("br0", &pools.ports).unwrap();
        pools
    }

    fn ring(&self) -> ScriptedRing {
        let (ring, script) = ScriptedRing::new();
        if self.keeps {
            let kept = self.kept.clone();
            script.set_sink(move |packet| kept.lock().unwrap().push_back(packet));
        }
        ring
    }

    /// The first port receives `frames` frames into `pool`, which the other one has sent when this
    /// returns.
    fn receive(&self, pool: &Pool, frames: usize) {
        let sent = |stats: &EngineStats| stats.ports[1].device.tx_packets;
        let before = sent(&self.engine.stats());
        let queue = OwnPool::new(pool, frames, &self.busy);
        self.engine
            .replace(self.ports[0], vec![queue], vec![self.ring()])
            .unwrap();
        wait("the frames", || {
            sent(&self.engine.stats()) == before + frames as u64
        });
    }

    /// Until every worker sleeps.
    fn rest(&self) {
        self.engine.sync();
        let asleep = || {
            let state = self.engine.state();
            let mut workers = state.workers.iter();
            workers.all(|worker| worker.shared.notifier.is_asleep())
        };
        wait("rest", asleep);
    }
}

/// INV-BUF-6, BUG-BUF-1: what is freed for a worker that sleeps wakes it from half the bound on,
/// and it takes all in; what is less returns when it wakes for any other reason. Nothing is
/// received or sent meanwhile.
#[test]
fn buffers_of_a_port_s_own_pool_return_to_a_sleeping_worker() {
    let net = Pools::new(1, true);
    net.receive(&net.large, 200);
    net.rest();
    let out = std::mem::take(&mut *net.kept.lock().unwrap());
    let owner = || net.large.thread_stats()[0];
    assert_eq!((out.len(), owner().allocated), (200, 200));
    let (mut few, mut many) = (out, PacketList::new());
    few.split_front(128, &mut many);
    drop(many);
    wait("the buffers to return", || owner().drained == 128);
    net.rest();
    let stats = net.engine.stats().port_pools;
    assert_eq!(stats.len(), 1, "once, whoever uses it");
    assert_eq!((owner().deferred, stats[0].remote_freed), (0, 128));
    assert_eq!((stats[0].kicks, stats[0].free), (1, 2048 - 72));
    drop(few);
    // A thread sends off what it freed for others when it sleeps.
    assert!(net.large.prepare_sleep());
    let kicks = net.large.stats().kicks;
    assert_eq!((owner().deferred, kicks), (72, 1), "half the bound is 128");
    net.engine.sync();
    wait("the rest to return", || owner().drained == 200);
    assert_eq!(net.engine.stats().port_pools[0].free, 2048);
}

/// Buffers that a worker frees for another leave it before it sleeps, and the other takes them in:
/// neither keeps any of a pool back.
#[test]
fn workers_return_each_other_s_buffers_before_they_sleep() {
    let net = Pools::new(2, false);
    // Worker 0 allocates and worker 1 frees.
    let spec = SteeringSpec {
        rps: vec![1],
        rfs: Rfs::Off,
    };
    net.engine
        .set_options(net.ports[0], |port| port.steering = spec.clone())
        .unwrap();
    net.receive(&net.large, 200);
    wait("the buffers to return", || {
        let owners = net.large.thread_stats();
        let sum = |f: fn(&ThreadStats) -> u64| owners.iter().map(f).sum::<u64>();
        let returned = sum(|owner| owner.remote_freed) == 200;
        // Half the bound.
        returned && sum(|owner| owner.outgoing as u64) == 0 && sum(|o| o.deferred as u64) < 128
    });
    assert_eq!(net.large.stats().free, 2048);
}

/// BUG-BUF-1: a worker that is never idle takes buffers in, though it allocates none.
#[test]
fn buffers_return_to_a_worker_that_only_polls() {
    let net = Pools::new(1, true);
    net.receive(&net.large, 128);
    net.busy.store(true, Ordering::Relaxed);
    net.receive(&net.large, 0);
    let rest = |stats: EngineStats| stats.workers[0].sleeps;
    let sleeps = rest(net.engine.stats());
    drop(std::mem::take(&mut *net.kept.lock().unwrap()));
    wait("the buffers to return", || {
        net.large.thread_stats()[0].drained == 128
    });
    assert_eq!(net.large.stats().kicks, 0);
    net.engine.sync();
    assert_eq!(rest(net.engine.stats()), sleeps);
    net.busy.store(false, Ordering::Relaxed);
    net.rest();
}

/// A pool that no port uses any more is left: nobody is woken for it, and nothing of it is
/// stranded; a port may come back with another one.
#[test]
fn a_pool_that_no_port_uses_is_left() {
    let net = Pools::new(1, true);
    let other = pool(512);
    net.receive(&other, 40);
    assert_eq!(net.engine.stats().port_pools.len(), 2);
    net.receive(&net.large, 1);
    assert_eq!(net.engine.stats().port_pools.len(), 1);
    net.rest();
    drop(std::mem::take(&mut *net.kept.lock().unwrap()));
    assert!(other.prepare_sleep());
    assert_eq!((other.stats().kicks, other.stats().free), (0, 512));
    // What waits at the worker, which does not look any more, can be had.
    let mut all = PacketList::new();
    assert_eq!(other.alloc_bulk(512, &mut all), 512);
}
