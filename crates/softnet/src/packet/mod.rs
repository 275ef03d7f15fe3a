//! Segmentation of large frames, and merging into such.
//!
//! Nothing here blocks, allocates from the heap or makes a system call.

mod merge;
mod segment;

pub use merge::{MergeKinds, merge};
pub use segment::{SegmentError, fill_checksum, segment};

#[cfg(all(test, not(miri)))]
mod merge_tests;
#[cfg(all(test, not(miri)))]
mod segment_tests;
#[cfg(all(test, not(miri)))]
mod testing;
#[cfg(all(test, not(miri)))]
mod vnet_tests;
