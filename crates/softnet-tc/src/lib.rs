//! Traffic control: the qdiscs beyond the FIFOs, the tree of them that a device has, filters, and
//! a simulator that runs a tree in virtual time.
//!
//! A [`QdiscSpec`] is what `tc` would be told: checked parameters, from which
//! [`instances`](QdiscSpec::instances) are made for the queues of a
//! [`Device`](softnet::tx::Device). A [`TreeSpec`] names several and attaches them to each other's
//! classes.
//!
//! ```
//! use softnet::mem::{Packet, Pool, PoolConfig};
//! use softnet::time::Time;
//! use softnet_tc::sim::{SimLink, Simulator};
//! use softnet_tc::{Handle, QdiscEnv, QdiscSpec, TbfSpec, Tree, TreeSpec};
//!
//! // tc qdisc add root handle 1: tbf rate 8mbit burst 2000 limit 10000
//! let tbf = TbfSpec { rate: 1_000_000, burst: 2000, limit: 10_000, ..TbfSpec::default() };
//! let mut spec = TreeSpec::new();
//! spec.add(Handle::ROOT, "1:".parse()?, QdiscSpec::Tbf(tbf))?;
//!
//! let pool = Pool::new(PoolConfig { buffers: 16, buffer_size: 2048 })?;
//! let tree = Tree::build(spec, &QdiscEnv::new(&pool))?;
//! let mut simulator = Simulator::new(tree, SimLink::default());
//!
//! // Four packets of 1000 bytes at once: two fit the bucket, then one leaves each millisecond.
//! let mut departures = Vec::new();
//! let mut depart = |time: Time, _: &Packet| {
//!     departures.push(time.0 / 1_000_000);
//!     Ok::<(), std::convert::Infallible>(())
//! };
//! for _ in 0..4 {
//!     let mut packet = pool.alloc()?;
//!     packet.append(&[0; 1000]);
//!     simulator.arrive(packet, Time::ZERO, &mut depart)?;
//! }
//! let report = simulator.finish(&mut depart)?;
//! assert!(report.holds(), "offered = sent + dropped + queued");
//! assert_eq!(departures, [0, 0, 1, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Codes in comments such as `INV-Q-1` are defined in `docs/invariants.md`.

#![forbid(unsafe_code)]

mod accounted;
mod any;
mod aqm;
mod bucket;
mod children;
mod class;
mod class_counters;
mod class_live;
mod class_plan;
mod codel;
mod drr;
mod estimator;
mod extras;
mod filter;
mod flow_hash;
mod fq;
mod fq_codel;
mod handle;
mod head_drop;
mod htb;
mod kind;
mod link;
mod listing;
mod live;
mod live_apply;
mod option;
mod parallel;
mod plan;
mod prio;
pub mod rate;
mod shared_rates;
pub mod sim;
mod size_table;
mod spec;
mod tbf;
mod tbf_shared;
mod tree;
mod warnings;
mod xstats;

pub use aqm::AqmSpec;
pub use class::ClassSpec;
pub use class_counters::ClassCounters;
pub use class_plan::ClassNode;
pub use codel::{Codel, CodelSpec};
pub use estimator::{EstimatorError, EstimatorSpec, Rate};
pub use filter::{
    Compare, ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, Ematch, FilterAction, FilterError, FilterKey,
    FilterKind, FilterList, FilterOp, FilterSelector, FilterSpec, FilterStats, Flower, Key, Layer,
    Prefix, Test, U32, Width,
};
pub use fq::{Fq, FqSpec};
pub use fq_codel::{FqCodel, FqCodelSpec};
pub use handle::{BadHandle, Handle};
pub use head_drop::PfifoHeadDrop;
pub use htb::{Htb, HtbClassSpec, HtbClassStats, HtbSpec};
pub use kind::{AnyQdisc, LinkDefaults, QDISC_KINDS, QdiscKind, QdiscSpec};
pub use link::{LinkCost, LinkLayer};
pub use live::{Live, LiveTree, Queues, Tree};
pub use option::{Absent, Attribute, Field, Form, QdiscOption, Unset, Wire};
pub use plan::{Node, TreeError, TreeSpec};
pub use prio::{MAX_BANDS, Prio, PrioSpec};
pub use shared_rates::{Instance, SharedRates};
pub use size_table::{SizeOptions, SizeSpec, SizeTable, SizeTableError};
pub use spec::{CustomSpec, QdiscEnv, SpecError};
pub use tbf::{Tbf, TbfSpec};
pub use tree::{ClassStats, DeviceTree};
pub use warnings::{Warning, warnings};
pub use xstats::{Xstat, Xstats};

use kind::Custom;
#[cfg(test)]
use round_robin_tests::RoundRobin;
use softnet::qdisc::{
    Bfifo, Cx, Fifo, Next, Noqueue, PRIO_TO_BAND, Peek, Pfifo, PfifoFast, Qdisc, QdiscStats,
    Verdict, WireSize, WireSum,
};

#[cfg(all(test, not(miri)))]
mod class_tests;
#[cfg(all(test, not(miri)))]
mod codel_tests;
#[cfg(all(test, not(miri)))]
mod drr_tests;
#[cfg(all(test, not(miri)))]
mod estimator_tests;
#[cfg(all(test, not(miri)))]
mod fq_codel_tests;
#[cfg(all(test, not(miri)))]
mod fq_tests;
#[cfg(all(test, not(miri)))]
mod large_tree_tests;
#[cfg(all(test, not(miri)))]
mod live_apply_tests;
#[cfg(all(test, not(miri)))]
mod paced_leaves_tests;
#[cfg(all(test, not(miri)))]
mod parallel_tests;
#[cfg(all(test, not(miri)))]
mod plan_tests;
#[cfg(test)]
mod round_robin_tests;
#[cfg(all(test, not(miri)))]
mod size_table_tests;
#[cfg(all(test, not(miri)))]
mod tbf_shared_tests;
#[cfg(all(test, not(miri)))]
mod tests;
#[cfg(all(test, not(miri)))]
mod tree_property_tests;
#[cfg(all(test, not(miri)))]
mod tree_tests;
