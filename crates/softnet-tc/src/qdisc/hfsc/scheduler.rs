//! Which leaf of an `hfsc` is next. Knows classes by their slots and packets by their lengths. What
//! link-sharing curves and upper limits say is in [`sharing`](super::sharing).
//!
//! A leaf with a real-time curve is *eligible* when what it would get late otherwise has to be sent
//! now; of those that are, the one with the earliest deadline is served. Where none is, the rest is
//! shared: from the root on, of the active classes that are below their upper limits the one with
//! the least virtual time is chosen, which advances with what it has sent as its link-sharing curve
//! says. Names as in the paper: Stoica, Zhang and Ng, "A Hierarchical Fair Service Curve Algorithm
//! for Link-Sharing, Real-Time, and Priority Services", IEEE/ACM Transactions on Networking 8(2),
//! 2000; the upper limit is ALTQ's.

use softnet::time::Time;

#[cfg(test)]
use super::class::Sharing;
use super::class::{Class, NONE};
use super::curve::{NEVER, ticks, time_of};
use super::race::Race;
use super::spec::HfscClassSpec;

/// A leaf to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) leaf: usize,
    /// Because of its real-time curve.
    pub(super) real_time: bool,
}

#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) classes: Vec<Class>,
    pub(super) root: usize,
    /// Leaves with a real-time curve that are not eligible yet, and those that are, at the places
    /// of their slots.
    waiting: Race<2>,
    eligible: Race<3>,
    /// Numbers changes, so that what changed first comes first among equals.
    pub(super) number: u64,
}

impl Scheduler {
    /// With the root at a slot.
    pub(super) fn new(root: usize) -> Scheduler {
        let mut scheduler = Scheduler {
            classes: Vec::new(),
            root,
            waiting: Race::default(),
            eligible: Race::default(),
            number: 0,
        };
        scheduler.put(root, NONE, &HfscClassSpec::default());
        scheduler
    }

    fn put(&mut self, slot: usize, parent: usize, spec: &HfscClassSpec) {
        while self.classes.len() <= slot {
            let none = Class::new(NONE, &HfscClassSpec::default());
            self.classes.push(none);
        }
        self.classes[slot] = Class::new(parent, spec);
        self.waiting.grow(self.classes.len());
        self.eligible.grow(self.classes.len());
    }

    pub(super) fn class(&self, slot: usize) -> &Class {
        &self.classes[slot]
    }

    /// True if the root has no classes below it.
    pub(super) fn is_bare(&self) -> bool {
        self.classes[self.root].level == 0
    }

    /// True if a leaf has packets that are to be sent.
    #[inline]
    pub(super) fn is_active(&self, slot: usize) -> bool {
        self.classes[slot].is_active
    }

    /// True if a leaf has a real-time curve: then the length of its next packet matters.
    #[inline]
    pub(super) fn is_real_time(&self, slot: usize) -> bool {
        self.classes[slot].is_real_time
    }

    /// There is a class without packets below a class that has none, which shares from then on.
    pub(super) fn add(&mut self, slot: usize, parent: usize, spec: &HfscClassSpec) {
        self.put(slot, parent, spec);
        self.classes[parent].share_by_real_time();
        self.classes[slot].place = self.classes[parent].take_place();
        self.relevel(parent, None, Some(0));
    }

    /// A class without packets is no more. Returns the one that it was below.
    pub(super) fn remove(&mut self, slot: usize) -> usize {
        let class = &mut self.classes[slot];
        let (place, level) = (class.place, class.level);
        let parent = std::mem::replace(&mut class.parent, NONE);
        self.classes[parent].free_place(place);
        self.relevel(parent, Some(level), None);
        parent
    }

    fn relevel(&mut self, mut slot: usize, mut before: Option<u32>, mut after: Option<u32>) {
        while slot != NONE {
            let class = &mut self.classes[slot];
            let level = class.level;
            let changed = class.count_below(before, after);
            (before, after) = (Some(level), Some(class.level));
            let parent = class.parent;
            if !changed {
                break;
            }
            slot = parent;
        }
    }

    /// A class takes other curves. `next`: the length of the next packet, if it is an active leaf.
    pub(super) fn change(
        &mut self,
        slot: usize,
        spec: &HfscClassSpec,
        next: Option<u64>,
        now: Time,
    ) {
        let has = |class: &Class| (class.is_real_time, class.virtuals.is_some());
        let class = &self.classes[slot];
        let same = has(class) == (spec.rt.is_some(), spec.ls.is_some());
        let was_active = class.is_active;
        let next = next.filter(|_| was_active);
        // A leaf that lets nothing go now is no longer in the race: it is held.
        if was_active && (!same || next.is_none()) {
            self.deactivate(slot, now);
        }
        self.classes[slot].set_curves(spec, ticks(now));
        match next {
            Some(len) if !same => self.activate(slot, len, now),
            Some(_) => {
                let choice = Choice {
                    leaf: slot,
                    real_time: true,
                };
                self.charge(choice, 0, next, now);
            }
            None if self.classes[slot].active > 0 => self.limit_anew(slot, now),
            None => {}
        }
    }

    /// A leaf that was not active has packets, the first of this length.
    #[inline]
    pub(super) fn activate(&mut self, slot: usize, len: u64, now: Time) {
        let class = &mut self.classes[slot];
        if class.is_active {
            return;
        }
        class.is_active = true;
        let tick = ticks(now);
        if class.is_real_time {
            if let Some(deadlines) = &mut class.deadlines {
                deadlines.lower(tick, class.cumulative);
                class.eligibles = Some(deadlines.eligible());
            }
            self.set_real_time(slot, len, now);
        }
        if self.classes[slot].virtuals.is_some() {
            self.start_sharing(slot, tick);
        }
    }

    /// Computes when a leaf is eligible, and its deadline. Nothing happens if it has no real-time
    /// curve.
    fn set_real_time(&mut self, slot: usize, len: u64, now: Time) {
        let number = self.number + 1;
        let class = &mut self.classes[slot];
        let (Some(eligibles), Some(deadlines)) = (&class.eligibles, &class.deadlines) else {
            return;
        };
        self.number = number;
        class.eligible = eligibles.x_of(class.cumulative);
        class.deadline = deadlines.x_of(class.cumulative.saturating_add(len));
        class.eligible_number = number;
        if class.eligible <= ticks(now) {
            self.eligible.put(slot, class.eligible_key(slot));
            self.waiting.remove(slot);
        } else {
            self.waiting.put(slot, class.waiting_key(slot));
            self.eligible.remove(slot);
        }
    }

    fn leave_real_time(&mut self, slot: usize) {
        self.waiting.remove(slot);
        self.eligible.remove(slot);
    }

    /// The next packet of an active leaf is another one.
    pub(super) fn set_next(&mut self, slot: usize, len: u64) {
        let class = &mut self.classes[slot];
        if !(class.is_active && class.is_real_time) {
            return;
        }
        let Some(deadlines) = &class.deadlines else {
            return;
        };
        class.deadline = deadlines.x_of(class.cumulative.saturating_add(len));
        // Of those that wait, the order does not depend on it.
        if self.eligible.contains(slot) {
            self.eligible.put(slot, class.eligible_key(slot));
        }
    }

    /// A leaf has no packets to send, other than because they were sent.
    pub(super) fn deactivate(&mut self, slot: usize, now: Time) {
        if self.classes.get(slot).is_some_and(|class| class.is_active) {
            let choice = Choice {
                leaf: slot,
                real_time: false,
            };
            self.charge(choice, 0, None, now);
        }
    }

    /// The leaf to serve now.
    #[inline]
    pub(super) fn choose(&mut self, now: Time) -> Option<Choice> {
        let tick = ticks(now);
        while let Some((eligible, slot)) = self.waiting.first() {
            if eligible > tick {
                break;
            }
            self.waiting.remove(slot);
            let key = self.classes[slot].eligible_key(slot);
            self.eligible.insert(slot, key);
        }
        if let Some((_, leaf)) = self.eligible.first() {
            let real_time = true;
            return Some(Choice { leaf, real_time });
        }
        let real_time = false;
        let leaf = self.choose_shared(tick)?;
        Some(Choice { leaf, real_time })
    }

    /// Counts a packet that the chosen leaf sent; `next` is the length of its next one, if it has
    /// one to send. Returns a class that will be chosen soon, if one came up.
    pub(super) fn charge(
        &mut self,
        choice: Choice,
        len: u64,
        next: Option<u64>,
        now: Time,
    ) -> Option<usize> {
        let Choice { leaf, real_time } = choice;
        let soon = self.share(leaf, len, next.is_none(), ticks(now));
        let class = &mut self.classes[leaf];
        if real_time {
            class.cumulative = class.cumulative.saturating_add(len);
        }
        class.is_active = next.is_some();
        if class.is_real_time {
            match next {
                None => self.leave_real_time(leaf),
                Some(len) if real_time => self.set_real_time(leaf, len, now),
                Some(len) => self.set_next(leaf, len),
            }
        }
        soon
    }

    /// When a leaf is to be served next, if none is now.
    pub(super) fn next_event(&self) -> Time {
        let (waiting, unfits) = (&self.waiting, &self.classes[self.root].unfits);
        let eligible = waiting.first().map_or(NEVER, |(eligible, _)| eligible);
        let fit = unfits.first().map_or(NEVER, |(fit, _)| fit);
        time_of(eligible.min(fit))
    }

    /// Nothing is queued any more, and all curves begin anew (`hfsc_reset_qdisc`).
    pub(super) fn reset(&mut self) {
        self.waiting.clear();
        self.eligible.clear();
        self.classes.iter_mut().for_each(Class::reset);
    }
}

#[cfg(test)]
impl Scheduler {
    /// Checks that those win who should, and that a class is in the races that it should be in: an
    /// active leaf in one of the first two if it has a real-time curve, an active class
    /// in one of the next two; and what it counts of those below.
    pub(super) fn assert_consistent(&self, has_packets: impl Fn(usize) -> bool) {
        let of = |slot: usize| &self.classes[slot];
        self.waiting.assert_right(|slot| of(slot).waiting_key(slot));
        self.eligible
            .assert_right(|slot| of(slot).eligible_key(slot));
        for (slot, class) in self.classes.iter().enumerate() {
            class.fits.assert_right(|slot| of(slot).fit_key(slot));
            class.unfits.assert_right(|slot| of(slot).unfit_key(slot));
            let below = || {
                let classes = self.classes.iter();
                classes.filter(move |other| other.parent == slot)
            };
            let sharers = below().filter(|other| other.sharing != Sharing::No).count();
            assert_eq!(class.sharers as usize, sharers, "{slot}");
            let level = below().map(|other| other.level + 1).max();
            assert_eq!(class.level, level.unwrap_or(0), "{slot}");
            assert_eq!(class.is_active, has_packets(slot), "{slot}");
            let waits = self.waiting.contains(slot);
            let is_eligible = self.eligible.contains(slot);
            let expected = class.is_active && class.deadlines.is_some();
            assert_eq!(waits || is_eligible, expected, "{slot}");
            assert!(!(waits && is_eligible), "{slot}");
            if class.parent == NONE {
                // The root, or a class that is gone.
                continue;
            }
            let active = match class.level {
                0 => u32::from(class.is_active && class.virtuals.is_some()),
                _ => class.sharers,
            };
            assert_eq!(class.active, active, "{slot}");
            let active = active > 0;
            assert_eq!(class.is_real_time, class.deadlines.is_some());
            assert_eq!(class.is_limited, class.limits.is_some());
            let (above, place) = (of(class.parent), class.place as usize);
            let (fits, unfits) = (above.fits.contains(place), above.unfits.contains(place));
            assert_eq!(fits ^ unfits, active, "{slot}");
            let expected = match class.sharing {
                Sharing::No => (false, false),
                Sharing::Fit => (true, false),
                Sharing::Unfit => (false, true),
            };
            assert_eq!((fits, unfits), expected, "{slot}");
            let time = if active { class.virtual_time } else { 0 };
            assert_eq!(above.highest.at(place), time, "{slot}");
        }
    }
}
