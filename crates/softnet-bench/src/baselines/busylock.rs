//! Baseline `busylock`: a user-space port of the kernel's locked transmit path up to 6.18, with
//! fair locks. A sender that finds the qdisc being run takes a second lock first, so that only one
//! sender at a time competes with the running one for the root lock.

use std::sync::atomic::AtomicBool;

use crossbeam_utils::CachePadded;
use softnet::mem::{PacketList, Pool};
use softnet::time::Time;
use softnet_tc::AnyQdisc;

use super::linux::Linux;
use super::ticket::{self, Ticket};
use crate::tx_adopt::{Path, Sink, Ticks};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Busylock {
    busy: CachePadded<Ticket<()>>,
    linux: Linux,
}

impl Busylock {
    pub(crate) fn new(qdisc: AnyQdisc, sink: Sink, ticks: Ticks, pool: Pool) -> Busylock {
        Busylock {
            busy: CachePadded::new(Ticket::new(())),
            linux: Linux::new(qdisc, sink, ticks, pool),
        }
    }
}

impl Path for Busylock {
    const SERVED: bool = true;

    fn transmit(&self, packets: PacketList, now: Time, waited: &mut u64) -> u64 {
        let linux = &self.linux;
        let busy = linux
            .is_running()
            .then(|| ticket::lock(&self.busy, &linux.ticks, waited));
        let root = linux.lock_root(waited);
        linux.enqueue_and_run(root, packets, now, waited, || drop(busy));
        linux.softirq(now, waited);
        0
    }

    fn serve(&self, stop: &AtomicBool) {
        self.linux.serve(stop);
    }

    fn dropped(&self) -> u64 {
        self.linux.drops.total()
    }
}
