//! Baseline `spin-adopt`: a user-space port of the kernel's locked transmit path since 6.19. A
//! sender pushes on a list; the one that found it empty waits for the root lock and queues the
//! whole list. A sender that finds others there counts itself first, in a counter that bounds the
//! list.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use softnet::mem::{PacketAdoption, PacketList, Pool};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::TxPolicy;
use softnet_tc::AnyQdisc;

use super::linux::Linux;
use crate::tx_adopt::{Path, Sink, Ticks};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SpinAdopt {
    list: CachePadded<PacketAdoption>,
    /// Packets added to a list that was not empty, since it was taken last.
    added: CachePadded<AtomicUsize>,
    /// The default burst limit, as all have it.
    limit: usize,
    linux: Linux,
}

impl SpinAdopt {
    pub(crate) fn new(qdisc: AnyQdisc, sink: Sink, ticks: Ticks, pool: Pool) -> SpinAdopt {
        SpinAdopt {
            list: CachePadded::new(PacketAdoption::expecting(0)),
            added: CachePadded::default(),
            limit: TxPolicy::default().max_burst,
            linux: Linux::new(qdisc, sink, ticks, pool),
        }
    }
}

impl Path for SpinAdopt {
    const SERVED: bool = true;

    fn transmit(&self, packets: PacketList, now: Time, waited: &mut u64) -> u64 {
        let linux = &self.linux;
        let (frames, count) = (packets.len(), packets.wire_packets());
        let refuse = |_| {
            linux.drops.add(DropReason::QdiscBurst, count);
            count
        };
        if !self.list.is_empty() {
            let added = self.added.fetch_add(frames, Ordering::Relaxed);
            if added + frames > self.limit {
                return refuse(packets);
            }
        }
        match self.list.push(packets, frames, usize::MAX) {
            Ok(0) => {}
            // Whoever found it empty takes care of ours, too.
            Ok(_) => return 0,
            Err(packets) => return refuse(packets),
        }
        let root = linux.lock_root(waited);
        let adopted = self.list.take();
        self.added.store(0, Ordering::Relaxed);
        linux.enqueue_and_run(root, adopted, now, waited, || ());
        linux.softirq(now, waited);
        0
    }

    fn serve(&self, stop: &std::sync::atomic::AtomicBool) {
        self.linux.serve(stop);
    }

    fn dropped(&self) -> u64 {
        self.linux.drops.total()
    }
}
