//! For tests of this crate and of others (feature `testing`): rings that remember what they sent,
//! frames, patience.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::mem::{Packet, PacketList, Pool, PoolConfig};
use crate::stats::DropReason;
use crate::tx::{Sent, TxRing, Wake, Xmit};
use crate::wire::VnetHeader;

/// A pool of so many buffers of 2048 bytes.
pub fn pool(buffers: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size: 2048,
    })
    .unwrap()
}

/// A packet, as soon as there is one: with many threads on few CPUs, what the caches of threads that were preempted inside the pool hold can be had
/// by nobody else for a while.
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

/// Counts a thread as done, also if it panics: those that wait for it then end, and the test fails instead of standing still.
#[derive(Debug)]
pub struct Done<'a>(pub &'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// An Ethernet frame of `len` bytes between stations number `to` and `from` (0: broadcast), marked `mark`.
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

/// What a [`RecordingRing`] sent, and how much it still takes.
#[derive(Debug)]
pub struct Record {
    /// Marks and lengths.
    pub sent: Mutex<Vec<(u32, usize)>>,
    /// Packets it takes before it is full.
    pub room: AtomicUsize,
    /// Packets it will refuse for good.
    pub refuse: AtomicUsize,
    /// Calls of the driver.
    pub calls: AtomicU64,
}

impl Record {
    /// The marks of what was sent.
    pub fn marks(&self) -> Vec<u32> {
        self.sent.lock().unwrap().iter().map(|s| s.0).collect()
    }
}

/// A transmit ring that remembers marks and lengths.
#[derive(Debug)]
pub struct RecordingRing(pub Arc<Record>);

impl RecordingRing {
    /// A ring, and its record.
    pub fn new() -> (RecordingRing, Arc<Record>) {
        let record = Arc::new(Record {
            sent: Mutex::default(),
            room: AtomicUsize::new(usize::MAX),
            refuse: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
        });
        (RecordingRing(record.clone()), record)
    }
}

impl TxRing for RecordingRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let record = &self.0;
        record.calls.fetch_add(1, Ordering::Relaxed);
        while !packets.is_empty() {
            let take = |n: usize| n.checked_sub(1);
            if record
                .room
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_err()
            {
                return Xmit::Busy;
            }
            let packet = packets.pop_front().unwrap();
            if record
                .refuse
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
            {
                let before = sent.dropped.map_or(0, |d| d.1);
                sent.dropped = Some((DropReason::DriverRefused, before + packet.wire_packets()));
                continue;
            }
            sent.packets += packet.wire_packets();
            sent.bytes += packet.wire_len();
            record
                .sent
                .lock()
                .unwrap()
                .push((packet.mark(), packet.len()));
        }
        Xmit::Complete
    }
}

/// A pool of buffers for large frames.
pub fn large_pool(buffers: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size: 65_536,
    })
    .unwrap()
}

/// A large TCP frame with `payload` bytes, to be cut into segments of `size`, as a driver receives it.
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
