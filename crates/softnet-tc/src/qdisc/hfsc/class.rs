//! A class of an `hfsc`, as its scheduler knows it.

use softnet::sync::prefetch;

use super::curve::{Curve, Runtime, ServiceCurve};
use super::highest::Highest;
use super::race::{Race, tie};
use super::spec::HfscClassSpec;

/// The slot of no class: what is above the root, and above a class that is gone.
pub(super) const NONE: usize = usize::MAX;
/// Levels of classes that there can be, the root's included.
const LEVELS: usize = 10;

/// Where a class is among those of the class above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// It is not active.
    No,
    /// It may be served.
    Fit,
    /// It is at its upper limit.
    Unfit,
}

/// A class. Times are in ticks, amounts in bytes. Of a leaf that has a link-sharing curve alone, a
/// packet that leaves needs the first two cache lines, and one that finds it empty one more.
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
    /// When it may be served for link sharing, with those below.
    pub(super) fit: u64,
    /// 0 for a leaf, else one more than the highest below.
    pub(super) level: u32,
    /// A leaf with packets that the scheduler knows of.
    pub(super) is_active: bool,
    pub(super) sharing: Sharing,
    /// There is a real-time curve.
    pub(super) is_real_time: bool,
    /// There is an upper limit.
    pub(super) is_limited: bool,

    /// The link-sharing curve.
    pub(super) virtuals: Option<Runtime>,
    /// When it may be served by its own upper limit; 0 if there is none.
    pub(super) own_fit: u64,
    /// Bytes sent because of the real-time curve.
    pub(super) cumulative: u64,
    /// Times that it became active, and that of its parent then.
    pub(super) period: u64,
    pub(super) parent_period: u64,

    pub(super) limits: Option<Runtime>,
    /// The real-time curve, and what follows from it.
    pub(super) deadlines: Option<Runtime>,
    pub(super) eligibles: Option<Runtime>,
    pub(super) eligible: u64,
    pub(super) deadline: u64,
    /// Number of the last change of the eligible time, which comes last among equals.
    pub(super) eligible_number: u64,

    /// The least virtual time of the classes below that was served in this period, and the
    /// highest of those that went passive.
    pub(super) served: u64,
    pub(super) left: u64,
    /// The active classes below: those that may be served by their virtual times, those at their
    /// limits by when they are below them again; their number, and their highest virtual time.
    pub(super) fits: Race<2>,
    pub(super) unfits: Race<2>,
    pub(super) sharers: u32,
    pub(super) highest: Highest,

    /// Classes directly below by their level.
    below: [u32; LEVELS],
    /// Places for classes below, and those of classes that are gone.
    places: u32,
    free: Vec<u32>,
}

const _: () = assert!(std::mem::offset_of!(Class, virtuals) == 64);
const _: () = assert!(std::mem::offset_of!(Class, limits) <= 3 * 64);

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
            fit: 0,
            level: 0,
            is_active: false,
            sharing: Sharing::No,
            is_real_time: false,
            is_limited: false,
            virtuals: None,
            own_fit: 0,
            cumulative: 0,
            period: 0,
            parent_period: 0,
            limits: None,
            deadlines: None,
            eligibles: None,
            eligible: 0,
            deadline: 0,
            eligible_number: 0,
            served: 0,
            left: 0,
            fits: Race::default(),
            unfits: Race::default(),
            sharers: 0,
            highest: Highest::default(),
            below: [0; LEVELS],
            places: 0,
            free: Vec::new(),
        };
        class.set_curves(spec, 0);
        class
    }

    /// Asks for what a packet of a leaf needs.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&raw const self.parent);
        prefetch(&raw const self.virtuals);
        prefetch(&raw const self.period);
    }

    /// Order of leaves that are not eligible yet: by eligible time.
    pub(super) fn waiting_key(&self, slot: usize) -> [u64; 2] {
        [self.eligible, tie(self.eligible_number, slot)]
    }

    /// Order of eligible leaves: by deadline.
    pub(super) fn eligible_key(&self, slot: usize) -> [u64; 3] {
        let [eligible, tie] = self.waiting_key(slot);
        [self.deadline, eligible, tie]
    }

    /// Order of classes below their upper limits: by virtual time.
    #[inline]
    pub(super) fn fit_key(&self, slot: usize) -> [u64; 2] {
        [self.virtual_time, tie(self.virtual_number, slot)]
    }

    /// Order of classes at their upper limits: by the time when they are below again.
    #[inline]
    pub(super) fn unfit_key(&self, slot: usize) -> [u64; 2] {
        [self.fit, tie(self.virtual_number, slot)]
    }

    /// Takes other curves: those that differ begin anew.
    pub(super) fn set_curves(&mut self, spec: &HfscClassSpec, now: u64) {
        let renew = |runtime: &mut Option<Runtime>, spec: Option<ServiceCurve>, x, y| {
            let curve = spec.map(Curve::from);
            let differs = runtime.as_ref().map(Runtime::curve) != curve;
            if differs {
                *runtime = curve.map(|curve| Runtime::new(curve, x, y));
            }
            differs
        };
        if renew(&mut self.deadlines, spec.rt, now, self.cumulative) {
            self.eligibles = self.deadlines.map(Runtime::eligible);
        }
        let (virtual_time, total) = (self.virtual_time, self.total);
        renew(&mut self.virtuals, spec.ls, virtual_time, total);
        renew(&mut self.limits, spec.ul, now, total);
        (self.is_real_time, self.is_limited) = (spec.rt.is_some(), spec.ul.is_some());
        if !self.is_limited {
            self.own_fit = 0;
        }
    }

    /// Shares by its real-time curve, if it has no other.
    pub(super) fn share_by_real_time(&mut self) {
        if let (Some(deadlines), None) = (&self.deadlines, &self.virtuals) {
            let virtuals = Runtime::new(deadlines.curve(), self.virtual_time, self.total);
            self.virtuals = Some(virtuals);
        }
    }

    /// Nothing is queued in it or below, it has sent nothing, and its curves begin anew.
    pub(super) fn reset(&mut self) {
        (self.total, self.cumulative) = (0, 0);
        (self.is_active, self.active, self.sharing) = (false, 0, Sharing::No);
        (self.eligible, self.deadline) = (0, 0);
        (self.virtual_time, self.adjustment) = (0, 0);
        (self.own_fit, self.fit) = (0, 0);
        (self.served, self.left, self.sharers) = (0, 0, 0);
        (self.period, self.parent_period) = (0, 0);
        self.fits.clear();
        self.unfits.clear();
        self.highest.clear();
        let begin = |runtime: Runtime| Runtime::new(runtime.curve(), 0, 0);
        self.deadlines = self.deadlines.map(begin);
        self.eligibles = self.deadlines.map(Runtime::eligible);
        (self.virtuals, self.limits) = (self.virtuals.map(begin), self.limits.map(begin));
    }

    /// A class below it has another level; `None`: it was not, or is not, there. True: so has this
    /// one.
    pub(super) fn count_below(&mut self, before: Option<u32>, after: Option<u32>) -> bool {
        if let Some(count) = before.and_then(|level| self.below.get_mut(level as usize)) {
            *count -= 1;
        }
        if let Some(count) = after.and_then(|level| self.below.get_mut(level as usize)) {
            *count += 1;
        }
        let highest = self.below.iter().rposition(|count| *count > 0);
        let level = highest.map_or(0, |level| level as u32 + 1);
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
        self.highest.grow(places);
        self.places - 1
    }

    /// A class below it is no more.
    pub(super) fn free_place(&mut self, place: u32) {
        self.free.push(place);
    }
}
