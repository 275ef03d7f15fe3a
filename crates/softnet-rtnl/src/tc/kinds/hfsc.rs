//! `hfsc` and its classes (`TCA_HFSC_*`).

use softnet_tc::{ClassSpec, HfscClassSpec, HfscSpec, OwnStats, QdiscSpec, ServiceCurve};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::ShownClass;
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const RSC: u16 = 1;
const FSC: u16 = 2;
const USC: u16 = 3;

/// `struct tc_service_curve`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Curve {
    m1: u32,
    d: u32,
    m2: u32,
}

const CURVE: Rule = Rule::Min(size_of::<Curve>());
const POLICY: Policy = Policy::new(USC, &[(RSC, CURVE), (FSC, CURVE), (USC, CURVE)]);

/// `hfsc_init_qdisc`, `hfsc_change_qdisc`: the payload is `struct tc_hfsc_qopt`.
pub(super) fn parse(options: Option<Attr<'_>>) -> Result<QdiscSpec, Error> {
    let refuse = || Error::from(Errno::EINVAL).help("hfsc needs its options");
    let options = options.ok_or_else(refuse)?;
    if options.data.len() < size_of::<u16>() {
        return Err(refuse().at(&options));
    }
    let default = options.u16()?;
    Ok(QdiscSpec::Hfsc(HfscSpec { default }))
}

/// Puts `TCA_OPTIONS`.
pub(super) fn dump(spec: &HfscSpec, out: &mut Message<'_>) {
    out.put_u16(TCA_OPTIONS, spec.default);
}

/// A curve; one of nothing counts as none.
fn curve(attrs: &Attrs<'_>, kind: u16) -> Result<Option<ServiceCurve>, Error> {
    let curve = attrs.fixed::<Curve>(kind)?;
    let curve = curve.map(|Curve { m1, d, m2 }| ServiceCurve { m1, d, m2 });
    Ok(curve.filter(|curve| !curve.is_nothing()))
}

/// `hfsc_change_class`: a change keeps the curves that it does not name.
pub(super) fn parse_class(
    options: Option<Attr<'_>>,
    before: Option<&HfscClassSpec>,
) -> Result<ClassSpec, Error> {
    let options = options.ok_or(Errno::EINVAL)?;
    let attrs = options.nested(&POLICY)?;
    let before = before.cloned().unwrap_or_default();
    let spec = HfscClassSpec {
        rt: curve(&attrs, RSC)?.or(before.rt),
        ls: curve(&attrs, FSC)?.or(before.ls),
        ul: curve(&attrs, USC)?.or(before.ul),
    };
    if spec.rt.is_none() && spec.ls.is_none() {
        return Err(Error::from(Errno::EINVAL).help("Give rt or ls, or sc for both"));
    }
    Ok(ClassSpec::Hfsc(spec))
}

/// The kernel's warning when a class gets its first class below it.
pub(super) fn warning_above(above: &HfscClassSpec) -> Option<String> {
    let upgrades = above.rt.is_some() && above.ls.is_none();
    upgrades.then(|| "Forced curve change on parent 'rt' to 'sc'".to_owned())
}

pub(super) fn dump_class(spec: &HfscClassSpec, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| {
        for (kind, curve) in [(RSC, spec.rt), (FSC, spec.ls), (USC, spec.ul)] {
            if let Some(ServiceCurve { m1, d, m2 }) = curve {
                out.put(kind, &Curve { m1, d, m2 });
            }
        }
    });
}

/// `struct tc_hfsc_stats`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
struct Stats {
    work: u64,
    rtwork: u64,
    period: u32,
    level: u32,
}

pub(super) fn class_xstats(class: &ShownClass<'_>) -> Vec<u8> {
    let stats = match class.stats.own {
        Some(OwnStats::Hfsc {
            work,
            rtwork,
            period,
            level,
        }) => Stats {
            work,
            rtwork,
            // Counters of 32 bits come round.
            period: period as u32,
            level: level as u32,
        },
        _ => Stats::default(),
    };
    stats.as_bytes().to_vec()
}
