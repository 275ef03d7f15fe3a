//! `pfifo` and `bfifo`: first in, first out, limited in packets or in bytes (tc-bfifo(8)).

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Fifo, Next, Peek, Qdisc, QdiscStats, Verdict, WireSum};
use softnet::stats::DropReason;
use softnet::time::Time;

use super::kind::{Kind, QdiscSpec};
use super::option::{Form, QdiscOption, options};
use super::spec::QdiscEnv;
use crate::handle::Handle;

/// A FIFO with a limit, in bytes on the wire or in packets (frames); see [`Pfifo`] and [`Bfifo`].
#[derive(Debug)]
pub struct LimitedFifo<const BYTES: bool> {
    queue: Fifo,
    limit: u64,
    stats: QdiscStats,
}

/// FIFO limited in packets. A limit of 0 drops everything.
pub type Pfifo = LimitedFifo<false>;
/// FIFO limited in bytes.
pub type Bfifo = LimitedFifo<true>;

impl Pfifo {
    /// An empty queue for at most `limit` frames.
    pub fn new(limit: u32) -> Pfifo {
        LimitedFifo::limited(limit.into())
    }

    /// Changes the limit. What is queued stays, as in the kernel; the limit holds for what comes.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.into();
    }
}

impl Bfifo {
    /// An empty queue for at most `limit` wire bytes.
    pub fn new(limit: u64) -> Bfifo {
        LimitedFifo::limited(limit)
    }

    /// Changes the limit. What is queued stays, as in the kernel; the limit holds for what comes.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }
}

impl<const BYTES: bool> LimitedFifo<BYTES> {
    fn limited(limit: u64) -> Self {
        LimitedFifo {
            queue: Fifo::default(),
            limit,
            stats: QdiscStats::default(),
        }
    }

    /// As [`Fifo::pop_while`].
    #[inline]
    pub fn pop_while(
        &mut self,
        out: &mut PacketList,
        more: impl FnMut(&QdiscStats, &Packet) -> bool,
    ) -> QdiscStats {
        self.queue.pop_while(out, &mut self.stats, more)
    }

    /// As [`Fifo::pop_run`].
    #[inline]
    pub fn pop_run(
        &mut self,
        out: &mut PacketList,
        more: impl FnMut(&QdiscStats, u64) -> bool,
    ) -> (QdiscStats, Option<u64>) {
        self.queue.pop_run(out, &mut self.stats, more)
    }

    /// Asks for the header of the oldest packet, which will leave soon.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(first) = self.queue.front() {
            first.prefetch();
        }
    }

    /// Queues a packet.
    ///
    /// # Errors
    /// Returns it if there is no space.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if !self.admits(1, packet.wire_len()) {
            return Err(packet);
        }
        self.queue.push(packet, &mut self.stats);
        Ok(())
    }

    /// True if there is space for so much more.
    #[inline]
    fn admits(&self, frames: usize, bytes: u64) -> bool {
        // The sums are far below 2^63 (BUG-TX-28 was a 32-bit sum).
        if BYTES {
            self.stats.backlog + bytes <= self.limit
        } else {
            (self.queue.len() + frames) as u64 <= self.limit
        }
    }
}

impl Kind for Pfifo {
    type Spec = u32;
    const NAME: &'static str = "pfifo";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Pfifo { limit } =>
        /// packets, 0 to 4294967295; the default is the port's `txqueuelen`
        "limit": Form::Size => *limit,
    };

    fn make(&limit: &u32, _: Handle, _: &QdiscEnv) -> Pfifo {
        Pfifo::new(limit)
    }

    fn change(&mut self, &limit: &u32, _: &mut Cx) {
        self.set_limit(limit);
    }
}

impl Kind for Bfifo {
    type Spec = u64;
    const NAME: &'static str = "bfifo";
    const OPTIONS: &'static [QdiscOption] = options! { QdiscSpec::Bfifo { limit } =>
        /// a size; the default is `txqueuelen` frames of the port's MTU
        "limit": Form::Size => *limit,
    };

    fn make(&limit: &u64, _: Handle, _: &QdiscEnv) -> Bfifo {
        Bfifo::new(limit)
    }

    fn change(&mut self, &limit: &u64, _: &mut Cx) {
        self.set_limit(limit);
    }
}

impl<const BYTES: bool> Qdisc for LimitedFifo<BYTES> {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        while let Some(packet) = packets.pop_front() {
            if let Err(packet) = self.push(packet) {
                self.stats.drops += 1;
                cx.dropped.push(packet, DropReason::QdiscLimit);
                verdict = Verdict::Dropped;
            }
        }
        verdict
    }

    #[inline]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, _: &mut Cx) -> bool {
        let passes = self.queue.is_empty() && self.admits(packets.len(), sum.bytes);
        if passes {
            self.stats.count_sent(sum);
        }
        passes
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, _: &mut Cx) -> Next {
        self.queue.dequeue(budget, out, &mut self.stats)
    }

    #[inline]
    fn peek(&self, _: Time) -> Peek {
        self.queue.peek()
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.queue.drain(out, &mut self.stats);
    }

    #[inline]
    fn stats(&self) -> &QdiscStats {
        &self.stats
    }
}

#[cfg(test)]
mod tests {
    use softnet::testing::{frame, pool};

    use super::*;

    /// Packets leave while the next one is allowed, and count once as what they are together.
    #[test]
    fn a_run_ends_before_what_is_not_allowed() {
        let pool = pool(8);
        let mut queue = Pfifo::new(8);
        queue.prefetch();
        for (mark, len) in [(0, 100), (1, 200), (2, 300), (3, 60)] {
            assert!(queue.push(frame(&pool, 1, 2, len, mark)).is_ok());
        }
        let mut out = PacketList::new();
        let (taken, next) = queue.pop_run(&mut out, |_, _| false);
        assert_eq!((taken, next), (QdiscStats::default(), Some(100)));
        let within = |most: u64| move |taken: &QdiscStats, next: u64| taken.backlog + next <= most;
        queue.prefetch();
        let (taken, next) = queue.pop_run(&mut out, within(599));
        assert_eq!((taken.qlen, taken.backlog, next), (2, 300, Some(300)));
        let stats = *queue.stats();
        assert_eq!((stats.packets, stats.bytes), (2, 300));
        assert_eq!((stats.qlen, stats.queued, stats.backlog), (2, 2, 360));
        let (taken, next) = queue.pop_run(&mut out, within(360));
        assert_eq!((taken.qlen, taken.backlog, next), (2, 360, None));
        assert_eq!((queue.stats().qlen, queue.stats().memory), (0, 0));
        assert_eq!(queue.pop_run(&mut out, |_, _| true).1, None);
        let marks: Vec<u32> = out.iter().map(Packet::mark).collect();
        assert_eq!(marks, [0, 1, 2, 3]);
    }

    /// BUG-TX-28: in 32 bits this limit would be one byte.
    #[test]
    fn bug_tx_28_a_limit_above_4_gib_is_one() {
        let pool = pool(2);
        let mut queue = Bfifo::new((1 << 32) + 1);
        assert!(queue.push(frame(&pool, 1, 2, 60, 0)).is_ok());
        let mut none = Bfifo::new(1);
        assert!(none.push(frame(&pool, 1, 2, 60, 0)).is_err());
    }
}
