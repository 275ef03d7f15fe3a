//! Estimators: the kernel's numbers, and which of them there are as a tree changes.

use std::time::Duration;

use softnet::qdisc::*;
use softnet::time::Time;

use super::estimator::{Estimators, Sample};
use crate::testing::bench::Bench;
use crate::testing::handle;
use crate::*;

fn seconds(n: u64) -> Time {
    Time(n * 1_000_000_000)
}

fn rate(bytes: u64, packets: u64) -> Option<Rate> {
    Some(Rate { bytes, packets })
}

/// From the kernel's formula by hand: `estimator 1s 8s` is an interval of 0 and a weight of 1/8. A
/// second is 4 quarters, so 1000 bytes in one are 256,000 in 1/256 a second, of which 1/8 counts.
#[test]
fn a_known_sequence() {
    let second = Duration::from_secs(1);
    let spec = EstimatorSpec::from_times(second, 8 * second).unwrap();
    assert_eq!(spec, EstimatorSpec::new(0, 3).unwrap());
    let name = handle("1:10");
    let mut all = Estimators::default();
    assert_eq!((all.due(), all.rate(name)), (None, None));
    all.start(name, spec);
    let at = |all: &mut Estimators, now: Time, bytes, packets| {
        all.sample(now, |asked| {
            assert_eq!(asked, name);
            Some(Sample { bytes, packets })
        });
        (all.rate(name), all.due().unwrap())
    };
    assert_eq!(all.due(), Some(Time::ZERO));
    // From where to count.
    assert_eq!(at(&mut all, seconds(5), 7000, 70), (rate(0, 0), seconds(6)));
    // 32,000.
    assert_eq!(
        at(&mut all, seconds(6), 8000, 80),
        (rate(125, 1), seconds(7))
    );
    // Not due yet: nothing happens.
    assert_eq!(
        at(&mut all, Time(6_999_999_999), 1 << 40, 1),
        (rate(125, 1), seconds(7))
    );
    // 32,000 + 32,000 - 4000; 320 + 320 - 40.
    assert_eq!(
        at(&mut all, seconds(7), 9000, 90),
        (rate(234, 2), seconds(8))
    );
    // 60,000 - 7500; 600 - 75. Late, but the next is due when it was.
    assert_eq!(
        at(&mut all, Time(8_400_000_000), 9000, 90),
        (rate(205, 2), seconds(9))
    );
    // Later than a period: the next is taken at once.
    let late = Time(10_000_000_001);
    assert_eq!(
        at(&mut all, late, 9000, 90).1,
        late.plus_nanos(1),
        "52,500 - 6562"
    );
    assert_eq!(all.rate(name), rate(179, 1));
    // With other parameters it goes on from there.
    all.start(name, EstimatorSpec::new(-2, 1).unwrap());
    assert_eq!(
        (all.due(), all.rate(name)),
        (Some(Time::ZERO), rate(179, 1))
    );
    at(&mut all, seconds(11), 9000, 90);
    // A quarter of a second, half of which counts: 256,000 for 250 bytes.
    assert_eq!(
        at(&mut all, Time(11_250_000_000), 9250, 90).0,
        // 45,938 - 22,969 + 128,000.
        rate(589, 0)
    );
    all.stop(name);
    all.sample(seconds(20), |_| panic!("there is none"));
    assert_eq!((all.due(), all.rate(name)), (None, None));
}

#[test]
fn a_steady_rate_is_found_and_no_counter_overflows() {
    for interval in -2..=3_i8 {
        let spec = EstimatorSpec::new(interval, 2).unwrap();
        let period = spec.period().as_nanos() as u64;
        assert_eq!(period, 8_000_000_000_u64 >> (3 - interval));
        let name = handle("1:");
        let mut all = Estimators::default();
        all.start(name, spec);
        // 400 Gbit/s.
        let mut bytes = 0;
        for n in 0..200 {
            let now = Time(n * period);
            all.sample(now, |_| {
                Some(Sample {
                    bytes,
                    packets: bytes / 1000,
                })
            });
            bytes += 50 * period;
        }
        let Rate { bytes, packets } = all.rate(name).unwrap();
        assert!(
            (49_999_999_900..=50_000_000_000).contains(&bytes),
            "{bytes}"
        );
        assert!((49_999_900..=50_000_000).contains(&packets), "{packets}");
        for n in 200..300 {
            let odd = u64::MAX * (n % 2);
            let now = Time(n * period);
            all.sample(now, |_| {
                Some(Sample {
                    bytes: odd,
                    packets: odd,
                })
            });
        }
    }
}

/// As tc computes the parameters from its words.
#[test]
fn words_of_tc() {
    let ms = Duration::from_millis;
    for (interval, average, expected) in [
        (1000, 8000, Some((0, 3))),
        (250, 500, Some((-2, 1))),
        (1, 2, Some((-2, 1))),
        (251, 1000, Some((-1, 2))),
        (8000, 64_000, Some((3, 3))),
        (8000, 8000, None),
        (8001, 64_000, None),
        (1000, 0, None),
        (0, 1000, None),
        (1, 1 << 29, Some((-2, 29))),
        (1, 1 << 40, None),
    ] {
        let spec = EstimatorSpec::from_times(ms(interval), ms(average));
        let expected = expected.map(|(i, e)| EstimatorSpec::new(i, e).unwrap());
        assert_eq!(spec.ok(), expected, "{interval} {average}");
    }
    for (interval, ewma_log) in [(-3, 1), (4, 1), (0, 0), (0, 31), (i8::MIN, u8::MAX)] {
        let spec = EstimatorSpec::new(interval, ewma_log);
        assert_eq!(spec, Err(EstimatorError::Range));
    }
    for (interval, ewma_log) in (-2..=3).flat_map(|i| (1..=30).map(move |log| (i, log))) {
        let spec = EstimatorSpec::new(interval, ewma_log).unwrap();
        let again = EstimatorSpec::from_times(spec.period(), spec.average());
        assert_eq!(again, Ok(spec), "{spec}");
    }
    for ((interval, ewma_log), words) in [((0, 3), "1s 8s"), ((-2, 1), "250ms 500ms")] {
        let spec = EstimatorSpec::new(interval, ewma_log).unwrap();
        assert_eq!(spec.to_string(), words);
    }
}

/// An estimator goes with its qdisc or class, and one that comes in its place starts anew.
#[test]
fn estimators_go_with_what_they_are_of() {
    let mut bench = Bench::new([(
        "root",
        "1:",
        QdiscSpec::Htb(HtbSpec {
            default: 0x10,
            ..HtbSpec::default()
        }),
    )]);
    let spec = EstimatorSpec::new(0, 1).unwrap();
    let class = ClassSpec::Htb(HtbClassSpec {
        burst: 10_000,
        cburst: 10_000,
        ..HtbClassSpec::new(1_000_000_000)
    });
    {
        let mut tree = bench.tree.edit(&mut bench.cx);
        for name in ["1:10", "1:20"] {
            tree.add_class(handle("1:"), handle(name), class.clone())
                .unwrap();
        }
        tree.add(handle("1:10"), handle("2:"), QdiscSpec::Pfifo { limit: 9 })
            .unwrap();
        for name in ["1:", "2:", "1:10", "1:20"] {
            tree.set_estimator(handle(name), spec).unwrap();
        }
        for (name, error) in [
            ("3:", "no qdisc 3:"),
            ("1:30", "no class 1:30"),
            ("2:1", "2:1"),
        ] {
            let result = tree.set_estimator(handle(name), spec);
            assert!(result.unwrap_err().to_string().contains(error), "{name}");
        }
    }
    let all = |bench: &mut Bench, now: u64| {
        let stats = *bench.tree.stats();
        bench.tree.tree.sample_rates(seconds(now), &[stats]);
        ["1:", "2:", "1:10", "1:20"]
            .map(|name| bench.tree.tree.rate(handle(name)).map(|r| r.bytes))
    };
    assert_eq!(all(&mut bench, 0), [Some(0); 4]);
    bench.offer(0..4, 1000, 0);
    assert_eq!(bench.all(), [0, 1, 2, 3]);
    assert_eq!(
        all(&mut bench, 1),
        [Some(2000), Some(2000), Some(2000), Some(0)]
    );
    let change = |bench: &mut Bench,
                  f: &mut dyn FnMut(&mut LiveTree<'_>) -> Result<(), SpecError>| {
        f(&mut bench.tree.edit(&mut bench.cx)).unwrap();
    };
    // Other parameters change nothing; another qdisc with the name has none.
    change(&mut bench, &mut |tree| {
        tree.change_class(handle("1:10"), &class)
    });
    change(&mut bench, &mut |tree| {
        tree.replace(handle("1:10"), handle("2:"), QdiscSpec::Pfifo { limit: 8 })
            .map(|_| ())
    });
    change(&mut bench, &mut |tree| tree.delete_class(handle("1:20")));
    assert_eq!(all(&mut bench, 1), [Some(2000), None, Some(2000), None]);
    // The same names again: from nothing.
    change(&mut bench, &mut |tree| {
        tree.add_class(handle("1:"), handle("1:20"), class.clone())
    });
    change(&mut bench, &mut |tree| {
        tree.set_estimator(handle("2:"), spec)
    });
    assert_eq!(all(&mut bench, 1), [Some(2000), Some(0), Some(2000), None]);
    let as_it_is = bench.tree.spec().clone();
    assert_eq!(as_it_is.estimator(handle("1:10")), Some(spec));
    change(&mut bench, &mut |tree| tree.delete(handle("1:")));
    assert_eq!(all(&mut bench, 2), [None; 4]);
    // A tree that is set has those that it says.
    change(&mut bench, &mut |tree| tree.set(as_it_is.clone()));
    assert_eq!(all(&mut bench, 2), [Some(0), Some(0), Some(0), None]);
}

#[test]
fn mq_has_none_but_its_queues_have() {
    let pool = softnet::testing::pool(8);
    let mut spec = TreeSpec::new();
    spec.add(Handle::ROOT, handle("1:"), QdiscSpec::Mq).unwrap();
    spec.add(handle("1:2"), handle("2:"), QdiscSpec::Pfifo { limit: 9 })
        .unwrap();
    let estimator = EstimatorSpec::new(0, 1).unwrap();
    let none = spec.set_estimator(handle("1:"), estimator).unwrap_err();
    let text = "Cannot attach rate estimator to a multi-queue root qdisc";
    assert_eq!(none.to_string(), text);
    spec.set_estimator(handle("2:"), estimator).unwrap();
    let (mut tree, _) = DeviceTree::new(spec, 3, &QdiscEnv::new(&pool)).unwrap();
    let queue = |bytes| QdiscStats {
        bytes,
        ..QdiscStats::default()
    };
    tree.sample_rates(seconds(0), &[queue(5), queue(6), queue(7)]);
    tree.sample_rates(seconds(1), &[queue(1 << 30), queue(1006), queue(1 << 30)]);
    assert_eq!(tree.rate(handle("2:")), rate(500, 0));
}
