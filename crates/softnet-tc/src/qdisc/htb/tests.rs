//! `htb` in a tree, in virtual time: where packets go, and what is counted.

use softnet::mem::{PacketList, Pool};
use softnet::stats::DropReason;
use softnet::testing::{frame, pool};
use softnet::time::Time;

use super::*;
use crate::account::HtbClassStats;
use crate::filter::{FilterKind, FilterOp, FilterSpec, Flower};
use crate::qdisc::class::ClassSpec;
use crate::qdisc::kind::QdiscSpec;
use crate::qdisc::spec::QdiscEnv;
use crate::qdisc::tbf::TbfSpec;
use crate::testing::handle;
use crate::tree::{ClassStats, Tree, TreeError, TreeSpec};

const MS: u64 = 1_000_000;

struct World {
    tree: Tree,
    pool: Pool,
    cx: Cx,
    sent: Vec<(u64, u32)>,
    sequence: u32,
}

fn class(rate: u64, ceil: u64, burst: u64) -> HtbClassSpec {
    HtbClassSpec {
        ceil,
        burst,
        cburst: burst,
        ..HtbClassSpec::new(rate)
    }
}

impl World {
    /// `1:`, with these parameters and classes: parent, name, parameters.
    fn new(spec: HtbSpec, classes: &[(&str, &str, HtbClassSpec)]) -> World {
        let pool = pool(256);
        let mut tree = TreeSpec::new();
        tree.add(Handle::ROOT, handle("1:"), QdiscSpec::Htb(spec))
            .unwrap();
        for (parent, name, class) in classes {
            let class = ClassSpec::Htb(class.clone());
            tree.add_class(handle(parent), handle(name), class).unwrap();
        }
        World {
            tree: Tree::build(tree, &QdiscEnv::new(&pool)).unwrap(),
            cx: Cx::new(&pool),
            pool,
            sent: Vec::new(),
            sequence: 0,
        }
    }

    /// Enqueues a packet for a class, and sends what may be sent.
    fn send(&mut self, priority: u32, len: usize) -> Verdict {
        let mut packet = frame(&self.pool, 1, 2, len, self.sequence);
        self.sequence += 1;
        packet.set_priority(priority);
        let verdict = self
            .tree
            .enqueue(&mut PacketList::from(packet), &mut self.cx);
        self.dequeue();
        verdict
    }

    fn dequeue(&mut self) -> Next {
        let mut out = PacketList::new();
        let next = self.tree.dequeue(64, &mut out, &mut self.cx);
        let now = self.cx.now.nanos();
        self.sent
            .extend(out.iter().map(|packet| (now / MS, packet.mark())));
        next
    }

    /// Lets everything leave.
    fn run_dry(&mut self) {
        while let Next::At(time) = self.dequeue() {
            assert!(time > self.cx.now);
            self.cx.now = time;
        }
        assert_eq!(self.tree.stats().qlen, 0);
    }

    fn edit(&mut self) -> crate::LiveTree<'_> {
        self.tree.edit(&mut self.cx)
    }

    fn class(&self, name: &str) -> ClassStats {
        let mut all = self.tree.classes().into_iter();
        all.find(|class| class.class == handle(name)).unwrap()
    }

    fn htb(&self, name: &str) -> HtbClassStats {
        self.class(name).htb.unwrap()
    }

    fn direct(&self) -> u64 {
        let mut xstats = self.tree.xstats(handle("1:")).unwrap().iter();
        xstats.next().map_or(0, |(name, value)| {
            assert_eq!(name, "direct_packets_stat");
            value
        })
    }

    fn reasons(&mut self) -> Vec<(DropReason, u32)> {
        let counts = self.cx.dropped.counts().iter().copied();
        let named = DropReason::ALL.iter().copied().zip(counts);
        named.filter(|&(_, count)| count > 0).collect()
    }
}

const CLASS_10: u32 = 0x1_0010;
const CLASS_20: u32 = 0x1_0020;

fn default_10() -> HtbSpec {
    HtbSpec {
        default: 0x10,
        ..HtbSpec::default()
    }
}

/// G4, measured with the running kernel, with a leaf of five packets.
#[test]
fn g4_a_leaf_with_a_pfifo() {
    let mut world = World::new(
        default_10(),
        &[
            ("1:", "1:1", class(10_000, 20_000, 2000)),
            ("1:1", "1:10", class(5_000, 20_000, 2000)),
        ],
    );
    let pfifo = QdiscSpec::Pfifo { limit: 5 };
    world
        .edit()
        .add(handle("1:10"), handle("10:"), pfifo)
        .unwrap();
    let verdicts: Vec<Verdict> = (0..12).map(|_| world.send(0, 1000)).collect();
    assert_eq!(verdicts[..8], [Verdict::Queued; 8]);
    assert_eq!(verdicts[8..], [Verdict::Dropped; 4]);
    let root = *world.tree.stats();
    assert_eq!((root.packets, root.qlen, root.backlog), (3, 5, 5000));
    assert_eq!((root.drops, root.overlimits), (4, 2));
    let (inner, leaf) = (world.class("1:1"), world.class("1:10"));
    assert_eq!(
        (leaf.stats.packets, leaf.stats.drops, leaf.stats.qlen),
        (3, 4, 5)
    );
    assert_eq!((inner.stats.packets, inner.stats.bytes), (3, 3000));
    assert_eq!((inner.stats.drops, inner.stats.qlen), (0, 0));
    world.run_dry();
    let times: Vec<u64> = world.sent.iter().map(|sent| sent.0).collect();
    assert_eq!(times, [0, 0, 0, 100, 200, 300, 400, 500]);
    let (inner, leaf) = (world.htb("1:1"), world.htb("1:10"));
    assert_eq!((leaf.lended, leaf.borrowed), (5, 3));
    assert_eq!((inner.lended, inner.borrowed), (3, 0));
    assert_eq!(world.class("1:1").stats.packets, 8);
}

/// Also where a class has space for some of its packets only.
#[test]
fn a_list_is_queued_as_its_packets_one_by_one() {
    let enqueue = |at_once: bool| {
        let leaf = || class(1000, 1000, 1000);
        let classes = [("1:", "1:10", leaf()), ("1:", "1:20", leaf())];
        let mut world = World::new(default_10(), &classes);
        let pfifo = QdiscSpec::Pfifo { limit: 3 };
        world
            .edit()
            .add(handle("1:10"), handle("10:"), pfifo)
            .unwrap();
        // The one without a class goes to that by default.
        let named = [
            CLASS_10, CLASS_10, CLASS_20, CLASS_20, CLASS_10, CLASS_10, 0, CLASS_20,
        ];
        let packet = |(mark, priority)| {
            let mut packet = frame(&world.pool, 1, 2, 100, mark);
            packet.set_priority(priority);
            packet
        };
        let mut list: PacketList = (0..).zip(named).map(packet).collect();
        let each = if at_once { list.len() } else { 1 };
        let mut verdict = Verdict::Queued;
        while !list.is_empty() {
            let mut part = PacketList::new();
            list.split_front(each, &mut part);
            verdict = verdict.max(world.tree.enqueue(&mut part, &mut world.cx));
        }
        let stats = ["1:10", "1:20"].map(|name| world.class(name).stats);
        let reasons = world.reasons();
        world.run_dry();
        (verdict, stats, reasons, world.sent)
    };
    let (verdict, [one, other], reasons, sent) = enqueue(true);
    assert_eq!((one.qlen, one.drops, other.qlen), (3, 2, 3));
    assert_eq!((verdict, [one, other], reasons, sent), enqueue(false));
}

/// G5: without a default class packets are sent directly; as many wait as `direct_qlen`.
#[test]
fn g5_direct_packets() {
    let mut world = World::new(HtbSpec::default(), &[]);
    for _ in 0..3 {
        world.send(0, 1000);
    }
    assert_eq!((world.direct(), world.tree.stats().packets), (3, 3));
    let spec = HtbSpec {
        direct_qlen: Some(4),
        ..default_10()
    };
    let mut world = World::new(spec, &[("1:", "1:10", class(1000, 1000, 0))]);
    let packet = |world: &World, mark| frame(&world.pool, 1, 2, 100, mark);
    let mut list: PacketList = (0..3).map(|mark| packet(&world, mark)).collect();
    // The qdisc's own name is as good as none.
    list.extend((3..9).map(|mark| {
        let mut packet = packet(&world, mark);
        packet.set_priority(0x1_0000);
        packet
    }));
    let verdict = world.tree.enqueue(&mut list, &mut world.cx);
    assert_eq!(verdict, Verdict::Dropped);
    assert_eq!((world.direct(), world.tree.stats().drops), (4, 2));
    let refused = world.tree.xstats(handle("1:")).unwrap().iter().nth(1);
    assert_eq!(refused, Some(("direct_drops", 2)));
    assert_eq!(world.reasons(), [(DropReason::QdiscLimit, 2)]);
    world.run_dry();
    // They are first, and no tokens are asked for.
    assert_eq!(world.sent[..5], [(0, 3), (0, 4), (0, 5), (0, 6), (0, 0)]);
}

/// A priority or filter that names an inner class, or none that there is, and a default class
/// that is an inner one.
#[test]
fn what_leads_to_no_leaf_goes_to_the_default_class() {
    let leaf = || class(1_000_000, 1_000_000, 10_000);
    let mut world = World::new(
        default_10(),
        &[
            ("1:", "1:1", leaf()),
            ("1:1", "1:10", leaf()),
            ("1:1", "1:20", leaf()),
        ],
    );
    let filter = |mark, class| FilterSpec {
        prio: 1,
        parent: handle("1:"),
        ..FilterSpec::new(
            Flower {
                mark: Some((mark, u32::MAX)),
                ..Flower::default()
            },
            handle(class),
        )
    };
    // The packets' marks are their numbers.
    for (mark, class) in [(0, "1:20"), (1, "1:1"), (2, "1:77"), (3, "1:"), (4, "1:20")] {
        let filter = filter(mark, class);
        world.edit().put_filter(FilterOp::Add, filter).unwrap();
    }
    let packets = |world: &World| {
        let count = |name| world.class(name).stats.packets;
        (count("1:10"), count("1:20"), world.direct())
    };
    let mut seen = Vec::new();
    for priority in [0, 0, 0, 0, CLASS_10, 0x1_0001, CLASS_20, 0x2_0020, 0x1_0077] {
        world.send(priority, 100);
        seen.push(packets(&world));
    }
    let expected = [
        (0, 1, 0),
        (1, 1, 0),
        (2, 1, 0),
        (2, 1, 1),
        (3, 1, 1),
        (4, 1, 1),
        (4, 2, 1),
        (5, 2, 1),
        (6, 2, 1),
    ];
    assert_eq!(seen, expected);
    // The default class gets classes of its own.
    let spec = ClassSpec::Htb(leaf());
    world
        .edit()
        .add_class(handle("1:10"), handle("1:30"), spec)
        .unwrap();
    world.send(0, 100);
    assert_eq!(world.direct(), 2);
}

/// The backlog of a leaf that gets a class, or that is deleted, is dropped, and counted at the
/// qdisc; as the last of its classes goes, a class is a leaf again.
#[test]
fn leaves_become_inner_classes_and_leaves_again() {
    let mut world = World::new(default_10(), &[("1:", "1:10", class(1000, 1000, 1000))]);
    for _ in 0..5 {
        world.send(CLASS_10, 600);
    }
    assert_eq!(world.tree.stats().qlen, 3);
    let add = |world: &mut World, name| {
        let spec = ClassSpec::Htb(class(1000, 1000, 1000));
        world
            .edit()
            .add_class(handle("1:10"), handle(name), spec)
            .unwrap();
    };
    add(&mut world, "1:20");
    assert_eq!((world.tree.stats().qlen, world.tree.stats().drops), (0, 3));
    assert_eq!(world.reasons(), [(DropReason::QdiscReset, 3)]);
    for _ in 0..5 {
        world.send(CLASS_20, 600);
    }
    // Two with its own tokens.
    assert_eq!((world.htb("1:20").lended, world.tree.stats().qlen), (2, 3));
    let deep = world.edit().delete_class(handle("1:10"));
    let in_use = TreeError::ClassInUse {
        text: "HTB class in use",
        class: handle("1:10"),
    };
    assert_eq!(deep, Err(in_use.into()));
    world.edit().delete_class(handle("1:20")).unwrap();
    assert_eq!((world.tree.stats().qlen, world.tree.stats().drops), (0, 6));
    // Full buckets, and a pfifo as long as the device's.
    world.send(CLASS_10, 600);
    world.send(CLASS_10, 600);
    world.send(CLASS_10, 600);
    assert_eq!((world.htb("1:10").lended, world.tree.stats().qlen), (4, 1));
    assert_eq!(world.class("1:10").kind, "pfifo");
    add(&mut world, "1:20");
    world.send(CLASS_20, 600);
    world.run_dry();
}

/// A leaf that holds its packets back does not stop the others, nor is it forgotten.
#[test]
fn a_leaf_that_shapes_by_itself() {
    let full = || class(1_000_000_000, 1_000_000_000, 100_000);
    let mut world = World::new(
        default_10(),
        &[("1:", "1:10", full()), ("1:", "1:20", full())],
    );
    let tbf = QdiscSpec::Tbf(TbfSpec {
        rate: 10_000,
        burst: 1000,
        limit: 10_000,
        ..TbfSpec::default()
    });
    world
        .edit()
        .add(handle("1:10"), handle("10:"), tbf)
        .unwrap();
    for n in 0..6 {
        world.send(if n % 2 == 0 { CLASS_10 } else { CLASS_20 }, 1000);
    }
    assert_eq!(world.sent, [(0, 0), (0, 1), (0, 3), (0, 5)]);
    assert_eq!(world.dequeue(), Next::At(Time(100 * MS)));
    world.run_dry();
    assert_eq!(world.sent[4..], [(100, 2), (200, 4)]);
}

/// BUG-HTB-8: 100 Gbit/s are more bits than 32.
#[test]
fn rates_above_32_bits() {
    let mut world = World::new(
        default_10(),
        &[("1:", "1:10", class(12_500_000_000, 12_500_000_000, 0))],
    );
    world.send(CLASS_10, 1000);
    world.send(CLASS_10, 1000);
    assert_eq!(world.dequeue(), Next::At(Time(80)));
    world.run_dry();
    // The kernel's ticks of 64 ns.
    assert_eq!(world.htb("1:10").tokens, -2);
}

/// The class counts on; each qdisc has its own.
#[test]
fn a_qdisc_does_not_count_what_its_class_sent_before() {
    let mut world = World::new(
        default_10(),
        &[("1:", "1:10", class(1_000_000, 1_000_000, 1 << 20))],
    );
    let counts = |world: &World| {
        let shown = world.tree.tree.qdisc_stats_at(handle("1:10"), &[]).unwrap();
        let class = world.class("1:10").stats;
        ([shown, class]).map(|stats| (stats.packets, stats.bytes, stats.drops, stats.qlen))
    };
    world.send(0, 100);
    world.send(0, 100);
    assert_eq!(counts(&world), [(2, 200, 0, 0); 2]);
    // Two packets move, one of which has no room.
    for _ in 0..2 {
        let mut packet = PacketList::from(frame(&world.pool, 1, 2, 300, 9));
        world.tree.enqueue(&mut packet, &mut world.cx);
    }
    let pfifo = QdiscSpec::Pfifo { limit: 1 };
    let mut edit = world.edit();
    edit.add(handle("1:10"), handle("10:"), pfifo.clone())
        .unwrap();
    assert_eq!(counts(&world), [(0, 0, 1, 1), (2, 200, 1, 1)]);
    world.dequeue();
    assert_eq!(counts(&world), [(1, 300, 1, 0), (3, 500, 1, 0)]);
    let mut edit = world.edit();
    edit.replace(handle("1:10"), handle("11:"), pfifo).unwrap();
    assert_eq!(counts(&world), [(0, 0, 0, 0), (3, 500, 1, 0)]);
    world.edit().delete_class(handle("1:10")).unwrap();
    let spec = ClassSpec::Htb(class(1_000_000, 1_000_000, 1 << 20));
    world
        .edit()
        .add_class(handle("1:"), handle("1:10"), spec)
        .unwrap();
    world.send(0, 100);
    assert_eq!(counts(&world), [(1, 100, 0, 0); 2]);
    // Nor what was sent below the class before it was a leaf again.
    let spec = ClassSpec::Htb(class(1_000_000, 1_000_000, 1 << 20));
    let (inner, leaf) = (handle("1:10"), handle("1:20"));
    world.edit().add_class(inner, leaf, spec).unwrap();
    world.send(leaf.raw(), 100);
    world.edit().delete_class(leaf).unwrap();
    assert_eq!(counts(&world), [(0, 0, 0, 0), (2, 200, 0, 0)]);
    world.send(0, 100);
    assert_eq!(counts(&world), [(1, 100, 0, 0), (3, 300, 0, 0)]);
}

/// Packets of one leaf pass when it has tokens for all of them.
#[test]
fn packets_pass_an_empty_htb() {
    let mut world = World::new(
        default_10(),
        &[
            ("1:", "1:1", class(1000, 1000, 2000)),
            ("1:1", "1:10", class(1000, 1000, 2000)),
        ],
    );
    let list = |world: &World, n| -> PacketList {
        (0..n)
            .map(|mark| frame(&world.pool, 1, 2, 600, mark))
            .collect()
    };
    let pass = |world: &mut World, n| {
        let packets = list(world, n);
        let sum = WireSum::from(&packets);
        world.tree.try_pass(&packets, sum, &mut world.cx)
    };
    assert!(!pass(&mut world, 4));
    assert!(pass(&mut world, 3));
    assert_eq!(
        (world.htb("1:10").lended, world.class("1:1").stats.bytes),
        (3, 1800)
    );
    // One packet beyond, and then none.
    assert!(pass(&mut world, 1));
    assert_eq!(
        (world.htb("1:10").lended, world.tree.stats().overlimits),
        (4, 2)
    );
    assert!(!pass(&mut world, 1));
    // 400 bytes of debt.
    world.cx.now = Time(400 * MS - 1);
    assert!(!pass(&mut world, 1));
    world.cx.now = Time(400 * MS);
    assert!(pass(&mut world, 1));
    assert_eq!(world.tree.stats().packets, 5);
}

/// BUG-HTB-4: filters of inner classes that lead to each other end with a drop that has a reason.
#[test]
fn filters_of_inner_classes_that_lead_to_each_other_end() {
    let leaf = || class(100_000_000, 100_000_000, 100_000);
    let classes = [
        ("1:", "1:1", leaf()),
        ("1:", "1:2", leaf()),
        ("1:1", "1:10", leaf()),
        ("1:2", "1:20", leaf()),
    ];
    let mut world = World::new(default_10(), &classes);
    for (parent, class) in [("1:", "1:1"), ("1:1", "1:2"), ("1:2", "1:1")] {
        let any = FilterKind::fw(u32::MAX);
        let filter = FilterSpec {
            parent: handle(parent),
            handle: 1,
            ..FilterSpec::new(any, handle(class))
        };
        world.edit().put_filter(FilterOp::Add, filter).unwrap();
    }
    // Marked 0, which no filter matches, then 1.
    world.send(0, 100);
    assert_eq!(world.reasons(), []);
    world.send(0, 100);
    assert_eq!(world.reasons(), [(DropReason::ReclassifyLoop, 1)]);
    assert_eq!(world.tree.stats().drops, 1);
    world.run_dry();
}
