//! The kinds of qdisc: what each has to say of itself, and the one list of them.
//!
//! A new kind is a file with the qdisc and its [`Kind`], and three lines in [`kinds!`]. One whose
//! classes are added one by one also has a [`ClassKind`](crate::qdisc::class::ClassKind) and a line
//! there.

use softnet::qdisc::{Cx, Qdisc};
use softnet::tx::QueueMap;

use super::aqm::ETHERNET_LEN;
use super::cake::{CakeSpec, OPTIONS_MQ};
use super::codel::CodelSpec;
use super::dualpi2::DualPi2Spec;
use super::fq::FqSpec;
use super::fq_codel::FqCodelSpec;
use super::fq_pie::FqPieSpec;
use super::hfsc::HfscSpec;
use super::htb::HtbSpec;
use super::mq;
use super::netem::NetemSpec;
use super::option::QdiscOption;
use super::pie::PieSpec;
use super::prio::PrioSpec;
use super::red::RedSpec;
use super::rounds::EtsSpec;
use super::sfq::SfqSpec;
use super::spec::{CustomSpec, QdiscEnv, SpecError};
use super::tbf::TbfSpec;
use crate::account::{Accounted, Children, Xstats};
use crate::filter::Filters;
use crate::handle::Handle;
use crate::tree::TreeSpec;

// The kinds of the list: the macros name them as items of this module.
pub(super) use super::blackhole::Blackhole;
pub(super) use super::cake::Cake;
pub(super) use super::codel::Codel;
pub(super) use super::dualpi2::DualPi2;
pub(super) use super::fq::Fq;
pub(super) use super::fq_codel::FqCodel;
pub(super) use super::fq_pie::FqPie;
pub(super) use super::head_drop::PfifoHeadDrop;
pub(super) use super::hfsc::Hfsc;
pub(super) use super::htb::Htb;
pub(super) use super::multiq::Multiq;
pub(super) use super::netem::Netem;
pub(super) use super::pie::Pie;
pub(super) use super::prio::Prio;
pub(super) use super::qfq::Qfq;
pub(super) use super::red::Red;
pub(super) use super::rounds::{Drr, Ets};
pub(super) use super::sfq::Sfq;
pub(super) use super::tbf::Tbf;
#[cfg(test)]
pub(super) use crate::testing::round_robin::RoundRobin;
pub(super) use softnet::qdisc::{Bfifo, Noqueue, Pfifo, PfifoFast};

/// A kind of qdisc.
pub(crate) trait Kind: Sized {
    /// Parameters.
    type Spec;
    /// Name, as in tc.
    const NAME: &'static str;
    /// True if parameters can be changed in use.
    const CAN_CHANGE: bool = true;
    /// Options, in the order in which rtnetlink shows them.
    const OPTIONS: &'static [QdiscOption] = &[];
    /// True if filters lead to its classes.
    const HAS_FILTERS: bool = false;
    /// True if a tree with it has one instance for all queues in any case: instances could not
    /// share what it gives.
    const IS_SINGLE: bool = false;

    /// Checks the parameters.
    fn check(_: &Self::Spec) -> Result<(), SpecError> {
        Ok(())
    }

    /// An empty qdisc with the classes that it comes with. The parameters have been checked.
    fn make(spec: &Self::Spec, handle: Handle, env: &QdiscEnv) -> Self;

    /// Takes other parameters, which have been checked, all at once. What is queued stays, but for
    /// what can never leave any more.
    fn change(&mut self, _: &Self::Spec, _: &mut Cx) {}

    /// Number of classes that it comes with: 1, 2 and so on. Others are not added to them.
    fn classes(_: &Self::Spec) -> u16 {
        0
    }

    /// Qdisc of a class to which none is attached.
    fn default_child(_: &Self::Spec, env: &QdiscEnv) -> QdiscSpec {
        let limit = env.txqueuelen;
        QdiscSpec::Pfifo { limit }
    }

    /// Children, if it has classes.
    fn children(&self) -> Option<&Children> {
        None
    }

    /// As [`children`](Kind::children), to change them.
    fn children_mut(&mut self) -> Option<&mut Children> {
        None
    }

    /// Filters, if it has some.
    fn filters_mut(&mut self) -> Option<&mut Filters> {
        None
    }

    /// Own statistics, if it has some.
    fn xstats(&self) -> Option<&Xstats> {
        None
    }

    /// Flows with packets, as far as it tells them apart.
    fn flows(&self) -> u64 {
        self.children().map_or(0, Children::flows)
    }

    /// A child's queue may have become empty, or may be so no more, other than by its own enqueue
    /// and dequeue: by a change of the child or below, or by another child in its place.
    fn child_changed(&mut self, _: usize, _: &mut Cx) {}
}

/// The fields of a qdisc that [`Kind`] asks for: its children, and its filters, if it has some.
macro_rules! parts {
    ($children:ident $(, $filters:ident)?) => {
        fn children(&self) -> Option<&$crate::account::Children> {
            Some(&self.$children)
        }

        fn children_mut(&mut self) -> Option<&mut $crate::account::Children> {
            Some(&mut self.$children)
        }

        $(
            fn filters_mut(&mut self) -> Option<&mut $crate::filter::Filters> {
                Some(&mut self.$filters)
            }
        )?
    };
}
pub(crate) use parts;

/// Functions of [`Qdisc`] that say what the children do.
macro_rules! of_children {
    ($children:ident) => {
        fn wants_enqueue_time(&self) -> bool {
            self.$children.wants_enqueue_time()
        }

        fn stats(&self) -> &softnet::qdisc::QdiscStats {
            &self.$children.stats
        }
    };
}
pub(crate) use of_children;

/// A kind of qdisc as a request or a file names it.
#[derive(Clone, Copy, Debug)]
pub struct QdiscKind {
    /// Name, as in tc.
    pub name: &'static str,
    /// True if a request can change parameters in use.
    pub can_change: bool,
    /// Options.
    pub options: &'static [QdiscOption],
    /// Default parameters.
    pub default: fn(&LinkDefaults) -> QdiscSpec,
}

/// Properties of a link that defaults of qdiscs depend on.
#[derive(Clone, Copy, Debug)]
pub struct LinkDefaults {
    /// Longest IP packet in bytes.
    pub mtu: u32,
    /// Frames that a queue holds where nothing else is said.
    pub tx_queue_len: u32,
    /// Transmit queues.
    pub queues: u16,
}

impl Default for LinkDefaults {
    /// As in the kernel.
    fn default() -> LinkDefaults {
        LinkDefaults {
            mtu: 1500,
            tx_queue_len: 1000,
            queues: 1,
        }
    }
}

impl LinkDefaults {
    /// Bytes of the longest frame (`psched_mtu`).
    pub fn frame(&self) -> u32 {
        self.mtu.saturating_add(ETHERNET_LEN)
    }
}

impl QdiscKind {
    const fn of<K: Kind>(default: fn(&LinkDefaults) -> QdiscSpec) -> QdiscKind {
        QdiscKind {
            name: K::NAME,
            can_change: K::CAN_CHANGE && !K::OPTIONS.is_empty(),
            options: K::OPTIONS,
            default,
        }
    }

    /// The kind of this name.
    pub fn find(name: &str) -> Option<&'static QdiscKind> {
        QDISC_KINDS.iter().find(|kind| kind.name == name)
    }
}

/// The kinds that have a name, in the order of messages.
pub const QDISC_KINDS: &[QdiscKind] = &[
    QdiscKind::of::<Noqueue>(|_| QdiscSpec::Noqueue),
    QdiscKind::of::<Blackhole>(|_| QdiscSpec::Blackhole),
    QdiscKind::of::<Pfifo>(|link| QdiscSpec::Pfifo {
        limit: link.tx_queue_len,
    }),
    QdiscKind::of::<Bfifo>(|link| QdiscSpec::Bfifo {
        limit: u64::from(link.tx_queue_len) * u64::from(link.frame()),
    }),
    QdiscKind::of::<PfifoHeadDrop>(|link| QdiscSpec::PfifoHeadDrop {
        limit: link.tx_queue_len,
    }),
    QdiscKind::of::<PfifoFast>(|link| QdiscSpec::PfifoFast {
        limit: link.tx_queue_len,
    }),
    QdiscKind::of::<Prio>(|_| QdiscSpec::Prio(PrioSpec::default())),
    QdiscKind::of::<Tbf>(|_| QdiscSpec::Tbf(TbfSpec::default())),
    QdiscKind::of::<Htb>(|_| QdiscSpec::Htb(HtbSpec::default())),
    QdiscKind::of::<Hfsc>(|_| QdiscSpec::Hfsc(HfscSpec::default())),
    QdiscKind::of::<Drr>(|_| QdiscSpec::Drr),
    QdiscKind {
        // It takes as many bands as there are queues then.
        can_change: true,
        ..QdiscKind::of::<Multiq>(|link| QdiscSpec::Multiq { bands: link.queues })
    },
    QdiscKind::of::<Qfq>(|_| QdiscSpec::Qfq),
    QdiscKind::of::<Ets>(|link| QdiscSpec::Ets(EtsSpec::new(link))),
    QdiscKind::of::<Codel>(|_| QdiscSpec::Codel(CodelSpec::default())),
    QdiscKind::of::<FqCodel>(|_| QdiscSpec::FqCodel(FqCodelSpec::default())),
    QdiscKind::of::<Fq>(|_| QdiscSpec::Fq(FqSpec::default())),
    QdiscKind::of::<Sfq>(|_| QdiscSpec::Sfq(SfqSpec::default())),
    QdiscKind::of::<Red>(|_| QdiscSpec::Red(RedSpec::default())),
    QdiscKind::of::<Pie>(|_| QdiscSpec::Pie(PieSpec::default())),
    QdiscKind::of::<FqPie>(|_| QdiscSpec::FqPie(FqPieSpec::default())),
    QdiscKind::of::<DualPi2>(|_| QdiscSpec::DualPi2(DualPi2Spec::default())),
    QdiscKind::of::<Cake>(|_| QdiscSpec::Cake(CakeSpec::default())),
    QdiscKind {
        name: "cake_mq",
        can_change: true,
        options: OPTIONS_MQ,
        default: |_| QdiscSpec::CakeMq(CakeSpec::default()),
    },
    QdiscKind::of::<Netem>(|_| QdiscSpec::Netem(NetemSpec::default())),
    QdiscKind {
        name: "mq",
        can_change: false,
        options: &[],
        default: |_| QdiscSpec::Mq,
    },
    QdiscKind {
        name: "mqprio",
        can_change: false,
        options: mq::OPTIONS,
        default: |_| QdiscSpec::Mqprio(QueueMap::default()),
    },
];

/// From a line for each kind: the parameters [`QdiscSpec`], the qdiscs [`AnyQdisc`], and the way
/// from either to the [`Kind`]. `$d` is a dollar sign. A kind of `only test` is there for tests.
macro_rules! kinds {
    ($d:tt $(
        $(#[$doc:meta])*
        $name:ident $({ $(#[$field_doc:meta])* $field:ident: $type:ty })?
            $(($spec:ident: $struct:ty))? => $qdisc:ty $(, only $cfg:meta)?;
    )*) => {
        /// A qdisc's kind and parameters.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub enum QdiscSpec {
            /// Default of a device in the kernel: one at each of its transmit queues, `pfifo_fast`
            /// with a `txqueuelen` of 1000 unless the environment says another.
            #[default]
            Default,
            /// Several qdiscs.
            Tree(TreeSpec),
            /// A class for each transmit queue: queue 0 is `:1` (tc-mq(8)). It has no queue of its
            /// own: a sender goes to the qdisc of the queue that its packets take.
            Mq,
            /// As `mq`, and each priority has queues of its own (INV-MQ-2, tc-mqprio(8)). The map
            /// goes with the qdisc (INV-MQ-3).
            Mqprio(QueueMap),
            /// As `mq`, with a `cake` at each queue that is none but all of them together are: one
            /// rate, and hosts and flows share it over all queues.
            CakeMq(CakeSpec),
            $(
                $(#[cfg($cfg)])? $(#[$doc])*
                $name $({ $(#[$field_doc])* $field: $type })? $(($struct))?,
            )*
        }

        /// Any qdisc. Dispatched by a match, not by an indirect call; a user's own kind is boxed.
        #[derive(Debug)]
        pub enum AnyQdisc {
            $($(#[cfg($cfg)])? $(#[$doc])* $name($qdisc),)*
            /// At the root of a queue: any of the others, with a size table.
            Accounted(Box<Accounted>),
        }

        /// Calls a function of the qdisc's kind.
        macro_rules! dispatch {
            ($d self:expr, $d q:ident => $d call:expr) => {
                match $d self {
                    $($(#[cfg($cfg)])? AnyQdisc::$name($d q) => $d call,)*
                    AnyQdisc::Accounted($d q) => $d call,
                }
            };
            ($d self:expr, Kind::$d method:ident($d($d arg:expr),*)) => {
                match $d self {
                    $($(#[cfg($cfg)])?
                    AnyQdisc::$name(q) => {
                        <$crate::qdisc::kind::$name as Kind>::$d method(q $d(, $d arg)*)
                    })*
                    // Nothing: see [`AnyQdisc::at`].
                    AnyQdisc::Accounted(_) => Default::default(),
                }
            };
        }
        pub(crate) use dispatch;

        /// Calls a function of the parameters' kind with them; `$else` for those that stand for
        /// one qdisc at each queue, or several.
        macro_rules! of_kind {
            ($d self:expr, $d method:ident($d($d arg:expr),*), $d else:expr) => {
                match $d self {
                    $($(#[cfg($cfg)])? QdiscSpec::$name $({ $field })? $(($spec))? => {
                        let spec = &($($field)? $($spec)?);
                        <$crate::qdisc::kind::$name as Kind>::$d method(spec $d(, $d arg)*)
                    })*
                    _ => $d else,
                }
            };
            ($d self:expr, $d constant:ident, $d else:expr) => {
                match $d self {
                    $($(#[cfg($cfg)])? QdiscSpec::$name { .. } => {
                        <$crate::qdisc::kind::$name as Kind>::$d constant
                    })*
                    _ => $d else,
                }
            };
        }
        pub(crate) use of_kind;

        impl QdiscSpec {
            /// Makes an empty qdisc with the classes that it comes with. The parameters have been
            /// checked.
            pub(crate) fn make(&self, handle: Handle, env: &QdiscEnv) -> AnyQdisc {
                match self {
                    $($(#[cfg($cfg)])? QdiscSpec::$name $({ $field })? $(($spec))? => {
                        let spec = &($($field)? $($spec)?);
                        AnyQdisc::$name(<$name as Kind>::make(spec, handle, env).into())
                    })*
                    // The others are not made, but stand for one for each queue.
                    _ => env.default_spec().make(handle, env),
                }
            }
        }

        impl AnyQdisc {
            /// Gives a qdisc other parameters of its kind while it is in use, all at once or not
            /// at all (INV-Q-10). What is queued stays, but for what can never leave any more.
            ///
            /// # Errors
            /// If the parameters are wrong ([`QdiscSpec::check`]) or of another kind, or the kind
            /// has none.
            pub fn change(&mut self, spec: &QdiscSpec, cx: &mut Cx) -> Result<(), SpecError> {
                spec.check()?;
                match (self, spec) {
                    $($(#[cfg($cfg)])?
                    (AnyQdisc::$name(q), QdiscSpec::$name $({ $field })? $(($spec))?)
                        if <$name as Kind>::CAN_CHANGE =>
                    {
                        <$name as Kind>::change(q, &($($field)? $($spec)?), cx);
                        Ok(())
                    })*
                    (AnyQdisc::Accounted(root), spec) => root.qdisc_mut().change(spec, cx),
                    _ => Err(SpecError::Change(spec.kind())),
                }
            }
        }
    };
}

kinds! { $
    /// Hand each packet to the driver at once; drop what it does not take.
    Noqueue => Noqueue;
    /// Drop all packets.
    Blackhole => Blackhole;
    /// FIFO of at most `limit` frames.
    Pfifo {
        /// Frames.
        limit: u32
    } => Pfifo;
    /// FIFO of at most `limit` bytes.
    Bfifo {
        /// Wire bytes.
        limit: u64
    } => Bfifo;
    /// FIFO of at most `limit` frames that drops its oldest.
    PfifoHeadDrop {
        /// Frames.
        limit: u32
    } => Box<PfifoHeadDrop>;
    /// Three priority bands of at most `limit` frames each.
    PfifoFast {
        /// Frames per band.
        limit: u32
    } => Box<PfifoFast>;
    /// Token bucket.
    Tbf(spec: TbfSpec) => Box<Tbf>;
    /// Bands in strict priority.
    Prio(spec: PrioSpec) => Box<Prio>;
    /// Classes with service curves.
    Hfsc(spec: HfscSpec) => Box<Hfsc>;
    /// Classes that send in turn.
    Drr => Box<Drr>;
    /// A band for each transmit queue, served in turn.
    Multiq {
        /// Transmit queues.
        bands: u16
    } => Box<Multiq>;
    /// Classes that share the rate by their weights.
    Qfq => Box<Qfq>;
    /// Bands in strict priority, and behind them bands that send in turn.
    Ets(spec: EtsSpec) => Box<Ets>;
    /// FIFO whose delay is kept low.
    Codel(spec: CodelSpec) => Box<Codel>;
    /// Many such queues, one for each flow.
    FqCodel(spec: FqCodelSpec) => Box<FqCodel>;
    /// Classes with rates of their own that borrow from each other.
    Htb(spec: HtbSpec) => Box<Htb>;
    /// A queue for each flow, served in turn and paced.
    Fq(spec: FqSpec) => Box<Fq>;
    /// Flows that are hashed to queues, which take turns.
    Sfq(spec: SfqSpec) => Box<Sfq>;
    /// Random early detection: drops by the average length.
    Red(spec: RedSpec) => Box<Red>;
    /// FIFO whose delay is kept at a target by drops at its end.
    Pie(spec: PieSpec) => Box<Pie>;
    /// Many such queues, one for each flow.
    FqPie(spec: FqPieSpec) => Box<FqPie>;
    /// Two queues, for low latency beside classic traffic.
    DualPi2(spec: DualPi2Spec) => Box<DualPi2>;
    /// Shaper, fair queues, AQM and priorities in one.
    Cake(spec: CakeSpec) => Box<Cake>;
    /// A link with delay, loss and other errors.
    Netem(spec: NetemSpec) => Box<Netem>;
    /// A qdisc of one's own, from outside this crate.
    Custom(spec: CustomSpec) => Custom;
    /// For tests.
    RoundRobin => Box<RoundRobin>, only test;
}

pub(crate) type Custom = Box<dyn Qdisc>;

impl Kind for Custom {
    type Spec = CustomSpec;
    const NAME: &'static str = "custom";
    const CAN_CHANGE: bool = false;

    fn make(spec: &CustomSpec, _: Handle, env: &QdiscEnv) -> Custom {
        (spec.make)(env)
    }
}
