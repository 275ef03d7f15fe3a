//! Peer `crossbeam`: an `ArrayQueue` and one thread that drains it, which alone has the qdisc and
//! the driver.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use softnet::mem::{PacketList, Pool};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;
use softnet_tc::AnyQdisc;

use super::path::{Path, Sink, Stage};
use super::ticks::Ticks;

/// Packets taken from the queue before they are sent on.
const BURST: usize = 64;
/// Looks at an empty queue before the CPU is given away.
const SPINS: u32 = 64;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Crossbeam {
    queue: ArrayQueue<PacketList>,
    stage: Mutex<Stage>,
    drops: DropCounters,
    ticks: Ticks,
}

impl Crossbeam {
    /// `capacity` transmit calls may be in flight.
    pub(crate) fn new(
        qdisc: AnyQdisc,
        sink: Sink,
        ticks: Ticks,
        pool: Pool,
        capacity: usize,
    ) -> Crossbeam {
        Crossbeam {
            queue: ArrayQueue::new(capacity),
            stage: Mutex::new(Stage::new(qdisc, sink, pool)),
            drops: DropCounters::new(),
            ticks,
        }
    }
}

impl Path for Crossbeam {
    const SERVED: bool = true;

    fn transmit(&self, packets: PacketList, _: Time, _: &mut u64) -> u64 {
        let Err(refused) = self.queue.push(packets) else {
            return 0;
        };
        let count = refused.wire_packets();
        self.drops.add(DropReason::QdiscLimit, count);
        count
    }

    fn serve(&self, stop: &AtomicBool) {
        let mut stage = self.stage.lock();
        let mut empty = 0;
        loop {
            let mut burst = PacketList::new();
            while burst.len() < BURST
                && let Some(mut packets) = self.queue.pop()
            {
                burst.append(&mut packets);
            }
            if !burst.is_empty() {
                empty = 0;
                stage.pass(burst, self.ticks.now(), &self.drops);
            } else if stop.load(Ordering::Acquire) {
                return;
            } else if empty < SPINS {
                empty += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.drops.total()
    }
}
