//! Random trees and operations on them.

use std::time::Duration;

use proptest::prelude::*;

use softnet::qdisc::*;

use super::Opaque;
use super::round_robin::Weight;
use crate::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Lengths and priorities.
    Enqueue(Vec<(usize, u32)>),
    /// A budget, after so many nanoseconds.
    Dequeue(usize, u64),
    Add(prop::sample::Index, QdiscSpec),
    Replace(prop::sample::Index, QdiscSpec),
    Change(prop::sample::Index, QdiscSpec),
    Delete(prop::sample::Index),
    Filter(prop::sample::Index, u32),
    /// A class of this number, below a class or qdisc.
    AddClass(prop::sample::Index, u16, Class),
    ChangeClass(prop::sample::Index, Class),
    DeleteClass(prop::sample::Index),
    Stab(prop::sample::Index, Option<SizeTable>),
}

impl Step {
    /// Changes a tree with these classes. What is no change of a tree does nothing.
    pub(crate) fn apply<Q: Queues>(
        self,
        tree: &mut Live<'_, Q>,
        classes: Vec<Handle>,
    ) -> Result<(), SpecError> {
        let handles: Vec<Handle> = tree.spec().nodes().map(|node| node.handle).collect();
        // That of a netem is not listed without a qdisc.
        let of_netem = |handle: &&Handle| {
            let node = tree.spec().node(**handle);
            node.is_some_and(|node| matches!(node.qdisc, QdiscSpec::Netem(_)))
        };
        let hidden = handles
            .iter()
            .filter(of_netem)
            .map(|handle| handle.class(1));
        let mut classes = classes;
        classes.extend(hidden.collect::<Vec<_>>());
        match self {
            Step::Add(at, qdisc) => {
                let added = tree.add(*at.get(&classes), Handle::NONE, qdisc);
                added.map(|_| ())
            }
            Step::Replace(at, qdisc) => {
                let replaced = tree.replace(*at.get(&classes), Handle::NONE, qdisc);
                replaced.map(|_| ())
            }
            Step::Change(at, qdisc) if !handles.is_empty() => {
                tree.change(*at.get(&handles), &qdisc)
            }
            Step::Delete(at) if !handles.is_empty() => tree.delete(*at.get(&handles)),
            Step::Filter(at, mark) => {
                let class = *at.get(&classes);
                let filter = FilterSpec {
                    prio: mark as u16,
                    handle: mark & 3,
                    ..FilterSpec::new(FilterKind::fw(3), class)
                };
                tree.put_filter(FilterOp::Add, filter).map(|_| ())
            }
            Step::AddClass(at, minor, class) => {
                let parents = [classes, handles].concat();
                let parent = *at.get(&parents);
                let spec = class.of(tree.spec(), parent.qdisc());
                tree.add_class(parent, parent.qdisc().class(minor), spec)
            }
            Step::ChangeClass(at, class) => {
                let at = *at.get(&classes);
                let class = class.of(tree.spec(), at.qdisc());
                tree.change_class(at, &class)
            }
            Step::Stab(at, table) if !handles.is_empty() => {
                tree.set_stab(*at.get(&handles), table)
            }
            Step::DeleteClass(at) => tree.delete_class(*at.get(&classes)),
            _ => Ok(()),
        }
    }
}

/// A class of any kind that has some.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    weight: usize,
    htb: HtbClassSpec,
    drr: DrrClassSpec,
    qfq: QfqClassSpec,
    hfsc: HfscClassSpec,
}

impl Class {
    fn of(self, tree: &TreeSpec, qdisc: Handle) -> ClassSpec {
        match tree.node(qdisc).map(|node| &node.qdisc) {
            Some(QdiscSpec::Htb(_)) => ClassSpec::Htb(self.htb),
            Some(QdiscSpec::Drr) => ClassSpec::Drr(self.drr),
            Some(QdiscSpec::Qfq) => ClassSpec::Qfq(self.qfq),
            Some(QdiscSpec::Hfsc(_)) => ClassSpec::Hfsc(self.hfsc),
            _ => ClassSpec::RoundRobin(Weight(self.weight)),
        }
    }
}

pub(crate) fn specs() -> impl Strategy<Value = QdiscSpec> {
    let tbf = (
        1_000_u64..1_000_000,
        60_u64..1_500,
        0_u64..3_000,
        prop::option::of(60_u32..1_000),
        0..60_u16,
        any::<bool>(),
    );
    let tbf = tbf.prop_map(|(rate, burst, limit, mtu, overhead, atm)| {
        QdiscSpec::Tbf(TbfSpec {
            rate,
            burst,
            limit,
            peakrate: mtu.map(|_| rate * 3),
            mtu: mtu.unwrap_or_default(),
            link: LinkCost {
                overhead,
                mpu: 64,
                linklayer: if atm {
                    LinkLayer::Atm
                } else {
                    LinkLayer::Ethernet
                },
            },
        })
    });
    let prio = (2..6_u16, any::<[u8; 16]>()).prop_map(|(bands, map)| {
        QdiscSpec::Prio(PrioSpec {
            bands,
            priomap: map.map(|band| band % bands as u8),
        })
    });
    let aqm = (0..20_000_u64, 0..50_000_u64, any::<bool>());
    let aqm = aqm.prop_map(|(target, interval, ecn)| AqmSpec {
        target: Duration::from_micros(target),
        interval: Duration::from_micros(interval),
        ecn,
        ..AqmSpec::default()
    });
    let codel = (0..20_u32, aqm.clone())
        .prop_map(|(limit, aqm)| QdiscSpec::Codel(CodelSpec { limit, aqm }));
    let fq_codel = (
        0..20_u32,
        0..40_000_u32,
        1..5_u32,
        0..4000_u32,
        0..9_u32,
        aqm,
    );
    let fq_codel = fq_codel.prop_map(|(limit, memory_limit, flows, quantum, drop_batch, aqm)| {
        QdiscSpec::FqCodel(FqCodelSpec {
            limit,
            memory_limit,
            flows,
            quantum: Some(quantum),
            drop_batch,
            aqm,
        })
    });
    let fq = (
        (0..12_u32, 0..6_u32, 0..4000_u32, 0..9000_u32),
        prop_oneof![Just(0), Just(3), Just(u32::MAX)],
        prop::option::of(prop_oneof![1_000..200_000_u64, any::<u64>()]),
        (0..40_u64, any::<bool>(), 0..100_u64, any::<bool>()),
        any::<[u8; 16]>(),
    );
    let fq = fq.prop_map(|(sizes, orphan_mask, maxrate, times, priomap)| {
        let (limit, flow_limit, quantum, initial_quantum) = sizes;
        let (horizon, horizon_drop, slack, pacing) = times;
        QdiscSpec::Fq(FqSpec {
            limit,
            flow_limit,
            quantum: Some(quantum),
            initial_quantum: Some(initial_quantum),
            orphan_mask,
            maxrate: maxrate.map(|rate| rate.max(1)),
            pacing,
            horizon: Duration::from_millis(horizon),
            horizon_drop,
            timer_slack: Duration::from_micros(slack),
            priomap: priomap.map(|band| band % 3),
            ..FqSpec::default()
        })
    });
    let netem = (
        0..20_u32,
        0..30_u64,
        0..20_u64,
        any::<u32>(),
        0..4_u32,
        0..2_000_000_u64,
    );
    let netem = netem.prop_map(|(limit, delay, jitter, loss, gap, rate)| {
        QdiscSpec::Netem(NetemSpec {
            limit,
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            // No copies: each packet is one of a kind there.
            loss: loss / 4,
            corrupt: loss / 8,
            reorder: u32::MAX / 2,
            gap,
            rate,
            slot: SlotSpec {
                min: Duration::from_millis(jitter / 16),
                max: Duration::from_millis(jitter / 4),
                packets: gap,
                ..SlotSpec::default()
            },
            seed: Some(rate),
            ..NetemSpec::default()
        })
    });
    prop_oneof![
        5 => queues_with_aqm(),
        3 => netem,
        1 => codel,
        3 => fq,
        2 => fq_codel,
        1 => (0..20_u32).prop_map(|limit| QdiscSpec::Pfifo { limit }),
        1 => (0..4_000_u64).prop_map(|limit| QdiscSpec::Bfifo { limit }),
        1 => (0..20_u32).prop_map(|limit| QdiscSpec::PfifoHeadDrop { limit }),
        1 => (1..9_u32).prop_map(|limit| QdiscSpec::PfifoFast { limit }),
        1 => Just(QdiscSpec::Blackhole),
        1 => (1..9_u32).prop_map(|limit| {
            let opaque = move || Opaque(PfifoHeadDrop::new(limit));
            let make = move |_: &QdiscEnv| Box::new(opaque()) as Box<dyn Qdisc>;
            QdiscSpec::Custom(CustomSpec::new("opaque", make))
        }),
        3 => tbf,
        4 => prio,
        2 => ets(),
        3 => Just(QdiscSpec::Drr),
        3 => Just(QdiscSpec::Qfq),
        3 => (0..6_u16).prop_map(|default| QdiscSpec::Hfsc(HfscSpec { default })),
        4 => Just(QdiscSpec::RoundRobin),
        2 => cake_specs().prop_map(|spec| {
            // By marks packets of one priority would overtake each other.
            QdiscSpec::Cake(CakeSpec { fwmark: 0, ..spec })
        }),
        // Refused where there is one queue; the second, everywhere but at the root.
        3 => (0..6_u16).prop_map(|bands| QdiscSpec::Multiq { bands }),
        3 => cake_specs().prop_map(|spec| {
            QdiscSpec::CakeMq(CakeSpec { autorate_ingress: false, ..spec })
        }),
        4 => (0..6_u16, 0..9_u32).prop_map(|(default, direct)| QdiscSpec::Htb(HtbSpec {
            default,
            direct_qlen: Some(direct),
            ..HtbSpec::default()
        })),
    ]
}

fn ets() -> impl Strategy<Value = QdiscSpec> {
    let quanta = proptest::collection::vec(200..4_000_u32, 0..6);
    let fields = (1..6_u16, 0..6_u16, quanta, any::<[u8; 16]>());
    fields.prop_map(|(bands, strict, quanta, map)| {
        let link = LinkDefaults::default();
        let spec = EtsSpec {
            bands,
            strict: strict.min(bands),
            priomap: map.map(|band| band % bands as u8),
            ..EtsSpec::default()
        };
        QdiscSpec::Ets(spec.with_quanta(&quanta, &link))
    })
}

/// Service curves; a rate of 0 at the end would let packets wait for ever.
fn curves() -> impl Strategy<Value = HfscClassSpec> {
    let rate = || 0..2_000_000_u32;
    let curve = || {
        let fields = (rate(), 0..200_000_u32, 1_000..2_000_000_u32);
        prop::option::of(fields.prop_map(|(m1, d, m2)| ServiceCurve { m1, d, m2 }))
    };
    (curve(), curve(), curve()).prop_map(|(rt, ls, ul)| HfscClassSpec { rt, ls, ul })
}

/// `sfq`, `red`, `pie`, `fq_pie` and `dualpi2`, with parameters that few packets bring to act.
fn queues_with_aqm() -> impl Strategy<Value = QdiscSpec> {
    let curve = (0..3_000_u32, 0..3_000_u32, 0..10_u8, any::<u32>());
    let curve = curve.prop_map(|(min, more, wlog, max_p)| RedCurve {
        min,
        max: min + more,
        wlog,
        plog: 8,
        cell_log: 4,
        max_p,
    });
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let sizes = (2..20_u32, 1..5_u32, 0..4_u32, 1..9_u32, 0..3_u64);
    let sfq = (sizes, prop::option::of(curve.clone()), flags);
    let sfq = sfq.prop_map(|((limit, flows, divisor, depth, perturb), red, flags)| {
        let divisor = 1 << divisor;
        let is_small = depth * flows.min(divisor) < 2;
        QdiscSpec::Sfq(SfqSpec {
            limit: (!is_small).then_some(limit),
            flows,
            divisor,
            depth,
            perturb: Duration::from_secs(perturb),
            headdrop: flags.0,
            red,
            ecn: flags.1,
            harddrop: flags.2,
            ..SfqSpec::default()
        })
    });
    let red = (0..6_000_u32, curve, flags).prop_map(|(limit, curve, flags)| {
        let (ecn, harddrop, adaptive, nodrop) = flags;
        QdiscSpec::Red(RedSpec {
            limit,
            curve,
            ecn,
            harddrop,
            adaptive,
            nodrop: nodrop && ecn,
            ..RedSpec::default()
        })
    });
    let law = (0..20_u64, 0..20_u64, 0..500_u32, 0..500_u32, flags);
    let law = law.prop_map(|(target, tupdate, alpha, beta, flags)| PieLawSpec {
        target: Duration::from_millis(target),
        tupdate: Duration::from_millis(tupdate),
        alpha,
        beta,
        ecn: flags.0,
        bytemode: flags.1,
        dq_rate_estimator: flags.2,
    });
    let pie =
        (0..20_u32, law.clone()).prop_map(|(limit, law)| QdiscSpec::Pie(PieSpec { limit, law }));
    let fq_pie = (0..20_u32, 1..5_u32, law, 1..4000_u32, 0..40_000_u32);
    let fq_pie = fq_pie.prop_map(|(limit, flows, law, quantum, memory_limit)| {
        QdiscSpec::FqPie(FqPieSpec {
            limit,
            flows,
            law,
            quantum: Some(quantum),
            memory_limit,
            ..FqPieSpec::default()
        })
    });
    let times = (0..20_u64, 1..20_u64, 0..5_u64, prop::option::of(0..3_u32));
    let gains = (1..90_000_u32, 1..90_000_u32, 1..9_u8, 0..=100_u8, 1..4_u8);
    let dualpi2 = (1..20_u32, 1..40_000_u32, times, gains, flags);
    let dualpi2 = dualpi2.prop_map(|(limit, memory_limit, times, gains, flags)| {
        QdiscSpec::DualPi2(DualPi2Spec {
            limit,
            memory_limit: Some(memory_limit),
            target: Duration::from_millis(times.0),
            tupdate: Duration::from_millis(times.1),
            alpha: gains.0,
            beta: gains.1,
            step_thresh: Duration::from_millis(times.2),
            step_packets: times.3,
            min_qlen_step: limit / 8,
            coupling_factor: gains.2,
            drop_on_overload: flags.0,
            drop_enqueue: flags.1,
            classic_protection: gains.3,
            ecn_mask: gains.4,
            split_gso: flags.2,
        })
    });
    prop_oneof![sfq, red, pie, fq_pie, dualpi2]
}

/// Parameters of `cake`.
pub(crate) fn cake_specs() -> impl Strategy<Value = CakeSpec> {
    let modes = (0..5_usize, 0..8_usize, 0..3_usize, 0..3_usize);
    let flags = any::<[bool; 4]>();
    let sizes = (
        prop::option::of(1_000..2_000_000_u64),
        prop::option::of(1_000..60_000_u32),
        prop::option::of(-64..256_i32),
        0..256_u32,
    );
    let rest = (
        1..200_000_u64,
        prop::option::of(0..20_000_u64),
        any::<u32>(),
    );
    (modes, flags, sizes, rest).prop_map(|(modes, flags, sizes, rest)| CakeSpec {
        bandwidth: sizes.0,
        autorate_ingress: flags[0],
        diffserv: Diffserv::ALL[modes.0],
        isolation: Isolation::ALL[modes.1],
        nat: false,
        wash: flags[1],
        ingress: flags[2],
        ack_filter: AckFilter::ALL[modes.2],
        split_gso: flags[3],
        rtt: Duration::from_micros(rest.0),
        target: rest.1.map(Duration::from_micros),
        overhead: sizes.2,
        mpu: sizes.3,
        framing: Framing::ALL[modes.3],
        memlimit: sizes.1,
        fwmark: rest.2,
    })
}

pub(crate) fn class() -> impl Strategy<Value = Class> {
    let rates = (0..1_000_000_u64, 1_u64..1_000_000);
    let bursts = (0_u64..3_000, 0_u64..3_000);
    let rest = (0..9_u32, prop::option::of(0..4_000_u32), 0..90_u16);
    let turns = (200..4_000_u32, 1..1_500_u32, 400..2_000_u32);
    let fields = (0..3_usize, rates, bursts, rest, (turns, curves()));
    fields.prop_map(
        |(weight, (rate, ceil), (burst, cburst), rest, (turns, hfsc))| {
            let (prio, quantum, overhead) = rest;
            let drr = DrrClassSpec { quantum: turns.0 };
            let qfq = QfqClassSpec {
                weight: turns.1,
                maxpkt: turns.2,
            };
            let htb = HtbClassSpec {
                rate,
                ceil,
                burst,
                cburst,
                ticks: None,
                prio,
                quantum,
                link: LinkCost {
                    // Most often none.
                    overhead: overhead.saturating_sub(60),
                    ..LinkCost::default()
                },
            };
            Class {
                weight,
                htb,
                drr,
                qfq,
                hfsc,
            }
        },
    )
}

/// Size tables as tc computes them, and any at all.
pub(crate) fn size_tables() -> impl Strategy<Value = SizeTable> {
    let logs = (0..=30_u8, 0..=30_u8, any::<i16>(), any::<i32>());
    let slots = proptest::collection::vec(any::<u16>(), 0..20);
    let hostile = (logs, slots).prop_map(|((cell_log, size_log, cell_align, overhead), slots)| {
        let spec = SizeSpec {
            cell_log,
            size_log,
            cell_align,
            overhead,
            tsize: slots.len() as u32,
            ..SizeSpec::default()
        };
        SizeTable::from_parts(spec, Some(&slots)).unwrap()
    });
    let sane = (0..200_u32, -20..60_i32, any::<bool>()).prop_map(|(mpu, overhead, atm)| {
        let options = SizeOptions {
            mpu,
            overhead,
            linklayer: Some(if atm {
                LinkLayer::Atm
            } else {
                LinkLayer::Ethernet
            }),
            ..SizeOptions::default()
        };
        SizeTable::new(&options).unwrap()
    });
    prop_oneof![sane, hostile]
}

/// Lengths and priorities of packets.
pub(crate) fn lists() -> impl Strategy<Value = Vec<(usize, u32)>> {
    // Of the first qdiscs whose handles are chosen.
    let class = (0x8001..0x8006_u16, 0..6_u16);
    let class = class.prop_map(|(major, minor)| Handle::new(major, minor).raw());
    proptest::collection::vec(
        (60_usize..1_600, prop_oneof![0..16_u32, any::<u32>(), class]),
        1..12,
    )
}

pub(crate) fn steps() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => lists().prop_map(Step::Enqueue),
        6 => (0_usize..12, 0_u64..20_000_000)
            .prop_map(|(budget, wait)| Step::Dequeue(budget, wait)),
        6 => (index(), specs()).prop_map(|(at, spec)| Step::Add(at, spec)),
        2 => (index(), specs()).prop_map(|(at, spec)| Step::Replace(at, spec)),
        3 => (index(), specs()).prop_map(|(at, spec)| Step::Change(at, spec)),
        1 => index().prop_map(Step::Delete),
        1 => (index(), 0..4_u32).prop_map(|(at, mark)| Step::Filter(at, mark)),
        6 => (index(), 1..6_u16, class())
            .prop_map(|(at, minor, class)| Step::AddClass(at, minor, class)),
        1 => (index(), class()).prop_map(|(at, class)| Step::ChangeClass(at, class)),
        2 => index().prop_map(Step::DeleteClass),
        2 => (index(), prop::option::weighted(0.8, size_tables()))
            .prop_map(|(at, table)| Step::Stab(at, table)),
    ]
}
