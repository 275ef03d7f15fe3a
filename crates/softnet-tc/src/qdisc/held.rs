//! Classes that have packets and hold them back (a `tbf`): until when. Their scheduler does not see
//! them meanwhile, as if they had none.

use softnet::time::Time;

/// The place of a class that is not held.
const NOWHERE: u32 = u32::MAX;

/// Classes that hold their packets back, by their slots. Memory is taken by
/// [`set`](Held::set) alone.
#[derive(Debug)]
pub(super) struct Held {
    list: Vec<(u32, Time)>,
    /// Where in the list each class is.
    places: Vec<u32>,
    /// No class is due before.
    earliest: Time,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            list: Vec::new(),
            places: Vec::new(),
            earliest: Time::MAX,
        }
    }
}

impl Held {
    /// There is such a class from now on.
    pub(super) fn set(&mut self, slot: usize) {
        if self.places.len() <= slot {
            self.places.resize(slot + 1, NOWHERE);
            self.list.reserve(self.places.len() - self.list.len());
        }
    }

    /// A class holds its packets back until then.
    pub(super) fn hold(&mut self, slot: usize, until: Time) {
        self.release(slot);
        if let Some(place) = self.places.get_mut(slot) {
            *place = self.list.len() as u32;
            self.list.push((slot as u32, until));
            self.earliest = self.earliest.min(until);
        }
    }

    /// A class may have a packet to send again, or has none. True if it was held.
    #[inline]
    pub(super) fn release(&mut self, slot: usize) -> bool {
        if self.list.is_empty() {
            return false;
        }
        let place = self.places.get(slot).copied().unwrap_or(NOWHERE);
        if place == NOWHERE {
            return false;
        }
        self.places[slot] = NOWHERE;
        self.list.swap_remove(place as usize);
        if let Some(&(moved, _)) = self.list.get(place as usize) {
            self.places[moved as usize] = place;
        }
        true
    }

    /// Releases a class that is due.
    #[inline]
    pub(super) fn due(&mut self, now: Time) -> Option<usize> {
        if now < self.earliest {
            return None;
        }
        let found = self.list.iter().find(|(_, until)| *until <= now);
        let Some(&(slot, _)) = found else {
            self.earliest = self.next();
            return None;
        };
        self.release(slot as usize);
        Some(slot as usize)
    }

    /// When the first one is due; [`Time::MAX`] if there is none.
    pub(super) fn next(&self) -> Time {
        let times = self.list.iter().map(|(_, until)| *until);
        times.min().unwrap_or(Time::MAX)
    }

    /// No class is held any more.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.places.fill(NOWHERE);
        self.earliest = Time::MAX;
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn classes_are_due_once_and_in_time() {
        let mut held = Held::default();
        (0..4).for_each(|slot| held.set(slot));
        for (slot, until) in [(0, 30), (1, 10), (2, 20), (3, 10), (1, 25)] {
            held.hold(slot, Time(until));
        }
        assert!(held.release(0) && !held.release(0) && !held.release(9));
        assert_eq!((held.due(Time(9)), held.next()), (None, Time(10)));
        assert_eq!(held.due(Time(10)), Some(3));
        assert_eq!((held.due(Time(19)), held.next()), (None, Time(20)));
        let due: Vec<_> = std::iter::from_fn(|| held.due(Time(40))).collect();
        assert!(due == [1, 2] || due == [2, 1], "{due:?}");
        assert_eq!((held.due(Time(99)), held.next()), (None, Time::MAX));
    }
}
