//! A large tree: what a change costs, in comparisons of handles. Each search, linear or not, makes
//! them.

use softnet::qdisc::*;
use softnet::testing::pool;
use softnet::time::Time;

use crate::handle::comparisons;
use crate::testing::round_robin::Weight;
use crate::*;

fn prio(bands: u16) -> QdiscSpec {
    QdiscSpec::Prio(PrioSpec {
        bands,
        priomap: [0; 16],
    })
}

/// At least so many nodes, breadth first, and the handle of the last `prio`.
fn grown(nodes: usize) -> (TreeSpec, Handle) {
    let mut spec = TreeSpec::new();
    let root = spec.add(Handle::ROOT, Handle::NONE, prio(16)).unwrap();
    let mut parents = std::collections::VecDeque::from([root]);
    let mut last = root;
    while spec.nodes().len() < nodes {
        let parent = parents.pop_front().unwrap();
        for minor in 1..=16 {
            let child = spec
                .add(parent.class(minor), Handle::NONE, prio(16))
                .unwrap();
            parents.push_back(child);
            last = child;
        }
    }
    (spec, last)
}

/// The most comparisons of one change of each sort, and the classes of the tree.
fn cost(nodes: usize) -> (u64, usize) {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let (spec, last) = grown(nodes);
    let mut tree = Tree::build(spec, &QdiscEnv::new(&pool)).unwrap();
    let classes = tree.classes().len();
    let mut most = 0;
    let mut counted = |change: &mut dyn FnMut(&mut LiveTree<'_>)| {
        let before = comparisons();
        change(&mut tree.edit(cx.at(Time::ZERO)));
        most = most.max(comparisons() - before);
    };
    let class = last.class(3);
    let name = Handle::new(0x7000, 0);
    let pfifo = |limit| QdiscSpec::Pfifo { limit };
    counted(&mut |tree| {
        tree.add(class, name, pfifo(1)).unwrap();
    });
    counted(&mut |tree| tree.change(name, &pfifo(2)).unwrap());
    counted(&mut |tree| {
        tree.replace(class, name, pfifo(3)).unwrap();
    });
    counted(&mut |tree| {
        tree.replace(class, Handle::NONE, pfifo(4)).unwrap();
    });
    let filter = FilterSpec::new(FilterKind::Matchall, class);
    counted(&mut |tree| {
        let key = tree.put_filter(FilterOp::Add, filter.clone()).unwrap();
        tree.delete_filters(last, key).unwrap();
    });
    counted(&mut |tree| {
        let child = tree.spec().child_of(class).unwrap().handle;
        tree.delete(child).unwrap();
    });
    counted(&mut |tree| tree.change(last, &prio(15)).unwrap());
    counted(&mut |tree| {
        tree.change(Handle::new(Handle::FIRST_CHOSEN, 0), &prio(16))
            .unwrap()
    });
    (most, classes)
}

#[test]
fn a_change_costs_as_much_in_a_large_tree() {
    let (few, _) = cost(10);
    let (many, classes) = cost(700);
    assert!(classes > 10_000, "{classes}");
    // A search looks at a few more nodes, not at a thousand times as many.
    assert!(
        many < 3 * few,
        "{few} comparisons among ten, {many} among ten thousand"
    );
}

/// The most comparisons of one operation of each sort on a class, among so many, of which each has
/// up to ten below it.
fn class_cost(classes: u16) -> u64 {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let root = Handle::new(1, 0);
    let mut spec = TreeSpec::new();
    spec.add(Handle::ROOT, root, QdiscSpec::RoundRobin).unwrap();
    let weight = |weight| ClassSpec::RoundRobin(Weight(weight));
    for minor in 1..=classes {
        // 1:1 to 1:9 are at the top, 1:a to 1:13 below 1:1, and so on.
        let parent = root.class(minor / 10);
        spec.add_class(parent, root.class(minor), weight(1))
            .unwrap();
    }
    let mut tree = Tree::build(spec, &QdiscEnv::new(&pool)).unwrap();
    assert_eq!(tree.classes().len(), usize::from(classes) + 1);
    let mut most = 0;
    let mut counted = |change: &mut dyn FnMut(&mut LiveTree<'_>)| {
        let before = comparisons();
        change(&mut tree.edit(cx.at(Time::ZERO)));
        most = most.max(comparisons() - before);
    };
    let (parent, class) = (root.class(classes / 2), root.class(0xFFF0));
    let name = Handle::new(0x7000, 0);
    let pfifo = |limit| QdiscSpec::Pfifo { limit };
    counted(&mut |tree| tree.add_class(parent, class, weight(1)).unwrap());
    counted(&mut |tree| tree.change_class(class, &weight(2)).unwrap());
    counted(&mut |tree| {
        tree.add(class, name, pfifo(1)).unwrap();
    });
    counted(&mut |tree| tree.delete(name).unwrap());
    counted(&mut |tree| tree.change(root, &QdiscSpec::RoundRobin).unwrap());
    counted(&mut |tree| tree.delete_class(class).unwrap());
    most
}

#[test]
fn a_class_operation_costs_as_much_among_many() {
    let (few, many) = (class_cost(10), class_cost(10_000));
    assert!(
        many < 4 * few,
        "{few} comparisons among ten classes, {many} among ten thousand"
    );
}
