//! The options of each kind of qdisc and of class: how the attributes that `tc` sends become
//! parameters, and how parameters and statistics are shown.
//!
//! `TCA_OPTIONS` has a form of its own for each kind. [`parse`] and [`dump`] find the kind; a new
//! one is a module and a line in each of them.

mod codel;
mod fifo;
mod fq;
mod htb;
mod mqprio;
mod prio;
#[cfg(all(test, not(miri)))]
mod property_tests;
mod rate;
mod tbf;
#[cfg(all(test, not(miri)))]
mod tests;
#[cfg(all(test, not(miri)))]
mod xstats_tests;

use softnet::qdisc::{PRIO_TO_BAND, QdiscStats};
use softnet_tc::{ClassSpec, ClassStats, Handle, QdiscSpec, Xstats};

use crate::nl::{Attr, Errno, Error, Message};

/// What the options of a qdisc depend on besides themselves.
#[derive(Clone, Copy, Debug)]
pub struct QdiscContext {
    /// Longest IP packet of the link in bytes.
    pub mtu: u32,
    /// Frames that a queue of the link holds where nothing else is said.
    pub tx_queue_len: u32,
    /// Transmit queues of the link.
    pub queues: usize,
    /// Where the qdisc is attached.
    pub parent: Handle,
}

impl QdiscContext {
    /// Bytes of the link's longest frame (`psched_mtu`).
    fn frame(&self) -> u32 {
        const ETHERNET_HEADER: u32 = 14;
        self.mtu.saturating_add(ETHERNET_HEADER)
    }
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
    pub context: QdiscContext,
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
    can_change(kind) || matches!(kind, "pfifo_fast" | "noqueue" | "mq" | "mqprio" | "htb")
}

/// Whether options of a qdisc can be changed (`Qdisc_ops` with `change`).
fn can_change(kind: &str) -> bool {
    matches!(
        kind,
        "pfifo" | "bfifo" | "pfifo_head_drop" | "tbf" | "prio" | "codel" | "fq_codel" | "fq"
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
    context: &QdiscContext,
    before: Option<&QdiscSpec>,
) -> Result<QdiscSpec, Error> {
    if let Some(before) = before {
        // `qdisc_change`.
        if options.is_none() {
            return Ok(before.clone());
        }
        if !can_change(kind) {
            let text = "Change operation not supported by specified qdisc";
            return Err(Error::invalid(text).help("Delete it and add it again"));
        }
    }
    match kind {
        "pfifo" | "bfifo" | "pfifo_head_drop" => fifo::parse(kind, options, context),
        "pfifo_fast" => Ok(QdiscSpec::PfifoFast {
            limit: context.tx_queue_len,
        }),
        "noqueue" => Ok(QdiscSpec::Noqueue),
        "mq" => Ok(QdiscSpec::Mq),
        "mqprio" => mqprio::parse(options, context.queues),
        "tbf" => tbf::parse(options),
        "prio" => prio::parse(options),
        "codel" => codel::parse(options, before),
        "fq_codel" => codel::parse_fq(options, before),
        "fq" => fq::parse(options, before),
        "htb" => htb::parse(options),
        _ => Err(Error::new(Errno::ENOENT).text("Specified qdisc kind is unknown")),
    }
}

/// Puts `TCA_OPTIONS`, for kinds that have some.
pub fn dump(qdisc: &ShownQdisc<'_>, out: &mut Message<'_>) {
    match qdisc.spec {
        QdiscSpec::Pfifo { .. } | QdiscSpec::Bfifo { .. } | QdiscSpec::PfifoHeadDrop { .. } => {
            fifo::dump(qdisc.spec, out);
        }
        QdiscSpec::PfifoFast { .. } => prio::put(3, &PRIO_TO_BAND, out),
        QdiscSpec::Mqprio(map) => mqprio::dump(map, out),
        QdiscSpec::Tbf(spec) => tbf::dump(spec, out),
        QdiscSpec::Prio(spec) => prio::put(spec.bands, &spec.priomap, out),
        QdiscSpec::Codel(spec) => codel::dump(spec, out),
        QdiscSpec::FqCodel(spec) => codel::dump_fq(spec, &qdisc.context, out),
        QdiscSpec::Fq(spec) => fq::dump(spec, &qdisc.context, out),
        QdiscSpec::Htb(spec) => htb::dump(spec, qdisc, out),
        QdiscSpec::Default
        | QdiscSpec::Tree(_)
        | QdiscSpec::Mq
        | QdiscSpec::Noqueue
        | QdiscSpec::Custom(_) => {}
    }
}

/// The statistics that a qdisc has because of its kind, as the kernel's structure of it: the
/// payload of `TCA_STATS_APP` and of `TCA_XSTATS`.
pub fn xstats(qdisc: &ShownQdisc<'_>) -> Option<Vec<u8>> {
    let values = || Values::new(qdisc.xstats);
    match qdisc.spec {
        QdiscSpec::Codel(_) => Some(codel::xstats(&values())),
        QdiscSpec::FqCodel(_) => Some(codel::xstats_fq(&values())),
        QdiscSpec::Fq(_) => Some(fq::xstats(&values())),
        _ => None,
    }
}

/// The statistics of a kind by their names; all 0 where there are none yet.
struct Values(Vec<(&'static str, u64)>);

impl Values {
    fn new(xstats: Option<&Xstats>) -> Values {
        Values(xstats.map_or_else(Vec::new, |xstats| xstats.iter().collect()))
    }

    fn u64(&self, name: &str) -> u64 {
        let found = self.0.iter().find(|(of, _)| *of == name);
        found.map_or(0, |&(_, value)| value)
    }

    /// Its last 32 bits: counters of the kernel come round.
    fn u32(&self, name: &str) -> u32 {
        self.u64(name) as u32
    }
}

/// The parameters that a request gives a class of a qdisc.
pub fn parse_class(qdisc: &QdiscSpec, options: Option<Attr<'_>>) -> Result<ClassSpec, Error> {
    match qdisc {
        QdiscSpec::Htb(_) => htb::parse_class(options),
        // The kind cannot add classes (`Qdisc_class_ops` without `change`).
        _ => Err(Error::new(Errno::EOPNOTSUPP)),
    }
}

/// What the kernel warns of when a leaf has been added or changed, though it succeeds.
pub fn class_warning(class: Handle, spec: &ClassSpec, qdisc: &QdiscSpec) -> Option<String> {
    let ClassSpec::Htb(spec) = spec;
    htb::warning(class, spec, qdisc)
}

/// Puts `TCA_OPTIONS` of a class that was added.
pub fn dump_class(class: &ShownClass<'_>, out: &mut Message<'_>) {
    let ClassSpec::Htb(spec) = class.spec;
    htb::dump_class(spec, class, out);
}

/// As [`xstats`], of a class that was added.
pub fn class_xstats(class: &ShownClass<'_>) -> Option<Vec<u8>> {
    htb::class_xstats(class)
}
