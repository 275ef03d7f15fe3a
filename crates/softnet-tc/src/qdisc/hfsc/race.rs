//! The orders in which the classes of an `hfsc` are looked at: tournaments, in which each class has
//! a place and the one with the least key wins. A class that comes, goes or changes plays once a
//! round until it makes no difference; there are as many rounds as the number of places has bits.
//! Which ones it meets does not depend on any outcome, and who wins is selected, not branched on:
//! half of the outcomes could not be predicted. Words are compared one by one: on two of them as
//! one of 128 bits rustc 1.95 branches, whatever is said. Nothing is allocated but by
//! [`grow`](Race::grow).

use std::hint::select_unpredictable;

/// Bits of a slot.
const SLOT_BITS: u32 = 16;

/// The last word of a key, which no two classes have in common: the number of a class's last
/// change, so that what changed first comes first among equals, and its slot. A number has 48 bits:
/// they wrap after a year of ten million changes a second.
#[inline]
pub(super) fn tie(number: u64, slot: usize) -> u64 {
    number << SLOT_BITS | slot as u64
}

/// True if one key is before another one.
#[inline]
fn is_before<const WORDS: usize>(a: &[u64; WORDS], b: &[u64; WORDS]) -> bool {
    let mut before = a[WORDS - 1] < b[WORDS - 1];
    for at in (0..WORDS - 1).rev() {
        before = (a[at] < b[at]) | ((a[at] == b[at]) & before);
    }
    before
}

/// The first of two keys.
#[inline]
fn least<const WORDS: usize>(a: [u64; WORDS], b: [u64; WORDS]) -> [u64; WORDS] {
    let loses = is_before(&b, &a);
    std::array::from_fn(|word| select_unpredictable(loses, b[word], a[word]))
}

/// A tournament of classes, by keys of so many words, two at least: the first one decides, and the
/// last one is a [`tie`].
#[derive(Debug)]
pub(super) struct Race<const WORDS: usize> {
    /// Places are the second half. Who wins between those at `2 * n` and `2 * n + 1` is at `n`.
    keys: Vec<[u64; WORDS]>,
}

impl<const WORDS: usize> Default for Race<WORDS> {
    fn default() -> Race<WORDS> {
        Race { keys: Vec::new() }
    }
}

impl<const WORDS: usize> Race<WORDS> {
    /// Behind all classes.
    const NOBODY: [u64; WORDS] = [u64::MAX; WORDS];

    /// Makes room for so many places, one at least.
    pub(super) fn grow(&mut self, places: usize) {
        let size = 2 * places.next_power_of_two();
        if self.keys.len() >= size {
            return;
        }
        let before = std::mem::replace(&mut self.keys, vec![Self::NOBODY; size]);
        for (place, key) in before[before.len() / 2..].iter().enumerate() {
            self.put(place, *key);
        }
    }

    /// The slot of the class with the least key.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        let winner = self.keys.get(1)?;
        let slot = winner[WORDS - 1] as u16;
        (*winner != Self::NOBODY).then_some(slot.into())
    }

    /// True if there is a class at a place.
    #[inline]
    pub(super) fn contains(&self, place: usize) -> bool {
        self.keys[self.keys.len() / 2 + place] != Self::NOBODY
    }

    /// Puts a class at a place, or gives it another key there.
    #[inline]
    pub(super) fn put(&mut self, place: usize, key: [u64; WORDS]) {
        let keys = &mut self.keys[..];
        let mut at = keys.len() / 2 + place;
        keys[at] = key;
        // The least of those that it meets: known before the key is, which depends on a packet.
        let mut others = Self::NOBODY;
        while at > 1 {
            others = least(others, keys[at ^ 1]);
            at /= 2;
            let winner = least(key, others);
            if keys[at] == winner {
                break;
            }
            keys[at] = winner;
        }
    }

    /// Takes the class out that is at a place.
    #[inline]
    pub(super) fn remove(&mut self, place: usize) {
        self.put(place, Self::NOBODY);
    }

    pub(super) fn clear(&mut self) {
        self.keys.fill(Self::NOBODY);
    }
}

#[cfg(test)]
impl<const WORDS: usize> Race<WORDS> {
    /// Keys are those of the classes, and who should win has won.
    pub(super) fn assert_right(&self, key: impl Fn(usize) -> [u64; WORDS]) {
        let half = self.keys.len() / 2;
        for &entry in self.keys[half..].iter().filter(|k| **k != Self::NOBODY) {
            let slot = entry[WORDS - 1] as u16;
            assert_eq!(entry, key(slot.into()), "class {slot}");
        }
        for at in 1..half {
            let winner = self.keys[2 * at].min(self.keys[2 * at + 1]);
            assert_eq!(self.keys[at], winner);
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first is the least of all, whatever comes, changes and goes, and as there are more.
    fn check<const WORDS: usize>(ops: &[(usize, u64, u64)]) -> Result<(), TestCaseError> {
        let mut race = Race::<WORDS>::default();
        let mut keys = [None; 40];
        let mut places = 1;
        for (at, &(place, first, second)) in ops.iter().enumerate() {
            places = (1 + at / 8).clamp(places, 40);
            race.grow(places);
            let place = place % places;
            let slot = 39 - place;
            if first < 20 {
                race.remove(place);
                keys[slot] = None;
            } else {
                let mut key = [second; WORDS];
                key[0] = first;
                key[WORDS - 1] = tie(second, slot);
                race.put(place, key);
                keys[slot] = Some(key);
            }
            let least = (0..40).filter(|&slot| keys[slot].is_some());
            let least = least.min_by_key(|&slot| keys[slot]);
            prop_assert_eq!(race.first(), least);
            prop_assert_eq!(race.contains(place), keys[slot].is_some());
            race.assert_right(|slot| keys[slot].unwrap());
        }
        race.clear();
        prop_assert_eq!(race.first(), None);
        Ok(())
    }

    proptest! {
        #[test]
        fn the_least_is_first(
            ops in prop::collection::vec((0..40_usize, 0..60_u64, 0..4_u64), 1..400),
        ) {
            check::<2>(&ops)?;
            check::<3>(&ops)?;
        }
    }
}
