//! When a worker is idle.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::rx::{NextPoll, Polled, Receive, RxQueue};
use crate::testing::{CondSleeper, FedQueue, setup, wait};
use softnet::mem::{PacketList, Pool};
use softnet::testing::{ScriptedRing, frame, pool};
use softnet::time::Clock;

/// A receive queue that suppresses notifications until it is armed, and counts how often
/// that is.
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
        self.fed.feed().packets.is_empty()
    }

    fn peek(&mut self) -> bool {
        !self.fed.feed().packets.is_empty()
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
    let (pool, clock) = (pool.clone(), Clock::monotonic());
    Engine::with_config(vec![sleeper], pool, clock, config, OwnQueues::default()).unwrap()
}

/// A bounded run that leaves packets makes the worker go round again: it is not idle before the
/// last, and arms no queue.
#[test]
fn a_worker_is_not_idle_between_two_bounded_runs() {
    const PACKETS: u32 = 640;
    let pool = pool(1024);
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
    let packets = (0..PACKETS).map(|mark| frame(&pool, 1, 2, 60, mark));
    let packets: PacketList = packets.collect();
    device.transmit(packets, engine.clock().now());
    // The caller has made the first run.
    assert!(arms.lock().unwrap().len() < PACKETS as usize / 2);
    drop(stalled);
    wait("all packets", || {
        arms.lock().unwrap().len() == PACKETS as usize
    });
    let arms = arms.lock().unwrap().clone();
    assert!(arms.iter().all(|&seen| seen == arms[0]), "{arms:?}");
    wait("an idle worker", || {
        queue.arms.load(Ordering::SeqCst) > arms[0]
    });
    assert!(engine.stop(Duration::ZERO).conservation().holds());
}
