//! Traffic control: the messages of `tc qdisc` and `tc class`.

pub mod extras;
pub mod kinds;

/// `TCA_OPTIONS`: what a kind of qdisc, class or filter is told.
pub const TCA_OPTIONS: u16 = 2;
