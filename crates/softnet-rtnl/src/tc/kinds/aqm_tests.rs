//! Parameters of `sfq`, `red`, `pie`, `fq_pie` and `dualpi2` come back from what is shown of them.

use std::time::Duration;

use proptest::prelude::*;
use softnet_tc::{
    DualPi2Spec, FqPieSpec, PieLawSpec, PieSpec, RedCurve, RedSpec, SfqSpec, dualpi2_shown_gain,
};

use super::tests::{AROUND, shown, with_options};
use super::*;

fn asked(kind: &str, options: &[u8]) -> QdiscSpec {
    let read = with_options(Some(options), |options| parse(kind, options, &AROUND, None));
    read.unwrap()
}

fn micros() -> impl Strategy<Value = Duration> {
    (0..u32::MAX).prop_map(|us| Duration::from_micros(us.into()))
}

/// Kept in nanoseconds in 32 bits.
fn short() -> impl Strategy<Value = Duration> {
    (1..=4_294_967_u64).prop_map(Duration::from_micros)
}

fn curve() -> impl Strategy<Value = RedCurve> {
    let bytes = (1..1_u32 << 14, 0..1_u32 << 14);
    let logs = (0..16_u8, 0..32_u8, any::<u8>());
    (bytes, logs, 1..=u32::MAX).prop_map(|((min, more), (wlog, cell_log, plog), max_p)| RedCurve {
        min,
        max: min + more,
        wlog,
        plog,
        cell_log,
        max_p,
    })
}

fn law() -> impl Strategy<Value = PieLawSpec> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (micros(), micros(), any::<(u32, u32)>(), flags).prop_map(
        |(target, tupdate, (alpha, beta), (ecn, bytemode, dq_rate_estimator))| PieLawSpec {
            target,
            tupdate,
            alpha,
            beta,
            ecn,
            bytemode,
            dq_rate_estimator,
        },
    )
}

/// A target as it is shown: in whole units of 64 ns, in microseconds.
fn rounded(mut law: PieLawSpec) -> PieLawSpec {
    let nanos = law.target.as_nanos() as u64;
    law.target = Duration::from_micros(((nanos >> 6) << 6) / 1000);
    law
}

proptest! {
    #[test]
    fn pie(limit: u32, law in law()) {
        let spec = PieSpec { limit, law };
        let options = shown(&QdiscSpec::Pie(spec.clone())).unwrap();
        let law = rounded(spec.law);
        prop_assert_eq!(asked("pie", &options), QdiscSpec::Pie(PieSpec { limit, law }));
    }

    #[test]
    fn fq_pie(
        limit: u32,
        law in law(),
        flows in 1..=65_536_u32,
        quantum in 1..=1_u32 << 20,
        (memory_limit, ecn_prob) in any::<(u32, u32)>(),
    ) {
        let quantum = Some(quantum);
        let spec = FqPieSpec { limit, flows, law, quantum, memory_limit, ecn_prob };
        let options = shown(&QdiscSpec::FqPie(spec.clone())).unwrap();
        let law = rounded(spec.law.clone());
        prop_assert_eq!(asked("fq_pie", &options), QdiscSpec::FqPie(FqPieSpec { law, ..spec }));
    }

    /// The table of idle times is not shown.
    #[test]
    fn red(limit: u32, curve in curve(), flags: [bool; 4], stab in 0..32_u8) {
        let [ecn, harddrop, adaptive, nodrop] = flags;
        let spec = RedSpec {
            limit,
            curve,
            stab: Box::new([stab; 256]),
            ecn,
            harddrop,
            adaptive,
            nodrop: nodrop && ecn,
            user_flags: 0,
        };
        let mut options = shown(&QdiscSpec::Red(spec.clone())).unwrap();
        // Flags are shown in both places, and asked for in one.
        options[19] = 0;
        options.extend([4, 1, 2, 0]);
        options.extend([stab; 256]);
        prop_assert_eq!(asked("red", &options), QdiscSpec::Red(spec));
    }

    #[test]
    fn sfq(
        red in prop::option::of(curve()),
        (quantum, perturb) in (1..1_u32 << 31, 0..=2_147_483_u64),
        (flows, divisor, depth) in (2..70_000_u32, 1..=16_u32, 1..200_u32),
        limit in prop::option::of(2..100_000_u32),
        (headdrop, ecn, harddrop) in any::<(bool, bool, bool)>(),
    ) {
        let spec = SfqSpec {
            limit,
            quantum: Some(quantum),
            perturb: Duration::from_secs(perturb),
            flows,
            divisor: 1 << divisor,
            depth,
            headdrop,
            red,
            ecn,
            harddrop,
            user_flags: 0,
        };
        prop_assert!(QdiscSpec::Sfq(spec.clone()).check().is_ok());
        let options = shown(&QdiscSpec::Sfq(spec.clone())).unwrap();
        prop_assert_eq!(options.len(), 72);
        let QdiscSpec::Sfq(again) = asked("sfq", &options) else { panic!() };
        // A limit of its own is cut to the others, and they to it.
        if limit.is_some() {
            prop_assert_eq!(&again, &spec.effective());
        }
        prop_assert_eq!(shown(&QdiscSpec::Sfq(again.clone())), shown(&QdiscSpec::Sfq(again)));
    }

    #[test]
    fn dualpi2(
        (limit, memory_limit, min_qlen_step) in (1..=u32::MAX, 1..=u32::MAX, any::<u32>()),
        (target, tupdate, step_thresh) in (micros(), short(), short()),
        step_packets in prop::option::of(any::<u32>()),
        (alpha, beta) in (2..1_u32 << 30, 2..1_u32 << 30),
        (coupling_factor, classic_protection, ecn_mask) in (1..=255_u8, 0..=100_u8, 1..=3_u8),
        flags: [bool; 3],
    ) {
        let [drop_on_overload, drop_enqueue, split_gso] = flags;
        let spec = DualPi2Spec {
            limit,
            memory_limit: Some(memory_limit),
            target,
            tupdate,
            alpha,
            beta,
            step_thresh,
            step_packets,
            min_qlen_step,
            coupling_factor,
            drop_on_overload,
            drop_enqueue,
            classic_protection,
            ecn_mask,
            split_gso,
        };
        let options = shown(&QdiscSpec::DualPi2(spec.clone())).unwrap();
        let expected = DualPi2Spec {
            alpha: dualpi2_shown_gain(alpha),
            beta: dualpi2_shown_gain(beta),
            // Not shown beside packets.
            step_thresh: match step_packets {
                Some(_) => DualPi2Spec::default().step_thresh,
                None => step_thresh,
            },
            ..spec
        };
        prop_assert_eq!(asked("dualpi2", &options), QdiscSpec::DualPi2(expected));
    }
}

/// A change keeps what it does not name; another limit takes the limit of memory with it.
#[test]
fn changes_of_dualpi2() {
    let change = |before: &QdiscSpec, options: &[u8]| {
        with_options(Some(options), |options| {
            parse("dualpi2", options, &AROUND, Some(before))
        })
    };
    let attr = |kind: u8, value: u32| [[8, 0, kind, 0], value.to_ne_bytes()].concat();
    let first = asked("dualpi2", &attr(2, 5000));
    let QdiscSpec::DualPi2(second) = change(&first, &attr(3, 7000)).unwrap() else {
        panic!()
    };
    assert_eq!((second.memory_limit, second.limit), (Some(5000), 10_000));
    let QdiscSpec::DualPi2(third) = change(&first, &attr(1, 9)).unwrap() else {
        panic!()
    };
    assert_eq!((third.memory_limit, third.limit), (None, 9));
    assert_eq!(third.memory_limit(1514), 9 * 2 * 1514);
    for (options, text) in [
        (vec![], "sch_dualpi2: Dualpi2 options are required (EINVAL)"),
        (
            [attr(7, 1), attr(8, 1)].concat(),
            "sch_dualpi2: multiple step thresh attributes (EINVAL)",
        ),
        (attr(1, 0), "integer out of range (ERANGE)"),
        (attr(5, 1 << 31), "integer out of range (ERANGE)"),
        (
            vec![5, 0, 14, 0, 4, 0, 0, 0],
            "integer out of range (ERANGE)",
        ),
        (
            vec![5, 0, 13, 0, 101, 0, 0, 0],
            "integer out of range (ERANGE)",
        ),
        (attr(14, 1), "invalid attribute length (EINVAL)"),
    ] {
        let said = change(&first, &options).map_err(|error| error.to_string());
        assert_eq!(said, Err(text.to_owned()));
    }
}

/// Blocks of filters for what `red` drops or marks are refused with a text.
#[test]
fn red_has_no_qevents() {
    let spec = RedSpec {
        limit: 1000,
        ..RedSpec::default()
    };
    let mut options = shown(&QdiscSpec::Red(spec)).unwrap();
    options.extend([4, 1, 2, 0]);
    options.extend([0; 256]);
    options.extend([8, 0, 5, 0, 10, 0, 0, 0]);
    let said = with_options(Some(&options), |options| {
        parse("red", options, &AROUND, None)
    });
    let said = said.unwrap_err();
    assert_eq!(said.errno, Errno::EOPNOTSUPP);
    assert!(said.text.unwrap().contains("no qevents"));
}
