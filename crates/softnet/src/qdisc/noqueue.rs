//! `noqueue`: each packet goes to the driver at once; what that does not take is dropped.

use super::{Cx, Fifo, Next, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use crate::mem::PacketList;
use crate::time::Time;

/// `noqueue`. It holds a packet only between the enqueue and the dequeue of one run.
#[derive(Debug, Default)]
pub struct Noqueue {
    queue: Fifo,
    stats: QdiscStats,
}

impl Qdisc for Noqueue {
    fn enqueue(&mut self, packets: &mut PacketList, _: &mut Cx) -> Verdict {
        while let Some(packet) = packets.pop_front() {
            self.queue.push(packet, &mut self.stats);
        }
        Verdict::Queued
    }

    #[inline]
    fn try_pass(&mut self, _: &PacketList, sum: WireSum, _: &mut Cx) -> bool {
        let passes = self.queue.is_empty();
        if passes {
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, _: &mut Cx) -> Next {
        self.queue.dequeue(budget, out, &mut self.stats)
    }

    fn peek(&self, _: Time) -> Peek {
        self.queue.peek()
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out, &mut self.stats);
    }

    fn is_noqueue(&self) -> bool {
        true
    }

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}
