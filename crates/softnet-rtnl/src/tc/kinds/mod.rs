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
mod regular;
mod tbf;
#[cfg(all(test, not(miri)))]
mod tests;
mod xstats;
#[cfg(all(test, not(miri)))]
mod xstats_tests;

use softnet::qdisc::{PRIO_TO_BAND, QdiscStats};
use softnet_tc::{
    ClassSpec, ClassStats, Handle, LinkDefaults, QDISC_KINDS, QdiscKind, QdiscSpec, Xstats,
};

use crate::nl::{Attr, Errno, Error, Message};

/// Context that the options of a qdisc depend on.
#[derive(Clone, Copy, Debug)]
pub struct QdiscContext {
    /// The link's settings.
    pub link: LinkDefaults,
    /// Transmit queues of the link.
    pub queues: usize,
    /// Where the qdisc is attached.
    pub parent: Handle,
}

/// A qdisc that is shown.
#[derive(Clone, Copy, Debug)]
pub struct ShownQdisc<'a> {
    /// Parameters of the qdisc. Never [`QdiscSpec::Default`] or [`QdiscSpec::Tree`].
    pub spec: &'a QdiscSpec,
    /// Statistics that all kinds have.
    pub stats: &'a QdiscStats,
    /// Statistics of its kind alone.
    pub xstats: Option<&'a Xstats>,
    /// Link and parent of the qdisc.
    pub context: QdiscContext,
}

/// A class that is shown.
#[derive(Clone, Copy, Debug)]
pub struct ShownClass<'a> {
    /// Parameters of the class.
    pub spec: &'a ClassSpec,
    /// The parameters of its qdisc.
    pub qdisc: &'a QdiscSpec,
    /// Statistics of the class, also those of its kind.
    pub stats: &'a ClassStats,
    /// `level` of `htb`: 0 for a leaf, and for others 7 less the classes above it.
    pub level: u32,
}

/// For a kind that there is not.
pub fn unknown() -> Error {
    let kinds: Vec<&str> = QDISC_KINDS.iter().map(|kind| kind.name).collect();
    let help = format!("This version has {}", kinds.join(", "));
    Error::new(Errno::ENOENT)
        .text("Specified qdisc kind is unknown")
        .help(help)
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
    let kind = QdiscKind::find(kind).ok_or_else(unknown)?;
    if let Some(before) = before {
        // `qdisc_change`.
        if options.is_none() {
            return Ok(before.clone());
        }
        if !kind.can_change {
            let text = "Change operation not supported by specified qdisc";
            return Err(Error::invalid(text).help("Delete it and add it again"));
        }
    }
    let is_new = before.is_none();
    let mut spec = before
        .cloned()
        .unwrap_or_else(|| (kind.default)(&context.link));
    match (&spec, options) {
        (QdiscSpec::Mqprio(_), options) => return mqprio::parse(options, context.queues),
        (QdiscSpec::Tbf(_), options) => return tbf::parse(options),
        (QdiscSpec::Prio(_), options) => return prio::parse(options),
        (QdiscSpec::Htb(_), options) => return htb::parse(options),
        (_, None) => {}
        (QdiscSpec::Codel(_), Some(options)) => codel::parse(&mut spec, options)?,
        (QdiscSpec::FqCodel(_), Some(options)) => codel::parse_fq(&mut spec, options, is_new)?,
        (QdiscSpec::Fq(_), Some(options)) => fq::parse(&mut spec, options)?,
        (_, Some(options)) => fifo::parse(&mut spec, options)?,
    }
    Ok(spec)
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
        spec @ (QdiscSpec::Codel(_) | QdiscSpec::FqCodel(_)) => {
            codel::dump(spec, &qdisc.context, out);
        }
        spec @ QdiscSpec::Fq(_) => fq::dump(spec, &qdisc.context, out),
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
    Some(xstats::bytes(layout(qdisc.spec)?, qdisc.xstats))
}

/// The kernel's structure of a kind's statistics, if it has one.
fn layout(spec: &QdiscSpec) -> Option<&'static [xstats::Slot]> {
    match spec {
        QdiscSpec::Codel(_) => Some(codel::XSTATS),
        QdiscSpec::FqCodel(_) => Some(codel::XSTATS_FQ),
        QdiscSpec::Fq(_) => Some(fq::XSTATS),
        _ => None,
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

/// The kernel's warning when a leaf has been added or changed, though it succeeds.
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
