//! Packed rings (virtio 1.2, 2.8): one ring of descriptors, in which the device overwrites the
//! first of each chain that it has used.
//!
//! **After a crash the ring itself says where it is**, as the used index of a split ring does.
//! Front ends do not know (QEMU starts a packed ring anew where it began), and need not.
//!
//! - The driver writes `AVAIL` of each descriptor, in order, and the device leaves it as it is. So
//!   it tells how far the driver is, and in which round: it changes once in the ring, there.
//! - The device makes *each* descriptor of a chain that it has used look used, the first one last.
//!   (A driver knows how long its chains are: it does not look behind the first.) So of the `size`
//!   descriptors that end where the driver is, those that look used come first, and the device is
//!   where the first is that does not.
//! - The driver sees a batch when its first descriptor looks used, which is written last, at once.
//!   A device that dies before that leaves chains that look used *behind* one that does not. The
//!   next device gives all of these back, with a length of 0: what they were is overwritten. So a
//!   crash loses the packets of one batch at most; those to the guest come as frames without
//!   bytes, which drivers drop. A chain whose first descriptor does not look used was not touched.
//!
//! Stores of a process that is killed are seen in the order in which they were made. The next
//! device can be killed, too: it gives back the first chain last, as well.
//!
//! **The descriptors of a cache line are taken together**: the flags of all four are loaded, each
//! with Acquire, and if all are available the descriptors are read. What is read is what the driver
//! wrote: it stores a descriptor's flags behind the rest of it, with Release. A driver that
//! publishes several at once may so store the first one's flags alone, last of all. That one lies
//! in the line or in front of it, and was found available either way.
//!
//! A batch is given back with the first descriptor last, and flags are stored with Release, so the
//! driver, which loads the first one's before others, sees all of the batch or none. The loom
//! models in `packed_models` drive this, and fail where either side of it is in no order.

use super::chain::{Batch, Descriptor, MAX_CHAIN, flag};
use super::notify::{Area, passed};
use super::{Areas, Ring, RingConfig, RingError};
use crate::vhost_user::memory::{GuestMemory, Window};

/// Offsets in a descriptor.
mod at {
    pub(super) const LEN: usize = 8;
    pub(super) const ID: usize = 12;
    pub(super) const FLAGS: usize = 14;
}

/// The sides' bits in a descriptor's flags.
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Descriptors of a cache line.
const LINE: u16 = 4;

/// Event suppression: where (with the wrap counter in the highest bit), and flags.
const EVENT_FLAGS: usize = 2;
const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const AT_DESCRIPTOR: u16 = 2;

/// A place in the ring, and whether this is an odd round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    slot: u16,
    wrap: bool,
}

impl Position {
    /// In a ring that was never used.
    const START: Position = Position {
        slot: 0,
        wrap: true,
    };

    /// As written in event suppression and by `GET_VRING_BASE`.
    fn bits(self) -> u16 {
        self.slot | u16::from(self.wrap) << 15
    }

    /// The sides' bits of a descriptor that is available here.
    #[inline]
    fn available(self) -> u16 {
        if self.wrap { AVAIL } else { USED }
    }

    /// The sides' bits of a descriptor that is used here.
    #[inline]
    fn used(self) -> u16 {
        if self.wrap { AVAIL | USED } else { 0 }
    }

    fn from_bits(bits: u16) -> Position {
        Position {
            slot: bits & 0x7fff,
            wrap: bits >> 15 != 0,
        }
    }

    /// The position `n` places on, at most a round.
    #[inline]
    fn plus(self, n: u16, size: u16) -> Position {
        let slot = u32::from(self.slot) + u32::from(n);
        match slot.checked_sub(size.into()) {
            None => Position {
                slot: slot as u16,
                ..self
            },
            Some(slot) => Position {
                slot: slot as u16,
                wrap: !self.wrap,
            },
        }
    }
}

#[derive(Debug)]
pub(super) struct Packed<A> {
    pub(super) areas: Areas<A>,
    size: u16,
    indirect: bool,
    event_index: bool,
    /// The first descriptor that is not used.
    next: Position,
    /// The first descriptor that was not taken when chains were last asked for: it was not
    /// available, or there was no room for it.
    seen: Position,
    /// Descriptors used since the driver was asked whether it wants to know.
    moved: u32,
}

impl<A: Area> Packed<A> {
    /// Goes on where the used descriptors end: see the module. `None`: the driver has left a part
    /// of the ring out, which it does for a moment when it writes a chain.
    pub(super) fn new(config: &RingConfig, areas: Areas<A>) -> Option<Packed<A>> {
        let mut ring = Packed::at(Position::START, config, areas);
        let driver = ring.find_driver()?;
        ring.resume(driver);
        Some(ring)
    }

    /// Goes on where this one is.
    pub(super) fn renew(&self, config: &RingConfig, areas: Areas<A>) -> Packed<A> {
        Packed::at(self.next, config, areas)
    }

    fn at(next: Position, config: &RingConfig, areas: Areas<A>) -> Packed<A> {
        Packed {
            areas,
            size: config.size,
            indirect: config.indirect,
            event_index: config.event_index,
            next,
            seen: next,
            moved: 0,
        }
    }

    /// Where the driver makes the next descriptor available. `None`: see [`new`](Packed::new).
    fn find_driver(&self) -> Option<Position> {
        let round = |slot| self.flags(slot) & AVAIL != 0;
        let first = round(0);
        let written = (0..self.size).take_while(|slot| round(*slot) == first);
        let slot = written.count() as u16;
        if (slot..self.size).any(|slot| round(slot) == first) {
            return None;
        }
        let start = Position {
            slot: 0,
            wrap: first,
        };
        Some(start.plus(slot, self.size))
    }

    /// Takes up the ring of a device that was killed anywhere: see the module.
    fn resume(&mut self, driver: Position) {
        let oldest = Position {
            wrap: !driver.wrap,
            ..driver
        };
        let place = |n| oldest.plus(n, self.size);
        let looks_used = |n: &u16| {
            let flags = self.flags(place(*n).slot);
            (flags & USED != 0) == (flags & AVAIL != 0)
        };
        let count = |from| (from..self.size).take_while(looks_used).count() as u16;
        let used = count(0);
        let (slots, id) = self.chain(oldest, used);
        let behind = used + slots;
        let more = count(behind);
        self.next = place(used);
        if more > 0 {
            for n in behind..behind + more {
                let len = 16 * usize::from(place(n).slot) + at::LEN;
                self.areas.descriptors.write_u32(len, 0);
            }
            self.give_back(self.next, id, 0);
            self.next = place(behind + more);
        }
        self.seen = self.next;
    }

    /// Length of the chain that starts `n` places behind `from`, and the driver's number for it. It
    /// ends a round behind `from`, whatever it says.
    fn chain(&self, from: Position, n: u16) -> (u16, u16) {
        let slot = |n| from.plus(n, self.size).slot;
        let is_last = |n: &u16| self.flags(slot(*n)) & flag::NEXT == 0;
        match (n..self.size).find(is_last) {
            Some(last) => {
                let id = 16 * usize::from(slot(last)) + at::ID;
                (last - n + 1, self.areas.descriptors.read_u16(id))
            }
            None => (self.size - n, 0),
        }
    }

    /// Makes the first descriptor of a chain look used.
    #[inline]
    fn give_back(&self, place: Position, id: u16, written: u32) {
        let mut flags = place.used();
        if written > 0 {
            flags |= flag::WRITE;
        }
        let rest = u32::from(id) | u32::from(flags) << 16;
        let len = 16 * usize::from(place.slot) + at::LEN;
        self.areas.descriptors.store_pair(len, [written, rest]);
    }

    /// Makes the descriptors behind the first one of a chain look used.
    #[inline]
    fn look_used(&self, from: Position, slots: u16) {
        for behind in 1..slots {
            let place = from.plus(behind, self.size);
            let flags = self.flags(place.slot) & !(AVAIL | USED) | place.used();
            let at = 16 * usize::from(place.slot) + at::FLAGS;
            self.areas.descriptors.write_u16(at, flags);
        }
    }

    #[inline]
    fn is_available(flags: u16, wrap: bool) -> bool {
        (flags & AVAIL != 0) == wrap && (flags & USED != 0) != wrap
    }

    #[inline]
    fn flags(&self, slot: u16) -> u16 {
        self.areas
            .descriptors
            .load(16 * usize::from(slot) + at::FLAGS)
    }

    /// Reads a descriptor but for its flags, which were read before.
    #[inline]
    fn read(&self, slot: u16, flags: u16) -> Descriptor {
        let words = self.areas.descriptors.read_words(16 * usize::from(slot));
        Descriptor {
            address: words[0],
            len: words[1] as u32,
            next: (words[1] >> 32) as u16,
            flags,
        }
    }

    /// Adds the chain whose first descriptor is in this slot, with `flags`, if it is of that one
    /// alone, inside of `window`. False: it is not added, and to be [followed](Packed::follow).
    #[inline(always)]
    fn take_plain<'m>(
        &self,
        window: &Window<'m>,
        slot: u16,
        flags: u16,
        writable: bool,
        batch: &mut Batch<'m>,
    ) -> bool {
        let wanted = if writable { flag::WRITE } else { 0 };
        if flags & (flag::NEXT | flag::INDIRECT | flag::WRITE) != wanted {
            return false;
        }
        let Descriptor {
            address, len, next, ..
        } = self.read(slot, flags);
        batch.push_plain(window, address, len, next, writable)
    }

    /// Adds the four chains whose first descriptors are from `place` on, all in one round, if all
    /// are available, of those alone, and inside of `window`. False: none is added.
    #[inline(always)]
    fn take_line<'m>(
        &self,
        window: &Window<'m>,
        place: Position,
        writable: bool,
        batch: &mut Batch<'m>,
    ) -> bool {
        let kind = flag::NEXT | flag::INDIRECT | flag::WRITE;
        let wanted = place.available() | if writable { flag::WRITE } else { 0 };
        let at = 16 * usize::from(place.slot);
        let flags = self.areas.descriptors.load_flags(at);
        let mut flags = flags.iter();
        flags.all(|flags| flags & (AVAIL | USED | kind) == wanted)
            && batch.push_line(window, self.areas.descriptors.read_line(at), writable)
    }

    /// Adds the chain whose first descriptor is at `from`, with `flags`.
    // In `take` it would take the registers of the common chain.
    #[inline(never)]
    fn follow<'m>(
        &self,
        memory: &'m GuestMemory,
        from: Position,
        mut flags: u16,
        limit: u16,
        writable: bool,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingError> {
        let mut place = from;
        for n in 1..=limit.min(MAX_CHAIN) {
            let descriptor = self.read(place.slot, flags);
            if flags & flag::INDIRECT != 0 {
                // It is a chain by itself (2.8.19).
                if !self.indirect || n > 1 {
                    return Err(RingError::BadIndirect);
                }
                batch.push_indirect(memory, &descriptor, self.size, false, writable)?;
            } else {
                batch.push(memory, descriptor, writable)?;
            }
            if flags & flag::NEXT == 0 {
                return batch.end(descriptor.next, n);
            }
            // The rest of a chain is available when its first descriptor is.
            place = place.plus(1, self.size);
            flags = self.flags(place.slot);
        }
        Err(RingError::EndlessChain)
    }

    /// Where the chains of the batch end.
    #[inline]
    fn position(&self, batch: &Batch<'_>) -> Position {
        self.next.plus(batch.slots, self.size)
    }
}

impl<A: Area> Ring for Packed<A> {
    #[inline]
    fn take<'m>(
        &mut self,
        memory: &'m GuestMemory,
        writable: bool,
        max: usize,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingError> {
        let mut position = self.position(batch);
        let mut window = batch.window(memory);
        let mut n = 0;
        while n < max {
            let left = self.size - batch.slots;
            // All of the ring may be in the batch; the first of it looks available again.
            if left == 0 || !batch.has_capacity() {
                break;
            }
            let behind = left.min(self.size - position.slot);
            let is_line = position.slot.is_multiple_of(LINE) && behind >= LINE;
            if is_line
                && max - n >= usize::from(LINE)
                && self.take_line(&window, position, writable, batch)
            {
                position = position.plus(LINE, self.size);
                self.seen = position;
                n += usize::from(LINE);
                continue;
            }
            n += 1;
            let flags = self.flags(position.slot);
            if !Self::is_available(flags, position.wrap) {
                break;
            }
            if self.take_plain(&window, position.slot, flags, writable, batch) {
                position = position.plus(1, self.size);
            } else {
                self.follow(memory, position, flags, left, writable, batch)
                    .inspect_err(|_| batch.abandon())?;
                position = self.position(batch);
                window = batch.window(memory);
            }
        }
        self.seen = position;
        Ok(())
    }

    #[inline]
    fn complete(&mut self, batch: &Batch<'_>, n: usize) {
        let Some((first, others)) = batch.chains[..n].split_first() else {
            return;
        };
        let start = self.next;
        self.look_used(start, first.slots);
        let mut place = start.plus(first.slots, self.size);
        let mut slots = u32::from(first.slots);
        for chain in others {
            self.look_used(place, chain.slots);
            self.give_back(place, chain.id, chain.written);
            place = place.plus(chain.slots, self.size);
            slots += u32::from(chain.slots);
        }
        // All of the batch comes first. The driver looks here before it looks at those behind.
        self.give_back(start, first.id, first.written);
        self.moved = self.moved.saturating_add(slots);
        self.next = place;
    }

    fn peek(&self) -> bool {
        Self::is_available(self.flags(self.next.slot), self.next.wrap)
    }

    fn arm(&mut self) -> bool {
        let device = &self.areas.device;
        if self.event_index {
            // The place first: flags that name one are for that place.
            device.store(0, self.seen.bits());
            device.store(EVENT_FLAGS, AT_DESCRIPTOR);
        } else {
            device.store(EVENT_FLAGS, ENABLE);
        }
        A::fence();
        !Self::is_available(self.flags(self.seen.slot), self.seen.wrap)
    }

    fn disarm(&mut self) {
        self.areas.device.store(EVENT_FLAGS, DISABLE);
    }

    fn must_notify(&mut self) -> bool {
        let moved = std::mem::take(&mut self.moved);
        if moved == 0 {
            return false;
        }
        A::fence();
        let wish = self.areas.driver.read_u32(0);
        match (wish >> 16) as u16 & 3 {
            DISABLE => false,
            AT_DESCRIPTOR if self.event_index => {
                let event = Position::from_bits(wish as u16);
                let round = if event.wrap == self.next.wrap {
                    0
                } else {
                    self.size
                };
                let here = u32::from(self.next.slot) + u32::from(round);
                // A place in front is not passed; one outside of the ring is none to wait for.
                event.slot >= self.size
                    || moved >= self.size.into()
                    || passed(here.wrapping_sub(event.slot.into()), moved)
            }
            _ => true,
        }
    }

    fn base(&self) -> u32 {
        let bits = u32::from(self.next.bits());
        bits << 16 | bits
    }
}
