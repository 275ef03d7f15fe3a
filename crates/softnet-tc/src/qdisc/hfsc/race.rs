//! The orders in which the classes of an `hfsc` are looked at: tournaments, in which each class has
//! a place and the one with the least key wins. A class that comes, goes or changes plays once a
//! round until it makes no difference; there are as many rounds as the number of places has bits.
//! Which ones it meets does not depend on any outcome, so that the processor need not guess.
//! Nothing is allocated but by [`grow`](Race::grow).

/// The slot of no class.
const NOBODY: u32 = u32::MAX;

/// Order of classes in a race.
pub(super) trait Key: Copy + Ord {
    /// Behind all keys of classes.
    const LAST: Self;
}

impl Key for u64 {
    const LAST: u64 = u64::MAX;
}

impl Key for u128 {
    const LAST: u128 = u128::MAX;
}

impl Key for (u64, u128) {
    const LAST: (u64, u128) = (u64::MAX, u128::MAX);
}

/// A class by its slot, or nobody.
#[derive(Clone, Copy, Debug)]
struct Entry<K> {
    key: K,
    slot: u32,
}

/// A tournament of classes.
#[derive(Debug)]
pub(super) struct Race<K> {
    /// Places are the second half. Who wins between those at `2 * n` and `2 * n + 1` is at `n`.
    entries: Vec<Entry<K>>,
}

impl<K> Default for Race<K> {
    fn default() -> Race<K> {
        Race {
            entries: Vec::new(),
        }
    }
}

impl<K: Key> Race<K> {
    const NOBODY: Entry<K> = Entry {
        key: K::LAST,
        slot: NOBODY,
    };

    /// Makes room for so many places, one at least.
    pub(super) fn grow(&mut self, places: usize) {
        let size = 2 * places.next_power_of_two();
        if self.entries.len() >= size {
            return;
        }
        let before = std::mem::replace(&mut self.entries, vec![Self::NOBODY; size]);
        for (place, entry) in before[before.len() / 2..].iter().enumerate() {
            self.set(place, *entry);
        }
    }

    /// The slot of the class with the least key.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        let winner = self.entries.get(1)?;
        (winner.slot != NOBODY).then_some(winner.slot as usize)
    }

    /// True if there is a class at a place.
    #[inline]
    pub(super) fn contains(&self, place: usize) -> bool {
        self.entries[self.entries.len() / 2 + place].slot != NOBODY
    }

    #[inline]
    fn set(&mut self, place: usize, entry: Entry<K>) {
        let mut at = self.entries.len() / 2 + place;
        self.entries[at] = entry;
        let Entry { mut key, mut slot } = entry;
        while at > 1 {
            let other = self.entries[at ^ 1];
            let wins = key <= other.key;
            slot = if wins { slot } else { other.slot };
            key = if wins { key } else { other.key };
            at /= 2;
            let winner = &mut self.entries[at];
            if winner.slot == slot && winner.key == key {
                break;
            }
            *winner = Entry { key, slot };
        }
    }

    /// Puts a class at a place, or gives it another key there.
    #[inline]
    pub(super) fn put(&mut self, place: usize, slot: usize, key: K) {
        let slot = slot as u32;
        self.set(place, Entry { key, slot });
    }

    /// Takes a class out; nothing happens if there is none at the place.
    #[inline]
    pub(super) fn remove(&mut self, place: usize) {
        if self.contains(place) {
            self.set(place, Self::NOBODY);
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.fill(Self::NOBODY);
    }
}

#[cfg(test)]
impl<K: Key + std::fmt::Debug> Race<K> {
    /// Keys are those of the classes, and who should win has won.
    pub(super) fn assert_right(&self, key: impl Fn(usize) -> K) {
        let half = self.entries.len() / 2;
        for entry in self.entries[half..].iter().filter(|e| e.slot != NOBODY) {
            assert_eq!(entry.key, key(entry.slot as usize), "class {}", entry.slot);
        }
        for at in 1..half {
            let (a, b) = (self.entries[2 * at], self.entries[2 * at + 1]);
            let winner = if a.key < b.key { a } else { b };
            assert_eq!(self.entries[at].key, winner.key);
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The first is the least of all, whatever comes, changes and goes, and as there are more.
        #[test]
        fn the_least_is_first(ops in prop::collection::vec((0..40_usize, 0..60_u64), 1..400)) {
            let mut race = Race::<u128>::default();
            let mut keys = [None; 40];
            let mut places = 1;
            for (at, (place, key)) in ops.into_iter().enumerate() {
                places = (1 + at / 8).clamp(places, 40);
                race.grow(places);
                let place = place % places;
                let slot = 39 - place;
                if key < 20 {
                    race.remove(place);
                    keys[slot] = None;
                } else {
                    race.put(place, slot, u128::from(key));
                    keys[slot] = Some(u128::from(key));
                }
                let first = race.first().and_then(|first| keys[first]);
                prop_assert_eq!(first, keys.iter().flatten().min().copied());
                prop_assert_eq!(race.contains(place), keys[slot].is_some());
                race.assert_right(|slot| keys[slot].unwrap());
            }
            race.clear();
            prop_assert_eq!(race.first(), None);
        }
    }
}
