//! Slots: packets leave together, some time apart, as where many stations share a medium.

use std::time::Duration;

use super::distribution::{Distribution, around};
use super::nanos;
use super::random::Prng;

/// Slots: the time from one to the next, and what leaves in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSpec {
    /// Shortest time to the next slot.
    pub min: Duration,
    /// Longest.
    pub max: Duration,
    /// Mean of the time, where it has a distribution.
    pub delay: Duration,
    /// Deviation from the mean, at most 2.147483647 s.
    pub jitter: Duration,
    /// Packets that leave in a slot; 0: any number.
    pub packets: u32,
    /// Wire bytes that leave in a slot, and one packet more; 0: any number.
    pub bytes: u32,
}

impl SlotSpec {
    /// True if packets wait for slots. Without a time between them there are none.
    pub fn is_on(&self) -> bool {
        !(self.min.is_zero() && self.max.is_zero() && self.jitter.is_zero())
    }
}

/// The present slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// When it begins. `None`: there are none.
    next: Option<u64>,
    packets: u64,
    bytes: u64,
}

/// The rest of a limit that is whole; 0 is none.
fn whole(limit: u32) -> u64 {
    match limit {
        0 => u64::MAX,
        limit => limit.into(),
    }
}

impl Slots {
    /// A slot has just begun.
    pub(super) fn new(spec: &SlotSpec, now: u64) -> Slots {
        Slots {
            next: spec.is_on().then_some(now),
            packets: whole(spec.packets),
            bytes: whole(spec.bytes),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.next.is_some()
    }

    /// The time at which a packet of this time leaves.
    #[inline]
    pub(super) fn after(&self, time: u64) -> u64 {
        self.next.map_or(time, |next| next.max(time))
    }

    /// The present slot is over when the next packet is due.
    #[inline]
    pub(super) fn is_before(&self, time: u64) -> bool {
        self.next.is_some_and(|next| next < time)
    }

    /// A packet leaves. True: the slot is full.
    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) -> bool {
        self.packets = self.packets.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_on() && (self.packets == 0 || self.bytes == 0)
    }

    /// Goes on to the next slot (`get_slot_next`). `prng` is for a distribution, `other` without.
    pub(super) fn go_on(
        &mut self,
        spec: &SlotSpec,
        table: Option<&Distribution>,
        now: u64,
        prng: &mut Prng,
        other: &mut Prng,
    ) {
        let wait = match table {
            Some(_) => {
                let jitter = nanos(spec.jitter).min(i32::MAX as i64) as u32;
                around(nanos(spec.delay), jitter, table, || prng.next())
            }
            None => {
                let span = nanos(spec.max).saturating_sub(nanos(spec.min)).max(0);
                let part = (span as u128 * u128::from(other.next())) >> 32;
                nanos(spec.min).saturating_add(part as i64)
            }
        };
        self.next = Some(now.saturating_add_signed(wait));
        (self.packets, self.bytes) = (whole(spec.packets), whole(spec.bytes));
    }
}
