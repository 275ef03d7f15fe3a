//! One `cake` over several queues.

use std::time::Duration;

use softnet::stats::DropCounters;

use super::*;
use crate::account::Xstat;
use crate::qdisc::cake::Isolation;
use crate::qdisc::kind::{AnyQdisc, QdiscSpec};
use crate::testing::bench::AllQueues;
use crate::testing::jain;
use crate::tree::DeviceTree;

/// 1 Gbit/s.
const RATE: u64 = 125_000_000;
const LEN: usize = 1000;

/// A flow that always has packets: its queue, its ends, its traffic class.
type Greedy = (usize, Ends, u8);

/// The queues of a device, which run at times of their own, late as threads are.
struct Queues {
    tree: DeviceTree,
    queues: Vec<AnyQdisc>,
    next: Vec<u64>,
    flows: Vec<Greedy>,
    /// Packets of each flow that wait, and bytes that it has sent.
    waiting: Vec<usize>,
    sent: Vec<u64>,
    cx: Cx,
    pool: Pool,
    random: u64,
}

impl Queues {
    fn new(spec: QdiscSpec, parallel: bool, queues: usize, flows: &[Greedy]) -> Queues {
        let pool = pool(8192);
        let mut env = QdiscEnv::new(&pool);
        env.parallel = parallel;
        let (tree, roots) = DeviceTree::new(spec, queues, &env).unwrap();
        Queues {
            tree,
            queues: roots.instances,
            next: vec![SECOND; queues],
            flows: flows.to_vec(),
            waiting: vec![0; flows.len()],
            sent: vec![0; flows.len()],
            cx: Cx::new(&pool),
            pool,
            random: 1,
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
                    self.random = self
                        .random
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1);
                    time.nanos() + (self.random >> 33) % 60_000
                }
            };
        }
    }

    fn run(&mut self, queue: usize, now: Time) -> Next {
        self.cx.now = now;
        let here = self.flows.iter().filter(|flow| flow.0 == queue).count();
        let depth = (600 / here.max(1)).clamp(2, 100);
        for (flow, &(at, ends, tos)) in self.flows.iter().enumerate() {
            while at == queue && self.waiting[flow] < depth {
                let mut packet = udp(&self.pool, ends, LEN, tos);
                packet.set_mark(flow as u32);
                self.queues[queue].enqueue(&mut packet.into(), &mut self.cx);
                self.waiting[flow] += 1;
            }
        }
        let mut out = PacketList::new();
        let next = self.queues[queue].dequeue(64, &mut out, &mut self.cx);
        assert_eq!(self.cx.dropped.wire_packets(), 0);
        self.cx.dropped.settle(&DropCounters::new());
        for packet in out.iter() {
            let flow = packet.mark() as usize;
            self.sent[flow] += packet.wire_len();
            self.waiting[flow] -= 1;
        }
        next
    }

    /// Bytes of each flow in so many milliseconds, after some in which they find their shares.
    fn shares(&mut self, millis: u64) -> Vec<u64> {
        let begin = self.next.iter().min().copied().unwrap_or(0) + 100 * MS;
        self.run_until(begin);
        self.sent.fill(0);
        self.run_until(begin + millis * MS);
        self.sent.clone()
    }
}

fn spec(rate: u64, isolation: Isolation) -> CakeSpec {
    CakeSpec {
        isolation,
        // No AQM, no limit.
        rtt: Duration::from_secs(1000),
        memlimit: Some(u32::MAX),
        ..limited(rate)
    }
}

fn both(spec: &CakeSpec) -> [(QdiscSpec, bool); 2] {
    [
        (QdiscSpec::Cake(spec.clone()), true),
        (QdiscSpec::CakeMq(spec.clone()), false),
    ]
}

/// The rate is exact, whether all queues have traffic or one has all of it.
#[test]
fn rate_is_one() {
    let spec = spec(RATE, Isolation::Flows);
    for (qdisc, parallel) in both(&spec) {
        for queues in [2, 4] {
            for busy in [queues, 1] {
                let flows: Vec<Greedy> = (0..8)
                    .map(|flow| (usize::from(flow) % busy, ends(flow as u8, 9, flow), 0))
                    .collect();
                let mut world = Queues::new(qdisc.clone(), parallel, queues, &flows);
                let sum: u64 = world.shares(1000).iter().sum();
                let error = sum.abs_diff(RATE) as f64 / RATE as f64;
                assert!(error < 0.002, "{queues} {busy}: {sum}");
            }
        }
    }
}

/// Flows and hosts have the same share, wherever their packets are.
#[test]
fn shares_hold_over_queues() {
    // Three flows here, one there.
    let flows: Vec<Greedy> = (0..4)
        .map(|flow| (usize::from(flow == 3), ends(flow as u8, 9, flow), 0))
        .collect();
    let by_flow = spec(RATE, Isolation::Flows);
    let by_host = spec(RATE, Isolation::DualSrchost);
    for (qdisc, parallel) in both(&by_flow) {
        let shares = Queues::new(qdisc, parallel, 2, &flows).shares(2000);
        assert!(jain(&shares) >= 0.999, "{shares:?}");
    }
    // One host has a flow here and nine there, another one here.
    let mut flows: Vec<Greedy> = (0..9).map(|port| (1, ends(1, 9, port), 0)).collect();
    flows.extend([(0, ends(1, 9, 9), 0), (0, ends(2, 9, 1), 0)]);
    for (qdisc, parallel) in both(&by_host) {
        let shares = Queues::new(qdisc, parallel, 2, &flows).shares(3000);
        let hosts = [shares[..10].iter().sum(), shares[10]];
        assert!(jain(&hosts) >= 0.995, "{hosts:?} {shares:?}");
    }
}

/// Tins have their parts where each is on a queue of its own.
#[test]
fn tins_have_their_parts() {
    let flows = [(0, ends(1, 9, 1), 0xb8), (1, ends(2, 9, 2), 0)];
    for (qdisc, parallel) in both(&spec(RATE, Isolation::Flows)) {
        let shares = Queues::new(qdisc, parallel, 2, &flows).shares(2000);
        let voice = shares[0] as f64 / (shares[0] + shares[1]) as f64;
        assert!((voice - 0.25).abs() < 0.02, "{shares:?}");
    }
    // And where one queue has both, beside best effort alone.
    let flows = [
        (0, ends(1, 9, 1), 0xb8),
        (0, ends(3, 9, 3), 0),
        (1, ends(2, 9, 2), 0),
    ];
    for (qdisc, parallel) in both(&spec(RATE, Isolation::Flows)) {
        let shares = Queues::new(qdisc, parallel, 2, &flows).shares(2000);
        let sum: u64 = shares.iter().sum();
        let parts: Vec<f64> = shares.iter().map(|&of| of as f64 / sum as f64).collect();
        for (part, expected) in parts.iter().zip([0.25, 0.375, 0.375]) {
            assert!((part - expected).abs() < 0.04, "{parts:?}");
        }
    }
}

/// Parameters change for all queues at once: the rate, and whether there is one.
#[test]
fn changes_reach_all_queues() {
    let flows: Vec<Greedy> = (0..4)
        .map(|flow| (usize::from(flow) % 2, ends(flow as u8, 9, flow), 0))
        .collect();
    for (qdisc, parallel) in both(&spec(RATE, Isolation::Flows)) {
        let mut world = Queues::new(qdisc.clone(), parallel, 2, &flows);
        let handle = world.tree.spec().root().unwrap().handle;
        for rate in [Some(RATE / 2), None, Some(RATE / 4), Some(RATE)] {
            let changed = CakeSpec {
                bandwidth: rate,
                ..spec(RATE, Isolation::Flows)
            };
            let changed = match qdisc {
                QdiscSpec::Cake(_) => QdiscSpec::Cake(changed),
                _ => QdiscSpec::CakeMq(changed),
            };
            let Queues {
                tree, queues, cx, ..
            } = &mut world;
            tree.on(AllQueues(queues, cx))
                .change(handle, &changed)
                .unwrap();
            let Some(rate) = rate else { continue };
            let sum: u64 = world.shares(500).iter().sum();
            let error = (2 * sum).abs_diff(rate) as f64 / rate as f64;
            assert!(error < 0.005, "{rate}: {sum}");
        }
    }
}

/// Each queue of `cake_mq` has statistics of its own, and nothing else may be there.
#[test]
fn queues_of_cake_mq_are_fixed() {
    let cake_mq = QdiscSpec::CakeMq(limited(RATE));
    let mut world = Queues::new(cake_mq, false, 4, &[(2, ends(1, 2, 3), 0)]);
    world.run_until(SECOND + 10 * MS);
    let root = world.tree.spec().root().unwrap().handle;
    let sent = |minor| {
        let xstats = world
            .tree
            .xstats_at(Handle::NONE, root.class(minor))
            .unwrap();
        xstats.parts()[1].value(Xstat::SentPackets).unwrap()
    };
    assert!(sent(3) > 100);
    assert_eq!([1, 2, 4].map(sent), [0; 3]);
    let child = world.tree.default_at(root.class(1)).unwrap();
    assert_eq!(child.kind(), "cake");
    let Queues {
        tree, queues, cx, ..
    } = &mut world;
    let mut live = tree.on(AllQueues(queues, cx));
    let refused = live.replace(root.class(1), Handle::NONE, QdiscSpec::Pfifo { limit: 1 });
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("can't replace cake_mq sub-qdiscs")
    );
}
