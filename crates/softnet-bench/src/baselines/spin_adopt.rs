//! Baseline `spin-adopt`: the kernel's locked transmit path since 6.19, brought to user space as it is. A sender pushes on a list; the one
//! that found it empty spins for the root lock and queues the whole list.
//!
//! The kernel sees from the push itself whether the list was empty. Softnet's list does not say, so a counter beside it does: a sender
//! counts after its push, and the adopter sets the counter to 0 before it takes the list. Hence whoever counts from 0 is an adopter, and a
//! packet counted by a sender that did not is on the list when the adopter takes it. As in the kernel that is two atomic operations per push.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use softnet::packet::{PacketAdoption, PacketList};
use softnet::pool::Pool;
use softnet::qdisc::AnyQdisc;
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::QDISC_MAX_BURST;

use super::linux::Linux;
use crate::tx_adopt::{Path, Sink, Ticks};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SpinAdopt {
    list: CachePadded<PacketAdoption>,
    pending: CachePadded<AtomicUsize>,
    linux: Linux,
}

impl SpinAdopt {
    pub(crate) fn new(
        qdisc: AnyQdisc,
        can_bypass: bool,
        sink: Sink,
        ticks: Ticks,
        pool: Pool,
    ) -> SpinAdopt {
        SpinAdopt {
            list: CachePadded::default(),
            pending: CachePadded::default(),
            linux: Linux::new(qdisc, can_bypass, sink, ticks, pool),
        }
    }
}

impl Path for SpinAdopt {
    const SERVED: bool = true;

    fn transmit(&self, packets: PacketList, now: Time, waited: &mut u64) -> u64 {
        let linux = &self.linux;
        if let Err(refused) = self.list.push(packets, QDISC_MAX_BURST) {
            let count = refused.wire_packets();
            linux.drops.add(DropReason::QdiscBurst, count);
            return count;
        }
        if self.pending.fetch_add(1, Ordering::SeqCst) != 0 {
            return 0;
        }
        let root = linux.lock_root(waited);
        self.pending.store(0, Ordering::SeqCst);
        let adopted = self.list.take();
        linux.enqueue_and_run(root, adopted, now, waited, || ());
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
