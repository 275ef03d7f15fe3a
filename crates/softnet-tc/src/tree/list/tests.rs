//! Every class is listed, once, whatever the tree.

use super::*;
use crate::TreeSpec;
use crate::qdisc::{ClassSpec, HtbClassSpec, HtbSpec, PrioSpec, QdiscEnv, TbfSpec};
use softnet::testing::pool;
use softnet::tx::{QueueMap, TcQueues};

fn handle(text: &str) -> Handle {
    text.parse().unwrap()
}

fn tree(spec: TreeSpec, queues: usize) -> DeviceTree {
    let env = QdiscEnv::new(&pool(4));
    DeviceTree::new(spec, queues, &env).unwrap().0
}

fn walk(tree: &DeviceTree) -> Vec<String> {
    let mut from = Some(Handle::NONE);
    let mut names = Vec::new();
    while let Some(class) = from.and_then(|from| tree.next_class(from)) {
        names.push(class.to_string());
        from = class.raw().checked_add(1).map(Handle::from_raw);
    }
    names
}

fn htb() -> TreeSpec {
    let mut spec = TreeSpec::new();
    let class = |rate| ClassSpec::Htb(HtbClassSpec::new(rate));
    let tbf = TbfSpec {
        rate: 1000,
        burst: 2000,
        limit: 9000,
        ..TbfSpec::default()
    };
    let add = |spec: &mut TreeSpec, parent: &str, name: &str, qdisc| {
        spec.add(handle(parent), handle(name), qdisc).unwrap();
    };
    add(
        &mut spec,
        "root",
        "ffff:",
        QdiscSpec::Htb(HtbSpec::default()),
    );
    for (parent, name) in [
        ("ffff:", "ffff:1"),
        ("ffff:1", "ffff:20"),
        ("ffff:20", "ffff:3"),
        ("ffff:", "ffff:fffe"),
    ] {
        let class = class(1000);
        spec.add_class(handle(parent), handle(name), class).unwrap();
    }
    add(
        &mut spec,
        "ffff:3",
        "2:",
        QdiscSpec::Prio(PrioSpec::default()),
    );
    add(&mut spec, "2:2", "1:", QdiscSpec::Tbf(tbf));
    add(&mut spec, "2:3", "3:", QdiscSpec::Pfifo { limit: 1 });
    spec
}

#[test]
fn every_class_is_listed_once() {
    let tree = tree(htb(), 1);
    let names = [
        "1:1",
        "2:1",
        "2:2",
        "2:3",
        "ffff:1",
        "ffff:3",
        "ffff:20",
        "ffff:fffe",
    ];
    assert_eq!(walk(&tree), names);
    let queues = [QdiscStats {
        packets: 7,
        ..QdiscStats::default()
    }];
    for listed in tree.classes(&queues).iter().skip(1) {
        let class = tree.class_at(listed.class, &queues).unwrap();
        assert_eq!(
            (class.parent, class.qdisc, class.htb, class.own),
            (listed.parent, listed.qdisc, listed.htb, listed.own)
        );
    }
    assert_eq!(tree.stats_at(Handle::ROOT, &queues).unwrap().packets, 7);
    assert!(tree.class_at(handle("ffff:2"), &queues).is_none());
    let levels = ["ffff:1", "ffff:20", "ffff:3", "ffff:fffe"];
    let levels = levels.map(|class| tree.spec().level(handle(class)));
    assert_eq!(levels, [7, 6, 0, 0]);
    assert_eq!(tree.default_at(handle("ffff:1")), None, "no leaf");
    let pfifo = Some(QdiscSpec::Pfifo { limit: 1000 });
    assert_eq!(tree.default_at(handle("ffff:fffe")), pfifo);
    assert_eq!(tree.default_at(handle("2:4")), None, "no such band");
}

#[test]
fn queues_and_traffic_classes_are_listed() {
    let queues = [1, 2, 4, 8].map(|packets| QdiscStats {
        packets,
        ..QdiscStats::default()
    });
    let mut map = QueueMap::default();
    let of = |offset, count| TcQueues { offset, count };
    map.classes = vec![of(0, 1), of(1, 3)];
    let mut spec = TreeSpec::new();
    let mqprio = QdiscSpec::Mqprio(map);
    spec.add(Handle::ROOT, handle("1:"), mqprio).unwrap();
    let mqprio = tree(spec, 4);
    assert_eq!(
        walk(&mqprio),
        ["1:1", "1:2", "1:3", "1:4", "1:ffe0", "1:ffe1"]
    );
    let packets = |class| mqprio.stats_at(handle(class), &queues).unwrap().packets;
    assert_eq!(
        (packets("1:3"), packets("1:ffe0"), packets("1:ffe1")),
        (4, 1, 14)
    );
    assert_eq!(mqprio.default_at(handle("1:ffe0")), None);
    assert!(mqprio.stats_at(handle("1:5"), &queues).is_none());
    let fast = Some(QdiscSpec::PfifoFast { limit: 1000 });
    assert_eq!(mqprio.default_at(handle("1:4")), fast);

    let none = tree(TreeSpec::new(), 4);
    assert_eq!(none.default_at(Handle::ROOT), Some(QdiscSpec::Mq));
    assert!(walk(&none).is_empty());
    assert_eq!(none.stats_at(Handle::new(0, 2), &queues), Some(queues[1]));
    assert_eq!(tree(TreeSpec::new(), 1).default_at(Handle::ROOT), fast);
}
