//! Instances in virtual time: random rates, packets, weights, delays and changes, against the
//! bounds that the module states.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A pseudo-random sequence (Numerical Recipes).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Load of an instance.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Flows; none: nothing to send.
    weight: u16,
    /// Nanoseconds by which a run is late, at most.
    delay: u64,
    /// One in so many runs is late by 5 ms. 0: none.
    stalls: u64,
    /// Pays after it has sent.
    pays_after: bool,
}

impl Load {
    fn of(weight: u16) -> Load {
        Load {
            weight,
            delay: 60_000,
            stalls: 0,
            pays_after: false,
        }
    }
}

struct World {
    shared: Arc<SharedRate>,
    members: Arc<Members>,
    pots: Vec<Pot>,
    loads: Vec<Load>,
    runs: BinaryHeap<Reverse<(u64, usize)>>,
    random: Random,
    /// Packets sent: when, by whom, how long.
    sent: Vec<(u64, usize, u64)>,
    /// The longest packet; the shortest has 60 bytes.
    longest: u64,
}

impl World {
    fn new(spec: RateSpec, loads: &[Load], seed: u64) -> World {
        let members = Members::new(loads.len());
        let shared = SharedRate::new(spec, &members);
        World {
            pots: (0..loads.len()).map(|i| shared.pot(i)).collect(),
            shared,
            members,
            loads: loads.to_vec(),
            runs: (0..loads.len()).map(|i| Reverse((SECOND, i))).collect(),
            random: Random(seed),
            sent: Vec::new(),
            longest: spec.unit,
        }
    }

    fn run_until(&mut self, end: u64) {
        while let Some(&Reverse((now, instance))) = self.runs.peek() {
            if now >= end {
                return;
            }
            self.runs.pop();
            if let Some((next, waits)) = self.run(instance, Time(now)) {
                let load = self.loads[instance];
                self.members.announce(instance, next);
                let late = match load.stalls > 0 && self.random.below(load.stalls) == 0 {
                    true => 5_000_000,
                    false if waits => self.random.below(load.delay + 1),
                    false => 0,
                };
                self.runs.push(Reverse((next.nanos() + late, instance)));
            }
        }
    }

    /// Sends at most 64 packets. Returns when to run again, and whether it must wait for that.
    fn run(&mut self, instance: usize, now: Time) -> Option<(Time, bool)> {
        let load = self.loads[instance];
        let pot = &mut self.pots[instance];
        if load.weight == 0 {
            pot.leave();
            return None;
        }
        for _ in 0..64 {
            let packet = 60 + self.random.below(self.longest - 59);
            let allowed = match load.pays_after {
                true => pot.ready(Demand::flows(load.weight), now),
                false => pot.reserve(packet, load.weight, now),
            };
            if let Err(time) = allowed {
                assert!(time > now);
                return Some((time, true));
            }
            match load.pays_after {
                true => drop(pot.charge(packet, Demand::flows(load.weight), now)),
                false => pot.spend(packet),
            }
            self.sent.push((now.nanos(), instance, packet));
        }
        // It takes a microsecond to send them.
        Some((now.plus_nanos(1000), false))
    }

    /// Sent by an instance in a time.
    fn bytes(&self, instance: usize, from: u64, to: u64) -> u64 {
        let within =
            |&&(time, of, _): &&(u64, usize, u64)| of == instance && (from..to).contains(&time);
        self.sent.iter().filter(within).map(|sent| sent.2).sum()
    }

    fn total(&self, from: u64, to: u64) -> u64 {
        (0..self.pots.len()).map(|i| self.bytes(i, from, to)).sum()
    }

    /// The most that was sent beyond the rate in any window, in bytes.
    fn worst_window(&self, rate: u64) -> u64 {
        let (mut level, mut last, mut worst) = (0u128, 0, 0);
        for &(time, _, bytes) in &self.sent {
            level = level.saturating_sub(u128::from(time - last) * u128::from(rate));
            last = time;
            level += u128::from(bytes) * u128::from(SECOND);
            worst = worst.max(level);
        }
        u64::try_from(worst / u128::from(SECOND)).unwrap()
    }
}

fn spec(rate: u64, burst: u64) -> RateSpec {
    RateSpec {
        rate,
        burst,
        unit: 1514,
    }
}

/// So much that no run comes too late for it.
fn ample(rate: u64, instances: u64) -> RateSpec {
    let spec = spec(rate, 0);
    self::spec(rate, instances * spec.quantum() + rate / 500 + 2 * 1514)
}

#[test]
fn the_rate_is_kept_from_10_mbit_to_100_gbit() {
    for rate in [
        1_250_000,
        12_500_000,
        125_000_000,
        1_250_000_000,
        12_500_000_000,
    ] {
        for instances in [1, 2, 5] {
            let loads = vec![
                Load {
                    delay: 20_000,
                    ..Load::of(1)
                };
                instances
            ];
            let mut world = World::new(ample(rate, instances as u64), &loads, 7);
            // At the higher rates less time: it is millions of packets.
            let time = (SECOND / (rate / 125_000_000).clamp(1, 20)).max(50_000_000);
            let begin = SECOND + time / 4;
            world.run_until(begin + time);
            let sent = world.total(begin, begin + time) as f64;
            let due = rate as f64 * time as f64 / 1e9;
            let error = (sent - due).abs();
            assert!(
                error <= due * 0.002 + 1514.0,
                "{rate} {instances}: {sent} of {due}"
            );
        }
    }
}

#[test]
fn weights_are_kept_whatever_their_distribution() {
    let rate = 125_000_000;
    for weights in [
        &[1, 1][..],
        &[7, 1],
        &[1000, 10],
        &[3, 2, 1, 1],
        &[1, 1, 1, 100],
    ] {
        for stalls in [0, 20_000] {
            let loads: Vec<_> = weights
                .iter()
                .map(|&w| Load {
                    stalls,
                    ..Load::of(w)
                })
                .collect();
            let mut world = World::new(ample(rate, weights.len() as u64), &loads, 3);
            let (begin, end) = (SECOND * 5 / 4, SECOND * 9 / 4);
            world.run_until(end);
            let sum: u64 = weights.iter().map(|&w| u64::from(w)).sum();
            for (instance, &weight) in weights.iter().enumerate() {
                let got = world.bytes(instance, begin, end) as f64;
                let due = rate as f64 * f64::from(weight) / sum as f64;
                // What one that stalls does not send, the others do.
                let fair = got >= 0.95 * due && (stalls > 0 || got <= 1.05 * due);
                assert!(fair, "{weights:?} {stalls} {weight}: {got} of {due}");
            }
        }
    }
}

#[test]
fn an_instance_alone_has_all_of_it() {
    let rate = 125_000_000;
    let mut loads = vec![Load::of(1); 4];
    let mut world = World::new(ample(rate, 4), &loads, 5);
    world.run_until(SECOND * 5 / 4);
    // The others stop: with nothing to send, or without a word.
    for silent in [false, true] {
        loads[1..].iter_mut().for_each(|load| load.weight = 0);
        if !silent {
            world.loads.clone_from(&loads);
        } else {
            world.runs.retain(|Reverse((_, instance))| *instance == 0);
        }
        let begin = world.sent.last().unwrap().0 + SECOND / 100;
        world.run_until(begin + SECOND);
        let got = world.total(begin, begin + SECOND) as f64;
        assert!(got >= 0.99 * rate as f64, "{silent}: {got}");
    }
}

/// INV-RATE-4.
#[test]
fn what_a_stalled_instance_does_not_send_the_others_do() {
    let rate = 125_000_000;
    let stalled = Load {
        stalls: 3,
        ..Load::of(5)
    };
    let mut world = World::new(ample(rate, 3), &[Load::of(1), stalled, Load::of(1)], 11);
    world.run_until(SECOND * 9 / 4);
    let got = world.total(SECOND * 5 / 4, SECOND * 9 / 4) as f64;
    assert!(got >= 0.99 * rate as f64, "{got}");
}

#[test]
fn a_pot_goes_back_when_it_is_dropped() {
    let shared = SharedRate::new(spec(1000, 100_000), &Members::new(2));
    let now = Time(SECOND);
    let mut pot = shared.pot(0);
    assert_eq!(pot.reserve(100, 1, now), Ok(()));
    pot.spend(100);
    assert!(pot.credit() > 0);
    drop(pot);
    assert_eq!(shared.tokens(now), 99_900);
}

#[test]
fn what_is_asked_for_is_not_reserved() {
    let shared = SharedRate::new(spec(1_000_000, 2000), &Members::new(2));
    let now = Time(SECOND);
    let [mut a, mut b] = [0, 1].map(|i| shared.pot(i));
    assert!(a.has(1500, 1, now));
    a.spend(1500);
    let left = shared.tokens(now) + a.credit();
    assert_eq!(left, 500);
    assert!(!b.has(1000, 1, now) && !b.covers(1000, now));
    assert_eq!((shared.tokens(now) + a.credit(), b.credit()), (left, 0));
    assert!(b.has(1000, 1, Time(SECOND + 2_000_000)));
}

#[test]
fn who_waits_learns_of_a_higher_rate() {
    let shared = SharedRate::new(spec(1, 0), &Members::new(2));
    let now = Time(SECOND);
    let [mut a, mut b] = [0, 1].map(|i| shared.pot(i));
    let late = a.reserve(30, 1, now).unwrap_err();
    assert_eq!(late, Time(31 * SECOND));
    b.charge(20, Demand::flows(1), now);
    assert_eq!(b.ready(Demand::flows(1), now), Err(Time(51 * SECOND)));
    shared.set(spec(1000, 0), now);
    assert_eq!(a.reserve(30, 1, now), Err(now.plus_nanos(SECOND / 20)));
    assert_eq!(
        b.ready(Demand::flows(1), now.plus_nanos(SECOND / 20)),
        Ok(())
    );
    // A lower one does not take a turn away.
    let late = a.reserve(30, 1, now).unwrap_err();
    shared.set(spec(1, 0), now);
    assert_eq!(a.reserve(30, 1, now), Err(late));
}

#[test]
fn a_debt_is_a_minute_at_most() {
    let shared = SharedRate::new(spec(1000, 1000), &Members::new(1));
    let now = Time(SECOND);
    let mut pot = shared.pot(0);
    let mut ready = Time::ZERO;
    for _ in 0..100 {
        ready = pot.charge(1514, Demand::flows(1), now);
    }
    assert!(ready <= now.plus_nanos(63 * SECOND), "{ready:?}");
    assert_eq!(pot.ready(Demand::flows(1), now), Err(ready));
    assert_eq!(pot.ready(Demand::flows(1), ready), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random instances, and parameters that change meanwhile.
    /// INV-RATE-1.
    #[test]
    fn no_window_lets_more_pass(
        seed in any::<u64>(),
        rates in prop::collection::vec(100_000u64..2_000_000_000, 1..4),
        bursts in prop::collection::vec(0u64..1_000_000, 4),
        loads in prop::collection::vec((0u16..100, 0u64..200_000, 0u64..20, any::<bool>()), 1..6),
        longest in prop_oneof![Just(1514u64), 1514u64..200_000],
    ) {
        let loads: Vec<_> = loads.into_iter().map(|(weight, delay, stalls, pays_after)| Load {
            weight, delay, stalls, pays_after,
        }).collect();
        let specs: Vec<_> = rates.iter().zip(bursts).map(|(&r, b)| spec(r, b)).collect();
        let mut world = World::new(specs[0], &loads, seed);
        world.longest = longest;
        let step = 20_000_000;
        let mut end = SECOND;
        for spec in &specs {
            world.shared.set(*spec, Time(end));
            end += step;
            world.run_until(end);
        }
        let instances = loads.len() as u64;
        let most = |f: fn(&RateSpec) -> u64| specs.iter().map(f).max().unwrap_or(0);
        let rate = most(|spec| spec.rate);
        let after = loads.iter().filter(|load| load.pays_after).count() as u64;
        // A frame that leaves in one piece may be longer than a quantum.
        let pot = most(RateSpec::quantum).max(longest);
        let bound = most(|spec| spec.burst) + instances * pot + 1 + after * longest;
        prop_assert!(world.worst_window(rate) <= bound, "{} > {bound}", world.worst_window(rate));
    }

    /// Instances that always have a backlog use all of a rate with a burst that is large enough.
    #[test]
    fn no_time_is_lost(
        seed in any::<u64>(),
        rate in 1_000_000u64..2_000_000_000,
        loads in prop::collection::vec((1u16..100, 0u64..200_000, any::<bool>()), 1..6),
        longest in prop_oneof![Just(1514u64), 1514u64..200_000],
    ) {
        let loads: Vec<_> = loads.into_iter().map(|(weight, delay, pays_after)| Load {
            weight, delay, stalls: 0, pays_after,
        }).collect();
        let instances = loads.len() as u64;
        let pot = spec(rate, 0).quantum().max(longest);
        // Late by 200 µs, after a wait of 1 ms for others.
        let burst = 2 * (instances * pot + rate * 1200 / 1_000_000);
        let mut world = World::new(spec(rate, burst), &loads, seed);
        world.longest = longest;
        let time = 50_000_000;
        world.run_until(SECOND + time);
        let sent: u64 = world.sent.iter().map(|sent| sent.2).sum();
        // The bucket was full; what is in it in the end, and in pots, is not sent.
        let due = (rate / 1000 * time / 1_000_000).saturating_sub(instances * (pot + longest));
        prop_assert!(sent >= due, "{sent} of {due}");
    }

    /// Units drawn, in pots and left add up to what there was, whatever the parameters.
    #[test]
    fn nothing_is_lost(
        spec in (any::<u64>(), any::<u64>(), any::<u64>()),
        other in (any::<u64>(), any::<u64>(), any::<u64>()),
        units in prop::collection::vec(0u64..1 << 33, 1..20),
        now in any::<u64>(),
    ) {
        let of = |(rate, burst, unit)| RateSpec { rate, burst, unit };
        let shared = SharedRate::new(of(spec), &Members::new(2));
        let mut pots = [0, 1].map(|i| shared.pot(i));
        let mut spent = 0i64;
        let now = Time(now);
        let burst = i64::try_from(shared.spec().burst).unwrap();
        for (i, &units) in units.iter().enumerate() {
            if pots[i % 2].reserve(units, 1, now).is_ok() {
                pots[i % 2].spend(units);
                spent += units as i64;
            }
        }
        let held: i64 = pots.iter().map(Pot::credit).sum();
        prop_assert_eq!(spent + held + shared.tokens(now), burst);
        let tokens = shared.tokens(now);
        shared.set(of(other), now);
        let to = i64::try_from(shared.spec().burst).unwrap();
        prop_assert!(shared.tokens(now) >= tokens.min(to) && shared.tokens(now) <= to);
        drop(pots);
    }
}
