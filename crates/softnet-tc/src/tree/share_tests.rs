//! Rates that are shares of a link's speed.

use crate::testing::bench::Bench;
use crate::testing::handle;
use crate::*;

/// A class of half the speed, which borrows up to all of it, and below it a tenth.
fn spec() -> TreeSpec {
    let mut spec = TreeSpec::new();
    let root = QdiscSpec::Htb(HtbSpec {
        default: 0x10,
        ..HtbSpec::default()
    });
    spec.add(Handle::ROOT, handle("1:"), root).unwrap();
    let class = ClassSpec::Htb(HtbClassSpec::new(1));
    spec.add_class(handle("1:"), handle("1:10"), class).unwrap();
    spec.add(handle("1:10"), handle("10:"), tbf(1)).unwrap();
    for (name, option, share) in [
        ("1:10", "rate", "50%"),
        ("1:10", "ceil", "100%"),
        ("10:", "rate", "10%"),
    ] {
        spec.set_share(handle(name), option, share.parse().unwrap());
    }
    spec
}

fn tbf(rate: u64) -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate,
        burst: 10_000,
        limit: 100_000,
        ..TbfSpec::default()
    })
}

fn rates(tree: &TreeSpec) -> [u64; 3] {
    let class = &tree.class_node(handle("1:10")).unwrap().spec;
    let qdisc = &tree.node(handle("10:")).unwrap().qdisc;
    match (class, qdisc) {
        (ClassSpec::Htb(class), QdiscSpec::Tbf(tbf)) => [class.rate, class.ceil, tbf.rate],
        other => panic!("{other:?}"),
    }
}

#[test]
fn rates_follow_the_speed() {
    let mut bench = Bench::new([]);
    let refused = bench.tree.edit(&mut bench.cx).apply(&spec());
    assert_eq!(refused, Err(TreeError::NoSpeed.into()));
    bench.tree.edit(&mut bench.cx).set_speed(1000).unwrap();
    bench.tree.edit(&mut bench.cx).apply(&spec()).unwrap();
    assert_eq!(rates(bench.tree.spec()), [500, 1000, 100]);
    assert_eq!(bench.offer([1, 2, 3], 100, 0), 0);
    bench.tree.edit(&mut bench.cx).set_speed(2000).unwrap();
    assert_eq!(rates(bench.tree.spec()), [1000, 2000, 200]);
    assert_eq!(bench.class("1:10").qlen, 3, "what is queued stays");
    // No class has such a rate.
    let refused = bench.tree.edit(&mut bench.cx).set_speed(u64::MAX);
    assert!(matches!(refused, Err(SpecError::Parameter { .. })));
    assert_eq!(rates(bench.tree.spec()), [1000, 2000, 200]);
    // The same shares, of the speed that is known.
    bench.tree.edit(&mut bench.cx).apply(&spec()).unwrap();
    assert_eq!(rates(bench.tree.spec()), [1000, 2000, 200]);
    assert_eq!(*bench.tree.spec(), spec().at_speed(Some(2000)).unwrap());
}

#[test]
fn other_parameters_are_no_shares() {
    let mut bench = Bench::new([]);
    bench.tree.edit(&mut bench.cx).set_speed(1000).unwrap();
    let mut edit = bench.tree.edit(&mut bench.cx);
    edit.apply(&spec()).unwrap();
    edit.change(handle("10:"), &tbf(7)).unwrap();
    edit.set_speed(2000).unwrap();
    assert_eq!(rates(edit.spec()), [1000, 2000, 7]);
    let class = ClassSpec::Htb(HtbClassSpec::new(9));
    edit.change_class(handle("1:10"), &class).unwrap();
    edit.set_speed(4000).unwrap();
    assert_eq!(rates(edit.spec()), [9, 9, 7]);
    edit.apply(&spec()).unwrap();
    assert_eq!(rates(edit.spec()), [2000, 4000, 400]);
    edit.delete(handle("10:")).unwrap();
    assert_eq!(edit.spec().shares_of(handle("10:")).count(), 0);
    edit.delete_class(handle("1:10")).unwrap();
    assert!(!edit.spec().has_shares());
}
