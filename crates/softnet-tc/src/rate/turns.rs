//! Fairness between the instances of a shared rate: a virtual time for each.
//!
//! An instance has a weight, the flows in its backlog, and a virtual time: what it has drawn,
//! divided by its weight (start-time fair queueing, Goyal and others 1996). While the rate limits,
//! an instance draws only if its virtual time is at most one draw ahead of the least among those
//! that have a backlog. So for each two that have one all the time, what they draw for a unit of
//! weight differs by two draws at most.
//!
//! INV-RATE-4: nobody waits for an instance that does not run: one that is late by [`LATE`] for
//! the run that it has announced is not looked at. When it comes back it is behind by [`CATCH_UP`]
//! draws at most; what it missed beyond that is lost to it.
//!
//! A demand has a priority, too: who has a lower one waits for who has a higher one, and takes no
//! part in its race. Who leaves the race keeps how far it was behind for when it comes back, and
//! how far it was ahead but for what the others drew meanwhile: to leave and come back gains
//! nothing.
//!
//! All of this is hints, each word written by one thread and read relaxed: whatever is read, the
//! bound on what passes holds, which the word of the epoch keeps.

use std::sync::Arc;

use softnet::sync::primitive::{AtomicU64, Ordering};
use softnet::time::Time;

use super::RateSpec;

/// Nanoseconds by which an instance may be late: two time slices of a busy CPU. With a burst of
/// less than twice that the bucket is half full before, and nobody waits. (Beside a build on two
/// CPUs, flows of 1000:10 differ by 3 to 14 % with it, by 58 to 115 % with 500 µs.)
const LATE: u64 = 10_000_000;
/// Draws by which an instance that was late may be behind: what it missed in some 13 ms, about as
/// long as others wait for it before ([`LATE`]), and as they may have to wait now. (With 16, one
/// flow of eight whose queue stood still for 12 ms of each 24 lost a quarter of its share; TCP on
/// TAP ports did so beside programs that want the CPU.)
const CATCH_UP: i64 = 64;
/// Nanoseconds between two looks, at least.
const LOOK: u64 = 20_000;
/// As [`LOOK`], of one that waits for a higher priority.
const LOOK_ABOVE: u64 = 200_000;
/// Nanoseconds between two looks, at most: where the rate says less, and where it says more. Each
/// look reads what all instances say, and there may be a thousand classes that wait.
const MOST: (u64, u64) = (1_000_000, LATE);

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

    /// Number of instances.
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

/// State of each instance of a rate, as it says itself: eight on a line.
#[derive(Debug)]
pub(super) struct Turns {
    entries: Box<[Line]>,
    members: Arc<Members>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// Demand of an instance on a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Weight relative to others of its priority. 0: it has no backlog.
    pub weight: u32,
    /// 0 to 7: others of a lower priority, which is a higher number, wait for it.
    pub prio: u8,
}

impl Demand {
    /// A weight of 16 for each flow; of others no part less than that is lost.
    pub fn flows(flows: u16) -> Demand {
        Demand {
            weight: 16 * u32::from(flows.max(1)),
            prio: 0,
        }
    }

    fn mark(self) -> Mark {
        let weight = match self.weight.checked_ilog2() {
            Some(bits @ 8..) => (bits - 7) << 8 | (self.weight >> (bits - 8) & 0xFF),
            _ => self.weight,
        };
        Mark(weight as u16 | u16::from(self.prio.min(7)) << WEIGHT)
    }
}

/// Bits of the weight in a [`Mark`].
const WEIGHT: u32 = 13;
/// Bits of the mark in an entry; the others are the virtual time: units for a weight of 16, in
/// 1/65536, modulo 2^48.
const MARK: u32 = 16;

/// A demand as it is published: the weight to within 1/256, as an exponent and 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark(u16);

impl Mark {
    const NONE: Mark = Mark(0);

    fn weight(self) -> u64 {
        let (exponent, low) = (self.0 >> 8 & 31, u64::from(self.0 & 0xFF));
        match exponent {
            0 => low,
            _ => (256 + low) << (exponent - 1),
        }
    }

    fn prio(self) -> u8 {
        (self.0 >> WEIGHT) as u8
    }

    fn is_none(self) -> bool {
        self.0 & ((1 << WEIGHT) - 1) == 0
    }
}

/// The turn of one instance.
#[derive(Debug)]
pub(super) struct Turn {
    instance: u32,
    /// As published. None: it has no backlog.
    mark: Mark,
    /// By priority, how far it was ahead of the last one when it left.
    left: [i64; 8],
    /// Virtual time, in 2^-32 units for a weight of 16, modulo 2^64.
    start: u64,
    /// Since when others come first, whenever it looked.
    waits: Option<Time>,
}

/// Instances that race with one.
struct Field {
    /// With the instance itself, which has the weight that it asks with.
    count: u64,
    weights: u64,
    /// The least weight of the others.
    lightest: u64,
    /// By how much the instance is ahead of the last one. None: it is alone.
    ahead: Option<i64>,
    /// There is one of a higher priority.
    above: bool,
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
        let entry = turn.start >> MARK << MARK | u64::from(turn.mark.0);
        self.entry(turn.instance as usize)
            .store(entry, Ordering::Relaxed);
    }
}

impl Turn {
    pub(super) fn new(instance: usize) -> Turn {
        Turn {
            instance: instance as u32,
            mark: Mark::NONE,
            left: [0; 8],
            start: 0,
            waits: None,
        }
    }

    pub(super) fn instance(&self) -> usize {
        self.instance as usize
    }

    /// The priority with which it asked last.
    pub(super) fn prio(&self) -> u8 {
        self.mark.prio()
    }

    /// It has a backlog.
    #[inline]
    pub(super) fn races(&self) -> bool {
        !self.mark.is_none()
    }

    /// The instance has no backlog.
    #[inline]
    pub(super) fn leave(&mut self, turns: &Turns) {
        if self.races() {
            self.quit(turns);
        }
    }

    #[cold]
    fn quit(&mut self, turns: &Turns) {
        self.left[usize::from(self.prio())] = self.field(turns, None).ahead.unwrap_or(0);
        self.mark = Mark::NONE;
        self.waits_no_more();
        turns.publish(self);
    }

    /// It has used or lent so much, in the race.
    pub(super) fn advance(&mut self, turns: &Turns, units: u64) {
        let units = u128::from(units.min(1 << 39)) << 36;
        let by = units / u128::from(self.mark.weight().max(1));
        self.start = self.start.wrapping_add(by as u64);
        turns.publish(self);
    }

    /// The part that the instance, with this demand, is to have of what all instances have: in
    /// 1/65536.
    pub(super) fn part(&self, turns: &Turns, demand: Demand, now: Time) -> u64 {
        let weight = demand.mark().weight();
        let all = self.field(turns, Some(now)).weights - self.mark.weight() + weight;
        (weight << 16) / all.max(1)
    }

    /// Instances that are not late, if there is a time, at the priority of this one.
    fn field(&self, turns: &Turns, now: Option<Time>) -> Field {
        let mut field = Field {
            count: 1,
            weights: self.mark.weight(),
            lightest: u64::MAX,
            ahead: None,
            above: false,
        };
        for other in 0..turns.members.count() {
            let entry = turns.entry(other).load(Ordering::Relaxed);
            let mark = Mark(entry as u16);
            let is_late = || now.is_some_and(|now| turns.members.is_late(other, now));
            if other == self.instance() || mark.is_none() || is_late() {
                continue;
            }
            field.above |= mark.prio() < self.prio();
            if mark.prio() == self.prio() {
                field.count += 1;
                field.weights += mark.weight();
                field.lightest = field.lightest.min(mark.weight());
                // With a sign.
                let by = (self.start >> MARK << MARK).wrapping_sub(entry >> MARK << MARK) as i64;
                field.ahead = field.ahead.max(Some(by >> MARK));
            }
        }
        field
    }

    /// Units that the instance, with this demand, may draw now. What counts is counted in steps of
    /// `grain`.
    ///
    /// # Errors
    /// When it is to look again: others that have a backlog come first.
    pub(super) fn check(
        &mut self,
        turns: &Turns,
        spec: &RateSpec,
        grain: u64,
        demand: Demand,
        now: Time,
    ) -> Result<u64, Time> {
        let look = self.compare(turns, spec, grain, demand, now);
        if look.is_ok() {
            self.waits = None;
        }
        look.map_err(|(estimate, units)| self.next_look(estimate, units, spec.rate, now))
    }

    /// Nobody comes first.
    pub(super) fn waits_no_more(&mut self) {
        self.waits = None;
    }

    /// When to look again: after this estimate, or a quarter of the time that it has waited, but
    /// before more than so many units have come, if that is not too often.
    fn next_look(&mut self, estimate: u64, units: u64, rate: u64, now: Time) -> Time {
        let since = *self.waits.get_or_insert(now);
        let waited = now.nanos().saturating_sub(since.nanos());
        let most = u128::from(units) * 1_000_000_000 / u128::from(rate);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let after = estimate.max(waited / 4).max(LOOK);
        now.plus_nanos(after.min(most.clamp(MOST.0, MOST.1)))
    }

    /// As [`check`](Turn::check), but for how long others come first, by an estimate, and how many
    /// units may come before it looks again.
    fn compare(
        &mut self,
        turns: &Turns,
        spec: &RateSpec,
        grain: u64,
        demand: Demand,
        now: Time,
    ) -> Result<u64, (u64, u64)> {
        let (quantum, mark) = (spec.quantum(), demand.mark());
        // A quarter of the burst has space while nobody draws: half of it is plenty.
        let above = (LOOK_ABOVE, spec.unit.max(spec.burst / 4));
        let joins = (self.mark.is_none() || self.prio() != mark.prio()).then(|| {
            self.leave(turns);
            self.left[usize::from(mark.prio())]
        });
        let was = std::mem::replace(&mut self.mark, mark);
        let field = self.field(turns, Some(now));
        let weight = mark.weight().max(1);
        let Some(ahead) = field.ahead else {
            if mark != was {
                turns.publish(self);
            }
            return match field.above {
                true => Err(above),
                false => Ok(quantum),
            };
        };
        // A light instance draws less at once, as often.
        let part = |quantum: u64| {
            let all = u128::from(quantum) * u128::from(field.count) * u128::from(weight);
            let part = u64::try_from(all / u128::from(field.weights.max(1))).unwrap_or(quantum);
            part.clamp(spec.unit, quantum)
        };
        let (draw, one) = (part(quantum), part(quantum.max(grain)));
        let one = i64::try_from((u128::from(one) << 20) / u128::from(weight)).unwrap_or(i64::MAX);
        // The lightest is ahead by two or three of its draws at times, which are not lost.
        let lightest = (u128::from(spec.unit) << 20) / u128::from(field.lightest);
        let least = one.saturating_mul(-CATCH_UP);
        let least = least.min(i64::try_from(lightest * 4).map_or(i64::MIN, |by| -by));
        let allowed = match joins {
            // Less, as far as the others went on meanwhile.
            Some(lag @ 1..) => ahead.clamp(0, lag).min(least.saturating_neg()),
            Some(lag) => lag.max(least),
            None => ahead.max(least),
        };
        self.start = self
            .start
            .wrapping_add((allowed.wrapping_sub(ahead) << MARK) as u64);
        if mark != was || allowed != ahead {
            turns.publish(self);
        }
        if field.above {
            return Err(above);
        }
        if allowed <= one {
            return Ok(draw);
        }
        let units = (u128::from((allowed - one) as u64) * u128::from(field.weights)) >> 20;
        let nanos = units * 1_000_000_000 / u128::from(spec.rate);
        // No longer: a class of htb does not borrow what it waits for.
        Err((u64::try_from(nanos).unwrap_or(u64::MAX), 0))
    }
}
