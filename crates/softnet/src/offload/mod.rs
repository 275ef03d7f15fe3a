//! Offloads in software: what a device cannot do for its packets is done here before its driver
//! sees them, and packets are merged where the device can segment.
//!
//! [`validate()`] makes packets fit a device with given [`Features`]: it [segments](segment())
//! large frames, [fills in checksums](fill_checksum) and refuses what exceeds the MTU.
//! [`merge()`] is the inverse. Nothing here keeps state, blocks, allocates from the heap or makes
//! a system call.

mod merge;
mod segment;
mod validate;

#[doc(hidden)]
pub use merge::merge;
pub use segment::{SegmentError, fill_checksum, segment};
pub use validate::Features;
#[doc(hidden)]
pub use validate::validate;

#[cfg(all(test, not(any(loom, miri))))]
mod fuzz_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod merge_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod segment_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod testing;
#[cfg(all(test, not(any(loom, miri))))]
mod validate_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod vnet_tests;
