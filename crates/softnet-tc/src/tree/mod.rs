//! The tree of qdiscs of a device: as configuration, with its instances, and changes in use.

mod class_live;
mod class_plan;
mod extras;
mod instances;
mod list;
mod live;
mod live_apply;
mod parallel;
mod spec;
mod warnings;

pub use class_plan::ClassNode;
pub use instances::{ClassStats, DeviceTree};
pub use live::{Live, LiveTree, Queues, Tree};
pub use spec::{Node, TreeError, TreeSpec};
pub use warnings::{Warning, warnings};

#[cfg(all(test, not(miri)))]
mod apply_tests;
#[cfg(all(test, not(miri)))]
mod class_tests;
#[cfg(all(test, not(miri)))]
mod large_tests;
#[cfg(all(test, not(miri)))]
mod parallel_tests;
#[cfg(all(test, not(miri)))]
mod property_tests;
#[cfg(all(test, not(miri)))]
mod spec_tests;
#[cfg(all(test, not(miri)))]
mod tests;
