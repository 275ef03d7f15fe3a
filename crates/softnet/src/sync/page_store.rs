//! A bounded store of equal pages that many owners borrow from and give back to, without
//! allocating: what is made for each of ten thousand, of which few are in use at a time.
//!
//! [`PageStore::reserve`] makes pages, in segments that stay where they are as long as the store
//! lives; the control path alone calls it. [`Pages`] are those that one owner has, each at a place
//! of its own.
//!
//! Invariant: a page is either free, and then its number is in its segment's stack once, or
//! borrowed, and then one `Pages` has its address. Argument: [`take`](PageStore::take) turns a
//! number that it popped into an address, [`give`](PageStore::give) an address that its caller had
//! into a number that it pushes; both leave the page itself alone. What the giver wrote is visible
//! to the next taker by the stack's Release and Acquire ([`IndexStack`]). A segment is published by
//! its `OnceLock`, with its numbers pushed before.
//!
//! The two sums are hints: who reads an older one gives a page back that it might have kept, or
//! keeps it until it is idle again.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use super::IndexStack;
use super::primitive::{AtomicUsize, Mutex, Ordering, UnsafeCell};

/// Each segment doubles the pages at least, so that these hold any number.
const SEGMENTS: usize = 24;

/// A store of pages. Clones of its `Arc` share it.
pub struct PageStore<T> {
    segments: [OnceLock<Segment<T>>; SEGMENTS],
    /// Segments that were made; held while one is made.
    made: Mutex<usize>,
    most: usize,
    /// Pages that there are, and that would be if each owner had all of its own.
    pages: AtomicUsize,
    wanted: AtomicUsize,
    /// Pages that nobody has.
    free: CachePadded<AtomicUsize>,
}

struct Segment<T> {
    free: IndexStack,
    pages: Box<[UnsafeCell<T>]>,
}

// SAFETY: a page is used by the one `Pages` that has borrowed it, in whichever thread that is.
unsafe impl<T: Send> Sync for PageStore<T> {}
// SAFETY: pages move with the store, and may.
unsafe impl<T: Send> Send for PageStore<T> {}

impl<T> fmt::Debug for PageStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageStore")
            .field("most", &self.most)
            .field("pages", &self.pages.load(Ordering::Relaxed))
            .field("wanted", &self.wanted.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<T: Default> Segment<T> {
    fn new(len: usize) -> Segment<T> {
        let free = IndexStack::new(len);
        // The first is taken first.
        (0..len as u32).rev().for_each(|index| free.push(index));
        Segment {
            free,
            pages: (0..len).map(|_| UnsafeCell::new(T::default())).collect(),
        }
    }
}

impl<T: Default> PageStore<T> {
    /// An empty store, which never has more than `most` pages (2^23 at most).
    pub fn new(most: usize) -> PageStore<T> {
        PageStore {
            segments: [const { OnceLock::new() }; SEGMENTS],
            made: Mutex::new(0),
            most: most.min(1 << 23),
            pages: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            free: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// An owner comes that may use so many: makes as many as all want, within the bound. Waits for
    /// other threads that do the same.
    pub fn reserve(&self, pages: usize) {
        let Ok(mut made) = self.made.lock() else {
            return;
        };
        let wanted = self.wanted.fetch_add(pages, Ordering::Relaxed) + pages;
        let there = self.pages.load(Ordering::Relaxed);
        let missing = wanted.min(self.most).saturating_sub(there);
        if missing == 0 {
            return;
        }
        let len = missing.max(there).min(self.most - there);
        if let Some(place) = self.segments.get(*made)
            && place.set(Segment::new(len)).is_ok()
        {
            *made += 1;
            self.free.fetch_add(len, Ordering::Relaxed);
            self.pages.store(there + len, Ordering::Relaxed);
        }
    }

    fn segments(&self) -> impl Iterator<Item = &Segment<T>> {
        self.segments.iter().map_while(OnceLock::get)
    }

    /// Borrows a free page, as it was given back.
    fn take(&self) -> Option<NonNull<T>> {
        self.segments().find_map(|segment| {
            let page = &segment.pages[segment.free.pop()? as usize];
            self.free.fetch_sub(1, Ordering::Relaxed);
            page.with_mut(NonNull::new)
        })
    }

    /// Gives a borrowed page back.
    fn give(&self, page: NonNull<T>) {
        for segment in self.segments() {
            let pages = segment.pages.as_ptr_range();
            let (start, end) = (pages.start.addr(), pages.end.addr());
            if (start..end).contains(&page.addr().get()) {
                let index = (page.addr().get() - start) / size_of::<UnsafeCell<T>>();
                self.free.fetch_add(1, Ordering::Relaxed);
                segment.free.push(index as u32);
                return;
            }
        }
    }

    /// Pages that there are.
    pub fn len(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// True if there is no page.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Places for pages of a store, of which some have one.
pub struct Pages<T: Default> {
    store: Arc<PageStore<T>>,
    places: Box<[Option<NonNull<T>>]>,
}

// SAFETY: the pages are this owner's alone, as if they were in boxes.
unsafe impl<T: Default + Send> Send for Pages<T> {}
// SAFETY: a shared reference gives shared references to pages alone.
unsafe impl<T: Default + Send + Sync> Sync for Pages<T> {}

impl<T: Default> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("places", &self.places.len())
            .finish_non_exhaustive()
    }
}

impl<T: Default> Pages<T> {
    /// So many places without a page, for which the store makes some.
    pub fn new(store: &Arc<PageStore<T>>, places: usize) -> Pages<T> {
        store.reserve(places);
        Pages {
            store: store.clone(),
            places: vec![None; places].into(),
        }
    }

    /// Number of places.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// The page at a place, if there is one.
    #[inline(always)]
    pub fn get(&self, place: usize) -> Option<&T> {
        let page = (*self.places.get(place)?)?;
        // SAFETY: borrowed by this `Pages` alone, whose store keeps it where it is.
        Some(unsafe { page.as_ref() })
    }

    /// As [`get`](Pages::get), to write.
    #[inline(always)]
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let mut page = (*self.places.get(place)?)?;
        // SAFETY: as in `get`, and this `Pages` is borrowed alone.
        Some(unsafe { page.as_mut() })
    }

    /// Puts a page at a place that has none. False: the store is empty.
    #[cold]
    pub fn take(&mut self, place: usize) -> bool {
        if self.places[place].is_none() {
            self.places[place] = self.store.take();
        }
        self.places[place].is_some()
    }

    /// Gives the page at a place back. The next owner finds it as it is.
    pub fn give_back(&mut self, place: usize) {
        if let Some(page) = self.places[place].take() {
            self.store.give(page);
        }
    }

    /// True if the store has fewer pages than all places would take.
    #[inline]
    pub fn is_short(&self) -> bool {
        let store = &*self.store;
        store.wanted.load(Ordering::Relaxed) > store.pages.load(Ordering::Relaxed)
    }

    /// True if at least half of the store's pages are free.
    pub fn is_plentiful(&self) -> bool {
        self.store.free.load(Ordering::Relaxed) * 2 >= self.store.len()
    }
}

impl<T: Default> Drop for Pages<T> {
    fn drop(&mut self) {
        for place in 0..self.places.len() {
            if let Some(page) = self.get_mut(place) {
                *page = T::default();
                self.give_back(place);
            }
        }
        let wanted = &self.store.wanted;
        wanted.fetch_sub(self.places.len(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pages_are_borrowed_and_come_back() {
        let store = Arc::new(PageStore::<Vec<u32>>::new(5));
        let mut first = Pages::new(&store, 2);
        assert_eq!(store.len(), 2);
        assert!(!first.is_short() && first.is_plentiful());
        let mut second = Pages::new(&store, 4);
        // Not the sixth.
        assert_eq!(store.len(), 5);
        assert!(first.is_short());
        assert!((0..4).all(|place| second.take(place)) && first.take(1));
        assert!(!first.take(0), "the store is empty");
        assert!(first.get(0).is_none() && first.get(2).is_none());
        first.get_mut(1).unwrap().push(7);
        for place in 0..4 {
            second.get_mut(place).unwrap().push(place as u32);
        }
        second.give_back(3);
        assert!(first.take(0));
        assert_eq!(first.get(0), Some(&vec![3]), "as it was given back");
        assert_eq!(first.get(1), Some(&vec![7]));
        drop(second);
        assert!(!first.is_short() && first.is_plentiful());
        let mut third = Pages::new(&store, 3);
        assert!((0..3).all(|place| third.take(place)));
        // A page whose owner is gone is as new.
        assert!((0..3).all(|place| third.get(place) == Some(&Vec::new())));
        assert!(!third.is_plentiful());
    }

    /// A page belongs to one owner at a time: none is changed behind another's back.
    #[test]
    fn threads_share_a_store() {
        let rounds = if cfg!(miri) { 20 } else { 10_000 };
        let store = Arc::new(PageStore::<u64>::new(2));
        let run = |thread: u64| {
            let mut pages = Pages::new(&store, 2);
            let mut had = 0;
            for round in 0..rounds {
                for place in 0..2 {
                    if pages.take(place) {
                        *pages.get_mut(place).unwrap() = thread << 32 | round;
                    }
                }
                for place in 0..2 {
                    if let Some(page) = pages.get(place) {
                        assert_eq!(*page, thread << 32 | round);
                        had += 1;
                    }
                    pages.give_back(place);
                }
            }
            had
        };
        let had: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..4).map(|n| scope.spawn(move || run(n))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert!(had > 0);
        let mut all = Pages::new(&store, 2);
        assert!(all.take(0) && all.take(1), "both have come back");
    }
}
