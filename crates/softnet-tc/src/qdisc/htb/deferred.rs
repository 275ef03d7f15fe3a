//! Charges of inner classes that are put off to the end of a call.
//!
//! A leaf that sends with tokens of its own charges the classes above it, too. As long as each of
//! those has the tokens for it, that is a subtraction, and nothing is decided by what is left. So
//! the first leaf of a call charges them, the next ones below the same class add up what they
//! cost, and the sum is charged once: at the end of the call, or before anything looks at these
//! tokens. A packet that one of the classes lacks tokens for is charged at once, after the sum, as
//! if nothing had been put off. All of it is at one time, in which no tokens come.
//!
//! Pots are charged at once.

use softnet::qdisc::{WireSize, WireSum};
use softnet::time::Time;

use super::class::{Mode, NONE, units};
use super::scheduler::{Scheduler, Slot};

/// Charge of a class and of all those above it that is put off.
#[derive(Debug)]
pub(super) struct Deferred {
    /// The lowest of the classes, or [`NONE`]. All of them may send.
    from: u16,
    /// Token units that each of them has beyond the sum.
    left: i64,
    pub(super) sum: WireSum,
}

impl Default for Deferred {
    fn default() -> Deferred {
        Deferred {
            from: NONE,
            left: 0,
            sum: WireSum::default(),
        }
    }
}

impl Deferred {
    /// True if it is for this class and those above it.
    #[inline]
    pub(super) fn is_from(&self, class: u16) -> bool {
        self.from == class
    }

    /// Begins to put off what is charged from this class on, which each of them has these token
    /// units for. Nothing else may be put off.
    #[inline]
    pub(super) fn begin(&mut self, from: u16, left: i64) {
        debug_assert_eq!(self.sum, WireSum::default());
        (self.from, self.left) = (from, left);
    }

    /// Puts off a charge, of so many token units. False, and nothing happens, if it is for other
    /// classes, or one of them lacks the tokens.
    #[inline]
    pub(super) fn add(&mut self, from: u16, cost: i64, sum: WireSum) -> bool {
        let adds = self.is_from(from) && cost <= self.left;
        if adds {
            self.left -= cost;
            self.sum.packets += sum.packets;
            self.sum.bytes += sum.bytes;
        }
        adds
    }
}

impl Scheduler {
    /// Charges a leaf that sends with tokens of its own, and those above, up to the first one that
    /// needs more than a subtraction: returns that, or [`NONE`]. `defers`: those above may be
    /// charged at the end of the call.
    #[inline(always)]
    pub(super) fn pay_path(
        &mut self,
        leaf: u16,
        frames: u64,
        size: WireSize,
        defers: bool,
        now: Time,
    ) -> u16 {
        let WireSize { packets, bytes, .. } = size;
        let (sum, cost) = (WireSum { packets, bytes }, units(bytes));
        let defers = defers && self.pots.is_empty();
        // The class above the leaf, and the fewest token units from there up.
        let (mut above, mut least) = (NONE, i64::MAX);
        let mut at = leaf;
        while at != NONE {
            let slot = usize::from(at);
            let Slot {
                class, counters, ..
            } = self.slots[slot]
                .as_mut()
                .expect("the tree names its classes");
            if !class.plain || class.mode != Mode::CanSend {
                return at;
            }
            let tokens = match self.pots.get_mut(slot).and_then(Option::as_mut) {
                Some(pots) => pots.pay(bytes).then(|| pots.tokens()),
                None => class.pay(cost, now).then(|| class.tokens()),
            };
            let Some(tokens) = tokens else { return at };
            counters.own.set_tokens(tokens);
            at = class.parent;
            if class.level > 0 {
                counters.count_sent(sum);
                least = least.min(tokens.0).min(tokens.1);
                continue;
            }
            counters.own.count_sent(true, false, frames);
            if defers {
                if self.deferred.add(at, cost, sum) {
                    return NONE;
                }
                self.settle(now);
                above = at;
            }
        }
        if above != NONE {
            self.deferred.begin(above, least);
        }
        NONE
    }

    /// Charges what was put off, at the time at which it was sent. From then on charges are made at
    /// once, until the next leaf has charged the classes above it.
    #[inline]
    pub(super) fn settle(&mut self, now: Time) {
        let Deferred { from, sum, .. } = std::mem::take(&mut self.deferred);
        if sum.packets > 0 {
            self.pay_deferred(from, sum, now);
        }
    }

    #[inline(never)]
    fn pay_deferred(&mut self, from: u16, sum: WireSum, now: Time) {
        let cost = units(sum.bytes);
        let mut at = from;
        while at != NONE {
            let slot = self.slot(at.into());
            let paid = slot.class.pay(cost, now);
            debug_assert!(paid, "each has the tokens");
            slot.counters.own.set_tokens(slot.class.tokens());
            slot.counters.count_sent(sum);
            at = slot.class.parent;
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::super::test_world::{World, spec};

    /// Bytes in the bucket of `rate`, of a class with 1000 a second.
    fn bytes_left(world: &World, minor: u16) -> i64 {
        i64::from(world.stats(minor).tokens) * 64 / 1_000_000
    }

    /// A class with the tokens for three packets of 1000 bytes and a half, and its leaves, which
    /// have a packet each.
    fn family(leaves: u16) -> World {
        let mut world = World::new();
        let wide = spec(1000, 1000, 3500, 3500);
        world.add(1, None, wide.clone());
        world.add(2, Some(1), wide.clone());
        for minor in (10..).take(leaves.into()) {
            world.add(minor, Some(2), wide.clone());
            world.fill(minor, 1000, 1);
        }
        world
    }

    #[test]
    fn inner_classes_are_charged_once_a_call() {
        let mut world = family(3);
        world.send(usize::MAX);
        assert_eq!(world.sent.len(), 3);
        // The first packet was charged at once.
        assert_eq!(world.put_off, 2);
        for (minor, left) in [(1, 500), (2, 500), (10, 2500), (12, 2500)] {
            assert_eq!(bytes_left(&world, minor), left, "{minor}");
        }
        let inner = world.counters[&2].get();
        assert_eq!((inner.packets, inner.bytes), (3, 3000));
        world.check();
    }

    #[test]
    fn a_class_that_lacks_the_tokens_is_charged_at_once() {
        let mut world = family(5);
        world.send(4);
        assert_eq!(world.put_off, 0);
        for minor in [1, 2] {
            assert_eq!(bytes_left(&world, minor), -500, "{minor}");
        }
        // In debt they are charged for each packet.
        world.send(usize::MAX);
        assert_eq!(world.put_off, 0);
        assert_eq!(bytes_left(&world, 2), -1500);
        assert_eq!(world.counters[&1].get().packets, 5);
        assert_eq!(world.stats(1).overlimits, 1);
        world.check();
    }

    #[test]
    fn leaves_of_other_classes_are_charged_apart() {
        let mut world = family(2);
        world.add(3, Some(1), spec(1000, 1000, 3500, 3500));
        // Before the second leaf of the first class.
        world.add(9, Some(3), spec(1000, 1000, 3500, 3500));
        world.fill(9, 1000, 1);
        world.send(usize::MAX);
        assert_eq!(world.put_off, 1);
        for (minor, left) in [(1, 500), (2, 1500), (3, 2500)] {
            assert_eq!(bytes_left(&world, minor), left, "{minor}");
        }
    }
}
