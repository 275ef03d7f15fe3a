//! A tin: flows that take turns (DRR++), and what is known of them.
//!
//! Flows that just got packets are served before the others, once. One that has used up its credit
//! is of the others; one that is empty stays until COBALT's state is at rest. At each call one of
//! those is looked at.

use softnet::mem::Packet;
use softnet::time::Time;

use super::cobalt::Params;
use super::list::FlowList;
use super::shaper::ByteTime;
use super::spec::Isolation;
use super::table::{Flow, Set, Table, Ways};
use super::{ewma, ewma_fast};

/// Bounds of the bytes that a flow sends in a round.
const QUANTUM: std::ops::RangeInclusive<u64> = 300..=1514;

/// Statistics of a tin that only grow, or are averages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) drops: u64,
    pub(super) marks: u64,
    pub(super) ack_drops: u64,
    pub(super) ways: Ways,
    /// Longest frame.
    pub(super) longest: u64,
    /// Averages of the delay, of its peaks and of its lows, in nanoseconds.
    pub(super) average: u64,
    pub(super) peak: u64,
    pub(super) base: u64,
}

impl Counters {
    /// A packet has left after so many nanoseconds.
    #[inline]
    pub(super) fn delay(&mut self, delay: u64) {
        self.average = ewma(self.average, delay, 8);
        self.peak = ewma_fast(self.peak, delay, delay > self.peak);
        self.base = ewma_fast(self.base, delay, delay < self.base);
    }
}

/// Flows of a tin by their sets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) sparse: u32,
    pub(super) bulk: u32,
    pub(super) decaying: u32,
    pub(super) unresponsive: u32,
}

/// A tin.
#[derive(Debug, Default)]
pub(super) struct Tin {
    pub(super) table: Option<Box<Table>>,
    new: FlowList,
    old: FlowList,
    decaying: FlowList,
    pub(super) counts: Counts,
    pub(super) params: Params,
    /// Bytes a second that it may send before other tins; 0: no limit.
    pub(super) rate: u64,
    pub(super) byte: ByteTime,
    /// When it has sent less than its part.
    pub(super) next: Time,
    /// Ratio of the flows of all instances to those here, in 1/256; at most 0 counts as 1.
    pub(super) instances: u64,
    /// Bytes that a flow sends in a round.
    pub(super) flow_quantum: u32,
    /// Bytes that it sends in a round of the tins, and may still send.
    pub(super) quantum: i64,
    pub(super) deficit: i64,
    /// Wire bytes queued.
    pub(super) backlog: u64,
    pub(super) counters: Counters,
}

impl Tin {
    /// Takes a rate; 0: none. Times are in nanoseconds, `mtu` is the longest frame
    /// (`cake_set_rate`).
    pub(super) fn set_rate(&mut self, rate: u64, mtu: u32, target: u64, interval: u64) {
        self.flow_quantum = match rate {
            0 => *QUANTUM.end(),
            rate => (rate >> 12).clamp(*QUANTUM.start(), *QUANTUM.end()),
        } as u32;
        self.rate = rate;
        self.byte = ByteTime::at(rate);
        let mtu_time = self.byte.of(mtu.into());
        let own_target = (mtu_time.saturating_mul(3) / 2).max(target);
        self.params = Params {
            target: own_target,
            interval: (interval + own_target - target).max(own_target.saturating_mul(2)),
            mtu_time,
        };
    }

    /// Charges a packet to its part of the rate.
    #[inline]
    pub(super) fn charge(&mut self, bytes: u64, now: Time) {
        let mut duration = self.byte.of(bytes);
        if self.instances > 256 {
            duration = duration.saturating_mul(self.instances) >> 8;
        }
        self.next = if self.next < now {
            self.next.plus_nanos(duration)
        } else {
            // It is never behind by more than a packet.
            self.next.max(now.plus_nanos(duration))
        };
    }

    /// Weight of its flows with packets: `whole` for each host, or for each flow.
    pub(super) fn weight(&self, whole: u64, isolation: Isolation) -> u64 {
        let Some(table) = &self.table else { return 0 };
        let flows = (0..)
            .zip(&table.flows)
            .filter(|(_, flow)| !flow.packets.is_empty());
        flows
            .map(|(index, _)| whole / u64::from(table.load(index, isolation)))
            .sum()
    }

    /// True if it has flows with packets, or that have just become empty.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.counts.sparse + self.counts.bulk > 0
    }

    fn table(&mut self) -> &mut Table {
        // There is one where a flow was found.
        self.table.get_or_insert_with(|| Table::new(None))
    }

    /// A flow that was found.
    #[inline]
    pub(super) fn flow(&mut self, index: u16) -> &mut Flow {
        &mut self.table().flows[usize::from(index)]
    }

    /// Gives a flow up that was found for a packet and got none.
    pub(super) fn give_up(&mut self, index: u16) {
        if self.flow(index).set == Set::None {
            self.table().release(index);
        }
    }

    /// Queues a packet at the end of a flow.
    #[inline]
    pub(super) fn push(&mut self, index: u16, packet: Packet) {
        let bytes = packet.wire_len();
        self.backlog += bytes;
        let flow = self.flow(index);
        flow.backlog += bytes;
        flow.packets.push_back(packet);
    }

    /// Takes the oldest packet of a flow.
    #[inline]
    pub(super) fn pop(&mut self, index: u16) -> Option<Packet> {
        let flow = self.flow(index);
        let packet = flow.packets.pop_front()?;
        let bytes = packet.wire_len();
        flow.backlog -= bytes;
        self.backlog -= bytes;
        Some(packet)
    }

    /// The flow got packets: it takes turns.
    #[inline]
    pub(super) fn activate(&mut self, index: u16, isolation: Isolation) {
        let quantum = self.flow_quantum;
        let Tin {
            table,
            new,
            decaying,
            counts,
            ..
        } = self;
        let Some(table) = table else { return };
        match table.flows[usize::from(index)].set {
            Set::None | Set::Decaying => {
                if table.flows[usize::from(index)].set == Set::Decaying {
                    counts.decaying -= 1;
                    decaying.remove(&mut table.flows, index);
                }
                new.push(&mut table.flows, index);
                counts.sparse += 1;
                let deficit = table.quantum(index, quantum, isolation);
                let flow = &mut table.flows[usize::from(index)];
                (flow.set, flow.deficit) = (Set::Sparse, deficit);
            }
            Set::SparseWait => {
                counts.sparse -= 1;
                table.make_bulk(index, counts, isolation);
            }
            Set::Sparse | Set::Bulk => {}
        }
    }

    /// The flow that is served next. `decaying`: one that is empty comes first, if there is one.
    #[inline]
    pub(super) fn select(&mut self, mut decay: bool, isolation: Isolation) -> Option<u16> {
        let quantum = self.flow_quantum;
        let Tin {
            table,
            new,
            old,
            decaying,
            counts,
            ..
        } = self;
        let table = table.as_mut()?;
        let mut visited = 0;
        loop {
            let index = decaying.first().filter(|_| std::mem::take(&mut decay));
            let index = index.or_else(|| new.first());
            let index = index.or_else(|| old.first()).or_else(|| decaying.first())?;
            let flow = &mut table.flows[usize::from(index)];
            if flow.deficit > 0 {
                return Some(index);
            }
            let set = flow.set;
            if set == Set::Sparse {
                if flow.packets.is_empty() {
                    flow.set = Set::SparseWait;
                } else {
                    counts.sparse -= 1;
                    table.make_bulk(index, counts, isolation);
                }
            }
            let more = table.quantum(index, quantum, isolation);
            let flow = &mut table.flows[usize::from(index)];
            flow.deficit = flow.deficit.saturating_add(more);
            let positive = flow.deficit > 0;
            let was_new = new.first() == Some(index);
            match set {
                Set::Decaying => decaying.remove(&mut table.flows, index),
                _ if was_new => new.remove(&mut table.flows, index),
                _ => old.remove(&mut table.flows, index),
            }
            old.push(&mut table.flows, index);
            visited = if was_new || positive { 0 } else { visited + 1 };
            if visited >= old.len() {
                table.skip_rounds(old, quantum, isolation);
                visited = 0;
            }
        }
    }

    /// The selected flow was found empty: it stays until COBALT's state is at rest.
    pub(super) fn empty(&mut self, index: u16, isolation: Isolation, now: Time) {
        let params = self.params;
        let Tin {
            table,
            new,
            old,
            decaying,
            counts,
            ..
        } = self;
        let Some(table) = table else { return };
        let flow = &mut table.flows[usize::from(index)];
        if flow.cobalt.empty(&params, now) {
            counts.unresponsive -= 1;
        }
        let set = flow.set;
        match set {
            Set::Bulk => {
                counts.bulk -= 1;
                table.count_bulk(index, isolation, false);
            }
            Set::Sparse | Set::SparseWait => counts.sparse -= 1,
            Set::Decaying => counts.decaying -= 1,
            Set::None => return,
        }
        let list = match set {
            Set::Decaying => &mut *decaying,
            _ if new.first() == Some(index) => new,
            _ => old,
        };
        list.remove(&mut table.flows, index);
        if table.is_at_rest(index, now) {
            table.flows[usize::from(index)].set = Set::None;
            table.release(index);
        } else {
            table.flows[usize::from(index)].set = Set::Decaying;
            counts.decaying += 1;
            decaying.push(&mut table.flows, index);
        }
    }

    /// Takes a flow out, whatever it has, for what is in it to go elsewhere.
    pub(super) fn take_out(&mut self, isolation: Isolation) -> Option<Flow> {
        let Tin {
            table,
            new,
            old,
            decaying,
            counts,
            ..
        } = self;
        let table = table.as_mut()?;
        let list = [new, old, decaying]
            .into_iter()
            .find(|list| list.len() > 0)?;
        let index = list.first()?;
        list.remove(&mut table.flows, index);
        let flow = &mut table.flows[usize::from(index)];
        counts.unresponsive -= u32::from(flow.cobalt.is_unresponsive());
        match std::mem::replace(&mut flow.set, Set::None) {
            Set::Bulk => {
                counts.bulk -= 1;
                table.count_bulk(index, isolation, false);
            }
            Set::Sparse | Set::SparseWait => counts.sparse -= 1,
            Set::Decaying => counts.decaying -= 1,
            Set::None => {}
        }
        table.release(index);
        let flow = &mut table.flows[usize::from(index)];
        self.backlog -= flow.backlog;
        Some(std::mem::replace(flow, Flow::unused()))
    }
}

impl Table {
    /// A sparse flow has a backlog.
    fn make_bulk(&mut self, index: u16, counts: &mut Counts, isolation: Isolation) {
        self.flows[usize::from(index)].set = Set::Bulk;
        counts.bulk += 1;
        self.count_bulk(index, isolation, true);
    }

    /// No flow of the list has credit, and each has been visited: lets the rounds pass at once in
    /// which none would get any. Many flows of one host have little credit each.
    #[cold]
    fn skip_rounds(&mut self, list: &FlowList, quantum: u32, isolation: Isolation) {
        let mut rounds = u64::MAX;
        let mut at = list.first();
        while let Some(index) = at {
            let load = u64::from(self.load(index, isolation));
            let missing = (1 - i64::from(self.flows[usize::from(index)].deficit)).max(0) as u64;
            // That it is rounded down leaves the last round to be done one by one.
            rounds = rounds.min(missing * load / u64::from(quantum.max(1)));
            at = list.after(&mut self.flows, index);
        }
        let mut at = list.first().filter(|_| (1..u64::MAX).contains(&rounds));
        while let Some(index) = at {
            let load = u64::from(self.load(index, isolation));
            let more = rounds * u64::from(quantum) / load;
            let flow = &mut self.flows[usize::from(index)];
            flow.deficit = flow
                .deficit
                .saturating_add(i32::try_from(more).unwrap_or(i32::MAX));
            at = list.after(&mut self.flows, index);
        }
    }
}
