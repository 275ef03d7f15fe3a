//! Any qdisc and any class.

use std::time::Duration;

use proptest::prelude::*;
use softnet_tc::units::MAX_RATE;
use softnet_tc::{
    AqmSpec, ClassSpec, CodelSpec, DrrClassSpec, EtsSpec, FqCodelSpec, FqSpec, HfscClassSpec,
    HfscSpec, HtbClassSpec, HtbSpec, LinkCost, LinkDefaults, LinkLayer, PrioSpec, QdiscSpec,
    QfqClassSpec, ServiceCurve, TbfSpec,
};

fn time() -> impl Strategy<Value = Duration> {
    // The longest that rtnetlink has.
    let micros = Just(Duration::from_micros(u32::MAX.into()));
    prop_oneof![9 => (0..1_u64 << 50).prop_map(Duration::from_nanos), 1 => micros]
}

fn link() -> impl Strategy<Value = LinkCost> {
    let layer = prop_oneof![Just(LinkLayer::Ethernet), Just(LinkLayer::Atm)];
    (any::<u16>(), any::<u16>(), layer).prop_map(|(overhead, mpu, linklayer)| LinkCost {
        overhead,
        mpu,
        linklayer,
    })
}

fn aqm() -> impl Strategy<Value = AqmSpec> {
    let threshold = (prop::option::of(time()), any::<u8>(), any::<u8>());
    (time(), time(), any::<bool>(), threshold).prop_map(|(target, interval, ecn, threshold)| {
        let (ce_threshold, ce_threshold_selector, ce_threshold_mask) = threshold;
        AqmSpec {
            target,
            interval: interval.max(Duration::from_micros(1)),
            ecn,
            ce_threshold,
            ce_threshold_selector,
            ce_threshold_mask,
        }
    })
}

pub(super) fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..20_u32, any::<u32>(), Just(u32::MAX)]
}

/// Also what is refused.
fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1..1000_u64,
        3 => 1..=MAX_RATE,
        1 => Just(MAX_RATE),
        1 => any::<u64>(),
    ]
}

/// Bytes, also more than can be.
fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..=1_u64 << 50, 1 => Just(1 << 50), 1 => any::<u64>()]
}

fn tbf() -> impl Strategy<Value = QdiscSpec> {
    let peak = prop::option::of((rate(), number()));
    let burst = any::<u32>().prop_map(u64::from);
    (rate(), burst, limit(), peak, link()).prop_map(|(rate, burst, limit, peak, link)| {
        QdiscSpec::Tbf(TbfSpec {
            rate,
            burst,
            limit,
            peakrate: peak.map(|(peak, _)| peak),
            mtu: peak.map_or(0, |(_, mtu)| mtu),
            link,
        })
    })
}

fn fq() -> impl Strategy<Value = QdiscSpec> {
    let numbers = (
        number(),
        number(),
        prop::option::of(0..1_u32 << 20),
        1..=18_u8,
        number(),
    );
    let times = (time(), time(), time(), prop::option::of(time()));
    let rates = (prop::option::of(rate()), rate());
    let bands = (
        prop::array::uniform16(0..3_u8),
        prop::array::uniform3(16_384..1_u32 << 30),
    );
    (numbers, times, rates, bands, any::<[bool; 2]>()).prop_map(
        |(numbers, times, rates, bands, [pacing, horizon_drop])| {
            QdiscSpec::Fq(FqSpec {
                limit: numbers.0,
                flow_limit: numbers.1,
                quantum: numbers.2,
                initial_quantum: numbers.2.map(|n| 3 * n),
                orphan_mask: numbers.4,
                buckets_log: numbers.3,
                refill_delay: times.0,
                pacing,
                maxrate: rates.0,
                low_rate_threshold: rates.1,
                timer_slack: times.1,
                horizon: times.2,
                offload_horizon: Duration::ZERO,
                horizon_drop,
                ce_threshold: times.3,
                priomap: bands.0,
                weights: bands.1,
            })
        },
    )
}

fn fq_codel() -> impl Strategy<Value = QdiscSpec> {
    let quantum = prop::option::of(0..1_u32 << 20);
    (number(), number(), 1..=65_536_u32, quantum, number(), aqm()).prop_map(
        |(limit, memory_limit, flows, quantum, drop_batch, aqm)| {
            QdiscSpec::FqCodel(FqCodelSpec {
                limit,
                memory_limit,
                flows,
                quantum,
                drop_batch,
                aqm,
            })
        },
    )
}

fn ets() -> impl Strategy<Value = QdiscSpec> {
    let quanta = prop::collection::vec(256..=1_u32 << 20, 0..16);
    let map = prop::array::uniform16(any::<u8>());
    (1..=16_u16, any::<u16>(), quanta, map).prop_map(|(bands, strict, quanta, map)| {
        let ets = EtsSpec {
            bands,
            strict: strict % (bands + 1),
            priomap: map.map(|band| (u16::from(band) % bands) as u8),
            ..EtsSpec::default()
        };
        QdiscSpec::Ets(ets.with_quanta(&quanta, &LinkDefaults::default()))
    })
}

pub(super) fn spec() -> impl Strategy<Value = QdiscSpec> {
    let prio = (2..=16_u16, prop::array::uniform16(any::<u8>())).prop_map(|(bands, map)| {
        let priomap = map.map(|band| (u16::from(band) % bands) as u8);
        QdiscSpec::Prio(PrioSpec { bands, priomap })
    });
    let simple = prop_oneof![
        number().prop_map(|limit| QdiscSpec::Pfifo { limit }),
        number().prop_map(|limit| QdiscSpec::PfifoHeadDrop { limit }),
        (0..1_u64 << 50).prop_map(|limit| QdiscSpec::Bfifo { limit }),
        Just(QdiscSpec::PfifoFast { limit: 1000 }),
        Just(QdiscSpec::Noqueue),
        Just(QdiscSpec::Mq),
    ];
    let codel = (number(), aqm());
    let codel = codel.prop_map(|(limit, aqm)| QdiscSpec::Codel(CodelSpec { limit, aqm }));
    let htb = (any::<u16>(), 1..=u32::MAX, prop::option::of(number()));
    let htb = htb.prop_map(|(default, r2q, direct_qlen)| {
        QdiscSpec::Htb(HtbSpec {
            default,
            r2q,
            direct_qlen,
        })
    });
    prop_oneof![
        4 => simple,
        3 => prio,
        6 => htb,
        2 => Just(QdiscSpec::Drr),
        2 => Just(QdiscSpec::Qfq),
        3 => any::<u16>().prop_map(|default| QdiscSpec::Hfsc(HfscSpec { default })),
        2 => ets(),
        1 => tbf(),
        1 => codel,
        1 => fq_codel(),
        1 => fq(),
    ]
}

/// A class of any kind; the tree refuses those of another kind than its qdisc.
pub(super) fn class() -> impl Strategy<Value = ClassSpec> {
    let drr = (256..=1_u32 << 20).prop_map(|quantum| ClassSpec::Drr(DrrClassSpec { quantum }));
    let qfq = (1..=1024_u32, 512..=65_536_u32);
    let qfq = qfq.prop_map(|(weight, maxpkt)| ClassSpec::Qfq(QfqClassSpec { weight, maxpkt }));
    let curve = || {
        let fields = (any::<u32>(), any::<u32>(), any::<u32>());
        prop::option::of(fields.prop_map(|(m1, d, m2)| ServiceCurve { m1, d, m2 }))
    };
    let hfsc = (curve(), curve(), curve());
    let hfsc = hfsc.prop_map(|(rt, ls, ul)| {
        // What has no effect cannot be written.
        let ul = ul.filter(|_| ls.is_some());
        ClassSpec::Hfsc(HfscClassSpec { rt, ls, ul })
    });
    prop_oneof![3 => htb_class(), 1 => drr, 1 => qfq, 3 => hfsc]
}

fn htb_class() -> impl Strategy<Value = ClassSpec> {
    let burst = || any::<u32>().prop_map(u64::from);
    let quantum = prop::option::of(number());
    (rate(), rate(), burst(), burst(), 0..8_u32, quantum, link()).prop_map(
        |(rate, ceil, burst, cburst, prio, quantum, link)| {
            ClassSpec::Htb(HtbClassSpec {
                rate,
                ceil,
                burst,
                cburst,
                ticks: None,
                prio,
                quantum,
                link,
            })
        },
    )
}
