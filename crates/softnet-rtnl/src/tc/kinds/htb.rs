//! `htb` and its classes (`TCA_HTB_*`).

use softnet_tc::{ClassSpec, Handle, HtbClassSpec, HtbSpec, QdiscSpec, Xstat, Xstats};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::rate::{self, RateSpec};
use super::{ShownClass, ShownQdisc};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const PARMS: u16 = 1;
const INIT: u16 = 2;
const CTAB: u16 = 3;
const RTAB: u16 = 4;
const DIRECT_QLEN: u16 = 5;
const RATE64: u16 = 6;
const CEIL64: u16 = 7;
const OFFLOAD: u16 = 9;

/// Version in a request, and in a dump.
const VERSION: u32 = 3;
const SHOWN_VERSION: u32 = 0x3_0011;
/// The default quantum of a class is within these.
const QUANTUM: std::ops::RangeInclusive<u64> = 1000..=200_000;
/// The highest `prio`.
const MAX_PRIO: u32 = 7;

/// `struct tc_htb_glob`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Global {
    version: u32,
    rate2quantum: u32,
    defcls: u32,
    debug: u32,
    direct_pkts: u32,
}

/// `struct tc_htb_opt`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Parms {
    rate: RateSpec,
    ceil: RateSpec,
    buffer: u32,
    cbuffer: u32,
    quantum: u32,
    level: u32,
    prio: u32,
}

const POLICY: Policy = Policy::new(
    OFFLOAD,
    &[
        (PARMS, Rule::Min(size_of::<Parms>())),
        (INIT, Rule::Min(size_of::<Global>())),
        (CTAB, rate::TABLE),
        (RTAB, rate::TABLE),
        (DIRECT_QLEN, Rule::U32),
        (RATE64, Rule::U64),
        (CEIL64, Rule::U64),
        (OFFLOAD, Rule::Flag),
    ],
);

fn refuse(help: &str) -> Error {
    Error::from(Errno::EINVAL).help(help)
}

/// `htb_init`.
pub(super) fn parse(options: Option<Attr<'_>>) -> Result<QdiscSpec, Error> {
    let missing = || refuse("htb needs TCA_HTB_INIT");
    let attrs = options.ok_or_else(missing)?.nested(&POLICY)?;
    let init: Global = attrs.fixed(INIT)?.ok_or_else(missing)?;
    if init.version != VERSION {
        return Err(refuse("htb is of version 3"));
    }
    if let Some(offload) = attrs.get(OFFLOAD) {
        let error = Error::new(Errno::EOPNOTSUPP);
        let error = error.text("hw-tc-offload ethtool feature flag must be on");
        return Err(error.help("Remove \"offload\"").at(&offload));
    }
    Ok(QdiscSpec::Htb(HtbSpec {
        // The minor number; the major one is that of the qdisc.
        default: init.defcls as u16,
        r2q: init.rate2quantum.max(1),
        direct_qlen: attrs.u32(DIRECT_QLEN)?,
    }))
}

pub(super) fn dump(spec: &HtbSpec, qdisc: &ShownQdisc<'_>, out: &mut Message<'_>) {
    let value = |xstats: &Xstats| xstats.value(Xstat::DirectPackets);
    out.nest(TCA_OPTIONS, |out| {
        let init = Global {
            version: SHOWN_VERSION,
            rate2quantum: spec.r2q.max(1),
            defcls: spec.default.into(),
            debug: 0,
            // The last 32 bits: counters of the kernel come round.
            direct_pkts: qdisc.xstats.and_then(value).unwrap_or(0) as u32,
        };
        out.put(INIT, &init);
        let direct_qlen = spec.direct_qlen.unwrap_or(qdisc.context.link.tx_queue_len);
        out.put_u32(DIRECT_QLEN, direct_qlen);
    });
}

/// `htb_change_class`: a change, too, names all there is.
pub(super) fn parse_class(options: Option<Attr<'_>>) -> Result<ClassSpec, Error> {
    let missing = || refuse("a class of htb needs a rate");
    let attrs = options.ok_or_else(missing)?.nested(&POLICY)?;
    let parms: Parms = attrs.fixed(PARMS)?.ok_or_else(missing)?;
    if parms.rate.rate == 0 {
        return Err(refuse("rate must be at least 1 byte/s"));
    }
    if parms.ceil.rate == 0 {
        return Err(refuse("ceil must be at least 1 byte/s"));
    }
    let link = parms.rate.link(attrs.get(RTAB));
    if parms.ceil.link(attrs.get(CTAB)) != link {
        return Err(refuse(
            "overhead, mpu and linklayer must be the same for rate and ceil",
        ));
    }
    let rate = parms.rate.rate(attrs.u64(RATE64)?);
    let ceil = parms.ceil.rate(attrs.u64(CEIL64)?);
    Ok(ClassSpec::Htb(HtbClassSpec {
        rate,
        ceil,
        burst: rate::bucket_of_ticks(parms.buffer, rate),
        cburst: rate::bucket_of_ticks(parms.cbuffer, ceil),
        ticks: Some([parms.buffer, parms.cbuffer]),
        prio: parms.prio.min(MAX_PRIO),
        quantum: Some(parms.quantum).filter(|&quantum| quantum != 0),
        link,
    }))
}

/// The quantum of a class that was given none, before it is brought within bounds.
fn default_quantum(class: &HtbClassSpec, qdisc: &QdiscSpec) -> u64 {
    let r2q = match qdisc {
        QdiscSpec::Htb(spec) => spec.r2q.max(1),
        _ => 1,
    };
    class.rate / u64::from(r2q)
}

/// The kernel's warning.
pub(super) fn warning(name: Handle, class: &HtbClassSpec, qdisc: &QdiscSpec) -> Option<String> {
    let quantum = default_quantum(class, qdisc);
    if class.quantum.is_some() || QUANTUM.contains(&quantum) {
        return None;
    }
    let what = if quantum < *QUANTUM.start() {
        "small"
    } else {
        "big"
    };
    Some(format!(
        "sch_htb: quantum of class {:X} is {what}. Consider r2q change.",
        name.raw()
    ))
}

pub(super) fn dump_class(spec: &HtbClassSpec, class: &ShownClass<'_>, out: &mut Message<'_>) {
    let quantum = || default_quantum(spec, class.qdisc).clamp(*QUANTUM.start(), *QUANTUM.end());
    let large = |rate: u64| rate > u32::MAX.into();
    let [buffer, cbuffer] = spec.ticks.unwrap_or_else(|| {
        let ticks = |(burst, rate)| rate::ticks_of_bucket(burst, rate);
        [(spec.burst, spec.rate), (spec.cburst, spec.ceil)].map(ticks)
    });
    out.nest(TCA_OPTIONS, |out| {
        let parms = Parms {
            rate: RateSpec::new(spec.rate, &spec.link),
            ceil: RateSpec::new(spec.ceil, &spec.link),
            buffer,
            cbuffer,
            quantum: spec.quantum.unwrap_or_else(|| quantum() as u32),
            level: class.level,
            prio: spec.prio.min(MAX_PRIO),
        };
        out.put(PARMS, &parms);
        if large(spec.rate) {
            out.put_u64(RATE64, spec.rate);
        }
        if large(spec.ceil) {
            out.put_u64(CEIL64, spec.ceil);
        }
    });
}

/// `struct tc_htb_xstats`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
struct Stats {
    lends: u32,
    borrows: u32,
    giants: u32,
    tokens: i32,
    ctokens: i32,
}

pub(super) fn class_xstats(class: &ShownClass<'_>) -> Option<Vec<u8>> {
    let stats = class.stats.htb?;
    let stats = Stats {
        // Counters of 32 bits come round.
        lends: stats.lended as u32,
        borrows: stats.borrowed as u32,
        giants: 0,
        tokens: stats.tokens,
        ctokens: stats.ctokens,
    };
    Some(stats.as_bytes().to_vec())
}
