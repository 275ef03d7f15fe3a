//! Which class of a `qfq` is next. Knows classes by their slots, and packets by their lengths.
//!
//! Virtual time `V` advances by `L / W` as a packet of `L` bytes is sent, where `W` is the sum of
//! all weights. An aggregate of weight `w` and budget `B` that starts at `S` finishes at
//! `F = S + B / w`. It is eligible once `S <= V`, and of those that are eligible one with the least
//! `F`, approximately, is served. Approximately: aggregates are in groups by `B / w`, the slot size
//! rounded up to a power of two, and a group's time is rounded down to slots. So a group has few
//! slots, which are a bit map of lists, and groups are always sorted by their finish times except
//! for those that are blocked. A group is in one of four sets, each a bit map (the papers' `ER`,
//! `IR`, `EB` and `IB`): eligible or not, and ready or blocked by one of a higher index that is
//! eligible and finishes earlier. The lowest group that is eligible and ready is served, and
//! within it the first aggregate of the first slot.
//!
//! All times are fixed point with 30 fractional bits, and wrap.

use super::aggregate::{Aggregate, MOST_CLASSES, NONE, ONE, Open};
use super::groups::Groups;

/// The aggregate of a class that is in none: there are as many as classes at most, 65,535.
const NO_AGGREGATE: u16 = u16::MAX;

/// A class: four in a cache line.
#[derive(Clone, Debug)]
struct Class {
    /// Bytes that it may still send in its turn.
    deficit: i64,
    /// Bytes of the longest packet, as its aggregate has them.
    longest: u32,
    aggregate: u16,
    /// Place in its aggregate.
    seat: u8,
    /// It has packets, and so turns.
    listed: bool,
}
const _: () = assert!(size_of::<Class>() == 16);

#[derive(Debug)]
pub(super) struct Scheduler {
    classes: Vec<Class>,
    /// As many as classes: each has one at most.
    aggregates: Vec<Aggregate>,
    free: Vec<u32>,
    open: Open,
    groups: Groups,
    in_service: Option<u32>,
    weights: u64,
    /// Inverse of the sum of weights.
    inverse: u64,
    /// Classes of an aggregate at most.
    most_classes: u32,
    /// Classes with packets.
    active: usize,
}

impl Scheduler {
    pub(super) fn new(tx_queue_len: u32) -> Scheduler {
        let log = tx_queue_len.saturating_add(1).min(MOST_CLASSES).ilog2();
        Scheduler {
            classes: Vec::new(),
            aggregates: Vec::new(),
            free: Vec::new(),
            open: Open::default(),
            groups: Groups::new(log),
            in_service: None,
            weights: 0,
            inverse: 0,
            most_classes: 1 << log,
            active: 0,
        }
    }

    /// True if a class has packets.
    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }

    fn of(&self, slot: usize) -> &Aggregate {
        &self.aggregates[usize::from(self.classes[slot].aggregate)]
    }

    /// Bytes of the longest packet of a class.
    #[inline]
    pub(super) fn longest(&self, slot: usize) -> u32 {
        self.classes[slot].longest
    }

    pub(super) fn weight(&self, slot: usize) -> u32 {
        self.of(slot).weight
    }

    /// There is a class without packets.
    pub(super) fn add(&mut self, slot: usize, weight: u32, longest: u32) {
        let class = Class {
            deficit: longest.into(),
            longest,
            aggregate: NO_AGGREGATE,
            seat: 0,
            listed: false,
        };
        if self.classes.len() <= slot {
            self.classes.resize(slot + 1, class);
        } else {
            self.classes[slot] = class;
        }
        while self.aggregates.len() < self.classes.len() {
            self.free.push(self.aggregates.len() as u32);
            self.aggregates.push(Aggregate::default());
        }
        let count = self.aggregates.len();
        self.open.grow(&mut self.aggregates, &self.free, count);
        self.join(slot, weight, longest);
    }

    /// A class that has no packets is no more.
    pub(super) fn remove(&mut self, slot: usize) {
        self.leave(slot);
    }

    /// A class has another weight or longest packet.
    pub(super) fn change(&mut self, slot: usize, weight: u32, longest: u32) {
        if (self.weight(slot), self.longest(slot)) == (weight, longest) {
            return;
        }
        let listed = self.classes[slot].listed;
        if listed {
            self.deactivate(slot);
        }
        self.leave(slot);
        self.join(slot, weight, longest);
        if listed {
            self.list(slot);
        }
    }

    /// A class comes into an aggregate (`qfq_add_to_agg`).
    fn join(&mut self, slot: usize, weight: u32, longest: u32) {
        let found = self.open.find(&self.aggregates, weight, longest);
        let at = found.unwrap_or_else(|| {
            // One for each class: none is without where another is to have one.
            let at = self.free.pop().unwrap_or(0);
            self.aggregates[at as usize] = Aggregate::new(weight, longest);
            self.open.add(&mut self.aggregates, at);
            at
        });
        let aggregate = &mut self.aggregates[at as usize];
        let (seat, classes) = (aggregate.seat(slot), aggregate.classes);
        let class = &mut self.classes[slot];
        (class.aggregate, class.longest, class.seat) = (at as u16, longest, seat);
        self.resize(at, classes + 1);
    }

    /// An aggregate has so many classes from now on (`qfq_update_agg`).
    fn resize(&mut self, at: u32, classes: u32) {
        let before = self.aggregates[at as usize].classes;
        if classes == self.most_classes {
            self.open.remove(&mut self.aggregates, at);
        } else if before == self.most_classes {
            self.open.add(&mut self.aggregates, at);
        }
        let aggregate = &mut self.aggregates[at as usize];
        aggregate.classes = classes;
        aggregate.most = u64::from(classes) * u64::from(aggregate.longest);
        aggregate.inverse = ONE / (u64::from(aggregate.weight) * u64::from(classes)).max(1);
        if aggregate.group == NONE {
            aggregate.group = self.groups.of_size(aggregate.most * aggregate.inverse);
        }
        self.weights += u64::from(aggregate.weight) * u64::from(classes);
        self.weights -= u64::from(aggregate.weight) * u64::from(before);
        self.inverse = ONE / self.weights.max(1);
    }

    /// A class without packets goes out of its aggregate (`qfq_rm_from_agg`).
    fn leave(&mut self, slot: usize) {
        let at = std::mem::replace(&mut self.classes[slot].aggregate, NO_AGGREGATE);
        let at = u32::from(at);
        let aggregate = &mut self.aggregates[at as usize];
        aggregate.unseat(self.classes[slot].seat);
        let (classes, weight) = (aggregate.classes, aggregate.weight);
        if classes > 1 {
            self.resize(at, classes - 1);
            return;
        }
        // With room for one class, it is in no chain while it has it.
        if self.most_classes > 1 {
            self.open.remove(&mut self.aggregates, at);
        }
        self.weights -= u64::from(weight);
        self.inverse = ONE / self.weights.max(1);
        if self.in_service == Some(at) {
            self.in_service = self.groups.choose(&mut self.aggregates);
        }
        self.free.push(at);
    }

    /// A class has packets; nothing happens if it had some.
    #[inline]
    pub(super) fn activate(&mut self, slot: usize) {
        let class = &mut self.classes[slot];
        if class.listed {
            return;
        }
        class.deficit = class.longest.into();
        self.list(slot);
    }

    /// Puts a class behind those of its aggregate that have packets.
    #[inline]
    fn list(&mut self, slot: usize) {
        let class = &mut self.classes[slot];
        class.listed = true;
        self.active += 1;
        let at = u32::from(class.aggregate);
        let aggregate = &mut self.aggregates[at as usize];
        let is_first = !aggregate.is_active();
        aggregate.push(class.seat);
        if is_first && self.in_service != Some(at) {
            self.activate_aggregate(at);
        }
    }

    /// A class has no packets, other than by service; nothing happens if it had none.
    pub(super) fn deactivate(&mut self, slot: usize) {
        let Some(class) = self.classes.get(slot) else {
            return;
        };
        if !class.listed {
            return;
        }
        let at = u32::from(class.aggregate);
        self.suspend(slot);
        if !self.aggregates[at as usize].is_active() {
            self.deactivate_aggregate(at);
        }
    }

    /// A class of the aggregate in service has no packet to send.
    #[inline]
    pub(super) fn suspend(&mut self, slot: usize) {
        let class = &mut self.classes[slot];
        class.listed = false;
        self.active -= 1;
        self.aggregates[usize::from(class.aggregate)].take(class.seat);
    }

    /// The class to serve next of the aggregate in service, if that has one.
    #[inline]
    pub(super) fn candidate(&self) -> Option<usize> {
        self.aggregates[self.in_service? as usize].first()
    }

    /// The class that is next there when that has no more turns.
    #[inline]
    pub(super) fn second(&self) -> Option<usize> {
        self.aggregates[self.in_service? as usize].second()
    }

    /// Bytes that a class may still send in its turn.
    #[inline]
    pub(super) fn deficit(&self, slot: usize) -> i64 {
        self.classes[slot].deficit
    }

    /// Bytes that the aggregate in service may still send.
    #[inline]
    pub(super) fn budget(&self) -> u64 {
        self.in_service
            .map_or(0, |at| self.aggregates[at as usize].budget)
    }

    /// The class sent a packet, or as many as its deficit allowed; `next` is the length of its next
    /// one.
    #[inline]
    pub(super) fn charge(&mut self, slot: usize, bytes: u64, next: Option<u64>) {
        let class = &mut self.classes[slot];
        let aggregate = &mut self.aggregates[usize::from(class.aggregate)];
        aggregate.budget = aggregate.budget.saturating_sub(bytes);
        let sent = i64::try_from(bytes).unwrap_or(i64::MAX);
        class.deficit = class.deficit.saturating_sub(sent);
        match next {
            None => self.suspend(slot),
            Some(next) if class.deficit < i64::try_from(next).unwrap_or(i64::MAX) => {
                class.deficit += i64::from(class.longest);
                aggregate.take(class.seat);
                aggregate.push(class.seat);
            }
            Some(_) => {}
        }
        self.groups.advance(bytes.wrapping_mul(self.inverse));
    }

    /// Chooses the next aggregate to serve. False: there is none.
    pub(super) fn next(&mut self) -> bool {
        if let Some(at) = self.in_service {
            let aggregate = &mut self.aggregates[at as usize];
            aggregate.settle();
            if aggregate.is_active() {
                aggregate.start_at(aggregate.finish);
                self.groups.schedule(&mut self.aggregates, at);
            }
        }
        self.in_service = self.groups.choose(&mut self.aggregates);
        self.in_service.is_some()
    }

    /// No class has packets: the service of the last aggregate ends.
    #[inline]
    pub(super) fn rest(&mut self) {
        if let Some(at) = self.in_service.take() {
            self.aggregates[at as usize].settle();
        }
    }

    /// An aggregate has got packets.
    fn activate_aggregate(&mut self, at: u32) {
        let aggregate = &mut self.aggregates[at as usize];
        let start = self.groups.new_start(aggregate);
        aggregate.renew();
        aggregate.start_at(start);
        if self.in_service.is_none() {
            self.in_service = Some(at);
            self.groups.restart_at(start);
        } else {
            self.groups.schedule(&mut self.aggregates, at);
        }
    }

    /// An aggregate has no packets any more, other than by service.
    fn deactivate_aggregate(&mut self, at: u32) {
        if self.in_service == Some(at) {
            self.aggregates[at as usize].settle();
            self.in_service = self.groups.choose(&mut self.aggregates);
        } else {
            self.groups.unschedule(&mut self.aggregates, at);
        }
    }

    /// No class has packets any more.
    pub(super) fn clear(&mut self) {
        for slot in 0..self.classes.len() {
            self.deactivate(slot);
        }
        self.rest();
    }
}

#[cfg(test)]
impl Scheduler {
    /// Each class with packets can be found, and bit maps are as the groups are.
    pub(super) fn assert_consistent(&self, has_packets: impl Fn(usize) -> bool) {
        let mut listed = 0;
        for (slot, class) in self.classes.iter().enumerate() {
            if class.aggregate != NO_AGGREGATE {
                assert_eq!(class.listed, has_packets(slot), "class {slot}");
                listed += usize::from(class.listed);
            }
        }
        assert_eq!(listed, self.active);
        // An aggregate without packets is in service until a call finds nothing to send.
        assert!(self.active == 0 || self.in_service.is_some());
        let scheduled = self.groups.assert_consistent(&self.aggregates);
        let with = |(at, aggregate): (usize, &Aggregate)| {
            let in_use = aggregate.classes > 0 && !self.free.contains(&(at as u32));
            in_use && aggregate.is_active() && self.in_service != Some(at as u32)
        };
        let with = self.aggregates.iter().enumerate().filter(|&a| with(a));
        assert_eq!(with.count(), scheduled, "each is in one slot");
    }
}
