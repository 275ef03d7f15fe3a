//! Traffic control: the queueing disciplines beyond the FIFOs, the tree of them that a device has,
//! filters, and a simulator that runs a tree in virtual time.
//!
//! A [`QdiscSpec`] is what `tc` would be told: checked parameters, from which
//! [`instances`](QdiscSpec::instances) are made for the queues of a
//! [`Device`](softnet::tx::Device). A [`TreeSpec`] names several and hangs them on each other's
//! classes.

#![forbid(unsafe_code)]

mod any;
mod bucket;
mod children;
mod filter;
mod handle;
mod link;
mod mq;
mod plan;
mod prio;
pub mod sim;
mod spec;
mod tbf;
mod tree;

pub use any::AnyQdisc;
pub use filter::{FilterSpec, Match, Prefix};
pub use handle::{BadHandle, Handle};
pub use link::{LinkCost, LinkLayer};
pub use mq::{MqSpec, MqprioSpec};
pub use plan::{Node, TreeError, TreeSpec};
pub use prio::{MAX_BANDS, Prio, PrioSpec};
pub use spec::{CustomSpec, QdiscEnv, QdiscSpec, SetQdisc, SpecError, TbfSpec};
pub use tbf::Tbf;
pub use tree::{ClassStats, Tree};

use softnet::qdisc::{
    Bfifo, Next, PRIO_TO_BAND, Peek, Pfifo, PfifoFast, PfifoHeadDrop, Qdisc, QdiscStats, Verdict,
    WireSize, WireSum,
};

#[cfg(all(test, not(miri)))]
mod filter_tests;
#[cfg(all(test, not(miri)))]
mod plan_tests;
#[cfg(all(test, not(miri)))]
mod tests;
#[cfg(all(test, not(miri)))]
mod tree_property_tests;
#[cfg(all(test, not(miri)))]
mod tree_tests;
