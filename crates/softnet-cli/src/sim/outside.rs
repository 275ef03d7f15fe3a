//! Packets that never reached the tree.

/// The fate of arrivals outside of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outside {
    /// Longer than any frame.
    pub(super) too_long: u64,
    /// No buffer was left.
    pub(super) no_buffer: u64,
}
