//! A virtual machine without a machine: memory with rings in it, their driver, and the front end
//! that shares them with a vhost-user port.
//!
//! The driver is an honest one that checks the device: chains come back once and in order. What
//! else a test does to the memory, the messages and the rings is the test's business.

mod front_end;
mod ring;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use softnet::mem::{Pool, PoolConfig};
use softnet_io::Buffers;
use softnet_io::vhost_user::memory::{GuestMemory, Region, RegionSpec};
use softnet_io::vhost_user::{SocketSpec, VhostUser};

pub use front_end::{FrontEnd, message, of_ring, request};
pub use ring::{INDIRECT, NEXT, Part, Ring, TABLE, WRITE};

/// Virtio features, by the number of their bits.
pub mod feature {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const MRG_RXBUF: u64 = 1 << 15;
    pub const MQ: u64 = 1 << 22;
    pub const INDIRECT_DESC: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    pub const RING_PACKED: u64 = 1 << 34;
}

/// Bytes of a buffer.
pub const BUFFER: usize = 2048;
/// Bytes of the virtio-net header.
pub const HEADER: usize = 12;
/// The most descriptors of a ring.
pub const MAX_SIZE: u16 = 256;

/// Where the guest's memory starts: in the guest and, in two regions, in the front end.
const GUEST: u64 = 0x10_0000;
const USER: [u64; 2] = [0x7f00_0000_0000, 0x7e00_0000_0000];
/// Bytes of the parts of a ring, and where they start.
const RING: u64 = 0x10_0000;
const TABLES: u64 = 0x1_0000;
/// Not a multiple of the length of a buffer: one is in two regions.
const BUFFERS: u64 = 0x6_0400;

/// The settings of a guest.
#[derive(Clone, Copy, Debug)]
pub struct GuestConfig {
    /// Queue pairs.
    pub pairs: usize,
    /// Descriptors of a ring, at most [`MAX_SIZE`]; a power of two if it is split.
    pub size: u16,
    /// Packed rings.
    pub packed: bool,
    /// Notifications by event index.
    pub event_index: bool,
    /// Other [features](feature) that its driver takes.
    pub features: u64,
}

impl GuestConfig {
    /// All features that it acknowledges.
    pub fn features(&self) -> u64 {
        use feature::*;
        let mut bits = self.features | VERSION_1 | PROTOCOL_FEATURES | MQ | INDIRECT_DESC;
        if self.packed {
            bits |= RING_PACKED;
        }
        if self.event_index {
            bits |= EVENT_IDX;
        }
        bits
    }
}

/// Where the parts of a ring are, from the start of the memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    descriptors: u64,
    driver: u64,
    device: u64,
    /// Indirect tables, one for each descriptor.
    tables: u64,
    buffers: u64,
    /// Where the second region starts.
    cut: u64,
}

impl Layout {
    fn new(ring: usize, cut: u64) -> Layout {
        let start = ring as u64 * RING;
        Layout {
            descriptors: start,
            driver: start + 0x1000,
            device: start + 0x2000,
            tables: start + TABLES,
            buffers: start + BUFFERS,
            cut,
        }
    }

    fn guest(&self, at: u64) -> u64 {
        GUEST + at
    }

    fn user(&self, at: u64) -> u64 {
        match at.checked_sub(self.cut) {
            None => USER[0] + at,
            Some(at) => USER[1] + at,
        }
    }
}

/// A port that no engine has yet: one queue pair, 64 buffers of 2 KiB. Its socket, which has a name
/// of this process, goes with its queues.
pub fn open_port(name: &str) -> (PathBuf, VhostUser, Pool) {
    let name = format!("softnet-{name}-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let socket = SocketSpec {
        path: path.clone(),
        server: true,
        mode: 0o600,
        group: None,
    };
    let pool = PoolConfig {
        buffers: 64,
        buffer_size: 2048,
    };
    let small = Pool::new(pool).expect("a pool");
    let buffers = Buffers {
        small: small.clone(),
        large: None,
    };
    let port = VhostUser::open(&socket.into(), 1, 1500, &buffers).expect("a port");
    (path, port, small)
}

/// A guest's memory and its rings. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct Guest {
    config: GuestConfig,
    file: OwnedFd,
    regions: [RegionSpec; 2],
    /// Even: received from; odd: sent on.
    rings: Vec<Ring>,
    layouts: Vec<Layout>,
    kicks: Vec<OwnedFd>,
    calls: Vec<OwnedFd>,
}

impl Guest {
    /// Memory with unused rings.
    pub fn new(config: GuestConfig) -> Guest {
        assert!(config.size <= MAX_SIZE);
        let rings = 2 * config.pairs;
        let len = rings as u64 * RING;
        // In the buffers of a ring in the middle, in a buffer.
        let cut = config.pairs as u64 * RING + BUFFERS + 0xc00;
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memory file");
        ftruncate(&file, len).expect("it can be as long");
        let region = |place: usize, offset: u64, len: u64| RegionSpec {
            guest: GUEST + offset,
            len,
            user: USER[place],
            offset,
        };
        let regions = [region(0, 0, cut), region(1, cut, len - cut)];
        let map = |spec| Arc::new(Region::map(spec, &file, false).expect("a region"));
        let memory = GuestMemory::new(regions.map(map).into(), u64::MAX).expect("two regions");
        let memory = Arc::new(memory);
        let layouts: Vec<_> = (0..rings).map(|ring| Layout::new(ring, cut)).collect();
        let ring = |layout: &Layout| Ring::new(config, *layout, memory.clone());
        let events = || {
            let event = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let events = (0..rings).map(event).collect::<Result<_, _>>();
            events.expect("events")
        };
        Guest {
            config,
            rings: layouts.iter().map(ring).collect(),
            layouts,
            file,
            regions,
            kicks: events(),
            calls: events(),
        }
    }

    /// The settings of the guest.
    pub fn config(&self) -> GuestConfig {
        self.config
    }

    /// The file of its memory.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where its memory is.
    pub fn regions(&self) -> [RegionSpec; 2] {
        self.regions
    }

    /// Where a ring is for the front end: descriptors, and the driver's and the device's area.
    pub fn addresses(&self, ring: usize) -> [u64; 3] {
        let layout = &self.layouts[ring];
        [layout.descriptors, layout.driver, layout.device].map(|at| layout.user(at))
    }

    /// By which it notifies the device of a ring.
    pub fn kick_file(&self, ring: usize) -> BorrowedFd<'_> {
        self.kicks[ring].as_fd()
    }

    /// By which the device notifies it of a ring.
    pub fn call_file(&self, ring: usize) -> BorrowedFd<'_> {
        self.calls[ring].as_fd()
    }

    /// Makes the next notification by the device wait.
    pub fn block_call(&self, ring: usize) {
        let call = &self.calls[ring];
        let _ = rustix::io::read(call, &mut [0; 8]);
        let full = u64::MAX - 1;
        rustix::io::write(call, &full.to_ne_bytes()).expect("it was empty");
        let flags = rustix::fs::fcntl_getfl(call).expect("flags");
        let block = flags - rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(call, block).expect("flags");
    }

    /// Undoes [`block_call`](Guest::block_call).
    pub fn unblock_call(&self, ring: usize) {
        rustix::io::read(&self.calls[ring], &mut [0; 8]).expect("it was full");
    }

    /// A ring: even, to receive from; odd, to send on.
    pub fn ring(&mut self, number: usize) -> &mut Ring {
        &mut self.rings[number]
    }

    /// As if it was never used, for another connection.
    pub fn clear(&mut self) {
        self.rings.iter_mut().for_each(Ring::clear);
    }

    /// Notifies the device.
    pub fn kick(&self, ring: usize) {
        rustix::io::write(&self.kicks[ring], &1_u64.to_ne_bytes()).expect("it is not full");
    }

    /// Does something with a ring, and notifies the device if it wants to be.
    pub fn with<T>(&mut self, ring: usize, f: impl FnOnce(&mut Ring) -> T) -> T {
        let before = self.rings[ring].place();
        let result = f(&mut self.rings[ring]);
        let after = self.rings[ring].place();
        if before != after && self.rings[ring].must_kick(before) {
            self.kick(ring);
        }
        result
    }

    /// Takes back what was sent, and sends a frame behind an empty header. False: the ring has no
    /// place for it now.
    pub fn send(&mut self, ring: usize, frame: &[u8]) -> bool {
        self.ring(ring).complete();
        self.with(ring, |ring| ring.send([0; HEADER], frame, false))
    }

    /// Offers buffers to receive into, as many as are free at most.
    pub fn offer(&mut self, ring: usize, n: u16) {
        self.with(ring, |ring| ring.fill(n, BUFFER));
    }

    /// Frames that were sent and not given back.
    pub fn in_flight(&mut self, ring: usize) -> usize {
        self.ring(ring).complete();
        self.ring(ring).in_flight()
    }

    /// Takes memory away from under the device.
    pub fn truncate(&self, len: u64) {
        ftruncate(&self.file, len).expect("it gets shorter");
    }

    /// Says the features and the memory, and starts all rings.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn start(&mut self, front_end: &mut FrontEnd) -> io::Result<()> {
        let features = self.config.features().to_ne_bytes();
        front_end.request(request::SET_FEATURES, &features, &[])?;
        self.set_memory(front_end)?;
        for ring in 0..self.rings.len() {
            let base = if self.config.packed { 0x8000_8000 } else { 0 };
            self.start_ring(front_end, ring, base)?;
            front_end.request(request::SET_VRING_ENABLE, &of_ring(ring, 1), &[])?;
        }
        Ok(())
    }

    /// Gives the table of all regions.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn set_memory(&self, front_end: &mut FrontEnd) -> io::Result<()> {
        let files = self.regions.map(|_| self.file());
        front_end.request(request::SET_MEM_TABLE, &self.table(), &files)
    }

    /// The table of all regions, which has a file for each.
    pub fn table(&self) -> Vec<u8> {
        let mut table = self.regions.len().to_ne_bytes().to_vec();
        self.regions
            .iter()
            .for_each(|spec| table.extend(words(spec)));
        table
    }

    /// The bytes of a buffer from here on are in two regions.
    pub fn crossing(&self) -> u64 {
        self.regions[1].guest - 100
    }

    /// A table whose regions overlap.
    pub fn overlapping(&self) -> Vec<u8> {
        let mut table = 2_usize.to_ne_bytes().to_vec();
        table.extend(words(&self.regions[0]));
        table.extend(words(&RegionSpec {
            user: USER[1],
            guest: self.regions[0].guest + 0x1000,
            ..self.regions[0]
        }));
        table
    }

    /// Adds the region again, elsewhere: memory that nothing uses.
    ///
    /// # Errors
    /// If the port is gone, or the region is there.
    pub fn add_region(&self, front_end: &mut FrontEnd) -> io::Result<()> {
        let payload = [&[0; 8][..], &words(&self.more())].concat();
        front_end.request(request::ADD_MEM_REG, &payload, &[self.file()])
    }

    /// Removes it.
    ///
    /// # Errors
    /// If the port is gone, or the region is not there.
    pub fn remove_region(&self, front_end: &mut FrontEnd) -> io::Result<()> {
        let payload = [&[0; 8][..], &words(&self.more())].concat();
        front_end.request(request::REM_MEM_REG, &payload, &[])
    }

    fn more(&self) -> RegionSpec {
        RegionSpec {
            guest: self.regions[0].guest + (1 << 40),
            user: 0x7d00_0000_0000,
            ..self.regions[0]
        }
    }

    /// Starts a ring at this position, disabled if it was never enabled.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn start_ring(
        &mut self,
        front_end: &mut FrontEnd,
        ring: usize,
        base: u32,
    ) -> io::Result<()> {
        let number = of_ring(ring, self.config.size.into());
        front_end.request(request::SET_VRING_NUM, &number, &[])?;
        front_end.request(request::SET_VRING_BASE, &of_ring(ring, base), &[])?;
        front_end.request(request::SET_VRING_ADDR, &self.ring_addresses(ring), &[])?;
        let number = (ring as u64).to_ne_bytes();
        front_end.request(request::SET_VRING_CALL, &number, &[self.call_file(ring)])?;
        front_end.request(request::SET_VRING_KICK, &number, &[self.kick_file(ring)])
    }

    /// The payload that says where a ring is.
    pub fn ring_addresses(&self, ring: usize) -> Vec<u8> {
        let [descriptors, driver, device] = self.addresses(ring);
        let words = [ring as u64, descriptors, device, driver, 0];
        words.map(u64::to_ne_bytes).concat()
    }

    /// Stops a ring. Returns where it was.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn stop_ring(&mut self, front_end: &mut FrontEnd, ring: usize) -> io::Result<u32> {
        let answer = front_end.ask(request::GET_VRING_BASE, &of_ring(ring, 0))?;
        let base = answer[4..].try_into().expect("eight bytes");
        Ok(u32::from_ne_bytes(base))
    }

    /// Resets the device and the rings, and starts all again.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn reset(&mut self, front_end: &mut FrontEnd) -> io::Result<()> {
        front_end.request(request::RESET_DEVICE, &[], &[])?;
        self.clear();
        self.start(front_end)
    }
}

/// A region in a payload.
fn words(spec: &RegionSpec) -> Vec<u8> {
    let words = [spec.guest, spec.len, spec.user, spec.offset];
    words.map(u64::to_ne_bytes).concat()
}
