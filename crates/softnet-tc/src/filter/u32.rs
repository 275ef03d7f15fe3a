//! `u32`: a match on words of the frame, and the way on into a hash table of filters (tc-u32(8)).
//! A frame that ends before a key is compared with no further filter of the priority, as in the
//! kernel.

#[cfg(doc)]
use super::Flower;
use super::frame::Frame;
use super::handles::KEY;
use super::{FilterError, Indev};

/// A word that must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Value that the word must have, under the mask.
    pub value: u32,
    /// Which bits count.
    pub mask: u32,
    /// Where it is: bytes behind the Ethernet header, which is counted without its first VLAN tag.
    /// `-16` to `-4` are in that header: the word at `-16` has the destination's
    /// first two bytes in its end.
    pub at: i32,
    /// Bits of the offset that a filter before has found (`nexthdr+`: all), which are added. 0 in
    /// an expression of `basic`.
    pub next: u32,
}

/// Keys that must all hold for a packet's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct U32 {
    /// The words. None: all packets match.
    pub keys: Vec<Key>,
    /// `(value, mask)`: the packet's mark under the mask is the value.
    pub mark: Option<(u32, u32)>,
    /// The link that the packet was received on, as of [`Flower`]; only a filter that decides looks
    /// at it.
    pub indev: Option<Indev>,
    /// True if it decides nothing itself: it has neither class nor action.
    pub leads: bool,
    /// Handle of a hash table. The filters of one of its buckets are tried next; the filter
    /// itself decides if none of them does.
    pub link: Option<u32>,
    /// The bucket of that table.
    pub bucket: BucketKey,
    /// The header that the table's filters are for.
    pub offset: Offset,
}

/// Choice of a bucket (`hashkey`): a word under a mask, shifted right to the mask's lowest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketKey {
    /// Where the word is; bytes as of a [`Key`].
    pub at: i16,
    /// The mask; 0: bucket 0.
    pub mask: u32,
}

/// Where the next header starts (`offset`): what `plus` says and a number in the frame, rounded
/// up to 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset {
    /// True if there is such an offset.
    pub is_on: bool,
    /// Bytes.
    pub plus: u16,
    /// The number in the frame is added.
    pub is_variable: bool,
    /// Where the number is, of two bytes; bytes as of a [`Key`].
    pub at: i16,
    /// Bits of it that count.
    pub mask: u16,
    /// Bits that it is shifted right by.
    pub shift: u8,
    /// All offsets of the table's filters count from that header.
    pub eat: bool,
}

impl Key {
    pub(super) fn check(&self) -> Result<(), FilterError> {
        let fits = (-16..=65_532).contains(&self.at);
        fits.then_some(()).ok_or(FilterError::Offset(self.at))
    }

    /// True if the word is in a frame, counted from byte `from` on; `None`: the frame ends before
    /// it.
    pub(super) fn matches(&self, frame: &Frame<'_>, from: i64, next: u32) -> Option<bool> {
        let at = from + i64::from(self.at) + i64::from(next & self.next);
        let word = frame.untagged(at)?;
        Some((u32::from_be_bytes(word) ^ self.value) & self.mask == 0)
    }
}

impl U32 {
    pub(super) fn check(&self) -> Result<(), FilterError> {
        self.keys.iter().try_for_each(Key::check)?;
        match self.link {
            Some(link) if link & KEY != 0 => Err(FilterError::NoLink(link)),
            _ => Ok(()),
        }
    }

    /// True if a frame matches, counted from byte `from` on; `None`: it ends before a key. Calls
    /// `held` for the mark, and for each key, as long as they hold.
    pub(super) fn matches(
        &self,
        frame: &Frame<'_>,
        from: i64,
        next: u32,
        mut held: impl FnMut(),
    ) -> Option<bool> {
        let mark = frame.packet.mark();
        if self
            .mark
            .is_some_and(|(value, mask)| (mark ^ value) & mask != 0)
        {
            return Some(false);
        }
        held();
        for key in &self.keys {
            if !key.matches(frame, from, next)? {
                return Some(false);
            }
            held();
        }
        Some(true)
    }

    /// True if it decides about a frame that matches.
    pub(super) fn decides(&self, frame: &Frame<'_>) -> bool {
        let has_received = |indev: &Indev| indev.has_received(frame.packet);
        !self.leads && self.indev.as_ref().is_none_or(has_received)
    }

    /// The bucket of a table with so many; `None`: the frame ends before the word.
    pub(super) fn bucket(&self, frame: &Frame<'_>, from: i64, buckets: usize) -> Option<usize> {
        if buckets < 2 {
            return Some(0);
        }
        let BucketKey { at, mask } = self.bucket;
        let word = u32::from_be_bytes(frame.untagged(from + i64::from(at))?);
        let shift = if mask == 0 { 0 } else { mask.trailing_zeros() };
        // A power of two.
        Some(((word & mask) >> shift) as usize & (buckets - 1))
    }

    /// Offsets of a table's filters: the byte from which they count, and what `nexthdr+` adds.
    /// `None`: the frame ends before the number.
    pub(super) fn offsets(&self, frame: &Frame<'_>, from: i64, next: u32) -> Option<(i64, u32)> {
        let offset = &self.offset;
        let mut next = next;
        if offset.is_on || offset.is_variable {
            next = u32::from(offset.plus) + 3;
            if offset.is_variable {
                let number = frame.untagged(from + i64::from(offset.at))?;
                let number = u32::from(u16::from_be_bytes(number) & offset.mask);
                next += number.wrapping_shr(offset.shift.into());
            }
            next &= !3;
        }
        Some(match offset.eat {
            true => (from + i64::from(next), 0),
            false => (from, next),
        })
    }
}
