//! Classes in round robin: a set of minor numbers in their order, and the one whose turn it is.
//!
//! The set is a bit map of three levels, so that to add, to remove and to find the next one take
//! a few instructions each, whatever the number of classes. Its pages of 4096 numbers are made
//! when they are first needed.

use std::array;
use std::hint::select_unpredictable;

/// Words of a page.
const WORDS: usize = 64;
/// Pages of a set.
const PAGES: usize = 16;

/// A set of numbers of 16 bits.
#[derive(Debug)]
struct MinorSet {
    /// Bit p: page p is not empty.
    pages: u16,
    /// Bit w of number p: word w of page p is not empty.
    words: [u64; PAGES],
    bits: [Option<Box<[u64; WORDS]>>; PAGES],
}

/// Page, word and bit of a number.
#[inline]
fn place(minor: u16) -> (usize, usize, u32) {
    let minor = usize::from(minor);
    (minor >> 12, minor >> 6 & 63, (minor & 63) as u32)
}

impl MinorSet {
    fn new() -> MinorSet {
        MinorSet {
            pages: 0,
            words: [0; PAGES],
            bits: array::from_fn(|_| None),
        }
    }

    fn is_empty(&self) -> bool {
        self.pages == 0
    }

    fn insert(&mut self, minor: u16) {
        let (page, word, bit) = place(minor);
        let bits = self.bits[page].get_or_insert_with(|| Box::new([0; WORDS]));
        bits[word] |= 1 << bit;
        self.words[page] |= 1 << word;
        self.pages |= 1 << page;
    }

    fn remove(&mut self, minor: u16) {
        let (page, word, bit) = place(minor);
        let Some(bits) = &mut self.bits[page] else {
            return;
        };
        bits[word] &= !(1 << bit);
        // Whether it was the word's last one cannot be predicted.
        self.words[page] &= !(u64::from(bits[word] == 0) << word);
        if self.words[page] == 0 {
            self.pages &= !(1 << page);
        }
    }

    /// The first number, from this one on.
    #[inline]
    fn first_from(&self, minor: u16) -> Option<u16> {
        let (page, word, bit) = place(minor);
        let Some(bits) = &self.bits[page] else {
            return self.first_beyond(page);
        };
        let here = bits[word] & (u64::MAX << bit);
        let later = self.words[page] & (u64::MAX << word << 1);
        if here | later == 0 {
            return self.first_beyond(page);
        }
        // Whether it is in the same word cannot be predicted.
        let same = here != 0;
        let word = select_unpredictable(same, word, later.trailing_zeros() as usize & 63);
        let bits = select_unpredictable(same, here, bits[word]);
        Some((page << 12 | word << 6 | bits.trailing_zeros() as usize) as u16)
    }

    /// The first number of the pages after this one.
    fn first_beyond(&self, page: usize) -> Option<u16> {
        let later = u32::from(self.pages) & (u32::MAX << page << 1);
        if later == 0 {
            return None;
        }
        let page = later.trailing_zeros() as usize;
        let word = self.words[page].trailing_zeros() as usize & 63;
        let bits = self.bits[page].as_ref()?[word];
        Some((page << 12 | word << 6 | bits.trailing_zeros() as usize) as u16)
    }
}

/// Classes that are served in turn, by their minor numbers.
#[derive(Debug)]
pub(super) struct Row {
    set: MinorSet,
    /// Whose turn it is. `None`: that of the first one.
    current: Option<u16>,
    /// The class whose turn it was and which was removed; 0 if there is none. If it comes back
    /// before the next look, it is its turn again; else it is that of the one after it.
    left: u16,
}

impl Row {
    pub(super) fn new() -> Row {
        Row {
            set: MinorSet::new(),
            current: None,
            left: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    pub(super) fn insert(&mut self, minor: u16) {
        self.set.insert(minor);
    }

    #[cfg(test)]
    pub(super) fn contains(&self, minor: u16) -> bool {
        self.set.first_from(minor) == Some(minor)
    }

    /// Removes a class; the turn goes to the one after it.
    pub(super) fn remove(&mut self, minor: u16) {
        if self.current == Some(minor) {
            self.advance();
        }
        self.set.remove(minor);
    }

    /// Removes a class that may come back; see [`left`](Row::left).
    pub(super) fn suspend(&mut self, minor: u16) {
        if self.current == Some(minor) {
            (self.current, self.left) = (None, minor);
        }
        self.set.remove(minor);
    }

    /// Whose turn it is; `None` if the last one has had its turn, or none is there.
    #[inline]
    pub(super) fn current(&mut self) -> Option<u16> {
        let left = std::mem::take(&mut self.left);
        if self.current.is_none() && left != 0 {
            self.current = self.set.first_from(left);
        }
        self.current
    }

    /// Whose turn it is, or the first one's after the last one's.
    #[inline]
    pub(super) fn current_or_first(&mut self) -> Option<u16> {
        if self.current().is_none() {
            self.rewind();
        }
        self.current
    }

    /// Whose turn is next; `None` if that is the first one's.
    #[inline]
    pub(super) fn second(&self) -> Option<u16> {
        let after = self.current?.checked_add(1)?;
        self.set.first_from(after)
    }

    /// Gives the turn to the first one. False if none is there.
    pub(super) fn rewind(&mut self) -> bool {
        self.current = self.set.first_from(0);
        self.current.is_some()
    }

    /// Gives the turn to the next one.
    pub(super) fn advance(&mut self) {
        let after = self.current.and_then(|minor| minor.checked_add(1));
        self.current = after.and_then(|from| self.set.first_from(from));
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_bit_map_is_an_ordered_set(
            steps in prop::collection::vec((any::<bool>(), 0..9_u8, any::<u16>()), 1..300),
        ) {
            let (mut set, mut model) = (MinorSet::new(), BTreeSet::new());
            for (insert, shift, minor) in steps {
                // Dense and sparse ones.
                let minor = minor >> shift;
                if insert {
                    set.insert(minor);
                    model.insert(minor);
                } else {
                    set.remove(minor);
                    model.remove(&minor);
                }
                prop_assert_eq!(set.is_empty(), model.is_empty());
                for from in [0, minor, minor.wrapping_add(1), u16::MAX] {
                    prop_assert_eq!(set.first_from(from), model.range(from..).next().copied());
                }
            }
        }
    }

    #[test]
    fn the_second_is_behind_whose_turn_it_is() {
        let mut row = Row::new();
        [1, 70, u16::MAX]
            .into_iter()
            .for_each(|minor| row.insert(minor));
        assert_eq!(row.second(), None);
        for expected in [(Some(1), Some(70)), (Some(70), Some(u16::MAX))] {
            assert_eq!((row.current_or_first(), row.second()), expected);
            row.advance();
        }
        assert_eq!(
            (row.current_or_first(), row.second()),
            (Some(u16::MAX), None)
        );
    }

    #[test]
    fn a_class_that_comes_back_keeps_its_turn() {
        let mut row = Row::new();
        [1, 2, 3].into_iter().for_each(|minor| row.insert(minor));
        assert_eq!(row.current(), None);
        assert!(row.rewind());
        row.advance();
        row.suspend(2);
        row.insert(2);
        assert_eq!(row.current(), Some(2));
        row.suspend(2);
        assert_eq!(row.current(), Some(3));
        row.insert(2);
        row.remove(3);
        assert_eq!(row.current(), None, "the last one has had its turn");
    }
}
