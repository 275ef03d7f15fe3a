//! The hash tables of `u32` filters as the packet path goes through them (`u32_classify`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::FilterKind;
use super::entry::Filter;
use super::frame::{ETHERNET, Frame};

/// Filters of a bucket, in the order in which they are tried.
pub(super) type Bucket = Arc<Vec<Arc<Filter>>>;

/// Tables within each other at most (`TC_U32_MAXDEPTH`).
const DEEPEST: usize = 8;
/// Filters that one packet is compared with at most in one priority: tables that lead to each
/// other again and again are more than any policy needs.
const MOST: u32 = 1 << 16;

/// A hash table, and the priority that it came with.
#[derive(Clone, Debug)]
pub(super) struct HashTable {
    pub(super) chain: u32,
    pub(super) prio: u16,
    buckets: Vec<Bucket>,
}

/// The tables of one list of filters, but for those that priorities start with. All priorities
/// share them.
#[derive(Clone, Debug, Default)]
pub(super) struct HashTables(BTreeMap<u32, Arc<HashTable>>);

impl HashTable {
    pub(super) fn new(chain: u32, prio: u16, buckets: u16) -> HashTable {
        HashTable {
            chain,
            prio,
            buckets: vec![Bucket::default(); buckets.into()],
        }
    }

    pub(super) fn buckets(&self) -> u16 {
        self.buckets.len() as u16
    }
}

impl HashTables {
    /// A table by its number, the first 12 bits of its handle.
    pub(super) fn get(&self, number: u32) -> Option<&HashTable> {
        self.0.get(&number).map(|table| &**table)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    pub(super) fn insert(&mut self, number: u32, table: HashTable) {
        self.0.insert(number, Arc::new(table));
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.0.remove(&number);
    }

    /// Keeps the tables for which `f` holds.
    pub(super) fn retain(&mut self, f: impl Fn(&HashTable) -> bool) {
        self.0.retain(|_, table| f(table));
    }

    /// Gives a bucket other filters.
    pub(super) fn set(&mut self, number: u32, bucket: u32, filters: Vec<Arc<Filter>>) {
        let table = self.0.get_mut(&number).map(Arc::make_mut);
        if let Some(place) = table.and_then(|table| table.buckets.get_mut(bucket as usize)) {
            *place = Arc::new(filters);
        }
    }
}

/// A place in a bucket: the filter that is tried next there, and where its offsets count from.
#[derive(Clone, Copy)]
struct Place<'a> {
    bucket: &'a [Arc<Filter>],
    at: usize,
    from: i64,
}

/// Way of a packet through the tables of a priority.
pub(super) struct Walk<'a> {
    tables: &'a HashTables,
    place: Place<'a>,
    /// Bytes that `nexthdr+` adds.
    next: u32,
    stack: [Place<'a>; DEEPEST],
    depth: usize,
    tried: u32,
}

impl<'a> Walk<'a> {
    pub(super) fn new(root: &'a [Arc<Filter>], tables: &'a HashTables) -> Walk<'a> {
        let place = |bucket| Place {
            bucket,
            at: 0,
            from: ETHERNET,
        };
        Walk {
            tables,
            place: place(root),
            next: 0,
            stack: [place(&[]); DEEPEST],
            depth: 0,
            tried: 0,
        }
    }

    /// The next filter that matches and decides.
    pub(super) fn next(&mut self, frame: &Frame<'_>) -> Option<&'a Filter> {
        loop {
            let Some(filter) = self.place.bucket.get(self.place.at) else {
                // Back to the filter that led here.
                self.depth = self.depth.checked_sub(1)?;
                self.place = self.stack[self.depth];
                let filter: &'a Filter = &self.place.bucket[self.place.at - 1];
                match filter.spec.kind {
                    FilterKind::U32(ref of) if of.decides(frame) => return Some(filter),
                    _ => continue,
                }
            };
            self.place.at += 1;
            self.tried += 1;
            if self.tried > MOST {
                return None;
            }
            let FilterKind::U32(of) = &filter.spec.kind else {
                continue;
            };
            if !filter.tries_from(of, frame, self.place.from, self.next)? {
                continue;
            }
            // A table that is no more has no filters.
            match of.link.and_then(|link| self.tables.get(link >> 20)) {
                Some(table) => {
                    let from = self.place.from;
                    let bucket = of.bucket(frame, from, table.buckets.len())?;
                    *self.stack.get_mut(self.depth)? = self.place;
                    self.depth += 1;
                    let (from, next) = of.offsets(frame, from, self.next)?;
                    self.next = next;
                    self.place = Place {
                        bucket: match frame.reaches(from) {
                            true => &table.buckets[bucket],
                            false => &[],
                        },
                        at: 0,
                        from,
                    };
                }
                None if of.decides(frame) => return Some(filter),
                None => {}
            }
        }
    }
}
