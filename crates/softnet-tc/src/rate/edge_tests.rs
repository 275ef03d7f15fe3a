//! Gains and losses of instances that leave and come back, reserve more than a quantum, pay
//! without asking, or share two rates.

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

/// Reserved units wait in the pots until all spend them at once, as the bound allows.
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

/// One of a lower priority looks less and less often, as far as the burst makes up for it or a
/// packet takes that long, and from the start when it comes back.
#[test]
fn who_waits_long_looks_less_often() {
    for (rate, burst, most) in [
        (125_000_000, 2_000_000, 4_000_000),
        (125_000_000, 1600, 1_000_000),
        (500_000, 1600, 3_028_000),
        (1000, 1600, 10_000_000),
    ] {
        let members = Members::new(2);
        let shared = SharedRate::new(spec(rate, burst), &members);
        let [mut a, mut b] = [0, 1].map(|i| shared.pot(i));
        let mut now = Time(SECOND);
        let [high, low] = [0, 1].map(|prio| Demand { weight: 16, prio });
        members.announce(0, now.plus_nanos(SECOND));
        assert_eq!(b.reserve(1, 1, now), Ok(()));
        b.spend(b.credit().unsigned_abs() + 1);
        // With the second it is in the race: the bucket is not full any more.
        for _ in 0..2 {
            a.charge(rate + burst, high, now);
        }
        let mut look = |b: &mut Pot, demand| {
            let next = b.ready(demand, now).unwrap_err();
            let distance = next.nanos() - now.nanos();
            now = next;
            distance
        };
        let distances: Vec<_> = (0..40).map(|_| look(&mut b, low)).collect();
        assert_eq!(distances[..4], [200_000; 4], "{rate} {burst}");
        assert!(distances.is_sorted(), "{distances:?}");
        assert_eq!(distances[39], most);
        b.leave();
        assert_eq!(look(&mut b, low), 200_000);
        // It does not wait for one that is late, only for what is owed.
        let now = Time(2 * SECOND + 10_000_001);
        let due = b.ready(low, now).unwrap_err();
        assert!(due > now.plus_nanos(SECOND / 10), "{due:?}");
    }
}

/// Two that race, each with a backlog, and draws of a quantum.
fn race(weights: [u32; 2]) -> (turns::Turns, [turns::Turn; 2], impl Fn(u64) -> u64) {
    let turns = turns::Turns::new(Members::new(2));
    let mut both = [0, 1].map(turns::Turn::new);
    let spec = spec(1_000_000, 100_000);
    for (turn, weight) in both.iter_mut().zip(weights) {
        let demand = Demand { weight, prio: 0 };
        assert!(turn.check(&turns, &spec, 0, demand, Time::ZERO).is_ok());
    }
    (turns, both, move |draws| draws * spec.quantum())
}

/// True if it may draw, with a weight of 16.
fn may_draw(turn: &mut turns::Turn, turns: &turns::Turns) -> bool {
    let demand = Demand::flows(1);
    turn.check(turns, &spec(1_000_000, 100_000), 0, demand, Time::ZERO)
        .is_ok()
}

#[test]
fn who_left_ahead_comes_back_ahead_of_what_the_others_drew() {
    let (turns, [mut a, mut b], draws) = race([16, 16]);
    a.advance(&turns, draws(10));
    assert!(!may_draw(&mut a, &turns));
    a.leave(&turns);
    assert!(may_draw(&mut b, &turns));
    b.advance(&turns, draws(3));
    assert!(!may_draw(&mut a, &turns), "ahead by 7");
    b.advance(&turns, draws(5));
    assert!(!may_draw(&mut a, &turns), "ahead by 2");
    b.advance(&turns, draws(1));
    assert!(may_draw(&mut a, &turns));
}

#[test]
fn who_left_behind_comes_back_as_far_behind() {
    let (turns, [mut a, mut b], draws) = race([16, 16]);
    a.advance(&turns, draws(5));
    b.leave(&turns);
    a.advance(&turns, draws(20));
    assert!(may_draw(&mut b, &turns));
    assert!(!may_draw(&mut a, &turns), "ahead by 5, not by 25");
    b.advance(&turns, draws(3));
    assert!(!may_draw(&mut a, &turns));
    b.advance(&turns, draws(1));
    assert!(may_draw(&mut a, &turns));
}

#[test]
fn who_was_late_catches_up_on_64_draws() {
    let (turns, [mut a, mut b], draws) = race([16, 16]);
    a.advance(&turns, draws(90));
    assert!(may_draw(&mut b, &turns));
    b.advance(&turns, draws(62));
    assert!(!may_draw(&mut a, &turns));
    b.advance(&turns, draws(1));
    assert!(may_draw(&mut a, &turns));
}

#[test]
fn a_light_one_draws_a_packet_at_least() {
    let (turns, [mut a, _], _) = race([16, 16 * 4096]);
    let spec = spec(1_000_000, 100_000);
    let draw = a.check(&turns, &spec, 0, Demand::flows(1), Time::ZERO);
    assert_eq!(draw, Ok(spec.unit));
}

/// It asks for another priority before it was to look again.
#[test]
fn who_asks_with_a_higher_priority_looks_at_once() {
    let members = Members::new(2);
    let shared = SharedRate::new(spec(1000, 2000), &members);
    let [mut a, mut b] = [0, 1].map(|i| shared.pot(i));
    let now = Time(SECOND);
    let [high, low] = [0, 1].map(|prio| Demand { weight: 16, prio });
    members.announce(0, now.plus_nanos(SECOND));
    assert_eq!(b.reserve(1, 1, now), Ok(()));
    b.spend(b.credit().unsigned_abs() + 1);
    for _ in 0..2 {
        a.charge(3000, high, now);
    }
    assert_eq!(b.ready(low, now), Err(now.plus_nanos(200_000)));
    assert!(b.ready(high, now).unwrap_err() > now.plus_nanos(SECOND));
}

#[test]
fn a_minute_is_drawn_in_advance_at_most() {
    let shared = SharedRate::new(spec(1000, 0), &Members::new(1));
    let now = Time(SECOND);
    let draw = || shared.word.draw(10_000, 10_000, word::Lack::Turn, now);
    for turn in 1..=7 {
        let due = now.plus_nanos(10 * turn * SECOND);
        assert_eq!(draw(), word::Draw::Reserved(10_000, due));
    }
    let due = now.plus_nanos(70 * SECOND);
    assert_eq!(draw(), word::Draw::Refused(due));
    // With a lower rate it is a minute of that.
    shared.set(spec(1, 0), now);
    assert_eq!(shared.tokens(now), -60);
}

/// Nobody drew since the latest change.
#[test]
fn a_change_is_not_before_the_one_before_it() {
    let shared = SharedRate::new(spec(10, 0), &Members::new(1));
    let at = |seconds| Time(seconds * SECOND);
    shared.word.draw(100, 100, word::Lack::Turn, at(1));
    shared.set(spec(1, 0), at(5));
    assert_eq!(shared.tokens(at(5)), -60);
    shared.set(spec(10, 0), at(2));
    assert_eq!(shared.tokens(at(5)), -60);
    assert_eq!(shared.tokens(at(6)), -50);
    // The same again is no change.
    shared.set(spec(10, 0), at(6));
    assert_eq!(shared.word.view().number, 2);
}

/// So many may be sent as both rates have credit for.
#[test]
fn a_group_allows_what_both_rates_allow() {
    let now = Time(SECOND);
    let rate = |rate, unit| RateSpec {
        rate,
        burst: rate * unit,
        unit,
    };
    for (bytes, packets) in [(1000, 1_000_000), (1_000_000_000, 1)] {
        let group = RateGroup::new(GroupSpec {
            bytes: Some(rate(bytes, 1000)),
            packets: Some(rate(packets, 1)),
        });
        let mut limit = group.join();
        limit.charge(1, 1, || 1, now);
        assert!(limit.allowed(|| 1, now).unwrap() <= 1, "{bytes} {packets}");
    }
}

#[test]
fn who_leaves_a_group_leaves_its_place() {
    let group = RateGroup::new(GroupSpec {
        bytes: None,
        packets: None,
    });
    let first = group.join().bytes.instance();
    for _ in 0..1000 {
        assert_eq!(group.join().bytes.instance(), first);
    }
}

/// A charge is not asked for, and so the change is not seen before.
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

/// Who changes it read the clock, then waited for the owner of a queue; others went on meanwhile.
#[test]
fn a_change_at_a_time_that_has_passed_makes_no_debt() {
    let (before, then) = (Time(SECOND), Time(SECOND + 5_000_000));
    let shared = SharedRate::new(spec(1_250_000_000, 1_000_000), &Members::new(1));
    let mut pot = shared.pot(0);
    assert_eq!(pot.reserve(1514, 1, then), Ok(()));
    pot.spend(1514);
    shared.set(spec(1_250_000, 1_000_000), before);
    let left = shared.tokens(then) + pot.credit();
    assert_eq!(left, 1_000_000 - 1514);
}

#[test]
fn one_large_frame_is_a_minute_of_debt_at_most() {
    let shared = SharedRate::new(spec(125, 2000), &Members::new(1));
    let (mut pot, now) = (shared.pot(0), Time(SECOND));
    assert_eq!(pot.charge(65_536, Demand::flows(1), now), Time(61 * SECOND));
    assert_eq!(pot.ready(Demand::flows(1), Time(61 * SECOND)), Ok(()));
}

/// The pots were filled while there was no limit.
#[test]
fn a_limit_that_is_added_holds_for_what_is_in_the_pots() {
    let bytes = |rate| RateSpec {
        rate,
        burst: 15_180,
        unit: 1518,
    };
    let packets = |rate| RateSpec {
        rate,
        burst: 10,
        unit: 1,
    };
    let none = GroupSpec {
        bytes: Some(bytes(1 << 40)),
        packets: None,
    };
    let by_packets = GroupSpec {
        packets: Some(packets(1000)),
        ..none
    };
    let group = RateGroup::new(none);
    let mut limits = [0, 1].map(|_| group.join());
    let now = Time(SECOND);
    for limit in &mut limits {
        limit.allowed(|| 1, now).unwrap();
        limit.charge(60, 1, || 1, now);
    }
    group.set(by_packets, now);
    let mut passed = 0;
    for limit in &mut limits {
        while let Ok(most) = limit.allowed(|| 1, now)
            && passed < 10_000
        {
            let count = most.min(64);
            limit.charge(count, count, || 1, now);
            passed += count;
        }
    }
    assert!(passed <= 10 + 2 * (64 + 64), "{passed}");
}

/// A thread read the clock and was held up for longer than a debt lasts.
#[test]
fn who_comes_with_a_time_long_ago_forgives_no_debt() {
    let shared = SharedRate::new(spec(100_000_000_000, 0), &Members::new(2));
    let (long_ago, now) = (Time(10 * SECOND), Time(100 * SECOND));
    let [mut a, mut b] = [0, 1].map(|i| shared.pot(i));
    for _ in 0..4 {
        a.charge(1 << 40, Demand::flows(1), now);
    }
    b.charge(1500, Demand::flows(1), long_ago);
    assert_eq!(shared.tokens(now), -(4 << 40) - 1500);
}

/// Nobody drew for more than a minute before, so nothing says how long but the change itself.
#[test]
fn a_change_after_a_long_time_makes_no_tokens() {
    let shared = SharedRate::new(spec(1, 2000), &Members::new(1));
    let (begin, change) = (Time(SECOND), Time(1000 * SECOND));
    let mut pot = shared.pot(0);
    assert_eq!(pot.reserve(1514, 1, begin), Ok(()));
    shared.set(spec(u64::MAX, 1 << 40), change);
    assert_eq!(shared.tokens(change), 2000 - 515);
}

/// The change before the last had the same number in the word.
#[test]
fn who_waits_learns_of_a_rate_that_has_changed_1024_times() {
    let shared = SharedRate::new(spec(1, 0), &Members::new(1));
    let now = Time(SECOND);
    let mut pot = shared.pot(0);
    assert_eq!(pot.reserve(30, 1, now), Err(Time(31 * SECOND)));
    for rate in (1..=1024).rev() {
        shared.set(spec(1000 * rate, 0), now);
    }
    assert_eq!(shared.spec().rate, 1000);
    assert_eq!(
        pot.reserve(30, 1, now),
        Err(now.plus_nanos(SECOND * 3 / 100))
    );
}
