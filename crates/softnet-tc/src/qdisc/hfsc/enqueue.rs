//! Packets come into the leaves of an `hfsc`.

use softnet::mem::{Packet, PacketList};
use softnet::qdisc::{Cx, Verdict};
use softnet::stats::DropReason;

use super::Hfsc;
use crate::filter::Lost;
use crate::handle::Handle;

/// Filters that are asked one after the other at most.
const HOPS: usize = 9;
/// Leaves that come into the race together at most.
const STARTS: usize = 16;

/// Leaves that got a first packet, with its length.
#[derive(Debug, Default)]
struct Starts {
    leaves: [(usize, u64); STARTS],
    count: usize,
}

impl Starts {
    /// Notes a leaf if it `starts`. True: it was the last one that fits.
    #[inline]
    fn note(&mut self, leaf: usize, len: u64, starts: bool) -> bool {
        self.leaves[self.count] = (leaf, len);
        self.count += usize::from(starts);
        self.count == STARTS
    }
}

impl Hfsc {
    /// Asks for what a packet needs that will be looked at soon, if its priority names its leaf.
    #[inline]
    fn prefetch(&self, packet: &Packet) {
        if let Some(slot) = self.find(Handle::from_raw(packet.priority())) {
            self.classes.prefetch(slot);
            self.scheduler.prefetch(slot);
        }
    }

    /// The leaf that a packet goes to.
    ///
    /// # Errors
    /// If there is none, or a filter takes it out.
    fn classify(&self, packet: &mut Packet, cx: &mut Cx) -> Result<usize, Lost> {
        let named = self.find(Handle::from_raw(packet.priority()));
        if let Some(leaf) = named.filter(|&slot| self.is_leaf(slot)) {
            return Ok(leaf);
        }
        let (mut filters, mut above) = (&self.filters, self.root);
        for _ in 0..HOPS {
            let Some(class) = filters.classify(packet, cx).class()? else {
                break;
            };
            let level = |slot: usize| self.scheduler.class(slot).level;
            let below = self.find(class).filter(|&slot| level(slot) < level(above));
            match below {
                Some(slot) if self.is_leaf(slot) => return Ok(slot),
                Some(slot) => (filters, above) = (self.classes.filters(slot), slot),
                None => break,
            }
        }
        let default = self.classes.find(self.default);
        let leaf = default.filter(|&slot| self.is_leaf(slot));
        leaf.ok_or(Lost::Dropped(DropReason::NoClass))
    }

    fn put(&mut self, slot: usize, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let verdict = self.classes.enqueue(slot, packets, cx);
        self.update(slot, cx);
        verdict
    }

    /// Leaves come into the race.
    #[inline]
    fn start_all(&mut self, starts: &mut Starts, cx: &Cx) {
        for &(leaf, len) in &starts.leaves[..starts.count] {
            self.held.release(leaf);
            self.activate(leaf, len, cx.now);
        }
        starts.count = 0;
    }

    /// Queues packets in the leaves that they go to. Who got a first packet comes into the race in
    /// the order of these packets, but only when as many have as are noted, or before another kind
    /// of queue is asked: half may have had some, which cannot be foreseen, and nothing branches on
    /// it.
    pub(super) fn sort(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        let mut verdict = Verdict::Queued;
        // Consecutive packets of one class stay one list.
        let mut run = PacketList::new();
        let mut current = self.root;
        let mut starts = Starts::default();
        while let Some(mut packet) = packets.pop_front() {
            if let Some(next) = packets.front() {
                self.prefetch(next);
            }
            let slot = match self.classify(&mut packet, cx) {
                Ok(slot) => slot,
                Err(lost) => {
                    let lost = lost.settle(packet, &mut self.classes.stats, cx);
                    verdict = verdict.max(lost);
                    continue;
                }
            };
            if slot != current && !run.is_empty() {
                self.start_all(&mut starts, cx);
                verdict = verdict.max(self.put(current, &mut run, cx));
            }
            current = slot;
            if !run.is_empty() {
                run.push_back(packet);
                continue;
            }
            let len = packet.wire_len();
            match self.classes.push_pfifo(slot, packet) {
                Ok(is_first) => {
                    if starts.note(slot, len, is_first & (slot != self.root)) {
                        self.start_all(&mut starts, cx);
                    }
                }
                Err(packet) => run.push_back(packet),
            }
        }
        self.start_all(&mut starts, cx);
        if !run.is_empty() {
            verdict = verdict.max(self.put(current, &mut run, cx));
        }
        verdict
    }
}
