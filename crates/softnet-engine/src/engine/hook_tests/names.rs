//! Links by name: what actions of specifications and matches on the receiving link follow.

use softnet_tc::{Flower, Indev};

use super::*;

/// Actions of filters that ports and blocks come with are in the table, shared by their numbers,
/// and send to links that come before, with or after them; they follow a link's new name.
#[test]
fn what_a_specification_has_works_as_if_it_were_added() {
    let bench = Bench::new(1);
    let redirect = |index: u32, name: &str| -> ActionList {
        let kind = ActionKind::Mirred(Mirred {
            redirects: true,
            ingress: false,
            to: MirredTo::Dev(name.to_owned()),
        });
        let spec = Act {
            control: Control::Stolen,
            index,
            ..Act::new(kind)
        };
        [softnet_tc::Action::new(spec)].into_iter().collect()
    };
    let hooked = |name: &str, actions: ActionList| {
        let mut hook = Hook::new(HookKind::Ingress);
        let filter = Bench::filter(Side::Ingress, 1, actions);
        hook.ingress.filters.put(FilterOp::Add, filter).unwrap();
        let mut tree = softnet_tc::TreeSpec::new();
        tree.set_hook(Some(hook)).unwrap();
        PortSpec {
            qdisc: QdiscSpec::Tree(tree),
            ..port(name, None)
        }
    };
    let mut spec = bench.engine.spec().unwrap();
    spec.ports.push(hooked("before", redirect(7, "later")));
    spec.ports.push(hooked("same", redirect(7, "later")));
    spec.ports.push(hooked("now", redirect(0, "b")));
    let mut shared = Hook::new(HookKind::Ingress);
    shared.ingress.block = 5;
    let mut tree = softnet_tc::TreeSpec::new();
    tree.set_hook(Some(shared)).unwrap();
    spec.ports.push(PortSpec {
        qdisc: QdiscSpec::Tree(tree),
        ..port("block", None)
    });
    let mut list = softnet_tc::FilterList::default();
    let of_block = FilterSpec {
        parent: Handle::NONE,
        ..Bench::filter(Side::Ingress, 1, redirect(9, "later"))
    };
    list.put(FilterOp::Add, of_block).unwrap();
    spec.blocks.insert(5, list);
    spec.ports.push(port("later", None));
    bench.engine.apply(&spec, true).unwrap();
    let known = |bench: &Bench| {
        bench.engine.actions(|table, _| {
            let all = table.iter("mirred", 0);
            all.map(|a| (a.index(), a.binds(), a.link()))
                .collect::<Vec<_>>()
        })
    };
    let (b, later) = (bench.index("b"), bench.index("later"));
    let expected = [(1, 1, Some(b)), (7, 2, Some(later)), (9, 1, Some(later))];
    assert_eq!(known(&bench), expected);
    for (n, name) in (0..).zip(["before", "same", "now", "block"]) {
        bench.feed(name, [bench.frame(1, 2, n)]);
    }
    wait("all", || {
        bench.sent("later").len() == 3 && bench.sent("b") == [2]
    });
    // It is known by its new name, also to a specification that is read back.
    let renamed = bench.engine.change(later, |link| link.name = "new".into());
    renamed.unwrap();
    let spec = bench.engine.spec().unwrap();
    bench.engine.apply(&spec, true).unwrap();
    assert_eq!(known(&bench), expected);
    let texts = format!("{spec:?}");
    assert!(!texts.contains("\"later\""), "{texts}");
    // Another device with the tree of the port.
    let now = spec.ports.iter().find(|port| port.settings.name == "now");
    let mut exchanged = now.unwrap().clone();
    exchanged.qdisc = hooked("now", redirect(11, "new")).qdisc;
    let device = bench.engine.open(&exchanged).unwrap();
    let index = bench.index("now");
    bench
        .engine
        .exchange_device(index, &exchanged, device)
        .unwrap();
    drop(exchanged);
    assert_eq!(
        known(&bench)[2..],
        [(9, 1, Some(later)), (11, 1, Some(later))]
    );
    bench.feed("now", [bench.frame(1, 2, 4)]);
    wait("it", || bench.sent("later").len() == 4);
    assert!(bench.end().drops().is_empty());
}

/// A link that is added alone is found by actions that name it already.
#[test]
fn actions_find_a_link_that_comes_later() {
    let mut bench = Bench::new(1);
    bench.hook("a", Some(Hook::new(HookKind::Ingress)));
    let kind = ActionKind::Mirred(Mirred {
        redirects: true,
        ingress: false,
        to: MirredTo::Dev("c".to_owned()),
    });
    let spec = Act {
        control: Control::Stolen,
        ..Act::new(kind)
    };
    let action = bench
        .engine
        .actions(|table, now| table.add(spec, true, now));
    let list = [action.unwrap()].into_iter().collect();
    bench.put("a", Side::Ingress, 1, list);
    bench.feed("a", [bench.frame(1, 2, 1)]);
    let dropped = || bench.engine.stats().conservation().dropped;
    wait("the drop", || dropped() == 1);
    bench.engine.add_port(port("c", None)).unwrap();
    bench.feed("a", [bench.frame(1, 2, 2)]);
    wait("it", || bench.sent("c") == [2]);
    bench.table = ActionTable::default();
    bench.end();
}

/// A filter that drops what a link received.
fn drop_from(indev: &Indev, side: Side) -> FilterSpec {
    let flower = Flower {
        indev: Some(indev.clone()),
        ..Flower::default()
    };
    FilterSpec {
        kind: flower.into(),
        ..Bench::filter(side, 1, Control::Drop.into())
    }
}

/// A filter knows the link that received by whatever name it has, and does not take the next port
/// of its number for it, but the next link of its name.
#[test]
fn filters_follow_the_link_that_received() {
    let (engine, devices, pool) = engine();
    engine.add_bridge(Settings::new("br")).unwrap();
    let ports = ["a", "b", "c"].map(|name| port(name, Some("br")));
    engine.add_ports(ports.to_vec()).unwrap();
    let bench = Bench {
        engine,
        devices,
        pool,
        table: ActionTable::default(),
    };
    let unknown = bench.engine.indev("nowhere");
    assert!(matches!(unknown, Err(EngineError::NoLinkNamed(_))));
    let (a, b) = (bench.index("a"), bench.index("b"));
    let indev = bench.engine.indev("a").unwrap();
    bench.clsact("b");
    let filter = drop_from(&indev, Side::Egress);
    let put = bench
        .engine
        .edit_tree(b, |tree| tree.put_filter(FilterOp::Add, filter));
    put.unwrap();
    let drops = || bench.engine.hook_counts(b).unwrap().drops;
    bench.feed("a", [bench.frame(1, 2, 1)]);
    bench.feed("c", [bench.frame(1, 3, 2)]);
    wait("both", || drops() == 1 && bench.sent("b") == [2]);
    let renamed = bench.engine.change(a, |link| link.name = "z".into());
    renamed.unwrap();
    assert_eq!((indev.name(), indev.link()), ("z".to_owned(), Some(a)));
    bench.feed("a", [bench.frame(1, 2, 3)]);
    wait("the drop", || drops() == 2);
    let number = bench.engine.link(a).unwrap().number;
    bench.engine.delete(a).unwrap();
    assert_eq!(indev.link(), None);
    let next = bench.engine.add_port(port("w", Some("br"))).unwrap();
    assert_eq!(bench.engine.link(next).unwrap().number, number);
    bench.feed("w", [bench.frame(1, 4, 4)]);
    wait("it", || bench.sent("b") == [2, 4]);
    bench.engine.add_port(port("z", Some("br"))).unwrap();
    bench.feed("z", [bench.frame(1, 5, 5)]);
    wait("the drop", || drops() == 3);
    bench.end();
}
