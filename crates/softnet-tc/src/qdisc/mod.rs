//! The kinds of qdisc. `kind` is the list of them and what each has to say of itself; a kind is a
//! file or a folder, with its parameters, options and tests.

mod any;
mod aqm;
mod blackhole;
mod cake;
mod class;
mod codel;
mod core_kinds;
mod default;
mod draws;
mod drr;
mod dualpi2;
mod flow_hash;
mod fq;
mod fq_codel;
mod fq_pie;
mod head_drop;
mod held;
mod hfsc;
mod htb;
mod kind;
mod mq;
mod multiq;
mod netem;
mod option;
mod periods;
mod pie;
mod prio;
mod qfq;
mod queue_map;
mod red;
mod rounds;
mod sfq;
mod sorts;
mod spec;
mod tbf;

pub use aqm::AqmSpec;
pub(crate) use aqm::mark_ce;
pub use blackhole::Blackhole;
pub use cake::{AckFilter, Cake, CakeSpec, Diffserv, Framing, Isolation};
#[cfg(test)]
pub(crate) use class::ClassKind;
pub(crate) use class::Left;
pub use class::{ClassSpec, Classes};
pub use codel::{Codel, CodelSpec};
pub use default::DefaultQdisc;
pub use dualpi2::{DualPi2, DualPi2Spec, dualpi2_shown_gain};
pub(crate) use flow_hash::flow_hash;
pub use fq::{Fq, FqSpec};
pub use fq_codel::{FlowStats, FlowStore, FqCodel, FqCodelSpec};
pub use fq_pie::{FqPie, FqPieSpec};
pub use head_drop::PfifoHeadDrop;
pub use hfsc::{Hfsc, HfscClassSpec, HfscSpec, ServiceCurve};
pub use htb::{Htb, HtbClassSpec, HtbSpec};
#[cfg(test)]
pub(crate) use kind::Kind;
pub use kind::{AnyQdisc, LinkDefaults, QDISC_KINDS, QdiscKind, QdiscSpec};
pub(crate) use mq::FIRST_TRAFFIC_CLASS;
pub use multiq::Multiq;
pub use netem::{Distribution, LossModel, Netem, NetemSpec, SlotSpec};
pub use option::{
    Absent, Attribute, ClassOption, Field, Form, QdiscOption, SpecOption, Unset, Wire, Word,
};
pub use pie::{Pie, PieLawSpec, PieSpec};
pub use prio::{MAX_BANDS, Prio, PrioSpec};
pub use qfq::{Qfq, QfqClassSpec};
pub use queue_map::{QueueMapError, check_queue_map};
pub use red::{Red, RedCurve, RedSpec, red_idle_table, red_probability_log, red_weight};
pub use rounds::{Drr, DrrClassSpec, Ets, EtsSpec};
pub use sfq::{Sfq, SfqSpec};
pub use spec::{CustomSpec, QdiscEnv, SpecError};
pub use tbf::{Tbf, TbfSpec};

#[cfg(all(test, not(any(loom, miri))))]
mod drr_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
#[cfg(all(test, not(any(loom, miri))))]
mod turns_tests;
