//! Classes of several priorities that share a rate.

use super::*;

#[test]
fn a_higher_priority_has_all_that_it_asks_for() {
    for cores in 2..=4 {
        let mut cores = Cores::new(cores, 11);
        cores.add(1, None, class(RATE, RATE));
        cores.add(2, Some(1), with_prio(class(1000, RATE), 0));
        cores.add(3, Some(1), with_prio(class(1000, RATE), 1));
        let high = vec![1; 1];
        cores.load(2, &high);
        let low = vec![5; cores.count()];
        cores.load(3, &low);
        let begin = run(&mut cores);
        let got = cores.bytes(0, 2, begin);
        assert!(got >= 0.99 * RATE as f64, "{got}");
        // It ends: the others have all of it.
        cores.set_flows(0, 2, 0, begin + SECOND);
        let begin = begin + SECOND + 5 * MS;
        cores.run_until(begin + SECOND);
        assert!(cores.total(begin) >= 0.99 * RATE as f64);
    }
}

/// Who waits for a higher priority looks as often as is of use. Each run is a look.
#[test]
fn a_lower_priority_does_not_look_again_and_again() {
    for (rate, most) in [(RATE, 1100), (RATE / 10, 1100), (RATE / 1000, 150)] {
        let mut cores = Cores::new(2, 31);
        cores.set_delays(1, 0, 0);
        cores.add(1, None, class(rate, rate));
        cores.add(2, Some(1), with_prio(class(1000, rate), 0));
        cores.add(3, Some(1), with_prio(class(1000, rate), 1));
        cores.load(2, &[1, 0]);
        cores.load(3, &[0, 1]);
        let begin = run(&mut cores);
        let before = cores.runs(1);
        cores.run_until(begin + 2 * SECOND);
        let runs = cores.runs(1) - before;
        assert!(runs <= most, "{rate}: {runs}");
        assert!(cores.bytes(0, 2, begin + SECOND) >= 0.99 * rate as f64);
        // The higher one ends: it waits no longer than a quarter of what it did.
        cores.set_flows(0, 2, 0, begin + 2 * SECOND);
        let begin = begin + 2 * SECOND;
        cores.run_until(begin + SECOND);
        assert!(cores.bytes(1, 3, begin) >= 0.98 * rate as f64, "{rate}");
    }
}

/// A packet of a high priority comes while others have all of it: what each of the others has in
/// its pot may go first.
#[test]
fn a_packet_of_high_priority_waits_for_pots_only() {
    let rate = RATE / 10;
    for count in [2, 4] {
        let mut cores = Cores::new(count, 17);
        cores.add(1, None, class(rate, rate));
        cores.add(2, Some(1), with_prio(class(1000, rate), 0));
        cores.add(3, Some(1), with_prio(class(1000, rate), 3));
        for core in 0..count {
            cores.set_delays(core, 0, 0);
        }
        cores.load(3, &vec![2; count]);
        let mut now = SECOND + 300 * MS;
        cores.run_until(now);
        for _ in 0..50 {
            let before = cores.sent.len();
            cores.set_flows(0, 2, 1, now);
            while !cores.sent[before..].iter().any(|sent| sent.minor == 2) {
                now += 1000;
                cores.run_until(now);
            }
            let first = cores.sent[before..].iter().find(|sent| sent.minor == 2);
            let waited = first.unwrap().time - cores.sent[before].time;
            // What is in pots or reserved, each at most Q, and one packet.
            let bytes = count as u64 * quantum(rate) + PACKET;
            let bound = bytes * SECOND / rate;
            assert!(waited <= bound, "{waited} of {bound}");
            cores.set_flows(0, 2, 0, now);
            now += 7 * MS + cores.below(5 * MS);
            cores.run_until(now);
        }
    }
}

/// A leaf of a higher priority, at its ceil: others have what it cannot take.
#[test]
fn a_leaf_at_its_ceil_leaves_the_class_above_to_lower_priorities() {
    let mut cores = Cores::new(2, 7);
    let small = |rate, ceil, prio| HtbClassSpec {
        burst: 1600,
        cburst: 1600,
        ..with_prio(class(rate, ceil), prio)
    };
    cores.add(1, None, small(RATE, RATE, 0));
    cores.add(10, Some(1), small(10, RATE / 3, 0));
    cores.add(20, Some(1), small(RATE / 100, RATE, 1));
    cores.load(10, &[1, 0]);
    cores.load(20, &[0, 1]);
    let begin = run(&mut cores);
    cores.check();
    let got = cores.bytes(1, 20, begin);
    // Runs are late, and so small a burst loses what comes meanwhile: 35 % of the rate are left of
    // 67 %; 15 % if the leaf above waits on.
    assert!(got >= 0.3 * RATE as f64, "{got}");
}

/// A leaf at another priority joins and leaves between the draws of this one.
#[test]
fn a_visit_to_another_priority_gains_nothing() {
    let mut cores = Cores::new(2, 23);
    cores.add(1, None, class(RATE, RATE));
    cores.add(2, Some(1), with_prio(class(1000, RATE), 0));
    cores.add(3, Some(1), with_prio(class(1000, RATE), 1));
    cores.load(3, &[1, 1]);
    let mut now = SECOND + 300 * MS;
    cores.run_until(now);
    let begin = now;
    while now < begin + SECOND {
        cores.set_flows(0, 2, 1, now);
        cores.run_until(now + MS / 10);
        cores.set_flows(0, 2, 0, now + MS / 10);
        now += MS;
        cores.run_until(now);
    }
    let high = cores.bytes(0, 2, begin);
    let due = (cores.total(begin) - high) / 2.0;
    for core in 0..2 {
        assert_close(cores.bytes(core, 3, begin), due, &format!("{core}"));
    }
}
