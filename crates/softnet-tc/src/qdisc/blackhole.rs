//! `blackhole`: drops all that comes (the kernel's `sch_blackhole`). Its senders are not told.

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Peek, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::time::Time;

use super::kind::Kind;
use super::spec::QdiscEnv;
use crate::handle::Handle;

/// `blackhole`. It never holds a packet.
#[derive(Debug, Default)]
pub struct Blackhole {
    stats: QdiscStats,
}

impl Kind for Blackhole {
    type Spec = ();
    const NAME: &'static str = "blackhole";
    const CAN_CHANGE: bool = false;

    fn make((): &(), _: Handle, _: &QdiscEnv) -> Blackhole {
        Blackhole::default()
    }
}

impl Qdisc for Blackhole {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        while let Some(packet) = packets.pop_front() {
            self.stats.drops += 1;
            cx.dropped.push(packet, DropReason::QdiscLimit);
        }
        Verdict::Queued
    }

    fn dequeue(&mut self, _: usize, _: &mut PacketList, _: &mut Cx) -> Next {
        Next::Idle
    }

    fn peek(&self, _: Time) -> Peek {
        Peek::Idle
    }

    fn drain(&mut self, _: &mut PacketList) {}

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

#[cfg(test)]
mod tests {
    use softnet::stats::DropCounters;
    use softnet::testing::{frame, pool};

    use super::*;

    #[test]
    fn all_is_dropped_and_counted() {
        let pool = pool(4);
        let mut q = Blackhole::default();
        let mut cx = Cx::new(&pool);
        for n in 0..3 {
            let mut one = frame(&pool, 1, 2, 60, n).into();
            assert_eq!(q.enqueue(&mut one, &mut cx), Verdict::Queued);
        }
        assert_eq!((q.stats().drops, q.stats().qlen), (3, 0));
        assert_eq!(q.dequeue(9, &mut PacketList::new(), &mut cx), Next::Idle);
        let counters = DropCounters::new();
        cx.dropped.settle(&counters);
        assert_eq!(counters.get(DropReason::QdiscLimit), 3);
    }
}
