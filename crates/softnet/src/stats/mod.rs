//! What an operator sees: counters, drop reasons, histograms. Readable at any rate; a reader never stops or slows a
//! worker, and no two writers share a cache line where that can be avoided (see [`crate::sync::PerCpu`]).

mod drop;

pub use drop::{DropCounters, DropReason};
