//! Qdiscs as configuration: the parameters of each kind, and how one is made.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::{
    AnyQdisc, Bfifo, DeviceTree, Handle, LinkCost, Noqueue, Pfifo, PfifoFast, PfifoHeadDrop, Prio,
    PrioSpec, Qdisc, Tbf, TreeError, TreeSpec,
};
use softnet::mem::Pool;
use softnet::tx::{Qdiscs, QueueMap, QueueMapError};

/// A qdisc's kind and parameters.
///
/// A new kind is a file, a variant here and one in [`AnyQdisc`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QdiscSpec {
    /// What a device gets in the kernel: `pfifo_fast` with a `txqueuelen` of 1000, one at each
    /// of its transmit queues.
    #[default]
    Default,
    /// Hand each packet to the driver at once; drop what it does not take.
    Noqueue,
    /// FIFO of at most `limit` frames.
    Pfifo {
        /// Frames.
        limit: u32,
    },
    /// FIFO of at most `limit` bytes.
    Bfifo {
        /// Wire bytes.
        limit: u64,
    },
    /// FIFO of at most `limit` frames that drops its oldest.
    PfifoHeadDrop {
        /// Frames.
        limit: u32,
    },
    /// Three priority bands of at most `limit` frames each.
    PfifoFast {
        /// Frames per band.
        limit: u32,
    },
    /// Token bucket.
    Tbf(TbfSpec),
    /// Bands in strict priority.
    Prio(PrioSpec),
    /// A qdisc of one's own.
    Custom(CustomSpec),
    /// Several qdiscs.
    Tree(TreeSpec),
    /// A class for each transmit queue: queue 0 is `:1` (tc-mq(8)). It has no queue of its own: a
    /// sender goes to the qdisc of the queue that its packets take.
    Mq,
    /// As `mq`, and each priority has queues of its own (INV-MQ-2, tc-mqprio(8)). The map goes
    /// with the qdisc (INV-MQ-3).
    Mqprio(QueueMap),
}

/// How to make a qdisc from outside this crate.
#[derive(Clone)]
pub struct CustomSpec {
    kind: &'static str,
    make: Arc<Make>,
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

/// Parameters of a token bucket, in the units of the kernel's interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TbfSpec {
    /// Bytes per second.
    pub rate: u64,
    /// Bucket size in bytes, at most 4 GiB.
    pub burst: u64,
    /// Bytes that may wait. Not used if the class is given a qdisc of its own.
    pub limit: u64,
    /// Peak rate in bytes per second.
    pub peakrate: Option<u64>,
    /// Size of the peak bucket in bytes; used with `peakrate` only.
    pub mtu: u32,
    /// What a packet costs beyond its length. Both buckets hold what one packet of their size
    /// costs.
    pub link: LinkCost,
}

/// Parameters that contradict themselves.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    /// `rate` is 0 or too large to count with.
    #[error("tbf: rate must be between 1 byte/s and 1 Tbyte/s")]
    Rate,
    /// `burst` is 0 or more than 4 GiB.
    #[error("tbf: burst must be between 1 byte and 4 GiB")]
    Burst,
    /// `peakrate` is not above `rate`.
    #[error("tbf: peakrate must be higher than rate")]
    PeakRate,
    /// `peakrate` without `mtu`.
    #[error("tbf: peakrate needs mtu (the size of its bucket, at least one packet)")]
    PeakMtu,
    /// `bands` is not 2 to 16.
    #[error("prio: bands must be 2 to 16")]
    Bands,
    /// A priority's band does not exist.
    #[error("prio: priomap refers to band {band}; this qdisc has bands 0 to {}", .bands - 1)]
    Priomap {
        /// The band that does not exist.
        band: u8,
        /// How many there are.
        bands: u16,
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
    /// The place in the tree is wrong.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// What a qdisc is made for.
#[derive(Clone, Debug)]
pub struct QdiscEnv {
    /// The device's pool.
    pub pool: Pool,
    /// The device's MTU in bytes, Ethernet header not included.
    pub mtu: u32,
    /// Frames that a queue of the device holds where nothing else is said.
    pub txqueuelen: u32,
    /// Bytes per second that the device sends, if that is known.
    pub rate: Option<u64>,
    /// A random number for what an outsider must not guess (flow hashes).
    pub seed: u64,
}

impl QdiscEnv {
    /// An Ethernet device as in Linux: an MTU of 1500, a queue of 1000, a rate that is not known.
    pub fn new(pool: &Pool) -> QdiscEnv {
        QdiscEnv {
            pool: pool.clone(),
            mtu: 1500,
            txqueuelen: 1000,
            rate: None,
            seed: RandomState::new().hash_one(()),
        }
    }
}

impl QdiscSpec {
    /// The kind's name, as in tc.
    pub fn kind(&self) -> &'static str {
        match self {
            QdiscSpec::Noqueue => "noqueue",
            QdiscSpec::Pfifo { .. } => "pfifo",
            QdiscSpec::Bfifo { .. } => "bfifo",
            QdiscSpec::Default | QdiscSpec::PfifoFast { .. } => "pfifo_fast",
            QdiscSpec::PfifoHeadDrop { .. } => "pfifo_head_drop",
            QdiscSpec::Tbf(_) => "tbf",
            QdiscSpec::Prio(_) => "prio",
            QdiscSpec::Custom(custom) => custom.kind,
            QdiscSpec::Tree(tree) => tree.kind(),
            QdiscSpec::Mq => "mq",
            QdiscSpec::Mqprio(_) => "mqprio",
        }
    }

    /// The highest number of a class. That of `mq` depends on the device.
    pub fn classes(&self) -> u16 {
        match self {
            QdiscSpec::Tbf(_) => 1,
            QdiscSpec::Prio(prio) => prio.bands,
            QdiscSpec::Mq | QdiscSpec::Mqprio(_) => u16::MAX,
            _ => 0,
        }
    }

    /// What a class has if nothing is attached to it.
    pub(super) fn default_child(&self, env: &QdiscEnv) -> QdiscSpec {
        match self {
            QdiscSpec::Tbf(tbf) => QdiscSpec::Bfifo { limit: tbf.limit },
            QdiscSpec::Prio(_) => QdiscSpec::Pfifo {
                limit: env.txqueuelen,
            },
            _ => QdiscSpec::Default,
        }
    }

    /// Whether it can be at a device's root only.
    pub(super) fn is_root_only(&self) -> bool {
        *self == QdiscSpec::Noqueue || self.is_per_queue()
    }

    /// Whether its classes are the device's transmit queues.
    pub(super) fn is_per_queue(&self) -> bool {
        matches!(self, QdiscSpec::Mq | QdiscSpec::Mqprio(_))
    }

    /// Whether parameters can be changed in use.
    pub(super) fn can_change(&self, before: &QdiscSpec) -> bool {
        use QdiscSpec::{Custom, Default, PfifoFast, Tree};
        let same = std::mem::discriminant(self) == std::mem::discriminant(before);
        let has_parameters =
            !matches!(self, Default | Tree(_) | Custom(_)) && !self.is_root_only();
        has_parameters && (same || matches!((before, self), (Default, PfifoFast { .. })))
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// [`SpecError`] names the parameter that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        match self {
            QdiscSpec::Tbf(tbf) => tbf.check(),
            QdiscSpec::Prio(prio) => prio.check(),
            // A tree has been checked as it was put together.
            _ => Ok(()),
        }
    }

    /// Checks that a device with so many transmit queues can have it.
    ///
    /// # Errors
    /// As [`DeviceTree::new`].
    pub fn check_for(&self, queues: usize) -> Result<(), SpecError> {
        match self {
            QdiscSpec::Mq | QdiscSpec::Mqprio(_) if queues < 2 => {
                Err(SpecError::OneQueue(self.kind()))
            }
            QdiscSpec::Mqprio(map) => Ok(map.check(queues)?),
            QdiscSpec::Tree(tree) => tree.check_for(queues),
            _ => self.check(),
        }
    }

    /// Builds the qdiscs of a device with `queues` transmit queues that is not changed later; see
    /// [`DeviceTree`].
    ///
    /// # Errors
    /// As [`DeviceTree::new`].
    pub fn instances(&self, queues: usize, pool: &Pool) -> Result<Qdiscs<AnyQdisc>, SpecError> {
        Ok(DeviceTree::new(self.clone(), queues, &QdiscEnv::new(pool))?.1)
    }

    /// Builds an empty qdisc, for a device with one transmit queue.
    ///
    /// # Errors
    /// As [`DeviceTree::new`].
    pub fn build(&self, env: &QdiscEnv) -> Result<AnyQdisc, SpecError> {
        let (_, mut roots) = DeviceTree::new(self.clone(), 1, env)?;
        roots
            .instances
            .pop()
            .ok_or_else(|| SpecError::OneQueue(self.kind()))
    }

    /// Makes an empty qdisc with the classes that it comes with. The parameters have been checked.
    pub(super) fn make(&self, handle: Handle, env: &QdiscEnv) -> AnyQdisc {
        match self {
            QdiscSpec::Noqueue => AnyQdisc::Noqueue(Noqueue::default()),
            QdiscSpec::Pfifo { limit } => AnyQdisc::Pfifo(Pfifo::new(*limit)),
            QdiscSpec::Bfifo { limit } => AnyQdisc::Bfifo(Bfifo::new(*limit)),
            QdiscSpec::PfifoFast { limit } => {
                AnyQdisc::PfifoFast(Box::new(PfifoFast::new(*limit)))
            }
            QdiscSpec::PfifoHeadDrop { limit } => {
                AnyQdisc::PfifoHeadDrop(Box::new(PfifoHeadDrop::new(*limit)))
            }
            QdiscSpec::Tbf(spec) => AnyQdisc::Tbf(Box::new(Tbf::new(spec))),
            QdiscSpec::Prio(spec) => {
                AnyQdisc::Prio(Box::new(Prio::new(handle, spec, env.txqueuelen)))
            }
            QdiscSpec::Custom(custom) => AnyQdisc::Custom((custom.make)(env)),
            // The others are not made, but stand for one for each queue.
            QdiscSpec::Default | QdiscSpec::Mq | QdiscSpec::Mqprio(_) | QdiscSpec::Tree(_) => {
                AnyQdisc::PfifoFast(Box::new(PfifoFast::new(env.txqueuelen)))
            }
        }
    }
}

impl TbfSpec {
    fn check(&self) -> Result<(), SpecError> {
        const MAX_RATE: u64 = 1_000_000_000_000;
        if !(1..=MAX_RATE).contains(&self.rate) || self.peakrate.is_some_and(|p| p > MAX_RATE) {
            return Err(SpecError::Rate);
        }
        if !(1..=u64::from(u32::MAX)).contains(&self.burst) {
            return Err(SpecError::Burst);
        }
        match self.peakrate {
            Some(peak) if peak <= self.rate => Err(SpecError::PeakRate),
            Some(_) if self.mtu == 0 => Err(SpecError::PeakMtu),
            _ => Ok(()),
        }
    }
}
