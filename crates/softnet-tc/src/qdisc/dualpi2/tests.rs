//! The coupled queues against RFC 9332.

use std::time::Duration;

use proptest::prelude::*;
use softnet::mem::Pool;
use softnet::testing::{Random, large_pool, large_tcp, pool};

use super::*;
use crate::testing::{MS, ip};

const HANDLE: Handle = Handle::new(1, 0);
/// ECN codepoints.
const NOT_ECT: u8 = 0;
const ECT1: u8 = 1;
const ECT0: u8 = 2;

fn dualpi2(spec: &DualPi2Spec, pool: &Pool) -> DualPi2 {
    spec.check().unwrap();
    DualPi2::make(
        spec,
        HANDLE,
        &QdiscEnv {
            seed: 1,
            ..QdiscEnv::new(pool)
        },
    )
}

fn xstat(qdisc: &DualPi2, name: &str) -> u64 {
    let stats = qdisc.xstats().unwrap();
    stats.iter().find(|(of, _)| *of == name).unwrap().1
}

fn settle(cx: &mut Cx) {
    cx.dropped.settle(&softnet::stats::DropCounters::new());
}

proptest! {
    /// Each update is RFC 9332's (Appendix A, `dualpi2_update`): gains in Hz, delays in seconds.
    #[test]
    fn updates_are_those_of_rfc_9332(
        prob in 0..=ONE,
        delay in 0..200_000_000_u64,
        last in 0..200_000_000_u64,
        alpha in 1..100_000_u32,
        beta in 1..100_000_u32,
    ) {
        let spec = DualPi2Spec { alpha, beta, ..DualPi2Spec::default() };
        let mut law = Law::new(&spec);
        law.set(prob, last);
        law.update_once(delay);
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let hertz = |gain: u32| f64::from(gain) / 256.0;
        let change = hertz(alpha) * (seconds(delay) - 0.015)
            + hertz(beta) * (seconds(delay) - seconds(last));
        let one = f64::from(ONE);
        let expected = (f64::from(prob) / one + change).clamp(0.0, 1.0);
        let got = f64::from(law.prob) / one;
        // Gains are rounded to units of 64 ns.
        prop_assert!((got - expected).abs() < 1e-3, "{} {}", got, expected);
    }

    /// The probability is the same whether calls come in every period or not for many.
    #[test]
    fn updates_do_not_depend_on_calls(
        steps in proptest::collection::vec((0..90_u64, 0..9_u32, 0..9_usize), 1..40),
    ) {
        let pool = pool(1024);
        let spec = DualPi2Spec {
            tupdate: Duration::from_millis(3),
            alpha: 400,
            ..DualPi2Spec::default()
        };
        let (mut seldom, mut often) = (dualpi2(&spec, &pool), dualpi2(&spec, &pool));
        let mut cx = Cx::new(&pool);
        let mut now = 1;
        for qdisc in [&mut seldom, &mut often] {
            qdisc.dequeue(0, &mut PacketList::new(), cx.at(Time(MS)));
        }
        for (wait, packets, budget) in steps {
            for time in now..=now + wait {
                often.dequeue(0, &mut PacketList::new(), cx.at(Time(time * MS)));
            }
            now += wait;
            for qdisc in [&mut seldom, &mut often] {
                let mut list: PacketList = (0..packets)
                    .map(|n| ip(&pool, 1400, n as u8 & 3, n))
                    .collect();
                qdisc.enqueue(&mut list, cx.at(Time(now * MS)));
                qdisc.dequeue(budget, &mut PacketList::new(), cx.at(Time(now * MS)));
                settle(&mut cx);
            }
            prop_assert_eq!(seldom.law.prob, often.law.prob);
            prop_assert_eq!(seldom.stats(), often.stats());
        }
    }
}

/// The kernel keeps gains in other units, and shows what is left of them.
#[test]
fn gains_are_shown_as_the_kernel_shows_them() {
    assert_eq!(
        [41, 819, 1, 1 << 20].map(dualpi2_shown_gain),
        [40, 818, 0, 1_048_575]
    );
}

/// The coupling: classic packets are dropped or marked with `p'^2`, low-latency ones are marked
/// with `k p'`, so that `p_C = (p_L / k)^2` (RFC 9332, 2.1). Over 100,000 packets of each.
#[test]
fn probabilities_are_coupled() {
    const COUNT: u32 = 100_000;
    let pool = pool(64);
    let cx = Cx::new(&pool);
    for (prob, coupling) in [(0.1, 2), (0.3, 2), (0.15, 4)] {
        let spec = DualPi2Spec {
            coupling_factor: coupling,
            ..DualPi2Spec::default()
        };
        let mut qdisc = dualpi2(&spec, &pool);
        qdisc.law.set((prob * f64::from(ONE)) as u32, 0);
        qdisc.stats.backlog = 100_000;
        let mut rate = |ecn, class| {
            let before = qdisc.marks;
            let drops = (0..COUNT)
                .filter(|_| qdisc.drops(&mut ip(&pool, 1000, ecn, 0), class, &cx))
                .count() as u64;
            (drops, qdisc.marks - before)
        };
        let low = Class::LowLatency { step: false };
        let p_l = prob * f64::from(coupling);
        let (square, near) = (prob * prob, |count: u64, p: f64| {
            let (expected, count) = (p * f64::from(COUNT), count as f64);
            // Chi-squared of one degree: above 24 less than once in 10^6.
            (count - expected).powi(2) / (expected * (1.0 - p)) < 24.0
        });
        let (drops, marks) = rate(NOT_ECT, Class::Classic);
        assert!(near(drops, square) && marks == 0, "{drops}");
        let (drops, marks) = rate(ECT0, Class::Classic);
        assert!(near(marks, square) && drops == 0, "{marks}");
        let (drops, marks) = rate(ECT1, low);
        assert!(near(marks, p_l) && drops == 0, "{marks}");
        // What a filter put there and cannot be marked.
        let (drops, marks) = rate(NOT_ECT, low);
        assert!(near(drops, p_l) && marks == 0, "{drops}");
        assert_eq!(rate(ECT1, Class::Spared), (0, 0));
        let ratio = square / (p_l / f64::from(coupling)).powi(2);
        assert!((ratio - 1.0).abs() < 1e-12);
    }
}

/// On overload both queues lose `p'^2`, the L queue's others are marked; without `drop_on_overload`
/// all of it is marked, and the probability stays where that is.
#[test]
fn overload() {
    let pool = pool(64);
    let cx = Cx::new(&pool);
    for drop_on_overload in [true, false] {
        let spec = DualPi2Spec {
            drop_on_overload,
            ..DualPi2Spec::default()
        };
        let mut qdisc = dualpi2(&spec, &pool);
        let prob = (0.7 * f64::from(ONE)) as u32;
        qdisc.law.set(prob, 0);
        qdisc.stats.backlog = 100_000;
        let low = Class::LowLatency { step: false };
        let mut drops = 0_u32;
        for _ in 0..10_000 {
            let mut packet = ip(&pool, 1000, ECT1, 0);
            let dropped = qdisc.drops(&mut packet, low, &cx);
            drops += u32::from(dropped);
            assert_eq!(ecn(&packet) == 3, !dropped);
        }
        let expected = if drop_on_overload { 4700..5100 } else { 0..1 };
        assert!(expected.contains(&drops), "{drops}");
        // Nobody is marked out of the C queue then.
        let before = qdisc.marks;
        let dropped =
            (0..1000).filter(|_| qdisc.drops(&mut ip(&pool, 1000, ECT0, 0), Class::Classic, &cx));
        assert!(dropped.count() > 400);
        assert_eq!(qdisc.marks, before);
        qdisc.law.update_once(10_000_000_000);
        let most = if drop_on_overload { ONE } else { ONE / 2 };
        assert_eq!(qdisc.law.prob, most);
    }
}

/// Queues by ECN bits, by priority; packets that waited longer than the step are marked.
#[test]
fn classes_and_the_step() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut qdisc = dualpi2(&DualPi2Spec::default(), &pool);
    let named = |minor: u16, ecn: u8| {
        let mut packet = ip(&pool, 1000, ecn, minor.into());
        packet.set_priority(HANDLE.class(minor).raw());
        packet
    };
    let mut list = PacketList::new();
    for packet in [
        ip(&pool, 1000, NOT_ECT, 10),
        ip(&pool, 1000, ECT0, 11),
        ip(&pool, 1000, ECT1, 12),
        ip(&pool, 1000, 3, 13),
        named(0, NOT_ECT),
        named(1, NOT_ECT),
        named(2, NOT_ECT),
        named(1, ECT0),
    ] {
        list.push_back(packet);
    }
    qdisc.enqueue(&mut list, cx.at(Time(MS)));
    assert_eq!(
        (xstat(&qdisc, "pkts_in_c"), xstat(&qdisc, "pkts_in_l")),
        (3, 5)
    );
    let mut out = PacketList::new();
    // After two milliseconds: beyond the step. One that cannot be marked is dropped.
    qdisc.dequeue(64, &mut out, cx.at(Time(3 * MS)));
    let left: Vec<(u32, u8)> = out
        .iter()
        .map(|packet| (packet.mark(), ecn(packet)))
        .collect();
    let low = [(12, 3), (13, 3), (2, 0), (1, 3)];
    assert_eq!(left[..4], low);
    assert_eq!(left[4..], [(10, 0), (11, 2), (0, 0)]);
    assert_eq!((xstat(&qdisc, "step_marks"), qdisc.stats().drops), (3, 1));
    settle(&mut cx);
    // By packets: the first two have more than two behind them.
    let spec = DualPi2Spec {
        step_packets: Some(2),
        ..DualPi2Spec::default()
    };
    let mut qdisc = dualpi2(&spec, &pool);
    let mut list: PacketList = (0..5).map(|mark| ip(&pool, 60, ECT1, mark)).collect();
    qdisc.enqueue(&mut list, cx.at(Time(3 * MS)));
    let mut out = PacketList::new();
    qdisc.dequeue(64, &mut out, cx.at(Time(9 * MS)));
    let marked: Vec<bool> = out.iter().map(|packet| ecn(packet) == 3).collect();
    assert_eq!(marked, [true, true, false, false, false]);
    // What came while less than two waited is spared.
    let spec = DualPi2Spec {
        min_qlen_step: 2,
        ..DualPi2Spec::default()
    };
    let mut qdisc = dualpi2(&spec, &pool);
    let mut list: PacketList = (0..3).map(|mark| ip(&pool, 60, ECT1, mark)).collect();
    qdisc.enqueue(&mut list, cx.at(Time(10 * MS)));
    let mut out = PacketList::new();
    qdisc.dequeue(64, &mut out, cx.at(Time(20 * MS)));
    let marked: Vec<bool> = out.iter().map(|packet| ecn(packet) == 3).collect();
    assert_eq!(marked, [false, false, true]);
}

/// Beside a full L queue the C queue gets its share of the bytes, and the other way round.
#[test]
fn classic_traffic_is_protected() {
    let pool = pool(4096);
    for protection in [10_u8, 40, 0, 100] {
        let spec = DualPi2Spec {
            classic_protection: protection,
            tupdate: Duration::from_secs(1000),
            ..DualPi2Spec::default()
        };
        let mut qdisc = dualpi2(&spec, &pool);
        let mut cx = Cx::new(&pool);
        let mut bytes = [0_u64; 2];
        for time in 1..20_000 {
            let mut list = PacketList::new();
            if qdisc.low.len() < 20 {
                list.extend((0..2).map(|n| ip(&pool, 1500, ECT1, n)));
            }
            if qdisc.classic.len() < 20 {
                list.extend((0..2).map(|n| ip(&pool, 700, NOT_ECT, n)));
            }
            qdisc.enqueue(&mut list, cx.at(Time(time * MS)));
            let mut out = PacketList::new();
            qdisc.dequeue(1, &mut out, cx.at(Time(time * MS)));
            for packet in &out {
                bytes[usize::from(ecn(packet) != 0)] += packet.wire_len();
            }
        }
        let share = bytes[0] as f64 / (bytes[0] + bytes[1]) as f64;
        let expected = f64::from(protection) / 100.0;
        assert!((share - expected).abs() < 0.03, "{protection}: {share}");
    }
}

/// A sender with a window: additive increase, and a decrease that is its kind's.
struct Sender {
    ecn: u8,
    window: f64,
    flying: u32,
    /// No further halving before this time.
    recovered: u64,
    delivered: u64,
}

impl Sender {
    fn new(ecn: u8) -> Sender {
        Sender {
            ecn,
            window: 10.0,
            flying: 0,
            recovered: 0,
            delivered: 0,
        }
    }

    /// A packet's fate is known: marked or lost, or neither.
    fn answer(&mut self, now: u64, congested: bool, rtt: u64) {
        self.flying -= 1;
        if !congested {
            self.window += 1.0 / self.window;
        } else if self.ecn == ECT1 {
            // Scalable: half a packet for each mark.
            self.window = (self.window - 0.5).max(2.0);
        } else if now >= self.recovered {
            self.window = (self.window / 2.0).max(2.0);
            self.recovered = now + rtt;
        }
    }
}

/// Senders on one link of 1,514 bytes in 120 us (100 Mbit/s), 10 ms away, for 40 seconds. Returns
/// the waiting times of packets of the L queue and of the C queue in the last 30, in nanoseconds.
fn race(senders: &mut [Sender], spec: &DualPi2Spec) -> [Vec<u64>; 2] {
    const SLOT: u64 = 121_120;
    const RTT: u64 = 10 * MS;
    let pool = pool(8192);
    let mut qdisc = dualpi2(spec, &pool);
    let mut cx = Cx::new(&pool);
    let mut answers: VecDeque<(u64, usize, bool)> = VecDeque::new();
    let (mut waits, mut drops) = ([Vec::new(), Vec::new()], Vec::new());
    for slot in 1..40_000 * MS / SLOT {
        let now = slot * SLOT;
        while let Some(&(time, sender, congested)) = answers.front()
            && time <= now
        {
            answers.pop_front();
            senders[sender].answer(now, congested, RTT);
        }
        let mut list = PacketList::new();
        for (index, sender) in senders.iter_mut().enumerate() {
            // At most two for each slot: packets come as answers do.
            for _ in 0..2 {
                if f64::from(sender.flying) + 1.0 <= sender.window {
                    sender.flying += 1;
                    list.push_back(ip(&pool, 1514, sender.ecn, index as u32));
                }
            }
        }
        qdisc.enqueue(&mut list, cx.at(Time(now)));
        let mut out = PacketList::new();
        qdisc.dequeue(1, &mut out, cx.at(Time(now)));
        for packet in out {
            let index = packet.mark() as usize;
            let (sent, marked) = (senders[index].ecn, ecn(&packet) == 3);
            senders[index].delivered += 1;
            answers.push_back((now + RTT, index, marked));
            if now > 10_000 * MS {
                let waited = now - packet.timestamp().nanos();
                waits[usize::from(sent != ECT1)].push(waited);
            }
        }
        drops.extend(cx.dropped.packets().iter().map(Packet::mark));
        settle(&mut cx);
        answers.extend(drops.drain(..).map(|mark| (now + RTT, mark as usize, true)));
    }
    waits
}

/// Beside two classic flows, which fill their queue to the target, two scalable ones wait less than
/// a millisecond, and all four get about the same: what the coupling is for.
#[test]
fn low_latency_beside_classic_traffic() {
    let mut senders = [ECT1, ECT1, NOT_ECT, ECT0].map(Sender::new);
    let [low, classic] = race(&mut senders, &DualPi2Spec::default()).map(|mut waits| {
        waits.sort_unstable();
        waits
    });
    let at = |waits: &[u64], percent: usize| waits[waits.len() * percent / 100];
    assert!(low.len() > 20_000 && classic.len() > 20_000);
    assert!(at(&low, 99) <= MS, "{}", at(&low, 99));
    let middle = at(&classic, 50);
    assert!((5 * MS..25 * MS).contains(&middle), "{middle}");
    let rates: Vec<f64> = senders
        .iter()
        .map(|sender| sender.delivered as f64)
        .collect();
    let ratio = (rates[0] + rates[1]) / (rates[2] + rates[3]);
    assert!((0.4..2.5).contains(&ratio), "{rates:?}");
}

/// A call drops at most so many packets before one leaves, and what is over a new limit goes.
#[test]
fn calls_are_bounded() {
    let pool = pool(1024);
    let mut cx = Cx::new(&pool);
    let mut qdisc = dualpi2(&DualPi2Spec::default(), &pool);
    let mut list: PacketList = (0..500).map(|n| ip(&pool, 1000, NOT_ECT, n)).collect();
    qdisc.enqueue(&mut list, cx.at(Time(MS)));
    qdisc.law.set(ONE, 0);
    let mut out = PacketList::new();
    qdisc.dequeue(2, &mut out, cx.at(Time(MS)));
    assert_eq!((out.len(), qdisc.stats().drops), (2, 2 * u64::from(DROPS)));
    let left = qdisc.stats().qlen;
    let spec = DualPi2Spec {
        limit: 7,
        ..DualPi2Spec::default()
    };
    qdisc.change(&spec, cx.at(Time(MS)));
    assert_eq!(
        (qdisc.stats().qlen, qdisc.stats().drops),
        (7, 2 * u64::from(DROPS) + left - 7)
    );
    settle(&mut cx);
}

/// Large frames are segmented as they come; with `split_gso` off they stay whole.
#[test]
fn large_frames_are_split() {
    for split_gso in [true, false] {
        let pool = large_pool(64);
        let mut cx = Cx::new(&pool);
        let spec = DualPi2Spec {
            split_gso,
            ..DualPi2Spec::default()
        };
        let mut qdisc = dualpi2(&spec, &pool);
        let large = large_tcp(&pool, 10_000, 1000, 1);
        let packets = large.wire_packets();
        qdisc.enqueue(&mut large.into(), cx.at(Time(MS)));
        let expected = if split_gso { packets } else { 1 };
        assert_eq!(
            (qdisc.stats().qlen, qdisc.stats().queued),
            (expected, packets)
        );
        let mut out = PacketList::new();
        qdisc.dequeue(usize::MAX >> 1, &mut out, cx.at(Time(MS)));
        assert_eq!(
            (out.wire_packets(), qdisc.stats().packets),
            (packets, packets)
        );
    }
}

/// Random packets, options and times: nothing is lost, and lengths are right.
#[test]
fn conservation() {
    let pool = pool(1024);
    let mut random = Random(3);
    for round in 0..24_u32 {
        let mut spec = DualPi2Spec {
            limit: 1 + random.below(200),
            drop_enqueue: round % 2 == 0,
            drop_on_overload: round % 3 == 0,
            classic_protection: (random.below(101)) as u8,
            ecn_mask: 1 + (round % 3) as u8,
            alpha: 1 + random.below(100_000),
            beta: 1 + random.below(100_000),
            min_qlen_step: random.below(3),
            ..DualPi2Spec::default()
        };
        let mut qdisc = dualpi2(&spec, &pool);
        let mut cx = Cx::new(&pool);
        let (mut came, mut left, mut now) = (0, 0, 1);
        for _ in 0..500 {
            now += u64::from(random.below(9));
            let count = random.below(9);
            let mut list: PacketList = (0..count)
                .map(|n| ip(&pool, 60 + random.below(1400) as usize, n as u8 & 3, n))
                .collect();
            qdisc.enqueue(&mut list, cx.at(Time(now * MS)));
            let mut out = PacketList::new();
            let budget = random.below(6) as usize;
            let next = qdisc.dequeue(budget, &mut out, cx.at(Time(now * MS)));
            if random.below(60) == 0 {
                spec.limit = 1 + random.below(200);
                qdisc.change(&spec, cx.at(Time(now * MS)));
            }
            came += u64::from(count);
            left += out.len() as u64;
            settle(&mut cx);
            let stats = qdisc.stats();
            assert_eq!(came, left + stats.drops + stats.qlen);
            assert_eq!(stats.qlen as usize, qdisc.low.len() + qdisc.classic.len());
            assert_eq!(qdisc.low.len(), qdisc.classes.len());
            assert!(stats.qlen > 0 || stats.backlog == 0 && stats.memory == 0);
            assert!(next == Next::Ready || budget == 0 || out.len() <= budget);
        }
    }
}
