//! The record in front of a captured frame: what is known of it beside its bytes.

use softnet::mem::Packet;
use softnet::stats::{DropReason, Place};
use softnet::time::Time;

/// Way of a packet at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received from the port's device.
    In,
    /// For the port's device.
    Out,
}

/// Facts about a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was received, left its queue, or was dropped.
    pub time: Time,
    /// Nanoseconds in its queue, or since it was received, if known.
    pub waited: Option<u64>,
    /// Bytes of the frame.
    pub len: u32,
    /// The leaf class (`major:minor`), 0 for none.
    pub class: u32,
    /// Receive queue or transmit queue, if known.
    pub queue: Option<u16>,
    /// Way at the port.
    pub direction: Direction,
    /// Reason of its drop, if it was.
    pub reason: Option<DropReason>,
}

/// Bytes of a record.
pub const RECORD_LEN: usize = 28;
/// Numbers that stand for nothing.
const NO_QUEUE: u16 = u16::MAX;
const NO_REASON: u8 = u8::MAX;

impl Record {
    pub(super) fn of(packet: &Packet, direction: Direction, time: Time) -> Record {
        Record {
            time,
            waited: None,
            len: u32::try_from(packet.len()).unwrap_or(u32::MAX),
            class: 0,
            queue: None,
            direction,
            reason: None,
        }
    }

    pub(super) fn at(&mut self, place: Place) {
        (self.queue, self.class) = (Some(place.queue), place.classes.leaf());
    }

    /// As bytes, little-endian.
    pub(super) fn to_bytes(self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..8].copy_from_slice(&self.time.nanos().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.waited.unwrap_or(u64::MAX).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.class.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.queue.unwrap_or(NO_QUEUE).to_le_bytes());
        bytes[26] = u8::from(self.direction == Direction::Out);
        bytes[27] = self.reason.map_or(NO_REASON, |reason| reason as u8);
        bytes
    }

    /// A record and what follows it, from bytes that start with one.
    pub fn read(bytes: &[u8]) -> Option<(Record, &[u8])> {
        let (record, frame) = bytes.split_first_chunk::<RECORD_LEN>()?;
        let long = |at: usize| Some(u64::from_le_bytes(*record.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_le_bytes(*record.get(at..)?.first_chunk()?));
        let queue = u16::from_le_bytes([record[24], record[25]]);
        let record = Record {
            time: Time(long(0)?),
            waited: long(8).filter(|&nanos| nanos != u64::MAX),
            len: word(16)?,
            class: word(20)?,
            queue: (queue != NO_QUEUE).then_some(queue),
            direction: match record[26] {
                0 => Direction::In,
                _ => Direction::Out,
            },
            reason: DropReason::ALL.get(usize::from(record[27])).copied(),
        };
        Some((record, frame))
    }
}
