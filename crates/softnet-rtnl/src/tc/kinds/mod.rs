//! The options of each kind of qdisc and of class: how the attributes that `tc` sends become
//! parameters, and how parameters and statistics are shown.
//!
//! `TCA_OPTIONS` has a form of its own for each kind. [`parse`] and [`dump`] find the kind; a new
//! one is a module and a line in each of them.

mod fifo;

use softnet::qdisc::QdiscStats;
use softnet_tc::{ClassSpec, ClassStats, Handle, QdiscSpec, Xstats};

use crate::nl::{Attr, Errno, Error, Message};

/// What the options of a qdisc depend on besides themselves.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Longest IP packet of the link in bytes.
    pub mtu: u32,
    /// Frames that a queue of the link holds where nothing else is said.
    pub tx_queue_len: u32,
    /// Transmit queues of the link.
    pub queues: usize,
    /// Where the qdisc is attached.
    pub parent: Handle,
}

/// A qdisc that is shown.
#[derive(Clone, Copy, Debug)]
pub struct ShownQdisc<'a> {
    /// Its parameters. Never [`QdiscSpec::Default`] or [`QdiscSpec::Tree`].
    pub spec: &'a QdiscSpec,
    /// Its statistics.
    pub stats: &'a QdiscStats,
    /// Those that it has because of its kind.
    pub xstats: Option<&'a Xstats>,
    /// Its link.
    pub around: Surroundings,
}

/// A class that is shown.
#[derive(Clone, Copy, Debug)]
pub struct ShownClass<'a> {
    /// Its parameters.
    pub spec: &'a ClassSpec,
    /// The parameters of its qdisc.
    pub qdisc: &'a QdiscSpec,
    /// Its statistics, also those of its kind.
    pub stats: &'a ClassStats,
    /// `level` of `htb`: 0 for a leaf, and for others 7 less the classes above it.
    pub level: u32,
}

/// Whether there are qdiscs of this kind (`qdisc_lookup_ops`).
pub fn is_known(kind: &str) -> bool {
    matches!(
        kind,
        "pfifo" | "bfifo" | "pfifo_head_drop" | "pfifo_fast" | "noqueue" | "mq"
    )
}

/// The parameters that a request gives a qdisc of a kind. `before` are those of the qdisc that is
/// changed, which are kept where the kernel keeps what is not named; `None` for a new one.
///
/// Checks what the kernel checks, with its errno and text. What only Softnet refuses,
/// [`QdiscSpec::check`] finds later.
pub fn parse(
    kind: &str,
    options: Option<Attr<'_>>,
    around: &Surroundings,
    before: Option<&QdiscSpec>,
) -> Result<QdiscSpec, Error> {
    match kind {
        "pfifo" | "bfifo" | "pfifo_head_drop" => fifo::parse(kind, options, around, before),
        "pfifo_fast" => Ok(QdiscSpec::PfifoFast {
            limit: around.tx_queue_len,
        }),
        "noqueue" => Ok(QdiscSpec::Noqueue),
        "mq" => Ok(QdiscSpec::Mq),
        _ => Err(Error::new(Errno::ENOENT).text("Specified qdisc kind is unknown")),
    }
}

/// Puts `TCA_OPTIONS`, for kinds that have some.
pub fn dump(qdisc: &ShownQdisc<'_>, out: &mut Message<'_>) {
    match qdisc.spec {
        QdiscSpec::Pfifo { .. } | QdiscSpec::Bfifo { .. } | QdiscSpec::PfifoHeadDrop { .. } => {
            fifo::dump(qdisc.spec, out);
        }
        QdiscSpec::PfifoFast { .. } => fifo::dump_fast(out),
        _ => {}
    }
}

/// The statistics that a qdisc has because of its kind, as the kernel's structure of it: the
/// payload of `TCA_STATS_APP` and of `TCA_XSTATS`.
pub fn xstats(_qdisc: &ShownQdisc<'_>) -> Option<Vec<u8>> {
    None
}

/// The parameters that a request gives a class of a qdisc. `before` are those of the class that
/// is changed.
pub fn parse_class(
    _qdisc: &QdiscSpec,
    _options: Option<Attr<'_>>,
    _around: &Surroundings,
    _before: Option<&ClassSpec>,
) -> Result<ClassSpec, Error> {
    // The kind cannot add classes (`Qdisc_class_ops` without `change`).
    Err(Error::new(Errno::EOPNOTSUPP))
}

/// What the kernel warns of when a class has been added or changed, though it succeeds.
pub fn class_warning(_class: Handle, _spec: &ClassSpec, _qdisc: &QdiscSpec) -> Option<String> {
    None
}

/// Puts `TCA_OPTIONS` of a class that was added.
pub fn dump_class(_class: &ShownClass<'_>, _out: &mut Message<'_>) {}

/// As [`xstats`], of a class that was added.
pub fn class_xstats(_class: &ShownClass<'_>) -> Option<Vec<u8>> {
    None
}
