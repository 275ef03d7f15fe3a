//! The driver's side of split and packed rings (virtio 1.2, 2.7 and 2.8).
//!
//! Chains take consecutive descriptors, and each descriptor has a buffer of its own. The device
//! gives chains back in order, which is checked.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use softnet_io::vhost_user::memory::{GuestArea, GuestMemory};

use super::{BUFFER, GuestConfig, Layout};

/// The chain goes on.
pub const NEXT: u16 = 1;
/// The device writes the buffer.
pub const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub const INDIRECT: u16 = 4;
/// The sides' bits in a packed descriptor's flags.
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// The most parts of an indirect table.
pub const TABLE: usize = 64;

/// A buffer of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it is in the guest.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Flags of its descriptor.
    pub flags: u16,
}

impl Part {
    /// So many bytes.
    pub fn new(address: u64, len: usize, flags: u16) -> Part {
        Part {
            address,
            len: len as u32,
            flags,
        }
    }
}

/// A chain that the device has.
#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u64,
    slots: u16,
}

/// One ring.
#[derive(Debug)]
pub struct Ring {
    layout: Layout,
    config: GuestConfig,
    memory: Arc<GuestMemory>,
    descriptors: GuestArea,
    driver: GuestArea,
    device: GuestArea,
    /// Free-running places of descriptors.
    next: u64,
    /// Chains made available in a split ring; `seen` are those given back.
    offered: u16,
    seen: u16,
    chains: VecDeque<Chain>,
    /// Descriptors of these.
    used: u16,
    /// Chains that the device has given back.
    pub done: u64,
}

impl Ring {
    pub(super) fn new(config: GuestConfig, layout: Layout, memory: Arc<GuestMemory>) -> Ring {
        let n = usize::from(config.size);
        let area = |at, len| {
            memory
                .area(layout.user(at), len, 16)
                .expect("a part of a ring")
        };
        let (driver, device) = if config.packed {
            (4, 4)
        } else {
            (6 + 2 * n, 6 + 8 * n)
        };
        Ring {
            descriptors: area(layout.descriptors, 16 * n),
            driver: area(layout.driver, driver),
            device: area(layout.device, device),
            layout,
            config,
            memory,
            next: 0,
            offered: 0,
            seen: 0,
            chains: VecDeque::new(),
            used: 0,
            done: 0,
        }
    }

    /// As before it was ever used. The device must not use it.
    pub(super) fn clear(&mut self) {
        let n = usize::from(self.config.size);
        (0..2 * n).for_each(|word| self.descriptors.write(8 * word, 0_u64));
        let len = if self.config.packed { 4 } else { 6 + 2 * n };
        (0..len / 2).for_each(|word| self.driver.store_u16(2 * word, 0));
        let len = if self.config.packed { 4 } else { 6 + 8 * n };
        (0..len / 2).for_each(|word| self.device.store_u16(2 * word, 0));
        (self.next, self.offered, self.seen, self.used) = (0, 0, 0, 0);
        self.chains.clear();
    }

    fn size(&self) -> u64 {
        self.config.size.into()
    }

    /// Descriptors that the device does not have.
    pub fn free(&self) -> u16 {
        self.config.size - self.used
    }

    /// Chains that the device has.
    pub fn in_flight(&self) -> usize {
        self.chains.len()
    }

    /// Where the buffer of a place is in the guest.
    fn buffer(&self, place: u64) -> u64 {
        self.layout.guest(self.layout.buffers) + place % self.size() * BUFFER as u64
    }

    /// The flags of a packed descriptor at a place of this round.
    fn sides(&self, place: u64) -> u16 {
        if (place / self.size()).is_multiple_of(2) {
            AVAIL
        } else {
            USED
        }
    }

    /// Writes a descriptor of the chain that starts at `head`; the flags of a packed one are
    /// returned, to be stored last.
    fn describe(&self, head: u64, place: u64, part: Part) -> u16 {
        let slot = (place % self.size()) as usize;
        self.descriptors.write(16 * slot, part.address);
        if self.config.packed {
            let id = (head % self.size()) as u16;
            self.descriptors.write(16 * slot + 8, part.len);
            self.descriptors.write(16 * slot + 12, id);
            part.flags | self.sides(place)
        } else {
            let next = (place + 1) % self.size();
            let word = u64::from(part.len) | u64::from(part.flags) << 32 | next << 48;
            self.descriptors.write(16 * slot + 8, word);
            part.flags
        }
    }

    /// Makes a chain of any parts available, as many as are free at most. All but the last are
    /// continued; so is that if it says so.
    pub fn offer(&mut self, parts: &[Part]) {
        let head = self.next;
        let mut first = 0;
        for (i, part) in parts.iter().enumerate() {
            let place = head + i as u64;
            let next = if i + 1 < parts.len() { NEXT } else { 0 };
            let flags = part.flags | next;
            let flags = self.describe(head, place, Part { flags, ..*part });
            match i {
                0 => first = flags,
                _ => self.store_flags(place, flags),
            }
        }
        self.publish(head, parts.len() as u16, first);
    }

    fn store_flags(&self, place: u64, flags: u16) {
        if self.config.packed {
            let slot = (place % self.size()) as usize;
            self.descriptors.store_u16(16 * slot + 14, flags);
        }
    }

    fn publish(&mut self, head: u64, slots: u16, flags: u16) {
        self.next += u64::from(slots);
        self.used += slots;
        self.chains.push_back(Chain { head, slots });
        if self.config.packed {
            self.store_flags(head, flags);
        } else {
            let at = usize::from(self.offered % self.config.size);
            let head = (head % self.size()) as u16;
            self.driver.store_u16(4 + 2 * at, head);
            self.offered = self.offered.wrapping_add(1);
            self.driver.store_u16(2, self.offered);
        }
    }

    /// Sends a frame behind its header, in as many buffers as it takes; `cut`: in three parts of
    /// an indirect table. False: the ring has no place for it now.
    pub fn send(&mut self, header: [u8; super::HEADER], frame: &[u8], cut: bool) -> bool {
        let bytes = [&header[..], frame].concat();
        if bytes.len().div_ceil(BUFFER) > usize::from(self.free()) {
            return false;
        }
        let mut parts = Vec::new();
        for (place, bytes) in (self.next..).zip(bytes.chunks(BUFFER)) {
            let address = self.buffer(place);
            self.memory.write_from(address, bytes).expect("a buffer");
            parts.push(Part::new(address, bytes.len(), 0));
        }
        match parts[..] {
            [Part { address, len, .. }] if cut => self.offer_table(&[
                Part::new(address, 12, 0),
                Part::new(address + 12, 2, 0),
                Part::new(address + 14, len as usize - 14, 0),
            ]),
            _ => self.offer(&parts),
        }
        true
    }

    /// Makes an indirect table of at most [`TABLE`] parts available. One place must be free.
    fn offer_table(&mut self, parts: &[Part]) {
        let table = self.write_table(parts);
        self.offer(&[table]);
    }

    /// An indirect table of at most [`TABLE`] parts, to be made available as often as one likes.
    pub fn write_table(&self, parts: &[Part]) -> Part {
        assert!(parts.len() <= TABLE);
        let mut table = Vec::new();
        for (i, part) in (1_u16..).zip(parts) {
            let linked = usize::from(i) < parts.len() && !self.config.packed;
            table.extend(part.address.to_le_bytes());
            table.extend(part.len.to_le_bytes());
            table.extend((part.flags | if linked { NEXT } else { 0 }).to_le_bytes());
            table.extend(i.to_le_bytes());
        }
        let slot = self.next % self.size();
        let address = self.layout.guest(self.layout.tables) + slot * 16 * TABLE as u64;
        self.memory.write_from(address, &table).expect("a table");
        Part::new(address, table.len(), INDIRECT)
    }

    /// Offers buffers to receive into: `n` at most, of `len` bytes.
    pub fn fill(&mut self, n: u16, len: usize) {
        for _ in 0..n.min(self.free()) {
            let address = self.buffer(self.next);
            self.offer(&[Part::new(address, len, WRITE)]);
        }
    }

    /// Writes to the buffer of the next descriptor, and returns where it is.
    pub fn write(&self, bytes: &[u8]) -> u64 {
        let at = self.next_buffer();
        self.memory.write_from(at, bytes).expect("a buffer");
        at
    }

    /// The buffer of the next descriptor.
    pub fn next_buffer(&self) -> u64 {
        self.buffer(self.next)
    }

    /// Asks the device not to notify it of what it gives back; not with event index.
    pub fn silence(&self) {
        let at = if self.config.packed { 2 } else { 0 };
        self.driver.store_u16(at, 1);
    }

    /// True if the device wants to be notified of what was offered since the ring was at `before`.
    pub fn must_kick(&self, before: u64) -> bool {
        fence(Ordering::SeqCst);
        if self.config.packed {
            let wish = self.device.load_u16(2);
            return match wish {
                0 => true,
                1 => false,
                _ => {
                    let event = self.device.load_u16(0);
                    (before..self.next).any(|place| {
                        let round = u16::from((place / self.size()).is_multiple_of(2));
                        (place % self.size()) as u16 | round << 15 == event
                    })
                }
            };
        }
        if !self.config.event_index {
            return self.device.load_u16(0) & 1 == 0;
        }
        let event = self.device.load_u16(4 + 8 * usize::from(self.config.size));
        let offered = (self.next - before) as u16;
        let behind = self.offered.wrapping_sub(event).wrapping_sub(1);
        behind < offered
    }

    /// The place of the next descriptor, for [`must_kick`](Ring::must_kick).
    pub fn place(&self) -> u64 {
        self.next
    }

    /// The next chain that was given back: its first place and the bytes written.
    fn reap(&mut self) -> Option<(u64, usize)> {
        let chain = *self.chains.front()?;
        let slot = (chain.head % self.size()) as usize;
        let (id, len);
        if self.config.packed {
            let flags = self.descriptors.load_u16(16 * slot + 14);
            let round = (chain.head / self.size()).is_multiple_of(2);
            if (flags & AVAIL != 0) != round || (flags & USED != 0) != round {
                return None;
            }
            len = self.descriptors.read::<u32>(16 * slot + 8);
            id = self.descriptors.read::<u16>(16 * slot + 12).into();
        } else {
            if self.device.load_u16(2) == self.seen {
                return None;
            }
            let at = 4 + 8 * usize::from(self.seen % self.config.size);
            id = self.device.read::<u32>(at);
            len = self.device.read::<u32>(at + 4);
            self.seen = self.seen.wrapping_add(1);
        }
        assert_eq!(id as usize, slot, "chains come back in order");
        self.chains.pop_front();
        self.used -= chain.slots;
        self.done += 1;
        Some((chain.head, len as usize))
    }

    /// Takes back what was sent.
    pub fn complete(&mut self) {
        while self.reap().is_some() {}
    }

    /// The next buffer that was received into. A frame may have several, of which the first
    /// has the header.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let (place, len) = self.reap()?;
        assert!(len <= BUFFER, "{len} bytes in a buffer of {BUFFER}");
        let mut bytes = vec![0; len];
        let from = self.buffer(place);
        self.memory.read_into(from, &mut bytes).expect("a buffer");
        Some(bytes)
    }

    /// Makes more chains available than there are descriptors; in a packed ring, all of them as
    /// one chain that goes on.
    pub fn run_on(&mut self) {
        if self.config.packed {
            for place in self.next..self.next + self.size() {
                let part = Part::new(self.buffer(place), 64, NEXT);
                let flags = self.describe(place, place, part);
                self.store_flags(place, flags);
            }
        } else {
            let index = self.offered.wrapping_add(self.config.size).wrapping_add(1);
            self.driver.store_u16(2, index);
        }
    }
}
