//! Specs that a tree takes or refuses.

use softnet::qdisc::*;
use softnet::tx::QueueMap;

use crate::testing::handle;
use crate::*;

fn prio(bands: u16) -> QdiscSpec {
    let last = (bands - 1) as u8;
    QdiscSpec::Prio(PrioSpec {
        bands,
        priomap: PRIO_TO_BAND.map(|band| band.min(last)),
    })
}

#[test]
fn what_can_hang_where() {
    let error = |result: Result<Handle, SpecError>| match result.unwrap_err() {
        SpecError::Tree(error) => error,
        other => panic!("{other:?}"),
    };
    let mut spec = TreeSpec::new();
    let fifo = || QdiscSpec::Pfifo { limit: 1 };
    let none = Handle::NONE;
    assert_eq!(
        error(spec.add(handle("1:1"), none, fifo())),
        TreeError::NoQdisc(handle("1:"))
    );
    assert_eq!(
        error(spec.add(Handle::ROOT, handle("1:1"), prio(2))),
        TreeError::Handle(handle("1:1"))
    );
    assert_eq!(spec.add(Handle::ROOT, none, prio(2)), Ok(handle("8001:")));
    assert_eq!(
        error(spec.add(Handle::ROOT, none, fifo())),
        TreeError::Exists(Handle::ROOT)
    );
    assert_eq!(
        error(spec.add(handle("8001:3"), none, fifo())),
        TreeError::NoClass(handle("8001:3"))
    );
    assert_eq!(
        error(spec.add(handle("8001:"), none, fifo())),
        TreeError::NoClass(handle("8001:"))
    );
    assert_eq!(
        error(spec.add(handle("8001:1"), handle("8001:"), fifo())),
        TreeError::InUse(handle("8001:"))
    );
    // BUG-TX-26.
    assert_eq!(
        error(spec.add(handle("8001:1"), none, QdiscSpec::Noqueue)),
        TreeError::RootOnly("noqueue")
    );
    let whole = QdiscSpec::Tree(TreeSpec::new());
    assert!(matches!(
        error(spec.add(handle("8001:1"), none, whole)),
        TreeError::RootOnly(_)
    ));
    let mut last = handle("8001:");
    for _ in 1..8 {
        last = spec.add(last.class(2), none, prio(2)).unwrap();
    }
    assert_eq!(
        error(spec.add(last.class(1), none, fifo())),
        TreeError::TooDeep(last.class(1))
    );
    // Deleting takes along what hangs below.
    let second = spec.child_of(handle("8001:2")).unwrap().handle;
    spec.delete(second).unwrap();
    assert_eq!(spec.nodes().len(), 1);
    let mut add = |class: &str| {
        let filter = FilterSpec {
            parent: handle("8001:"),
            prio: 1,
            ..FilterSpec::new(FilterKind::Matchall, handle(class))
        };
        spec.put_filter(FilterOp::Add, filter)
    };
    assert!(add("8001:2").is_ok());
    let parent = handle("8001:");
    let mut delete = |prio| {
        let which = FilterKey {
            prio,
            ..FilterKey::default()
        };
        spec.delete_filters(parent, which)
    };
    assert_eq!(delete(2), Err(FilterError::NoPrio));
    assert_eq!(delete(1), Ok(()));
    assert_eq!(
        spec.change(handle("8001:"), fifo()),
        Err(SpecError::Change("pfifo"))
    );
    let bad = PrioSpec {
        bands: 2,
        priomap: [2; 16],
    };
    assert_eq!(
        spec.change(handle("8001:"), QdiscSpec::Prio(bad)),
        Err(SpecError::parameter(
            "prio",
            "priomap",
            "refers to band 2; this qdisc has bands 0 to 1"
        ))
    );
    let bands = SpecError::parameter("prio", "bands", "must be 2 to 16");
    assert_eq!(prio(17).check(), Err(bands.clone()));
    assert_eq!(prio(1).check(), Err(bands));
}

/// BUG-TX-26: a class's packets have to be queued, and classes have no transmit queues.
#[test]
fn what_is_for_a_root_is_refused_elsewhere() {
    for kind in [
        QdiscSpec::Noqueue,
        QdiscSpec::Mq,
        QdiscSpec::Mqprio(QueueMap::default()),
    ] {
        let mut spec = TreeSpec::new();
        spec.add(Handle::ROOT, handle("1:"), prio(3)).unwrap();
        let result = spec.add(handle("1:1"), Handle::NONE, kind.clone());
        let error = SpecError::Tree(TreeError::RootOnly(kind.kind()));
        assert_eq!(result, Err(error));
        assert_eq!(spec.nodes().len(), 1);
        spec.replace(Handle::ROOT, handle("1:"), kind).unwrap();
    }
}

/// Chosen handles are not used again before all others were, as in the kernel.
#[test]
fn a_chosen_handle_is_new() {
    let mut spec = TreeSpec::new();
    for chosen in ["8001:", "8002:", "8003:"] {
        let is = spec.replace(Handle::ROOT, Handle::NONE, prio(3)).unwrap();
        assert_eq!(is, handle(chosen));
    }
    spec.add(handle("8003:1"), handle("8004:"), prio(3))
        .unwrap();
    let next = spec.add(handle("8003:2"), Handle::NONE, prio(3));
    assert_eq!(next, Ok(handle("8005:")));
}

/// `tbf_find` answers to every minor number, 0 included.
#[test]
fn any_class_of_tbf_is_its_only_one() {
    let fifo = || QdiscSpec::Pfifo { limit: 1 };
    for parent in ["1:", "1:1", "1:7", "1:ffff"] {
        let mut spec = TreeSpec::new();
        let tbf = TbfSpec {
            rate: 1,
            burst: 1,
            ..TbfSpec::default()
        };
        spec.add(Handle::ROOT, handle("1:"), QdiscSpec::Tbf(tbf))
            .unwrap();
        spec.add(handle(parent), handle("2:"), fifo()).unwrap();
        let child = spec.child_of(handle("1:1")).map(|node| node.handle);
        assert_eq!(child, Some(handle("2:")), "{parent}");
        // It is shown where it was asked to be.
        assert_eq!(spec.named_parent(handle("2:")), Some(handle(parent)));
        // There is only one place.
        let again = spec.add(handle("1:2"), handle("3:"), fifo());
        assert_eq!(again, Err(TreeError::Exists(handle("1:1")).into()));
        spec.replace(handle("1:3"), handle("3:"), fifo()).unwrap();
        assert_eq!(spec.nodes().len(), 2);
        assert_eq!(spec.named_parent(handle("2:")), None);
        spec.replace(handle("1:1"), handle("3:"), fifo()).unwrap();
        assert_eq!(spec.named_parent(handle("3:")), Some(handle("1:1")));
    }
}

/// A change to what is not of the qdisc's own kind is refused, and nothing is changed then.
#[test]
fn a_change_that_is_none_changes_nothing() {
    let prio = QdiscSpec::Prio(PrioSpec::default());
    let mut tree = TreeSpec::new();
    let root = tree.add(Handle::ROOT, Handle::NONE, prio).unwrap();
    let child = QdiscSpec::PfifoFast { limit: 7 };
    let fast = tree.add(root.class(1), Handle::NONE, child).unwrap();
    let whole = QdiscSpec::Tree(tree.clone());
    let custom = CustomSpec::new("pfifo_fast", |_| Box::new(Pfifo::new(1)));
    let before = tree.clone();
    for (handle, spec) in [
        (root, whole),
        (fast, QdiscSpec::Default),
        (fast, QdiscSpec::Custom(custom)),
    ] {
        assert!(tree.change(handle, spec.clone()).is_err(), "{spec:?}");
        assert_eq!(tree, before, "{spec:?}");
    }
}
