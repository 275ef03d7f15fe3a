//! The bounded store of equal pages that the flow tables of a device borrow from and give back to,
//! without an allocation: of ten thousand tables each may need a whole one, and few do.
//!
//! An owner has [`Pages`]: a row of places, each with a page or none. The control path makes the
//! pages, as owners come ([`Pages::new`]); they stay as long as the store.
//!
//! Invariant: each page has a number, and the number a slot. While the page is free, it is in the
//! slot and the number is in the stack of free ones, once. While it is borrowed, neither is so, and
//! one `Pages` has it. Argument: `take` pops a number, and then it alone uses that slot, until it
//! has the page; `put` has the page, and so the number that nobody else has, fills the slot, and
//! then pushes the number. So a slot's mutex is always free: it is there for the compiler. Each
//! `Pages` gives back what it has when it is dropped, and the store drops its pages.
//!
//! Ordering: a `take` sees what was written before its number was pushed (P and T of
//! [`IndexStack`]): the slot is full, and its mutex free. `put` makes a segment before it pushes a
//! number of it. `wanted` and `made` carry no data: each number is made by the one whose
//! `fetch_max` went past it. `lent` is a hint: who reads an older one keeps a page longer, or not
//! as long.
//!
//! Nobody waits for another, but two callers of `Pages::new` that make the same segment.

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};

use softnet::sync::IndexStack;
use softnet::sync::primitive::{AtomicUsize, Mutex, Ordering};

/// Numbers of the first segment; each further one has twice as many as the one before. (loom counts
/// every slot.)
const FIRST: usize = if cfg!(loom) { 1 } else { 64 };
const SEGMENTS: usize = 12;
/// Numbers of all segments.
const MOST: usize = FIRST * ((1 << SEGMENTS) - 1);

/// A page and its number.
struct Page<T> {
    content: T,
    number: usize,
}

/// A free page.
type Slot<T> = Mutex<Option<Box<Page<T>>>>;

/// Slots and stack of consecutive numbers.
struct Segment<T> {
    slots: Box<[Slot<T>]>,
    free: IndexStack,
}

impl<T> Segment<T> {
    fn new(len: usize) -> Segment<T> {
        Segment {
            slots: (0..len).map(|_| Mutex::new(None)).collect(),
            free: IndexStack::new(len),
        }
    }

    /// Puts a page, or none, in a slot, and returns what was there.
    fn replace(&self, index: usize, page: Option<Box<Page<T>>>) -> Option<Box<Page<T>>> {
        let slot = self.slots[index].lock();
        std::mem::replace(&mut *slot.unwrap_or_else(PoisonError::into_inner), page)
    }
}

/// Pages that are borrowed: alone on its lines, as all owners write it.
#[repr(align(128))]
struct Lent(AtomicUsize);

/// A bounded store of pages.
pub(super) struct PageStore<T> {
    segments: [OnceLock<Box<Segment<T>>>; SEGMENTS],
    most: usize,
    /// Places of all owners.
    wanted: AtomicUsize,
    /// Pages that were made.
    made: AtomicUsize,
    lent: Lent,
}

impl<T> fmt::Debug for PageStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageStore")
            .field("most", &self.most)
            .field("made", &self.made.load(Ordering::Relaxed))
            .field("lent", &self.lent.0.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<T> PageStore<T> {
    /// A store that has no page yet, and never more than `most`, which counts as 262,080 at most.
    pub(super) fn new(most: usize) -> PageStore<T> {
        PageStore {
            segments: [const { OnceLock::new() }; SEGMENTS],
            most: most.min(MOST),
            wanted: AtomicUsize::new(0),
            made: AtomicUsize::new(0),
            lent: Lent(AtomicUsize::new(0)),
        }
    }

    /// The segment of a number, and its index there.
    fn place(&self, number: usize) -> (&Segment<T>, usize) {
        let doublings = (number / FIRST + 1).ilog2();
        let before = FIRST * ((1 << doublings) - 1);
        let made = || Box::new(Segment::new(FIRST << doublings));
        let segment = self.segments[doublings as usize].get_or_init(made);
        (segment, number - before)
    }

    /// Makes a page free.
    fn put(&self, page: Box<Page<T>>) {
        let (segment, index) = self.place(page.number);
        segment.replace(index, Some(page));
        segment.free.push(index as u32);
    }

    /// Takes a free page, as it was put.
    fn take(&self) -> Option<Box<Page<T>>> {
        let mut made = self.segments.iter().map_while(OnceLock::get);
        made.find_map(|segment| {
            let index = segment.free.pop()?;
            segment.replace(index as usize, None)
        })
    }
}

impl<T: Default> PageStore<T> {
    /// An owner of so many places has come: makes the pages that are missing for all, within the
    /// bound.
    fn reserve(&self, places: usize) {
        let wanted = self.wanted.fetch_add(places, Ordering::Relaxed) + places;
        let enough = wanted.min(self.most);
        let made = self.made.fetch_max(enough, Ordering::Relaxed);
        for number in made..enough {
            let content = T::default();
            self.put(Box::new(Page { content, number }));
        }
    }
}

/// Places of an owner, each with a page of a store or none.
pub(super) struct Pages<T: Default> {
    store: Arc<PageStore<T>>,
    places: Box<[Option<Box<Page<T>>>]>,
}

impl<T: Default> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("places", &self.places.len())
            .finish_non_exhaustive()
    }
}

impl<T: Default> Pages<T> {
    /// So many places without a page. The store makes pages for them, as far as its bound allows:
    /// not for the packet path.
    pub(super) fn new(store: &Arc<PageStore<T>>, places: usize) -> Pages<T> {
        store.reserve(places);
        Pages {
            store: store.clone(),
            places: (0..places).map(|_| None).collect(),
        }
    }

    /// Number of places.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// The page at a place, if there is one.
    #[inline(always)]
    pub(super) fn get(&self, place: usize) -> Option<&T> {
        let page = self.places.get(place)?.as_ref()?;
        Some(&page.content)
    }

    /// As [`get`](Pages::get), to write.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        let page = self.places.get_mut(place)?.as_mut()?;
        Some(&mut page.content)
    }

    /// Puts a page at a place that has none: one that was never used, or as its last owner gave it
    /// back. False: the store is empty. Never waits.
    ///
    /// # Panics
    /// If there is no such place.
    pub(super) fn take(&mut self, place: usize) -> bool {
        let place = &mut self.places[place];
        if place.is_none() {
            *place = self.store.take();
            if place.is_some() {
                self.store.lent.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        place.is_some()
    }

    /// Gives the page at a place back, if there is one. Never waits.
    ///
    /// # Panics
    /// If there is no such place.
    pub(super) fn give_back(&mut self, place: usize) {
        if let Some(page) = self.places[place].take() {
            self.store.put(page);
            self.store.lent.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// True if more than half of the pages that the store may have are borrowed.
    #[inline]
    pub(super) fn is_scarce(&self) -> bool {
        self.store.lent.0.load(Ordering::Relaxed) > self.store.most / 2
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

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn pages_are_borrowed_and_come_back() {
        let store = Arc::new(PageStore::<Vec<u32>>::new(5));
        let made = |store: &PageStore<_>| store.made.load(Ordering::Relaxed);
        let mut first = Pages::new(&store, 2);
        assert_eq!((first.places(), made(&store)), (2, 2));
        let mut second = Pages::new(&store, 4);
        assert_eq!(made(&store), 5, "not the sixth");
        assert!(second.take(0) && second.take(1) && !second.is_scarce());
        assert!(second.take(2) && second.is_scarce());
        assert!(second.take(3) && first.take(1));
        assert!(!first.take(0), "the store is empty");
        assert!(first.take(1), "it has one");
        assert!(first.get(0).is_none() && first.get(2).is_none());
        first.get_mut(1).unwrap().push(7);
        for place in 0..4 {
            second.get_mut(place).unwrap().push(place as u32);
        }
        second.give_back(3);
        second.give_back(3);
        assert!(first.take(0));
        assert_eq!(first.get(0), Some(&vec![3]), "as it was given back");
        assert_eq!(first.get(1), Some(&vec![7]));
        drop(second);
        assert!(!first.is_scarce());
        let mut third = Pages::new(&store, 3);
        assert_eq!(made(&store), 5);
        assert!((0..3).all(|place| third.take(place)));
        // A page whose owner is gone is as new.
        assert!((0..3).all(|place| third.get(place) == Some(&Vec::new())));
    }

    #[test]
    fn pages_are_made_for_the_places_that_there_are() {
        // In two segments at least.
        let (some, most) = (200, 1000);
        let store = Arc::new(PageStore::<u8>::new(most));
        let made = || store.made.load(Ordering::Relaxed);
        for _ in 0..3 {
            let mut pages = Pages::new(&store, some);
            assert!((0..some).all(|place| pages.take(place)));
            assert_eq!(made(), some);
        }
        // Who comes in another's place comes before that one goes.
        let mut latest = Pages::new(&store, some);
        assert_eq!((latest.places(), made()), (some, some));
        for _ in 0..3 {
            latest = Pages::new(&store, some);
            assert!((0..some).all(|place| latest.take(place)));
            assert_eq!(made(), 2 * some);
        }
        drop(latest);
        let all = [3, 6, 9].map(|halves| Pages::new(&store, halves * some / 2));
        assert_eq!(made(), most);
        drop(all);
        let mut pages = Pages::new(&store, most + 1);
        assert_eq!((0..=most).filter(|&place| pages.take(place)).count(), most);
        assert!(!Pages::new(&Arc::new(PageStore::<u8>::new(0)), 1).take(0));
    }

    /// A page belongs to one owner at a time: none is changed behind another's back.
    #[test]
    fn threads_share_a_store() {
        let store = Arc::new(PageStore::<u64>::new(2));
        let run = |thread: u64| {
            let mut pages = Pages::new(&store, 2);
            let mut had: u64 = 0;
            for round in 0..10_000 {
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
            let threads = [1, 2, 3].map(|thread| scope.spawn(move || run(thread)));
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert!(had > 0);
        assert_eq!(store.lent.0.load(Ordering::Relaxed), 0);
        let mut all = Pages::new(&store, 2);
        assert!(all.take(0) && all.take(1), "both have come back");
    }
}

/// The stack below has models of its own, and the twins of those, in the core.
#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;

    /// Puts a page that was borrowed into its store.
    type Put = fn(&PageStore<u32>, Box<Page<u32>>);

    fn use_one(pages: &mut Pages<u32>, put: Put) -> bool {
        let has = pages.take(0);
        if let Some(mut page) = pages.places[0].take() {
            page.content += 1;
            put(&pages.store, page);
        }
        has
    }

    /// A page has one owner at a time, who sees what the one before wrote, and none is lost: with
    /// as many pages as owners, or one for both.
    fn share(most: usize, put: Put) {
        loom::model(move || {
            let store = Arc::new(PageStore::new(most));
            let mut mine = Pages::new(&store, 2);
            let mut others = Pages::new(&store, 1);
            let thread = thread::spawn(move || use_one(&mut others, put));
            let here = use_one(&mut mine, PageStore::put);
            let there = thread.join().unwrap();
            let back = (0..most).all(|place| mine.take(place));
            let uses: u32 = mine.places.iter().flatten().map(|page| page.content).sum();
            drop((mine, store));
            assert!(back, "a page is lost");
            assert!(most == 1 || here && there, "as many pages as owners");
            assert!(here || there);
            assert_eq!(uses, u32::from(here) + u32::from(there));
        });
    }

    #[test]
    fn two_owners_share_one_page() {
        share(1, PageStore::put);
    }

    #[test]
    fn two_owners_have_a_page_each() {
        share(2, PageStore::put);
    }

    /// The twin: a number that is free before its page is in the slot.
    #[test]
    #[should_panic(expected = "a page is lost")]
    fn a_page_whose_number_is_free_too_early_is_lost() {
        share(1, |store, page| {
            let (segment, index) = store.place(page.number);
            segment.free.push(index as u32);
            segment.replace(index, Some(page));
        });
    }
}
