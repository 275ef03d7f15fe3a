//! Classes of `qfq` (`TCA_QFQ_*`). The qdisc has no options, and reads none.

use softnet_tc::{ClassSpec, LinkDefaults, OwnStats, QfqClassSpec};
use zerocopy::{Immutable, IntoBytes};

use super::ShownClass;
use crate::nl::{Attr, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const WEIGHT: u16 = 1;
const LMAX: u16 = 2;
/// Bounds of the longest packet (`QFQ_MIN_LMAX`, `QFQ_MAX_LMAX`).
const PACKETS: (u32, u32) = (512, 1 << 16);

const POLICY: Policy = Policy::new(
    LMAX,
    &[
        (WEIGHT, Rule::U32Range(1, 1024)),
        (LMAX, Rule::U32Range(PACKETS.0, PACKETS.1)),
    ],
);

/// `qfq_change_class`: a change, too, names all there is.
pub(super) fn parse_class(
    options: Option<Attr<'_>>,
    link: &LinkDefaults,
) -> Result<ClassSpec, Error> {
    let options = options.ok_or_else(|| Error::invalid("missing options"))?;
    let attrs = options.nested(&POLICY)?;
    let weight = attrs.u32(WEIGHT)?.unwrap_or(1);
    let maxpkt = attrs.u32(LMAX)?.unwrap_or_else(|| link.frame());
    if !(PACKETS.0..=PACKETS.1).contains(&maxpkt) {
        return Err(Error::invalid("MTU size out of bounds for qfq"));
    }
    Ok(ClassSpec::Qfq(QfqClassSpec { weight, maxpkt }))
}

/// The longest packet so far, or what was given if that is longer.
fn maxpkt(spec: &QfqClassSpec, class: &ShownClass<'_>) -> u32 {
    match class.stats.own {
        Some(OwnStats::Qfq { maxpkt }) => {
            spec.maxpkt.max(u32::try_from(maxpkt).unwrap_or(u32::MAX))
        }
        _ => spec.maxpkt,
    }
}

pub(super) fn dump_class(spec: &QfqClassSpec, class: &ShownClass<'_>, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| {
        out.put_u32(WEIGHT, spec.weight);
        out.put_u32(LMAX, maxpkt(spec, class));
    });
}

/// `struct tc_qfq_stats`.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct Stats {
    weight: u32,
    lmax: u32,
}

pub(super) fn class_xstats(spec: &QfqClassSpec, class: &ShownClass<'_>) -> Vec<u8> {
    let stats = Stats {
        weight: spec.weight,
        lmax: maxpkt(spec, class),
    };
    stats.as_bytes().to_vec()
}
