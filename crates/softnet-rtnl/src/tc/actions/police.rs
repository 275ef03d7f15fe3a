//! `police` (`TCA_POLICE_*`).
//!
//! Source: `net/sched/act_police.c`.

use softnet_tc::{ActionKind, Police};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Generic, Parsed, Read, control, fallback};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};
use crate::tc::kinds::rate::{self, RateSpec};

const TBF: u16 = 1;
const RATE: u16 = 2;
const PEAKRATE: u16 = 3;
const AVRATE: u16 = 4;
const RESULT: u16 = 5;
const TM: u16 = 6;
const RATE64: u16 = 8;
const PEAKRATE64: u16 = 9;
const PKTRATE64: u16 = 10;
const PKTBURST64: u16 = 11;

/// `TC_RTAB_SIZE`
const TABLE: usize = 1024;

const POLICY: Policy = Policy::new(
    11,
    &[
        (RATE, Rule::Min(TABLE)),
        (PEAKRATE, Rule::Min(TABLE)),
        (AVRATE, Rule::U32),
        (RESULT, Rule::U32),
        (RATE64, Rule::U64),
        (PEAKRATE64, Rule::U64),
        (PKTRATE64, Rule::U64),
        (PKTBURST64, Rule::U64),
    ],
);

/// `struct tc_police`
#[derive(Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Parms {
    index: u32,
    action: i32,
    limit: u32,
    burst: u32,
    mtu: u32,
    rate: RateSpec,
    peakrate: RateSpec,
    refcnt: i32,
    bindcnt: i32,
    capab: u32,
}

/// `struct tc_police_compat`: without what is behind the rates.
const COMPAT: usize = size_of::<Parms>() - 12;

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let attrs = options.ok_or(Errno::EINVAL)?.nested(&POLICY)?;
    let tbf = attrs.get(TBF).ok_or(Errno::EINVAL)?;
    let mut bytes = [0; size_of::<Parms>()];
    match tbf.data.len() {
        len if len == bytes.len() || len == COMPAT => bytes[..len].copy_from_slice(tbf.data),
        _ => return Err(Error::from(Errno::EINVAL).at(&tbf)),
    }
    let parms = Parms::read_from_bytes(&bytes).map_err(|_| Errno::EINVAL)?;
    let index = parms.index;
    let police = || {
        let table = |kind: u16, spec: &RateSpec| -> Result<(), Error> {
            let table = attrs.get(kind).filter(|table| table.data.len() == TABLE);
            match table.is_some() && (1..32).contains(&spec.cell_log) {
                true => Ok(()),
                false => {
                    let text = "Invalid rate table parameters for searching";
                    Err(Error::new(Errno::ENOMEM).text(text))
                }
            }
        };
        let mut police = Police {
            mtu: parms.mtu,
            ..Police::default()
        };
        if parms.rate.rate != 0 {
            table(RATE, &parms.rate)?;
            police.rate = parms.rate.rate(attrs.u64(RATE64)?);
            police.link = parms.rate.link(attrs.get(RATE));
            if parms.mtu == 0 {
                police.mtu = 255 << parms.rate.cell_log;
            }
            police.burst = rate::bucket_of_ticks(parms.burst, police.rate);
            if parms.peakrate.rate != 0 {
                table(PEAKRATE, &parms.peakrate)?;
                police.peakrate = parms.peakrate.rate(attrs.u64(PEAKRATE64)?);
            }
        }
        let packets = (attrs.u64(PKTRATE64)?, attrs.u64(PKTBURST64)?);
        match packets {
            (Some(_), None) | (None, Some(_)) => {
                let text = "Both or neither packet-per-second burst and rate must be provided";
                return Err(Error::invalid(text));
            }
            (Some(pkts_rate), Some(ticks)) if pkts_rate != 0 => {
                if police.rate != 0 {
                    let text = "packet-per-second and byte-per-second rate limits not allowed in \
                                same action";
                    return Err(Error::invalid(text));
                }
                police.pkts_rate = pkts_rate;
                let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
                police.pkts_burst = rate::bucket_of_ticks(ticks, pkts_rate);
            }
            _ => {}
        }
        police.avrate = attrs.u32(AVRATE)?.unwrap_or(0);
        if let Some(result) = attrs.u32(RESULT)? {
            police.conform = fallback(result.cast_signed())?;
        }
        Ok((ActionKind::Police(police), control(parms.action, read)?))
    };
    Ok(Parsed::new(index, police))
}

/// `tcf_police_dump`
pub(super) fn dump(police: &Police, parms: &Generic, out: &mut Message<'_>) -> u16 {
    let spec = |rate: u64| match rate {
        0 => RateSpec::default(),
        rate => RateSpec::new(rate, &police.link),
    };
    let tbf = Parms {
        index: parms.index,
        action: parms.action,
        burst: match police.rate {
            0 => 0,
            rate => rate::ticks_of_bucket(police.burst, rate),
        },
        mtu: if police.mtu == 0 {
            u32::MAX
        } else {
            police.mtu
        },
        rate: spec(police.rate),
        peakrate: spec(police.peakrate),
        refcnt: parms.refcnt,
        bindcnt: parms.bindcnt,
        ..Parms::default()
    };
    let large = |rate: u64| rate > u32::MAX.into();
    // The kernel's order.
    if large(police.rate) {
        out.put_u64(RATE64, police.rate);
    }
    if large(police.peakrate) {
        out.put_u64(PEAKRATE64, police.peakrate);
    }
    if police.pkts_rate != 0 {
        let ticks = rate::ticks_of_bucket(police.pkts_burst, police.pkts_rate);
        out.put_u64(PKTRATE64, police.pkts_rate);
        out.put_u64(PKTBURST64, ticks.into());
    }
    out.put(TBF, &tbf);
    let result = police.conform.raw();
    if result != 0 {
        out.put_u32(RESULT, result.cast_unsigned());
    }
    if police.avrate != 0 {
        out.put_u32(AVRATE, police.avrate);
    }
    TM
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    use softnet_tc::ActionSpec;

    use crate::nl::headers::TcMsg;
    use crate::nl::{NLA_F_NESTED, Request};
    use crate::tc::{RTM_NEWTFILTER, TCA_OPTIONS};
    use crate::testing::message;

    /// Reads the options that `put` writes.
    fn with_options<T>(
        put: impl FnOnce(&mut Message<'_>),
        f: impl FnOnce(Option<Attr<'_>>) -> T,
    ) -> T {
        let put = |out: &mut Message<'_>| out.nest(TCA_OPTIONS | NLA_F_NESTED, put);
        let messages = message(RTM_NEWTFILTER, 0, &TcMsg::default(), put);
        let request = Request::read(messages.as_bytes()).unwrap();
        let mut attrs = request.attr_iter::<TcMsg>().unwrap();
        f(attrs.next())
    }

    fn shown(spec: &ActionSpec, out: &mut Message<'_>) {
        let ActionKind::Police(police) = &spec.kind else {
            panic!("{spec}");
        };
        let parms = Generic {
            action: spec.control.raw(),
            ..Generic::default()
        };
        dump(police, &parms, out);
    }

    /// Message as it is shown, with the tables of a request and the cells that they have.
    fn as_request(spec: &ActionSpec, cell_log: u8, out: &mut Message<'_>) {
        let attrs: Vec<(u16, Vec<u8>)> = with_options(
            |out| shown(spec, out),
            |options| {
                let children = options.unwrap();
                let children = children.children();
                children
                    .map(|attr| (attr.kind(), attr.data.to_vec()))
                    .collect()
            },
        );
        for (kind, mut data) in attrs {
            if kind == TBF {
                let mut parms = Parms::read_from_bytes(&data).unwrap();
                parms.rate.cell_log = cell_log;
                parms.peakrate.cell_log = cell_log;
                data = parms.as_bytes().to_vec();
            }
            out.put_bytes(kind, &data);
        }
        out.put_bytes(RATE, &[0; TABLE]);
        out.put_bytes(PEAKRATE, &[0; TABLE]);
    }

    const WORDS: [&str; 6] = [
        "police rate 1mbit burst 10k mtu 2k conform-exceed drop/pipe overhead 4",
        "police rate 1mbit burst 10k conform-exceed drop/pipe overhead 4 linklayer atm",
        // 320 bytes a tick.
        "police rate 40gbit burst 1048640 mtu 9000 peakrate 80gbit",
        "police pkts_rate 1000 pkts_burst 100 mtu 9000",
        "police mtu 1500 conform-exceed drop/jump:2",
        "police avrate 8mbit mtu 1500 conform-exceed drop/pass estimator 1s 8s",
    ];

    #[test]
    fn what_is_shown_is_what_was_asked_for() {
        for words in WORDS {
            let spec: ActionSpec = words.parse().unwrap();
            let (kind, control, _) = with_options(
                |out| as_request(&spec, 3, out),
                |options| parse(options, &Read { filter: None }).unwrap().parts(),
            );
            let ActionKind::Police(mut expected) = spec.kind.clone() else {
                panic!("{words}");
            };
            // Shown as the kernel's `~0`.
            if expected.mtu == 0 {
                expected.mtu = u32::MAX;
            }
            assert_eq!(kind, ActionKind::Police(expected), "{words}");
            assert_eq!(control, spec.control, "{words}");
        }
    }

    /// `qdisc_get_rtab`
    #[test]
    fn a_rate_needs_a_table() {
        let text = "Invalid rate table parameters for searching";
        let spec: ActionSpec = WORDS[0].parse().unwrap();
        let refused = |put: &dyn Fn(&mut Message<'_>)| {
            let error = with_options(put, |options| {
                let parsed = parse(options, &Read { filter: None }).unwrap();
                parsed.result.clone().unwrap_err()
            });
            assert_eq!(error.errno, Errno::ENOMEM);
            assert_eq!(error.text.as_deref(), Some(text));
        };
        refused(&|out| shown(&spec, out));
        for cell_log in [0, 32] {
            refused(&|out| as_request(&spec, cell_log, out));
        }
    }
}
