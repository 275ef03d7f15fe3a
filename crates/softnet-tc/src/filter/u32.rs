//! `u32`: a match on words of the frame (tc-u32(8)).

use super::FilterError;
use super::frame::Frame;

/// A word that must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// What the word must be, under the mask.
    pub value: u32,
    /// Which bits count.
    pub mask: u32,
    /// Where it is: bytes from the start of the network header, a multiple of 4. `-16`, `-12`,
    /// `-8` and `-4` are the words that end there in an Ethernet header without VLAN tags; the
    /// first of them has the destination's first two bytes.
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
        let word = match usize::try_from(self.at) {
            Ok(at) => frame
                .network()
                .and_then(|network| frame.bytes(network + at)),
            Err(_) => link_word(frame, self.at),
        };
        word.is_some_and(|word| (u32::from_be_bytes(word) ^ self.value) & self.mask == 0)
    }
}

/// A word of the Ethernet header. A frame that is only now given its tags has none there in the
/// kernel, and so it looks here.
fn link_word(frame: &Frame<'_>, at: i32) -> Option<[u8; 4]> {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = frame.bytes(0)?;
    let [m, n] = frame.bytes(frame.network()?.checked_sub(2)?)?;
    match at {
        -16 => Some([0, 0, a, b]),
        -12 => Some([c, d, e, f]),
        -8 => Some([g, h, i, j]),
        -4 => Some([k, l, m, n]),
        _ => None,
    }
}

impl U32 {
    pub(super) fn matches(&self, frame: &Frame<'_>) -> bool {
        let mark = frame.packet.mark();
        self.mark
            .is_none_or(|(value, mask)| (mark ^ value) & mask == 0)
            && self.keys.iter().all(|key| key.matches(frame))
    }
}
