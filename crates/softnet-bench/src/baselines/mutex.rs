//! Baseline `mutex`: what most programs do. One lock around queueing, dequeueing and sending;
//! waiters sleep.

use parking_lot::Mutex;
use softnet::mem::{PacketList, Pool};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet_tc::AnyQdisc;

use crate::tx_adopt::{Path, Sink, Stage, Ticks};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Locked {
    stage: Mutex<Stage>,
    drops: DropCounters,
    ticks: Ticks,
}

impl Locked {
    pub(crate) fn new(qdisc: AnyQdisc, sink: Sink, ticks: Ticks, pool: Pool) -> Locked {
        Locked {
            stage: Mutex::new(Stage::new(qdisc, sink, pool)),
            drops: DropCounters::new(),
            ticks,
        }
    }
}

impl Path for Locked {
    const SERVED: bool = false;

    fn transmit(&self, packets: PacketList, now: Time, waited: &mut u64) -> u64 {
        let mut stage = self.stage.try_lock().unwrap_or_else(|| {
            let start = self.ticks.nanos();
            let stage = self.stage.lock();
            *waited += self.ticks.nanos() - start;
            stage
        });
        stage.pass(packets, now, &self.drops);
        0
    }

    fn dropped(&self) -> u64 {
        self.drops.total()
    }
}
