//! The driver's side of both kinds of ring, for tests.
//!
//! `softnet-tests` has another, which lays its rings out in a guest's memory for a port. This one
//! is over any [`Area`], so that loom and miri run it, and gives descriptors out in any order.

use std::collections::VecDeque;

use super::chain::flag;
use super::notify::Area;
use super::{Areas, RingConfig};
use crate::vhost_user::memory::GuestMemory;

/// A buffer of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
}

impl Part {
    pub(super) fn readable(address: u64, len: u32) -> Part {
        Part {
            address,
            len,
            flags: 0,
        }
    }

    pub(super) fn writable(address: u64, len: u32) -> Part {
        Part {
            address,
            len,
            flags: flag::WRITE,
        }
    }
}

/// A chain that the device has given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) token: u64,
    pub(super) len: u32,
}

/// An ordinary driver, which follows the specification word for word, and orders its accesses no
/// more than it has to.
#[derive(Debug)]
pub(super) struct Driver<A> {
    pub(super) areas: Areas<A>,
    config: RingConfig,
    /// Free descriptors (split) or identifiers (packed).
    free: VecDeque<u16>,
    free_slots: u16,
    /// By identifier: what the caller calls it, and its descriptors.
    chains: Vec<(u64, Vec<u16>)>,
    /// Heads of the chains of a split ring that were not given back, as they were offered.
    order: VecDeque<u16>,
    /// With `VIRTIO_F_IN_ORDER`: what the last element of a split ring says, whose chain and those
    /// before it are given back.
    last: Option<(u16, u32)>,
    /// Free-running counts of places. A packed ring's slot and wrap counter follow from them.
    offered: u64,
    published: u64,
    reaped: u64,
    /// The flags of a packed ring that publish all that was offered, and their place.
    first: Option<(usize, u16)>,
}

impl<A: Area> Driver<A> {
    pub(super) fn new(config: RingConfig, areas: Areas<A>) -> Driver<A> {
        Driver {
            areas,
            config,
            free: (0..config.size).collect(),
            free_slots: config.size,
            chains: vec![(0, Vec::new()); config.size.into()],
            order: VecDeque::new(),
            last: None,
            offered: 0,
            published: 0,
            reaped: 0,
            first: None,
        }
    }

    fn size(&self) -> u64 {
        self.config.size.into()
    }

    /// A packed ring's wrap counter.
    fn wrap(&self, place: u64) -> bool {
        (place / self.size()).is_multiple_of(2)
    }

    fn off_wrap(&self, place: u64) -> u16 {
        (place % self.size()) as u16 | u16::from(self.wrap(place)) << 15
    }

    pub(super) fn write(&self, slot: u16, part: Part, next: u16) {
        let at = 16 * usize::from(slot);
        let ring = &self.areas.descriptors;
        ring.write_u32(at, part.address as u32);
        ring.write_u32(at + 4, (part.address >> 32) as u32);
        ring.write_u32(at + 8, part.len);
        if self.config.packed {
            ring.write_u16(at + 12, next);
        } else {
            ring.write_u16(at + 12, part.flags);
            ring.write_u16(at + 14, next);
        }
    }

    /// Puts a chain into the ring, to be published. False: the ring is full.
    pub(super) fn offer(&mut self, token: u64, parts: &[Part]) -> bool {
        let n = parts.len() as u16;
        if n > self.free_slots || self.free.is_empty() {
            return false;
        }
        self.free_slots -= n;
        if self.config.packed {
            let id = self.free.pop_front().unwrap();
            self.chains[usize::from(id)] = (token, vec![0; parts.len()]);
            for (i, part) in (1..).zip(parts) {
                let slot = (self.offered % self.size()) as u16;
                let sides = if self.wrap(self.offered) {
                    1 << 7
                } else {
                    1 << 15
                };
                let next = if i < n { flag::NEXT } else { 0 };
                self.write(slot, *part, id);
                let flags = (16 * usize::from(slot) + 14, part.flags | next | sides);
                match self.first {
                    None => self.first = Some(flags),
                    // In no order: the first, which is stored last, is looked at first.
                    Some(_) => self.areas.descriptors.write_u16(flags.0, flags.1),
                }
                self.offered += 1;
            }
        } else {
            let slots: Vec<u16> = self.free.drain(..parts.len()).collect();
            for (i, part) in parts.iter().enumerate() {
                let next = slots.get(i + 1);
                let linked = if next.is_some() { flag::NEXT } else { 0 };
                let flags = part.flags | linked;
                // What a last descriptor's `next` says is nobody's business.
                let next = next.copied().unwrap_or(0xffff);
                self.write(slots[i], Part { flags, ..*part }, next);
            }
            let head = slots[0];
            self.offer_head(head);
            self.order.push_back(head);
            self.chains[usize::from(head)] = (token, slots);
        }
        true
    }

    /// Puts any number into the available ring.
    pub(super) fn offer_head(&mut self, head: u16) {
        let slot = (self.offered % self.size()) as usize;
        self.areas.driver.write_u16(4 + 2 * slot, head);
        self.offered += 1;
    }

    /// Puts a chain into the ring as an indirect table at `address`.
    pub(super) fn offer_indirect(
        &mut self,
        token: u64,
        parts: &[Part],
        memory: &GuestMemory,
        address: u64,
    ) -> bool {
        let table = indirect_table(parts, !self.config.packed);
        memory.write_from(address, &table).unwrap();
        let part = Part {
            address,
            len: table.len() as u32,
            flags: flag::INDIRECT,
        };
        self.offer(token, &[part])
    }

    /// Makes visible what was offered. Whether the device wants to be notified.
    pub(super) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.offered);
        if old == new {
            return false;
        }
        self.published = new;
        if self.config.packed {
            let (at, flags) = self.first.take().unwrap();
            self.areas.descriptors.store(at, flags);
            A::fence();
            let wish = self.areas.device.read_u32(0);
            match wish >> 16 {
                0 => true,
                1 => false,
                // The event is in what was published: one of the places from old to new.
                _ => (old..new).any(|place| self.off_wrap(place) == wish as u16),
            }
        } else {
            self.areas.driver.store(2, new as u16);
            A::fence();
            if self.config.event_index {
                let event = self
                    .areas
                    .device
                    .load(4 + 8 * usize::from(self.config.size));
                (old..new).any(|place| place as u16 == event)
            } else {
                self.areas.device.load(0) & 1 == 0
            }
        }
    }

    /// Takes what the device has given back.
    pub(super) fn reap(&mut self) -> Vec<Used> {
        let mut all = Vec::new();
        while let Some(used) = self.reap_one() {
            all.push(used);
        }
        all
    }

    fn reap_one(&mut self) -> Option<Used> {
        let slot = (self.reaped % self.size()) as usize;
        let (id, len);
        if self.config.packed {
            if !self.has_used() {
                return None;
            }
            len = self.areas.descriptors.read_u32(16 * slot + 8);
            id = self.areas.descriptors.read_u16(16 * slot + 12);
        } else {
            if !self.has_used() {
                return None;
            }
            let element = || {
                let wide = self.areas.device.read_u32(4 + 8 * slot);
                let len = self.areas.device.read_u32(8 + 8 * slot);
                (u16::try_from(wide).unwrap(), len)
            };
            if self.config.in_order {
                let last = self.last.take().unwrap_or_else(element);
                id = self.order.pop_front().expect("a chain that was offered");
                if id == last.0 {
                    len = last.1;
                } else {
                    len = 0;
                    self.last = Some(last);
                }
            } else {
                (id, len) = element();
            }
        }
        let (token, slots) = std::mem::take(&mut self.chains[usize::from(id)]);
        assert!(!slots.is_empty(), "chain {id} given back twice");
        self.free_slots += slots.len() as u16;
        self.reaped += if self.config.packed {
            slots.len() as u64
        } else {
            1
        };
        if self.config.packed {
            self.free.push_back(id);
        } else {
            self.free.extend(slots);
        }
        Some(Used { token, len })
    }

    fn has_used(&self) -> bool {
        if self.config.packed {
            let slot = (self.reaped % self.size()) as usize;
            let flags = self.areas.descriptors.load(16 * slot + 14);
            let wrap = self.wrap(self.reaped);
            (flags >> 7 & 1 != 0) == wrap && (flags >> 15 != 0) == wrap
        } else {
            self.areas.device.load(2) != self.reaped as u16
        }
    }

    /// Asks for a notification of chains beyond those reaped. False: there are some now.
    pub(super) fn arm(&mut self) -> bool {
        if self.config.packed {
            if self.config.event_index {
                self.areas.driver.store(0, self.off_wrap(self.reaped));
            }
            let flags = if self.config.event_index { 2 } else { 0 };
            self.areas.driver.store(2, flags);
        } else if self.config.event_index {
            let at = 4 + 2 * usize::from(self.config.size);
            self.areas.driver.store(at, self.reaped as u16);
        } else {
            self.areas.driver.store(0, 0);
        }
        A::fence();
        !self.has_used()
    }

    pub(super) fn disarm(&mut self) {
        if self.config.packed {
            self.areas.driver.store(2, 1);
        } else if !self.config.event_index {
            self.areas.driver.store(0, 1);
        }
    }

    /// Chains that were not given back.
    pub(super) fn outstanding(&self) -> usize {
        self.chains
            .iter()
            .filter(|(_, slots)| !slots.is_empty())
            .count()
    }
}

/// The bytes of an indirect table.
pub(super) fn indirect_table(parts: &[Part], linked: bool) -> Vec<u8> {
    let mut table = Vec::new();
    for (i, part) in (1..).zip(parts) {
        let next = if linked && i < parts.len() {
            flag::NEXT
        } else {
            0
        };
        table.extend(part.address.to_le_bytes());
        table.extend(part.len.to_le_bytes());
        table.extend((part.flags | next).to_le_bytes());
        table.extend((i as u16).to_le_bytes());
    }
    table
}
