//! Any tree, in the order in which it can be made.

use proptest::prelude::*;
use softnet_tc::{
    ClassSpec, EstimatorSpec, FilterOp, FilterSpec, Handle, LinkLayer, QdiscSpec, SizeOptions,
    SizeTable, TreeSpec,
};

use super::filters::filter;
use super::kinds::{class, spec};
use crate::config::parse_tree;
use crate::config::write::write_tree;

#[derive(Clone, Debug)]
enum Step {
    Qdisc(prop::sample::Index, QdiscSpec),
    Class(prop::sample::Index, u16, ClassSpec),
    Filter(prop::sample::Index, FilterSpec),
    Stab(SizeOptions),
    Estimator(prop::sample::Index, i8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let layer = prop_oneof![
        Just(None),
        Just(Some(LinkLayer::Ethernet)),
        Just(Some(LinkLayer::Atm))
    ];
    let stab = (0..10_000_u32, 0..100_u32, 0..200_u32, -50..50_i32, layer);
    let stab = stab.prop_map(|(mtu, tsize, mpu, overhead, linklayer)| {
        Step::Stab(SizeOptions {
            mtu,
            tsize,
            mpu,
            overhead,
            linklayer,
        })
    });
    prop_oneof![
        4 => (index(), spec()).prop_map(|(at, spec)| Step::Qdisc(at, spec)),
        6 => (index(), 1..40_u16, class()).prop_map(|(at, n, spec)| Step::Class(at, n, spec)),
        4 => (index(), filter()).prop_map(|(at, filter)| Step::Filter(at, filter)),
        1 => stab,
        1 => (index(), -2..=3_i8, 1..=30_u8).prop_map(|(at, i, log)| Step::Estimator(at, i, log)),
    ]
}

/// A tree of what can be done in this order.
fn tree(root: QdiscSpec, steps: Vec<Step>) -> TreeSpec {
    let mut tree = TreeSpec::new();
    let _ = tree.add(Handle::ROOT, Handle::new(1, 0), root);
    for step in steps {
        let qdiscs: Vec<Handle> = tree.nodes().map(|node| node.handle).collect();
        let classes = tree.added_classes().map(|(class, _)| class);
        let mut names: Vec<Handle> = qdiscs.iter().copied().chain(classes).collect();
        if qdiscs.is_empty() {
            break;
        }
        // What the tree refuses is not in it.
        let _ = match step {
            Step::Qdisc(at, spec) => {
                names.extend(
                    qdiscs
                        .iter()
                        .flat_map(|qdisc| (1..4).map(|n| qdisc.class(n))),
                );
                tree.add(*at.get(&names), Handle::NONE, spec).map(drop)
            }
            Step::Class(at, minor, spec) => {
                let parent = *at.get(&names);
                tree.add_class(parent, parent.class(minor), spec)
            }
            Step::Filter(at, filter) => {
                let parent = *at.get(&names);
                let class = filter.class.map(|class| parent.class(class.minor()));
                let filter = FilterSpec {
                    parent,
                    class,
                    ..filter
                };
                tree.put_filter(FilterOp::Add, filter)
                    .map(drop)
                    .map_err(Into::into)
            }
            Step::Stab(options) => match SizeTable::new(&options) {
                Ok(table) => tree.set_stab(qdiscs[0], Some(table)),
                Err(_) => Ok(()),
            },
            Step::Estimator(at, interval, log) => {
                let spec = EstimatorSpec::new(interval, log).expect("in range");
                tree.set_estimator(*at.get(&names), spec)
            }
        };
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    #[test]
    fn any_tree_is_read_as_it_is_written(
        root in spec(),
        steps in prop::collection::vec(step(), 0..40),
    ) {
        let tree = tree(root, steps);
        prop_assume!(!tree.is_empty());
        let tree = QdiscSpec::Tree(tree);
        let text = write_tree(&tree);
        let read = parse_tree("x.toml", &text);
        let read = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
        prop_assert_eq!(&read, &tree, "{}", text);
        prop_assert_eq!(write_tree(&read), text);
    }
}
