//! What a tree takes and what it refuses.

use super::*;

fn handle(text: &str) -> Handle {
    text.parse().unwrap()
}

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
    let filter = |class: &str| FilterSpec {
        parent: handle("8001:"),
        prio: 1,
        matches: Match::default(),
        class: handle(class),
    };
    assert!(spec.add_filter(filter("8001:2")).is_ok());
    assert!(spec.add_filter(filter("8001:3")).is_err());
    assert!(spec.add_filter(filter("1:1")).is_err());
    assert!(spec.delete_filters(handle("8001:"), 2).is_err());
    assert!(spec.delete_filters(handle("8001:"), 1).is_ok());
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
        Err(SpecError::Priomap)
    );
    assert_eq!(prio(17).check(), Err(SpecError::Bands));
    assert_eq!(prio(1).check(), Err(SpecError::Bands));
}
