//! The flows of an `fq`, found by their keys: as many as came lately. Every call's work is bounded,
//! however many there are.
//!
//! Flows are in a slab of chunks, which never move. A hash table with chains leads to them. It
//! grows by linear hashing (Litwin, 1980): each new flow splits one or two buckets, so that no
//! call moves all of them. Flows that have had no packets for long are removed a few at a time, as
//! new ones come.
//!
//! The near caches have few of [many](FlowTable::has_many) flows, and each look-up would wait for a
//! bucket and then for a flow. So those of a list of packets are [asked for](FlowTable::fetch)
//! first, all at once, and at dequeue [the next ones](FlowTable::fetch_behind). A flow that gets a
//! packet becomes the first of its bucket: those that have none cost it no look at their lines.

use std::ops::Range;

use softnet::mem::PacketList;
use softnet::sync::prefetch;
use softnet::time::Time;

use crate::qdisc::drr::{Flows, Linked, UNLISTED};
use crate::qdisc::flow_hash::keyed;

/// Flows of a chunk.
const CHUNK: u32 = 512;
/// The most flows: 64 MiB.
const MAX_FLOWS: u32 = 1 << 20;
/// Slots that are looked at, to remove their flows, for each new flow.
const COLLECT: u32 = 8;
/// Buckets of the first segment; each further one has as many as all before it.
const FIRST: u32 = 64;
/// A coarse time: 2^20 ns, about a millisecond. It comes round after 52 days, when a flow that was
/// idle all the time may pass for one that was not.
const TICK: u32 = 20;
/// Flows from which on they are asked for: their lines and packets are more than half of a core's
/// second cache.
const MANY: u32 = 4096;
/// Flows that are asked for at once.
pub(super) const FETCHED: usize = 32;
/// Time for which a flow without packets is kept.
const KEEP: u32 = (3_000_000_000_u64 >> TICK) as u32;

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No flow: the slot is free.
    Free,
    /// It has no packets.
    Idle,
    /// It takes turns in its band.
    Listed,
    /// It has packets, and none is due before a time.
    Throttled,
}

/// A flow, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    pub(super) packets: PacketList,
    /// When the next packet may leave. Zero if none was ever held back.
    pub(super) time_next: Time,
    pub(super) credit: i32,
    link: u32,
    /// The next of the same bucket, or the next free slot, plus one; 0: none.
    chain: u32,
    pub(super) key: u32,
    idle_since: u32,
    pub(super) band: u8,
    pub(super) state: State,
    /// Some of its packets have departure times.
    pub(super) timed: bool,
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Linked for Flow {
    #[inline(always)]
    fn link(&mut self) -> &mut u32 {
        &mut self.link
    }
    #[inline(always)]
    fn credit(&mut self) -> &mut i32 {
        &mut self.credit
    }
}

impl Flow {
    fn free() -> Flow {
        Flow {
            packets: PacketList::new(),
            time_next: Time::ZERO,
            credit: 0,
            link: UNLISTED,
            chain: 0,
            key: 0,
            idle_since: 0,
            band: 0,
            state: State::Free,
            timed: false,
        }
    }

    /// The flow has lost its last packet.
    #[inline]
    pub(super) fn set_idle(&mut self, now: Time) {
        self.state = State::Idle;
        self.timed = false;
        self.idle_since = tick(now);
    }

    /// Coarse time since the flow lost its last packet.
    #[inline]
    pub(super) fn idle_ticks(&self, now: Time) -> u32 {
        tick(now).wrapping_sub(self.idle_since)
    }
}

#[inline]
fn tick(now: Time) -> u32 {
    (now.nanos() >> TICK) as u32
}

/// A length of time in nanoseconds as [`Flow::idle_ticks`] counts it.
pub(super) fn ticks(nanos: u64) -> u32 {
    u32::try_from(nanos >> TICK).unwrap_or(u32::MAX)
}

/// The segment of a bucket, and its place there.
#[inline]
fn segment(address: u32) -> (usize, usize) {
    // The highest bit says which segment; 0 for those before FIRST.
    match address / FIRST {
        0 => (0, address as usize),
        number => {
            let power = number.ilog2();
            (power as usize + 1, (address - (FIRST << power)) as usize)
        }
    }
}

/// The flows; see the [module](self).
#[derive(Debug)]
pub(super) struct FlowTable {
    seed: u64,
    chunks: Vec<Box<[Flow]>>,
    /// Slots that have had a flow: those before this position.
    used: u32,
    /// The first free slot among them, plus one; 0: none.
    free: u32,
    /// Flows there are.
    len: u32,
    /// The slot that is looked at next to remove its flow.
    hand: u32,
    /// The first flow of each bucket, plus one; 0: none. A segment each time their number doubles.
    segments: Vec<Box<[u32]>>,
    buckets: u32,
    /// Flows that were removed.
    pub(super) collected: u64,
}

impl Flows for FlowTable {
    type Flow = Flow;
    #[inline(always)]
    fn at(&mut self, index: u32) -> &mut Flow {
        &mut self.chunks[(index / CHUNK) as usize][(index % CHUNK) as usize]
    }
}

impl FlowTable {
    pub(super) fn new(seed: u64) -> FlowTable {
        FlowTable {
            seed,
            chunks: Vec::new(),
            used: 0,
            free: 0,
            len: 0,
            hand: 0,
            segments: vec![vec![0; FIRST as usize].into()],
            buckets: FIRST,
            collected: 0,
        }
    }

    /// Entries of all flows, and free ones.
    pub(super) fn slots(&self) -> Range<u32> {
        0..self.used
    }

    /// Flows there are.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The flow of a key. One that is not known yet begins with `credit`. `None`: all slots have
    /// flows that cannot be removed.
    #[inline]
    pub(super) fn find_or_add(&mut self, key: u32, credit: i32, now: Time) -> Option<u32> {
        let hash = keyed(key, self.seed);
        let address = self.address(hash);
        let (mut before, mut next) = (0, *self.bucket(address));
        while let Some(index) = next.checked_sub(1) {
            let flow = self.at(index);
            if flow.key == key {
                if before != 0 && self.has_many() {
                    self.bring_forward(address, before, next);
                }
                return Some(index);
            }
            (before, next) = (next, flow.chain);
        }
        self.add(key, hash, credit, now)
    }

    /// Makes the flow at the link `to`, which follows that at `before`, the first of its bucket.
    #[inline(never)]
    fn bring_forward(&mut self, address: u32, before: u32, to: u32) {
        let first = std::mem::replace(self.bucket(address), to);
        let behind = std::mem::replace(&mut self.at(to - 1).chain, first);
        self.at(before - 1).chain = behind;
    }

    /// True if there are more flows than the near caches hold.
    #[inline]
    pub(super) fn has_many(&self) -> bool {
        self.len >= MANY
    }

    /// Asks for the flows of these keys, of [`FETCHED`] at most: first for their buckets, then for
    /// the first flow of each.
    pub(super) fn fetch(&self, keys: impl Iterator<Item = u32>) {
        let mut addresses = [0; FETCHED];
        let mut len = 0;
        for (key, address) in keys.zip(&mut addresses) {
            *address = self.address(keyed(key, self.seed));
            prefetch(std::ptr::from_ref(self.first(*address)));
            len += 1;
        }
        for &address in &addresses[..len] {
            let first = self.first(address).checked_sub(1);
            if let Some(flow) = first.and_then(|index| self.get(index)) {
                prefetch(std::ptr::from_ref(flow));
            }
        }
    }

    /// Asks for what is served after a flow: the first packet of the flow behind it in its list,
    /// which was asked for a flow ago, and the flow behind that one.
    #[inline]
    pub(super) fn fetch_behind(&self, index: u32) {
        let behind = |flow: &Flow| self.get(flow.link);
        let Some(next) = self.get(index).and_then(behind) else {
            return;
        };
        if let Some(packet) = next.packets.front() {
            packet.prefetch();
        }
        if let Some(flow) = behind(next) {
            prefetch(std::ptr::from_ref(flow));
        }
    }

    /// A slot, to read; `None`: there is none, as where a list ends.
    #[inline]
    fn get(&self, index: u32) -> Option<&Flow> {
        let chunk = self.chunks.get((index / CHUNK) as usize)?;
        chunk.get((index % CHUNK) as usize)
    }

    #[cold]
    fn add(&mut self, key: u32, hash: u32, credit: i32, now: Time) -> Option<u32> {
        self.collect(now);
        let index = self.slot()?;
        self.len += 1;
        // Two buckets a flow.
        while self.buckets < 2 * self.len.min(MAX_FLOWS) {
            self.split();
        }
        let address = self.address(hash);
        let chain = std::mem::replace(self.bucket(address), index + 1);
        let flow = self.at(index);
        flow.key = key;
        flow.chain = chain;
        flow.credit = credit;
        flow.time_next = Time::ZERO;
        flow.set_idle(now);
        Some(index)
    }

    /// A slot without a flow.
    fn slot(&mut self) -> Option<u32> {
        if let Some(index) = self.free.checked_sub(1) {
            self.free = self.at(index).chain;
            return Some(index);
        }
        if self.used == MAX_FLOWS {
            return None;
        }
        if self.used as usize == self.chunks.len() * CHUNK as usize {
            let chunk = std::iter::repeat_with(Flow::free).take(CHUNK as usize);
            self.chunks.push(chunk.collect());
        }
        self.used += 1;
        Some(self.used - 1)
    }

    /// Looks at the next few slots and removes flows that have been idle for long. If there is no
    /// slot left, one goes that is idle at all.
    fn collect(&mut self, now: Time) {
        let full = self.len == MAX_FLOWS;
        let keep = if full { 0 } else { KEEP };
        for _ in 0..COLLECT.min(self.used) {
            let index = self.hand;
            self.hand = (self.hand + 1) % self.used;
            let flow = self.at(index);
            if flow.state == State::Idle && flow.idle_ticks(now) >= keep {
                self.remove(index);
                if full {
                    return;
                }
            }
        }
    }

    fn remove(&mut self, index: u32) {
        let flow = self.at(index);
        let (key, chain) = (flow.key, flow.chain);
        let address = self.address(keyed(key, self.seed));
        let mut before = *self.bucket(address);
        if before == index + 1 {
            *self.bucket(address) = chain;
        } else {
            while let Some(other) = before.checked_sub(1) {
                let other = self.at(other);
                before = other.chain;
                if before == index + 1 {
                    other.chain = chain;
                    break;
                }
            }
        }
        let free = std::mem::replace(&mut self.free, index + 1);
        let flow = self.at(index);
        (flow.state, flow.chain) = (State::Free, free);
        self.len -= 1;
        self.collected += 1;
    }

    /// The bucket of a hash: its low bits. As long as the bucket that one more bit leads to does
    /// not exist, that without the bit.
    #[inline]
    fn address(&self, hash: u32) -> u32 {
        let mask = self.buckets.next_power_of_two() - 1;
        let address = hash & mask;
        if address < self.buckets {
            address
        } else {
            hash & (mask >> 1)
        }
    }

    #[inline]
    fn bucket(&mut self, address: u32) -> &mut u32 {
        let (segment, at) = segment(address);
        &mut self.segments[segment][at]
    }

    /// As [`bucket`](FlowTable::bucket), to read.
    #[inline]
    fn first(&self, address: u32) -> &u32 {
        let (segment, at) = segment(address);
        &self.segments[segment][at]
    }

    /// Adds a bucket, and moves there what belongs there: of the one bucket that has the same
    /// low bits.
    fn split(&mut self) {
        let added = self.buckets;
        if added.is_power_of_two() {
            // The memory is zero as it comes from the system, and not touched here.
            self.segments.push(vec![0; added as usize].into());
        }
        let from = added & !(1 << added.ilog2());
        self.buckets += 1;
        let mut next = std::mem::take(self.bucket(from));
        while let Some(index) = next.checked_sub(1) {
            let key = self.at(index).key;
            let address = self.address(keyed(key, self.seed));
            let first = std::mem::replace(self.bucket(address), index + 1);
            next = std::mem::replace(&mut self.at(index).chain, first);
        }
    }

    /// Flows that are looked at before that of a key, which there is.
    #[cfg(test)]
    pub(super) fn ahead_of(&self, key: u32) -> usize {
        let first = *self.first(self.address(keyed(key, self.seed)));
        let flow = |plus_one: u32| self.get(plus_one.checked_sub(1)?);
        let bucket = std::iter::successors(flow(first), |other| flow(other.chain));
        bucket.take_while(|other| other.key != key).count()
    }

    /// Bytes of memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let segments: usize = self.segments.iter().map(|segment| segment.len() * 4).sum();
        segments + self.chunks.len() * CHUNK as usize * size_of::<Flow>()
    }
}
