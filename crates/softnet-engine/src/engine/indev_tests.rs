//! Links that filters name: in a specification by names, in an engine whatever becomes of them.

use std::time::Duration;

use super::link_tests::{engine, port};
use super::*;
use crate::testing::FedDevices;
use softnet_tc::{
    Control, FilterList, FilterOp, FilterSpec, Flower, Handle, Hook, HookKind, Indev, QdiscSpec,
    Side, TreeSpec,
};

/// The block of [`with_filters`].
const BLOCK: u32 = 5;

/// A filter that drops what a link received.
fn drops(from: &str, parent: Handle) -> FilterList {
    let flower = Flower {
        indev: Some(Indev::new(from)),
        ..Flower::default()
    };
    let filter = FilterSpec {
        parent,
        prio: 1,
        class: None,
        actions: Control::Drop.into(),
        ..FilterSpec::new(flower, Handle::NONE)
    };
    let mut list = FilterList::default();
    list.put(FilterOp::Add, filter).unwrap();
    list
}

/// A port with such a filter, and with a block.
fn with_filters(name: &str, from: &str) -> PortSpec<&'static str> {
    let mut hook = Hook::new(HookKind::Clsact);
    hook.ingress.filters = drops(from, Side::Ingress.parent());
    hook.egress.block = BLOCK;
    let mut tree = TreeSpec::new();
    tree.set_hook(Some(hook)).unwrap();
    PortSpec {
        qdisc: QdiscSpec::Tree(tree),
        ..port(name, None)
    }
}

/// A port with a device of its own.
fn on(name: &str, device: &'static str) -> PortSpec<&'static str> {
    let mut port = port(name, None);
    port.options.device = device;
    port
}

fn spec(ports: Vec<PortSpec<&'static str>>, of_block: &str) -> Spec<&'static str> {
    Spec {
        ports,
        blocks: [(BLOCK, drops(of_block, Handle::NONE))].into(),
        ..Spec::default()
    }
}

/// Name and number of the link that a list's filter names.
fn named(list: &FilterList) -> (String, Option<u32>) {
    let indev = list.iter().next().unwrap().kind.indev().unwrap();
    (indev.name(), indev.link())
}

fn of_port(engine: &Engine<FedDevices>, port: &str) -> (String, Option<u32>) {
    let read = engine.read_tree(index(engine, port).unwrap(), |tree, _| {
        named(&tree.spec().hook().unwrap().ingress.filters)
    });
    read.unwrap()
}

fn of_block(engine: &Engine<FedDevices>) -> (String, Option<u32>) {
    let read = engine.read_block(BLOCK, |block| named(block.list()));
    read.unwrap()
}

fn index(engine: &Engine<FedDevices>, name: &str) -> Option<u32> {
    engine.link_named(name).ok().map(|link| link.index)
}

/// Filters that ports and blocks come with find the links that they name, whichever comes first.
#[test]
fn filters_of_a_specification_find_the_links_that_received() {
    let (engine, ..) = engine();
    let ports = vec![with_filters("first", "first"), port("later", None)];
    engine.apply(&spec(ports, "later"), true).unwrap();
    let (first, later) = (index(&engine, "first"), index(&engine, "later"));
    assert_eq!(of_port(&engine, "first"), ("first".to_owned(), first));
    assert_eq!(of_block(&engine), ("later".to_owned(), later));
    engine.delete(later.unwrap()).unwrap();
    assert_eq!(of_block(&engine).1, None);
    let again = engine.add_port(port("later", None)).unwrap();
    assert_eq!(of_block(&engine), ("later".to_owned(), Some(again)));
    engine.stop(Duration::ZERO);
}

/// A link that gets another name in an engine has it neither in another engine that was given the
/// same, nor in what was given or read.
#[test]
fn engines_and_specifications_share_no_links() {
    let given = spec(vec![with_filters("f", "a"), port("a", None)], "a");
    let (one, other) = (engine().0, engine().0);
    one.apply(&given, true).unwrap();
    other.apply(&given, true).unwrap();
    let read = one.spec().unwrap();
    let a = index(&one, "a");
    let renamed = one.change(a.unwrap(), |link| link.name = "z".into());
    renamed.unwrap();
    assert_eq!(of_port(&one, "f"), ("z".to_owned(), a));
    assert_eq!(of_block(&one), ("z".to_owned(), a));
    let a = index(&other, "a");
    assert_eq!(of_port(&other, "f"), ("a".to_owned(), a));
    assert_eq!(of_block(&other), ("a".to_owned(), a));
    for spec in [&given, &read] {
        let QdiscSpec::Tree(tree) = &spec.ports[0].qdisc else {
            panic!("no tree")
        };
        let expected = ("a".to_owned(), None);
        assert_eq!(named(&tree.hook().unwrap().ingress.filters), expected);
        assert_eq!(named(&spec.blocks[&BLOCK]), expected);
    }
    one.stop(Duration::ZERO);
    other.stop(Duration::ZERO);
}

/// A specification is by the names that links have in it, whichever of them change, and in
/// whichever order.
#[test]
fn filters_are_for_the_links_that_have_the_names_then() {
    let (engine, ..) = engine();
    let ports = vec![
        with_filters("before", "a"),
        on("a", "left"),
        on("b", "right"),
        with_filters("behind", "a"),
    ];
    let mut spec = spec(ports, "a");
    engine.apply(&spec, true).unwrap();
    let (left, right) = (index(&engine, "a"), index(&engine, "b"));
    for (names, expected) in [
        (["a", "b"], left),
        (["z", "b"], None),
        (["z", "a"], right),
        (["a", "z"], left),
    ] {
        for (port, name) in spec.ports[1..].iter_mut().zip(names) {
            port.settings.name = name.into();
        }
        engine.apply(&spec, true).unwrap();
        assert_eq!(names.map(|name| index(&engine, name)), [left, right]);
        let expected = ("a".to_owned(), expected);
        assert_eq!(of_port(&engine, "before"), expected, "{names:?}");
        assert_eq!(of_port(&engine, "behind"), expected, "{names:?}");
        assert_eq!(of_block(&engine), expected, "{names:?}");
    }
    engine.stop(Duration::ZERO);
}

/// A link that had a name only until all was undone is nothing that filters have waited for.
#[test]
fn what_is_undone_leaves_filters_waiting() {
    let (engine, ..) = engine();
    let mut spec = spec(vec![with_filters("f", "z"), on("a", "left")], "z");
    engine.apply(&spec, true).unwrap();
    let waiting = ("z".to_owned(), None);
    assert_eq!(of_port(&engine, "f"), waiting);
    spec.ports[1].settings.name = "z".into();
    spec.ports[1].options.rate_group = Some("nobody".into());
    engine.apply(&spec, true).unwrap_err();
    assert!(index(&engine, "a").is_some());
    assert_eq!(of_port(&engine, "f"), waiting);
    assert_eq!(of_block(&engine), waiting);
    engine.stop(Duration::ZERO);
}
