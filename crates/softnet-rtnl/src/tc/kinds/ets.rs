//! `ets` (`TCA_ETS_*`), and the quantum of one of its bands.

use softnet_tc::{EtsSpec, Handle, LinkDefaults, QdiscSpec};

use crate::nl::{Attr, Errno, Error, Message, NLA_F_NESTED, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const BANDS: u16 = 1;
const STRICT: u16 = 2;
const QUANTA: u16 = 3;
const QUANTUM: u16 = 4;
const PRIOMAP: u16 = 5;
const BAND: u16 = 6;

const fn policy(rules: &'static [(u16, Rule)]) -> Policy {
    Policy {
        max: BAND,
        strict_from: 1,
        rules,
    }
}

const OPTIONS: Policy = policy(&[
    (BANDS, Rule::U8),
    (STRICT, Rule::U8),
    (QUANTA, Rule::NestedAny),
    (PRIOMAP, Rule::NestedAny),
]);
const QUANTUM_ALONE: Policy = policy(&[(QUANTUM, Rule::U32)]);
const BAND_ALONE: Policy = policy(&[(BAND, Rule::U8)]);

/// `ets_qdisc_init`, `ets_qdisc_change`: a change, too, names all there is.
pub(super) fn parse(
    options: Option<Attr<'_>>,
    link: &LinkDefaults,
    is_new: bool,
) -> Result<QdiscSpec, Error> {
    let required = "ETS options are required for this operation";
    let options = match options {
        Some(options) => options,
        None if is_new => return Err(Errno::EINVAL.into()),
        None => return Err(Error::invalid(required)),
    };
    let attrs = options.nested_strict(&OPTIONS)?;
    let missing = || Error::invalid("sch_ets: Number of bands is a required argument");
    let bands = u16::from(attrs.u8(BANDS)?.ok_or_else(missing)?);
    let mut spec = EtsSpec {
        bands,
        ..EtsSpec::new(link)
    };
    let most = spec.priomap.len() as u16;
    if !(1..=most).contains(&bands) {
        return Err(Error::invalid("sch_ets: Invalid number of bands"));
    }
    spec.priomap = [bands as u8 - 1; 16];
    spec.strict = attrs.u8(STRICT)?.unwrap_or(0).into();
    if spec.strict > bands {
        return Err(Error::invalid("sch_ets: Invalid number of strict bands"));
    }
    if let Some(map) = attrs.get(PRIOMAP) {
        map.validate(&BAND_ALONE)?;
        for (index, attr) in map.children().enumerate() {
            let Some(place) = spec.priomap.get_mut(index) else {
                return Err(Error::invalid(
                    "sch_ets: Too many priorities in ETS priomap",
                ));
            };
            *place = attr.u8()?;
            if u16::from(*place) >= bands {
                return Err(Error::invalid(
                    "sch_ets: Invalid band number in ETS priomap",
                ));
            }
        }
    }
    let mut quanta = Vec::new();
    if let Some(list) = attrs.get(QUANTA) {
        list.validate(&QUANTUM_ALONE)?;
        for attr in list.children() {
            if quanta.len() >= usize::from(bands - spec.strict) {
                let text = "sch_ets: ETS quanta has more values than bands";
                return Err(Error::invalid(text));
            }
            // Brought within bounds, 0 as well.
            quanta.push(attr.u32()?);
        }
    }
    Ok(QdiscSpec::Ets(spec.with_quanta(&quanta, link)))
}

/// `ets_class_change`: the parameters of the qdisc with another quantum of a band.
pub(super) fn parse_band(
    spec: &EtsSpec,
    class: Handle,
    is_there: bool,
    options: Option<Attr<'_>>,
) -> Result<QdiscSpec, Error> {
    if !is_there {
        let text = "Fine-grained class addition and removal is not supported";
        return Err(Error::new(Errno::EOPNOTSUPP).text(text));
    }
    let required = "ETS options are required for this operation";
    let options = options.ok_or_else(|| Error::invalid(required))?;
    let mut spec = spec.clone();
    let band = class.minor().wrapping_sub(1);
    if let Some(attr) = options.nested_strict(&QUANTUM_ALONE)?.get(QUANTUM) {
        if band < spec.strict {
            let text = "Strict bands do not have a configurable quantum";
            return Err(Error::invalid(text));
        }
        let given = EtsSpec::quantum(attr.u32()?);
        if let Some(place) = spec.quanta.get_mut(usize::from(band)) {
            *place = given;
        }
    }
    Ok(QdiscSpec::Ets(spec))
}

pub(super) fn dump(spec: &EtsSpec, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| {
        out.put_u8(BANDS, spec.bands as u8);
        if spec.strict > 0 {
            out.put_u8(STRICT, spec.strict as u8);
        }
        if !spec.shared().is_empty() {
            out.nest(QUANTA | NLA_F_NESTED, |out| {
                for &quantum in spec.shared() {
                    out.put_u32(QUANTUM, quantum);
                }
            });
        }
        out.nest(PRIOMAP | NLA_F_NESTED, |out| {
            for &band in &spec.priomap {
                out.put_u8(BAND, band);
            }
        });
    });
}

/// Puts `TCA_OPTIONS` of a band.
pub(super) fn dump_band(spec: &EtsSpec, class: Handle, out: &mut Message<'_>) {
    let band = usize::from(class.minor().wrapping_sub(1));
    out.nest(TCA_OPTIONS, |out| {
        if let Some(&quantum) = spec.quanta.get(band)
            && band >= usize::from(spec.strict)
        {
            out.put_u32(QUANTUM, quantum);
        }
    });
}
