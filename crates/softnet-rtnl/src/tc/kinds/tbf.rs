//! `tbf` (`TCA_TBF_*`).

use softnet_tc::{QdiscSpec, TbfSpec};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::rate::{self, RateSpec};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;

const PARMS: u16 = 1;
const RTAB: u16 = 2;
const PTAB: u16 = 3;
const RATE64: u16 = 4;
const PRATE64: u16 = 5;
const BURST: u16 = 6;
const PBURST: u16 = 7;

/// `struct tc_tbf_qopt`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Parms {
    rate: RateSpec,
    peakrate: RateSpec,
    limit: u32,
    buffer: u32,
    mtu: u32,
}

const POLICY: Policy = Policy::new(
    8,
    &[
        (PARMS, Rule::Min(size_of::<Parms>())),
        (RTAB, rate::TABLE),
        (PTAB, rate::TABLE),
        (RATE64, Rule::U64),
        (PRATE64, Rule::U64),
        (BURST, Rule::U32),
        (PBURST, Rule::U32),
    ],
);

/// `tbf_change`: a change, too, names all there is.
pub(super) fn parse(options: Option<Attr<'_>>) -> Result<QdiscSpec, Error> {
    let refuse = |help: &str| Error::from(Errno::EINVAL).help(help);
    let options = options.ok_or_else(|| refuse("tbf needs a rate, a burst and a limit"))?;
    let attrs = options.nested(&POLICY)?;
    let Some(parms) = attrs.fixed::<Parms>(PARMS)? else {
        return Err(refuse("tbf needs a rate, a burst and a limit").at(&options));
    };
    let link = parms.rate.link(attrs.get(RTAB));
    let rate = parms.rate.rate(attrs.u64(RATE64)?);
    // A size, or of a tc from before 2013 the time in which it comes.
    let size = |bytes: Option<u32>, ticks, rate| {
        let nanos = rate::nanos(ticks).min(u32::MAX.into());
        bytes.unwrap_or_else(|| rate::packet_of_time(nanos, rate, &link))
    };
    let burst = size(attrs.u32(BURST)?, parms.buffer, rate);
    if burst == 0 {
        return Err(refuse("burst must be at least 1 byte"));
    }
    let (mut peakrate, mut mtu) = (None, 0);
    if parms.peakrate.rate != 0 {
        let peak = parms.peakrate.rate(attrs.u64(PRATE64)?);
        if peak <= rate {
            return Err(refuse("peakrate must be higher than rate"));
        }
        if parms.peakrate.link(attrs.get(PTAB)) != link {
            return Err(refuse(
                "overhead, mpu and linklayer must be the same for rate and peakrate",
            ));
        }
        mtu = size(attrs.u32(PBURST)?, parms.mtu, peak);
        if mtu == 0 {
            return Err(refuse("mtu must be at least 1 byte with a peakrate"));
        }
        peakrate = Some(peak);
    }
    Ok(QdiscSpec::Tbf(TbfSpec {
        rate,
        burst: burst.into(),
        limit: parms.limit.into(),
        peakrate,
        mtu,
        link,
    }))
}

pub(super) fn dump(spec: &TbfSpec, out: &mut Message<'_>) {
    let link = &spec.link;
    let ticks = |len, rate| rate::ticks(rate::time_of_packet(len, rate, link));
    let large = |rate: &u64| *rate > u32::MAX.into();
    out.nest(TCA_OPTIONS, |out| {
        let parms = Parms {
            rate: RateSpec::new(spec.rate, link),
            peakrate: spec
                .peakrate
                .map_or_else(RateSpec::default, |peak| RateSpec::new(peak, link)),
            limit: spec.limit.try_into().unwrap_or(u32::MAX),
            buffer: ticks(spec.burst, spec.rate),
            mtu: spec.peakrate.map_or(0, |peak| ticks(spec.mtu.into(), peak)),
        };
        out.put(PARMS, &parms);
        if let Some(rate) = Some(spec.rate).filter(large) {
            out.put_u64(RATE64, rate);
        }
        if let Some(peak) = spec.peakrate.filter(large) {
            out.put_u64(PRATE64, peak);
        }
    });
}
