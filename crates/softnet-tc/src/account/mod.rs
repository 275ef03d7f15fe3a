//! Accounting: a qdisc's children and what is published of them, size
//! tables, link layers, estimated rates.

mod accounted;
mod child;
mod children;
mod counters;
mod direct_pfifo;
mod estimator;
mod filtered;
mod link_cost;
mod own_counters;
mod size_table;
mod xstats;

pub(crate) use accounted::Accounted;
pub(crate) use child::Child;
pub(crate) use children::Children;
pub use counters::ClassCounters;
pub(crate) use counters::zip;
pub(crate) use direct_pfifo::{Run, Sent};
pub use estimator::{EstimatorError, EstimatorSpec, Rate};
pub(crate) use estimator::{Estimators, RateEstimator, Sample};
pub use filtered::filtered_size;
pub(crate) use link_cost::MAX_HEADER;
pub use link_cost::{LinkCost, LinkLayer};
pub(crate) use own_counters::OwnCounters;
pub use own_counters::{HtbClassStats, OwnStats};
pub use size_table::{SizeOptions, SizeSpec, SizeTable, SizeTableError};
pub use xstats::{Xstat, Xstats};

#[cfg(all(test, not(any(loom, miri))))]
mod estimator_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod size_table_tests;
