//! One tree after another, with packets in it.

use softnet::time::Time;

use crate::testing::bench::Bench;
use crate::testing::handle;
use crate::*;

fn prio(limit: u32, mark: u32) -> TreeSpec {
    let mut spec = TreeSpec::new();
    let root = QdiscSpec::Prio(PrioSpec::default());
    spec.add(Handle::ROOT, handle("1:"), root).unwrap();
    let fifo = QdiscSpec::Pfifo { limit };
    spec.add(handle("1:1"), handle("11:"), fifo).unwrap();
    let fw = FilterSpec {
        handle: mark,
        prio: 1,
        ..FilterSpec::new(FilterKind::fw(u32::MAX), handle("1:1"))
    };
    spec.put_filter(FilterOp::Add, fw).unwrap();
    spec
}

impl Bench {
    fn apply(&mut self, spec: &TreeSpec) {
        self.tree.edit(&mut self.cx).apply(spec).unwrap();
        assert_eq!(self.tree.spec(), spec);
    }
}

#[test]
fn parameters_and_filters_change_in_place() {
    let mut bench = Bench::new([]);
    bench.apply(&prio(10, 1));
    assert_eq!(bench.offer([1, 1, 7], 100, 0), 0);
    assert_eq!((bench.class("1:1").qlen, bench.class("root").qlen), (2, 3));
    let counted = |bench: &Bench| bench.tree.filters().next().map(|(_, stats)| stats.packets);
    // Nothing differs.
    bench.apply(&prio(10, 1));
    assert_eq!(counted(&bench), Some(2));
    // Another limit; the filter goes on counting.
    bench.apply(&prio(3, 1));
    assert_eq!(counted(&bench), Some(2));
    assert_eq!(bench.offer([1, 1], 100, 0), 1);
    // Another filter.
    bench.apply(&prio(3, 7));
    assert_eq!(counted(&bench), Some(0));
    assert_eq!(bench.offer([7], 100, 0), 1);
    assert_eq!((bench.class("1:1").qlen, bench.class("root").qlen), (3, 4));
    // What is queued stayed where it was.
    assert_eq!(bench.leave(9, Time::default()).0, [1, 1, 1, 7]);
}

#[test]
fn another_tree_takes_what_is_queued() {
    let mut bench = Bench::new([]);
    bench.apply(&prio(10, 1));
    bench.offer([7, 1, 1], 100, 0);
    let mut fifo = TreeSpec::new();
    let spec = QdiscSpec::Pfifo { limit: 2 };
    fifo.add(Handle::ROOT, handle("1:"), spec).unwrap();
    bench.apply(&fifo);
    assert_eq!(bench.leave(9, Time::default()).0, [1, 1]);
    // What cannot be is refused, and nothing has changed.
    let mut mq = TreeSpec::new();
    mq.add(Handle::ROOT, handle("1:"), QdiscSpec::Mq).unwrap();
    let error = bench.tree.edit(&mut bench.cx).apply(&mq).unwrap_err();
    assert_eq!(error, SpecError::OneQueue("mq"));
    assert_eq!(bench.tree.spec(), &fifo);
}

#[test]
fn classes_change_in_place() {
    let htb = |rate| {
        let mut spec = TreeSpec::new();
        let root = QdiscSpec::Htb(HtbSpec {
            default: 0x10,
            ..HtbSpec::default()
        });
        spec.add(Handle::ROOT, handle("1:"), root).unwrap();
        let class = ClassSpec::Htb(HtbClassSpec::new(rate));
        spec.add_class(handle("1:"), handle("1:10"), class).unwrap();
        spec
    };
    let mut bench = Bench::new([]);
    bench.apply(&htb(1_000));
    bench.offer([1, 2, 3], 1500, 0);
    bench.apply(&htb(1_000_000));
    assert_eq!(bench.class("1:10").qlen, 3);
}
