//! Aggregates of a `qfq`: classes of one weight and longest packet, which take turns.

/// Fractional bits of virtual times, and of inverses of weights.
pub(super) const FRACTION: u32 = 30;
pub(super) const ONE: u64 = 1 << FRACTION;
/// Classes of an aggregate at most.
pub(super) const MOST_CLASSES: u32 = 8;

/// The link of what is in no list, or the last.
pub(super) const NONE: u32 = u32::MAX;

/// Bits of a seat in the order of turns.
const SEAT_BITS: u32 = 4;

/// Classes of one weight and longest packet. What a class's turn needs is in the first of its two
/// cache lines.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Aggregate {
    /// Bytes that it may still send, and those that it was given.
    pub(super) budget: u64,
    given: u64,
    /// The seats of classes with packets, the first in the lowest bits, and their number.
    order: u32,
    waiting: u32,
    /// The slots of its classes by their seats, and the seats that are taken, a bit each.
    seats: [u16; MOST_CLASSES as usize],
    pub(super) start: u64,
    pub(super) finish: u64,
    pub(super) group: u32,
    /// Weight of each class.
    pub(super) weight: u32,
    /// Bytes that it may send each time that it is served.
    pub(super) most: u64,
    /// Inverse of the weight of all classes.
    pub(super) inverse: u64,
    /// Bytes of the longest packet: the quantum of each class.
    pub(super) longest: u32,
    pub(super) classes: u32,
    /// Links of the aggregates of a slot.
    pub(super) before: u32,
    pub(super) after: u32,
    /// Links of the aggregates in one chain of the table, while there is room for more classes.
    open_before: u32,
    open_after: u32,
    taken: u8,
}
const _: () = assert!(size_of::<Aggregate>() == 128);

impl Aggregate {
    /// Without classes, and in no group yet.
    pub(super) fn new(weight: u32, longest: u32) -> Aggregate {
        Aggregate {
            weight,
            longest,
            group: NONE,
            before: NONE,
            after: NONE,
            ..Aggregate::default()
        }
    }

    /// Gives a class a seat, of which one is free.
    pub(super) fn seat(&mut self, slot: usize) -> u8 {
        debug_assert_ne!(self.taken, u8::MAX);
        let seat = (!self.taken).trailing_zeros() as u8 & 7;
        self.taken |= 1 << seat;
        self.seats[usize::from(seat)] = slot as u16;
        seat
    }

    /// A class without packets leaves its seat.
    pub(super) fn unseat(&mut self, seat: u8) {
        self.taken &= !(1 << seat);
    }

    /// True if a class has packets.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.waiting > 0
    }

    /// The class whose turn it is.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        let slot = self.seats[(self.order & 7) as usize];
        self.is_active().then_some(slot.into())
    }

    /// The class whose turn is next.
    #[inline]
    pub(super) fn second(&self) -> Option<usize> {
        let slot = self.seats[(self.order >> SEAT_BITS & 7) as usize];
        (self.waiting > 1).then_some(slot.into())
    }

    /// The class of this seat gets packets, or goes behind the others that have some.
    #[inline]
    pub(super) fn push(&mut self, seat: u8) {
        self.order |= u32::from(seat) << (SEAT_BITS * self.waiting);
        self.waiting += 1;
    }

    /// The class of this seat has no turn any more. Most often it was its turn.
    #[inline]
    pub(super) fn take(&mut self, seat: u8) {
        let is = |at: &u32| (self.order >> (SEAT_BITS * at)) & 7 == u32::from(seat);
        let Some(at) = (0..self.waiting).find(is) else {
            debug_assert!(false, "a class without packets has no turn");
            return;
        };
        let behind = self.order >> (SEAT_BITS * at);
        let ahead = self.order ^ (behind << (SEAT_BITS * at));
        self.order = ahead | (behind >> SEAT_BITS << (SEAT_BITS * at));
        self.waiting -= 1;
    }

    /// May send all that it may.
    pub(super) fn renew(&mut self) {
        (self.given, self.budget) = (self.most, self.most);
    }

    /// Starts at a time, and finishes when it has sent all that it may.
    pub(super) fn start_at(&mut self, start: u64) {
        self.start = start;
        self.finish = start.wrapping_add(self.most * self.inverse);
    }

    /// Ends its service: its finish time follows from what it has sent.
    pub(super) fn settle(&mut self) {
        // With fewer classes than before it may have been given more than it is given now.
        let sent = (self.given - self.budget).min(self.most);
        self.finish = self.start.wrapping_add(sent * self.inverse);
        self.renew();
    }

    /// Moves its times.
    pub(super) fn shift(&mut self, by: u64) {
        self.start = self.start.wrapping_add(by);
        self.finish = self.finish.wrapping_add(by);
    }
}

/// Aggregates with room for another class, by weight and longest packet: chains of a hash table.
#[derive(Debug)]
pub(super) struct Open {
    heads: Vec<u32>,
}

impl Default for Open {
    fn default() -> Open {
        Open {
            heads: vec![NONE; 1],
        }
    }
}

impl Open {
    fn chain(&self, weight: u32, longest: u32) -> usize {
        let key = u64::from(longest) << 32 | u64::from(weight);
        // Fibonacci hashing.
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        hash as usize & (self.heads.len() - 1)
    }

    pub(super) fn find(&self, aggregates: &[Aggregate], weight: u32, longest: u32) -> Option<u32> {
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

    pub(super) fn add(&mut self, aggregates: &mut [Aggregate], at: u32) {
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

    pub(super) fn remove(&mut self, aggregates: &mut [Aggregate], at: u32) {
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
    pub(super) fn grow(&mut self, aggregates: &mut [Aggregate], free: &[u32], count: usize) {
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

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Classes have their turns in the order in which they came, or went behind the others.
        #[test]
        fn classes_take_turns(ops in prop::collection::vec((0..8_usize, 0..4), 1..200)) {
            let mut aggregate = Aggregate::new(1, 1514);
            let mut seats: Vec<u8> = (0..8).map(|class| aggregate.seat(100 + class)).collect();
            let mut turns = VecDeque::new();
            for (class, op) in ops {
                let has_turn = turns.contains(&class);
                match op {
                    0 if !has_turn => {
                        aggregate.push(seats[class]);
                        turns.push_back(class);
                    }
                    1 if has_turn => {
                        aggregate.take(seats[class]);
                        turns.retain(|other| *other != class);
                    }
                    2 if !has_turn => {
                        aggregate.unseat(seats[class]);
                        seats[class] = aggregate.seat(100 + class);
                    }
                    _ => {
                        if let Some(first) = turns.pop_front() {
                            aggregate.take(seats[first]);
                            aggregate.push(seats[first]);
                            turns.push_back(first);
                        }
                    }
                }
                prop_assert_eq!(aggregate.is_active(), !turns.is_empty());
                prop_assert_eq!(aggregate.first(), turns.front().map(|class| 100 + class));
                prop_assert_eq!(aggregate.second(), turns.get(1).map(|class| 100 + class));
            }
        }
    }
}
