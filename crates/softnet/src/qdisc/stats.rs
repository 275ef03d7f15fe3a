//! Statistics of a qdisc, as `tc -s` shows them, and the few ways in which they change.

use super::WireSum;
use crate::mem::Packet;

macro_rules! qdisc_stats {
    ($($(#[doc = $doc:literal])+ $field:ident,)+) => {
        /// Statistics of a qdisc, named as `tc -s` names them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct QdiscStats { $($(#[doc = $doc])+ pub $field: u64,)+ }

        impl QdiscStats {
            /// Number of numbers.
            pub const WORDS: usize = [$(stringify!($field)),+].len();

            /// All numbers with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(stringify!($field)),+].into_iter().zip(self.words())
            }

            /// All numbers, in their order here.
            #[inline]
            pub fn words(&self) -> [u64; Self::WORDS] {
                [$(self.$field),+]
            }

            /// From all numbers.
            #[inline]
            pub fn from_words([$($field),+]: [u64; Self::WORDS]) -> QdiscStats {
                QdiscStats { $($field),+ }
            }
        }

        /// The position of a number among all.
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types, missing_docs, reason = "as in QdiscStats")]
        pub enum QdiscStat { $($field),+ }
    };
}

qdisc_stats! {
    /// Frames that the driver gave back.
    requeues,
    /// Wire bytes that left.
    bytes,
    /// Wire packets that left.
    packets,
    /// Frames refused.
    drops,
    /// Times that a packet had to wait for its rate.
    overlimits,
    /// Frames queued.
    qlen,
    /// Wire bytes queued.
    backlog,
    /// Wire packets queued (not shown by tc; closes the conservation sum).
    queued,
    /// Bytes of the buffers that hold what is queued (not shown by tc). A qdisc from outside this
    /// crate may leave it 0: then its frames count as one small buffer each.
    memory,
}

impl QdiscStats {
    /// Counts packets that leave without having been queued.
    #[inline]
    pub fn count_sent(&mut self, sum: WireSum) {
        self.bytes += sum.bytes;
        self.packets += sum.packets;
    }

    /// Counts a packet that is queued.
    #[inline]
    pub fn count_queued(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.qlen += 1;
        self.backlog += bytes;
        self.queued += packets;
        self.memory += packet.memory();
    }

    /// Counts packets that are queued: what is queued in `added`. Packets of one call are counted
    /// there first, not here one by one: this reads and writes several words at once, and a load
    /// of several words cannot be forwarded from several stores, but waits until they are in the
    /// cache.
    #[inline]
    pub fn count_added(&mut self, added: &QdiscStats) {
        self.qlen += added.qlen;
        self.backlog += added.backlog;
        self.queued += added.queued;
        self.memory += added.memory;
    }

    /// Counts a packet that was queued and leaves.
    #[inline]
    pub fn count_dequeued(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.bytes += bytes;
        self.packets += packets;
        self.unqueue(packet, bytes, packets);
    }

    /// Counts packets that were queued and leave: what is queued in `taken`.
    #[inline]
    pub fn count_taken(&mut self, taken: &QdiscStats) {
        self.bytes += taken.backlog;
        self.packets += taken.queued;
        self.qlen -= taken.qlen;
        self.backlog -= taken.backlog;
        self.queued -= taken.queued;
        self.memory -= taken.memory;
    }

    /// Counts a packet that was queued and is dropped.
    pub fn count_dropped(&mut self, packet: &Packet) {
        self.drops += 1;
        self.count_removed(packet);
    }

    /// Counts a packet that was queued and is taken away, neither sent nor dropped.
    pub fn count_removed(&mut self, packet: &Packet) {
        let (bytes, packets) = packet.wire();
        self.unqueue(packet, bytes, packets);
    }

    /// Counts everything that was queued as taken away.
    pub fn count_drained(&mut self) {
        (self.qlen, self.backlog, self.queued, self.memory) = (0, 0, 0, 0);
    }

    #[inline]
    fn unqueue(&mut self, packet: &Packet, bytes: u64, packets: u64) {
        self.qlen -= 1;
        self.backlog -= bytes;
        self.queued -= packets;
        self.memory -= packet.memory();
    }
}

impl std::iter::Sum for QdiscStats {
    fn sum<I: Iterator<Item = QdiscStats>>(all: I) -> QdiscStats {
        let mut sum = [0; QdiscStats::WORDS];
        for one in all {
            sum.iter_mut().zip(one.words()).for_each(|(s, n)| *s += n);
        }
        QdiscStats::from_words(sum)
    }
}
