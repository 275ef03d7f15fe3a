//! `tc qdisc`: changes, and what others are told of them.

use softnet_tc::DefaultQdisc;

use super::*;

/// A link without a queue of its own has none again when its qdisc is deleted.
#[test]
fn noqueue_comes_back() {
    let mut world = World::new();
    world.qdisc(ADD, 3, ("root", ""), "pfifo", &none).unwrap();
    assert_eq!(world.show(3), ["pfifo 8001: root refcnt 2"]);
    world.del(3, "root", "", "").unwrap();
    assert_eq!(world.show(3), ["noqueue 0: root refcnt 2"]);
}

/// The default comes back at the root and at a queue, and is no child of any other qdisc.
#[test]
fn another_default() {
    let default_qdisc = DefaultQdisc::find("fq_codel").unwrap();
    let config = EngineConfig {
        default_qdisc,
        ..EngineConfig::default()
    };
    let mut world = World::with(config, FedDevices::default());
    let default = ["fq_codel 0: root refcnt 2"];
    assert_eq!(world.show(1), default);
    world
        .qdisc(ADD, 1, ("root", "1:"), "prio", &prio(3))
        .unwrap();
    assert!(
        world
            .show_invisible(1)
            .iter()
            .all(|line| !line.contains("fq_codel"))
    );
    world.del(1, "root", "", "").unwrap();
    assert_eq!(world.show(1), default);
    let queues = [
        "mq 0: root",
        "fq_codel 0: parent :1",
        "fq_codel 0: parent :2",
        "fq_codel 0: parent :3",
        "fq_codel 0: parent :4",
    ];
    assert_eq!(world.show(2), queues);
    world.qdisc(ADD, 2, ("root", "1:"), "mq", &none).unwrap();
    world.qdisc(ADD, 2, ("1:2", "2:"), "pfifo", &none).unwrap();
    world.del(2, "1:2", "2:", "").unwrap();
    assert_eq!(world.told, ["2 deleted pfifo 2: parent 1:2"]);
    assert_eq!(world.show(2)[2], "fq_codel 0: parent 1:2");
    assert_eq!(world.show(3), ["noqueue 0: root refcnt 2"]);
}

/// A change keeps the qdisc, its handle, and what it was not told.
#[test]
fn a_change_changes_parameters() {
    let mut world = World::new();
    world
        .qdisc(ADD, 1, ("root", "1:"), "pfifo", &limit(5))
        .unwrap();
    let limit_of = |world: &World| {
        let engine = world.engine.lock().unwrap();
        let root = |tree: &softnet_tc::DeviceTree| tree.spec().root().unwrap().qdisc.clone();
        engine.read_tree(1, |tree, _| root(tree)).unwrap()
    };
    let pfifo = |limit| softnet_tc::QdiscSpec::Pfifo { limit };
    assert_eq!(limit_of(&world), pfifo(5));
    world
        .qdisc(CHANGE, 1, ("root", ""), "pfifo", &limit(6))
        .unwrap();
    assert_eq!(limit_of(&world), pfifo(6));
    assert_eq!(world.told, ["1 pfifo 1: root refcnt 2"]);
    world
        .qdisc(CHANGE, 1, ("root", ""), "pfifo", &none)
        .unwrap();
    assert_eq!(limit_of(&world), pfifo(6), "a change of nothing");
    // Kinds that the kernel cannot change.
    world
        .qdisc(REPLACE, 1, ("root", "2:"), "htb", &htb)
        .unwrap();
    let refused = world.qdisc(REPLACE, 1, ("root", "2:"), "htb", &htb);
    let text = "Change operation not supported by specified qdisc";
    assert!(refused.unwrap_err().starts_with(text));
    world
        .qdisc(REPLACE, 1, ("root", "2:"), "htb", &none)
        .unwrap();
}

#[test]
fn size_tables_and_estimators() {
    let base = |tsize: u32| {
        let mut base = [0; 24];
        base[4..8].copy_from_slice(&10_i32.to_ne_bytes());
        base[20..].copy_from_slice(&tsize.to_ne_bytes());
        base
    };
    let stab = |tsize: u32, slots: usize| {
        move |out: &mut Message<'_>| {
            out.nest(TCA_STAB, |out| {
                out.put_bytes(1, &base(tsize));
                out.put_bytes(2, &vec![0; slots * 2]);
            });
        }
    };
    let has_stab = |world: &World, handle: u32| {
        let engine = world.engine.lock().unwrap();
        let node = |tree: &softnet_tc::DeviceTree| {
            let node = tree.spec().node(Handle::from_raw(handle)).unwrap();
            node.stab.clone()
        };
        engine.read_tree(1, |tree, _| node(tree)).unwrap().is_some()
    };
    let mut world = World::new();
    for (tsize, slots, text) in [(2, 1, "Invalid size of size table"), (0, 0, "")] {
        let answer = world.qdisc(ADD, 1, ("root", "1:"), "pfifo", &stab(tsize, slots));
        let text = if text.is_empty() {
            text.to_owned()
        } else {
            format!("{text} (EINVAL)")
        };
        assert_eq!(answer.err().unwrap_or_default(), text);
    }
    assert!(has_stab(&world, 0x1_0000));
    world
        .qdisc(CHANGE, 1, ("root", ""), "pfifo", &limit(3))
        .unwrap();
    assert!(
        !has_stab(&world, 0x1_0000),
        "a change that names none takes it away"
    );
    world
        .qdisc(CHANGE, 1, ("root", ""), "pfifo", &stab(0, 0))
        .unwrap();
    assert!(has_stab(&world, 0x1_0000));
    let no_base = |out: &mut Message<'_>| out.nest(TCA_STAB, |_| {});
    let answer = world.qdisc(CHANGE, 1, ("root", ""), "pfifo", &no_base);
    let text = "Size table base attribute is missing (EINVAL)";
    assert_eq!(answer.unwrap_err(), text);
    world
        .qdisc(REPLACE, 1, ("root", "2:"), "prio", &prio(3))
        .unwrap();
    let below = world.qdisc(ADD, 1, ("2:1", ""), "pfifo", &stab(0, 0));
    assert_eq!(
        below.unwrap_err(),
        "STAB not supported on a non root (EINVAL)"
    );

    let rate = |bytes: &'static [u8]| move |out: &mut Message<'_>| out.put_bytes(TCA_RATE, bytes);
    for bad in [&[0_u8][..], &[4, 1], &[0xfd, 1], &[0, 0], &[0, 31]] {
        let body = |out: &mut Message<'_>| out.put_bytes(TCA_RATE, bad);
        let answer = world
            .qdisc(ADD, 1, ("2:1", "21:"), "pfifo", &body)
            .unwrap_err();
        assert!(
            answer.starts_with("Failed to generate new estimator"),
            "{answer}"
        );
        assert_eq!(world.show(1).len(), 1, "nothing was added");
    }
    world
        .qdisc(ADD, 1, ("2:1", "21:"), "pfifo", &rate(&[0, 3]))
        .unwrap();
    let engine = world.engine.clone();
    let rate_of = |handle| {
        let engine = engine.lock().unwrap();
        engine
            .read_tree(1, |tree, _| tree.rate(Handle::from_raw(handle)))
            .unwrap()
    };
    assert!(rate_of(0x21_0000).is_some() && rate_of(0x2_0000).is_none());
    let refused = world
        .qdisc(ADD, 2, ("root", ""), "mq", &rate(&[0, 3]))
        .unwrap_err();
    let text = "Cannot attach rate estimator to a multi-queue root qdisc (EOPNOTSUPP)";
    assert_eq!(refused, text);
}

/// `tc monitor`: the kernel counts references as they are at the moment.
#[test]
fn what_others_are_told() {
    let mut world = World::new();
    type Row = (
        u16,
        (&'static str, &'static str),
        &'static str,
        &'static [&'static str],
    );
    let rows: [Row; 6] = [
        (
            ADD,
            ("root", "1:"),
            "htb",
            &[
                "deleted pfifo_fast 0: root refcnt 2",
                "replaced htb 1: root",
            ],
        ),
        (
            REPLACE,
            ("root", "2:"),
            "prio",
            &["deleted htb 1: root", "replaced prio 2: root refcnt 2"],
        ),
        (CHANGE, ("root", ""), "prio", &["prio 2: root refcnt 2"]),
        (
            ADD,
            ("2:1", "3:"),
            "pfifo",
            &["replaced pfifo 3: parent 2:1"],
        ),
        (CHANGE, ("", "3:"), "pfifo", &["pfifo 3: parent 2:1"]),
        (
            REPLACE,
            ("2:1", "4:"),
            "bfifo",
            &[
                "deleted pfifo 3: parent 2:1",
                "replaced bfifo 4: parent 2:1",
            ],
        ),
    ];
    for (flags, at, kind, told) in rows {
        let options = |out: &mut Message<'_>| match kind {
            "prio" => prio(3)(out),
            "htb" => htb(out),
            _ => limit(5)(out),
        };
        world.qdisc(flags, 1, at, kind, &options).unwrap();
        assert_eq!(of(world.told.clone(), 1), told);
    }
    world.del(1, "root", "", "").unwrap();
    assert_eq!(world.told, ["1 deleted prio 2: root"]);
}
