//! Times at which things happen, by the thing: one time each.

use std::collections::{BTreeMap, BTreeSet};

use softnet::time::Time;

/// A queue of times; see the module.
#[derive(Debug)]
pub(super) struct Timers<T> {
    times: BTreeMap<T, Time>,
    queue: BTreeSet<(Time, T)>,
}

impl<T: Ord + Copy> Timers<T> {
    pub(super) fn new() -> Timers<T> {
        Timers {
            times: BTreeMap::new(),
            queue: BTreeSet::new(),
        }
    }

    /// Something happens at this time, or not at all.
    pub(super) fn set(&mut self, what: T, at: Option<Time>) {
        let before = match at {
            Some(at) => self.times.insert(what, at),
            None => self.times.remove(&what),
        };
        if before == at {
            return;
        }
        before.into_iter().for_each(|before| {
            self.queue.remove(&(before, what));
        });
        self.queue.extend(at.map(|at| (at, what)));
    }

    /// When something happens next.
    pub(super) fn first(&self) -> Option<Time> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// The first thing that was to happen by now; it happens once.
    pub(super) fn pop(&mut self, now: Time) -> Option<T> {
        let &(at, what) = self.queue.first()?;
        if at > now {
            return None;
        }
        self.queue.pop_first();
        self.times.remove(&what);
        Some(what)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn each_happens_once_and_in_order() {
        let mut timers = Timers::new();
        timers.set('a', Some(Time(5)));
        timers.set('b', Some(Time(3)));
        timers.set('c', Some(Time(4)));
        timers.set('a', Some(Time(1)));
        timers.set('c', None);
        assert_eq!(timers.first(), Some(Time(1)));
        assert_eq!(timers.pop(Time(2)), Some('a'));
        assert_eq!(timers.pop(Time(2)), None);
        assert_eq!(timers.pop(Time(9)), Some('b'));
        assert_eq!((timers.pop(Time(9)), timers.first()), (None, None));
    }
}
