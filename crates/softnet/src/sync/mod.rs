//! The lock-free protocols, each in a file of its own with its invariant and its memory-ordering
//! argument beside the code. Each runs under loom (`.ci/loom.sh`) and miri. Threads are preempted
//! anywhere; no caller here ever waits for another, but for the functions named `_slow`, which the
//! control path alone uses.

#![allow(
    unsafe_code,
    reason = "the protocols hand out exclusive access that the compiler cannot see"
)]

mod batch_list;
mod biased;
mod capacity;
mod flow_slot;
mod index_stack;
mod llist;
pub(crate) mod membarrier;
mod notify;
mod owned_list;
mod per_cpu;
#[doc(hidden)]
pub mod preempt;
mod prefetch;
mod prefetch_index;
#[doc(hidden)]
pub mod primitive;
mod run_state;
mod worker;

pub use batch_list::BatchList;
pub(crate) use biased::{Biased, OwnerGuard, ThiefGuard};
pub(crate) use capacity::{Capacity, Waiter};
pub(crate) use flow_slot::{FlowPin, FlowSlot};
pub use index_stack::IndexStack;
pub(crate) use llist::{AdoptionList, Chain, Linked, NodeList};
pub(crate) use notify::{Notify, Sleeping};
#[cfg(all(test, not(loom)))]
pub(crate) use owned_list::gaps;
pub(crate) use owned_list::{Entry, Left, ListOwner, OwnedList, is_owner_here};
pub use per_cpu::PerCpu;
pub use prefetch::prefetch;
pub(crate) use prefetch::prefetch_for_write;
pub use run_state::{RunGuard, RunState};
pub(crate) use worker::{Down, Tell, WorkerTimer};

#[cfg(test)]
mod bounds_tests;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, loom))]
mod models_backlog;
#[cfg(all(test, loom))]
mod models_capacity;
#[cfg(all(test, loom))]
mod models_flow_slot;
#[cfg(all(test, loom))]
mod models_notifier;
#[cfg(all(test, loom))]
mod models_owned_list;
#[cfg(all(test, loom))]
mod models_pool;
#[cfg(all(test, loom))]
mod models_worker;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
