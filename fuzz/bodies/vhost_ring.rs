//! A hostile driver on a ring: whatever it writes, the device's side neither panics nor loses a
//! packet, and a ring that it broke stays broken.
//!
//! Input: features (1 byte), size (1), any byte, then steps. A step is a byte: what to do, and what
//! that takes (see [`Guest::step`]).

use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet::tx::{Features, Sent, Xmit};
use softnet_engine::rx::Receive;
use softnet_io::Buffers;
use softnet_io::vhost_user::memory::{GuestMemory, Region, RegionSpec};
use softnet_io::vhost_user::ring::{RingConfig, RingError, Virtqueue};

/// Two regions that follow each other in the guest, the rings in the first, and one apart.
const REGIONS: [(u64, u64); 3] = [(0, 0x2000), (0x2000, 0x2000), (0x8000, 0x1000)];
const DRIVER: u64 = 0x800;
const DEVICE: u64 = 0x1000;
/// Distance of the front end's addresses from those of the guest.
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
        Arc::new(Region::map(spec, &file, false).expect("it is in the file"))
    });
    GuestMemory::new(regions.into(), 1 << 40).expect("they are apart")
}

/// `VIRTQ_DESC_F_*`.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Where indirect tables are.
const TABLES: u64 = 0x3e00;

/// A frame behind its header: TCP over IPv4 or UDP over IPv6, to be cut, ARP, or something.
fn frame(kind: u8, payload: usize) -> Vec<u8> {
    let be = |number: usize| (number as u16).to_be_bytes();
    let le = |number: usize| (number as u16).to_le_bytes();
    let header = |gso: u8, len: usize, start: usize, offset: usize| {
        let numbers = [le(len), le(100), le(start), le(offset), le(0)];
        [&[1, gso][..], numbers.as_flattened()].concat()
    };
    let link =
        |ethertype: usize| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &be(ethertype)].concat();
    let payload = vec![7; payload];
    match kind {
        0 => {
            let ip = [
                &[0x45, 0][..],
                &be(40 + payload.len()),
                &[0, 1, 0, 0, 64, 6, 0, 0],
            ]
            .concat();
            let tcp = [
                0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
            ];
            [
                header(1, 54, 34, 16),
                link(0x800),
                ip,
                vec![10; 8],
                tcp.into(),
                payload,
            ]
            .concat()
        }
        1 => {
            let len = be(8 + payload.len());
            let ip = [&[0x60, 0, 0, 0][..], &len, &[17, 64]].concat();
            let udp = [&[0, 1, 0, 2][..], &len, &[0, 0]].concat();
            [
                header(5, 62, 54, 6),
                link(0x86dd),
                ip,
                vec![0xfd; 32],
                udp,
                payload,
            ]
            .concat()
        }
        2 => {
            let arp = [0, 1, 8, 0, 6, 4, 0, 1];
            [vec![0; 12], link(0x806), arp.into(), vec![10; 20]].concat()
        }
        _ => [vec![0; 12], link(0x88b5), payload].concat(),
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
    drops: DropCounters,
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
    let (features, size, _) = (input.byte(), input.byte(), input.byte());
    let has = |bit: u32| features >> bit & 1 != 0;
    let packed = has(0);
    let config = RingConfig {
        size: if packed {
            u16::from(size % 16)
        } else {
            1 << (size % 6)
        },
        descriptors: USER,
        driver: USER + DRIVER,
        device: USER + DEVICE,
        packed,
        indirect: has(1),
        event_index: has(2),
        in_order: has(6),
        mergeable: has(3),
        takes: Features {
            checksum: has(4),
            tso4: has(4),
            tso6: has(4),
            ecn: has(5),
            uso: has(4),
            scatter_gather: true,
            mtu: 0,
        },
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
        drops: DropCounters::new(),
        offered: 0,
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
        match input.byte() % 12 {
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
            10 => self.chain(input),
            11 => (0..8).for_each(|_| self.buffers_to_write()),
            _ => {
                // In other memory; or after a crash, in whatever the driver has made of the ring.
                let made = if self.offered.is_multiple_of(2) {
                    Virtqueue::new(self.config, self.memory)
                } else {
                    self.queue.renew(self.config, self.memory)
                };
                if let Ok(queue) = made {
                    self.queue = queue;
                    self.error = None;
                }
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
            (slot, flags & 7 | self.sides(self.offered))
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

    /// A chain of an ordinary driver, with a frame that may be large, behind a header that is right
    /// but for what the input changes.
    fn chain(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let payload = usize::from(input.byte()) * 8;
        let changes = if kind & 0x80 != 0 {
            input.take(12)
        } else {
            &[]
        };
        let mut bytes = frame(kind >> 3 & 3, payload);
        bytes
            .iter_mut()
            .zip(changes)
            .for_each(|(byte, change)| *byte ^= change);
        let at = self.place();
        self.write(at, &bytes);
        let third = bytes.len() as u64 / 3;
        let rest = bytes.len() as u64 - 2 * third;
        let parts = [(at, third), (at + third, third), (at + 2 * third, rest)];
        self.offer_chain(&parts, 0, kind & 4 != 0);
    }

    /// A chain of two empty buffers.
    fn buffers_to_write(&mut self) {
        let at = self.place();
        self.offer_chain(&[(at, 100), (at + 200, 1400)], WRITE, self.offered & 4 != 0);
    }

    /// Behind the rings, and over the border of two regions.
    fn place(&self) -> u64 {
        0x1800 + u64::from(self.offered) * 0x123 % 0x1c00
    }

    fn offer_chain(&mut self, parts: &[(u64, u64)], flags: u16, indirect: bool) {
        let size = self.config.size;
        let descriptor = |part: &(u64, u64), next: u16, flags: u16| {
            let last = if self.config.packed {
                [next, flags]
            } else {
                [flags, next]
            };
            let mut bytes = part.0.to_le_bytes().to_vec();
            bytes.extend((part.1 as u32).to_le_bytes());
            bytes.extend(last.map(u16::to_le_bytes).concat());
            bytes
        };
        let next = |i: usize| if i + 1 < parts.len() { NEXT } else { 0 };
        let table = |(i, part)| descriptor(part, i as u16 + 1, flags | next(i));
        let first = self.offered % size;
        if indirect || parts.len() > size.into() {
            let table: Vec<u8> = parts.iter().enumerate().flat_map(table).collect();
            let at = TABLES + 48 * u64::from(self.offered % 8);
            self.write(at, &table);
            let flags = INDIRECT | self.sides(self.offered);
            let head = descriptor(&(at, table.len() as u64), first, flags);
            self.write(16 * u64::from(first), &head);
            self.offered = self.offered.wrapping_add(1);
        } else {
            for (i, part) in parts.iter().enumerate() {
                let place = self.offered.wrapping_add(i as u16);
                let other = if self.config.packed {
                    first
                } else {
                    (place + 1) % size
                };
                let flags = flags | next(i) | self.sides(place);
                let bytes = descriptor(part, other, flags);
                self.write(16 * u64::from(place % size), &bytes);
            }
            let places = if self.config.packed {
                parts.len() as u16
            } else {
                1
            };
            self.offered = self.offered.wrapping_add(places);
        }
        if !self.config.packed {
            let head = DRIVER + 4 + 2 * u64::from(first);
            self.write(head, &first.to_le_bytes());
            self.write(DRIVER + 2, &self.offered.to_le_bytes());
        }
    }

    /// The bits of a packed ring's descriptor that say in which round it is available.
    fn sides(&self, place: u16) -> u16 {
        match self.config.packed {
            false => 0,
            // The wrap counter is 1 in the first round.
            true if (place / self.config.size).is_multiple_of(2) => 1 << 7,
            true => 1 << 15,
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_from(at, bytes).expect("a ring");
    }

    fn receive(&mut self, budget: usize) {
        let mut out = PacketList::new();
        let before = self.drops.total();
        let result = self.queue.receive(
            self.memory,
            &self.buffers,
            Some(1),
            &mut Receive::new(budget, Time::ZERO, &mut out, &self.drops),
        );
        assert!(self.error.is_none() || result == Err(self.error.expect("just seen")));
        assert!(out.len() as u64 + self.drops.total() - before <= budget as u64);
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
            assert!(packet.append(&vec![7; 14 + usize::from(input.byte() % 200)]));
            self.packets.push_back(packet);
        }
        let given = self.packets.wire_packets();
        let mut sent = Sent::default();
        let mut work = usize::from(input.byte());
        let result = self
            .queue
            .transmit(self.memory, &mut self.packets, &mut sent, &mut work);
        assert!(self.error.is_none() || result == Err(self.error.expect("just seen")));
        let dropped: u64 = sent.dropped.iter().map(|(_, packets)| packets).sum();
        assert_eq!(given, sent.packets + dropped + self.packets.wire_packets());
        assert!(result != Ok(Xmit::Complete) || self.packets.is_empty());
        assert!(result != Ok(Xmit::Busy) || !self.packets.is_empty());
        self.error = result.err();
        if self.packets.len() > 20 {
            self.packets = PacketList::new();
        }
    }
}
