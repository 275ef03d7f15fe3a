//! Parameters come back from what is shown of them; arbitrary bytes are read or refused.

use std::time::Duration;

use proptest::array::{uniform3, uniform16};
use proptest::collection::vec;
use proptest::prelude::*;
use softnet::tx::{QueueMap, TcQueues};
use softnet_tc::{
    AqmSpec, CodelSpec, FqCodelSpec, FqSpec, HtbClassSpec, HtbSpec, LinkCost, LinkLayer, PrioSpec,
    TbfSpec,
};

use super::tests::{AROUND, Classes, shown, shown_class, with_options};
use super::*;
use crate::testing;

/// Reads options as those of a new qdisc, of a change and of a class; shows what it reads.
pub(super) fn answer(kind: &str, options: &[u8]) {
    const REFUSALS: &[Errno] = &[
        Errno::EINVAL,
        Errno::ENOENT,
        Errno::EOPNOTSUPP,
        Errno::ERANGE,
    ];
    let htb = QdiscSpec::Htb(HtbSpec::default());
    let read = |before: Option<&QdiscSpec>| {
        with_options(Some(options), |options| {
            parse(kind, options, &AROUND, before)
        })
    };
    for before in [None, read(None).ok()] {
        match read(before.as_ref()) {
            Ok(spec) => {
                shown(&spec);
                if let Err(error) = spec.check() {
                    assert!(!error.to_string().is_empty());
                }
            }
            Err(error) => testing::assert_refusal(&error, REFUSALS),
        }
    }
    let class = with_options(Some(options), |options| {
        parse_class(&htb, options, &AROUND.link, None)
    });
    if let Err(error) = &class {
        testing::assert_refusal(error, REFUSALS);
    }
    if let Ok(class) = class {
        let name = Handle::new(1, 1);
        let _ = class_warning(name, &class, &htb);
        let mut classes = Classes::default();
        classes.0.insert(name, (Handle::new(1, 0), class));
        classes.with(&htb, name, shown_class);
    }
}

fn kind() -> impl Strategy<Value = &'static str> {
    prop::sample::select(QDISC_KINDS).prop_map(|kind| kind.name)
}

fn micros() -> impl Strategy<Value = Duration> {
    (0..u32::MAX).prop_map(|us| Duration::from_micros(us.into()))
}

fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![1..=u64::from(u32::MAX), 1..=1_000_000_000_000_u64]
}

fn link() -> impl Strategy<Value = LinkCost> {
    (any::<u16>(), any::<u16>(), any::<bool>()).prop_map(|(overhead, mpu, atm)| LinkCost {
        overhead,
        mpu,
        linklayer: if atm {
            LinkLayer::Atm
        } else {
            LinkLayer::Ethernet
        },
    })
}

fn aqm() -> impl Strategy<Value = AqmSpec> {
    let threshold = prop::option::of((micros(), any::<u8>(), any::<u8>()));
    (micros(), micros(), any::<bool>(), threshold).prop_map(
        |(target, interval, ecn, threshold)| {
            let (ce_threshold, selector, mask) = threshold
                .map_or((None, 0, 0), |(time, selector, mask)| {
                    (Some(time), selector, mask)
                });
            AqmSpec {
                target,
                interval,
                ecn,
                ce_threshold,
                ce_threshold_selector: selector,
                ce_threshold_mask: mask,
            }
        },
    )
}

fn fq() -> impl Strategy<Value = QdiscSpec> {
    let limits = (
        any::<u32>(),
        any::<u32>(),
        256..=1_u32 << 20,
        0..=1_u32 << 20,
    );
    let rates = (prop::option::of(0..u32::MAX), any::<u32>(), any::<bool>());
    let times = (
        micros(),
        any::<u32>(),
        micros(),
        any::<bool>(),
        prop::option::of(micros()),
    );
    let bands = (uniform16(0..3_u8), uniform3(16_384..i32::MAX as u32));
    (limits, rates, times, bands, any::<u32>(), 1..=18_u8).prop_map(
        |(
            (limit, flow_limit, quantum, initial),
            rates,
            times,
            bands,
            orphan_mask,
            buckets_log,
        )| {
            QdiscSpec::Fq(FqSpec {
                limit,
                flow_limit,
                quantum: Some(quantum),
                initial_quantum: Some(initial),
                orphan_mask,
                buckets_log,
                refill_delay: times.0,
                pacing: rates.2,
                maxrate: rates.0.map(u64::from),
                low_rate_threshold: rates.1.into(),
                timer_slack: Duration::from_nanos(times.1.into()),
                horizon: times.2,
                offload_horizon: Duration::ZERO,
                horizon_drop: times.3,
                ce_threshold: times.4,
                priomap: bands.0,
                weights: bands.1,
            })
        },
    )
}

fn fq_codel() -> impl Strategy<Value = QdiscSpec> {
    let limits = (any::<u32>(), 0..=1_u32 << 31, 1..=65_536_u32);
    (limits, 256..=1_u32 << 20, 1..=u32::MAX, aqm()).prop_map(
        |((limit, memory_limit, flows), quantum, drop_batch, aqm)| {
            QdiscSpec::FqCodel(FqCodelSpec {
                limit,
                memory_limit,
                flows,
                quantum: Some(quantum),
                drop_batch,
                aqm,
            })
        },
    )
}

fn mqprio() -> impl Strategy<Value = QdiscSpec> {
    (1..=4_u16, any::<[u8; 16]>()).prop_map(|(classes, map)| {
        QdiscSpec::Mqprio(QueueMap {
            prio_tc_map: map.map(|class| class % classes as u8),
            classes: (0..classes)
                .map(|offset| TcQueues { count: 1, offset })
                .collect(),
        })
    })
}

fn qdisc() -> impl Strategy<Value = QdiscSpec> {
    let tbf = (
        rate(),
        1..=u32::MAX,
        any::<u32>(),
        prop::option::of((rate(), 1..=u32::MAX)),
    );
    prop_oneof![
        any::<u32>().prop_map(|limit| QdiscSpec::Pfifo { limit }),
        any::<u32>().prop_map(|limit| QdiscSpec::Bfifo {
            limit: limit.into()
        }),
        any::<u32>().prop_map(|limit| QdiscSpec::PfifoHeadDrop { limit }),
        (2..=16_u16, any::<[u8; 16]>()).prop_map(|(bands, map)| QdiscSpec::Prio(PrioSpec {
            bands,
            priomap: map.map(|band| band % bands as u8),
        })),
        (any::<u32>(), aqm()).prop_map(|(limit, aqm)| QdiscSpec::Codel(CodelSpec {
            limit,
            aqm: AqmSpec {
                ce_threshold_selector: 0,
                ce_threshold_mask: 0,
                ..aqm
            },
        })),
        fq_codel(),
        fq(),
        mqprio(),
        (any::<u16>(), 1..=u32::MAX, any::<u32>()).prop_map(|(default, r2q, direct)| {
            QdiscSpec::Htb(HtbSpec {
                default,
                r2q,
                direct_qlen: Some(direct),
            })
        }),
        (tbf, link()).prop_map(|((rate, burst, limit, peak), link)| {
            let peak = peak.filter(|(peak, _)| *peak > rate);
            QdiscSpec::Tbf(TbfSpec {
                rate,
                burst: burst.into(),
                limit: limit.into(),
                peakrate: peak.map(|(peak, _)| peak),
                mtu: peak.map_or(0, |(_, mtu)| mtu),
                link,
            })
        }),
    ]
}

/// Shown options, as a request has them.
fn as_request(spec: &QdiscSpec, mut options: Vec<u8>) -> Vec<u8> {
    let mut put = |kind: u16, value: u32| {
        options.extend([8, 0]);
        options.extend(kind.to_le_bytes());
        options.extend(value.to_le_bytes());
    };
    match spec {
        // Sizes are asked for in bytes, and shown as times.
        QdiscSpec::Tbf(spec) => {
            put(6, spec.burst as u32);
            put(7, spec.mtu);
        }
        // Another version.
        QdiscSpec::Htb(_) => options[4..8].copy_from_slice(&[3, 0, 0, 0]),
        // Attributes that only hardware could be asked for.
        QdiscSpec::Mqprio(_) => options.truncate(82),
        _ => {}
    }
    options
}

/// CoDel's times as they are shown: in whole units of 1,024 ns, in microseconds.
fn rounded(mut spec: QdiscSpec) -> QdiscSpec {
    let round = |time: &mut Duration| {
        *time = Duration::from_micros((((time.as_nanos() as u64) >> 10) << 10) / 1000);
    };
    if let QdiscSpec::Codel(CodelSpec { aqm, .. }) | QdiscSpec::FqCodel(FqCodelSpec { aqm, .. }) =
        &mut spec
    {
        round(&mut aqm.target);
        round(&mut aqm.interval);
        aqm.ce_threshold.iter_mut().for_each(round);
    }
    spec
}

proptest! {
    #[test]
    fn what_is_shown_can_be_asked_for(spec in qdisc()) {
        let options = as_request(&spec, shown(&spec).unwrap());
        let kind = spec.kind();
        let read = with_options(Some(&options), |options| parse(kind, options, &AROUND, None));
        prop_assert_eq!(read.unwrap(), rounded(spec));
    }

    /// Bursts are those of so many ticks, which may be less than a byte: tc 6.1 counts whole
    /// microseconds, and shows another size for one tick less.
    #[test]
    fn classes_that_are_shown_can_be_asked_for(
        rates in (rate(), rate()),
        ticks in any::<(u32, u32)>(),
        prio in 0..=7_u32,
        quantum in 1..=u32::MAX,
        link in link(),
    ) {
        let (rate, ceil) = rates;
        let spec = ClassSpec::Htb(HtbClassSpec {
            rate,
            ceil,
            burst: rate::bucket_of_ticks(ticks.0, rate),
            cburst: rate::bucket_of_ticks(ticks.1, ceil),
            ticks: Some([ticks.0, ticks.1]),
            prio,
            quantum: Some(quantum),
            link,
        });
        let htb = QdiscSpec::Htb(HtbSpec::default());
        let name = Handle::new(1, 1);
        let mut classes = Classes::default();
        classes.0.insert(name, (Handle::new(1, 0), spec.clone()));
        let options = classes.with(&htb, name, shown_class);
        let read = with_options(options.as_deref(), |options| {
            parse_class(&htb, options, &AROUND.link, None)
        });
        prop_assert_eq!(read.unwrap(), spec);
    }

    #[test]
    fn arbitrary_bytes_are_options_or_refused(kind in kind(), options: Vec<u8>) {
        answer(kind, &options);
    }

    /// Attributes of the right form with any values.
    #[test]
    fn arbitrary_attributes_are_options_or_refused(
        kind in kind(),
        attrs in vec((0..20_u16, vec(any::<u8>(), 0..90)), 0..6),
    ) {
        let mut options = Vec::new();
        for (kind, value) in attrs {
            options.extend((4 + value.len() as u16).to_ne_bytes());
            options.extend(kind.to_ne_bytes());
            options.extend(&value);
            options.resize(options.len().next_multiple_of(4), 0);
        }
        answer(kind, &options);
    }
}
