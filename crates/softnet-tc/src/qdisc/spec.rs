//! Qdiscs as configuration: the parameters of each kind, and how one is made.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use softnet::mem::Pool;
use softnet::qdisc::{PfifoFast, Qdisc};

use super::default::DefaultQdisc;
use super::fq_codel::FlowStore;
use super::kind::{Kind, QdiscSpec, of_kind};
use super::queue_map::{QueueMapError, check_queue_map};
use crate::filter::FilterError;
use crate::rate::{Instance, RateGroup};
use crate::tree::TreeError;

/// Recipe of a qdisc from outside this crate.
#[derive(Clone)]
pub struct CustomSpec {
    pub(crate) kind: &'static str,
    pub(crate) make: Arc<Make>,
}

type Make = dyn Fn(&QdiscEnv) -> Box<dyn Qdisc> + Send + Sync;

impl CustomSpec {
    /// A qdisc that is shown as `kind` and made by `make`, once for each class that has it. It
    /// must be empty when it is made.
    pub fn new(
        kind: &'static str,
        make: impl Fn(&QdiscEnv) -> Box<dyn Qdisc> + Send + Sync + 'static,
    ) -> CustomSpec {
        CustomSpec {
            kind,
            make: Arc::new(make),
        }
    }
}

impl fmt::Debug for CustomSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomSpec").field(&self.kind).finish()
    }
}

impl PartialEq for CustomSpec {
    fn eq(&self, other: &CustomSpec) -> bool {
        Arc::ptr_eq(&self.make, &other.make)
    }
}

impl Eq for CustomSpec {}

/// Parameters that contradict themselves.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    /// A parameter has a value that it cannot have.
    #[error("{kind}: {parameter} {reason}")]
    Parameter {
        /// The qdisc's kind.
        kind: &'static str,
        /// The parameter, as in tc.
        parameter: &'static str,
        /// Condition that it does not meet.
        reason: Cow<'static, str>,
    },
    /// A qdisc in use is of another kind, or its kind has no parameters.
    #[error("the qdisc is not a {0} whose parameters could be changed; replace it")]
    Change(&'static str),
    /// A qdisc with a child at each transmit queue, for one queue.
    #[error("{0} needs a device with several transmit queues")]
    OneQueue(&'static str),
    /// A child at a transmit queue that the device does not have.
    #[error("{kind} has no class :{class:x}: the device has {queues} transmit queues")]
    NoQueue {
        /// The qdisc with a child at each queue.
        kind: &'static str,
        /// The class, a queue's number plus one.
        class: usize,
        /// Transmit queues that the device has.
        queues: usize,
    },
    /// `mqprio`'s queues are not those of the device.
    #[error("mqprio: {0}")]
    Queues(#[from] QueueMapError),
    /// A filter is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The place in the tree is wrong.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl SpecError {
    pub(crate) fn parameter(
        kind: &'static str,
        parameter: &'static str,
        reason: impl Into<Cow<'static, str>>,
    ) -> SpecError {
        let reason = reason.into();
        SpecError::Parameter {
            kind,
            parameter,
            reason,
        }
    }
}

/// Environment that a qdisc is made for.
#[derive(Clone, Debug)]
pub struct QdiscEnv {
    /// The device's pool.
    pub pool: Pool,
    /// The device's MTU in bytes, Ethernet header not included.
    pub mtu: u32,
    /// Speed of the device's link in bytes per second, if it is known: some rates are shares of it.
    pub speed: Option<u64>,
    /// Frames that a queue of the device holds where nothing else is said.
    pub txqueuelen: u32,
    /// Kind of the qdisc at a transmit queue to which none is attached.
    pub default_qdisc: DefaultQdisc,
    /// True if the device has no queue of its own (`IFF_NO_QUEUE`): its default is `noqueue`.
    pub no_queue: bool,
    /// A random number for what an outsider must not guess (flow hashes).
    pub seed: u64,
    /// True if a tree has an instance at each transmit queue, where it would have one for all of
    /// them. What is below `mq` and `mqprio` is for one queue, and is one instance in any case;
    /// `noqueue` and what comes by itself are at each queue in any case.
    pub parallel: bool,
    /// The limit that all of the device's queues share with others, whatever is attached to them.
    pub group: Option<Arc<RateGroup>>,
    /// The instance that a qdisc is made for, where there are several; a
    /// [`DeviceTree`](crate::DeviceTree) says it.
    pub instance: Option<Instance>,
    /// Copies that are made of the filters at a device's hooks, beside the first: one for each
    /// thread more that runs them.
    pub hook_copies: usize,
    /// Flows that the device's `fq_codel`s borrow. Devices whose environments are copies of one
    /// another share them.
    pub flows: FlowStore,
}

impl QdiscEnv {
    /// An Ethernet device as in Linux: an MTU of 1500, a queue of 1000.
    pub fn new(pool: &Pool) -> QdiscEnv {
        QdiscEnv {
            pool: pool.clone(),
            mtu: 1500,
            speed: None,
            txqueuelen: 1000,
            default_qdisc: DefaultQdisc::default(),
            no_queue: false,
            seed: RandomState::new().hash_one(()),
            parallel: false,
            group: None,
            instance: None,
            hook_copies: 0,
            flows: FlowStore::new(),
        }
    }
}

impl QdiscSpec {
    /// The kind's name, as in tc.
    pub fn kind(&self) -> &'static str {
        match self {
            QdiscSpec::Custom(custom) => custom.kind,
            QdiscSpec::Tree(tree) => tree.kind(),
            QdiscSpec::Mq => "mq",
            QdiscSpec::Mqprio(_) => "mqprio",
            QdiscSpec::CakeMq(_) => "cake_mq",
            one => of_kind!(one, NAME, PfifoFast::NAME),
        }
    }

    /// The highest number of a class. That of `mq` depends on the device.
    pub fn classes(&self) -> u16 {
        of_kind!(
            self,
            classes(),
            if self.is_per_queue() { u16::MAX } else { 0 }
        )
    }

    /// Qdisc of a class to which none is attached.
    pub(crate) fn default_child(&self, env: &QdiscEnv) -> QdiscSpec {
        let of_queue = || self.queue_child().unwrap_or_default();
        of_kind!(self, default_child(env), of_queue())
    }

    /// True if its classes have queues to which nothing is attached.
    pub fn has_child_by_default(&self) -> bool {
        !matches!(self, QdiscSpec::Netem(_))
    }

    /// True if filters lead to its classes.
    pub(crate) fn has_filters(&self) -> bool {
        of_kind!(self, HAS_FILTERS, false)
    }

    /// True if a tree with it has one instance for all queues in any case.
    pub fn is_single(&self) -> bool {
        of_kind!(self, IS_SINGLE, false)
    }

    /// True if it can be at a device's root only.
    pub(crate) fn is_root_only(&self) -> bool {
        *self == QdiscSpec::Noqueue || self.is_per_queue()
    }

    /// True if it has classes, if only for filters to lead to.
    pub fn is_classful(&self) -> bool {
        self.classes() > 0 || self.adds_classes() || self.has_filters()
    }

    /// True if its only class has all minor numbers, and counts nothing of its own.
    pub fn has_one_class(&self) -> bool {
        matches!(
            self,
            QdiscSpec::Tbf(_) | QdiscSpec::Netem(_) | QdiscSpec::Red(_)
        )
    }

    /// True if parameters can be changed in use.
    pub(crate) fn can_change(&self, before: &QdiscSpec) -> bool {
        let same = std::mem::discriminant(self) == std::mem::discriminant(before);
        let of_default = matches!(
            (before, self),
            (QdiscSpec::Default, QdiscSpec::PfifoFast { .. })
        );
        // Only a new one has another number of flows, as in the kernel.
        let other_flows = matches!(
            (before, self),
            (QdiscSpec::FqCodel(old), QdiscSpec::FqCodel(new)) if old.flows != new.flows
        ) || matches!(
            (before, self),
            (QdiscSpec::FqPie(old), QdiscSpec::FqPie(new)) if old.flows != new.flows
        );
        let can_change = of_kind!(self, CAN_CHANGE, matches!(self, QdiscSpec::CakeMq(_)));
        (same || of_default) && !other_flows && can_change
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`SpecError`] names the parameter that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        if let QdiscSpec::CakeMq(spec) = self {
            return spec.check("cake_mq");
        }
        // A tree has been checked as it was put together.
        of_kind!(self, check(), Ok(()))
    }

    /// Checks that a device with so many transmit queues can have it.
    ///
    /// # Errors
    /// As [`DeviceTree::new`](crate::DeviceTree::new).
    pub fn check_for(&self, queues: usize) -> Result<(), SpecError> {
        match self {
            // `netif_is_multiqueue`.
            QdiscSpec::Multiq { .. } if queues < 2 => Err(SpecError::OneQueue(self.kind())),
            _ if self.is_per_queue() && queues < 2 => Err(SpecError::OneQueue(self.kind())),
            QdiscSpec::Mqprio(map) => Ok(check_queue_map(map, queues)?),
            QdiscSpec::Tree(tree) => tree.check_for(queues),
            _ => self.check(),
        }
    }
}
