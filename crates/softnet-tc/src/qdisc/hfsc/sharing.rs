//! Sharing of what real-time curves leave, by link-sharing curves and upper limits: the virtual
//! times of the classes below each class.

use softnet::time::Time;

use super::class::{NONE, Sharing};
use super::curve::ticks;
use super::scheduler::Scheduler;

impl Scheduler {
    /// A class is not active any more.
    fn leave_sharing(&mut self, slot: usize) {
        let class = &mut self.classes[slot];
        let (parent, place) = (class.parent, class.place as usize);
        let was = std::mem::replace(&mut class.sharing, Sharing::No);
        let above = &mut self.classes[parent];
        match was {
            Sharing::No => return,
            Sharing::Fit => above.fits.remove(place),
            Sharing::Unfit => above.unfits.remove(place),
        }
        above.highest.put(place, 0);
        above.sharers -= 1;
    }

    /// Puts an active class where its times say.
    fn enter_sharing(&mut self, slot: usize, tick: u64) {
        let class = &mut self.classes[slot];
        let (parent, place, time) = (class.parent, class.place as usize, class.virtual_time);
        let (fit, unfit) = (class.fit_key(slot), class.unfit_key(slot));
        let is = if class.fit <= tick {
            Sharing::Fit
        } else {
            Sharing::Unfit
        };
        let was = std::mem::replace(&mut class.sharing, is);
        let above = &mut self.classes[parent];
        match (was, is) {
            (Sharing::Unfit, Sharing::Fit) => above.unfits.remove(place),
            (Sharing::Fit, Sharing::Unfit) => above.fits.remove(place),
            (Sharing::No, _) => above.sharers += 1,
            _ => {}
        }
        match is {
            Sharing::Unfit => above.unfits.put(place, unfit),
            _ => above.fits.put(place, fit),
        }
        above.highest.put(place, time);
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
        if is_alone || period != class.parent_period || start > class.virtual_time {
            class.virtual_time = start;
        }
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
        self.enter_sharing(at, tick);
    }

    /// When an active class may be served for link sharing.
    #[inline]
    fn fit(&self, at: usize) -> u64 {
        let class = &self.classes[at];
        if class.level == 0 {
            return class.own_fit;
        }
        let below = class.first_fit(|slot| self.classes[slot].fit);
        class.own_fit.max(below)
    }

    /// Computes anew when an active class may be served for link sharing.
    fn refit(&mut self, at: usize, tick: u64) {
        let fit = self.fit(at);
        if fit == self.classes[at].fit {
            return;
        }
        self.classes[at].fit = fit;
        self.enter_sharing(at, tick);
    }

    /// Counts what a leaf sent, for it and all classes above it. `ends`: it has no more.
    pub(super) fn share(&mut self, slot: usize, len: u64, ends: bool, now: Time) {
        let tick = ticks(now);
        let mut ends = ends && self.classes[slot].virtuals.is_some();
        let mut at = slot;
        while self.classes[at].parent != NONE {
            let parent = self.classes[at].parent;
            let served = self.classes[parent].served;
            let class = &mut self.classes[at];
            class.total = class.total.saturating_add(len);
            let virtuals = class.virtuals.as_ref().filter(|_| class.active > 0);
            let Some(virtuals) = virtuals else {
                at = parent;
                continue;
            };
            let mut time = virtuals.x_of(class.total).saturating_add(class.adjustment);
            if ends {
                class.active -= 1;
                ends = class.active == 0;
            }
            if time < served {
                // It was passed over at its limit, and gets nothing for that.
                class.adjustment = class.adjustment.saturating_add(served - time);
                time = served;
            }
            class.virtual_time = time;
            if ends {
                let above = &mut self.classes[parent];
                above.left = above.left.max(time);
                self.leave_sharing(at);
                at = parent;
                continue;
            }
            let number = self.next_number();
            let class = &mut self.classes[at];
            class.virtual_number = number;
            if let Some(limits) = &class.limits {
                class.own_fit = limits.x_of(class.total);
            }
            self.classes[at].fit = self.fit(at);
            self.enter_sharing(at, tick);
            at = parent;
        }
    }

    /// The leaf to serve now for link sharing.
    #[inline]
    pub(super) fn choose_shared(&mut self, tick: u64) -> Option<usize> {
        let mut at = self.root;
        while self.classes[at].level > 0 {
            self.update_fits(at, tick);
            let first = self.classes[at].fits.first()?;
            let time = self.classes[first].virtual_time;
            // As in the kernel, which looks at the class above only once one is chosen there.
            let above = &mut self.classes[at];
            above.served = above.served.max(time);
            at = first;
        }
        (at != self.root).then_some(at)
    }

    /// Classes below a class that are below their limits again.
    fn update_fits(&mut self, at: usize, tick: u64) {
        while let Some(slot) = self.classes[at].unfits.first() {
            if self.classes[slot].fit > tick {
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
