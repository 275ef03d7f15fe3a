//! Classes that share their rates with other instances: what passes, who gets how much, and how
//! long the others wait, in virtual time.

mod changes;
mod priorities;
mod property;

use std::sync::Arc;

use softnet::qdisc::{Next, WireSize};
use softnet::time::Time;

use super::HtbClassSpec;
use super::class::Mode;
use super::scheduler::Scheduler;
use super::sharing_world::{Cores, MS, PACKET, SECOND, sharing};
use super::test_world::World;
use super::turn::Taken;
use crate::account::Sent;
use crate::handle::Handle;
use crate::rate::{RateSpec, SharedRate, SharedRates};

/// 1 Gbit/s.
const RATE: u64 = 125_000_000;

/// With so much at once that no run comes too late for it.
fn class(rate: u64, ceil: u64) -> HtbClassSpec {
    let quantum = quantum(ceil.max(rate));
    HtbClassSpec {
        ceil,
        burst: 5 * quantum + ceil / 500 + 2 * PACKET,
        cburst: 5 * quantum + ceil / 500 + 2 * PACKET,
        quantum: Some(3000),
        ..HtbClassSpec::new(rate)
    }
}

fn quantum(rate: u64) -> u64 {
    let spec = RateSpec {
        rate,
        burst: 0,
        unit: PACKET,
    };
    spec.quantum()
}

fn with_prio(spec: HtbClassSpec, prio: u32) -> HtbClassSpec {
    HtbClassSpec { prio, ..spec }
}

/// Runs for a second, after the bursts, and returns when that began.
fn run(cores: &mut Cores) -> u64 {
    let begin = SECOND + 300 * MS;
    cores.run_until(begin + SECOND);
    begin
}

#[track_caller]
fn assert_close(got: f64, due: f64, what: &str) {
    assert!(
        (got - due).abs() <= 0.05 * due + 2.0 * PACKET as f64,
        "{what}: {got} of {due}"
    );
}

/// The leaf's own ceil limits, or its rate, or what it borrows from.
#[test]
fn flows_of_a_class_get_the_same_wherever_they_are() {
    let cases = [
        // Of the class above; of the leaf.
        (class(RATE, RATE), class(RATE, RATE), RATE),
        (class(RATE, RATE), class(RATE / 10, RATE), RATE),
        (class(RATE, RATE), class(1000, RATE), RATE),
        (class(RATE, RATE), class(RATE / 10, RATE / 2), RATE / 2),
        (class(RATE / 4, RATE / 2), class(RATE / 10, RATE), RATE / 4),
    ];
    for (at, (above, leaf, rate)) in cases.into_iter().enumerate() {
        for flows in [&[7, 1][..], &[1000, 10], &[1, 1, 1, 100]] {
            let mut cores = Cores::new(flows.len(), 3);
            cores.add(1, None, above.clone());
            cores.add(2, Some(1), leaf.clone());
            cores.load(2, flows);
            let begin = run(&mut cores);
            assert!(cores.total(begin) >= 0.99 * rate as f64, "{at} {flows:?}");
            let sum: u16 = flows.iter().sum();
            for (core, &count) in flows.iter().enumerate() {
                let due = rate as f64 * f64::from(count) / f64::from(sum);
                let got = cores.bytes(core, 2, begin);
                // The draws of the leaf count where its share is but some hundred packets.
                let slack = if due < 500_000.0 {
                    3 * quantum(RATE)
                } else {
                    0
                };
                let off = (got - due).abs() - slack as f64;
                assert_close(due + off.max(0.0), due, &format!("{at} {flows:?} {count}"));
            }
        }
    }
}

/// One is at both cores, the other at one.
#[test]
fn leaves_get_the_same_wherever_their_flows_are() {
    for flows in [[1, 1], [7, 1], [100, 1]] {
        let mut cores = Cores::new(2, 5);
        cores.add(1, None, class(RATE, RATE));
        for leaf in [2, 3] {
            cores.add(leaf, Some(1), class(1000, RATE));
        }
        cores.load(2, &flows);
        cores.load(3, &[1, 0]);
        let begin = run(&mut cores);
        let half = RATE as f64 / 2.0;
        let sum = f64::from(flows[0] + flows[1]);
        assert_close(cores.bytes(0, 3, begin), half, &format!("{flows:?}"));
        for (core, flows) in flows.into_iter().enumerate() {
            let due = half * f64::from(flows) / sum;
            assert_close(cores.bytes(core, 2, begin), due, &format!("{flows} {core}"));
        }
    }
}

/// Bytes that a leaf sends with its own tokens are not taken from what others at its core borrow.
#[test]
fn guaranteed_traffic_is_charged_apart() {
    let mut cores = Cores::new(2, 5);
    cores.add(1, None, class(RATE, RATE));
    cores.add(2, Some(1), class(RATE / 2, RATE / 2));
    for leaf in [3, 4] {
        cores.add(leaf, Some(1), class(1000, RATE));
    }
    cores.load(2, &[1, 0]);
    cores.load(3, &[1, 0]);
    cores.load(4, &[0, 1]);
    let begin = run(&mut cores);
    assert_close(cores.bytes(0, 2, begin), RATE as f64 / 2.0, "guaranteed");
    assert_close(cores.bytes(0, 3, begin), RATE as f64 / 4.0, "beside it");
    assert_close(cores.bytes(1, 4, begin), RATE as f64 / 4.0, "elsewhere");
}

/// A leaf whose class cannot send for itself and does not count for others.
#[test]
fn a_class_at_its_ceil_leaves_the_rest_to_others() {
    let mut cores = Cores::new(2, 7);
    cores.add(1, None, class(RATE, RATE));
    cores.add(2, Some(1), class(1000, RATE / 10));
    for leaf in [10, 11, 12, 13] {
        cores.add(leaf, Some(2), class(1000, RATE));
        cores.load(leaf, &[1, 0]);
    }
    for (leaf, flows) in [(3, [1, 0]), (4, [0, 1])] {
        cores.add(leaf, Some(1), class(1000, RATE));
        cores.load(leaf, &flows);
    }
    let begin = run(&mut cores);
    let limited: f64 = (10..14).map(|leaf| cores.bytes(0, leaf, begin)).sum();
    let rate = RATE as f64;
    assert_close(limited, rate / 10.0, "limited");
    assert!(cores.total(begin) >= 0.99 * rate);
    // While it may send its four leaves count, for at most a tenth of the time.
    for (core, leaf) in [(0, 3), (1, 4)] {
        let got = cores.bytes(core, leaf, begin);
        assert!((got - 0.45 * rate).abs() < 0.06 * rate, "{leaf}: {got}");
    }
}

/// All of the load is at one core; then it moves at random.
#[test]
fn what_others_do_not_use_is_not_lost() {
    for count in [2, 4] {
        let mut cores = Cores::new(count, 13);
        cores.add(1, None, class(RATE, RATE));
        cores.add(2, Some(1), class(RATE / 4, RATE));
        cores.add(3, Some(1), class(RATE / 4, RATE));
        cores.load(2, &vec![3; count]);
        cores.run_until(SECOND + 50 * MS);
        (1..count).for_each(|core| cores.set_flows(core, 2, 0, SECOND + 50 * MS));
        let begin = SECOND + 100 * MS;
        cores.run_until(begin + SECOND);
        assert!(cores.total(begin) >= 0.99 * RATE as f64);
        let begin = begin + SECOND;
        let mut now = begin;
        while now < begin + SECOND {
            let (core, leaf) = (
                cores.below(count as u64) as usize,
                2 + cores.below(2) as u16,
            );
            let flows = cores.below(4) as u16;
            cores.set_flows(core, leaf, flows, now);
            // Somebody always has something.
            cores.set_flows(0, 2, 1, now);
            now += MS + cores.below(49 * MS);
            cores.run_until(now);
            cores.check();
        }
        let due = RATE as f64 * (now - begin) as f64 / SECOND as f64;
        let got = cores.total(begin);
        assert!(got >= 0.97 * due, "{got} of {due}");
    }
}

/// Both borrow; a packet of the first is let go in 121 ms only, and a frame of the second is longer
/// than its quantum.
#[test]
fn a_leaf_that_owes_is_served_while_its_neighbour_holds_its_packets_back() {
    let mut cores = Cores::new(2, 7);
    cores.add(1, None, class(RATE, RATE));
    for (minor, rate) in [(10, 1000), (20, 10_000)] {
        let spec = HtbClassSpec {
            quantum: Some(1000),
            burst: 1600,
            ..class(rate, RATE)
        };
        cores.add(minor, Some(1), spec);
        cores.load(minor, &[1, 0]);
    }
    cores.set_supply(0, 10, 1, 121 * MS);
    cores.set_supply(0, 20, 43, 0);
    let begin = run(&mut cores);
    assert_close(
        cores.bytes(0, 20, begin),
        RATE as f64,
        "the one with a backlog",
    );
    cores.check();
}

/// Frames of 64 KB, of which a quantum is a small part: whatever one leaf sent while it was alone,
/// the others get what their quanta say from the start, and all may hold their packets back.
#[test]
fn large_frames_leave_no_debt_that_others_live_on() {
    let mut cores = Cores::new(2, 7);
    cores.add(1, None, class(RATE, RATE));
    for minor in [10, 20] {
        let spec = HtbClassSpec {
            quantum: Some(1000),
            ..class(1000, RATE)
        };
        cores.add(minor, Some(1), spec);
        cores.set_supply(0, minor, 43, 0);
    }
    cores.load(10, &[1, 60]);
    cores.run_until(3 * SECOND);
    cores.check();
    cores.set_flows(1, 10, 0, 3 * SECOND);
    cores.set_flows(0, 20, 1, 3 * SECOND);
    cores.run_until(5 * SECOND);
    cores.check();
    for minor in [10, 20] {
        let got = cores.bytes(0, minor, 4 * SECOND);
        let frames = 2.0 * (43 * PACKET) as f64;
        assert!(
            (got - RATE as f64 / 2.0).abs() <= 0.05 * got + frames,
            "{minor}: {got}"
        );
    }
    cores.set_supply(0, 10, 43, 10 * MS);
    cores.set_supply(0, 20, 43, 20 * MS);
    cores.run_until(7 * SECOND);
    cores.check();
    for (minor, frames) in [(10, 100.0), (20, 50.0)] {
        let due = frames * (43 * PACKET) as f64;
        assert_close(
            cores.bytes(0, minor, 6 * SECOND),
            due,
            "a leaf that is paced",
        );
    }
}

/// An instance alone does what one does that shares nothing.
#[test]
fn alone_it_is_as_if_nothing_were_shared() {
    for (rates, ceil, prios) in [
        ([RATE / 2, RATE / 4, RATE / 8], RATE, [0, 0, 0]),
        ([1000, 1000, 1000], RATE, [0, 0, 0]),
        ([RATE / 10, RATE / 10, RATE / 10], RATE / 2, [1, 0, 1]),
        ([RATE / 10, RATE / 10, RATE / 10], RATE / 4, [2, 1, 0]),
    ] {
        let mut cores = Cores::new(1, 19);
        cores.set_delays(0, 0, 0);
        let mut world = World::new();
        let leaf = |at: usize| with_prio(class(rates[at], ceil), prios[at]);
        cores.add(1, None, class(RATE, RATE));
        world.add(1, None, class(RATE, RATE));
        for at in 0..3 {
            let minor = 2 + at as u16;
            cores.add(minor, Some(1), leaf(at));
            world.add(minor, Some(1), leaf(at));
            world.fill(minor, PACKET, 90_000);
            cores.load(minor, &[1]);
        }
        cores.run_until(2 * SECOND);
        world.run(SECOND);
        for minor in 2..5 {
            let (got, due) = (cores.bytes(0, minor, 0), world.sent_by(minor) as f64);
            let most = 3.0 * quantum(RATE) as f64;
            assert!(
                (got - due).abs() <= most,
                "{rates:?} {minor}: {got} of {due}"
            );
        }
    }
}

/// Threads that send at once: what they sent is what was taken from each class, and no more.
#[test]
fn threads_take_what_they_send() {
    const THREADS: usize = 3;
    let now = Time(SECOND);
    let burst = 300_000_000;
    let limit = HtbClassSpec {
        burst,
        cburst: burst,
        ..HtbClassSpec::new(1_000_000)
    };
    let rates = Arc::new(SharedRates::new(THREADS + 1));
    let scheduler = |index| {
        let mut scheduler = Scheduler::new(10, Some(sharing(index, &rates)));
        scheduler.add(0, 1, None, &limit, Arc::default(), now);
        scheduler.add(1, 2, Some(0), &limit, Arc::default(), now);
        scheduler
    };
    let run = |mut scheduler: Scheduler| {
        let mut sent = 0;
        scheduler.activate(1);
        while scheduler.serve(now, |scheduler, turn| {
            let packets = scheduler.allowed(turn, now) / PACKET + 1;
            let bytes = packets * PACKET;
            sent += bytes;
            Taken::Sent(Sent {
                frames: packets,
                size: WireSize {
                    packets,
                    bytes,
                    each: PACKET,
                },
                emptied: false,
                flows: 1,
            })
        }) {
            scheduler.announce(Next::Ready, now);
        }
        sent
    };
    let schedulers: Vec<_> = (0..THREADS).map(scheduler).collect();
    let sent: u64 = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (schedulers.into_iter())
            .map(|scheduler| scope.spawn(move || run(scheduler)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(sent >= burst / 2, "{sent}");
    assert!(sent <= burst + THREADS as u64 * (quantum(1_000_000) + PACKET));
    for (minor, number) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        let class = Handle::new(1, minor);
        let rate = rates.share::<SharedRate>(class, number, |_| panic!("it is there"));
        let taken = burst as i64 - rate.tokens(now);
        assert_eq!(taken, sent as i64, "{minor} {number}");
    }
}

/// Nothing waits for the class above any more, and nobody looks at that again for longer than the
/// others are to leave it its share.
#[test]
fn who_runs_next_in_a_while_leaves_the_race_at_once() {
    let now = Time(SECOND);
    for (next, lingers) in [
        (Next::Ready, true),
        (Next::At(now.plus_nanos(MS / 2)), true),
        (Next::At(now.plus_nanos(2 * MS)), false),
        (Next::Idle, false),
    ] {
        let sharing = sharing(0, &Arc::new(SharedRates::new(1)));
        let mut scheduler = Scheduler::new(10, Some(sharing));
        let mut add = |slot, minor, above, spec| {
            scheduler.add(slot, minor, above, &spec, Arc::default(), now);
        };
        add(0, 1, None, class(RATE, RATE));
        add(1, 2, Some(0), class(1000, RATE));
        scheduler.activate(1);
        scheduler.change_mode(1, Mode::MayBorrow, MS, now);
        scheduler.change_mode(1, Mode::CanSend, 0, now);
        assert_eq!(scheduler.lingering.len(), 1);
        scheduler.announce(next, now);
        assert_eq!(!scheduler.lingering.is_empty(), lingers, "{next:?}");
    }
}
