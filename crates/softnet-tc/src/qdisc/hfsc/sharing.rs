//! Sharing of what real-time curves leave, by link-sharing curves and upper limits: the virtual
//! times of the classes below each class.

use std::hint::select_unpredictable;

use softnet::time::Time;

use super::class::{NONE, Sharing};
use super::curve::ticks;
use super::scheduler::Scheduler;

impl Scheduler {
    /// Puts an active class where its times say, or takes it out if it `ends`: it is not active any
    /// more. Of the leaves that were served, half may end: who is not at its limit takes the same
    /// way in both cases, without a branch.
    #[inline]
    fn settle(&mut self, slot: usize, tick: u64, ends: bool) {
        let class = &mut self.classes[slot];
        let (parent, place, was) = (class.parent, class.place as usize, class.sharing);
        let (fit, unfit) = (class.fit_key(slot), class.unfit_key(slot));
        let time = select_unpredictable(ends, 0, class.virtual_time);
        let left = select_unpredictable(ends, class.virtual_time, 0);
        let is_fit = class.fit <= tick;
        if was == Sharing::Fit && (ends | is_fit) {
            class.sharing = select_unpredictable(ends, Sharing::No, Sharing::Fit);
            let above = &mut self.classes[parent];
            above.left = above.left.max(left);
            above.fits.put_if(!ends, place, fit);
            above.highest.put(place, time);
            above.sharers -= u32::from(ends);
            return;
        }
        let is = match (ends, is_fit) {
            (true, _) => Sharing::No,
            (_, true) => Sharing::Fit,
            _ => Sharing::Unfit,
        };
        class.sharing = is;
        let above = &mut self.classes[parent];
        above.left = above.left.max(left);
        match was {
            Sharing::Fit if is != was => above.fits.remove(place),
            Sharing::Unfit if is != was => above.unfits.remove(place),
            _ => {}
        }
        match is {
            Sharing::No => {}
            Sharing::Fit => above.fits.put(place, fit),
            Sharing::Unfit => above.unfits.put(place, unfit),
        }
        above.highest.put(place, time);
        above.sharers += u32::from(is != Sharing::No);
        above.sharers -= u32::from(was != Sharing::No);
    }

    /// Takes the leaf that was chosen for link sharing out of the race until it is charged or
    /// [steps back](Scheduler::step_back): who is first then is known before its packet is. Returns
    /// that one, which is likely next below the same class.
    #[inline]
    pub(super) fn step_aside(&mut self, leaf: usize) -> Option<usize> {
        let class = &self.classes[leaf];
        if class.sharing != Sharing::Fit {
            return None;
        }
        let (parent, place) = (class.parent, class.place as usize);
        let above = &mut self.classes[parent];
        above.fits.remove(place);
        above.fits.first()
    }

    /// A leaf that stepped aside sent nothing; no matter if it did not.
    pub(super) fn step_back(&mut self, leaf: usize) {
        let class = &self.classes[leaf];
        if class.sharing == Sharing::Fit {
            let (parent, place, key) = (class.parent, class.place as usize, class.fit_key(leaf));
            self.classes[parent].fits.put(place, key);
        }
    }

    /// A leaf with a link-sharing curve becomes active, and so may the classes above it.
    pub(super) fn start_sharing(&mut self, slot: usize, tick: u64) {
        let (mut at, mut starts) = (slot, true);
        while self.classes[at].parent != NONE {
            if starts {
                starts = self.classes[at].active == 0;
                self.classes[at].active += 1;
            }
            if starts {
                self.start_period(at, tick);
            } else {
                self.refit(at, tick);
            }
            at = self.classes[at].parent;
        }
    }

    /// A class becomes active below one: its virtual time is between those of the others there, or
    /// if it is the first one, where they were at most.
    fn start_period(&mut self, at: usize, tick: u64) {
        let number = self.next_number();
        let parent = self.classes[at].parent;
        let above = &mut self.classes[parent];
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
        let (period, is_first) = (above.period, above.active == 0);
        let class = &mut self.classes[at];
        // In the same period of the class above it does not fall back.
        let begins = is_alone | (period != class.parent_period);
        let moves = begins | (start > class.virtual_time);
        class.virtual_time = select_unpredictable(moves, start, class.virtual_time);
        if let Some(virtuals) = &mut class.virtuals {
            virtuals.lower(class.virtual_time, class.total);
        }
        class.adjustment = 0;
        class.period += 1;
        class.parent_period = period + u64::from(is_first);
        class.virtual_number = number;
        if let Some(limits) = &mut class.limits {
            limits.lower(tick, class.total);
            class.own_fit = limits.x_of(class.total);
        }
        self.classes[at].fit = self.fit(at);
        self.settle(at, tick, false);
    }

    /// When an active class may be served for link sharing.
    #[inline]
    fn fit(&self, at: usize) -> u64 {
        let class = &self.classes[at];
        let own = if class.is_limited { class.own_fit } else { 0 };
        if class.level == 0 {
            return own;
        }
        own.max(class.first_fit(|slot| self.classes[slot].fit))
    }

    /// Computes anew when an active class may be served for link sharing.
    fn refit(&mut self, at: usize, tick: u64) {
        let fit = self.fit(at);
        if fit == self.classes[at].fit {
            return;
        }
        self.classes[at].fit = fit;
        self.settle(at, tick, false);
    }

    /// Counts what a leaf sent, for it and all classes above it. `ends`: it has no more.
    pub(super) fn share(&mut self, slot: usize, len: u64, ends: bool, now: Time) {
        let tick = ticks(now);
        let mut ends = ends & self.classes[slot].virtuals.is_some();
        let mut at = slot;
        while self.classes[at].parent != NONE {
            let parent = self.classes[at].parent;
            let served = self.classes[parent].served;
            let number = self.number + 1;
            let class = &mut self.classes[at];
            class.total = class.total.saturating_add(len);
            let virtuals = class.virtuals.as_ref().filter(|_| class.active > 0);
            let Some(virtuals) = virtuals else {
                at = parent;
                continue;
            };
            let time = virtuals.x_of(class.total).saturating_add(class.adjustment);
            class.active -= u32::from(ends);
            ends &= class.active == 0;
            // If it was passed over at its limit, it gets nothing for that.
            let passed_over = served.saturating_sub(time);
            class.adjustment = class.adjustment.saturating_add(passed_over);
            class.virtual_time = time.max(served);
            // Of one that ends, what follows is not looked at.
            class.virtual_number = number;
            if class.is_limited
                && let Some(limits) = &class.limits
            {
                class.own_fit = limits.x_of(class.total);
            }
            self.number += u64::from(!ends);
            self.classes[at].fit = self.fit(at);
            self.settle(at, tick, ends);
            at = parent;
        }
    }

    /// The leaf to serve now for link sharing.
    #[inline]
    pub(super) fn choose_shared(&mut self, tick: u64) -> Option<usize> {
        let mut at = self.root;
        while self.classes[at].level > 0 {
            self.update_fits(at, tick);
            let (time, first) = self.classes[at].fits.first_key()?;
            // As in the kernel, which looks at the class above only once one is chosen there.
            let above = &mut self.classes[at];
            above.served = above.served.max(time);
            at = first;
        }
        (at != self.root).then_some(at)
    }

    /// Classes below a class that are below their limits again.
    fn update_fits(&mut self, at: usize, tick: u64) {
        while let Some((fit, slot)) = self.classes[at].unfits.first_key() {
            if fit > tick {
                break;
            }
            let class = &mut self.classes[slot];
            class.sharing = Sharing::Fit;
            let (place, key) = (class.place as usize, class.fit_key(slot));
            let above = &mut self.classes[at];
            above.unfits.remove(place);
            above.fits.put(place, key);
        }
    }

    /// A class with active ones below has another upper limit.
    pub(super) fn limit_anew(&mut self, slot: usize, now: Time) {
        let mut at = slot;
        while self.classes[at].parent != NONE {
            let class = &mut self.classes[at];
            if let Some(limits) = &class.limits {
                class.own_fit = limits.x_of(class.total);
            }
            self.refit(at, ticks(now));
            at = self.classes[at].parent;
        }
    }
}
