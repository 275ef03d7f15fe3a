//! `u32`: a match on words of the frame (tc-u32(8)). A frame that ends before a key is compared
//! with no further filter of the priority, as in the kernel.

use super::FilterError;
use super::frame::{ETHERNET, Frame};

/// A word that must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Value that the word must have, under the mask.
    pub value: u32,
    /// Which bits count.
    pub mask: u32,
    /// Where it is: bytes behind the Ethernet header, which is counted without its first VLAN tag;
    /// a multiple of 4. `-16` to `-4` are in that header: the word at `-16` has the destination's
    /// first two bytes in its end.
    pub at: i32,
}

/// Keys that must all hold for a packet's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct U32 {
    /// The words. None: all packets match.
    pub keys: Vec<Key>,
    /// `(value, mask)`: the packet's mark under the mask is the value.
    pub mark: Option<(u32, u32)>,
}

impl Key {
    pub(super) fn check(&self) -> Result<(), FilterError> {
        let fits = (-16..=65_532).contains(&self.at) && self.at % 4 == 0;
        fits.then_some(()).ok_or(FilterError::Offset(self.at))
    }

    /// True if the word is in a frame; `None`: the frame ends before it.
    pub(super) fn matches(&self, frame: &Frame<'_>) -> Option<bool> {
        let word = frame.untagged(ETHERNET + i64::from(self.at))?;
        Some((u32::from_be_bytes(word) ^ self.value) & self.mask == 0)
    }
}

impl U32 {
    /// True if a frame matches; `None`: it ends before a key. Calls `held` for the mark, and for
    /// each key, as long as they hold.
    pub(super) fn matches(&self, frame: &Frame<'_>, mut held: impl FnMut()) -> Option<bool> {
        let mark = frame.packet.mark();
        if self
            .mark
            .is_some_and(|(value, mask)| (mark ^ value) & mask != 0)
        {
            return Some(false);
        }
        held();
        for key in &self.keys {
            if !key.matches(frame)? {
                return Some(false);
            }
            held();
        }
        Some(true)
    }
}
