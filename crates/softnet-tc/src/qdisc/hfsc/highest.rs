//! The highest virtual time of the active classes below one.
//!
//! It is asked for as a class becomes active, and nearly always is that of who was served last: so
//! it is remembered, and only where who had it has left it is looked for. Then a tree says it, of
//! which only those parts are computed anew below which something has changed: each change is paid
//! for once, and a look after many changes may be long.

/// An inner node that has to be computed anew; those above it have to be as well. A time that is as
/// high is computed each time, which makes no difference.
const STALE: u64 = u64::MAX;

/// Virtual times of classes by their places; 0 where none is active.
#[derive(Debug, Default)]
pub(super) struct Highest {
    /// The times are the second half. At `n` is the higher one of those at `2 * n` and `2 * n + 1`,
    /// or [`STALE`].
    nodes: Vec<u64>,
    /// No time is higher than this one, and if it `is_exact`, one is as high.
    bound: u64,
    is_exact: bool,
}

impl Highest {
    /// Makes room for so many places, one at least.
    pub(super) fn grow(&mut self, places: usize) {
        let half = places.next_power_of_two();
        if self.nodes.len() >= 2 * half {
            return;
        }
        let before = std::mem::replace(&mut self.nodes, vec![STALE; 2 * half]);
        let times = &before[before.len() / 2..];
        self.nodes[half..][..times.len()].copy_from_slice(times);
        self.nodes[half + times.len()..].fill(0);
    }

    /// The class at a place has this virtual time, or is not active if it is 0.
    #[inline]
    pub(super) fn put(&mut self, place: usize, time: u64) {
        let mut at = self.nodes.len() / 2 + place;
        let before = std::mem::replace(&mut self.nodes[at], time);
        at /= 2;
        while at > 0 && self.nodes[at] != STALE {
            self.nodes[at] = STALE;
            at /= 2;
        }
        // Without a branch: whether a class goes or stays cannot be foreseen.
        self.is_exact = (time >= self.bound) | (self.is_exact & (before != self.bound));
        self.bound = self.bound.max(time);
    }

    /// The highest of all; 0 if none is active.
    #[inline]
    pub(super) fn get(&mut self) -> u64 {
        if !self.is_exact {
            (self.bound, self.is_exact) = (self.find(1), true);
        }
        self.bound
    }

    /// The highest below a node.
    fn find(&mut self, at: usize) -> u64 {
        let Some(&node) = self.nodes.get(at) else {
            return 0;
        };
        if at >= self.nodes.len() / 2 || node != STALE {
            return node;
        }
        let highest = match self.find(2 * at) {
            u64::MAX => u64::MAX,
            time => time.max(self.find(2 * at + 1)),
        };
        self.nodes[at] = highest;
        highest
    }

    pub(super) fn clear(&mut self) {
        self.nodes.fill(0);
        (self.bound, self.is_exact) = (0, true);
    }
}

#[cfg(test)]
impl Highest {
    /// The time at a place.
    pub(super) fn at(&self, place: usize) -> u64 {
        self.nodes[self.nodes.len() / 2 + place]
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// It is the highest of all, whatever changes and as there are more, asked seldom or often.
        #[test]
        fn it_is_the_highest(
            ops in prop::collection::vec(
                (0..40_usize, prop_oneof![3 => 0..50_u64, 1 => Just(u64::MAX)], any::<bool>()),
                1..400,
            ),
        ) {
            let mut highest = Highest::default();
            prop_assert_eq!(highest.get(), 0);
            let mut times = [0; 40];
            let mut places = 1;
            for (at, (place, time, asked)) in ops.into_iter().enumerate() {
                places = (1 + at / 8).clamp(places, 40);
                highest.grow(places);
                let place = place % places;
                highest.put(place, time);
                times[place] = time;
                prop_assert_eq!(highest.at(place), time);
                if asked {
                    prop_assert_eq!(highest.get(), *times.iter().max().unwrap());
                }
            }
            highest.clear();
            prop_assert_eq!(highest.get(), 0);
        }
    }
}
