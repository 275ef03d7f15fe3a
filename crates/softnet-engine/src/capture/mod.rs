//! Captures: copies of what a port receives, sends and drops, with what happened to it.
//!
//! A [`Capture`] is a [`Tap`] of a device. Whoever calls it copies what its [`Filter`] wants into a
//! buffer of a pool that is the capture's own, and pushes that on a list, without waiting. One
//! thread [takes](Capture::take) the copies. What it does not take in time is not captured, and
//! counted: a capture has a bounded number of copies, and takes nothing from the packets' pool.

mod filter;
mod record;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use softnet::mem::{Packet, PacketAdoption, PacketList, Pool, PoolConfig, PoolError};
use softnet::stats::{ClassPath, DropReason, Place, Tap};
use softnet::time::{Clock, Time};
use softnet_tc::Handle;

pub use filter::{Filter, FilterError};
pub use record::{Direction, RECORD_LEN, Record};

/// Copies that wait to be taken.
const WAITING: usize = 4096;
/// Buffers: those that wait, as many that were taken, and what threads keep for themselves.
const BUFFERS: usize = 3 * WAITING;
/// Bytes of each: a record and a frame of an MTU of 1500.
const BUFFER_SIZE: usize = 2048;
/// Captures of an engine at a time.
pub(crate) const MOST: usize = 4;

/// Packets that a capture is of.
#[derive(Debug, Default)]
pub struct CaptureSpec {
    /// Only packets of this class, or of all classes of this qdisc.
    pub class: Option<Handle>,
    /// True: packets that are dropped. False: packets that are received and sent.
    pub dropped: bool,
    /// Only packets that this matches.
    pub filter: Filter,
}

/// A capture that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Each has a number of buffers.
    #[error("there are {MOST} captures already; end one of them first")]
    TooMany,
    /// No memory for the copies.
    #[error("there is no memory for the capture")]
    Memory(#[from] PoolError),
}

/// Packets that a capture has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureStats {
    /// All that it is of.
    pub matched: u64,
    /// The part of them that was not copied: nobody took the copies in time.
    pub missed: u64,
    /// Wire packets dropped of which nothing was left to look at, whether it is of them or not.
    pub unseen: u64,
}

/// Copies of packets of a port, for one thread to take.
#[derive(Debug)]
pub struct Capture {
    spec: CaptureSpec,
    /// Number of the port.
    port: u16,
    pool: Pool,
    clock: Clock,
    copies: PacketAdoption,
    matched: AtomicU64,
    missed: AtomicU64,
    unseen: AtomicU64,
    /// The port is gone, or the capture was ended.
    ended: AtomicBool,
}

impl Capture {
    pub(crate) fn new(spec: CaptureSpec, port: u16, clock: Clock) -> Result<Capture, PoolError> {
        Ok(Capture {
            spec,
            port,
            pool: Pool::new(PoolConfig {
                buffers: BUFFERS,
                buffer_size: BUFFER_SIZE,
            })?,
            clock,
            copies: PacketAdoption::expecting(WAITING),
            matched: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    /// Takes the copies, each a [`Record`]. One thread does this, and takes what it has again only
    /// when it has dropped that.
    pub fn take(&self) -> PacketList {
        let copies = self.copies.take();
        self.copies.end_batch();
        copies
    }

    /// Packets so far.
    pub fn stats(&self) -> CaptureStats {
        let [matched, missed, unseen] =
            [&self.matched, &self.missed, &self.unseen].map(|n| n.load(Ordering::Relaxed));
        CaptureStats {
            matched,
            missed,
            unseen,
        }
    }

    /// Bytes of a frame that are copied at most.
    pub fn snap(&self) -> usize {
        BUFFER_SIZE - softnet::mem::SHARED_INFO - softnet::mem::HEADROOM - RECORD_LEN
    }

    /// True if nothing is captured any more.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn wants_class(&self, place: Option<Place>) -> bool {
        let Some(wanted) = self.spec.class else {
            return true;
        };
        let classes = place.map_or_else(ClassPath::default, |place| place.classes);
        classes
            .iter()
            .map(Handle::from_raw)
            .any(|class| class == wanted || wanted.is_qdisc() && class.qdisc() == wanted)
    }

    /// A copy of a packet that the capture is of, behind its record.
    fn copy(&self, packet: &Packet, record: &Record) -> Option<Packet> {
        if !self.spec.filter.matches(packet) {
            return None;
        }
        self.matched.fetch_add(1, Ordering::Relaxed);
        // A pool that is empty searches all threads' caches, which would delay the caller.
        let copied = match self.copies.len() < WAITING {
            true => self.pool.alloc().ok(),
            false => None,
        };
        let Some(mut copy) = copied else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        // It fits: the buffer is fresh.
        let _ = copy.append(&record.to_bytes());
        for segment in packet.segments() {
            let room = self.snap() + RECORD_LEN - copy.len();
            let _ = copy.append(segment.get(..room).unwrap_or(segment));
        }
        Some(copy)
    }

    fn push(&self, copies: PacketList) {
        let count = copies.len();
        if let Err(refused) = self.copies.push(copies, count, WAITING) {
            self.missed
                .fetch_add(refused.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Time since the packet reached what it leaves now, if that is known.
fn waited(packet: &Packet, now: Time) -> Option<u64> {
    match packet.timestamp() {
        Time::ZERO => None,
        _ if packet.departure_time().is_some() => None,
        since => Some(now.nanos().saturating_sub(since.nanos())),
    }
}

impl Tap for Capture {
    fn received(&self, packets: &mut dyn Iterator<Item = &Packet>, now: Time) {
        if self.spec.dropped || self.spec.class.is_some() {
            return;
        }
        let copy = |packet: &Packet| {
            let mut record = Record::of(packet, Direction::In, now);
            record.queue = packet.queue();
            self.copy(packet, &record)
        };
        self.push(packets.filter_map(copy).collect());
    }

    fn sent(&self, packets: &PacketList, place: Place, now: Time) {
        if self.spec.dropped || !self.wants_class(Some(place)) {
            return;
        }
        let copy = |packet: &Packet| {
            let mut record = Record::of(packet, Direction::Out, now);
            record.at(place);
            record.waited = waited(packet, now);
            self.copy(packet, &record)
        };
        self.push(packets.iter().filter_map(copy).collect());
    }

    fn dropped(&self, packet: &Packet, place: Option<Place>, reason: DropReason) {
        if !self.spec.dropped || !self.wants_class(place) {
            return;
        }
        let now = self.clock.now();
        // What arrived at this port was on its way in.
        let direction = match packet.port() == self.port && place.is_none() {
            true => Direction::In,
            false => Direction::Out,
        };
        let mut record = Record::of(packet, direction, now);
        if let Some(place) = place {
            record.at(place);
        }
        record.waited = waited(packet, now);
        record.reason = Some(reason);
        if let Some(copy) = self.copy(packet, &record) {
            self.push(copy.into());
        }
    }

    fn unseen(&self, packets: u64) {
        if self.spec.dropped {
            self.unseen.fetch_add(packets, Ordering::Relaxed);
        }
    }
}

/// The captures of a port, which end with it.
#[derive(Debug, Default)]
pub(crate) struct Captures(pub(crate) Vec<Arc<Capture>>);

impl Captures {
    /// Shows them what the device shows.
    pub(crate) fn tap(&self) -> Option<Arc<dyn Tap>> {
        match &*self.0 {
            [] => None,
            [only] => Some(only.clone()),
            all => Some(Arc::new(Several(all.into()))),
        }
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.0.iter().for_each(|capture| capture.end());
    }
}

/// Shows several captures what one is shown.
#[derive(Debug)]
struct Several(Box<[Arc<Capture>]>);

impl Tap for Several {
    fn received(&self, packets: &mut dyn Iterator<Item = &Packet>, now: Time) {
        let packets: Vec<&Packet> = packets.collect();
        for capture in &self.0 {
            capture.received(&mut packets.iter().copied(), now);
        }
    }

    fn sent(&self, packets: &PacketList, place: Place, now: Time) {
        self.0.iter().for_each(|c| c.sent(packets, place, now));
    }

    fn dropped(&self, packet: &Packet, place: Option<Place>, reason: DropReason) {
        self.0.iter().for_each(|c| c.dropped(packet, place, reason));
    }

    fn unseen(&self, packets: u64) {
        self.0.iter().for_each(|c| c.unseen(packets));
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
