//! Departures from a tree while a packet waited. They are logged once, not for each packet that
//! waits: the log has what the sums of a class were, and is made shorter where nobody's arrival is
//! between two entries. So its memory is bounded by the packets that wait and the classes.

use std::collections::BTreeMap;

use crate::handle::Handle;

/// Frames and bytes.
type Sums = (u64, u64);

/// Entries that are kept without a look at who waits.
const FEW: usize = 1024;

/// One class.
#[derive(Debug, Default)]
struct Left {
    now: Sums,
    /// The sums before the first entry of the log.
    before: Sums,
    /// Numbers of departures, and the sums with each.
    log: Vec<(u64, Sums)>,
}

/// Departures of each class.
#[derive(Debug)]
pub(super) struct Departures {
    count: u64,
    classes: BTreeMap<Handle, Left>,
    /// Entries of all logs, and how many there may be until they are looked at.
    entries: usize,
    most: usize,
}

impl Default for Departures {
    fn default() -> Departures {
        Departures {
            count: 0,
            classes: BTreeMap::new(),
            entries: 0,
            most: FEW,
        }
    }
}

impl Departures {
    /// Number of departures until now, from which [`since`](Departures::since) counts.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// A frame of so many bytes leaves a class. `starts` are the numbers from which somebody
    /// counts, in any order.
    pub(super) fn note(
        &mut self,
        class: Handle,
        bytes: u64,
        starts: impl ExactSizeIterator<Item = u64>,
    ) {
        self.count += 1;
        if starts.len() == 0 && self.entries > 0 {
            for left in self.classes.values_mut() {
                left.before = left.now;
                left.log.clear();
            }
            (self.entries, self.most) = (0, FEW);
        }
        let left = self.classes.entry(class).or_default();
        left.now = (left.now.0 + 1, left.now.1 + bytes);
        if starts.len() == 0 {
            left.before = left.now;
            return;
        }
        left.log.push((self.count, left.now));
        self.entries += 1;
        if self.entries > self.most {
            self.thin(starts);
        }
    }

    /// Removes the entries that nobody needs: of those between two starts all but the last.
    fn thin(&mut self, starts: impl Iterator<Item = u64>) {
        let mut starts: Vec<u64> = starts.collect();
        starts.sort_unstable();
        self.entries = 0;
        for left in self.classes.values_mut() {
            let log = std::mem::take(&mut left.log);
            let next = log.iter().skip(1).map(|&(number, _)| number);
            // Whoever comes later needs the last one.
            let next = next.chain(std::iter::once(u64::MAX));
            let needed = log.iter().zip(next).filter(|&(&(number, _), next)| {
                let first = starts.partition_point(|&start| start < number);
                next == u64::MAX || starts.get(first).is_some_and(|&start| start < next)
            });
            left.log = needed.map(|(&entry, _)| entry).collect();
            self.entries += left.log.len();
        }
        self.most = 2 * self.entries + FEW;
    }

    /// Frames and bytes of each class that left since so many departures had been.
    pub(super) fn since(&self, start: u64) -> BTreeMap<Handle, Sums> {
        let of = self.classes.iter().map(|(&class, left)| {
            let behind = left.log.partition_point(|&(number, _)| number <= start);
            let before = match behind.checked_sub(1) {
                Some(last) => left.log[last].1,
                None => left.before,
            };
            (class, (left.now.0 - before.0, left.now.1 - before.1))
        });
        of.filter(|&(_, (frames, _))| frames > 0).collect()
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// Packets that wait see what left since they came, though most of the log is gone.
    #[test]
    fn the_log_is_bounded_by_those_who_wait() {
        let mut departures = Departures::default();
        let class = |number: u64| Handle::new(1, 1 + (number % 3) as u16);
        let mut starts: Vec<u64> = Vec::new();
        for number in 0..50_000 {
            if number == 7 || number % 10_000 == 9_999 {
                starts.push(departures.count());
            }
            departures.note(class(number), number, starts.iter().copied());
            assert!(departures.entries <= 2 * 3 * (starts.len() + 1) + FEW);
        }
        for start in starts {
            let mut expected: BTreeMap<Handle, Sums> = BTreeMap::new();
            for number in start..50_000 {
                let sums = expected.entry(class(number)).or_default();
                *sums = (sums.0 + 1, sums.1 + number);
            }
            assert_eq!(departures.since(start), expected, "{start}");
        }
        // Nobody waits any more.
        departures.note(class(0), 1, std::iter::empty());
        assert_eq!(departures.entries, 0);
        assert!(departures.since(departures.count()).is_empty());
    }
}
