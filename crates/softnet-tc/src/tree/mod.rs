//! The tree of qdiscs of a device: as configuration, with its instances, and changes in use.

mod apply;
mod edit;
mod error;
mod hook;
mod instances;
mod list;
mod live;
mod rates;
mod share;
mod single;
mod spec;
mod warnings;

pub use error::TreeError;
pub use hook::{Block, Hook, HookFilters, HookKind, Side};
pub use instances::DeviceTree;
pub use list::ClassStats;
pub use live::{Live, Queues};
pub use single::{LiveTree, Tree};
pub use spec::{ClassNode, Node, TreeSpec};
pub use warnings::{Warning, warnings};

#[cfg(all(test, not(any(loom, miri))))]
mod apply_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod class_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod gso_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod large_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod parallel_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod property_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod share_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod spec_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
