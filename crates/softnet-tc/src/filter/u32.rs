//! `u32`: a match on words of the frame (tc-u32(8)).

use super::FilterError;
use super::frame::{ETHERNET, Frame};

/// A word that must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// What the word must be, under the mask.
    pub value: u32,
    /// Which bits count.
    pub mask: u32,
    /// Where it is: bytes behind the Ethernet header, which is counted without its first VLAN tag;
    /// a multiple of 4. `-16` to `-4` are in that header: the word at `-16` has the destination's
    /// first two bytes in its end.
    pub at: i32,
}

/// What a packet's bytes must be like: all of it.
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

    pub(super) fn matches(&self, frame: &Frame<'_>) -> bool {
        let word = frame.untagged(ETHERNET + i64::from(self.at));
        word.is_some_and(|word| (u32::from_be_bytes(word) ^ self.value) & self.mask == 0)
    }
}

impl U32 {
    /// Whether a frame matches. Calls `held` for the mark, and for each key, as long as they hold.
    pub(super) fn matches(&self, frame: &Frame<'_>, mut held: impl FnMut()) -> bool {
        let mark = frame.packet.mark();
        if self
            .mark
            .is_some_and(|(value, mask)| (mark ^ value) & mask != 0)
        {
            return false;
        }
        held();
        self.keys.iter().all(|key| {
            let holds = key.matches(frame);
            if holds {
                held();
            }
            holds
        })
    }
}
