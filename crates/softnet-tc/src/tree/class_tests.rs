//! Classes that are added, changed and deleted one by one.

use softnet::mem::PacketList;
use softnet::qdisc::*;
use softnet::time::Time;

use crate::testing::bench::Bench;
use crate::testing::handle;
use crate::testing::round_robin::Weight;
use crate::*;

fn weight(weight: usize) -> ClassSpec {
    ClassSpec::RoundRobin(Weight(weight))
}

fn pfifo(limit: u32) -> QdiscSpec {
    QdiscSpec::Pfifo { limit }
}

impl Bench {
    fn add(&mut self, parent: &str, class: &str) {
        let mut tree = self.tree.edit(&mut self.cx);
        let (parent, class) = (handle(parent), handle(class));
        tree.add_class(parent, class, weight(1)).unwrap();
    }

    fn delete(&mut self, class: &str) {
        let mut tree = self.tree.edit(&mut self.cx);
        tree.delete_class(handle(class)).unwrap();
    }

    /// Packets with these marks for a class.
    fn offer_to(&mut self, class: &str, marks: std::ops::Range<u32>) {
        assert_eq!(self.offer(marks, 1000, handle(class).raw()), 0);
    }

    fn names(&self) -> Vec<String> {
        let classes = self.tree.classes();
        let name = |class: &ClassStats| format!("{} {} {}", class.class, class.parent, class.kind);
        classes.iter().skip(1).map(name).collect()
    }
}

fn round_robin<const N: usize>(classes: [(&str, &str); N]) -> Bench {
    let mut bench = Bench::new([("root", "1:", QdiscSpec::RoundRobin)]);
    for (parent, class) in classes {
        bench.add(parent, class);
    }
    bench
}

/// Every refusal has a reason, and leaves the tree as it was.
#[test]
fn what_cannot_be_done_with_classes() {
    let mut bench = round_robin([("1:", "1:1"), ("1:1", "1:2"), ("1:", "1:3"), ("1:", "1:4")]);
    for n in 5..=0xb {
        bench.add(&format!("1:{:x}", n - 1), &format!("1:{n:x}"));
    }
    let mut tree = bench.tree.edit(&mut bench.cx);
    let prio = QdiscSpec::Prio(PrioSpec::default());
    tree.add(handle("1:2"), handle("2:"), prio).unwrap();
    let tbf = TbfSpec {
        rate: 1,
        burst: 1,
        ..TbfSpec::default()
    };
    tree.add(handle("2:1"), handle("3:"), QdiscSpec::Tbf(tbf))
        .unwrap();
    let filter = FilterSpec::new(FilterKind::Matchall, handle("1:3"));
    tree.put_filter(FilterOp::Add, filter).unwrap();
    let before = tree.spec().clone();
    let text = |error: SpecError| error.to_string();
    let add = |tree: &mut LiveTree<'_>, parent, class| {
        let result = tree.add_class(handle(parent), handle(class), weight(1));
        text(result.unwrap_err())
    };
    for (parent, class, error) in [
        ("9:", "9:1", "there is no qdisc 9:"),
        ("1:", "1:1", "there is a class 1:1 already"),
        ("1:c", "1:20", "there is no class 1:c"),
        ("2:1", "1:20", "there is no class 2:1"),
        (
            "1:20",
            "1:20",
            "qdisc parent/child loop detected: 1:20 would be below itself",
        ),
        (
            "1:",
            "1:",
            "1: cannot name a class; a class's name is written like \"1:2\"",
        ),
        (
            "1:b",
            "1:20",
            "1:20 is too deep; at most 8 qdiscs or classes may be nested",
        ),
        (
            "2:",
            "2:4",
            "operation not supported: prio has no classes that are added or deleted",
        ),
        (
            "3:",
            "3:2",
            "operation not supported: tbf has no classes that are added or deleted",
        ),
    ] {
        assert_eq!(add(&mut tree, parent, class), error);
    }
    let zero = tree.add_class(handle("1:"), handle("1:20"), weight(0));
    assert_eq!(text(zero.unwrap_err()), "round_robin: weight must not be 0");
    let zero = tree.change_class(handle("1:1"), &weight(0));
    assert_eq!(text(zero.unwrap_err()), "round_robin: weight must not be 0");
    let none = tree.change_class(handle("1:20"), &weight(1));
    assert_eq!(text(none.unwrap_err()), "there is no class 1:20");
    for (class, error) in [
        (
            "1:1",
            "class in use: 1:1 has classes below it, or filters that lead to it",
        ),
        (
            "1:3",
            "class in use: 1:3 has classes below it, or filters that lead to it",
        ),
        ("1:20", "there is no class 1:20"),
        (
            "2:1",
            "operation not supported: prio has no classes that are added or deleted",
        ),
    ] {
        assert_eq!(text(tree.delete_class(handle(class)).unwrap_err()), error);
    }
    // A class with classes has no qdisc, and no qdisc is below itself.
    let inner = tree.add(handle("1:1"), Handle::NONE, pfifo(1));
    assert_eq!(inner, Err(TreeError::Inner(handle("1:1")).into()));
    let below = tree.replace(handle("2:2"), handle("1:"), pfifo(1));
    assert_eq!(below, Err(TreeError::Loop(handle("1:")).into()));
    assert_eq!(*tree.spec(), before);
    assert_eq!(bench.tree.classes().len(), 1 + 0xb + 3 + 1);
}

/// Numbers need not follow one another; what is shown has each class behind the one above it.
#[test]
fn classes_are_listed_from_the_top() {
    let mut bench = round_robin([("1:", "1:ffff"), ("1:ffff", "1:2"), ("1:", "1:1")]);
    bench.add("1:2", "1:3");
    let mut tree = bench.tree.edit(&mut bench.cx);
    tree.add(
        handle("1:3"),
        handle("2:"),
        QdiscSpec::Prio(PrioSpec::default()),
    )
    .unwrap();
    let all = [
        "1:1 1: pfifo",
        "1:ffff 1: none",
        "1:2 1:ffff none",
        "1:3 1:2 prio",
        "2:1 2: pfifo",
        "2:2 2: pfifo",
        "2:3 2: pfifo",
    ];
    assert_eq!(bench.names(), all);
    // The same if it is built at once.
    let env = QdiscEnv::new(&bench.pool);
    let again = Tree::build(bench.tree.spec().clone(), &env).unwrap();
    let names = |tree: &Tree| {
        let classes = tree.classes();
        classes
            .iter()
            .map(|class| (class.class, class.kind))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&again), names(&bench.tree));
    // What is attached to a class that gets classes goes; the last of them leaves a leaf behind.
    bench.add("1:3", "1:4");
    assert_eq!(bench.names()[3..], ["1:3 1:2 none", "1:4 1:3 pfifo"]);
    assert!(bench.tree.spec().node(handle("2:")).is_none());
    bench.delete("1:4");
    assert_eq!(bench.names()[3..], ["1:3 1:2 pfifo"]);
}

/// The backlog of a class that goes, or becomes inner, is classified again, and is not lost.
#[test]
fn packets_move_when_classes_come_and_go() {
    let mut bench = round_robin([("1:", "1:10"), ("1:", "1:20")]);
    bench.offer_to("1:10", 0..3);
    bench.add("1:10", "1:11");
    // 1:10 is no leaf any more; the first leaf is 1:20.
    assert_eq!((bench.class("1:10").qlen, bench.class("1:20").qlen), (0, 3));
    bench.offer_to("1:11", 3..5);
    bench.delete("1:20");
    assert_eq!(bench.class("1:11").qlen, 5);
    bench.delete("1:11");
    assert_eq!((bench.class("1:10").qlen, bench.class("root").qlen), (5, 5));
    assert_eq!(bench.all(), [3, 4, 0, 1, 2]);
    bench.offer_to("1:10", 5..6);
    bench.delete("1:10");
    assert_eq!(bench.class("root").qlen, 0);
    assert_eq!(bench.class("root").drops, 1);
    assert_eq!(
        bench.reasons(),
        [(softnet::stats::DropReason::QdiscLimit, 1)]
    );
}

/// The packets of a class are its own, whatever qdisc it has had, and those of all classes below.
#[test]
fn a_class_counts_what_was_sent_through_it() {
    let mut bench = round_robin([
        ("1:", "1:1"),
        ("1:1", "1:2"),
        ("1:2", "1:3"),
        ("1:1", "1:4"),
    ]);
    bench.offer_to("1:3", 0..2);
    bench.offer_to("1:4", 2..3);
    assert_eq!(bench.all(), [0, 2, 1]);
    let mut tree = bench.tree.edit(&mut bench.cx);
    tree.add(handle("1:3"), handle("2:"), pfifo(5)).unwrap();
    bench.offer_to("1:3", 3..4);
    assert_eq!(bench.class("1:3").qlen, 1);
    assert_eq!(bench.all(), [3]);
    let sent = ["root", "1:1", "1:2", "1:3", "1:4"].map(|class| bench.class(class).packets);
    assert_eq!(sent, [4, 4, 3, 3, 1]);
    bench.delete("1:3");
    bench.delete("1:4");
    assert_eq!(bench.class("1:2").packets, 3);
    // A class of the same name is another one.
    bench.add("1:1", "1:3");
    assert_eq!(bench.class("1:3").packets, 0);
    assert_eq!(bench.class("root").packets, 4);
}

/// Slots do not run out, and those of classes that are gone are used again.
#[test]
fn a_slot_is_used_again() {
    let mut bench = round_robin([("1:", "1:7"), ("1:", "1:fffe")]);
    let slot = |bench: &Bench, minor| bench.tree.children().unwrap().find(minor);
    assert_eq!((slot(&bench, 7), slot(&bench, 0xfffe)), (Some(0), Some(1)));
    assert_eq!(
        [slot(&bench, 0), slot(&bench, 1), slot(&bench, 0xffff)],
        [None; 3]
    );
    bench.delete("1:7");
    assert_eq!(slot(&bench, 7), None);
    for minor in 0x100..0x110 {
        let class = format!("1:{minor:x}");
        bench.add("1:", &class);
        assert_eq!(slot(&bench, minor), Some(0));
        bench.offer_to(&class, 0..1);
        assert_eq!(bench.all(), [0]);
        bench.delete(&class);
    }
    assert_eq!(slot(&bench, 0xfffe), Some(1));
}

/// BUG-HTB-1, BUG-HTB-2: a queue that becomes empty behind its parent's back, or is so no more,
/// takes its turn or loses it, and nothing else happens if it is said twice.
#[test]
fn a_parent_is_told_what_changed_below() {
    let mut bench = round_robin([("1:", "1:1"), ("1:", "1:2")]);
    let now = Time::ZERO;
    bench.offer_to("1:1", 0..2);
    // A queue for nothing drops what waits there: 1:1 has no turn any more.
    let mut tree = bench.tree.edit(bench.cx.at(now));
    tree.replace(handle("1:1"), handle("2:"), pfifo(0)).unwrap();
    assert_eq!(bench.leave(8, now), (vec![], Next::Idle));
    bench.offer_to("1:2", 2..3);
    assert_eq!(bench.all(), [2]);
    // Two levels below: the bands of a prio.
    let prio = QdiscSpec::Prio(PrioSpec::default());
    let mut tree = bench.tree.edit(bench.cx.at(now));
    tree.replace(handle("1:1"), handle("3:"), prio).unwrap();
    bench.offer_to("1:1", 3..5);
    let mut tree = bench.tree.edit(bench.cx.at(now));
    let fifo = tree.add(handle("3:1"), Handle::NONE, pfifo(0)).unwrap();
    tree.change(fifo, &pfifo(9)).unwrap();
    tree.change(fifo, &pfifo(8)).unwrap();
    tree.delete(fifo).unwrap();
    assert_eq!(bench.class("1:1").qlen, bench.class("root").qlen);
    let left = bench.class("root").qlen as usize;
    assert_eq!(bench.all().len(), left);
}

/// A queue that asks for the time of the push.
#[derive(Debug)]
struct Stamped(Pfifo);

impl Qdisc for Stamped {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.0.enqueue(packets, cx)
    }
    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.0.dequeue(budget, out, cx)
    }
    fn drain(&mut self, out: &mut PacketList) {
        self.0.drain(out);
    }
    fn wants_enqueue_time(&self) -> bool {
        true
    }
    fn stats(&self) -> &QdiscStats {
        self.0.stats()
    }
}

/// The root asks for the time of the push as long as one qdisc below does.
#[test]
fn the_time_of_the_push_is_asked_for_from_below() {
    let stamped = QdiscSpec::Custom(CustomSpec::new("stamped", |_| {
        Box::new(Stamped(Pfifo::new(1)))
    }));
    let mut bench = round_robin([("1:", "1:1"), ("1:", "1:2")]);
    let wants = |bench: &Bench| bench.tree.wants_enqueue_time();
    assert!(!wants(&bench));
    let mut tree = bench.tree.edit(&mut bench.cx);
    let prio = QdiscSpec::Prio(PrioSpec::default());
    tree.add(handle("1:1"), handle("2:"), prio).unwrap();
    tree.add(handle("2:3"), handle("3:"), stamped.clone())
        .unwrap();
    tree.add(handle("1:2"), handle("4:"), stamped.clone())
        .unwrap();
    assert!(wants(&bench));
    bench.delete("1:2");
    assert!(wants(&bench));
    let again = Tree::build(bench.tree.spec().clone(), &QdiscEnv::new(&bench.pool));
    assert!(again.unwrap().wants_enqueue_time());
    let mut tree = bench.tree.edit(&mut bench.cx);
    let two = PrioSpec {
        bands: 2,
        priomap: [0; 16],
    };
    tree.change(handle("2:"), &QdiscSpec::Prio(two)).unwrap();
    assert!(!wants(&bench));
    let mut tree = bench.tree.edit(&mut bench.cx);
    tree.replace(handle("2:1"), handle("3:"), stamped).unwrap();
    assert!(wants(&bench));
    // No leaf any more, and so without the qdisc that asked.
    bench.add("1:1", "1:3");
    assert!(!wants(&bench));
}

/// Transmit queues without a device.
struct Roots<'a>(&'a mut Vec<AnyQdisc>, &'a mut Cx);

impl Queues for Roots<'_> {
    fn install(&mut self, qdiscs: softnet::tx::Qdiscs<AnyQdisc>) {
        *self.0 = qdiscs.instances;
    }
    fn install_at(&mut self, queue: usize, qdisc: AnyQdisc) {
        self.0[queue] = qdisc;
    }
    fn with(&mut self, queue: usize, f: &mut dyn FnMut(&mut AnyQdisc, &mut Cx)) {
        f(&mut self.0[queue], self.1);
    }
}

/// Below `mq` the operation is for the queue that has the qdisc.
#[test]
fn classes_below_a_transmit_queue() {
    let pool = softnet::testing::pool(8);
    let mut cx = Cx::new(&pool);
    let mut spec = TreeSpec::new();
    for (parent, name, qdisc) in [
        ("root", "1:", QdiscSpec::Mq),
        ("1:2", "2:", QdiscSpec::RoundRobin),
        ("1:3", "3:", QdiscSpec::RoundRobin),
    ] {
        spec.add(handle(parent), handle(name), qdisc).unwrap();
    }
    let (mut tree, roots) = DeviceTree::new(spec, 3, &QdiscEnv::new(&pool)).unwrap();
    let mut roots = roots.instances;
    let classes = |roots: &[AnyQdisc]| {
        let classes = roots
            .iter()
            .map(|root| root.children().map_or(0, |c| c.len()));
        classes.collect::<Vec<_>>()
    };
    let mut live = tree.on(Roots(&mut roots, &mut cx));
    live.add_class(handle("3:"), handle("3:1"), weight(1))
        .unwrap();
    live.add_class(handle("3:1"), handle("3:2"), weight(1))
        .unwrap();
    live.add_class(handle("2:"), handle("2:9"), weight(1))
        .unwrap();
    assert_eq!(classes(&roots), [0, 1, 2]);
    let names: Vec<_> = tree.classes(&[QdiscStats::default(); 3]);
    let names: Vec<_> = names.iter().map(|class| class.class.to_string()).collect();
    assert_eq!(names, ["root", "1:1", "1:2", "2:9", "1:3", "3:1", "3:2"]);
    let mut live = tree.on(Roots(&mut roots, &mut cx));
    live.delete_class(handle("3:2")).unwrap();
    live.delete_class(handle("2:9")).unwrap();
    assert_eq!(classes(&roots), [0, 0, 1]);
    // No class of a transmit queue can be added.
    let mut live = tree.on(Roots(&mut roots, &mut cx));
    let added = live.add_class(handle("1:"), handle("1:4"), weight(1));
    assert_eq!(added, Err(TreeError::NoClasses("mq").into()));
}

/// As the text of `Children` says.
#[test]
fn a_class_takes_less_than_400_bytes() {
    assert!(size_of::<crate::account::Child>() + size_of::<ClassCounters>() < 400);
}
