//! Fairness between the instances of a shared rate: a virtual time for each.
//!
//! An instance has a weight, the flows in its backlog, and a virtual time: what it has drawn,
//! divided by its weight (start-time fair queueing, Goyal and others 1996). While the rate limits,
//! an instance draws only if its virtual time is at most one draw ahead of the least among those
//! that have a backlog. So for each two that have one all the time, what they draw for a unit of
//! weight differs by two draws at most.
//!
//! Nobody waits for an instance that does not run: one that is late by [`LATE`] for the run that
//! it has announced is not looked at. When it comes back it is behind by [`CATCH_UP`] draws at
//! most; what it missed beyond that is lost to it.
//!
//! All of this is hints, each word written by one thread and read relaxed: whatever is read, the
//! bound on what passes holds, which the word of the epoch keeps.

use std::sync::Arc;

use softnet::sync::primitive::{AtomicU64, Ordering};
use softnet::time::Time;

use super::RateSpec;

/// Nanoseconds by which an instance may be late: some wake-ups of a thread.
const LATE: u64 = 500_000;
/// Draws by which an instance that was late may be behind.
const CATCH_UP: u64 = 16;
/// Nanoseconds between two looks, at least and at most.
const LOOK: (u64, u64) = (20_000, 1_000_000);

/// The instances that share rates: one for each queue of a device, say. Rates that the same
/// instances share have it in common.
#[derive(Debug)]
pub struct Members(Box<[Member]>);

/// When an instance runs next, on a line of its own: only others that wait for it read that.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Member(AtomicU64);

impl Members {
    /// So many instances.
    pub fn new(instances: usize) -> Arc<Members> {
        Arc::new(Members((0..instances).map(|_| Member::default()).collect()))
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// An instance with a backlog says when it will run next. It is called at the end of each run:
    /// others wait with their share for one that keeps its word, not for one that is late.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn announce(&self, instance: usize, next: Time) {
        self.0[instance].0.store(next.nanos(), Ordering::Relaxed);
    }

    fn is_late(&self, instance: usize, now: Time) -> bool {
        let next = self.0[instance].0.load(Ordering::Relaxed);
        now.nanos() > next.saturating_add(LATE)
    }
}

/// What the instances of a rate say of themselves: eight on a line.
#[derive(Debug)]
pub(super) struct Turns {
    entries: Box<[Line]>,
    members: Arc<Members>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// Bits of the weight in an entry; the others are the virtual time, in 1/256 units, modulo 2^48.
const WEIGHT: u32 = 16;

/// The turn of one instance.
#[derive(Debug)]
pub(super) struct Turn {
    instance: u32,
    /// As published. 0: it has no backlog.
    weight: u16,
    /// Virtual time, in 2^-24 units, modulo 2^64.
    start: u64,
}

impl Turns {
    pub(super) fn new(members: Arc<Members>) -> Turns {
        let lines = members.count().div_ceil(8);
        Turns {
            entries: (0..lines).map(|_| Line::default()).collect(),
            members,
        }
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    fn entry(&self, instance: usize) -> &AtomicU64 {
        &self.entries[instance / 8].0[instance % 8]
    }

    fn publish(&self, turn: &Turn) {
        let entry = turn.start >> WEIGHT << WEIGHT | u64::from(turn.weight);
        self.entry(turn.instance as usize)
            .store(entry, Ordering::Relaxed);
    }
}

impl Turn {
    pub(super) fn new(instance: usize) -> Turn {
        Turn {
            instance: instance as u32,
            weight: 0,
            start: 0,
        }
    }

    pub(super) fn instance(&self) -> usize {
        self.instance as usize
    }

    /// The instance has no backlog.
    #[inline]
    pub(super) fn leave(&mut self, turns: &Turns) {
        if self.weight != 0 {
            self.weight = 0;
            turns.publish(self);
        }
    }

    /// It has drawn.
    pub(super) fn advance(&mut self, turns: &Turns, units: u64) {
        let weight = u64::from(self.weight.max(1));
        self.start = self.start.wrapping_add((units.min(1 << 39) << 24) / weight);
        turns.publish(self);
    }

    /// How much the instance, with this weight, may draw now.
    ///
    /// # Errors
    /// When it is to look again: others that have a backlog come first.
    pub(super) fn check(
        &mut self,
        turns: &Turns,
        spec: &RateSpec,
        weight: u16,
        now: Time,
    ) -> Result<u64, Time> {
        let (quantum, weight) = (spec.quantum(), weight.max(1));
        let is_new = self.weight == 0;
        let was = std::mem::replace(&mut self.weight, weight);
        // The one that is behind the others most, relative to this one.
        let mut ahead = None;
        let (mut count, mut weights) = (1, u64::from(weight));
        for other in 0..turns.members.count() {
            let entry = turns.entry(other).load(Ordering::Relaxed);
            let of_other = entry & ((1 << WEIGHT) - 1);
            if other == self.instance() || of_other == 0 || turns.members.is_late(other, now) {
                continue;
            }
            count += 1;
            weights += of_other;
            // In 1/256 units, with a sign.
            let by = ((self.start >> WEIGHT << WEIGHT).wrapping_sub(entry - of_other)) as i64;
            ahead = ahead.max(Some(by >> WEIGHT));
        }
        let Some(ahead) = ahead else {
            if weight != was {
                turns.publish(self);
            }
            return Ok(quantum);
        };
        // A light instance draws less at once, as often.
        let share = u128::from(quantum) * count * u128::from(weight) / u128::from(weights);
        let draw = u64::try_from(share)
            .unwrap_or(quantum)
            .clamp(spec.unit, quantum);
        let one = i64::try_from((draw << 8) / u64::from(weight)).unwrap_or(i64::MAX);
        let (least, most) = match is_new {
            true => (0, one),
            false => (-(CATCH_UP as i64) * one, i64::MAX),
        };
        let allowed = ahead.clamp(least, most);
        self.start = self
            .start
            .wrapping_add(((allowed - ahead) << WEIGHT) as u64);
        if weight != was || allowed != ahead {
            turns.publish(self);
        }
        if allowed <= one {
            return Ok(draw);
        }
        let units = (u128::from((allowed - one) as u64) * u128::from(weights)) >> 8;
        let nanos = units * 1_000_000_000 / u128::from(spec.rate);
        let nanos = u64::try_from(nanos)
            .unwrap_or(u64::MAX)
            .clamp(LOOK.0, LOOK.1);
        Err(now.plus_nanos(nanos))
    }
}
