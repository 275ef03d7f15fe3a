//! The orders in which the classes of an `hfsc` are looked at: binary heaps of slots, in which each
//! class knows its place, so that one that changes is moved in logarithmic time. Nothing is
//! allocated but by [`reserve`](Heap::reserve).

use super::class::Class;

/// The order of a heap. A class is in one of the first two at most, and in one of the next two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Not eligible yet: by eligible time.
    Waiting,
    /// Eligible: by deadline.
    Eligible,
    /// Below its upper limit: by virtual time.
    Fit,
    /// At its upper limit: by the time when it is below again.
    Unfit,
    /// The highest virtual time first.
    Last,
}

/// The place of a class that is in no heap.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Heap {
    order: Order,
    slots: Vec<u32>,
}

impl Heap {
    pub(super) fn new(order: Order) -> Heap {
        Heap {
            order,
            slots: Vec::new(),
        }
    }

    /// Memory for so many classes.
    pub(super) fn reserve(&mut self, classes: usize) {
        self.slots.reserve(classes.saturating_sub(self.slots.len()));
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.slots.first().map(|&slot| slot as usize)
    }

    fn key(&self, classes: &[Class], at: usize) -> (u64, u64, u64) {
        classes[self.slots[at] as usize].key(self.order)
    }

    fn put(&mut self, classes: &mut [Class], at: usize, slot: u32) {
        self.slots[at] = slot;
        *classes[slot as usize].place(self.order) = at as u32;
    }

    /// Moves the class at a place to where it belongs.
    fn settle(&mut self, classes: &mut [Class], mut at: usize) {
        let slot = self.slots[at];
        let key = classes[slot as usize].key(self.order);
        while at > 0 {
            let above = (at - 1) / 2;
            if self.key(classes, above) <= key {
                break;
            }
            self.put(classes, at, self.slots[above]);
            at = above;
        }
        loop {
            let mut below = 2 * at + 1;
            if below >= self.slots.len() {
                break;
            }
            if below + 1 < self.slots.len()
                && self.key(classes, below + 1) < self.key(classes, below)
            {
                below += 1;
            }
            if key <= self.key(classes, below) {
                break;
            }
            self.put(classes, at, self.slots[below]);
            at = below;
        }
        self.put(classes, at, slot);
    }

    /// Adds a class that is not in it.
    pub(super) fn push(&mut self, classes: &mut [Class], slot: usize) {
        self.slots.push(slot as u32);
        self.settle(classes, self.slots.len() - 1);
    }

    /// The key of a class has changed; nothing happens if it is not in it.
    pub(super) fn update(&mut self, classes: &mut [Class], slot: usize) {
        let place = *classes[slot].place(self.order) as usize;
        if self.slots.get(place) == Some(&(slot as u32)) {
            self.settle(classes, place);
        }
    }

    /// Takes a class out; nothing happens if it is not in it.
    pub(super) fn remove(&mut self, classes: &mut [Class], slot: usize) {
        let place = *classes[slot].place(self.order) as usize;
        if self.slots.get(place) != Some(&(slot as u32)) {
            return;
        }
        *classes[slot].place(self.order) = NOWHERE;
        if let Some(last) = self.slots.pop()
            && place < self.slots.len()
        {
            self.slots[place] = last;
            self.settle(classes, place);
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    #[cfg(test)]
    pub(super) fn contains(&self, classes: &mut [Class], slot: usize) -> bool {
        let place = *classes[slot].place(self.order) as usize;
        self.slots.get(place) == Some(&(slot as u32))
    }

    #[cfg(test)]
    pub(super) fn assert_ordered(&self, classes: &mut [Class]) {
        for at in 0..self.slots.len() {
            let slot = self.slots[at] as usize;
            assert_eq!(*classes[slot].place(self.order) as usize, at);
            assert!(at == 0 || self.key(classes, (at - 1) / 2) <= self.key(classes, at));
        }
    }
}
