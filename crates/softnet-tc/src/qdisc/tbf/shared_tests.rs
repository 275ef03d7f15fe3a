//! A `tbf` with several instances, in virtual time.

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::*;
use softnet::stats::DropCounters;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use crate::testing::bench::AllQueues;
use crate::*;

const SECOND: u64 = 1_000_000_000;
/// 1 Gbit/s.
const RATE: u64 = 125_000_000;
/// So much that an instance may be late by 2 ms.
const BURST: u64 = 300_000;
const LEN: usize = 1000;

fn spec(rate: u64) -> TbfSpec {
    TbfSpec {
        rate,
        burst: BURST,
        limit: 1 << 20,
        ..TbfSpec::default()
    }
}

/// The queues of a device, each with so many flows that always have packets.
struct World {
    tree: DeviceTree,
    queues: Vec<AnyQdisc>,
    /// Packets of each flow of each queue, at most.
    waiting: Vec<Vec<usize>>,
    next: Vec<u64>,
    cx: Cx,
    pool: Pool,
    /// Bytes of each flow of each queue.
    sent: Vec<Vec<u64>>,
    log: Vec<(u64, u64)>,
    random: u64,
    make: fn(&Pool, u16) -> Packet,
}

impl World {
    fn new(spec: impl Into<TreeSpec>, flows: &[u16]) -> World {
        let pool = pool(8192);
        let mut env = QdiscEnv::new(&pool);
        env.parallel = true;
        let (tree, roots) = DeviceTree::new(spec, flows.len(), &env).unwrap();
        World {
            tree,
            queues: roots.instances,
            waiting: flows.iter().map(|&flows| vec![0; flows.into()]).collect(),
            next: vec![SECOND; flows.len()],
            cx: Cx::new(&pool),
            pool,
            sent: flows.iter().map(|&flows| vec![0; flows.into()]).collect(),
            log: Vec::new(),
            random: 1,
            make: |pool, flow| {
                let mut packet = frame(pool, 1, 2, LEN, flow.into());
                packet.set_priority(Handle::new(0x10, flow + 1).raw());
                packet
            },
        }
    }

    fn run_until(&mut self, end: u64) {
        while let Some(queue) = (0..self.next.len()).min_by_key(|&queue| self.next[queue])
            && self.next[queue] < end
        {
            let now = self.next[queue];
            self.next[queue] = match self.run(queue, Time(now)) {
                Next::Ready => now + 2000,
                Next::Idle => now + 50_000,
                Next::At(time) => {
                    assert!(time.nanos() > now);
                    // Late, as threads are.
                    self.random = self
                        .random
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1);
                    time.nanos() + (self.random >> 33) % 60_000
                }
            };
        }
    }

    /// Fills up what left, and sends.
    fn run(&mut self, queue: usize, now: Time) -> Next {
        self.cx.now = now;
        let depth = (200 / self.waiting[queue].len().max(1)).max(2);
        for flow in 0..self.waiting[queue].len() {
            while self.waiting[queue][flow] < depth {
                let packet = (self.make)(&self.pool, flow as u16);
                self.queues[queue].enqueue(&mut packet.into(), &mut self.cx);
                self.waiting[queue][flow] += 1;
            }
        }
        // As senders ask that find a backlog, at all of the queues.
        let list = PacketList::from((self.make)(&self.pool, 0));
        let sum = WireSum::from(&list);
        for queue in &mut self.queues {
            let passes = queue.stats().qlen != 0 && queue.try_pass(&list, sum, &mut self.cx);
            assert!(!passes, "it overtakes");
        }
        let mut out = PacketList::new();
        let next = self.queues[queue].dequeue(64, &mut out, &mut self.cx);
        self.cx.dropped.settle(&DropCounters::new());
        for packet in out.iter() {
            let bytes = packet.wire().0;
            let flow = packet.mark() as usize;
            self.sent[queue][flow] += bytes;
            // Segments have no more than a frame has.
            if let Some(waiting) = self.waiting[queue].get_mut(flow) {
                *waiting = waiting.saturating_sub(1);
            }
            self.log.push((now.nanos(), bytes));
        }
        next
    }

    fn total(&self, from: u64, to: u64) -> u64 {
        let sent = self.log.iter().filter(|sent| (from..to).contains(&sent.0));
        sent.map(|sent| sent.1).sum()
    }

    fn assert_rate(&self, from: u64, rate: u64) {
        let sent = self.total(from, from + SECOND) as f64;
        assert!((sent / rate as f64 - 1.0).abs() < 0.002, "{sent} of {rate}");
    }

    /// In no window more than the rate, the bucket and the pots.
    fn assert_windows(&self, rate: u64, burst: u64) {
        let (mut level, mut last) = (0u128, 0);
        for &(time, bytes) in &self.log {
            level = level.saturating_sub(u128::from(time - last) * u128::from(rate));
            last = time;
            level += u128::from(bytes) * u128::from(SECOND);
            let bound = burst + self.queues.len() as u64 * (rate / 5000).max(1518) + 1;
            assert!(level <= u128::from(bound) * u128::from(SECOND), "{level}");
        }
    }
}

#[test]
fn all_instances_together_keep_the_rate() {
    for flows in [&[1, 1][..], &[1, 0], &[1, 1, 1, 1, 1]] {
        let mut world = World::new(QdiscSpec::Tbf(spec(RATE)), flows);
        world.run_until(SECOND * 5 / 2);
        world.assert_rate(SECOND * 5 / 4, RATE);
        world.assert_windows(RATE, BURST);
    }
}

#[test]
fn a_change_is_for_all_of_them() {
    let root = Handle::new(1, 0);
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, root, QdiscSpec::Tbf(spec(RATE)))
        .unwrap();
    let mut world = World::new(tree, &[1, 1]);
    world.run_until(SECOND * 3 / 2);
    for (rate, peak) in [(RATE / 10, None), (RATE, Some(RATE / 2)), (RATE * 2, None)] {
        let now = *world.next.iter().min().unwrap();
        let changed = QdiscSpec::Tbf(TbfSpec {
            peakrate: peak.map(|_| rate + 1),
            mtu: 40_000,
            ..spec(rate)
        });
        let World {
            tree, queues, cx, ..
        } = &mut world;
        tree.on(AllQueues(queues, cx.at(Time(now))))
            .change(root, &changed)
            .unwrap();
        world.run_until(now + SECOND * 3 / 2);
        world.assert_rate(now + SECOND / 4, rate);
    }
}

#[test]
fn flows_have_equal_shares_wherever_they_are() {
    let fair = |tree: &mut TreeSpec| {
        let (root, leaf) = (Handle::new(1, 0), Handle::new(0x10, 0));
        tree.add(Handle::ROOT, root, QdiscSpec::Tbf(spec(RATE)))
            .unwrap();
        let aqm = AqmSpec {
            target: std::time::Duration::from_secs(100),
            ..FqCodelSpec::default().aqm
        };
        let leaves = FqCodelSpec {
            aqm,
            ..FqCodelSpec::default()
        };
        tree.add(root.class(1), leaf, QdiscSpec::FqCodel(leaves))
            .unwrap();
    };
    for flows in [&[7, 1][..], &[1000, 10], &[3, 0, 2]] {
        let mut tree = TreeSpec::new();
        fair(&mut tree);
        let mut world = World::new(tree, flows);
        world.run_until(SECOND * 5 / 4);
        let before = world.sent.clone();
        world.run_until(SECOND * 9 / 4);
        let all: u16 = flows.iter().sum();
        let due = RATE as f64 / f64::from(all);
        for (queue, sent) in world.sent.iter().enumerate() {
            for (flow, sent) in sent.iter().enumerate() {
                let got = (sent - before[queue][flow]) as f64;
                // Packets are whole.
                let error = (got - due).abs() - 2.0 * LEN as f64;
                assert!(error < 0.05 * due, "{flows:?} {queue}: {got} of {due}");
            }
        }
        world.assert_windows(RATE, BURST);
    }
}

#[test]
fn a_class_that_holds_its_packets_back_leaves_the_rate_to_others() {
    let (root, leaf) = (Handle::new(1, 0), Handle::new(0x10, 0));
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, root, QdiscSpec::Tbf(spec(RATE)))
        .unwrap();
    tree.add(root.class(1), leaf, QdiscSpec::Fq(FqSpec::default()))
        .unwrap();
    let mut world = World::new(tree, &[1, 1]);
    world.make = |pool, flow| frame(pool, 1, 2, LEN, flow.into());
    // The other's packets are due in an hour; its queue is looked at again and again.
    let mut paced = (world.make)(&world.pool, 0);
    paced.set_departure_time(Time(SECOND + 5 * SECOND));
    world.cx.now = Time(SECOND);
    world.queues[1].enqueue(&mut paced.into(), &mut world.cx);
    world.waiting[1].clear();
    world.run_until(SECOND * 5 / 2);
    world.assert_rate(SECOND * 5 / 4, RATE);
}

/// Two of them below a `prio`: what an instance says of its next run is when the first of them
/// runs.
#[test]
fn who_stops_is_waited_for_until_the_first_of_its_rates_was_due() {
    let root = Handle::new(0x10, 0);
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, root, QdiscSpec::Prio(PrioSpec::default()))
        .unwrap();
    for (band, rate, burst) in [(1, RATE, 20_000), (2, 500, 2000)] {
        let tbf = TbfSpec {
            burst,
            ..spec(rate)
        };
        let handle = Handle::new(0x20 + band, 0);
        tree.add(root.class(band), handle, QdiscSpec::Tbf(tbf))
            .unwrap();
    }
    let mut world = World::new(tree, &[2, 2]);
    let stop = SECOND * 5 / 4;
    world.run_until(stop);
    world.next[0] = u64::MAX;
    world.run_until(stop + SECOND / 50);
    let before = world.sent[1][0];
    world.run_until(stop + SECOND / 2);
    let sent = (world.sent[1][0] - before) as f64;
    let due = RATE as f64 * 0.48;
    assert!(sent >= 0.8 * due, "{sent} of {due}");
}

#[test]
fn large_frames_are_segmented_by_each() {
    let slow = TbfSpec {
        burst: 600,
        ..spec(1_250_000)
    };
    let mut world = World::new(QdiscSpec::Tbf(slow), &[1, 1]);
    world.make = |pool, flow| {
        let mut packet = crate::testing::large(pool);
        packet.set_mark(flow.into());
        packet
    };
    world.run_until(SECOND * 5 / 2);
    world.assert_rate(SECOND * 5 / 4, 1_250_000);
    world.assert_windows(1_250_000, 600);
}

/// Each of the rates has turns of its own. Some packets are short, and all queues are long.
#[test]
fn two_rates_of_one_packet_do_not_wait_for_each_other() {
    for (rate, peak) in [
        (RATE, RATE + 1),
        (RATE, RATE * 2),
        (RATE / 100, RATE / 100 + 1),
    ] {
        let both = TbfSpec {
            peakrate: Some(peak),
            mtu: 40_000,
            ..spec(rate)
        };
        for flows in [&[1, 1][..], &[7, 1], &[2, 1, 1]] {
            let mut world = World::new(QdiscSpec::Tbf(both.clone()), flows);
            world.make = |pool, flow| {
                let len = if flow == 0 { 1400 } else { 60 };
                frame(pool, 1, 2, len, flow.into())
            };
            let begin = SECOND * 5 / 4;
            world.run_until(begin + SECOND);
            world.assert_rate(begin, rate);
            for sent in &world.sent {
                let sent: u64 = sent.iter().sum();
                let fair = rate * 5 / 4 / flows.len() as u64;
                assert!(sent >= fair * 9 / 10, "{rate} {peak} {flows:?}: {sent}");
            }
            // What waits for the other rate is in the pot, beside a quantum.
            world.assert_windows(rate, BURST + flows.len() as u64 * 1518);
        }
    }
}

/// Greatest distance of a flow's bytes over a second from its share, in percent: seven flows at one
/// queue, and one at another that stands still for the first half of every `period`.
fn apart_beside_pauses(burst: u64, period: u64) -> f64 {
    let (root, leaf) = (Handle::new(1, 0), Handle::new(0x10, 0));
    let mut tree = TreeSpec::new();
    let tbf = TbfSpec {
        burst,
        limit: 1 << 30,
        ..spec(RATE)
    };
    tree.add(Handle::ROOT, root, QdiscSpec::Tbf(tbf)).unwrap();
    let leaves = FqCodelSpec {
        aqm: AqmSpec {
            target: std::time::Duration::from_secs(100),
            ..FqCodelSpec::default().aqm
        },
        ..FqCodelSpec::default()
    };
    let leaves = QdiscSpec::FqCodel(leaves);
    tree.add(root.class(1), leaf, leaves).unwrap();
    let mut world = World::new(tree, &[7, 1]);
    let mut before = Vec::new();
    for begin in (SECOND..SECOND * 5 / 2).step_by(period as usize) {
        if before.is_empty() && begin >= SECOND * 3 / 2 {
            before = world.sent.concat();
        }
        world.next[1] = world.next[1].max(begin + period / 2);
        world.run_until(begin + period);
    }
    let sent = world.sent.concat();
    let got = sent.iter().zip(before).map(|(sent, before)| sent - before);
    let got: Vec<_> = got.map(|got| got as f64).collect();
    let due = got.iter().sum::<f64>() / got.len() as f64;
    got.iter()
        .map(|got| (got / due - 1.0).abs() * 100.0)
        .fold(0.0, f64::max)
}

/// TCP on TAP ports: a worker whose CPU others want does not run for some time slices. What its
/// flows missed they get back, however much the bucket holds.
#[test]
fn a_queue_that_stands_still_for_some_time_slices_loses_no_share() {
    for burst in [RATE / 100, RATE / 25] {
        for ms in [4, 24, 40] {
            let apart = apart_beside_pauses(burst, ms * 1_000_000);
            assert!(apart < 5.0, "burst {burst}, {} ms: {apart} %", ms / 2);
        }
    }
}
