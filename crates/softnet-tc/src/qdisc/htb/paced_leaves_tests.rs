//! Random trees of `htb` at several queues, with qdiscs at their leaves that hold packets back: all
//! that was accepted leaves, in order and in time.

use proptest::prelude::*;
use proptest::sample::Index;

use softnet::mem::PacketList;
use softnet::qdisc::*;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use crate::*;

const SECOND: u64 = 1_000_000_000;
/// 100 Mbit/s.
const RATE: u64 = 12_500_000;
const LEN: usize = 1000;
/// So much that no rate is lost while queues wait for each other.
const BURST: u64 = 60_000;

#[derive(Clone, Copy, Debug)]
enum Pace {
    Fq,
    Tbf,
}

#[derive(Clone, Debug)]
struct Leaf {
    rate: u64,
    prio: u32,
    quantum: u32,
    /// Rate at which its qdisc holds packets back.
    pace: Option<(Pace, u64)>,
    /// Queues, and packets that come there.
    packets: Vec<(Index, usize)>,
}

fn leaf() -> impl Strategy<Value = Leaf> {
    let kind = prop_oneof![Just(Pace::Fq), Just(Pace::Tbf)];
    (
        1000..RATE / 8,
        0..4_u32,
        500..4000_u32,
        prop::option::of((kind, 10_000..RATE)),
        prop::collection::vec((any::<Index>(), 1..60_usize), 1..4),
    )
        .prop_map(|(rate, prio, quantum, pace, packets)| Leaf {
            rate,
            prio,
            quantum,
            pace,
            packets,
        })
}

impl Leaf {
    fn class(&self) -> HtbClassSpec {
        HtbClassSpec {
            ceil: RATE,
            burst: BURST,
            cburst: BURST,
            prio: self.prio,
            quantum: Some(self.quantum),
            ..HtbClassSpec::new(self.rate)
        }
    }

    fn qdisc(&self) -> QdiscSpec {
        match self.pace {
            None => QdiscSpec::Pfifo { limit: 1000 },
            Some((Pace::Fq, rate)) => QdiscSpec::Fq(FqSpec {
                flow_limit: 1000,
                maxrate: Some(rate),
                ..FqSpec::default()
            }),
            Some((Pace::Tbf, rate)) => QdiscSpec::Tbf(TbfSpec {
                rate,
                burst: BURST,
                limit: 1 << 20,
                ..TbfSpec::default()
            }),
        }
    }

    /// Nanoseconds that its packets take, if it is alone.
    fn time(&self) -> u64 {
        let packets: usize = self.packets.iter().map(|&(_, packets)| packets).sum();
        let rate = self.pace.map_or(RATE, |(_, rate)| rate);
        (packets * LEN) as u64 * SECOND / rate
    }
}

fn tree(leaves: &[Leaf]) -> TreeSpec {
    let mut tree = TreeSpec::new();
    let root = Handle::new(1, 0);
    let htb = QdiscSpec::Htb(HtbSpec::default());
    tree.add(Handle::ROOT, root, htb).unwrap();
    let whole = HtbClassSpec {
        burst: BURST,
        cburst: BURST,
        ..HtbClassSpec::new(RATE)
    };
    tree.add_class(root, root.class(1), ClassSpec::Htb(whole))
        .unwrap();
    for (minor, leaf) in (2..).zip(leaves) {
        let class = root.class(minor);
        tree.add_class(root.class(1), class, ClassSpec::Htb(leaf.class()))
            .unwrap();
        tree.add(class, Handle::NONE, leaf.qdisc()).unwrap();
    }
    tree
}

/// INV-Q-7: a leaf whose queue loses what comes has nothing to send.
#[test]
fn inv_q_7_a_leaf_that_loses_its_packets_is_not_active() {
    let pool = pool(4);
    let root = Handle::new(1, 0);
    let mut tree = tree(&[]);
    let loss = NetemSpec {
        loss: u32::MAX,
        ..NetemSpec::default()
    };
    tree.add(root.class(1), Handle::NONE, QdiscSpec::Netem(loss))
        .unwrap();
    let env = QdiscEnv::new(&pool);
    let mut queue = QdiscSpec::Tree(tree).build(&env).unwrap();
    let mut packet = frame(&pool, 1, 2, LEN, 0);
    packet.set_priority(root.class(1).raw());
    let verdict = queue.enqueue(&mut packet.into(), &mut Cx::new(&pool));
    assert_eq!((verdict, queue.stats().qlen), (Verdict::Queued, 0));
    let AnyQdisc::Htb(htb) = queue else {
        panic!("the root is an htb");
    };
    assert!(htb.scheduler.is_blocked());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// No leaf waits for much longer than all of them take one after the other, whatever the others
    /// hold back, and however little it may send by itself.
    #[test]
    fn all_packets_leave_in_time(
        count in 1..5_usize,
        leaves in prop::collection::vec(leaf(), 1..6),
    ) {
        let pool = pool(1024);
        let env = QdiscEnv { parallel: true, ..QdiscEnv::new(&pool) };
        let (_tree, roots) = DeviceTree::new(tree(&leaves), count, &env).unwrap();
        let mut queues = roots.instances;
        let mut cx = Cx::new(&pool);
        let (mut accepted, mut sent) = (0, 0);
        for (minor, leaf) in (2..).zip(&leaves) {
            for (queue, packets) in &leaf.packets {
                for _ in 0..*packets {
                    let mut packet = frame(&pool, 1, 2, LEN, accepted);
                    packet.set_priority(Handle::new(1, minor).raw());
                    packet.set_flow_hash(minor.into());
                    let verdict = queues[queue.index(count)]
                        .enqueue(&mut packet.into(), cx.at(Time(SECOND)));
                    prop_assert_eq!(verdict, Verdict::Queued);
                    accepted += 1;
                }
            }
        }
        let due = leaves.iter().map(Leaf::time).sum::<u64>();
        let mut next = vec![SECOND; count];
        let mut last = vec![[None; 8]; count];
        let mut runs = 0;
        while let Some(queue) = (0..count).min_by_key(|&queue| next[queue])
            && next[queue] < u64::MAX
        {
            let now = next[queue];
            prop_assert!(now <= 3 * SECOND + 2 * due, "{sent} of {accepted}");
            let mut out = PacketList::new();
            next[queue] = match queues[queue].dequeue(64, &mut out, cx.at(Time(now))) {
                Next::Idle => u64::MAX,
                Next::Ready => now + 1000,
                Next::At(time) => time.nanos(),
            };
            prop_assert!(next[queue] > now, "asks to come back at once");
            for packet in &out {
                let minor = Handle::from_raw(packet.priority()).minor();
                let before = last[queue][usize::from(minor)].replace(packet.mark());
                prop_assert!(before < Some(packet.mark()));
                sent += 1;
            }
            runs += 1;
            prop_assert!(runs < 1_000_000);
        }
        prop_assert_eq!(sent, accepted);
    }
}
