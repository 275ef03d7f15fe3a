//! A class of an `hfsc`, as its scheduler knows it.

use super::curve::{Curve, Runtime};
use super::heap::{Heap, NOWHERE, Order};
use super::spec::HfscClassSpec;

/// The slot of no class: what is above the root.
pub(super) const NONE: usize = usize::MAX;
/// Levels of classes that there can be, the root's included.
const LEVELS: usize = 10;

/// A class. Times are in ticks, amounts in bytes.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) parent: usize,
    /// 0 for a leaf, else one more than the highest below.
    pub(super) level: usize,
    /// Classes directly below by their level.
    below: [u32; LEVELS],

    pub(super) rt: Option<Curve>,
    pub(super) ls: Option<Curve>,
    pub(super) ul: Option<Curve>,
    pub(super) deadlines: Option<Runtime>,
    pub(super) eligibles: Option<Runtime>,
    pub(super) virtuals: Option<Runtime>,
    pub(super) limits: Option<Runtime>,

    /// Bytes sent by it and by classes below it; those because of the real-time curve.
    pub(super) total: u64,
    pub(super) cumulative: u64,

    /// A leaf with packets that the scheduler knows of.
    pub(super) is_active: bool,
    pub(super) eligible: u64,
    pub(super) deadline: u64,
    /// Number of the last change of the eligible time, which comes last among equals.
    pub(super) eligible_number: u64,

    /// Classes below that are active; 1 for an active leaf.
    pub(super) active: u32,
    pub(super) virtual_time: u64,
    pub(super) virtual_number: u64,
    /// Lead of its virtual time over its curve: it was passed over while others were served.
    pub(super) adjustment: u64,
    /// When it may be served for link sharing, by its own upper limit, and with those below.
    pub(super) own_fit: u64,
    pub(super) fit: u64,
    /// The least virtual time of the classes below that was served in this period, and the
    /// highest of those that went passive.
    pub(super) served: u64,
    pub(super) left: u64,
    /// Times that it became active, and that of its parent then.
    pub(super) period: u64,
    pub(super) parent_period: u64,

    /// The active classes below.
    pub(super) fits: Heap,
    pub(super) unfits: Heap,
    pub(super) last: Heap,

    real_time_place: u32,
    sharing_place: u32,
    last_place: u32,
}

impl Class {
    pub(super) fn new(parent: usize, spec: &HfscClassSpec) -> Class {
        let mut class = Class {
            parent,
            level: 0,
            below: [0; LEVELS],
            rt: None,
            ls: None,
            ul: None,
            deadlines: None,
            eligibles: None,
            virtuals: None,
            limits: None,
            total: 0,
            cumulative: 0,
            is_active: false,
            eligible: 0,
            deadline: 0,
            eligible_number: 0,
            active: 0,
            virtual_time: 0,
            virtual_number: 0,
            adjustment: 0,
            own_fit: 0,
            fit: 0,
            served: 0,
            left: 0,
            period: 0,
            parent_period: 0,
            fits: Heap::new(Order::Fit),
            unfits: Heap::new(Order::Unfit),
            last: Heap::new(Order::Last),
            real_time_place: NOWHERE,
            sharing_place: NOWHERE,
            last_place: NOWHERE,
        };
        class.set_curves(spec, 0);
        class
    }

    pub(super) fn key(&self, order: Order) -> (u64, u64, u64) {
        match order {
            Order::Waiting => (self.eligible, self.eligible_number, 0),
            Order::Eligible => (self.deadline, self.eligible, self.eligible_number),
            Order::Fit => (self.virtual_time, self.virtual_number, 0),
            Order::Unfit => (self.fit, self.virtual_number, 0),
            Order::Last => (!self.virtual_time, 0, 0),
        }
    }

    pub(super) fn place(&mut self, order: Order) -> &mut u32 {
        match order {
            Order::Waiting | Order::Eligible => &mut self.real_time_place,
            Order::Fit | Order::Unfit => &mut self.sharing_place,
            Order::Last => &mut self.last_place,
        }
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
        self.real_time_place = NOWHERE;
        self.sharing_place = NOWHERE;
        self.last_place = NOWHERE;
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

    /// Number of classes directly below.
    pub(super) fn children(&self) -> usize {
        self.below.iter().map(|&count| count as usize).sum()
    }
}
