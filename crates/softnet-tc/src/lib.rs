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

mod account;
mod action;
mod filter;
mod handle;
mod qdisc;
pub mod rate;
pub mod sim;
mod tree;
pub mod units;

#[cfg(test)]
mod testing;

pub use account::{
    ClassCounters, EstimatorError, EstimatorSpec, HtbClassStats, LinkCost, LinkLayer, OwnStats,
    Rate, SizeOptions, SizeSpec, SizeTable, SizeTableError, Xstat, Xstats, filtered_size,
};
pub use action::{
    Action, ActionError, ActionKind, ActionList, ActionSpec, ActionStats, ActionTable, Control,
    Csum, Gact, Mirred, MirredTo, Pedit, PeditHeader, PeditKey, Police, Random, Simple, Skbedit,
    Skbmod, Tag, Vlan, WordsError,
};
pub use filter::{
    BucketKey, ChainTemplate, Classified, Compare, ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, Ematch,
    FieldMatch, FilterError, FilterKey, FilterKind, FilterList, FilterOp, FilterSelector,
    FilterSpec, FilterStats, Filters, Flower, FlowerField, Indev, IndevTable, Key, Layer, MetaId,
    Offset, Prefix, Test, U32, Width,
};
pub use handle::{BadHandle, Handle};
pub use qdisc::{
    Absent, AckFilter, AnyQdisc, AqmSpec, Attribute, Blackhole, Cake, CakeSpec, ClassOption,
    ClassSpec, Classes, Codel, CodelSpec, CustomSpec, DefaultQdisc, Diffserv, Distribution, Drr,
    DrrClassSpec, DualPi2, DualPi2Spec, Ets, EtsSpec, Field, FlowStats, FlowStore, Form, Fq,
    FqCodel, FqCodelSpec, FqPie, FqPieSpec, FqSpec, Framing, Hfsc, HfscClassSpec, HfscSpec, Htb,
    HtbClassSpec, HtbSpec, Isolation, LinkDefaults, LossModel, MAX_BANDS, Multiq, Netem,
    NetemSpec, PfifoHeadDrop, Pie, PieLawSpec, PieSpec, Prio, PrioSpec, QDISC_KINDS, QdiscEnv,
    QdiscKind, QdiscOption, QdiscSpec, Qfq, QfqClassSpec, QueueMapError, Red, RedCurve, RedSpec,
    ServiceCurve, Sfq, SfqSpec, SlotSpec, SpecError, SpecOption, Tbf, TbfSpec, Unset, Wire, Word,
    check_queue_map, dualpi2_shown_gain, red_idle_table, red_probability_log, red_weight,
};
pub use rate::shared_rates::{Instance, SharedRates};
pub use tree::{
    Block, ClassNode, ClassStats, DeviceTree, Hook, HookFilters, HookKind, Live, LiveTree, Node,
    Queues, Side, Tree, TreeError, TreeSpec, Warning, warnings,
};
