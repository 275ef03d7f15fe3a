//! `tc class`.

use softnet::testing::{frame, pool};
use softnet_engine::testing::wait;
use softnet_tc::{PrioSpec, QdiscSpec, TbfSpec};

use super::*;

fn world() -> World {
    let mut world = World::new();
    world.qdisc(ADD, 1, ("root", "1:"), "htb", &htb).unwrap();
    world
}

#[test]
fn classes_come_change_and_go() {
    let mut world = world();
    let rows = [
        (ADD, "1:", "1:1", ""),
        (ADD, "1:1", "1:10", ""),
        (ADD, "1:1", "1:20", ""),
        (ADD, "1:1", "1:20", "EEXIST"),
        // A class above that is not there: below the qdisc, as in the kernel.
        (ADD, "1:77", "1:30", ""),
        (ADD, "root", "1:31", ""),
        (ADD, "1:", "0:32", ""),
        (ADD, "", ":33", ""),
        (ADD, "2:1", "1:40", "EINVAL"),
        (ADD, "2:1", "2:40", "ENOENT"),
        (ADD, "1:1", "", "EINVAL"),
        (CHANGE, "1:1", "1:99", "ENOENT"),
        (LINK, "1:1", "1:99", "ENOENT"),
        (CHANGE, "1:1", "1:20", ""),
        (REPLACE, "1:1", "1:20", ""),
        (ADD, "ffff:ffff", "ffff:ffff", "ENOENT"),
    ];
    for (flags, parent, class, expected) in rows {
        let answer = world.class(flags, 1, parent, class, &rate(125_000));
        assert_eq!(
            answer.err().unwrap_or_default(),
            expected,
            "{flags:x} {parent} {class}"
        );
    }
    let shown = [
        "htb 1:1 root",
        "htb 1:10 parent 1:1",
        "htb 1:20 parent 1:1",
        "htb 1:30 root",
        "htb 1:31 root",
        "htb 1:32 root",
        "htb 1:33 root",
    ];
    assert_eq!(world.classes(1, ""), shown);
    assert_eq!(world.classes(1, "1:1"), shown, "the qdisc is what counts");
    assert!(world.classes(1, "2:").is_empty());
    assert!(world.classes(1, "root").is_empty());

    let delete = |world: &mut World, class| {
        let answer = world.ask(RTM_DELTCLASS, 0, at(1, "", class), &|_| {});
        answer.err().unwrap_or_default()
    };
    let busy = delete(&mut world, "1:1");
    assert!(
        busy.starts_with("HTB class in use") && busy.ends_with("(EBUSY)"),
        "{busy}"
    );
    assert_eq!(delete(&mut world, "1:55"), "ENOENT");
    assert_eq!(delete(&mut world, "1:20"), "");
    assert_eq!(world.told, ["1 deleted htb 1:20 parent 1:1"]);
    assert_eq!(delete(&mut world, "1:10"), "");
    assert_eq!(delete(&mut world, "1:1"), "");
    assert_eq!(world.classes(1, "").len(), 4);

    let get = |world: &mut World, class| world.ask(RTM_GETTCLASS, 0, at(1, "", class), &|_| {});
    assert_eq!(get(&mut world, "1:30").unwrap(), ["1 htb 1:30 root"]);
    assert_eq!(get(&mut world, "1:1").unwrap_err(), "ENOENT");
    // The qdisc is no class, as that of hfsc is one.
    assert_eq!(get(&mut world, "1:").unwrap_err(), "ENOENT");
    assert_eq!(delete(&mut world, "1:"), "ENOENT");
    let named = world.class(ADD, 1, "1:", "1:", &rate(125_000));
    assert_eq!(
        named.unwrap_err(),
        "1: cannot name a class; a class's name is written like \"1:2\" (EINVAL)"
    );
    assert_eq!(world.classes(1, "1:").len(), 4);
}

/// An inner class has no qdisc, and a leaf shows which it has.
#[test]
fn qdiscs_below_classes() {
    let mut world = world();
    world.class(ADD, 1, "1:", "1:1", &rate(125_000)).unwrap();
    world.class(ADD, 1, "1:1", "1:10", &rate(125_000)).unwrap();
    assert_eq!(world.told, ["1 htb 1:10 parent 1:1"]);
    let inner = world
        .qdisc(ADD, 1, ("1:1", ""), "pfifo", &none)
        .unwrap_err();
    assert!(inner.ends_with("(EINVAL)"), "{inner}");
    world
        .qdisc(ADD, 1, ("1:10", "10:"), "pfifo", &none)
        .unwrap();
    assert_eq!(world.classes(1, "")[1], "htb 1:10 parent 1:1 leaf 10:");
    // It goes when the class gets another below it.
    world.class(ADD, 1, "1:10", "1:11", &rate(125_000)).unwrap();
    assert_eq!(world.show(1), ["htb 1: root refcnt 2"]);
    assert_eq!(world.show_invisible(1)[1..], ["pfifo 0: parent 1:11"]);
}

#[test]
fn kinds_that_come_with_their_classes() {
    let mut world = World::new();
    world
        .qdisc(ADD, 1, ("root", "1:"), "prio", &prio(2))
        .unwrap();
    assert_eq!(
        world.classes(1, ""),
        ["prio 1:1 parent 1:", "prio 1:2 parent 1:"]
    );
    let rows = [
        (1, "1:", "1:5", "EOPNOTSUPP"),
        (1, "1:", "1:1", "EEXIST"),
        (2, "", ":1", "ENOENT"),
    ];
    for (link, parent, class, expected) in rows {
        let answer = world
            .class(ADD, link, parent, class, &rate(125_000))
            .unwrap_err();
        assert_eq!(answer, expected);
    }
    let delete = world.ask(RTM_DELTCLASS, 0, at(1, "", "1:1"), &|_| {});
    assert_eq!(delete.unwrap_err(), "EOPNOTSUPP");
    world.qdisc(ADD, 1, ("1:1", "11:"), "pfifo", &none).unwrap();
    let classless = world.class(ADD, 1, "11:", "11:1", &rate(125_000));
    assert_eq!(classless.unwrap_err(), "EINVAL");
    let blocks = |out: &mut Message<'_>| out.put_u32(TCA_EGRESS_BLOCK, 1);
    let answer = world.class(CHANGE, 1, "1:", "1:1", &blocks).unwrap_err();
    assert_eq!(
        answer,
        "Shared blocks are not supported for classes (EOPNOTSUPP)"
    );
}

#[test]
fn the_kernels_warnings() {
    let mut world = world();
    world.class(ADD, 1, "1:", "1:1", &rate(125_000)).unwrap();
    assert_eq!(world.warning, None);
    world.class(ADD, 1, "1:", "1:2", &rate(100)).unwrap();
    let small = "sch_htb: quantum of class 10002 is small. Consider r2q change.";
    assert_eq!(world.warning.as_deref(), Some(small));
    // The quantum is a leaf's.
    world.class(ADD, 1, "1:2", "1:3", &rate(125_000)).unwrap();
    world.class(CHANGE, 1, "1:", "1:2", &rate(200)).unwrap();
    assert_eq!(world.warning, None);
}

/// Behind what the kernel says, if it says something; as often as it is asked for.
#[test]
fn a_class_with_a_small_burst_is_warned_of() {
    let mut world = World::new();
    world
        .engine
        .lock()
        .unwrap()
        .set_options(2, |port| port.parallel = true)
        .unwrap();
    world.qdisc(ADD, 2, ("root", "1:"), "htb", &htb).unwrap();
    let small = "is too little for 4 queues that share the rate";
    for (flags, name) in [(ADD, "1:1"), (CHANGE, "1:1"), (REPLACE, "1:2")] {
        world.class(flags, 2, "1:", name, &rate(1_600_000)).unwrap();
        let warning = world.warning.take().unwrap();
        let (first, second) = warning.split_once("; 1:").unwrap();
        let is = [first, second].map(|text| text.contains(small));
        assert_eq!(is, [true, true], "{warning}");
        assert!(
            first.starts_with(&format!("{name}: burst of 1600 bytes")),
            "{warning}"
        );
    }
    world.class(ADD, 2, "1:", "1:3", &rate(12_500)).unwrap();
    assert_eq!(world.warning, None, "slow");
    let engine = world.engine.lock().unwrap();
    engine.change(2, |link| link.mtu = 9000).unwrap();
    engine.take_changes();
    drop(engine);
    world.class(CHANGE, 2, "1:", "1:3", &rate(125)).unwrap();
    let warning = world.warning.take().unwrap();
    let kernels = "sch_htb: quantum of class 10003 is small. Consider r2q change.; 1:3: burst ";
    assert!(warning.starts_with(kernels), "{warning}");
}

/// Nesting is bounded as in the kernel, and so is the depth of qdiscs.
#[test]
fn trees_are_not_deeper_than_the_kernels() {
    let mut world = world();
    for class in 1..=9_u32 {
        let (parent, name) = (format!("1:{:x}", class - 1), format!("1:{class:x}"));
        let parent = if class == 1 { "1:" } else { &parent };
        let answer = world.class(ADD, 1, parent, &name, &rate(125_000));
        assert_eq!(answer.is_ok(), class <= 8, "{class}: {answer:?}");
    }
    world
        .qdisc(ADD, 2, ("root", "1:"), "prio", &prio(2))
        .unwrap();
    for major in 2..=9_u32 {
        let (parent, handle) = (format!("{:x}:1", major - 1), format!("{major:x}:"));
        let answer = world.qdisc(ADD, 2, (&parent, &handle), "prio", &prio(2));
        let answer = answer.err().unwrap_or_default();
        assert_eq!(answer.is_empty(), major <= 8, "{major}: {answer}");
        assert!(
            major <= 8 || answer.starts_with("Qdisc hierarchy is too deep"),
            "{answer}"
        );
    }
}

/// `hfsc_change_class`: classes stay where they are, below classes that are there.
#[test]
fn classes_of_hfsc_have_the_parents_they_say() {
    let mut world = World::new();
    let default = |out: &mut Message<'_>| out.put_u16(TCA_OPTIONS, 0);
    world
        .qdisc(ADD, 1, ("root", "1:"), "hfsc", &default)
        .unwrap();
    let curves = |out: &mut Message<'_>| {
        out.nest(TCA_OPTIONS, |out| {
            out.put(1, &[0, 0, 125_000_u32]);
            out.put(2, &[0, 0, 125_000_u32]);
        });
    };
    let rows = [
        (ADD, "1:", "1:1", ""),
        (ADD, "1:1", "1:11", ""),
        (CHANGE, "1:1", "1:11", ""),
        (CHANGE, "", "1:11", ""),
        (CHANGE, "1:", "1:11", "EINVAL"),
        (ADD, "1:99", "1:2", "ENOENT"),
        (ADD, "root", "1:2", "EEXIST"),
    ];
    for (flags, parent, class, expected) in rows {
        let answer = world.class(flags, 1, parent, class, &curves);
        let answer = answer.err().unwrap_or_default();
        assert_eq!(answer, expected, "{flags:x} {parent} {class}");
    }
    // The qdisc is a class itself, which has others below it and no qdisc.
    let below = world.qdisc(ADD, 1, ("1:", "10:"), "pfifo", &|_| {});
    assert!(below.is_err_and(|error| error.contains("EINVAL")));
    let gone = world.del(1, "1:", "", "");
    let text = "Cannot find specified qdisc on specified device";
    assert!(gone.is_err_and(|error| error.starts_with(text)));
}

/// A dump of many parts shows each class once, and goes on where it was when some are deleted.
#[test]
fn large_dumps_come_in_parts() {
    let mut world = world();
    for class in 1..=2000 {
        let class = format!("1:{class:x}");
        world.class(ADD, 1, "1:", &class, &rate(125_000)).unwrap();
    }
    let all: Vec<String> = (1..=2000)
        .map(|class| format!("htb 1:{class:x} root"))
        .collect();
    assert_eq!(world.classes(1, ""), all);
    assert_eq!(world.show_invisible(1).len(), 2001);
}

/// Flows of `fq_codel` are shown among the classes of other qdiscs, while they have packets.
#[test]
fn flows_with_packets() {
    let (pool, devices) = (pool(64), FedDevices::default());
    let mut world = World::with(EngineConfig::default(), devices.clone());
    let (root, leaf, below) = (Handle::new(1, 0), Handle::new(2, 0), Handle::new(3, 0));
    let slow = TbfSpec {
        rate: 1,
        burst: 2000,
        limit: 100_000,
        ..TbfSpec::default()
    };
    {
        let engine = world.engine.lock().unwrap();
        let bridge = engine.add_bridge(Settings::new("br0")).unwrap();
        engine.join(bridge, &[1, 2]).unwrap();
        let edited = engine.edit_tree(1, |tree| {
            let prio = QdiscSpec::Prio(PrioSpec::default());
            tree.add(Handle::ROOT, below, prio)?;
            tree.add(below.class(1), root, QdiscSpec::Tbf(slow))?;
            tree.add(root.class(1), leaf, QdiscSpec::FqCodel(Default::default()))
        });
        edited.unwrap();
    }
    let others = [
        "tbf 1:1 parent 1: leaf 2:",
        "prio 3:1 parent 3: leaf 1:",
        "prio 3:2 parent 3:",
        "prio 3:3 parent 3:",
    ];
    assert_eq!(world.classes(1, ""), others);
    let (from, _) = devices.last("m0");
    for n in 0..10 {
        // What is known of the flow stays its own.
        let mut packet = frame(&pool, 1, 2, 1000, n);
        packet.set_priority(below.class(1).raw());
        packet.set_flow_hash(n);
        from.feed().packets.push_back(packet);
    }
    wait("packets behind the rate", || {
        let engine = world.engine.lock().unwrap();
        let classes = engine.classes(1);
        let own = classes.iter().find(|of| of.class == root.class(1));
        own.is_some_and(|own| own.stats.qlen >= 5)
    });
    // The rate lets two packets pass at once, and no other for many minutes.
    let is_flow = |line: &str| line.starts_with("fq_codel 2:") && line.ends_with(" parent 2:");
    let flows = world.classes(1, "2:");
    assert!(
        !flows.is_empty() && flows.iter().all(|line| is_flow(line)),
        "{flows:?}"
    );
    let (flows, rest): (Vec<String>, Vec<String>) = {
        let all = world.classes(1, "");
        assert!(is_flow(&all[1]), "{all:?}");
        all.into_iter().partition(|line| is_flow(line))
    };
    let names = flows
        .iter()
        .map(|line| handle(line.split(' ').nth(1).unwrap()));
    assert!(names.is_sorted(), "{flows:?}");
    assert_eq!(rest, others);
}
