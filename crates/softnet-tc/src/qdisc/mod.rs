//! The kinds of qdisc. `kind` is the list of them and what each has to say of itself; a kind is a
//! file or a folder, with its parameters, options and tests.

mod any;
mod aqm;
mod class;
mod codel;
mod drr;
mod flow_hash;
mod fq;
mod fq_codel;
mod head_drop;
mod htb;
mod kind;
mod mq;
mod option;
mod prio;
mod spec;
mod tbf;

pub use aqm::AqmSpec;
#[cfg(test)]
pub(crate) use class::ClassKind;
pub use class::ClassSpec;
pub(crate) use class::Left;
pub use codel::{Codel, CodelSpec};
pub use fq::{Fq, FqSpec};
pub use fq_codel::{FqCodel, FqCodelSpec};
pub use head_drop::PfifoHeadDrop;
pub use htb::{Htb, HtbClassSpec, HtbSpec};
#[cfg(test)]
pub(crate) use kind::Kind;
pub use kind::{AnyQdisc, LinkDefaults, QDISC_KINDS, QdiscKind, QdiscSpec};
pub(crate) use mq::FIRST_TRAFFIC_CLASS;
pub use option::{
    Absent, Attribute, ClassOption, Field, Form, QdiscOption, SpecOption, Unset, Wire,
};
pub use prio::{MAX_BANDS, Prio, PrioSpec};
pub use spec::{CustomSpec, QdiscEnv, SpecError};
pub use tbf::{Tbf, TbfSpec};

#[cfg(all(test, not(miri)))]
mod drr_tests;
#[cfg(all(test, not(miri)))]
mod tests;
