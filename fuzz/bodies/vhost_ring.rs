//! A hostile driver on a ring: whatever it writes, the device's side neither panics nor loses a
//! packet, and a ring that it broke stays broken.
//!
//! Input: features (1 byte), size (1), base (1), then steps. A step is a byte: what to do, and
//! what that takes (see [`Guest::step`]).

use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::stats::DropReason;
use softnet::tx::{Features, Sent, Xmit};
use softnet_engine::rx::CountDrop;
use softnet_io::Buffers;
use softnet_io::vhost_user::memory::{GuestMemory, Region, RegionSpec};
use softnet_io::vhost_user::ring::{RingConfig, RingError, Virtqueue};

/// Two regions that follow each other in the guest, the rings in the first, and one apart.
const REGIONS: [(u64, u64); 3] = [(0, 0x2000), (0x2000, 0x2000), (0x8000, 0x1000)];
const DRIVER: u64 = 0x800;
const DEVICE: u64 = 0x1000;
/// How far addresses of the front end are from those of the guest.
const USER: u64 = 1 << 40;

thread_local! {
    static MEMORY: GuestMemory = memory();
}

fn memory() -> GuestMemory {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, 0x1_0000).expect("it can be as long");
    let regions = REGIONS.map(|(guest, len)| {
        let spec = RegionSpec {
            guest,
            len,
            user: USER + guest,
            // In another order than in the guest.
            offset: 0xa000 - guest,
        };
        Arc::new(Region::map(spec, &file).expect("it is in the file"))
    });
    GuestMemory::new(regions.into()).expect("they are apart")
}

struct Drops(u64);

impl CountDrop for Drops {
    fn count_drop(&mut self, _: DropReason, packets: u64) {
        self.0 += packets;
    }
}

/// The rest of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        now
    }

    /// 0 at the end.
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}

struct Guest<'a> {
    memory: &'a GuestMemory,
    queue: Virtqueue,
    config: RingConfig,
    buffers: Buffers,
    drops: Drops,
    /// Where the driver is, if it is an ordinary one.
    offered: u16,
    error: Option<RingError>,
    packets: PacketList,
}

pub(crate) fn run(input: &[u8]) {
    MEMORY.with(|memory| {
        for (guest, len) in REGIONS {
            memory
                .write_from(guest, &vec![0; len as usize])
                .expect("it is there");
        }
        talk(memory, &mut Input(input));
    });
}

fn talk(memory: &GuestMemory, input: &mut Input<'_>) {
    let (features, size, base) = (input.byte(), input.byte(), input.byte());
    let has = |bit: u32| features >> bit & 1 != 0;
    let packed = has(0);
    let base = u32::from(base & 0x7f);
    let config = RingConfig {
        size: if packed {
            u16::from(size % 16)
        } else {
            1 << (size % 6)
        },
        descriptors: USER,
        driver: USER + DRIVER,
        device: USER + DEVICE,
        base: if packed { base | 0x8000 } else { base },
        packed,
        indirect: has(1),
        event_index: has(2),
        mergeable: has(3),
        takes: Features {
            checksum: has(4),
            tso4: has(4),
            tso6: has(4),
            uso: has(4),
            mtu: 0,
        },
        ecn: has(5),
    };
    let Ok(queue) = Virtqueue::new(config, memory) else {
        return;
    };
    let pool = |buffers, buffer_size| {
        Pool::new(PoolConfig {
            buffers,
            buffer_size,
        })
        .expect("a small pool")
    };
    let small = pool(48, 512);
    let large = has(4).then(|| pool(2, 8192));
    let pools: Vec<Pool> = [&small].into_iter().chain(&large).cloned().collect();
    let mut guest = Guest {
        memory,
        queue,
        config,
        buffers: Buffers { small, large },
        drops: Drops(0),
        offered: if packed { base as u16 } else { 0 },
        error: None,
        packets: PacketList::new(),
    };
    while !input.0.is_empty() {
        guest.step(input);
    }
    drop(guest);
    for pool in pools {
        assert_eq!(pool.stats().free, pool.stats().buffers, "a packet is lost");
    }
}

impl Guest<'_> {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 10 {
            0 => {
                let budget = usize::from(input.byte());
                self.receive(budget);
            }
            1 => self.transmit(input),
            // Any bytes anywhere.
            2 => {
                let at = u64::from(input.u16()) % 0x9000;
                let n = usize::from(input.byte() % 64);
                let _ = self.memory.write_from(at, input.take(n));
            }
            // An ordinary descriptor, and the index that offers it.
            3..=6 => self.offer(input),
            7 => {
                let new = !self.queue.arm();
                assert!(!new || self.error.is_none());
            }
            8 => {
                self.queue.disarm();
                self.queue.must_notify();
            }
            _ => {
                let base = self.queue.base();
                self.queue.remap(self.memory).expect("the same memory");
                assert_eq!(self.queue.base(), base);
            }
        }
        assert_eq!(self.queue.failed(), self.error);
        assert!(self.error.is_none() || !self.queue.peek());
    }

    fn offer(&mut self, input: &mut Input<'_>) {
        let (address, len, flags) = (input.u16(), input.u16(), u16::from(input.byte()));
        let size = self.config.size;
        let slot = self.offered % size;
        let mut descriptor = [0; 16];
        descriptor[..2].copy_from_slice(&address.to_le_bytes());
        descriptor[8..10].copy_from_slice(&len.to_le_bytes());
        let (id, flags) = if self.config.packed {
            // The wrap counter is 1 in the first round.
            let even = (self.offered / size).is_multiple_of(2);
            let sides = if even { 1 << 7 } else { 1 << 15 };
            (slot, flags & 7 | sides)
        } else {
            (flags & 7, (slot + 1) % size)
        };
        descriptor[12..14].copy_from_slice(&id.to_le_bytes());
        descriptor[14..].copy_from_slice(&flags.to_le_bytes());
        self.write(16 * u64::from(slot), &descriptor);
        self.offered = self.offered.wrapping_add(1);
        if !self.config.packed {
            self.write(DRIVER + 4 + 2 * u64::from(slot), &slot.to_le_bytes());
            self.write(DRIVER + 2, &self.offered.to_le_bytes());
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_from(at, bytes).expect("a ring");
    }

    fn receive(&mut self, budget: usize) {
        let mut out = PacketList::new();
        let before = self.drops.0;
        let result = self.queue.receive(
            self.memory,
            &self.buffers,
            Some(1),
            budget,
            &mut out,
            &mut self.drops,
        );
        assert!(self.error.is_none() || result == Err(self.error.expect("just seen")));
        assert!(out.len() as u64 + self.drops.0 - before <= budget as u64);
        for packet in &out {
            let bytes: usize = packet.segments().map(<[u8]>::len).sum();
            assert!(bytes == packet.len() && bytes >= 14);
        }
        if result == Ok(false) && !self.config.packed {
            assert!(!self.queue.peek());
        }
        self.error = result.err();
        // What came is what is sent.
        self.packets.append(&mut out);
    }

    fn transmit(&mut self, input: &mut Input<'_>) {
        for _ in 0..input.byte() % 4 {
            let Ok(mut packet) = self.buffers.small.alloc() else {
                break;
            };
            packet.append(&vec![7; 14 + usize::from(input.byte() % 200)]);
            self.packets.push_back(packet);
        }
        let given = self.packets.wire_packets();
        let mut sent = Sent::default();
        let result = self
            .queue
            .transmit(self.memory, &mut self.packets, &mut sent);
        assert!(self.error.is_none() || result == Err(self.error.expect("just seen")));
        let dropped = sent.dropped.map_or(0, |(_, packets)| packets);
        assert_eq!(given, sent.packets + dropped + self.packets.wire_packets());
        assert!(result != Ok(Xmit::Complete) || self.packets.is_empty());
        assert!(result != Ok(Xmit::Busy) || !self.packets.is_empty());
        self.error = result.err();
        if self.packets.len() > 20 {
            self.packets = PacketList::new();
        }
    }
}
