//! Frames from one virtqueue to another, both sides in one thread: what the rings and the copies
//! cost, for counting instructions.
//!
//! `valgrind --tool=callgrind target/release/ring_loop ROUNDS split|packed BYTES`: the difference
//! between two counts, divided by that of their rounds and by 64, is the cost of a frame: the
//! driver's part (a descriptor of a packed ring, the index of a split one), reception and
//! transmission.
//!
//! A binary and no example, as `transmit_loop` in `softnet-instructions`.

use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet::tx::{Sent, Xmit};
use softnet::wire::VNET_HDR_LEN;
use softnet_engine::rx::Receive;
use softnet_io::Buffers;
use softnet_io::vhost_user::memory::{GuestArea, GuestMemory, Region, RegionSpec};
use softnet_io::vhost_user::ring::{RingConfig, Virtqueue, WORK};

type Failed = Box<dyn std::error::Error>;

/// Distance of the front end's addresses from those of the guest.
const USER: u64 = 1 << 40;
const SIZE: u16 = 256;
/// Frames of a round.
const ROUND: u16 = 64;
/// Bytes of a buffer.
const BUFFER: u64 = 2048;
/// Bytes of a ring and its buffers.
const QUEUE: u64 = 1 << 20;
/// Where the parts are, from the ring on.
const DRIVER: u64 = 0x2000;
const DEVICE: u64 = 0x3000;
const BUFFERS: u64 = 0x8_0000;
/// `VIRTQ_DESC_F_WRITE`.
const WRITE: u16 = 2;

/// A queue and its driver, which offers the same buffers again and again.
struct Queue {
    queue: Virtqueue,
    packed: bool,
    descriptors: GuestArea,
    driver: GuestArea,
    start: u64,
    len: u32,
    flags: u16,
    offered: u16,
    wrap: bool,
}

impl Queue {
    fn new(
        memory: &GuestMemory,
        start: u64,
        packed: bool,
        len: u32,
        flags: u16,
    ) -> Result<Queue, Failed> {
        let user = USER + start;
        let config = RingConfig {
            size: SIZE,
            descriptors: user,
            driver: user + DRIVER,
            device: user + DEVICE,
            packed,
            event_index: true,
            in_order: true,
            mergeable: true,
            ..RingConfig::default()
        };
        let queue = Queue {
            queue: Virtqueue::new(config, memory)?,
            packed,
            descriptors: memory.area(user, 16 * usize::from(SIZE), 16)?,
            driver: memory.area(user + DRIVER, 6 + 2 * usize::from(SIZE), 2)?,
            start,
            len,
            flags,
            offered: 0,
            wrap: true,
        };
        for slot in 0..SIZE {
            if !packed {
                queue.describe(slot, u64::from(flags));
                queue.driver.write(4 + 2 * usize::from(slot), slot);
            }
        }
        Ok(queue)
    }

    /// The guest's address of a buffer.
    fn buffer(&self, slot: u16) -> u64 {
        self.start + BUFFERS + u64::from(slot) * BUFFER
    }

    /// Writes a descriptor; `rest` is behind its length.
    fn describe(&self, slot: u16, rest: u64) {
        let words = [self.buffer(slot), u64::from(self.len) | rest << 32];
        self.descriptors.write(16 * usize::from(slot), words);
    }

    /// Offers the next buffers.
    fn offer(&mut self) {
        if !self.packed {
            self.offered = self.offered.wrapping_add(ROUND);
            self.driver.store_u16(2, self.offered);
            return;
        }
        for _ in 0..ROUND {
            let side = if self.wrap { 1 << 7 } else { 1 << 15 };
            let flags = u64::from(self.flags | side);
            self.describe(self.offered, u64::from(self.offered) | flags << 16);
            self.offered += 1;
            if self.offered == SIZE {
                (self.offered, self.wrap) = (0, !self.wrap);
            }
        }
    }
}

fn memory() -> Result<GuestMemory, Failed> {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, 2 * QUEUE)?;
    let spec = RegionSpec {
        guest: 0,
        len: 2 * QUEUE,
        user: USER,
        offset: 0,
    };
    let region = Arc::new(Region::map(spec, &file, false)?);
    Ok(GuestMemory::new(vec![region], 2 * QUEUE)?)
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, ring, bytes] = &arguments[..] else {
        return Err("usage: ring_loop ROUNDS split|packed BYTES".into());
    };
    let (rounds, bytes): (u64, u32) = (rounds.parse()?, bytes.parse()?);
    let packed = ring == "packed";
    let memory = memory()?;
    let small = Pool::new(PoolConfig {
        buffers: 1024,
        buffer_size: 2048,
    })?;
    let (buffers, drops) = (Buffers { small, large: None }, DropCounters::new());
    let mut from = Queue::new(&memory, 0, packed, VNET_HDR_LEN as u32 + bytes, 0)?;
    let mut to = Queue::new(&memory, QUEUE, packed, BUFFER as u32, WRITE)?;
    for slot in 0..SIZE {
        let frame = vec![slot as u8; bytes as usize];
        memory.write_from(from.buffer(slot) + VNET_HDR_LEN as u64, &frame)?;
    }
    let mut sent = Sent::default();
    for _ in 0..rounds {
        from.offer();
        to.offer();
        let mut packets = PacketList::new();
        let mut rx = Receive::new(ROUND.into(), Time::ZERO, &mut packets, &drops);
        from.queue.receive(&memory, &buffers, None, &mut rx)?;
        let xmit = to
            .queue
            .transmit(&memory, &mut packets, &mut sent, &mut { WORK })?;
        assert_eq!(xmit, Xmit::Complete);
    }
    assert_eq!(sent.packets, rounds * u64::from(ROUND));
    Ok(())
}
