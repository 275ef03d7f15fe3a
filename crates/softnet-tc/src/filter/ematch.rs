//! `basic`: a match by expressions, all of which must hold (tc-basic(8), tc-ematch(8)).

use softnet::wire::L4;

use super::frame::{ETHERNET, Frame};
use super::{FilterError, Key};

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ematch {
    /// True if it must not hold (`not`).
    pub negated: bool,
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
    pub(super) fn check(&self) -> Result<(), FilterError> {
        match &self.test {
            Test::Word(key) => key.check(),
            _ => Ok(()),
        }
    }

    pub(super) fn matches(&self, frame: &Frame<'_>) -> bool {
        let holds = match self.test {
            Test::Cmp {
                width,
                at,
                layer,
                mask,
                compare,
                value,
            } => read(frame, layer, at, width).is_some_and(|number| {
                let mask = if mask == 0 { u32::MAX } else { mask };
                compare.holds(number & mask, value)
            }),
            Test::Word(key) => key.matches(frame) == Some(true),
            Test::Priority(compare, value) => compare.holds(frame.packet.priority(), value),
            Test::Mark {
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

fn number<const N: usize>(frame: &Frame<'_>, layer: Layer, at: u16) -> Option<[u8; N]> {
    match layer {
        Layer::Link => frame.untagged(at.into()),
        Layer::Network => frame.untagged(ETHERNET + i64::from(at)),
        Layer::Transport => {
            let headers = frame.headers()?;
            let reached = headers.transport != L4::None;
            let start = usize::from(headers.transport_offset);
            reached.then(|| frame.bytes(start + usize::from(at)))?
        }
    }
}
