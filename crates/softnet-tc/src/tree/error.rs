//! Refusals of a tree.

use super::spec::MAX_DEPTH;
use crate::handle::Handle;

/// Why a qdisc or filter cannot be where it is asked to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The handle is a class's, or the root's.
    #[error("{0} cannot name a qdisc; a qdisc's handle is written like \"1:\"")]
    Handle(Handle),
    /// Two qdiscs of one name.
    #[error("there is a qdisc {0} already; choose another handle")]
    InUse(Handle),
    /// All 32,767 numbers that are chosen from are in use.
    #[error("no handle is left to choose")]
    NoHandle,
    /// Nothing of this name.
    #[error("there is no qdisc {0}")]
    NoQdisc(Handle),
    /// The parent does not have this class.
    #[error("there is no class {0}")]
    NoClass(Handle),
    /// The class has a qdisc already.
    #[error("{0} has a qdisc already")]
    Exists(Handle),
    /// Too many above one another.
    #[error("{0} is too deep; at most {MAX_DEPTH} qdiscs or classes may be nested")]
    TooDeep(Handle),
    /// It would be above itself.
    #[error("qdisc parent/child loop detected: {0} would be below itself")]
    Loop(Handle),
    /// The class has classes below it.
    #[error("{0} has classes below it, and no qdisc")]
    Inner(Handle),
    /// Classes are not added to a qdisc of this kind.
    #[error("operation not supported: {0} has no classes that are added or deleted")]
    NoClasses(&'static str),
    /// The name is not a class's.
    #[error("{0} cannot name a class; a class's name is written like \"1:2\"")]
    BadClass(Handle),
    /// Two classes of one name.
    #[error("there is a class {0} already")]
    ClassExists(Handle),
    /// Something refers to the class.
    #[error("{text}: {class} has classes below it, or filters that lead to it")]
    ClassInUse {
        /// The kernel's text.
        text: &'static str,
        /// The class.
        class: Handle,
    },
    /// The classes of a qdisc have a higher weight together than it can have.
    #[error("sch_{kind}: total weight out of range ({more} + {sum}); use at most {most} in all")]
    Weight {
        /// Kind of the qdisc.
        kind: &'static str,
        /// Weight that the class would add.
        more: u64,
        /// That of all classes.
        sum: u64,
        /// The most.
        most: u64,
    },
    /// The kind can only be at a device's root (BUG-TX-26).
    #[error("{0} can only be attached to a device's root")]
    RootOnly(&'static str),
    /// A size table of a qdisc that is below another (CVE-2024-50039).
    #[error("STAB not supported on a non root")]
    StabBelow,
    /// A qdisc at a queue that has one of its own.
    #[error("can't replace cake_mq sub-qdiscs: {0} is a part of it")]
    Fixed(Handle),
    /// Nobody knows what a share of the link's speed comes to.
    #[error(
        "a rate is a share of the link's speed, which is not known; give bits per second, like \
         100mbit"
    )]
    NoSpeed,
    /// An estimator of a qdisc that packets do not pass.
    #[error("Cannot attach rate estimator to a multi-queue root qdisc")]
    NoEstimator,
}
