//! Buffers that drivers receive into.

use softnet::mem::Pool;

/// Pools that received frames go to.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// For frames that fit in one buffer, and for chains.
    pub small: Pool,
    /// For longer frames, each in one piece. Without it, or while it is exhausted, they become
    /// chains of small buffers, at the price of a copy. Its buffers limit the longest frame: with
    /// 65,536 bytes, 65,458; the kernel is told to cut larger ones.
    pub large: Option<Pool>,
}
