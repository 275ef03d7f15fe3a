//! Sharing of what real-time curves leave, by link-sharing curves and upper limits: the virtual
//! times of the classes below each class.

use std::hint::select_unpredictable;

use softnet::time::Time;

use super::class::{Class, Sharing};
use super::curve::{later, ticks};
use super::race::{Race, select};
use super::scheduler::Scheduler;

/// A class and the one above it. `None`: it is the root.
#[inline]
fn with_above(classes: &mut [Class], at: usize) -> Option<(&mut Class, &mut Class)> {
    let above = classes[at].parent;
    let [class, above] = classes.get_disjoint_mut([at, above]).ok()?;
    Some((class, above))
}

/// A class among those of the class above.
impl Class {
    /// Where an active class is to be.
    #[inline]
    fn sharing_at(&self, tick: u64) -> Sharing {
        if self.fit <= tick {
            Sharing::Fit
        } else {
            Sharing::Unfit
        }
    }

    /// Comes to where it is to be, as it becomes active.
    fn enter(&mut self, above: &mut Class, slot: usize, tick: u64) {
        let place = self.place as usize;
        above.sharers += 1;
        above.highest.put(place, self.virtual_time);
        self.sharing = self.sharing_at(tick);
        if self.sharing == Sharing::Fit {
            above.fits.insert(place, self.fit_key(slot));
        } else {
            above.unfits.insert(place, self.unfit_key(slot));
        }
    }

    /// An active class goes to where it is to be. Returns another class below the one above that
    /// will be chosen there soon, if one came up.
    #[inline(always)]
    fn settle(&mut self, above: &mut Class, slot: usize, is: Sharing) -> Option<usize> {
        let was = std::mem::replace(&mut self.sharing, is);
        let place = self.place as usize;
        // Without a branch: whether a leaf that was served has more cannot be foreseen.
        above.sharers -= u32::from(is == Sharing::No);
        let time = select_unpredictable(is == Sharing::No, 0, self.virtual_time);
        above.highest.put(place, time);
        if was == Sharing::Unfit || is == Sharing::Unfit {
            let key = select(is == Sharing::Unfit, self.unfit_key(slot), Race::NOBODY);
            above.unfits.put(place, key);
            if was == is {
                return None;
            }
        }
        let key = select(is == Sharing::Fit, self.fit_key(slot), Race::NOBODY);
        let soon = above.fits.put(place, key);
        soon.filter(|&soon| soon != slot)
    }

    /// As [`settle`](Class::settle), where that is not for each packet.
    #[inline(never)]
    fn resettle(&mut self, above: &mut Class, slot: usize, is: Sharing) {
        self.settle(above, slot, is);
    }

    /// Computes when it may be served for link sharing: by its own limit, and once one of the
    /// classes below may be.
    #[inline]
    fn limit(&mut self) {
        self.fit = 0;
        if self.is_limited {
            self.limit_by_own();
        }
        if self.level > 0
            && let (None, Some((fit, _))) = (self.fits.first(), self.unfits.first())
        {
            self.fit = self.fit.max(fit);
        }
    }

    /// A call of its own: the compiler looks ahead into the limit's cache line, if it can.
    #[inline(never)]
    fn limit_by_own(&mut self) {
        if let Some(limits) = &self.limits {
            self.own_fit = limits.x_of(self.total);
            self.fit = self.own_fit;
        }
    }

    /// Computes anew when an active class may be served for link sharing.
    fn refit(&mut self, above: &mut Class, slot: usize, tick: u64) {
        let before = self.fit;
        self.limit();
        if self.fit != before {
            self.resettle(above, slot, self.sharing_at(tick));
        }
    }

    /// Becomes active below a class: its virtual time is between those of the others there, or if
    /// it is the first one, where they were at most.
    fn start_period(&mut self, above: &mut Class, slot: usize, tick: u64) {
        let is_alone = above.sharers == 0;
        let start = match above.served {
            _ if is_alone => {
                above.served = 0;
                above.left
            }
            0 => above.highest.get(),
            least => {
                let highest = above.highest.get();
                (least / 2)
                    .saturating_add(highest / 2)
                    .saturating_add(least & highest & 1)
            }
        };
        // In the same period of the class above it does not fall back.
        if is_alone || above.period != self.parent_period || start > self.virtual_time {
            self.virtual_time = start;
        }
        if let Some(virtuals) = &mut self.virtuals {
            virtuals.lower(self.virtual_time, self.total);
        }
        self.adjustment = 0;
        self.period += 1;
        self.parent_period = above.period + u64::from(above.active == 0);
        if self.is_limited
            && let Some(limits) = &mut self.limits
        {
            limits.lower(tick, self.total);
        }
        self.limit();
        self.enter(above, slot, tick);
    }
}

impl Scheduler {
    /// A leaf with a link-sharing curve becomes active, and so may the classes above it.
    pub(super) fn start_sharing(&mut self, slot: usize, tick: u64) {
        let (mut at, mut starts) = (slot, true);
        while let Some((class, above)) = with_above(&mut self.classes, at) {
            if starts {
                starts = class.active == 0;
                class.active += 1;
            }
            if starts {
                self.number += 1;
                class.virtual_number = self.number;
                class.start_period(above, at, tick);
            } else {
                class.refit(above, at, tick);
            }
            at = class.parent;
        }
    }

    /// Counts what a leaf sent, for it and all classes above it. `ends`: it has no more. Returns
    /// another leaf beside it that will be chosen soon, if one came up.
    #[inline]
    pub(super) fn share(&mut self, slot: usize, len: u64, ends: bool, tick: u64) -> Option<usize> {
        let (mut at, mut beside) = (slot, None);
        let mut ends = ends & (self.classes[slot].active > 0);
        while let Some((class, above)) = with_above(&mut self.classes, at) {
            class.total = class.total.saturating_add(len);
            if class.active > 0
                && let Some(virtuals) = &class.virtuals
            {
                let time = later(virtuals.x_of(class.total), class.adjustment);
                // One that was passed over at its limit gets nothing for that.
                let passed_over = above.served.saturating_sub(time);
                class.adjustment = class.adjustment.saturating_add(passed_over);
                class.virtual_time = time.max(above.served);
                self.number += 1;
                class.virtual_number = self.number;
                class.active -= u32::from(ends);
                ends &= class.active == 0;
                class.limit();
                let left = select_unpredictable(ends, class.virtual_time, 0);
                above.left = above.left.max(left);
                let is = select_unpredictable(ends, Sharing::No, class.sharing_at(tick));
                let soon = class.settle(above, at, is);
                if at == slot {
                    beside = soon;
                }
            }
            at = class.parent;
        }
        beside
    }

    /// The leaf to serve now for link sharing.
    #[inline]
    pub(super) fn choose_shared(&mut self, tick: u64) -> Option<usize> {
        let mut at = self.root;
        while self.classes[at].level > 0 {
            self.update_fits(at, tick);
            let above = &mut self.classes[at];
            let (time, first) = above.fits.first()?;
            // As in the kernel, which looks at the class above only once one is chosen there.
            above.served = above.served.max(time);
            at = first;
        }
        (at != self.root).then_some(at)
    }

    /// Classes below a class that are below their limits again.
    #[inline]
    fn update_fits(&mut self, at: usize, tick: u64) {
        while let Some((fit, slot)) = self.classes[at].unfits.first()
            && fit <= tick
        {
            if let Some((class, above)) = with_above(&mut self.classes, slot) {
                class.resettle(above, slot, Sharing::Fit);
            }
        }
    }

    /// A class with active ones below has another upper limit.
    pub(super) fn limit_anew(&mut self, slot: usize, now: Time) {
        let mut at = slot;
        while let Some((class, above)) = with_above(&mut self.classes, at) {
            class.refit(above, at, ticks(now));
            at = class.parent;
        }
    }
}
