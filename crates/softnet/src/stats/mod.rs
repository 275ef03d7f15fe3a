//! Statistics for an operator: counters, drop reasons, histograms. Readable at any rate; a reader
//! never stops or slows a worker, and no two writers share a cache line where that can be avoided
//! (see [`crate::sync::PerCpu`]).
//!
//! All packet counts are *wire packets*: a large frame (GSO) counts as the segments it stands for,
//! so that segmenting or merging changes no sum, and at rest
//! **received + copied = sent + dropped + queued**.

mod drop;
mod dropped;
mod gauge;
mod histogram;
mod tap;

pub use drop::{DropCounters, DropReason};
pub use dropped::Dropped;
#[doc(hidden)]
pub use gauge::Published;
pub use histogram::Counts;
#[doc(hidden)]
pub use histogram::{Histogram, SAMPLE, Sampler};
#[doc(hidden)]
pub use tap::{ClassPath, Place, Tap};
