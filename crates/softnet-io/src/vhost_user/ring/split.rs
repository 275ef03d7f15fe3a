//! Split rings (virtio 1.2, 2.7): a table of descriptors, a ring of chains that are available, and
//! one of those that were used.

use super::chain::{Batch, Descriptor, MAX_CHAIN, flag};
use super::notify::{Area, passed};
use super::{Areas, Ring, RingConfig, RingError};
use crate::vhost_user::memory::{GuestMemory, Window};

/// Offsets in the available and in the used ring.
mod at {
    pub(super) const FLAGS: usize = 0;
    pub(super) const INDEX: usize = 2;
    pub(super) const RING: usize = 4;
}

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`.
const DO_NOT_NOTIFY: u16 = 1;

#[derive(Debug)]
pub(super) struct Split<A> {
    pub(super) areas: Areas<A>,
    /// A power of two.
    size: u16,
    indirect: bool,
    event_index: bool,
    in_order: bool,
    /// The first chain that is not used; free-running, as all indices.
    next: u16,
    /// The available index when last read.
    seen: u16,
    /// Chains used since the driver was asked whether it wants to know.
    moved: u32,
}

impl<A: Area> Split<A> {
    /// Goes on where the used ring ends: see the module.
    pub(super) fn new(config: &RingConfig, areas: Areas<A>) -> Split<A> {
        let next = areas.device.load(at::INDEX);
        Split {
            areas,
            size: config.size,
            indirect: config.indirect,
            event_index: config.event_index,
            in_order: config.in_order,
            next,
            seen: next,
            moved: 0,
        }
    }

    /// Where a side says from when on it wants to be notified: behind the other's ring.
    fn used_event(&self) -> usize {
        at::RING + 2 * usize::from(self.size)
    }

    fn avail_event(&self) -> usize {
        at::RING + 8 * usize::from(self.size)
    }

    fn available(&self) -> u16 {
        self.areas.driver.load(at::INDEX)
    }

    /// Adds the chain that starts with descriptor `head`, if it is of that one alone, inside of
    /// `window`. False: it is not added, and to be [followed](Split::follow) from `head` on.
    #[inline(always)]
    fn take_plain<'m>(
        &self,
        window: &Window<'m>,
        head: u16,
        writable: bool,
        batch: &mut Batch<'m>,
    ) -> bool {
        if head >= self.size {
            return false;
        }
        let words = self.areas.descriptors.read_words(16 * usize::from(head));
        let flags = if writable { flag::WRITE } else { 0 };
        if (words[1] >> 32) as u16 != flags {
            return false;
        }
        batch.push_plain(window, words[0], words[1] as u32, head, writable)
    }

    /// Adds the chain that starts with descriptor `head`.
    // In `take` it would take the registers of the common chain.
    #[inline(never)]
    fn follow<'m>(
        &self,
        memory: &'m GuestMemory,
        head: u16,
        writable: bool,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingError> {
        let mut index = head;
        for _ in 0..self.size.min(MAX_CHAIN) {
            if index >= self.size {
                return Err(RingError::BadDescriptor(index));
            }
            let words = self.areas.descriptors.read_words(16 * usize::from(index));
            let descriptor = Descriptor::split(words);
            if descriptor.flags & flag::INDIRECT != 0 {
                if !self.indirect {
                    return Err(RingError::BadIndirect);
                }
                batch.push_indirect(memory, &descriptor, self.size, true, writable)?;
                return batch.end(head, 1);
            }
            batch.push(memory, descriptor, writable)?;
            if descriptor.flags & flag::NEXT == 0 {
                return batch.end(head, 1);
            }
            index = descriptor.next;
        }
        Err(RingError::EndlessChain)
    }
}

impl<A: Area> Ring for Split<A> {
    #[inline]
    fn take<'m>(
        &mut self,
        memory: &'m GuestMemory,
        writable: bool,
        max: usize,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingError> {
        let start = self.next.wrapping_add(batch.slots);
        let mut ready = self.seen.wrapping_sub(start);
        if usize::from(ready) < max {
            self.seen = self.available();
            ready = self.seen.wrapping_sub(start);
            let outstanding = self.seen.wrapping_sub(self.next);
            if outstanding > self.size || ready > outstanding {
                return Err(RingError::IndexRuns(outstanding));
            }
        }
        let mask = self.size - 1;
        let mut window = batch.window(memory);
        for i in 0..ready.min(max.try_into().unwrap_or(u16::MAX)) {
            if !batch.has_capacity() {
                break;
            }
            let slot = usize::from(start.wrapping_add(i) & mask);
            let head = self.areas.driver.read_u16(at::RING + 2 * slot);
            if !self.take_plain(&window, head, writable, batch) {
                self.follow(memory, head, writable, batch)
                    .inspect_err(|_| batch.abandon())?;
                window = batch.window(memory);
            }
        }
        Ok(())
    }

    #[inline]
    fn complete(&mut self, batch: &Batch<'_>, n: usize) {
        let mask = self.size - 1;
        let element = |next: u16| at::RING + 8 * usize::from(next & mask);
        match &batch.chains[..n] {
            [] => return,
            // One element in the place of the first says that all up to its chain were used
            // (2.7.9). Nothing else says how much was written to which.
            [.., last] if self.in_order && last.written == 0 => {
                let used = [last.id.into(), 0];
                self.areas.device.write_pair(element(self.next), used);
                self.next = self.next.wrapping_add(n as u16);
            }
            chains => {
                for chain in chains {
                    let used = [chain.id.into(), chain.written];
                    self.areas.device.write_pair(element(self.next), used);
                    self.next = self.next.wrapping_add(1);
                }
            }
        }
        self.moved = self.moved.saturating_add(n as u32);
        // Release: the elements, and what was copied, come first.
        self.areas.device.store(at::INDEX, self.next);
    }

    fn peek(&self) -> bool {
        self.available() != self.next
    }

    fn arm(&mut self) -> bool {
        if self.event_index {
            self.areas.device.store(self.avail_event(), self.seen);
        } else {
            self.areas.device.store(at::FLAGS, 0);
        }
        A::fence();
        self.available() == self.seen
    }

    /// With event indices, the one that was set last is behind, and stays so for 65,536 chains.
    fn disarm(&mut self) {
        if !self.event_index {
            self.areas.device.store(at::FLAGS, DO_NOT_NOTIFY);
        }
    }

    fn must_notify(&mut self) -> bool {
        let moved = std::mem::take(&mut self.moved);
        if moved == 0 {
            return false;
        }
        A::fence();
        if self.event_index {
            let event = self.areas.driver.load(self.used_event());
            let behind = self.next.wrapping_sub(event);
            // 0 is as far as it gets.
            moved > u16::MAX.into() || passed(behind.into(), moved)
        } else {
            self.areas.driver.load(at::FLAGS) & DO_NOT_NOTIFY == 0
        }
    }

    fn base(&self) -> u32 {
        self.next.into()
    }
}
