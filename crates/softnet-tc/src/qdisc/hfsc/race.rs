//! The orders in which the classes of an `hfsc` are looked at: tournaments, in which each class has
//! a place, four meet at a time, and the one with the least key wins. A class that changes or goes
//! plays once a round until it makes no difference; one that comes meets those who have won so far,
//! until it loses. Who wins is selected, not branched on: half of the outcomes could not be
//! predicted. Nothing is allocated but by [`grow`](Race::grow).

use cmov::Cmov;

use super::curve::NEVER;

/// Bits of a slot.
const SLOT_BITS: u32 = 16;

/// The last word of a key, which no two classes have in common: the number of a class's last
/// change, so that what changed first comes first among equals, and its slot. A number has 48 bits:
/// they wrap after a year of ten million changes a second.
#[inline]
pub(super) fn tie(number: u64, slot: usize) -> u64 {
    number << SLOT_BITS | slot as u64
}

/// True if one key is before another one: by its last word, and by each before that if it is less,
/// or equal and what follows is before. That is less than the other one and 1, of which no sum
/// overflows, as no time is later than [`NEVER`]. On a comparison of 128 bits, and on a borrow,
/// rustc 1.95 branches, whatever is said.
#[inline]
fn is_before<const WORDS: usize>(a: &[u64; WORDS], b: &[u64; WORDS]) -> bool {
    let mut before = a[WORDS - 1] < b[WORDS - 1];
    for at in (0..WORDS - 1).rev() {
        before = a[at] < b[at] + u64::from(before);
    }
    before
}

/// One of two keys, by an instruction that the compiler makes no branch of. With
/// `select_unpredictable` it depends on the code around it whether rustc 1.95 branches, which takes
/// twice the time.
#[inline]
pub(super) fn select<const WORDS: usize>(
    first: bool,
    a: [u64; WORDS],
    mut b: [u64; WORDS],
) -> [u64; WORDS] {
    for (b, a) in b.iter_mut().zip(&a) {
        b.cmovnz(a, u8::from(first));
    }
    b
}

/// The first of two keys.
#[inline]
fn least<const WORDS: usize>(a: [u64; WORDS], b: [u64; WORDS]) -> [u64; WORDS] {
    select(is_before(&b, &a), b, a)
}

/// The slot of the class that has a key; `None`: it is nobody's.
#[inline]
fn slot_of<const WORDS: usize>(key: &[u64; WORDS]) -> Option<usize> {
    let tie = key[WORDS - 1];
    (tie != u64::MAX).then_some(usize::from(tie as u16))
}

/// Four keys that meet: a cache line, if they have two words.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Group<const WORDS: usize>([[u64; WORDS]; 4]);

/// A tournament of classes, by keys of so many words, two at least: the first one decides, and the
/// last one is a [`tie`]. All others are times.
#[derive(Debug)]
pub(super) struct Race<const WORDS: usize> {
    /// The last round first. Entries are counted through all groups: who wins in group `n`, which
    /// is not the first one, is entry `n - 1`.
    groups: Vec<Group<WORDS>>,
    /// The entry of the first place; the others follow.
    places: usize,
    /// The least key.
    first: [u64; WORDS],
}

impl<const WORDS: usize> Default for Race<WORDS> {
    fn default() -> Race<WORDS> {
        Race {
            groups: Vec::new(),
            places: 0,
            first: Self::NOBODY,
        }
    }
}

impl<const WORDS: usize> Race<WORDS> {
    /// Behind all classes.
    pub(super) const NOBODY: [u64; WORDS] = {
        let mut key = [NEVER; WORDS];
        key[WORDS - 1] = u64::MAX;
        key
    };

    /// Makes room for so many places, one at least.
    pub(super) fn grow(&mut self, places: usize) {
        if self.places + places <= 4 * self.groups.len() {
            return;
        }
        // Groups of the rounds after the first one, and of that.
        let (mut later, mut first) = (0, 1);
        while 4 * first < places {
            later += first;
            first *= 4;
        }
        let none = Group([Self::NOBODY; 4]);
        let before = std::mem::replace(&mut self.groups, vec![none; later + first]);
        let entries = before.iter().flat_map(|group| group.0);
        let keys = entries.skip(self.places);
        self.places = 4 * later;
        self.first = Self::NOBODY;
        for (place, key) in keys.enumerate() {
            self.insert(place, key);
        }
    }

    /// The first word of the least key, and the slot of the class that has it.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, usize)> {
        let slot = slot_of(&self.first)?;
        Some((self.first[0], slot))
    }

    fn entry(&self, at: usize) -> &[u64; WORDS] {
        &self.groups[at / 4].0[at % 4]
    }

    /// True if there is a class at a place.
    #[inline]
    pub(super) fn contains(&self, place: usize) -> bool {
        slot_of(self.entry(self.places + place)).is_some()
    }

    /// Puts a class at a place where none is.
    #[inline]
    pub(super) fn insert(&mut self, place: usize, key: [u64; WORDS]) {
        let mut at = self.places + place;
        loop {
            self.groups[at / 4].0[at % 4] = key;
            if at < 4 {
                self.first = least(self.first, key);
                return;
            }
            at = at / 4 - 1;
            if !is_before(&key, self.entry(at)) {
                return;
            }
        }
    }

    /// Puts a class at a place, or gives it another key there. If it made a difference up to the
    /// last round, returns who is there for this quarter of the places: a class that will be the
    /// first one soon.
    #[inline]
    pub(super) fn put(&mut self, place: usize, key: [u64; WORDS]) -> Option<usize> {
        let groups = &mut self.groups[..];
        let (mut at, mut winner) = (self.places + place, key);
        loop {
            let group = &mut groups[at / 4].0;
            if group[at % 4] == winner {
                return None;
            }
            group[at % 4] = winner;
            // Known before the winner so far is, whose key depends on a packet.
            let [a, b, c] = [1, 2, 3].map(|other| group[(at ^ other) % 4]);
            let next = least(winner, least(least(a, b), c));
            if at < 4 {
                self.first = next;
                return slot_of(&winner);
            }
            winner = next;
            at = at / 4 - 1;
        }
    }

    /// Takes the class out that is at a place.
    pub(super) fn remove(&mut self, place: usize) {
        self.put(place, Self::NOBODY);
    }

    pub(super) fn clear(&mut self) {
        self.groups.fill(Group([Self::NOBODY; 4]));
        self.first = Self::NOBODY;
    }
}

#[cfg(test)]
impl<const WORDS: usize> Race<WORDS> {
    /// Keys are those of the classes, and who should win has won.
    pub(super) fn assert_right(&self, key: impl Fn(usize) -> [u64; WORDS]) {
        for at in self.places..4 * self.groups.len() {
            let entry = self.entry(at);
            if let Some(slot) = slot_of(entry) {
                assert_eq!(*entry, key(slot), "class {slot}");
            }
        }
        for (at, group) in self.groups.iter().enumerate() {
            let winner = match at {
                0 => &self.first,
                _ => self.entry(at - 1),
            };
            assert_eq!(Some(winner), group.0.iter().min());
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first is the least of all, whatever comes, changes and goes, and as there are more; who
    /// is said to lead a quarter of the places does.
    fn check<const WORDS: usize>(ops: &[(usize, u64, u64)]) -> Result<(), TestCaseError> {
        let mut race = Race::<WORDS>::default();
        let mut keys = [None; 40];
        let (mut places, mut quarter) = (1, 1);
        for (at, &(place, first, second)) in ops.iter().enumerate() {
            places = (1 + at / 8).clamp(places, 40);
            if 4 * quarter < places {
                quarter *= 4;
            }
            race.grow(places);
            let place = place % places;
            let slot = 39 - place;
            let before = keys[slot];
            let mut key = [second; WORDS];
            key[0] = if first == 59 { NEVER } else { first };
            key[WORDS - 1] = tie(second, slot);
            keys[slot] = (first >= 20).then_some(key);
            let leads = match (before, keys[slot]) {
                (None, Some(key)) if second % 2 == 0 => {
                    race.insert(place, key);
                    None
                }
                (_, Some(key)) => race.put(place, key),
                (_, None) => race.put(place, Race::<WORDS>::NOBODY),
            };
            let least = |of: &dyn Fn(usize) -> bool| {
                let slots = (0..40).filter(|&slot| keys[slot].is_some() && of(slot));
                slots.min_by_key(|&slot| keys[slot])
            };
            if leads.is_some() {
                let theirs = least(&|slot| (39 - slot) / quarter == place / quarter);
                prop_assert_eq!(leads, theirs);
            }
            let all = least(&|_| true);
            let expected = all.and_then(|slot| Some((keys[slot]?[0], slot)));
            prop_assert_eq!(race.first(), expected);
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
