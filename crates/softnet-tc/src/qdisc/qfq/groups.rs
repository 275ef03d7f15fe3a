//! Groups of aggregates, sorted by the times at which they start and finish: which aggregate of a
//! `qfq` is next. [`scheduler`](super::scheduler) says how.

use super::aggregate::{Aggregate, FRACTION, NONE};

/// The group of the highest index has aggregates of the largest slots.
const LAST_GROUP: u32 = 24;
/// Slots of a group at most.
const SLOTS: usize = 32;
/// Logarithm of the longest packet.
const LOG_LONGEST: u32 = 16;

/// The sets that groups are in.
const READY: usize = 0;
const INELIGIBLE: usize = 1;
const BLOCKED: usize = 2;

/// True if `a` is later than `b`.
#[inline]
fn later(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// The start of the slot that a time is in.
#[inline]
fn round_down(time: u64, shift: u32) -> u64 {
    time >> shift << shift
}

/// The bits from this one on.
#[inline]
fn from(bit: u32) -> u32 {
    u32::MAX.checked_shl(bit).unwrap_or(0)
}

/// Aggregates whose slots are of one size.
#[derive(Debug)]
struct Group {
    start: u64,
    finish: u64,
    /// Logarithm of the size of a slot.
    shift: u32,
    /// The slot that bit 0 of `full` is about.
    front: usize,
    /// The slots that have aggregates, from the front one on.
    full: u64,
    /// The first aggregate of each slot.
    slots: [u32; SLOTS],
}

impl Group {
    fn set_start(&mut self, start: u64) {
        self.start = start;
        self.finish = start.wrapping_add(2 << self.shift);
    }

    /// The first aggregate of the first slot that has some, which is the front one from now on.
    fn scan(&mut self) -> Option<u32> {
        if self.full == 0 {
            return None;
        }
        let ahead = self.full.trailing_zeros();
        self.front = (self.front + ahead as usize) % SLOTS;
        self.full >>= ahead;
        Some(self.slots[self.front])
    }

    /// Makes room for so many slots in front. False: there is none.
    fn make_room(&mut self, slots: u64) -> bool {
        let used = u64::from(u64::BITS - self.full.leading_zeros());
        if slots.saturating_add(used) > SLOTS as u64 {
            return false;
        }
        self.front = (self.front + SLOTS - slots as usize) % SLOTS;
        self.full <<= slots;
        true
    }

    /// Takes an aggregate out of the slot that is so many after the front one.
    fn take(&mut self, aggregates: &mut [Aggregate], at: u32, offset: usize) {
        let Aggregate { before, after, .. } = aggregates[at as usize];
        let slot = (self.front + offset) % SLOTS;
        match before {
            NONE => self.slots[slot] = after,
            before => aggregates[before as usize].after = after,
        }
        if after != NONE {
            aggregates[after as usize].before = before;
        }
        if self.slots[slot] == NONE {
            self.full &= !(1 << offset);
        }
        let aggregate = &mut aggregates[at as usize];
        (aggregate.before, aggregate.after) = (NONE, NONE);
    }

    /// Puts an aggregate into the slot that is so many after the front one.
    fn put(&mut self, aggregates: &mut [Aggregate], at: u32, offset: usize) {
        let slot = (self.front + offset) % SLOTS;
        let head = std::mem::replace(&mut self.slots[slot], at);
        self.full |= 1 << offset;
        let aggregate = &mut aggregates[at as usize];
        (aggregate.before, aggregate.after) = (NONE, head);
        if head != NONE {
            aggregates[head as usize].before = at;
        }
    }
}

/// The groups, and virtual time.
#[derive(Debug)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// Bit maps of groups: ready, ineligible, blocked, and both of the latter.
    sets: [u32; 4],
    virtual_time: u64,
    /// That at which an aggregate was last chosen.
    chosen_at: u64,
    /// Logarithm of the size of the least slots.
    least_shift: u32,
}

impl Groups {
    /// For aggregates of at most 2 to the power of `log` classes.
    pub(super) fn new(log: u32) -> Groups {
        let least_shift = FRACTION + LOG_LONGEST + log - LAST_GROUP;
        let group = |index| Group {
            start: 0,
            finish: 0,
            shift: least_shift + index,
            front: 0,
            full: 0,
            slots: [NONE; SLOTS],
        };
        Groups {
            groups: (0..=LAST_GROUP).map(group).collect(),
            sets: [0; 4],
            virtual_time: 0,
            chosen_at: 0,
            least_shift,
        }
    }

    /// The group of an aggregate that finishes so long after it starts.
    pub(super) fn of_size(&self, size: u64) -> u32 {
        // The logarithm of the slot's size, rounded up.
        let log = size.max(1).next_power_of_two().ilog2();
        log.saturating_sub(self.least_shift).min(LAST_GROUP)
    }

    /// Virtual time passes.
    #[inline]
    pub(super) fn advance(&mut self, by: u64) {
        self.virtual_time = self.virtual_time.wrapping_add(by);
    }

    /// Virtual time is this one, as no aggregate is served.
    pub(super) fn restart_at(&mut self, time: u64) {
        (self.virtual_time, self.chosen_at) = (time, time);
    }

    /// Takes the aggregate out of the schedule that is to be served (`qfq_choose_next_agg`).
    pub(super) fn choose(&mut self, aggregates: &mut [Aggregate]) -> Option<u32> {
        self.update_eligible();
        if self.sets[READY] == 0 {
            self.unblock_orphans();
        }
        self.chosen_at = self.virtual_time;
        if self.sets[READY] == 0 {
            return None;
        }
        let index = self.sets[READY].trailing_zeros();
        let group = &mut self.groups[index as usize];
        let finish = group.finish;
        let at = group.slots[group.front];
        group.take(aggregates, at, 0);
        match group.scan() {
            None => self.sets[READY] &= !(1 << index),
            Some(front) => {
                let start = round_down(aggregates[front as usize].start, group.shift);
                if group.start == start {
                    return Some(at);
                }
                group.set_start(start);
                self.sets[READY] &= !(1 << index);
                self.enter(index);
            }
        }
        self.unblock(index, finish);
        Some(at)
    }

    /// Puts a group into the set that its times call for.
    fn enter(&mut self, index: u32) {
        let group = &self.groups[index as usize];
        let mut set = READY;
        if later(group.start, self.virtual_time) {
            set |= INELIGIBLE;
        }
        let above = self.sets[READY] & from(index);
        if above != 0 {
            let next = &self.groups[above.trailing_zeros() as usize];
            if later(group.finish, next.finish) {
                set |= BLOCKED;
            }
        }
        self.sets[set] |= 1 << index;
    }

    /// Takes a group out of the set that it is in.
    fn leave(&mut self, index: u32) {
        self.sets.iter_mut().for_each(|set| *set &= !(1 << index));
    }

    fn move_groups(&mut self, mask: u32, from: usize, to: usize) {
        self.sets[to] |= self.sets[from] & mask;
        self.sets[from] &= !mask;
    }

    fn unblock_below(&mut self, mask: u32) {
        self.move_groups(mask, BLOCKED, READY);
        self.move_groups(mask, BLOCKED | INELIGIBLE, INELIGIBLE);
    }

    /// A group that finished then is ready no more, or finishes later: what it blocked may be
    /// ready.
    fn unblock(&mut self, index: u32, finish: u64) {
        let above = self.sets[READY] & from(index + 1);
        if above != 0 {
            let next = &self.groups[above.trailing_zeros() as usize];
            if !later(next.finish, finish) {
                return;
            }
        }
        self.unblock_below(!from(index));
    }

    /// None is ready: what blocked a group has gone other than by service.
    fn unblock_orphans(&mut self) {
        self.unblock_below(u32::MAX);
        let ineligible = self.sets[INELIGIBLE];
        if self.sets[READY] == 0 && ineligible != 0 {
            let first = ineligible.trailing_zeros();
            let start = self.groups[first as usize].start;
            if later(start, self.virtual_time) {
                self.virtual_time = start;
            }
            self.move_groups(1 << first, INELIGIBLE, READY);
        }
    }

    /// A group above these is another one, or gone: those that are blocked may be so no more.
    fn enter_again(&mut self, below: u32) {
        for index in (0..below).rev() {
            let bit = 1 << index;
            if (self.sets[BLOCKED] | self.sets[BLOCKED | INELIGIBLE]) & bit != 0 {
                self.leave(index);
                self.enter(index);
            }
        }
    }

    /// Makes those groups eligible that have started. If none would be, virtual time jumps to the
    /// first start.
    fn update_eligible(&mut self) {
        let ineligible = self.sets[INELIGIBLE] | self.sets[INELIGIBLE | BLOCKED];
        if ineligible == 0 {
            return;
        }
        if self.sets[READY] == 0 {
            let start = self.groups[ineligible.trailing_zeros() as usize].start;
            if later(start, self.virtual_time) {
                self.virtual_time = start;
            }
        }
        let slot = self.virtual_time >> self.least_shift;
        let before = self.chosen_at >> self.least_shift;
        if slot == before {
            return;
        }
        // Groups up to the highest bit that has changed have a slot that has started since.
        let changed = (slot ^ before).ilog2() + 1;
        let mask = !from(changed);
        self.move_groups(mask, INELIGIBLE, READY);
        self.move_groups(mask, INELIGIBLE | BLOCKED, BLOCKED);
    }

    /// The start of an aggregate that has got packets (`qfq_update_start`): where it finished, if
    /// that is still to come, else now; but not so early that it would be served before one that
    /// blocks it.
    pub(super) fn new_start(&self, aggregate: &Aggregate) -> u64 {
        let shift = self.groups[aggregate.group as usize].shift;
        let finish = round_down(aggregate.finish, shift);
        let limit = round_down(self.virtual_time, shift).wrapping_add(1 << shift);
        let is_current = later(aggregate.finish, self.virtual_time) && !later(finish, limit);
        if is_current {
            return aggregate.finish;
        }
        let above = self.sets[READY] & from(aggregate.group);
        if above != 0 {
            let next = self.groups[above.trailing_zeros() as usize].finish;
            if later(finish, next) {
                return if later(limit, next) { next } else { limit };
            }
        }
        self.virtual_time
    }

    /// Puts an aggregate into the slot of its start, while another one is served, or it is that
    /// one (`qfq_schedule_agg`).
    pub(super) fn schedule(&mut self, aggregates: &mut [Aggregate], at: u32) {
        let aggregate = &mut aggregates[at as usize];
        let index = aggregate.group;
        let group = &mut self.groups[index as usize];
        let shift = group.shift;
        let mut start = round_down(aggregate.start, shift);
        if group.full == 0 {
            group.set_start(start);
            self.enter(index);
        } else if later(group.start, aggregate.start) {
            let back = group.start.wrapping_sub(start) >> shift;
            if group.make_room(back) {
                group.set_start(start);
                // It was not eligible.
                self.leave(index);
                self.enter(index);
            } else {
                aggregate.shift(group.start.wrapping_sub(start));
                start = group.start;
            }
        }
        let group = &mut self.groups[index as usize];
        // So that there is room for one more slot in front. Changes of parameters alone, and
        // service out of order, bring an aggregate so far behind.
        let most = SLOTS as u64 - 2;
        let mut offset = start.wrapping_sub(group.start) >> shift;
        if offset > most {
            let excess = (offset - most) << shift;
            aggregate.shift(0_u64.wrapping_sub(excess));
            offset = most;
        }
        group.put(aggregates, at, offset as usize);
    }

    /// Takes an aggregate out of the schedule that has no packets any more, other than by service
    /// (`qfq_deactivate_agg`).
    pub(super) fn unschedule(&mut self, aggregates: &mut [Aggregate], at: u32) {
        let aggregate = &mut aggregates[at as usize];
        let (index, start) = (aggregate.group, aggregate.start);
        aggregate.finish = start;
        let group = &mut self.groups[index as usize];
        let slot = round_down(start, group.shift);
        let offset = slot.wrapping_sub(group.start) >> group.shift;
        group.take(aggregates, at, offset as usize % SLOTS);
        let Some(front) = group.scan() else {
            self.leave(index);
            self.enter_again(index);
            return;
        };
        let start = round_down(aggregates[front as usize].start, group.shift);
        if group.start != start {
            group.set_start(start);
            self.leave(index);
            self.enter(index);
            self.enter_again(index);
        }
    }
}

#[cfg(test)]
impl Groups {
    /// Bit maps are as the groups are. Returns how many aggregates are scheduled.
    pub(super) fn assert_consistent(&self, aggregates: &[Aggregate]) -> usize {
        let mut scheduled = 0;
        for (index, group) in self.groups.iter().enumerate() {
            let sets = self.sets.iter().filter(|set| **set & 1 << index != 0);
            assert_eq!(sets.count(), usize::from(group.full != 0), "group {index}");
            for offset in 0..SLOTS {
                let mut at = group.slots[(group.front + offset) % SLOTS];
                assert_eq!(at != NONE, group.full & 1 << offset != 0);
                while at != NONE {
                    let aggregate = &aggregates[at as usize];
                    assert_eq!(aggregate.group as usize, index);
                    assert!(aggregate.is_active(), "scheduled without packets");
                    scheduled += 1;
                    at = aggregate.after;
                }
            }
        }
        scheduled
    }
}
