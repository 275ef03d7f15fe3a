//! `fq` against a plain model of it, its fairness and pacing, and the kernel's past bugs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::DropReason;
use softnet::testing::{Random, large_tcp, pool};
use softnet::time::Time;
use softnet::wire::traffic_class;

use crate::qdisc::kind::Kind;
use crate::testing::{MS, ip, jain, shares};
use crate::units::MAX_RATE;
use crate::*;

const SECOND: u64 = 1000 * MS;

fn fq(spec: &FqSpec, pool: &Pool) -> Fq {
    Fq::make(spec, Handle::NONE, &QdiscEnv::new(pool))
}

fn xstat(qdisc: &Fq, name: &str) -> u64 {
    let mut all = qdisc.xstats().unwrap().iter();
    all.find(|(own, _)| *own == name).unwrap().1
}

/// A packet of a flow, by its number.
fn of_flow(pool: &Pool, len: usize, flow: u32, mark: u32) -> Packet {
    let mut packet = ip(pool, len, 0, mark);
    packet.set_flow_hash(flow);
    packet
}

/// The mark of what leaves now.
fn leave(fq: &mut Fq, now: u64, cx: &mut Cx) -> Option<u32> {
    let mut out = PacketList::new();
    fq.dequeue(1, &mut out, cx.at(Time(now)));
    out.front().map(Packet::mark)
}

/// Marks and times of everything that leaves until `end`, asked for at the times that it says.
fn run(fq: &mut Fq, mut now: u64, end: u64, cx: &mut Cx) -> Vec<(u32, u64)> {
    let mut left = Vec::new();
    while now < end {
        let mut out = PacketList::new();
        let next = fq.dequeue(1, &mut out, cx.at(Time(now)));
        left.extend(out.iter().map(|packet| (packet.mark(), now)));
        match next {
            Next::Idle => break,
            Next::Ready => {}
            Next::At(time) => {
                assert!(time.0 > now);
                now = time.0;
            }
        }
    }
    left
}

#[derive(Debug)]
struct ModelFlow {
    /// Mark, bytes, time, band, and whether it has a departure time.
    packets: VecDeque<(u32, u64, u64, usize, bool)>,
    credit: i64,
    time_next: u64,
    idle_since: Option<u64>,
    throttled: bool,
    band: usize,
    created: usize,
}

/// `fq` as tc-fq(8) and the module have it, with a list for each list and a search where there is
/// an index.
#[derive(Debug)]
struct Model {
    spec: FqSpec,
    flows: BTreeMap<u32, ModelFlow>,
    new: [VecDeque<u32>; 3],
    old: [VecDeque<u32>; 3],
    credits: [i64; 3],
    turn: usize,
    throttled: BTreeSet<(u64, usize, u32)>,
}

impl Model {
    fn band_len(&self, band: usize) -> usize {
        let packets = self.flows.values().flat_map(|flow| &flow.packets);
        packets.filter(|packet| packet.3 == band).count()
    }

    /// Mark, bytes, priority, flow, departure time.
    fn enqueue(
        &mut self,
        now: u64,
        (mark, bytes, priority, hash, mut time): (u32, u64, u32, u32, u64),
    ) -> bool {
        let band = usize::from(self.spec.priomap[priority as usize & 15]);
        if self.band_len(band) >= self.spec.limit as usize {
            return false;
        }
        let timed = time > now;
        let horizon = now + self.spec.horizon.as_nanos() as u64;
        if time > horizon {
            if self.spec.horizon_drop {
                return false;
            }
            time = horizon;
        }
        let created = self.flows.len();
        let initial = i64::from(self.spec.initial_quantum.unwrap());
        let flow = self
            .flows
            .entry(hash & self.spec.orphan_mask)
            .or_insert(ModelFlow {
                packets: VecDeque::new(),
                credit: initial,
                time_next: 0,
                idle_since: Some(now),
                throttled: false,
                band: 0,
                created,
            });
        if flow.packets.len() >= self.spec.flow_limit as usize {
            return false;
        }
        flow.band = band;
        let time = time.max(now);
        let at = flow.packets.partition_point(|packet| packet.2 <= time);
        flow.packets.insert(at, (mark, bytes, time, band, timed));
        if let Some(since) = flow.idle_since.take() {
            let idle = (now >> 20) - (since >> 20);
            if idle > self.spec.refill_delay.as_nanos() as u64 >> 20 {
                flow.credit = flow.credit.max(i64::from(self.spec.quantum.unwrap()));
            }
            self.new[band].push_back(hash & self.spec.orphan_mask);
        }
        true
    }

    fn dequeue(&mut self, now: u64) -> Option<u32> {
        if let Some(&(time, created, key)) = self.throttled.first()
            && time <= now
        {
            self.throttled.remove(&(time, created, key));
            let flow = self.flows.get_mut(&key).unwrap();
            flow.throttled = false;
            self.old[flow.band].push_back(key);
        }
        let quantum = i64::from(self.spec.quantum.unwrap());
        loop {
            let listed = |band: usize| !self.new[band].is_empty() || !self.old[band].is_empty();
            if !(0..3).any(listed) {
                return None;
            }
            if self.credits[self.turn] <= 0 || !listed(self.turn) {
                self.turn = (self.turn + 1) % 3;
                let weight = i64::from(self.spec.weights[self.turn]);
                self.credits[self.turn] = (self.credits[self.turn] + weight).min(weight);
                continue;
            }
            let turn = self.turn;
            let is_new = !self.new[turn].is_empty();
            let list = if is_new {
                &mut self.new[turn]
            } else {
                &mut self.old[turn]
            };
            let key = list[0];
            let flow = self.flows.get_mut(&key).unwrap();
            if flow.credit <= 0 {
                flow.credit += quantum;
                list.pop_front();
                self.old[flow.band].push_back(key);
                continue;
            }
            let Some(&(mark, bytes, time, _, timed)) = flow.packets.front() else {
                list.pop_front();
                if is_new && !self.old[turn].is_empty() {
                    self.old[flow.band].push_back(key);
                } else {
                    flow.idle_since = Some(now);
                }
                continue;
            };
            let due = time.max(flow.time_next);
            if due > now {
                list.pop_front();
                flow.time_next = due;
                flow.throttled = true;
                self.throttled.insert((due, flow.created, key));
                continue;
            }
            flow.packets.pop_front();
            flow.credit -= bytes as i64;
            self.credits[turn] -= bytes as i64;
            let Some(rate) = self.spec.maxrate else {
                return Some(mark);
            };
            let mut counts = bytes;
            if timed {
            } else if rate <= self.spec.low_rate_threshold {
                flow.credit = 0;
            } else if flow.credit > 0 {
                return Some(mark);
            } else {
                counts = counts.max(quantum as u64);
            }
            let mut delay = (counts * SECOND / rate).min(SECOND);
            if flow.time_next > 0 {
                delay -= (now - flow.time_next).min(delay / 2);
            }
            flow.time_next = now + delay;
            return Some(mark);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Bytes, priority, flow, and nanoseconds until departure.
    Arrive(usize, u32, u32, u64),
    Wait(u64),
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delay = prop_oneof![3 => Just(0), 1 => 0..40_000_000_u64];
    let arrive = (60..1514_usize, 0..16_u32, 0..8_u32, delay);
    let step = prop_oneof![
        5 => arrive.prop_map(|(bytes, priority, flow, delay)| {
            Step::Arrive(bytes, priority, flow, delay)
        }),
        1 => (0..9_000_000_u64).prop_map(Step::Wait),
        4 => (0..5_usize).prop_map(Step::Leave),
    ];
    // Less than 3 s in all: no flow is collected.
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// Every packet is taken or refused, and leaves, as the model says.
    #[test]
    fn decisions_of_the_model(
        steps in steps(),
        (limit, flow_limit) in (1..60_u32, 1..20_u32),
        quantum in 256..4000_u32,
        initial_quantum in 0..16_000_u32,
        refill in 0..20_u64,
        maxrate in prop::option::of(prop_oneof![1_000..2_000_000_u64, Just(100_000_000)]),
        (horizon, horizon_drop) in (0..50_u64, any::<bool>()),
        orphan_mask in prop_oneof![Just(3_u32), Just(u32::MAX)],
    ) {
        let pool = pool(256);
        let mut cx = Cx::new(&pool);
        let spec = FqSpec {
            limit,
            flow_limit,
            quantum: Some(quantum),
            initial_quantum: Some(initial_quantum),
            refill_delay: Duration::from_millis(refill),
            maxrate,
            horizon: Duration::from_millis(horizon),
            horizon_drop,
            orphan_mask,
            weights: [60_000, 20_000, 16_384],
            ..FqSpec::default()
        };
        let mut fq = fq(&spec, &pool);
        let mut model = Model {
            spec,
            flows: BTreeMap::new(),
            new: Default::default(),
            old: Default::default(),
            credits: [0; 3],
            turn: 0,
            throttled: BTreeSet::new(),
        };
        let (mut now, mut mark) = (MS, 0);
        for step in steps {
            match step {
                Step::Arrive(bytes, priority, flow, delay) => {
                    let mut packet = of_flow(&pool, bytes, flow, mark);
                    packet.set_priority(priority);
                    if delay > 0 {
                        packet.set_departure_time(Time(now + delay));
                    }
                    let verdict = fq.enqueue(&mut packet.into(), cx.at(Time(now)));
                    cx.dropped.settle(&softnet::stats::DropCounters::new());
                    let of_model = (mark, bytes as u64, priority, flow, now + delay);
                    let taken = model.enqueue(now, of_model);
                    prop_assert_eq!(verdict == Verdict::Queued, taken);
                    mark += 1;
                }
                Step::Wait(nanos) => now += nanos,
                Step::Leave(packets) => for _ in 0..packets {
                    prop_assert_eq!(leave(&mut fq, now, &mut cx), model.dequeue(now));
                },
            }
            for band in 0..3 {
                let frames = fq.bands[band].len;
                prop_assert_eq!(frames, model.band_len(band) as u64);
                prop_assert!(frames <= limit.into());
            }
            prop_assert_eq!(xstat(&fq, "throttled_flows"), model.throttled.len() as u64);
        }
    }
}

/// INV-Q-4: flows that always have packets get the same bytes, whatever their packets' sizes.
#[test]
fn inv_q_4_flows_share_alike() {
    let pool = pool(8192);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        orphan_mask: u32::MAX,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    let packet = |len: usize, flow: u32| of_flow(&pool, len, flow, flow);
    let bytes = shares(&mut fq, 100, packet, cx.at(Time(MS)));
    assert!(jain(&bytes) > 0.999, "{} {bytes:?}", jain(&bytes));
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(most - least <= 2 * (3028 + 1514), "{least} {most}");
}

/// Bands that always have packets share as their weights say, within 0.1 %.
#[test]
fn bands_share_by_weight() {
    let pool = pool(1024);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    // TC_PRIO_CONTROL, TC_PRIO_BESTEFFORT, TC_PRIO_BULK: bands 0, 1 and 2.
    let packet = |band: u32| {
        let mut packet = of_flow(&pool, 1000, band, band);
        packet.set_priority([7, 0, 2][band as usize]);
        packet
    };
    let mut list: PacketList = (0..240).map(|n| packet(n % 3)).collect();
    fq.enqueue(&mut list, cx.at(Time(MS)));
    let mut sent = [0_u64; 3];
    for _ in 0..400_000 {
        let band = leave(&mut fq, MS, &mut cx).unwrap();
        sent[band as usize] += 1;
        fq.enqueue(&mut packet(band).into(), &mut cx);
    }
    for (band, share) in [9.0, 3.0, 1.0].into_iter().enumerate() {
        let got = sent[band] as f64 / 400_000.0 * 13.0 / share;
        // The last round is not over.
        assert!((got - 1.0).abs() < 0.003, "{sent:?}");
    }
}

/// A flow that always has packets goes to the band of its latest packet, with that band's weight:
/// it does not stay where its first packet brought it.
#[test]
fn a_backlogged_flow_changes_band() {
    let pool = pool(1024);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let packet = |flow: u32, priority| {
        let mut packet = of_flow(&pool, 1000, flow, flow);
        packet.set_priority(priority);
        packet
    };
    // Flow 1 begins in band 0; its other packets are of band 2. Flow 2 is of band 1.
    let priorities = [0, 2, 0];
    fq.enqueue(&mut packet(1, 7).into(), cx.at(Time(MS)));
    for _ in 0..50 {
        for flow in [1, 2] {
            let mut list = packet(flow, priorities[flow as usize]).into();
            fq.enqueue(&mut list, cx.at(Time(MS)));
        }
    }
    let mut sent = [0_u64; 3];
    for _ in 0..200_000 {
        let flow = leave(&mut fq, MS, &mut cx).unwrap();
        sent[flow as usize] += 1;
        let mut list = packet(flow, priorities[flow as usize]).into();
        fq.enqueue(&mut list, cx.at(Time(MS)));
    }
    // The weights are 3 to 1.
    assert!(sent[1].abs_diff(50_000) < 500, "{sent:?}");
}

/// Flows are held to `maxrate`, each by itself, exactly in the long run; at a low rate packet by
/// packet, else a quantum at a time.
#[test]
fn flows_are_paced() {
    let pool = pool(256);
    let mut cx = Cx::new(&pool);
    for (rate, burst) in [(1_000_000, 15_140 + 3028), (50_000, 1000)] {
        let spec = FqSpec {
            maxrate: Some(rate),
            timer_slack: Duration::ZERO,
            ..FqSpec::default()
        };
        let mut fq = fq(&spec, &pool);
        let mut list: PacketList = (0..200).map(|n| of_flow(&pool, 1000, n % 2, n)).collect();
        fq.enqueue(&mut list, cx.at(Time(MS)));
        let left = run(&mut fq, MS, 100 * SECOND, &mut cx);
        assert_eq!(left.len(), 200);
        for flow in 0..2 {
            let own: Vec<u64> = left
                .iter()
                .filter(|(n, _)| n % 2 == flow)
                .map(|p| p.1)
                .collect();
            let end = own[99] - MS;
            let exact = (100_000 - burst) * SECOND / rate;
            assert!(
                end.abs_diff(exact) <= 3028 * SECOND / rate,
                "{rate}: {end} {exact}"
            );
            // In each window what its time allows, the first credit and a packet.
            for (i, &start) in own.iter().enumerate() {
                for (j, &time) in own.iter().enumerate().skip(i) {
                    let allowed = rate * (time - start) / SECOND + burst + 3028;
                    assert!((j - i) as u64 * 1000 <= allowed);
                }
            }
        }
    }
}

/// With `pacing` off, `maxrate` means nothing.
#[test]
fn pacing_can_be_turned_off() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        maxrate: Some(1000),
        pacing: false,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    let mut list: PacketList = (0..50).map(|n| of_flow(&pool, 1000, 1, n)).collect();
    fq.enqueue(&mut list, cx.at(Time(MS)));
    assert_eq!(run(&mut fq, MS, MS + 1, &mut cx).len(), 50);
}

/// A departure time is kept, with the slack of the timer; of a flow the packet that is due first
/// leaves first.
#[test]
fn packets_leave_at_their_time() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    for (mark, flow, time) in [(0, 1, 5), (1, 2, 0), (2, 1, 3), (3, 1, 9), (4, 2, 7)] {
        let mut packet = of_flow(&pool, 100, flow, mark);
        packet.set_departure_time(Time(time * MS));
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    let left = run(&mut fq, MS, SECOND, &mut cx);
    let slack = 10_000;
    let late = |time: u64| time * MS + slack;
    let expected = [
        (1, MS),
        (2, late(3)),
        (0, late(5)),
        (4, late(7)),
        (3, late(9)),
    ];
    assert_eq!(left, expected);
    assert_eq!(
        (xstat(&fq, "throttled"), xstat(&fq, "throttled_flows")),
        (4, 0)
    );
    assert_eq!(fq.stats().qlen, 0);
}

/// A flow that is held back stays so for an earlier packet, which then leaves in front
/// (`fq_flow_set_throttled`). What has no departure time is due when it came.
#[test]
fn an_earlier_packet_goes_in_front() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let mut push = |fq: &mut Fq, mark, time, now| {
        let mut packet = of_flow(&pool, 100, 1, mark);
        if time > 0 {
            packet.set_departure_time(Time(time * MS));
        }
        fq.enqueue(&mut packet.into(), cx.at(Time(now * MS)));
    };
    push(&mut fq, 0, 9, 1);
    let mut other = Cx::new(&pool);
    assert_eq!(leave(&mut fq, MS, &mut other), None);
    for (mark, time, now) in [(1, 3, 2), (2, 0, 2), (3, 3, 2), (4, 9, 3), (5, 1, 3)] {
        push(&mut fq, mark, time, now);
    }
    assert_eq!(leave(&mut fq, 4 * MS, &mut other), None);
    let left = run(&mut fq, 9 * MS, SECOND, &mut other);
    let marks: Vec<u32> = left.iter().map(|&(mark, _)| mark).collect();
    assert_eq!(marks, [5, 2, 1, 3, 0, 4]);
    assert!(fq.last.is_empty());
}

/// A sender that read the clock before another one enqueued takes the other's packets along: they
/// have no departure time to wait for.
#[test]
fn an_older_reading_of_the_clock_holds_nothing_up() {
    let pool = pool(8);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    fq.enqueue(&mut of_flow(&pool, 100, 1, 0).into(), cx.at(Time(2 * MS)));
    assert_eq!(leave(&mut fq, MS, &mut cx), Some(0));
    assert_eq!(xstat(&fq, "throttled"), 0);
}

/// The time that another thread noted on a packet's arrival is no departure time, though that
/// thread read the clock later: with no horizon at all, nothing is dropped.
#[test]
fn a_later_arrival_is_no_departure_time() {
    let pool = pool(8);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        horizon: Duration::ZERO,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    let mut packet = of_flow(&pool, 100, 1, 0);
    packet.set_timestamp(Time(MS + 500));
    assert_eq!(
        fq.enqueue(&mut packet.into(), cx.at(Time(MS))),
        Verdict::Queued
    );
    assert_eq!(leave(&mut fq, MS, &mut cx), Some(0));
    assert_eq!(xstat(&fq, "throttled"), 0);
}

/// A time beyond the horizon: dropped, or brought to the horizon.
#[test]
fn the_horizon() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    for horizon_drop in [true, false] {
        let spec = FqSpec {
            horizon: Duration::from_secs(1),
            horizon_drop,
            timer_slack: Duration::ZERO,
            ..FqSpec::default()
        };
        let mut fq = fq(&spec, &pool);
        for (mark, time) in [(0, SECOND + MS), (1, SECOND + MS + 1)] {
            let mut packet = of_flow(&pool, 100, mark, mark);
            packet.set_departure_time(Time(time));
            fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
        }
        let left = run(&mut fq, MS, 2 * SECOND, &mut cx);
        let expected = [(0, SECOND + MS), (1, SECOND + MS)];
        assert_eq!(left[..], expected[..if horizon_drop { 1 } else { 2 }]);
        let counts = (xstat(&fq, "horizon_drops"), xstat(&fq, "horizon_caps"));
        assert_eq!(counts, if horizon_drop { (1, 0) } else { (0, 1) });
    }
    assert_eq!(cx.dropped.counts()[DropReason::FqHorizonLimit as usize], 1);
}

/// BUG-FQ-1: a packet that comes when its flow's time has come, but the flow is not served yet,
/// does not overtake what waits in it.
#[test]
fn bug_fq_1_nothing_overtakes_a_due_flow() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let mut packet = of_flow(&pool, 100, 1, 0);
    packet.set_departure_time(Time(2 * MS));
    fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    assert_eq!(leave(&mut fq, MS, &mut cx), None);
    let mut late = PacketList::from(of_flow(&pool, 100, 1, 1));
    let sum = WireSum::from(&late);
    assert!(!fq.try_pass(&late, sum, cx.at(Time(3 * MS))));
    fq.enqueue(&mut late, cx.at(Time(3 * MS)));
    assert_eq!(leave(&mut fq, 3 * MS, &mut cx), Some(0));
    assert_eq!(leave(&mut fq, 3 * MS, &mut cx), Some(1));
}

/// BUG-FQ-2: a queue that was full and is emptied takes packets again.
#[test]
fn bug_fq_2_an_emptied_queue_is_empty() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        limit: 10,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    for round in 1..3 {
        for mark in 0..14 {
            let mut packet = of_flow(&pool, 100, mark % 3, mark);
            packet.set_departure_time(Time(u64::from(mark % 2) * 9 * MS));
            fq.enqueue(&mut packet.into(), cx.at(Time(round * MS)));
        }
        assert_eq!(
            (fq.stats().qlen, xstat(&fq, "band1_drops")),
            (10, 4 * round)
        );
        assert_eq!(leave(&mut fq, round * MS, &mut cx), Some(0));
        let mut left = PacketList::new();
        fq.drain(&mut left);
        assert_eq!((left.len(), fq.stats().qlen, fq.stats().backlog), (9, 0, 0));
        assert_eq!(
            (xstat(&fq, "band1_pkts"), xstat(&fq, "throttled_flows")),
            (0, 0)
        );
    }
    // Nor does the time of a packet that is gone hold up what comes: of a flow that was throttled,
    // and of one that was about to be.
    for flow in [1, 2] {
        let mut packet = of_flow(&pool, 100, flow, 0);
        packet.set_departure_time(Time(9 * SECOND));
        fq.enqueue(&mut packet.into(), cx.at(Time(3 * MS)));
        if flow == 1 {
            assert_eq!(leave(&mut fq, 3 * MS, &mut cx), None);
            assert_eq!(xstat(&fq, "throttled_flows"), 1);
        }
    }
    fq.drain(&mut PacketList::new());
    for flow in [1, 2] {
        let mut list = of_flow(&pool, 100, flow, flow).into();
        fq.enqueue(&mut list, cx.at(Time(4 * MS)));
        assert_eq!(leave(&mut fq, 4 * MS, &mut cx), Some(flow));
    }
}

/// BUG-FQ-3, BUG-FQ-4: no quantum overflows a credit, and no weight or quantum is too small for a
/// frame of any size to leave.
#[test]
fn bug_fq_3_and_4_extreme_quanta_and_weights() {
    let check = |spec: FqSpec| QdiscSpec::Fq(spec).check().is_ok();
    let of = |quantum| FqSpec {
        quantum: Some(quantum),
        ..FqSpec::default()
    };
    assert!(check(of(1 << 20)) && check(of(0)));
    assert!(!check(of((1 << 20) + 1)));
    let weights = |weight| FqSpec {
        weights: [weight, 1 << 29, 16_384],
        ..FqSpec::default()
    };
    assert!(check(weights(16_384)));
    assert!(!check(weights(16_383)) && !check(weights(1 << 30)));
    let rates = |maxrate, low_rate_threshold| FqSpec {
        maxrate: Some(maxrate),
        low_rate_threshold,
        ..FqSpec::default()
    };
    assert!(check(rates(MAX_RATE, MAX_RATE)) && check(rates(1, 0)));
    for (maxrate, threshold) in [(0, 1), (MAX_RATE + 1, 1), (1, MAX_RATE + 1)] {
        assert!(!check(rates(maxrate, threshold)));
    }
    let pool = softnet::testing::large_pool(64);
    let mut cx = Cx::new(&pool);
    for (quantum, initial) in [(0, 0), (1 << 20, i32::MAX as u32)] {
        let spec = FqSpec {
            quantum: Some(quantum),
            initial_quantum: Some(initial),
            weights: [16_384; 3],
            ..FqSpec::default()
        };
        assert!(check(spec.clone()));
        let mut fq = fq(&spec, &pool);
        let large = |mark| {
            let mut large = large_tcp(&pool, 64_000, 8, mark);
            large.set_flow_hash(mark % 2);
            large
        };
        let mut list: PacketList = (0..40).map(large).collect();
        fq.enqueue(&mut list, cx.at(Time(MS)));
        let left = run(&mut fq, MS, MS + 1, &mut cx);
        assert_eq!(left.len(), 40);
    }
}

/// BUG-FQ-6, INV-Q-6: the limit is that of each band; a flow has one of its own.
#[test]
fn bug_fq_6_limits_are_by_band_and_by_flow() {
    let pool = pool(128);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        limit: 20,
        flow_limit: 8,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    for mark in 0..90 {
        let mut packet = of_flow(&pool, 100, mark % 9, mark);
        packet.set_priority([7, 0, 2][mark as usize % 3]);
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    assert_eq!(fq.stats().qlen, 60);
    let drops = ["band0_drops", "band1_drops", "band2_drops"].map(|name| xstat(&fq, name));
    assert_eq!((drops, xstat(&fq, "flows_plimit")), ([10; 3], 0));
    let mut left = PacketList::new();
    fq.drain(&mut left);
    let mut list: PacketList = (0..10).map(|mark| of_flow(&pool, 100, 1, mark)).collect();
    assert_eq!(fq.enqueue(&mut list, cx.at(Time(MS))), Verdict::Dropped);
    assert_eq!((fq.stats().qlen, xstat(&fq, "flows_plimit")), (8, 2));
    assert_eq!(fq.stats().drops, 32);
}

/// BUG-FQ-7: packets without a socket are told apart by their headers; flows beyond the mask share
/// a queue, and with a full mask none do.
#[test]
fn bug_fq_7_flows_are_told_apart() {
    let pool = pool(256);
    let mut cx = Cx::new(&pool);
    for (orphan_mask, flows) in [(1023, 100), (0, 1), (u32::MAX, 100)] {
        let spec = FqSpec {
            orphan_mask,
            ..FqSpec::default()
        };
        let mut fq = fq(&spec, &pool);
        for n in 0..100 {
            let packet = of_flow(&pool, 100, n, n);
            fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
        }
        assert_eq!(xstat(&fq, "flows"), flows);
    }
    let mut fq = fq(&FqSpec::default(), &pool);
    for n in 0..100 {
        let mut packet = ip(&pool, 100, 0, n);
        packet.data_mut()[26..30].copy_from_slice(&[10, 0, 0, n as u8]);
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    // 100 of 1,024: fewer than 70 distinct is a chance below 10^-15.
    assert!(xstat(&fq, "flows") > 70);
}

/// Packets that leave much later than due are marked.
#[test]
fn late_packets_are_marked() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        ce_threshold: Some(Duration::from_millis(2)),
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    for (mark, time) in [(0, 1), (1, 2), (2, 1), (3, 1)] {
        let mut packet = ip(&pool, 100, if mark == 2 { 0 } else { 1 }, mark);
        packet.set_flow_hash(mark);
        packet.set_departure_time(Time(time * MS));
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    let mut out = PacketList::new();
    fq.dequeue(1, &mut out, cx.at(Time(3 * MS)));
    fq.dequeue(9, &mut out, cx.at(Time(3 * MS + 1)));
    let marked: Vec<_> = out
        .iter()
        .map(|packet| (packet.mark(), traffic_class(packet.data())))
        .collect();
    assert_eq!(
        marked,
        [(0, Some(1)), (1, Some(1)), (2, Some(0)), (3, Some(3))]
    );
    assert_eq!(xstat(&fq, "ce_mark"), 1);
}

/// A packet whose time is past as it comes was due then.
#[test]
fn a_past_departure_time_counts_for_marks() {
    let pool = pool(4);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        ce_threshold: Some(Duration::from_millis(2)),
        ..FqSpec::default()
    };
    for (time, class) in [(2 * MS, 1), (2 * MS - 1, 3)] {
        let mut fq = fq(&spec, &pool);
        let mut packet = ip(&pool, 100, 1, 0);
        packet.set_departure_time(Time(time));
        fq.enqueue(&mut packet.into(), cx.at(Time(4 * MS)));
        let mut out = PacketList::new();
        fq.dequeue(1, &mut out, cx.at(Time(4 * MS)));
        let class_of = |packet: &Packet| traffic_class(packet.data());
        assert_eq!(out.front().and_then(class_of), Some(class));
    }
}

/// `maxrate` holds for each packet with a departure time, and for others a quantum at a time.
#[test]
fn packets_with_a_departure_time_are_paced_one_by_one() {
    let pool = pool(8);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        maxrate: Some(1_000_000),
        timer_slack: Duration::ZERO,
        ..FqSpec::default()
    };
    for (timed, times) in [(true, [2, 3, 4]), (false, [2, 2, 2])] {
        let mut fq = fq(&spec, &pool);
        for mark in 0..3 {
            let mut packet = of_flow(&pool, 1000, 1, mark);
            if timed {
                packet.set_departure_time(Time(2 * MS));
            }
            fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
        }
        let left = run(&mut fq, 2 * MS, SECOND, &mut cx);
        let left: Vec<u64> = left.iter().map(|&(_, time)| time / MS).collect();
        assert_eq!(left, times);
    }
}

/// Each band's excess over the limit, of its longest flows; those that lose all do not wait for
/// what is gone.
#[test]
fn a_lower_limit_drops_what_is_over_it() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let now = Time(MS);
    // Priority 2 is band 2, 6 is band 0.
    for (priority, flow, packets) in [(6, 0, 3), (2, 1, 60), (2, 2, 30), (2, 3, 2)] {
        for n in 0..packets {
            let mut packet = of_flow(&pool, 100, flow, flow * 100 + n);
            packet.set_priority(priority);
            if flow == 3 {
                packet.set_departure_time(Time(5 * SECOND));
            }
            fq.enqueue(&mut packet.into(), cx.at(now));
        }
    }
    // Those that wait for their time are found as they are due to be served.
    let mut out = PacketList::new();
    fq.dequeue(3, &mut out, cx.at(now));
    let lower = |limit| FqSpec {
        limit,
        ..FqSpec::default()
    };
    let marks = |fq: &mut Fq, cx: &mut Cx| -> Vec<u32> {
        let left = run(fq, MS, 2 * SECOND, cx);
        left.iter().map(|&(mark, _)| mark).collect()
    };
    fq.change(&lower(40), cx.at(now));
    let bands = [0, 1, 2].map(|band| fq.bands[band].len);
    assert_eq!((bands[2], fq.stats().qlen), (40, bands.iter().sum()));
    assert_eq!(xstat(&fq, "band2_drops"), fq.stats().drops);
    let drops = u64::from(cx.dropped.counts()[DropReason::QdiscLimit as usize]);
    assert_eq!((drops, drops + fq.stats().qlen), (fq.stats().drops, 92));
    // Both long ones have lost packets, the oldest of which stay.
    let left = marks(&mut fq, &mut cx);
    let of = |flow: u32| left.iter().filter(|&&mark| mark / 100 == flow).count();
    assert!(
        of(1) + of(2) == 38 && of(1).abs_diff(of(2)) <= 15,
        "{left:?}"
    );
    // Nothing stays, and what comes leaves at once.
    fq.change(&lower(0), cx.at(now));
    assert_eq!((fq.stats().qlen, xstat(&fq, "throttled_flows")), (0, 0));
    fq.change(&lower(10), cx.at(now));
    fq.enqueue(&mut of_flow(&pool, 100, 3, 7).into(), cx.at(Time(SECOND)));
    assert_eq!(leave(&mut fq, SECOND, &mut cx), Some(7));
}

/// INV-Q-10: another map, other weights and another mask while packets wait: nothing is lost, the
/// bands' lengths are right, and packets of a flow stay in order.
#[test]
fn parameters_change_under_load() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let mut random = Random(5);
    let mut last = [None; 16];
    let (mut mark, mut left) = (0, 0);
    for step in 0..3_000_u64 {
        let now = Time((step + 1) * MS);
        if fq.stats().qlen < 400 {
            let flow = random.below(16);
            let mut packet = of_flow(&pool, 60 + random.below(900) as usize, flow, mark);
            packet.set_priority(flow);
            fq.enqueue(&mut packet.into(), cx.at(now));
            mark += 1;
        }
        if step % 50 == 0 {
            let spec = FqSpec {
                priomap: std::array::from_fn(|_| random.below(3) as u8),
                orphan_mask: [15, 3, u32::MAX][random.below(3) as usize],
                ..FqSpec::default()
            };
            fq.change(&spec, cx.at(now));
        }
        let mut out = PacketList::new();
        fq.dequeue(random.below(3) as usize, &mut out, cx.at(now));
        for packet in &out {
            let seen = &mut last[packet.priority() as usize];
            assert!(seen.replace(packet.mark()) < Some(packet.mark()));
            left += 1;
        }
        let lens: u64 = fq.bands.iter().map(|band| band.len).sum();
        assert_eq!(
            (lens, u64::from(mark) - left),
            (fq.stats().qlen, fq.stats().qlen)
        );
    }
    assert_eq!(cx.dropped.wire_packets(), 0);
}

/// Another mask, with limits of flows and times below what waits: what was accepted stays.
#[test]
fn another_mask_drops_nothing() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    for n in 0..40 {
        let mut packet = of_flow(&pool, 100, n % 8, n);
        if n % 3 == 0 {
            // Beyond the new horizon.
            packet.set_departure_time(Time(3 * SECOND));
        }
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    let spec = FqSpec {
        flow_limit: 2,
        horizon: Duration::from_secs(1),
        orphan_mask: 1,
        ..FqSpec::default()
    };
    fq.change(&spec, cx.at(Time(2 * MS)));
    assert_eq!((fq.stats().qlen, fq.stats().drops), (40, 0));
    assert_eq!(xstat(&fq, "flows"), 2);
    assert_eq!(run(&mut fq, 2 * MS, 9 * SECOND, &mut cx).len(), 40);
    let mut late = of_flow(&pool, 100, 1, 40);
    late.set_departure_time(Time(30 * SECOND));
    fq.enqueue(&mut late.into(), cx.at(Time(9 * SECOND)));
    assert_eq!(fq.stats().drops, 1, "the new horizon");
}

/// However many flows are due at once, a call brings back as many as packets are asked for.
#[test]
fn a_call_takes_a_bounded_number_of_flows_from_the_heap() {
    let pool = pool(512);
    let mut cx = Cx::new(&pool);
    let spec = FqSpec {
        orphan_mask: u32::MAX,
        ..FqSpec::default()
    };
    let mut fq = fq(&spec, &pool);
    for flow in 0..400 {
        let mut packet = of_flow(&pool, 60, flow, flow);
        packet.set_departure_time(Time(2 * MS));
        fq.enqueue(&mut packet.into(), cx.at(Time(MS)));
    }
    let mut out = PacketList::new();
    let next = fq.dequeue(64, &mut out, cx.at(Time(MS)));
    assert_eq!(next, Next::At(Time(2 * MS + 10_000)));
    assert_eq!(fq.dequeue(64, &mut out, cx.at(Time(3 * MS))), Next::Ready);
    assert_eq!((out.len(), xstat(&fq, "throttled_flows")), (64, 400 - 64));
    assert_eq!(run(&mut fq, 3 * MS, 3 * MS + 1, &mut cx).len(), 400 - 64);
}
