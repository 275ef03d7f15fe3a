//! Packets that never reached the tree.

/// The fate of arrivals outside of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outside {
    /// Longer than any frame.
    pub(super) too_long: u64,
    /// No buffer was left.
    pub(super) no_buffer: u64,
    /// The same in the reverse direction.
    pub(super) reverse_no_buffer: u64,
}

impl Outside {
    /// Options of the reverse direction.
    pub(super) fn in_reverse(self) -> Outside {
        Outside {
            no_buffer: self.reverse_no_buffer,
            ..Outside::default()
        }
    }
}
