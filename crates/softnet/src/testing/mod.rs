//! For tests of this crate and of others (feature `testing`): drivers, devices, packets, patience.

mod bench;
#[cfg(not(loom))]
pub(crate) mod preempt;
mod ring;

pub use bench::{Bench, Work, config};
pub use ring::{Call, Script, ScriptedRing};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::mem::{Packet, Pool, PoolConfig};
use crate::tx::Wake;
use crate::wire::VnetHeader;

/// A pool of so many buffers of 2048 bytes.
pub fn pool(buffers: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size: 2048,
    })
    .unwrap()
}

/// A packet, as soon as there is one: what threads that were preempted inside the pool have cached
/// is not to be had for a while.
pub fn packet(pool: &Pool) -> Packet {
    patiently(pool, || pool.alloc().ok())
}

/// Waits until about `n` buffers are free: back-pressure from what is queued.
pub fn wait_for_buffers(pool: &Pool, n: usize) {
    patiently(pool, || (pool.stats().free >= n).then_some(()));
}

/// Tries until there is a result, or it is clear that there will be none.
fn patiently<T>(pool: &Pool, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        let stuck = start.elapsed() > Duration::from_secs(30);
        assert!(!stuck, "no buffers: {:?}", pool.stats());
        std::thread::yield_now();
    }
}

/// A worker that needs no waking: it is the test.
#[derive(Debug)]
pub struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// Marsaglia's xorshift; the seed is not zero.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u32);

impl Random {
    /// A number below `limit`.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % limit
    }
}

/// Counts a thread as done, also if it panics: those that wait for it then end, and the test
/// fails.
#[derive(Debug)]
pub struct Done<'a>(pub &'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// An Ethernet frame of `len` bytes between stations number `to` (0: broadcast) and `from`.
pub fn frame(pool: &Pool, to: u8, from: u8, len: usize, mark: u32) -> Packet {
    let mut p = packet(pool);
    let mut bytes = vec![0; len];
    bytes[..6].copy_from_slice(&if to == 0 {
        [0xFF; 6]
    } else {
        [2, 0, 0, 0, 0, to]
    });
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    bytes[12..14].copy_from_slice(&[0x88, 0xB5]);
    assert!(p.append(&bytes));
    p.set_mark(mark);
    p
}

/// A pool of buffers for large frames.
pub fn large_pool(buffers: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size: 65_536,
    })
    .unwrap()
}

/// A large TCP frame with `payload` bytes, in segments of `size`, as a driver receives it.
pub fn large_tcp(pool: &Pool, payload: u16, size: u16, mark: u32) -> Packet {
    let mut bytes = vec![0; 54 + usize::from(payload)];
    bytes[5] = 2;
    bytes[11] = 1;
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&(40 + payload).to_be_bytes());
    bytes[22..24].copy_from_slice(&[64, 6]);
    bytes[46..48].copy_from_slice(&[0x50, 0x10]);
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(&bytes));
    let header = VnetHeader {
        flags: 1,
        gso_type: 1,
        hdr_len: 54.into(),
        gso_size: size.into(),
        csum_start: 34.into(),
        csum_offset: 16.into(),
        ..VnetHeader::default()
    };
    packet.apply(&header).unwrap();
    packet.set_mark(mark);
    packet
}
