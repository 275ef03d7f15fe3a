//! What instances gain or lose that leave and come back, reserve more than a quantum, pay without
//! asking, or share two rates.

use super::*;

const SECOND: u64 = 1_000_000_000;

fn spec(rate: u64, burst: u64) -> RateSpec {
    RateSpec {
        rate,
        burst,
        unit: 1514,
    }
}

/// One with a backlog of small packets, and one that has a large packet at a time.
#[test]
fn who_leaves_after_each_packet_has_no_more() {
    let rate = 12_500_000;
    for (pays_after, large) in [(false, 1514), (true, 1514), (true, 20_000)] {
        let members = Members::new(2);
        let shared = SharedRate::new(spec(rate, 40_000), &members);
        let mut pots = [0, 1].map(|i| shared.pot(i));
        let (mut at, mut sent) = ([SECOND; 2], [0; 2]);
        while at[0].min(at[1]) < SECOND * 5 / 4 {
            let i = usize::from(at[1] < at[0]);
            let (pot, now, units) = (&mut pots[i], Time(at[i]), [60, large][i]);
            let allowed = match pays_after {
                true => pot.ready(Demand::flows(1), now),
                false => pot.reserve(units, 1, now),
            };
            at[i] = match allowed {
                Ok(()) => {
                    match pays_after {
                        true => drop(pot.charge(units, Demand::flows(1), now)),
                        false => pot.spend(units),
                    }
                    if i == 1 {
                        pot.leave();
                    }
                    sent[i] += units;
                    at[i] + 1000
                }
                Err(time) => time.nanos(),
            };
            members.announce(i, Time(at[i]));
        }
        let all = sent[0] + sent[1];
        assert!(all >= rate / 4, "{pays_after} {large}: {sent:?}");
        assert!(sent[0] >= all * 2 / 5, "{pays_after} {large}: {sent:?}");
    }
}

/// One has small packets, one large ones: each is ahead in what the other lacks.
#[test]
fn two_rates_of_a_group_do_not_wait_for_each_other() {
    let rate = |rate: u64, unit: u64| {
        let burst = (rate / 100).max(10 * unit);
        RateSpec { rate, burst, unit }
    };
    // Bytes lack, both, packets.
    for pps in [1_000_000, 20_000, 5000] {
        let spec = GroupSpec {
            bytes: Some(rate(12_500_000, 1518)),
            packets: Some(rate(pps, 1)),
        };
        let group = RateGroup::new(spec);
        let mut limits = [0, 1].map(|_| group.join());
        let (mut at, mut bytes, mut packets) = ([SECOND; 2], 0, 0);
        while at[0].min(at[1]) < 2 * SECOND {
            let i = usize::from(at[1] < at[0]);
            let (limit, now) = (&mut limits[i], Time(at[i]));
            at[i] = match limit.allowed(|| 1, now) {
                Ok(most) => {
                    let count = most.min(64);
                    limit.charge(count * [60, 1514][i], count, || 1, now);
                    (bytes, packets) = (bytes + count * [60, 1514][i], packets + count);
                    at[i] + 1000
                }
                Err(time) => time.nanos(),
            };
            limit.announce(Time(at[i]));
        }
        let used = (bytes as f64 / 12_500_000.0).max(packets as f64 / pps as f64);
        assert!((0.99..1.03).contains(&used), "{pps}: {bytes} {packets}");
    }
}

/// What is reserved waits in the pots until all spend it at once, as the bound allows.
#[test]
fn a_window_holds_what_was_reserved_for_large_frames() {
    const FRAME: u64 = 64_000;
    let shared = SharedRate::new(spec(1_000_000, 100_000), &Members::new(4));
    let mut pots = [0, 1, 2, 3].map(|i| shared.pot(i));
    let (mut now, mut sent) = (Time(SECOND), 0);
    for pot in &mut pots {
        while pot.reserve(FRAME, 1, now).is_ok() {
            pot.spend(FRAME);
        }
    }
    // All have come due, and the bucket is full.
    now = now.plus_nanos(SECOND);
    for pot in &mut pots {
        while pot.reserve(FRAME, 1, now).is_ok() {
            pot.spend(FRAME);
            sent += FRAME;
        }
    }
    assert!(sent > 100_000 + 4 * shared.spec().quantum());
    assert!(sent <= 100_000 + 4 * FRAME);
}

/// Whatever is asked for, up to the most, is not mistaken for a full bucket.
#[test]
fn the_most_that_is_reserved_is_a_debt() {
    const MOST: u64 = 1 << 40;
    for rate in [1, 1000, u64::MAX] {
        for burst in [0, 1, MOST] {
            let shared = SharedRate::new(spec(rate, burst), &Members::new(1));
            let mut pot = shared.pot(0);
            let (now, mut drawn) = (Time(SECOND), 0);
            for _ in 0..200 {
                if pot.charge(MOST, Demand::flows(1), now) > now {
                    drawn += 1;
                    assert!(shared.tokens(now) < 0, "{rate} {burst}");
                }
            }
            assert!(drawn > 0);
        }
    }
}

/// It was made smaller than what waits, and the other one does not draw.
#[test]
fn a_full_bucket_waits_for_nobody() {
    let members = Members::new(2);
    let shared = SharedRate::new(spec(1_000_000, 1000), &members);
    let [mut a, mut b] = [0, 1].map(|i| shared.pot(i));
    let mut now = Time(SECOND);
    assert_eq!(b.reserve(1000, 1, now), Ok(()));
    b.spend(1000);
    // It is in the race from now on.
    b.reserve(1, 1, now).unwrap_err();
    let mut sent = 0;
    for _ in 0..1000 {
        members.announce(1, now);
        match a.reserve(1514, 1, now) {
            Ok(()) => {
                a.spend(1514);
                sent += 1;
            }
            Err(time) => now = time,
        }
    }
    assert!(sent > 100, "{sent}");
}

/// What is charged is not asked for, and so the change is not seen before.
#[test]
fn who_pays_learns_of_a_higher_rate() {
    let shared = SharedRate::new(spec(1, 0), &Members::new(1));
    let (now, later) = (Time(SECOND), Time(2 * SECOND));
    let mut pot = shared.pot(0);
    assert_eq!(pot.charge(20, Demand::flows(1), now), Time(21 * SECOND));
    shared.set(spec(1000, 5000), now);
    assert_eq!(pot.charge(20, Demand::flows(1), later), later);
    assert_eq!(pot.ready(Demand::flows(1), later), Ok(()));
}
