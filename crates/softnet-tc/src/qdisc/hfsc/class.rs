//! A class of an `hfsc`, as its scheduler knows it.

use super::curve::{Curve, Runtime};
use super::race::Race;
use super::spec::HfscClassSpec;

/// The slot of no class: what is above the root.
pub(super) const NONE: usize = usize::MAX;
/// Levels of classes that there can be, the root's included.
const LEVELS: usize = 10;

/// A class. Times are in ticks, amounts in bytes. What a packet of a leaf needs comes first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Class {
    pub(super) parent: usize,
    /// Place in the races of the class above.
    pub(super) place: u32,
    /// Classes below that are active; 1 for an active leaf.
    pub(super) active: u32,
    /// Bytes sent by it and by classes below it.
    pub(super) total: u64,
    pub(super) virtual_time: u64,
    pub(super) virtual_number: u64,
    /// Lead of its virtual time over its curve: it was passed over while others were served.
    pub(super) adjustment: u64,
    /// When it may be served for link sharing, by its own upper limit, and with those below.
    pub(super) own_fit: u64,
    pub(super) fit: u64,
    /// A leaf with packets that the scheduler knows of.
    pub(super) is_active: bool,

    pub(super) virtuals: Option<Runtime>,
    pub(super) limits: Option<Runtime>,
    pub(super) rt: Option<Curve>,
    pub(super) ls: Option<Curve>,
    pub(super) ul: Option<Curve>,
    pub(super) deadlines: Option<Runtime>,
    pub(super) eligibles: Option<Runtime>,

    /// Bytes sent because of the real-time curve.
    pub(super) cumulative: u64,
    pub(super) eligible: u64,
    pub(super) deadline: u64,
    /// Number of the last change of the eligible time, which comes last among equals.
    pub(super) eligible_number: u64,

    /// Times that it became active, and that of its parent then.
    pub(super) period: u64,
    pub(super) parent_period: u64,
    /// The least virtual time of the classes below that was served in this period, and the
    /// highest of those that went passive.
    pub(super) served: u64,
    pub(super) left: u64,
    /// The active classes below: those that may be served by their virtual times, those at their
    /// limits by when they are below them again, all by their virtual times, the highest first.
    pub(super) fits: Race<u128>,
    pub(super) unfits: Race<u128>,
    pub(super) last: Race<u64>,

    /// 0 for a leaf, else one more than the highest below.
    pub(super) level: usize,
    /// Classes directly below by their level.
    below: [u32; LEVELS],
    /// Places for classes below, and those of classes that are gone.
    places: u32,
    free: Vec<u32>,
}

/// A key that is ordered by both numbers, the first one first.
fn pair(first: u64, second: u64) -> u128 {
    u128::from(first) << 64 | u128::from(second)
}

impl Class {
    pub(super) fn new(parent: usize, spec: &HfscClassSpec) -> Class {
        let mut class = Class {
            parent,
            place: 0,
            active: 0,
            total: 0,
            virtual_time: 0,
            virtual_number: 0,
            adjustment: 0,
            own_fit: 0,
            fit: 0,
            is_active: false,
            virtuals: None,
            limits: None,
            rt: None,
            ls: None,
            ul: None,
            deadlines: None,
            eligibles: None,
            cumulative: 0,
            eligible: 0,
            deadline: 0,
            eligible_number: 0,
            period: 0,
            parent_period: 0,
            served: 0,
            left: 0,
            fits: Race::default(),
            unfits: Race::default(),
            last: Race::default(),
            level: 0,
            below: [0; LEVELS],
            places: 0,
            free: Vec::new(),
        };
        class.set_curves(spec, 0);
        class
    }

    /// Order of leaves that are not eligible yet: by eligible time.
    pub(super) fn waiting_key(&self) -> u128 {
        pair(self.eligible, self.eligible_number)
    }

    /// Order of eligible leaves: by deadline.
    pub(super) fn eligible_key(&self) -> (u64, u128) {
        (self.deadline, self.waiting_key())
    }

    /// Order of classes below their upper limits: by virtual time.
    pub(super) fn fit_key(&self) -> u128 {
        pair(self.virtual_time, self.virtual_number)
    }

    /// Order of classes at their upper limits: by the time when they are below again.
    pub(super) fn unfit_key(&self) -> u128 {
        pair(self.fit, self.virtual_number)
    }

    /// Order of active classes: the highest virtual time first, and before nobody.
    pub(super) fn last_key(&self) -> u64 {
        !self.virtual_time.saturating_add(1)
    }

    /// Takes other curves: those that differ begin anew.
    pub(super) fn set_curves(&mut self, spec: &HfscClassSpec, now: u64) {
        let [rt, ls, ul] = [spec.rt, spec.ls, spec.ul].map(|curve| curve.map(Curve::from));
        if rt != self.rt {
            self.rt = rt;
            self.deadlines = rt.map(|curve| Runtime::new(curve, now, self.cumulative));
            self.eligibles = rt.and_then(|curve| Some(self.deadlines?.eligible(&curve)));
        }
        if ls != self.ls {
            self.ls = ls;
            self.virtuals = ls.map(|curve| Runtime::new(curve, self.virtual_time, self.total));
        }
        if ul != self.ul {
            self.ul = ul;
            self.limits = ul.map(|curve| Runtime::new(curve, now, self.total));
        }
    }

    /// Nothing is queued in it or below, and it has sent nothing.
    pub(super) fn reset(&mut self) {
        (self.total, self.cumulative) = (0, 0);
        (self.is_active, self.active) = (false, 0);
        (self.eligible, self.deadline) = (0, 0);
        (self.virtual_time, self.adjustment) = (0, 0);
        (self.own_fit, self.fit) = (0, 0);
        (self.served, self.left) = (0, 0);
        (self.period, self.parent_period) = (0, 0);
        self.fits.clear();
        self.unfits.clear();
        self.last.clear();
    }

    /// When the first of the classes below may be served; 0 if one may be now, or none is active.
    pub(super) fn first_fit(&self, fit_of: impl Fn(usize) -> u64) -> u64 {
        match (self.fits.first(), self.unfits.first()) {
            (None, Some(unfit)) => fit_of(unfit),
            _ => 0,
        }
    }

    /// A class below it has another level; `None`: it was not, or is not, there. True: so has this
    /// one.
    pub(super) fn count_below(&mut self, before: Option<usize>, after: Option<usize>) -> bool {
        if let Some(count) = before.and_then(|level| self.below.get_mut(level)) {
            *count -= 1;
        }
        if let Some(count) = after.and_then(|level| self.below.get_mut(level)) {
            *count += 1;
        }
        let highest = self.below.iter().rposition(|count| *count > 0);
        let level = highest.map_or(0, |level| level + 1);
        std::mem::replace(&mut self.level, level) != level
    }

    /// A place for another class below it.
    pub(super) fn take_place(&mut self) -> u32 {
        if let Some(place) = self.free.pop() {
            return place;
        }
        self.places += 1;
        let places = self.places as usize;
        self.fits.grow(places);
        self.unfits.grow(places);
        self.last.grow(places);
        self.places - 1
    }

    /// A class below it is no more.
    pub(super) fn free_place(&mut self, place: u32) {
        self.free.push(place);
    }
}
