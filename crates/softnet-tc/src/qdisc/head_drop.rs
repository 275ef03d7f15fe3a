//! `pfifo_head_drop`: a FIFO limited in packets that drops its oldest for a new one.

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Fifo, Next, Peek, Qdisc, QdiscStats, Verdict};
use softnet::stats::DropReason;
use softnet::time::Time;

use super::kind::{Kind, QdiscSpec};
use super::option::{Form, QdiscOption, options};
use super::spec::QdiscEnv;
use crate::handle::Handle;

/// `pfifo_head_drop`. A limit of 0 drops everything.
#[derive(Debug)]
pub struct PfifoHeadDrop {
    queue: Fifo,
    limit: u32,
    stats: QdiscStats,
}

impl PfifoHeadDrop {
    /// An empty queue for at most `limit` frames.
    pub fn new(limit: u32) -> PfifoHeadDrop {
        PfifoHeadDrop {
            queue: Fifo::default(),
            limit,
            stats: QdiscStats::default(),
        }
    }
}

impl Kind for PfifoHeadDrop {
    type Spec = u32;
    const NAME: &'static str = "pfifo_head_drop";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::PfifoHeadDrop { limit } =>
        /// packets; the default is the port's `txqueuelen`
        "limit": Form::Size => *limit; wrong = "-1",
    };

    fn make(&limit: &u32, _: Handle, _: &QdiscEnv) -> PfifoHeadDrop {
        PfifoHeadDrop::new(limit)
    }

    /// Keeps what is queued; from then on each packet that comes replaces the oldest.
    fn change(&mut self, &limit: &u32, _: &mut Cx) {
        self.limit = limit;
    }
}

impl Qdisc for PfifoHeadDrop {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            if self.limit == 0 {
                self.stats.drops += 1;
                cx.dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
                continue;
            }
            // One for one, as in the kernel: a queue above a limit that was lowered stays that
            // long.
            if self.queue.len() >= self.limit as usize
                && let Some(oldest) = self.queue.pop_dropped(&mut self.stats)
            {
                cx.dropped.push(oldest, DropReason::QdiscLimit);
                verdict = verdict.max(Verdict::Congestion);
            }
            self.queue.push(packet, &mut self.stats);
        }
        verdict
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

    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}
