//! The options of each kind of qdisc and of class: how the attributes that `tc` sends become
//! parameters, and how parameters and statistics are shown.
//!
//! `TCA_OPTIONS` has a form of its own for each kind. [`parse`] and [`dump`] find the kind; a new
//! one is a module and a line in each of them.

#[cfg(all(test, not(miri)))]
mod aqm_tests;
mod cake;
#[cfg(all(test, not(miri)))]
mod cake_tests;
mod codel;
mod drr;
mod dualpi2;
mod ets;
mod fifo;
mod fq;
mod hfsc;
mod htb;
mod mqprio;
mod multiq;
mod netem;
mod pie;
mod prio;
#[cfg(all(test, not(miri)))]
mod property_tests;
mod qfq;
pub(super) mod rate;
mod red;
mod regular;
mod sfq;
mod tbf;
#[cfg(all(test, not(miri)))]
mod tests;
mod xstats;
#[cfg(all(test, not(miri)))]
mod xstats_tests;

use softnet::qdisc::{PRIO_TO_BAND, QdiscStats};
use softnet_tc::{
    ClassSpec, ClassStats, FlowStats, Handle, LinkDefaults, QDISC_KINDS, QdiscKind, QdiscSpec,
    Xstats,
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
pub fn unknown(name: &str) -> Error {
    let kinds: Vec<&str> = QDISC_KINDS.iter().map(|kind| kind.name).collect();
    let kinds = kinds.join(", ");
    let help = match name {
        "" => format!("This version has {kinds}"),
        _ => format!("Softnet has no qdisc {name:?} (yet); it has {kinds}"),
    };
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
    let kind = QdiscKind::find(kind).ok_or_else(|| unknown(kind))?;
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
        (QdiscSpec::Hfsc(_), options) => return hfsc::parse(options),
        (QdiscSpec::Ets(_), options) => return ets::parse(options, &context.link, is_new),
        // They have none, and read none.
        (QdiscSpec::Drr | QdiscSpec::Qfq | QdiscSpec::Blackhole, _) => {}
        (QdiscSpec::Multiq { .. }, options) => {
            return multiq::parse(options, context.link.queues);
        }
        (QdiscSpec::Red(_), options) => return red::parse(options, before),
        (QdiscSpec::Netem(_), options) => return netem::parse(options, before),
        (_, None) => {}
        (QdiscSpec::Codel(_), Some(options)) => codel::parse(&mut spec, options)?,
        (QdiscSpec::FqCodel(_), Some(options)) => codel::parse_fq(&mut spec, options, is_new)?,
        (QdiscSpec::Fq(_), Some(options)) => fq::parse(&mut spec, options)?,
        (QdiscSpec::Sfq(_), Some(options)) => sfq::parse(&mut spec, options)?,
        (QdiscSpec::Pie(_), Some(options)) => pie::parse(&mut spec, options)?,
        (QdiscSpec::FqPie(_), Some(options)) => pie::parse_fq(&mut spec, options, is_new)?,
        (QdiscSpec::DualPi2(_), Some(options)) => dualpi2::parse(&mut spec, options, is_new)?,
        (QdiscSpec::Cake(_) | QdiscSpec::CakeMq(_), Some(options)) => {
            cake::parse(&mut spec, options)?;
        }
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
        QdiscSpec::Sfq(spec) => sfq::dump(spec, qdisc.xstats, &qdisc.context, out),
        QdiscSpec::Red(spec) => red::dump(spec, qdisc.xstats, out),
        spec @ (QdiscSpec::Pie(_) | QdiscSpec::FqPie(_)) => pie::dump(spec, &qdisc.context, out),
        QdiscSpec::DualPi2(spec) => dualpi2::dump(spec, &qdisc.context, out),
        QdiscSpec::Htb(spec) => htb::dump(spec, qdisc, out),
        QdiscSpec::Ets(spec) => ets::dump(spec, out),
        QdiscSpec::Hfsc(spec) => hfsc::dump(spec, out),
        QdiscSpec::Multiq { bands } => multiq::dump(*bands, qdisc.context.link.queues, out),
        QdiscSpec::Cake(spec) | QdiscSpec::CakeMq(spec) => cake::dump(spec, out),
        QdiscSpec::Netem(spec) => netem::dump(spec, out),
        QdiscSpec::Default
        | QdiscSpec::Drr
        | QdiscSpec::Qfq
        | QdiscSpec::Tree(_)
        | QdiscSpec::Mq
        | QdiscSpec::Noqueue
        | QdiscSpec::Blackhole
        | QdiscSpec::Custom(_) => {}
    }
}

/// The statistics that a qdisc has because of its kind: the payload of `TCA_STATS_APP`, and of
/// `TCA_XSTATS` if it is a structure.
pub fn xstats(qdisc: &ShownQdisc<'_>) -> Option<App> {
    if let QdiscSpec::Cake(spec) = qdisc.spec {
        return Some(App::Attributes(cake::stats(spec, qdisc.xstats)));
    }
    let bytes = xstats::bytes(layout(qdisc.spec)?, qdisc.xstats);
    Some(App::Structure(bytes))
}

/// The statistics of a flow of `fq_codel`, which is shown as a class.
pub fn flow_xstats(flow: &FlowStats) -> App {
    App::Structure(codel::flow_xstats(flow))
}

/// Statistics that only one kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum App {
    /// A structure of the kernel's.
    Structure(Vec<u8>),
    /// Attributes.
    Attributes(Vec<u8>),
}

impl App {
    /// The payload.
    pub fn bytes(&self) -> &[u8] {
        let (App::Structure(bytes) | App::Attributes(bytes)) = self;
        bytes
    }
}

/// The kernel's structure of a kind's statistics, if it has one.
fn layout(spec: &QdiscSpec) -> Option<&'static [xstats::Slot]> {
    match spec {
        QdiscSpec::Codel(_) => Some(codel::XSTATS),
        QdiscSpec::FqCodel(_) => Some(codel::XSTATS_FQ),
        QdiscSpec::Fq(_) => Some(fq::XSTATS),
        QdiscSpec::Red(_) => Some(red::XSTATS),
        QdiscSpec::Pie(_) => Some(pie::XSTATS),
        QdiscSpec::FqPie(_) => Some(pie::XSTATS_FQ),
        QdiscSpec::DualPi2(_) => Some(dualpi2::XSTATS),
        QdiscSpec::Netem(_) => Some(netem::XSTATS),
        _ => None,
    }
}

/// The parameters that a request gives a class of a qdisc. `before` are those of the class that is
/// changed, which are kept where the kernel keeps what is not named; `None` for a new one.
pub fn parse_class(
    qdisc: &QdiscSpec,
    options: Option<Attr<'_>>,
    link: &LinkDefaults,
    before: Option<&ClassSpec>,
) -> Result<ClassSpec, Error> {
    match (qdisc, before) {
        (QdiscSpec::Htb(_), _) => htb::parse_class(options),
        (QdiscSpec::Drr, Some(ClassSpec::Drr(before))) => {
            drr::parse_class(options, link, Some(before))
        }
        (QdiscSpec::Drr, _) => drr::parse_class(options, link, None),
        (QdiscSpec::Qfq, _) => qfq::parse_class(options, link),
        (QdiscSpec::Hfsc(_), Some(ClassSpec::Hfsc(before))) => {
            hfsc::parse_class(options, Some(before))
        }
        (QdiscSpec::Hfsc(_), _) => hfsc::parse_class(options, None),
        // The kind cannot add classes (`Qdisc_class_ops` without `change`).
        _ => Err(Error::new(Errno::EOPNOTSUPP)),
    }
}

/// The parameters of a qdisc when a request has changed one of the classes that it comes with;
/// `None` if it has none that can be changed.
pub fn parse_own_class(
    qdisc: &QdiscSpec,
    class: Handle,
    is_there: bool,
    options: Option<Attr<'_>>,
) -> Result<Option<QdiscSpec>, Error> {
    match qdisc {
        QdiscSpec::Ets(spec) => ets::parse_band(spec, class, is_there, options).map(Some),
        _ => Ok(None),
    }
}

/// Warning about parameters of a qdisc that have no effect, in a tree of so many instances.
pub fn qdisc_warning(spec: &QdiscSpec, instances: usize) -> Option<String> {
    match spec {
        QdiscSpec::Cake(spec) | QdiscSpec::CakeMq(spec) => cake::warning(spec, instances),
        _ => None,
    }
}

/// The kernel's warning when a leaf has been added or changed, though it succeeds.
pub fn class_warning(class: Handle, spec: &ClassSpec, qdisc: &QdiscSpec) -> Option<String> {
    match spec {
        ClassSpec::Htb(spec) => htb::warning(class, spec, qdisc),
        _ => None,
    }
}

/// The kernel's warning when a class gets its first class below it.
pub fn warning_above(above: &ClassSpec) -> Option<String> {
    match above {
        ClassSpec::Hfsc(above) => hfsc::warning_above(above),
        _ => None,
    }
}

/// Puts `TCA_OPTIONS` of a class that was added.
pub fn dump_class(class: &ShownClass<'_>, out: &mut Message<'_>) {
    match class.spec {
        ClassSpec::Htb(spec) => htb::dump_class(spec, class, out),
        ClassSpec::Drr(spec) => drr::dump_class(spec, out),
        ClassSpec::Qfq(spec) => qfq::dump_class(spec, class, out),
        ClassSpec::Hfsc(spec) => hfsc::dump_class(spec, out),
    }
}

/// Puts `TCA_OPTIONS` of a class that its qdisc came with, for kinds that have some.
pub fn dump_own_class(qdisc: &QdiscSpec, class: Handle, out: &mut Message<'_>) {
    if let QdiscSpec::Ets(spec) = qdisc {
        ets::dump_band(spec, class, out);
    }
}

/// As [`xstats`], of a class that was added.
pub fn class_xstats(class: &ShownClass<'_>) -> Option<App> {
    let structure = match class.spec {
        ClassSpec::Htb(_) => htb::class_xstats(class),
        ClassSpec::Drr(_) => Some(drr::class_xstats(class)),
        ClassSpec::Qfq(spec) => Some(qfq::class_xstats(spec, class)),
        ClassSpec::Hfsc(_) => Some(hfsc::class_xstats(class)),
    };
    structure.map(App::Structure)
}
