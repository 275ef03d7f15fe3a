//! Filters by what their fields hash to. A clone shares all buckets with the original; a change of
//! one of them copies one bucket, and the pointers to the others.

use std::sync::Arc;

use super::entry::Filter;

/// Filters in a bucket, on average, at most.
const LOAD: usize = 8;
/// Filters up to which each has a bucket, so that a look-up compares one hash. With more, to copy
/// the pointers to all buckets would take too long.
const SPARSE: usize = 1024;

#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    filter: Arc<Filter>,
}

/// Filters whose fields hash to the same few bits, in their order.
type Bucket = Arc<[Entry]>;

/// A hash table of filters.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// A power of two of them.
    buckets: Arc<[Bucket]>,
    len: usize,
}

impl Table {
    /// Filters and what they hash to.
    pub(super) fn new(filters: impl IntoIterator<Item = (u64, Arc<Filter>)>) -> Table {
        let entries = filters.into_iter();
        Table::of(
            entries
                .map(|(hash, filter)| Entry { hash, filter })
                .collect(),
        )
    }

    fn of(mut entries: Vec<Entry>) -> Table {
        let len = entries.len();
        let size = Table::size(len);
        let at = |entry: &Entry| entry.hash as usize & (size - 1);
        entries.sort_by_key(|entry| (at(entry), entry.filter.order));
        let mut rest = &entries[..];
        let buckets = (0..size).map(|bucket| {
            let (own, others) = rest.split_at(rest.partition_point(|e| at(e) == bucket));
            rest = others;
            own.into()
        });
        Table {
            buckets: buckets.collect(),
            len,
        }
    }

    /// Buckets of so many filters.
    fn size(len: usize) -> usize {
        let least = len.div_ceil(LOAD).max(len.min(SPARSE));
        least.next_power_of_two()
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The filters, in no order.
    pub(super) fn filters(&self) -> impl Iterator<Item = &Arc<Filter>> {
        let entries = self.buckets.iter().flat_map(|bucket| bucket.iter());
        entries.map(|entry| &entry.filter)
    }

    /// The first filter of this hash for which `is` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(&Filter) -> bool) -> Option<&Filter> {
        let bucket = &self.buckets[self.bucket(hash)];
        let found = bucket.iter().find(|e| e.hash == hash && is(&e.filter));
        found.map(|entry| &*entry.filter)
    }

    /// Adds a filter.
    pub(super) fn insert(&mut self, hash: u64, filter: Arc<Filter>) {
        self.len += 1;
        self.change(hash, |bucket| {
            let at = bucket.partition_point(|entry| entry.filter.order < filter.order);
            bucket.insert(at, Entry { hash, filter });
        });
    }

    /// Removes a filter, which it has.
    pub(super) fn remove(&mut self, hash: u64, filter: &Arc<Filter>) {
        self.len -= 1;
        self.change(hash, |bucket| {
            bucket.retain(|entry| !Arc::ptr_eq(&entry.filter, filter));
        });
    }

    fn change(&mut self, hash: u64, f: impl FnOnce(&mut Vec<Entry>)) {
        let at = self.bucket(hash);
        let mut bucket = self.buckets[at].to_vec();
        f(&mut bucket);
        Arc::make_mut(&mut self.buckets)[at] = bucket.into();
        let (size, wanted) = (self.buckets.len(), Table::size(self.len));
        // Between the two bounds a table neither grows nor shrinks, so that not each change of one
        // at a bound makes it anew.
        if wanted > size || wanted < size / 4 {
            let entries = self.buckets.iter().flat_map(|bucket| bucket.iter());
            *self = Table::of(entries.cloned().collect());
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::filter::{FilterKind, FilterSpec};
    use crate::handle::Handle;

    /// Each of few filters has a bucket, and many do not share one, whatever came and went.
    #[test]
    fn buckets_follow_the_number_of_filters() {
        let class = Handle::new(1, 1);
        let filter = |order| Filter::new(FilterSpec::new(FilterKind::Matchall, class), order);
        let hash = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let all: Vec<_> = (0..3000).map(|n| (hash(n), filter(n))).collect();
        let mut table = Table::new(std::iter::empty());
        for (count, (hash, filter)) in (1_usize..).zip(&all) {
            table.insert(*hash, filter.clone());
            let buckets = table.buckets.len();
            assert!(buckets >= count.min(SPARSE) && LOAD * buckets >= count);
        }
        for (rest, (hash, filter)) in (0..all.len()).rev().zip(&all) {
            let is = |other: &Filter| other.order == filter.order;
            assert!(table.find(*hash, is).is_some());
            table.remove(*hash, filter);
            assert!(table.find(*hash, is).is_none());
            assert!(table.buckets.len() <= 8 * rest.max(1), "{rest} are left");
        }
        assert!(table.is_empty());
    }
}
