//! `basic`: a match by expressions (tc-basic(8), tc-ematch(8)). Of a list, each is joined to the
//! next by `and` or `or`, and the first that decides ends it, as in the kernel: where `or` is to
//! hold less than `and`, parts of it are groups.

use softnet::wire::L4;

use super::frame::{ETHERNET, Frame};
use super::{FilterError, Key};

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ematch {
    /// True if it must not hold (`not`).
    pub negated: bool,
    /// True if it is joined to the next by `or`; false: by `and`.
    pub or: bool,
    /// The test.
    pub test: Test,
}

/// Test of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// A number in the frame, of big-endian bytes (`cmp`). It does not hold where the frame has
    /// no such layer or ends before.
    Cmp {
        /// Number of its bytes.
        width: Width,
        /// Bytes from the start of the layer.
        at: u16,
        /// Where to count from.
        layer: Layer,
        /// Which bits count; 0: all.
        mask: u32,
        /// Comparison that must hold.
        compare: Compare,
        /// To what.
        value: u32,
        /// True if the number's bytes are in the machine's order (`trans`).
        trans: bool,
    },
    /// Bytes in the frame (`nbyte`). They do not hold where the frame has no such layer or ends
    /// before.
    Bytes {
        /// Bytes from the start of the layer.
        at: u16,
        /// Where to count from.
        layer: Layer,
        /// The bytes.
        needle: Vec<u8>,
    },
    /// Expressions in parentheses.
    Group(Vec<Ematch>),
    /// A number of the packet's (`meta`), shifted right and under a mask.
    Meta {
        /// The number.
        id: MetaId,
        /// Bits that it is shifted by.
        shift: u8,
        /// Which bits count; 0: all.
        mask: u32,
        /// Comparison that must hold.
        compare: Compare,
        /// To what.
        value: u32,
    },
    /// A word in the frame (`u32`).
    Word(Key),
    /// The packet's priority (`meta(priority ...)`).
    Priority(Compare, u32),
    /// The packet's mark under a mask (`meta(nf_mark mask ...)`).
    Mark {
        /// Which bits count.
        mask: u32,
        /// Comparison that must hold.
        compare: Compare,
        /// To what.
        value: u32,
    },
}

/// A number that a packet has, besides priority and mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaId {
    /// The EtherType behind the first VLAN tag, as the machine reads its bytes (`protocol`).
    Protocol,
    /// Bytes of the frame without its first VLAN tag, and without its Ethernet header where it
    /// arrives (`pkt_len`).
    PktLen,
    /// Bytes of the Ethernet header without its first VLAN tag (`mac_len`).
    MacLen,
    /// Contents of the first VLAN tag (`vlan`).
    VlanTag,
}

impl MetaId {
    /// Each with its number in the kernel (`TCF_META_ID_*`) and its word in tc.
    pub const ALL: [(MetaId, u16, &'static str); 4] = [
        (MetaId::Protocol, 7, "protocol"),
        (MetaId::PktLen, 9, "pkt_len"),
        (MetaId::MacLen, 11, "mac_len"),
        (MetaId::VlanTag, 46, "vlan"),
    ];

    fn read(self, frame: &Frame<'_>) -> Option<u32> {
        let tag = frame.tag();
        Some(match self {
            MetaId::Protocol => {
                let ethertype = tag
                    .map(|(_, behind)| behind)
                    .or_else(|| frame.ethertype())?;
                u16::from_ne_bytes(ethertype.to_be_bytes()).into()
            }
            MetaId::PktLen => frame.len()?,
            MetaId::MacLen => ETHERNET as u32,
            MetaId::VlanTag => tag?.0.into(),
        })
    }
}

/// Expressions in one list, and in its groups, at most.
const MOST: usize = 4096;
/// Groups within each other at most (`TCF_EM_STACK`).
const DEEPEST: usize = 32;

/// True if a list of expressions holds (`__tcf_em_tree_match`).
pub(super) fn holds(list: &[Ematch], frame: &Frame<'_>) -> bool {
    let mut result = true;
    for ematch in list {
        result = ematch.matches(frame);
        if result == ematch.or {
            break;
        }
    }
    result
}

/// Checks a list, and how large it is.
pub(super) fn check(list: &[Ematch]) -> Result<(), FilterError> {
    fn count(list: &[Ematch], depth: usize, n: &mut usize) -> Result<(), FilterError> {
        *n += list.len();
        if *n > MOST || depth > DEEPEST {
            return Err(FilterError::Expressions);
        }
        list.iter().try_for_each(|ematch| match &ematch.test {
            Test::Word(key) => key.check(),
            Test::Group(inner) => count(inner, depth + 1, n),
            _ => Ok(()),
        })
    }
    count(list, 0, &mut 0)
}

/// Bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One (`u8`).
    One,
    /// Two (`u16`).
    Two,
    /// Four (`u32`).
    Four,
}

/// A layer of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// From the first byte on, without the first VLAN tag.
    Link,
    /// From behind the Ethernet header on, which is counted without its first VLAN tag.
    Network,
    /// From the transport header on, behind all options and extension headers.
    Transport,
}

/// Comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// It is equal.
    Eq,
    /// It is less.
    Lt,
    /// It is more.
    Gt,
}

impl Compare {
    fn holds(self, number: u32, value: u32) -> bool {
        match self {
            Compare::Eq => number == value,
            Compare::Lt => number < value,
            Compare::Gt => number > value,
        }
    }
}

impl Ematch {
    fn matches(&self, frame: &Frame<'_>) -> bool {
        let holds = match &self.test {
            &Test::Cmp {
                width,
                at,
                layer,
                mask,
                compare,
                value,
                trans,
            } => read(frame, layer, at, width).is_some_and(|number| {
                let number = match (trans, width) {
                    (true, Width::Two) => u16::from_be(number as u16).into(),
                    (true, Width::Four) => u32::from_be(number),
                    _ => number,
                };
                let mask = if mask == 0 { u32::MAX } else { mask };
                compare.holds(number & mask, value)
            }),
            &Test::Word(key) => key.matches(frame, ETHERNET, 0) == Some(true),
            Test::Bytes { at, layer, needle } => start(frame, *layer).is_some_and(|start| {
                (start + i64::from(*at)..)
                    .zip(needle)
                    .all(|(at, byte)| frame.untagged(at) == Some([*byte]))
            }),
            Test::Group(inner) => holds(inner, frame),
            &Test::Meta {
                id,
                shift,
                mask,
                compare,
                value,
            } => id.read(frame).is_some_and(|number| {
                let mask = if mask == 0 { u32::MAX } else { mask };
                let number = number.checked_shr(shift.into()).unwrap_or(0);
                compare.holds(number & mask, value)
            }),
            &Test::Priority(compare, value) => compare.holds(frame.packet.priority(), value),
            &Test::Mark {
                mask,
                compare,
                value,
            } => compare.holds(frame.packet.mark() & mask, value),
        };
        holds != self.negated
    }
}

fn read(frame: &Frame<'_>, layer: Layer, at: u16, width: Width) -> Option<u32> {
    match width {
        Width::One => number(frame, layer, at).map(|[byte]| byte.into()),
        Width::Two => number(frame, layer, at).map(|b| u16::from_be_bytes(b).into()),
        Width::Four => number(frame, layer, at).map(u32::from_be_bytes),
    }
}

/// Start of a layer, as if the first VLAN tag were not there.
fn start(frame: &Frame<'_>, layer: Layer) -> Option<i64> {
    match layer {
        Layer::Link => Some(0),
        Layer::Network => Some(ETHERNET),
        Layer::Transport => {
            let headers = frame.headers()?;
            let tag = if frame.tag().is_some() { 4 } else { 0 };
            let reached = headers.transport != L4::None;
            reached.then(|| i64::from(headers.transport_offset) - tag)
        }
    }
}

fn number<const N: usize>(frame: &Frame<'_>, layer: Layer, at: u16) -> Option<[u8; N]> {
    frame.untagged(start(frame, layer)? + i64::from(at))
}
