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

/// Fractional bits of virtual times.
const FRACTION: u32 = 30;
const ONE: u64 = 1 << FRACTION;
/// The group of the highest index has aggregates of the largest slots.
const LAST_GROUP: u32 = 24;
/// Slots of a group at most.
const SLOTS: usize = 32;
/// Logarithm of the longest packet.
const LOG_LONGEST: u32 = 16;
/// Classes of an aggregate at most.
const MOST_CLASSES: u32 = 8;

/// The link of what is in no list, or the last.
const NONE: u32 = u32::MAX;

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

/// A class.
#[derive(Clone, Debug)]
struct Class {
    aggregate: u32,
    /// Bytes of the longest packet, as its aggregate has them.
    longest: u32,
    /// Bytes that it may still send in its turn.
    deficit: i64,
    /// Links of the classes of an aggregate that have packets.
    before: u32,
    after: u32,
    listed: bool,
}

/// Classes of one weight and longest packet.
#[derive(Clone, Debug, Default)]
struct Aggregate {
    start: u64,
    finish: u64,
    group: u32,
    /// Weight of each class.
    weight: u32,
    /// Bytes of the longest packet: the quantum of each class.
    longest: u32,
    /// Inverse of the weight of all classes.
    inverse: u64,
    /// Bytes that it may send each time that it is served.
    most: u64,
    /// Bytes that it may still send, and those that it was given.
    budget: u64,
    given: u64,
    classes: u32,
    /// Classes with packets.
    first: u32,
    last: u32,
    /// Links of the aggregates of a slot.
    before: u32,
    after: u32,
    /// Links of the aggregates in one chain of the table, while there is room for more classes.
    open_before: u32,
    open_after: u32,
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

/// Aggregates with room for another class, by weight and longest packet: chains of a hash table.
#[derive(Debug, Default)]
struct Open {
    heads: Vec<u32>,
}

impl Open {
    fn chain(&self, weight: u32, longest: u32) -> usize {
        let key = u64::from(longest) << 32 | u64::from(weight);
        // Fibonacci hashing.
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        hash as usize & (self.heads.len() - 1)
    }

    fn find(&self, aggregates: &[Aggregate], weight: u32, longest: u32) -> Option<u32> {
        let mut at = self.heads[self.chain(weight, longest)];
        while at != NONE {
            let aggregate = &aggregates[at as usize];
            if (aggregate.weight, aggregate.longest) == (weight, longest) {
                return Some(at);
            }
            at = aggregate.open_after;
        }
        None
    }

    fn add(&mut self, aggregates: &mut [Aggregate], at: u32) {
        let Aggregate {
            weight, longest, ..
        } = aggregates[at as usize];
        let chain = self.chain(weight, longest);
        let head = std::mem::replace(&mut self.heads[chain], at);
        let aggregate = &mut aggregates[at as usize];
        (aggregate.open_before, aggregate.open_after) = (NONE, head);
        if head != NONE {
            aggregates[head as usize].open_before = at;
        }
    }

    fn remove(&mut self, aggregates: &mut [Aggregate], at: u32) {
        let Aggregate {
            weight,
            longest,
            open_before,
            open_after,
            ..
        } = aggregates[at as usize];
        let chain = self.chain(weight, longest);
        if open_before != NONE {
            aggregates[open_before as usize].open_after = open_after;
        } else if self.heads[chain] == at {
            self.heads[chain] = open_after;
        }
        if open_after != NONE {
            aggregates[open_after as usize].open_before = open_before;
        }
        let aggregate = &mut aggregates[at as usize];
        (aggregate.open_before, aggregate.open_after) = (NONE, NONE);
    }

    /// Chains for so many aggregates.
    fn grow(&mut self, aggregates: &mut [Aggregate], free: &[u32], count: usize) {
        let size = count.next_power_of_two();
        if self.heads.len() >= size {
            return;
        }
        // In the order in which they are now, the first of a chain last.
        let mut listed = Vec::new();
        for &head in &self.heads {
            let at = listed.len();
            let mut next = head;
            while next != NONE {
                listed.push(next);
                next = aggregates[next as usize].open_after;
            }
            listed[at..].reverse();
        }
        debug_assert!(listed.iter().all(|at| !free.contains(at)));
        self.heads = vec![NONE; size];
        for at in listed {
            self.add(aggregates, at);
        }
    }
}

#[derive(Debug)]
pub(super) struct Scheduler {
    classes: Vec<Class>,
    /// As many as classes: each has one at most.
    aggregates: Vec<Aggregate>,
    free: Vec<u32>,
    open: Open,
    groups: Vec<Group>,
    /// Bit maps of groups: ready, ineligible, blocked, and both of the latter.
    sets: [u32; 4],
    virtual_time: u64,
    /// That at which an aggregate was last chosen.
    chosen_at: u64,
    in_service: Option<u32>,
    weights: u64,
    /// Inverse of the sum of weights.
    inverse: u64,
    /// Classes of an aggregate at most.
    most_classes: u32,
    /// Logarithm of the size of the least slots.
    least_shift: u32,
    /// Classes with packets.
    active: usize,
}

impl Scheduler {
    pub(super) fn new(tx_queue_len: u32) -> Scheduler {
        let log = tx_queue_len.saturating_add(1).min(MOST_CLASSES).ilog2();
        let least_shift = FRACTION + LOG_LONGEST + log - LAST_GROUP;
        let group = |index| Group {
            start: 0,
            finish: 0,
            shift: least_shift + index,
            front: 0,
            full: 0,
            slots: [NONE; SLOTS],
        };
        Scheduler {
            classes: Vec::new(),
            aggregates: Vec::new(),
            free: Vec::new(),
            open: Open {
                heads: vec![NONE; 1],
            },
            groups: (0..=LAST_GROUP).map(group).collect(),
            sets: [0; 4],
            virtual_time: 0,
            chosen_at: 0,
            in_service: None,
            weights: 0,
            inverse: 0,
            most_classes: 1 << log,
            least_shift,
            active: 0,
        }
    }

    /// True if a class has packets.
    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }

    fn of(&self, slot: usize) -> &Aggregate {
        &self.aggregates[self.classes[slot].aggregate as usize]
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
            aggregate: NONE,
            longest,
            deficit: longest.into(),
            before: NONE,
            after: NONE,
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
            self.aggregates[at as usize] = Aggregate {
                weight,
                longest,
                group: NONE,
                first: NONE,
                last: NONE,
                before: NONE,
                after: NONE,
                ..Aggregate::default()
            };
            self.open.add(&mut self.aggregates, at);
            at
        });
        (self.classes[slot].aggregate, self.classes[slot].longest) = (at, longest);
        self.resize(at, self.aggregates[at as usize].classes + 1);
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
            let size = aggregate.most * aggregate.inverse;
            // The logarithm of the slot's size, rounded up.
            let log = size.max(1).next_power_of_two().ilog2();
            let index = log.saturating_sub(self.least_shift);
            aggregate.group = index.min(LAST_GROUP);
        }
        self.weights += u64::from(aggregate.weight) * u64::from(classes);
        self.weights -= u64::from(aggregate.weight) * u64::from(before);
        self.inverse = ONE / self.weights.max(1);
    }

    /// A class without packets goes out of its aggregate (`qfq_rm_from_agg`).
    fn leave(&mut self, slot: usize) {
        let at = self.classes[slot].aggregate;
        self.classes[slot].aggregate = NONE;
        let Aggregate {
            classes, weight, ..
        } = self.aggregates[at as usize];
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
            self.in_service = self.choose();
        }
        self.free.push(at);
    }

    /// A class has packets; nothing happens if it had some.
    #[inline]
    pub(super) fn activate(&mut self, slot: usize) {
        if self.classes[slot].listed {
            return;
        }
        self.classes[slot].deficit = self.longest(slot).into();
        self.list(slot);
    }

    /// Puts a class behind those of its aggregate that have packets.
    fn list(&mut self, slot: usize) {
        self.active += 1;
        self.push(slot);
        let at = self.classes[slot].aggregate;
        let is_first = self.aggregates[at as usize].first == slot as u32;
        if is_first && self.in_service != Some(at) {
            self.activate_aggregate(at);
        }
    }

    fn push(&mut self, slot: usize) {
        let at = self.classes[slot].aggregate as usize;
        let last = std::mem::replace(&mut self.aggregates[at].last, slot as u32);
        if last == NONE {
            self.aggregates[at].first = slot as u32;
        } else {
            self.classes[last as usize].after = slot as u32;
        }
        let class = &mut self.classes[slot];
        (class.before, class.after, class.listed) = (last, NONE, true);
    }

    fn unlink(&mut self, slot: usize) {
        let Class {
            aggregate,
            before,
            after,
            ..
        } = self.classes[slot];
        let aggregate = &mut self.aggregates[aggregate as usize];
        match before {
            NONE => aggregate.first = after,
            before => self.classes[before as usize].after = after,
        }
        match after {
            NONE => aggregate.last = before,
            after => self.classes[after as usize].before = before,
        }
        self.classes[slot].listed = false;
    }

    /// A class has no packets, other than by service; nothing happens if it had none.
    pub(super) fn deactivate(&mut self, slot: usize) {
        let Some(class) = self.classes.get(slot) else {
            return;
        };
        if !class.listed {
            return;
        }
        let at = class.aggregate;
        self.active -= 1;
        self.unlink(slot);
        if self.aggregates[at as usize].first == NONE {
            self.deactivate_aggregate(at);
        }
    }

    /// A class of the aggregate in service has no packet to send.
    pub(super) fn suspend(&mut self, slot: usize) {
        self.active -= 1;
        self.unlink(slot);
    }

    /// The class to serve next of the aggregate in service, if that has one.
    #[inline]
    pub(super) fn candidate(&self) -> Option<usize> {
        let first = self.aggregates[self.in_service? as usize].first;
        (first != NONE).then_some(first as usize)
    }

    /// Bytes that the aggregate in service may still send.
    #[inline]
    pub(super) fn budget(&self) -> u64 {
        self.in_service
            .map_or(0, |at| self.aggregates[at as usize].budget)
    }

    /// The class sent a packet; `next` is the length of its next one.
    #[inline]
    pub(super) fn charge(&mut self, slot: usize, bytes: u64, next: Option<u64>) {
        let at = self.classes[slot].aggregate as usize;
        let class = &mut self.classes[slot];
        let sent = i64::try_from(bytes).unwrap_or(i64::MAX);
        class.deficit = class.deficit.saturating_sub(sent);
        match next {
            None => self.suspend(slot),
            Some(next) if class.deficit < i64::try_from(next).unwrap_or(i64::MAX) => {
                class.deficit += i64::from(class.longest);
                self.unlink(slot);
                self.push(slot);
            }
            Some(_) => {}
        }
        let aggregate = &mut self.aggregates[at];
        aggregate.budget = aggregate.budget.saturating_sub(bytes);
        let advance = bytes.wrapping_mul(self.inverse);
        self.virtual_time = self.virtual_time.wrapping_add(advance);
    }

    /// Ends the service of an aggregate: its finish time follows from what it has sent.
    fn settle(&mut self, at: u32) {
        let aggregate = &mut self.aggregates[at as usize];
        // With fewer classes than before it may have been given more than it is given now.
        let sent = (aggregate.given - aggregate.budget).min(aggregate.most);
        aggregate.finish = aggregate.start.wrapping_add(sent * aggregate.inverse);
        (aggregate.given, aggregate.budget) = (aggregate.most, aggregate.most);
    }

    /// Chooses the next aggregate to serve. False: there is none.
    pub(super) fn next(&mut self) -> bool {
        if let Some(at) = self.in_service {
            self.settle(at);
            let aggregate = &mut self.aggregates[at as usize];
            if aggregate.first != NONE {
                aggregate.start = aggregate.finish;
                let time = aggregate.most * aggregate.inverse;
                aggregate.finish = aggregate.start.wrapping_add(time);
                self.schedule(at);
            }
        }
        self.in_service = self.choose();
        self.in_service.is_some()
    }

    /// No class has packets: the service of the last aggregate ends.
    #[inline]
    pub(super) fn rest(&mut self) {
        if let Some(at) = self.in_service.take() {
            self.settle(at);
        }
    }

    /// Takes the aggregate out of the schedule that is to be served (`qfq_choose_next_agg`).
    fn choose(&mut self) -> Option<u32> {
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
        self.take_from_slot(index, at, 0);
        let group = &mut self.groups[index as usize];
        match group.scan() {
            None => self.sets[READY] &= !(1 << index),
            Some(front) => {
                let start = round_down(self.aggregates[front as usize].start, group.shift);
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

    /// Takes an aggregate out of the slot that is so many after the front one.
    fn take_from_slot(&mut self, group: u32, at: u32, offset: usize) {
        let group = &mut self.groups[group as usize];
        let Aggregate { before, after, .. } = self.aggregates[at as usize];
        let slot = (group.front + offset) % SLOTS;
        match before {
            NONE => group.slots[slot] = after,
            before => self.aggregates[before as usize].after = after,
        }
        if after != NONE {
            self.aggregates[after as usize].before = before;
        }
        if group.slots[slot] == NONE {
            group.full &= !(1 << offset);
        }
        let aggregate = &mut self.aggregates[at as usize];
        (aggregate.before, aggregate.after) = (NONE, NONE);
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
                self.sets.iter_mut().for_each(|set| *set &= !bit);
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
    fn new_start(&self, at: u32) -> u64 {
        let aggregate = &self.aggregates[at as usize];
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

    /// An aggregate has got packets.
    fn activate_aggregate(&mut self, at: u32) {
        let start = self.new_start(at);
        let aggregate = &mut self.aggregates[at as usize];
        (aggregate.given, aggregate.budget) = (aggregate.most, aggregate.most);
        aggregate.start = start;
        aggregate.finish = start.wrapping_add(aggregate.most * aggregate.inverse);
        if self.in_service.is_none() {
            self.in_service = Some(at);
            (self.virtual_time, self.chosen_at) = (start, start);
        } else {
            self.schedule(at);
        }
    }

    /// Puts an aggregate into the slot of its start (`qfq_schedule_agg`).
    fn schedule(&mut self, at: u32) {
        let index = self.aggregates[at as usize].group;
        let bit = 1 << index;
        let aggregate = &mut self.aggregates[at as usize];
        let group = &mut self.groups[index as usize];
        let mut start = round_down(aggregate.start, group.shift);
        if group.full == 0 {
            if self.sets[READY] == 0
                && self.in_service.is_none()
                && later(start, self.virtual_time)
            {
                self.virtual_time = start;
            }
            group.set_start(start);
            self.enter(index);
        } else if later(group.start, aggregate.start) {
            let back = group.start.wrapping_sub(start) >> group.shift;
            if group.make_room(back) {
                group.set_start(start);
                // It was not eligible.
                self.sets.iter_mut().for_each(|set| *set &= !bit);
                self.enter(index);
            } else {
                aggregate.shift(group.start.wrapping_sub(start));
                start = group.start;
            }
        }
        let group = &mut self.groups[index as usize];
        let aggregate = &mut self.aggregates[at as usize];
        // So that there is room for one more slot in front. Changes of parameters alone, and
        // service out of order, bring an aggregate so far behind.
        let most = SLOTS as u64 - 2;
        let mut offset = start.wrapping_sub(group.start) >> group.shift;
        if offset > most {
            let excess = (offset - most) << group.shift;
            aggregate.shift(0_u64.wrapping_sub(excess));
            offset = most;
        }
        let slot = (group.front + offset as usize) % SLOTS;
        let head = std::mem::replace(&mut group.slots[slot], at);
        group.full |= 1 << offset;
        (aggregate.before, aggregate.after) = (NONE, head);
        if head != NONE {
            self.aggregates[head as usize].before = at;
        }
    }

    /// An aggregate has no packets any more, other than by service (`qfq_deactivate_agg`).
    fn deactivate_aggregate(&mut self, at: u32) {
        if self.in_service == Some(at) {
            self.settle(at);
            self.in_service = self.choose();
            return;
        }
        let index = self.aggregates[at as usize].group;
        let aggregate = &mut self.aggregates[at as usize];
        aggregate.finish = aggregate.start;
        let group = &self.groups[index as usize];
        let start = round_down(aggregate.start, group.shift);
        let offset = start.wrapping_sub(group.start) >> group.shift;
        self.take_from_slot(index, at, offset as usize % SLOTS);
        let group = &mut self.groups[index as usize];
        let Some(front) = group.scan() else {
            self.sets.iter_mut().for_each(|set| *set &= !(1 << index));
            self.enter_again(index);
            return;
        };
        let start = round_down(self.aggregates[front as usize].start, group.shift);
        if group.start != start {
            group.set_start(start);
            self.sets.iter_mut().for_each(|set| *set &= !(1 << index));
            self.enter(index);
            self.enter_again(index);
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

impl Aggregate {
    /// Moves its times.
    fn shift(&mut self, by: u64) {
        self.start = self.start.wrapping_add(by);
        self.finish = self.finish.wrapping_add(by);
    }
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
}

#[cfg(test)]
impl Scheduler {
    /// Each class with packets can be found, and bit maps are as the groups are.
    pub(super) fn assert_consistent(&self, has_packets: impl Fn(usize) -> bool) {
        let mut listed = 0;
        for (slot, class) in self.classes.iter().enumerate() {
            if class.aggregate != NONE {
                assert_eq!(class.listed, has_packets(slot), "class {slot}");
                listed += usize::from(class.listed);
            }
        }
        assert_eq!(listed, self.active);
        // An aggregate without packets is in service until a call finds nothing to send.
        assert!(self.active == 0 || self.in_service.is_some());
        let mut scheduled = 0;
        for (index, group) in self.groups.iter().enumerate() {
            let sets = self.sets.iter().filter(|set| **set & 1 << index != 0);
            assert_eq!(sets.count(), usize::from(group.full != 0), "group {index}");
            for offset in 0..SLOTS {
                let mut at = group.slots[(group.front + offset) % SLOTS];
                assert_eq!(at != NONE, group.full & 1 << offset != 0);
                while at != NONE {
                    let aggregate = &self.aggregates[at as usize];
                    assert_eq!(aggregate.group as usize, index);
                    assert_ne!(aggregate.first, NONE, "scheduled without packets");
                    scheduled += 1;
                    at = aggregate.after;
                }
            }
        }
        let with = |(at, aggregate): (usize, &Aggregate)| {
            let in_use = aggregate.classes > 0 && !self.free.contains(&(at as u32));
            in_use && aggregate.first != NONE && self.in_service != Some(at as u32)
        };
        let with = self.aggregates.iter().enumerate().filter(|&a| with(a));
        assert_eq!(with.count(), scheduled, "each is in one slot");
    }
}
