//! `tc qdisc`.

use super::*;

#[test]
fn what_comes_by_itself() {
    let mut world = World::new();
    assert_eq!(world.show(1), ["pfifo_fast 0: root refcnt 2"]);
    assert_eq!(
        world.show(2),
        [
            "mq 0: root",
            "pfifo_fast 0: parent :1",
            "pfifo_fast 0: parent :2",
            "pfifo_fast 0: parent :3",
            "pfifo_fast 0: parent :4",
        ]
    );
    assert_eq!(world.show(3), ["noqueue 0: root refcnt 2"]);
    assert_eq!(
        world.classes(2, ""),
        ["mq :1 root", "mq :2 root", "mq :3 root", "mq :4 root"]
    );
    assert!(world.classes(2, "1:").is_empty());
    assert!(world.classes(1, "").is_empty());
    assert!(world.classes(99, "").is_empty());
}

/// As a link that was never up has `noop`, which is not shown.
#[test]
fn a_link_that_was_never_up_shows_nothing() {
    let mut world = World::new();
    world.up(1, false);
    world.qdisc(ADD, 1, ("root", ""), "pfifo", &none).unwrap();
    assert_eq!(world.show(1), ["pfifo 8001: root refcnt 2"]);
    world.del(1, "root", "", "").unwrap();
    assert!(world.show(1).is_empty());
    let nothing = "Cannot delete qdisc with handle of zero (ENOENT)";
    assert_eq!(world.del(1, "root", "", "").unwrap_err(), nothing);
    assert_eq!(world.del(1, "root", "", "noop").unwrap_err(), nothing);
    assert_eq!(
        world.del(1, "root", "1:", "").unwrap_err(),
        "Invalid handle (EINVAL)"
    );
    let name = "Invalid qdisc name: must match existing qdisc (EINVAL)";
    assert_eq!(world.del(1, "root", "", "pfifo_fast").unwrap_err(), name);
    world.up(1, true);
    assert_eq!(world.show(1), ["pfifo_fast 0: root refcnt 2"]);
    world.up(1, false);
    assert_eq!(world.show(1), ["pfifo_fast 0: root refcnt 2"]);
}

/// Answers to requests, one after the other, on one link.
#[test]
fn requests_mean_what_they_mean_to_the_kernel() {
    const EXCLUSIVE: &str = "Exclusivity flag on, cannot modify (EEXIST)";
    const OVERRIDE: &str = "NLM_F_REPLACE needed to override (EEXIST)";
    const CREATE: &str = "Qdisc not found. To create specify NLM_F_CREATE flag (ENOENT)";
    const NAME: &str = "Invalid qdisc name: must match existing qdisc (EINVAL)";
    const MOVE: &str = "Cannot move an existing qdisc to a different parent (EINVAL)";
    const NOT_FOUND: &str = "Specified qdisc not found (ENOENT)";
    const NO_CLASS: &str = "Specified class not found (ENOENT)";
    const OK: &str = "";
    let kinds: Vec<&str> = QDISC_KINDS.iter().map(|kind| kind.name).collect();
    let kinds = kinds.join(", ");
    let text = "Specified qdisc kind is unknown.";
    let unnamed = format!("{text} This version has {kinds} (ENOENT)");
    let unnamed = unnamed.as_str();
    let unknown = format!("{text} Softnet has no qdisc \"choke\" (yet); it has {kinds} (ENOENT)");
    let unknown = unknown.as_str();
    let mut world = World::new();
    let rows = [
        // What comes by itself is not there.
        (CHANGE, "root", "", "pfifo_fast", CREATE),
        (LINK, "root", "", "pfifo", CREATE),
        (CHANGE, "", "", "pfifo", "Handle cannot be zero (EINVAL)"),
        (ADD, "", "88:", "pfifo", NOT_FOUND),
        (REPLACE, "", "88:", "pfifo", NOT_FOUND),
        (CHANGE, "", "88:", "pfifo", NOT_FOUND),
        (ADD, "root", "", "choke", unknown),
        (ADD, "root", "", "", unnamed),
        (ADD, "root", "1:5", "pfifo", "Invalid minor handle (EINVAL)"),
        (
            ADD,
            ":1",
            "",
            "pfifo",
            "Failed to find specified qdisc (ENOENT)",
        ),
        (
            ADD,
            "5:55",
            "",
            "pfifo",
            "Failed to find specified qdisc (ENOENT)",
        ),
        (
            ADD,
            "ffff:fff1",
            "ffff:",
            "pfifo",
            "Specified parent ID is reserved for ingress and clsact Qdiscs (EINVAL)",
        ),
        // At the root, without a handle.
        (ADD, "root", "", "pfifo", OK),
        (ADD, "root", "", "pfifo", EXCLUSIVE),
        (REPLACE, "root", "", "pfifo", OK),
        (CHANGE, "root", "", "pfifo", OK),
        (LINK, "root", "", "pfifo", OK),
        (LINK, "root", "", "bfifo", NAME),
        (NLM_F_CREATE, "root", "", "bfifo", NAME),
        (NLM_F_EXCL, "root", "", "bfifo", EXCLUSIVE),
        (CHANGE, "root", "", "", OK),
        (ADD, "root", "", "bfifo", OK),
        (CHANGE, "root", "", "pfifo", OK),
        (REPLACE, "root", "", "bfifo", OK),
        // With a handle.
        (ADD, "root", "1:", "pfifo", OVERRIDE),
        (CHANGE, "root", "1:", "pfifo", OVERRIDE),
        (LINK, "root", "1:", "pfifo", CREATE),
        (
            REPLACE,
            "root",
            "1:3",
            "pfifo",
            "Invalid minor handle (EINVAL)",
        ),
        (REPLACE, "root", "1:", "pfifo", OK),
        (REPLACE, "root", "1:", "pfifo", OK),
        (ADD, "root", "1:", "pfifo", EXCLUSIVE),
        (REPLACE, "root", "1:", "bfifo", NAME),
        (CHANGE, "", "1:", "pfifo", OK),
        (CHANGE, "", "1:", "bfifo", NAME),
        (REPLACE, "", "1:", "pfifo", OK),
        (ADD, "", "1:", "pfifo", EXCLUSIVE),
        (
            ADD,
            "1:1",
            "",
            "pfifo",
            "Parent qdisc is not classful (EOPNOTSUPP)",
        ),
        // Below another.
        (REPLACE, "root", "2:", "prio", OK),
        (ADD, "2:3", "30:", "pfifo", OK),
        (ADD, "2:3", "31:", "pfifo", OVERRIDE),
        (ADD, "2:3", "30:", "pfifo", EXCLUSIVE),
        (ADD, "2:2", "30:", "pfifo", MOVE),
        (REPLACE, "2:2", "30:", "pfifo", MOVE),
        (REPLACE, "2:2", "2:", "pfifo", MOVE),
        (REPLACE, "root", "30:", "pfifo", MOVE),
        (REPLACE, "2:3", "31:", "bfifo", OK),
        (ADD, "2:2", "30:", "prio", OK),
        (ADD, "2:4", "", "pfifo", NO_CLASS),
        (ADD, "2:", "", "pfifo", NO_CLASS),
        (
            ADD,
            "2:1",
            "",
            "noqueue",
            "Cannot assign noqueue to a class (EINVAL)",
        ),
        (CHANGE, "", "2:", "prio", OK),
        (REPLACE, "root", "3:", "noqueue", OK),
        (CHANGE, "root", "", "pfifo", OK),
    ];
    for (flags, parent, handle, kind, expected) in rows {
        let options = |out: &mut Message<'_>| match kind {
            "prio" => prio(3)(out),
            "pfifo" | "bfifo" => limit(5)(out),
            _ => {}
        };
        let answer = world.qdisc(flags, 1, (parent, handle), kind, &options);
        let answer = answer.err().unwrap_or_default();
        assert_eq!(answer, expected, "{flags:x} {parent} {handle} {kind}");
    }
    assert_eq!(world.show(1), ["pfifo 8006: root refcnt 2"]);
}

#[test]
fn deletions_name_what_is_there() {
    const NO_HANDLE: &str = "Cannot delete qdisc with handle of zero (ENOENT)";
    const BAD: &str = "Invalid handle (EINVAL)";
    const NAME: &str = "Invalid qdisc name: must match existing qdisc (EINVAL)";
    let mut world = World::new();
    world
        .qdisc(ADD, 1, ("root", "2:"), "prio", &prio(3))
        .unwrap();
    world
        .qdisc(ADD, 1, ("2:3", "30:"), "prio", &prio(3))
        .unwrap();
    world
        .qdisc(ADD, 1, ("30:1", "40:"), "pfifo", &none)
        .unwrap();
    assert_eq!(
        world.show(1),
        [
            "prio 2: root refcnt 2",
            "prio 30: parent 2:3",
            "pfifo 40: parent 30:1"
        ]
    );
    for (parent, handle, kind, expected) in [
        ("root", "77:", "", BAD),
        ("root", "", "pfifo", NAME),
        ("2:3", "31:", "", BAD),
        ("2:3", "30:", "pfifo", NAME),
        ("2:1", "", "", NO_HANDLE),
        ("2:1", "", "pfifo", NO_HANDLE),
        ("2:1", "", "bfifo", NAME),
        ("2:1", "5:", "", BAD),
        ("2:9", "", "", "Specified class not found (ENOENT)"),
        (
            "9:9",
            "",
            "",
            "Failed to find qdisc with specified classid (ENOENT)",
        ),
        ("", "30:", "", "Classid cannot be zero (EINVAL)"),
        (
            "",
            "31:",
            "",
            "Failed to find qdisc with specified handle (ENOENT)",
        ),
        (
            "",
            "",
            "",
            "Failed to find qdisc with specified handle (ENOENT)",
        ),
        ("40:1", "", "", "Parent qdisc is not classful (EOPNOTSUPP)"),
        (
            "ffff:fff1",
            "",
            "",
            "Cannot find specified qdisc on specified device (ENOENT)",
        ),
        ("2:3", "30:", "prio", ""),
        ("2:3", "", "", NO_HANDLE),
        ("root", "2:", "", ""),
        ("root", "", "", NO_HANDLE),
    ] {
        let answer = world.del(1, parent, handle, kind).err().unwrap_or_default();
        assert_eq!(answer, expected, "{parent} {handle} {kind}");
    }
    assert_eq!(world.show(1), ["pfifo_fast 0: root refcnt 2"]);
    assert_eq!(world.del(99, "root", "", "").unwrap_err(), "ENODEV");
    assert_eq!(world.del(-1, "root", "", "").unwrap_err(), "ENODEV");
}

#[test]
fn queues_have_qdiscs_of_their_own() {
    let mut world = World::new();
    let add = |world: &mut World, flags, parent, handle, kind| {
        let answer = world.qdisc(flags, 2, (parent, handle), kind, &none);
        answer.err().unwrap_or_default()
    };
    assert_eq!(add(&mut world, ADD, "root", "1:", "mq"), "");
    let told = ["2 deleted mq 0: root", "2 replaced mq 1: root"];
    assert_eq!(world.told, told);
    assert_eq!(add(&mut world, ADD, "1:1", "11:", "pfifo"), "");
    let told = [
        "2 deleted pfifo_fast 0: parent 1:1",
        "2 replaced pfifo 11: parent 1:1",
    ];
    assert_eq!(world.told, told);
    assert_eq!(add(&mut world, REPLACE, "1:2", "", "bfifo"), "");
    assert_eq!(
        add(&mut world, ADD, "1:5", "", "bfifo"),
        "Specified class not found (ENOENT)"
    );
    assert_eq!(
        world.show(2),
        [
            "mq 1: root",
            "pfifo 11: parent 1:1",
            "bfifo 8001: parent 1:2",
            "pfifo_fast 0: parent 1:3",
            "pfifo_fast 0: parent 1:4",
        ]
    );
    assert_eq!(
        world.classes(2, ""),
        [
            "mq 1:1 root leaf 11:",
            "mq 1:2 root leaf 8001:",
            "mq 1:3 root",
            "mq 1:4 root"
        ]
    );
    world.del(2, "1:1", "", "").unwrap();
    assert_eq!(world.told, ["2 deleted pfifo 11: parent 1:1"]);
    assert_eq!(world.show(2)[2], "pfifo_fast 0: parent 1:1");
    assert_eq!(add(&mut world, REPLACE, "root", "", "pfifo"), "");
    assert_eq!(world.show(2), ["pfifo 8002: root refcnt 5"]);
    // Only for several queues, and at the root.
    let refused = world.qdisc(ADD, 1, ("root", ""), "mq", &none).unwrap_err();
    assert!(refused.ends_with("(EOPNOTSUPP)"), "{refused}");
    world
        .qdisc(ADD, 1, ("root", "1:"), "prio", &prio(3))
        .unwrap();
    let refused = world.qdisc(ADD, 1, ("1:1", ""), "mq", &none).unwrap_err();
    assert!(refused.ends_with("(EOPNOTSUPP)"), "{refused}");
}

/// Qdiscs that come with classes are shown when asked for.
#[test]
fn invisible_qdiscs() {
    let mut world = World::new();
    world
        .qdisc(ADD, 1, ("root", "1:"), "prio", &prio(3))
        .unwrap();
    world.qdisc(ADD, 1, ("1:2", ""), "bfifo", &none).unwrap();
    assert_eq!(world.told, ["1 replaced bfifo 8001: parent 1:2"]);
    let shown = ["prio 1: root refcnt 2", "bfifo 8001: parent 1:2"];
    assert_eq!(world.show(1), shown);
    let all = [&shown[..], &["pfifo 0: parent 1:1", "pfifo 0: parent 1:3"]].concat();
    assert_eq!(world.show_invisible(1), all);
    assert_eq!(world.show_invisible(2), world.show(2));
    let get = |world: &mut World, parent, handle| {
        world.ask(RTM_GETQDISC, 0, at(1, parent, handle), &|_| {})
    };
    assert_eq!(
        get(&mut world, "", "8001:").unwrap(),
        ["1 bfifo 8001: parent 1:2"]
    );
    assert_eq!(
        get(&mut world, "root", "").unwrap(),
        ["1 prio 1: root refcnt 2"]
    );
    assert_eq!(get(&mut world, "1:1", "").unwrap_err(), "EINVAL");
    assert_eq!(
        get(&mut world, "", "7:").unwrap_err(),
        "Failed to find qdisc with specified handle (ENOENT)"
    );
}

#[test]
fn traffic_classes_have_no_qdisc() {
    let mut world = World::new();
    // `struct tc_mqprio_qopt`: two classes of two queues each.
    let mut options = [0; 82];
    options[0] = 2;
    options[17] = 0;
    options[18..22].copy_from_slice(&[2, 0, 2, 0]);
    options[50..54].copy_from_slice(&[0, 0, 2, 0]);
    let mqprio = |out: &mut Message<'_>| out.put_bytes(TCA_OPTIONS, &options);
    world
        .qdisc(ADD, 2, ("root", "1:"), "mqprio", &mqprio)
        .unwrap();
    let answer = world
        .qdisc(ADD, 2, ("1:ffe0", ""), "pfifo", &none)
        .unwrap_err();
    assert!(answer.starts_with("No device queue given"), "{answer}");
    let missing = "Cannot find specified qdisc on specified device (ENOENT)";
    assert_eq!(world.del(2, "1:ffe0", "", "").unwrap_err(), missing);
    for class in ["1:5", "1:ffe2"] {
        let answer = world
            .qdisc(ADD, 2, (class, ""), "pfifo", &none)
            .unwrap_err();
        assert_eq!(answer, "Specified class not found (ENOENT)");
    }
    world.qdisc(ADD, 2, ("1:3", ""), "pfifo", &none).unwrap();
    assert_eq!(
        world.classes(2, ""),
        [
            "mqprio 1:1 parent 1:ffe0",
            "mqprio 1:2 parent 1:ffe0",
            "mqprio 1:3 parent 1:ffe1 leaf 8001:",
            "mqprio 1:4 parent 1:ffe1",
            "mqprio 1:ffe0 root",
            "mqprio 1:ffe1 root",
        ]
    );
}

/// `tc qdisc show dev m0`: the header's link filters (`tc_dump_qdisc`).
#[test]
fn a_dump_of_one_link_has_no_other() {
    let mut world = World::new();
    for link in 1..=3 {
        world
            .qdisc(ADD, link, ("root", "1:"), "pfifo", &limit(5))
            .unwrap();
    }
    let mut of = |link| world.dump(RTM_GETQDISC, at(link, "", ""), &none);
    assert_eq!(of(2), ["2 pfifo 1: root refcnt 5"]);
    assert_eq!(of(0).len(), 3);
    assert_eq!(of(7), [""; 0]);
}
