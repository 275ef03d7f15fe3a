//! A guest: memory, and drivers for rings in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use softnet_io::vhost_user::memory::{GuestArea, GuestMemory, Region, RegionSpec};

/// Descriptors of a ring.
pub(crate) const SIZE: u16 = 256;
/// The guest's memory: in the guest, in the front end, and bytes.
pub(crate) const GUEST: u64 = 0x10_0000;
pub(crate) const USER: u64 = 0x7f00_0000_0000;
pub(crate) const LEN: u64 = 0x80_0000;
/// Bytes of a ring, of which each part has a page.
const RING: u64 = 0x4000;
/// Where the buffers of a ring start, and bytes of a buffer.
const BUFFERS: u64 = 0x10_0000;
const BUFFER: u64 = 2048;
/// The virtio-net header.
const HEADER: usize = 12;

const NEXT_WRITE: u16 = 2;

/// A guest's memory, and the files of its rings. What a killed machine leaves is dropped.
pub(crate) struct Guest {
    pub(crate) file: OwnedFd,
    memory: Arc<GuestMemory>,
    pub(crate) rings: Vec<GuestRing>,
}

/// One ring, the driver's side.
pub(crate) struct GuestRing {
    number: u64,
    packed: bool,
    descriptors: GuestArea,
    available: GuestArea,
    used: GuestArea,
    memory: Arc<GuestMemory>,
    next: u16,
    seen: u16,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
}

pub(crate) fn spec() -> RegionSpec {
    RegionSpec {
        guest: GUEST,
        len: LEN,
        user: USER,
        offset: 0,
    }
}

/// Where the parts of a ring are for the front end: descriptors, available, used.
pub(crate) fn addresses(ring: u64) -> [u64; 3] {
    let start = USER + ring * RING;
    [start, start + 0x1000, start + 0x2000]
}

impl Guest {
    pub(crate) fn new(rings: u64) -> Guest {
        Guest::of(rings, false)
    }

    pub(crate) fn of(rings: u64, packed: bool) -> Guest {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memory file");
        ftruncate(&file, LEN).expect("it can be as long");
        let region = Region::map(spec(), &file).expect("a region");
        let memory = Arc::new(GuestMemory::new(vec![Arc::new(region)]).expect("one region"));
        let ring = |number| {
            let [descriptors, available, used] = addresses(number);
            let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let area = |at, len| memory.area(at, len, 16).expect("a part of a ring");
            GuestRing {
                number,
                packed,
                descriptors: area(descriptors, 16 * usize::from(SIZE)),
                available: area(available, 6 + 2 * usize::from(SIZE)),
                used: area(used, 6 + 8 * usize::from(SIZE)),
                memory: memory.clone(),
                next: 0,
                seen: 0,
                kick: event().expect("an eventfd"),
                call: event().expect("an eventfd"),
            }
        };
        Guest {
            rings: (0..rings).map(ring).collect(),
            file,
            memory,
        }
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The guest's memory as its own processor sees it.
    pub(crate) fn memory(&self) -> &GuestMemory {
        &self.memory
    }
}

impl GuestRing {
    fn buffer(&self, index: u16) -> u64 {
        let of_ring = GUEST + BUFFERS + self.number * u64::from(SIZE) * BUFFER;
        of_ring + u64::from(index) * BUFFER
    }

    /// Makes one buffer available, and kicks if that is wanted.
    fn add(&mut self, len: usize, flags: u16) {
        let index = self.next % SIZE;
        let address = self.buffer(index);
        let at = 16 * usize::from(index);
        if self.packed {
            self.descriptors.write(at, address);
            self.descriptors.write(at + 8, len as u32);
            self.descriptors.write(at + 12, index);
            let available = if odd_round(self.next) {
                1 << 7
            } else {
                1 << 15
            };
            self.descriptors.store_u16(at + 14, flags | available);
            self.next = self.next.wrapping_add(1);
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if self.used.load_u16(2) != 1 {
                self.kick();
            }
            return;
        }
        let low = len as u64 | u64::from(flags) << 32;
        self.descriptors.write(at, [address, low]);
        self.available.store_u16(4 + 2 * usize::from(index), index);
        self.next = self.next.wrapping_add(1);
        self.available.store_u16(2, self.next);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if self.used.load_u16(0) & 1 == 0 {
            self.kick();
        }
    }

    pub(crate) fn kick(&self) {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).expect("it is not full");
    }

    /// Sends a frame behind an empty header.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.send_with([0; HEADER], frame);
    }

    pub(crate) fn send_with(&mut self, header: [u8; HEADER], frame: &[u8]) {
        let to = self.buffer(self.next % SIZE);
        let bytes = [&header[..], frame].concat();
        self.memory.write_from(to, &bytes).expect("a buffer");
        self.add(bytes.len(), 0);
    }

    /// Offers a buffer to receive into.
    pub(crate) fn offer(&mut self) {
        self.add(BUFFER as usize, NEXT_WRITE);
    }

    /// Frames that were sent and not given back. (Of a packed ring this is the way to reap.)
    pub(crate) fn in_flight(&mut self) -> u16 {
        if self.packed {
            while self.seen != self.next && self.packed_used() {
                self.seen = self.seen.wrapping_add(1);
            }
            return self.next.wrapping_sub(self.seen);
        }
        self.next.wrapping_sub(self.used.load_u16(2))
    }

    /// Whether the next descriptor of a packed ring is used.
    fn packed_used(&self) -> bool {
        let flags = self
            .descriptors
            .load_u16(16 * usize::from(self.seen % SIZE) + 14);
        let both = 1 << 7 | 1 << 15;
        flags & both == if odd_round(self.seen) { both } else { 0 }
    }

    /// Whether the guest was notified since this was last asked.
    pub(crate) fn was_called(&self) -> bool {
        rustix::io::read(&self.call, &mut [0; 8]).is_ok()
    }

    /// The next frame that was received, with its header.
    pub(crate) fn receive(&mut self) -> Option<([u8; HEADER], Vec<u8>)> {
        let [index, len] = if self.packed {
            if !self.packed_used() {
                return None;
            }
            let descriptor = 16 * usize::from(self.seen % SIZE);
            let [len, rest] = self.descriptors.read::<[u32; 2]>(descriptor + 8);
            [rest & 0xffff, len]
        } else {
            if self.used.load_u16(2) == self.seen {
                return None;
            }
            let at = 4 + 8 * usize::from(self.seen % SIZE);
            self.used.read::<[u32; 2]>(at)
        };
        self.seen = self.seen.wrapping_add(1);
        let mut bytes = vec![0; len as usize];
        let from = self.buffer(index as u16);
        self.memory.read_into(from, &mut bytes).expect("a buffer");
        let frame = bytes.split_off(HEADER);
        Some((bytes.try_into().expect("a header"), frame))
    }
}

/// In which rounds of a packed ring the wrap counter is 1.
fn odd_round(place: u16) -> bool {
    (place / SIZE).is_multiple_of(2)
}
