//! The orders in which the classes of an `hfsc` are looked at: heaps of slots beside their keys, in
//! which the place of each class is known, so that one that changes is moved in logarithmic time.
//! [`BELOW`] are below each, whose keys lie side by side. Nothing is allocated but by
//! [`reserve`](Heap::reserve) and [`set`](Places::set).

/// Entries below one.
const BELOW: usize = 4;
/// The place of a class that is in no heap.
const NOWHERE: u32 = u32::MAX;

/// Places of classes, by their slots. Heaps can share them where no class is in two at once.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<u32>);

impl Places {
    /// There is such a class from now on, in no heap yet.
    pub(super) fn set(&mut self, slot: usize) {
        if self.0.len() <= slot {
            self.0.resize(slot + 1, NOWHERE);
        }
        self.0[slot] = NOWHERE;
    }

    /// No class is in a heap any more.
    pub(super) fn clear(&mut self) {
        self.0.fill(NOWHERE);
    }
}

/// Classes of which the one with the least key is first. Keys are kept here, so that to compare
/// them takes no look at classes.
#[derive(Debug)]
pub(super) struct Heap<K> {
    keys: Vec<K>,
    slots: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Heap<K> {
        Heap {
            keys: Vec::new(),
            slots: Vec::new(),
        }
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// Memory for so many classes.
    pub(super) fn reserve(&mut self, classes: usize) {
        let more = classes.saturating_sub(self.slots.len());
        self.keys.reserve(more);
        self.slots.reserve(more);
    }

    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        self.slots.first().map(|&slot| slot as usize)
    }

    /// Where a class is, if it is in it.
    #[inline]
    fn find(&self, places: &Places, slot: usize) -> Option<usize> {
        let place = places.0[slot] as usize;
        let found = self.slots.get(place) == Some(&(slot as u32));
        found.then_some(place)
    }

    #[inline]
    fn store(&mut self, places: &mut Places, at: usize, slot: u32, key: K) {
        (self.slots[at], self.keys[at]) = (slot, key);
        places.0[slot as usize] = at as u32;
    }

    /// Stores a class where it belongs, instead of what is at a place.
    fn settle(&mut self, places: &mut Places, mut at: usize, slot: u32, key: K) {
        while at > 0 {
            let above = (at - 1) / BELOW;
            if self.keys[above] <= key {
                break;
            }
            self.store(places, at, self.slots[above], self.keys[above]);
            at = above;
        }
        loop {
            let first = BELOW * at + 1;
            let end = self.keys.len().min(first + BELOW);
            if first >= end {
                break;
            }
            let (mut least, mut least_key) = (first, self.keys[first]);
            for below in first + 1..end {
                let other = self.keys[below];
                if other < least_key {
                    (least, least_key) = (below, other);
                }
            }
            if key <= least_key {
                break;
            }
            self.store(places, at, self.slots[least], least_key);
            at = least;
        }
        self.store(places, at, slot, key);
    }

    /// Puts a class where its key says, whether it was in it or not.
    pub(super) fn put(&mut self, places: &mut Places, slot: usize, key: K) {
        let place = match self.find(places, slot) {
            Some(place) => place,
            None => {
                self.slots.push(slot as u32);
                self.keys.push(key);
                self.slots.len() - 1
            }
        };
        self.settle(places, place, slot as u32, key);
    }

    /// Takes a class out; nothing happens if it is not in it.
    pub(super) fn remove(&mut self, places: &mut Places, slot: usize) {
        let Some(place) = self.find(places, slot) else {
            return;
        };
        places.0[slot] = NOWHERE;
        if let (Some(last), Some(key)) = (self.slots.pop(), self.keys.pop())
            && place < self.slots.len()
        {
            self.settle(places, place, last, key);
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.keys.clear();
    }

    pub(super) fn contains(&self, places: &Places, slot: usize) -> bool {
        self.find(places, slot).is_some()
    }
}

#[cfg(test)]
impl<K: Copy + Ord + std::fmt::Debug> Heap<K> {
    /// Keys are those of the classes, and in order; places are known.
    pub(super) fn assert_ordered(&self, places: &Places, key: impl Fn(usize) -> K) {
        assert_eq!(self.keys.len(), self.slots.len());
        for (at, &slot) in self.slots.iter().enumerate() {
            assert_eq!(places.0[slot as usize] as usize, at);
            assert_eq!(self.keys[at], key(slot as usize), "class {slot}");
            assert!(at == 0 || self.keys[(at - 1) / BELOW] <= self.keys[at]);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The first is the least of all, whatever comes, changes and goes.
        #[test]
        fn the_least_is_first(ops in prop::collection::vec((0..40_usize, 0..60_u64), 1..400)) {
            let (mut heap, mut places) = (Heap::default(), Places::default());
            let mut keys = [None; 40];
            (0..40).for_each(|slot| places.set(slot));
            for (slot, key) in ops {
                if key < 20 {
                    heap.remove(&mut places, slot);
                    keys[slot] = None;
                } else {
                    heap.put(&mut places, slot, key);
                    keys[slot] = Some(key);
                }
                let first = heap.first().and_then(|first| keys[first]);
                prop_assert_eq!(first, keys.iter().flatten().min().copied());
                prop_assert_eq!(heap.contains(&places, slot), keys[slot].is_some());
                heap.assert_ordered(&places, |slot| keys[slot].unwrap());
            }
        }
    }
}
