//! Points at which a test build may take the CPU away from a thread: in the middle of a protocol,
//! where it hurts most. Outside of tests there is nothing here.

/// A thread may be preempted anywhere; in a test build it is, here, at random, once `often` was
/// called.
#[cfg(not(all(feature = "testing", not(loom))))]
#[inline(always)]
pub fn point() {}

#[cfg(all(feature = "testing", not(loom)))]
pub use crate::testing::preempt::{often, point};
