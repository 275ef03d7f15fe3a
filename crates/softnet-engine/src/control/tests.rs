//! Links with devices in memory.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::changes::KEPT;
use super::*;
use crate::forward::{MirredDir, MirredMode};
use crate::testing::{CondSleeper, FedDevices, wait};
use softnet::mem::Pool;
use softnet::stats::DropReason;
use softnet::testing::{frame, pool};
use softnet::time::Clock;
use softnet::tx::{QueueMap, TcQueues};
use softnet_tc::{EstimatorSpec, Handle, PrioSpec, QdiscSpec, Rate};

pub(super) fn control() -> (Control<FedDevices>, FedDevices, Pool) {
    let pool = pool(256);
    let sleepers = vec![CondSleeper::default()];
    let engine = Engine::start(sleepers, pool.clone(), Clock::monotonic()).unwrap();
    let devices = FedDevices::default();
    (Control::new(engine, devices.clone()), devices, pool)
}

pub(super) fn port(name: &str, master: Option<&str>) -> PortSpec<&'static str> {
    let mut port = PortSpec {
        settings: Settings::new(name),
        master: master.map(str::to_owned),
        ..PortSpec::default()
    };
    port.options.device = "tun";
    port
}

fn with_queues(queues: usize, mut port: PortSpec<&'static str>) -> PortSpec<&'static str> {
    port.options.queues = queues;
    port
}

fn names(control: &Control<FedDevices>) -> Vec<(u32, &str)> {
    let links = control.links().values();
    links
        .map(|link| (link.index, link.settings.name.as_str()))
        .collect()
}

#[test]
fn ports_are_added_all_or_none() {
    let (mut control, devices, _) = control();
    let bridge = control.add_bridge(Settings::new("br0")).unwrap();
    for bad in [
        port("a", None),
        port("br0", None),
        port("a/b", None),
        port("", None),
        port("..", None),
        port("sixteen-byte-name", None),
        port("c", Some("br9")),
        PortSpec {
            settings: Settings {
                mtu: 9001,
                ..Settings::new("c")
            },
            ..port("c", None)
        },
    ] {
        let ports = vec![port("a", Some("br0")), port("b", None), bad];
        let (place, _) = control.add_ports(ports).unwrap_err();
        assert_eq!(place, 2);
        assert_eq!(names(&control), [(bridge, "br0")]);
        assert!(control.engine().stats().ports.is_empty());
        let opened: Vec<_> = devices.opened.lock().unwrap().drain(..).collect();
        assert!(opened.iter().all(|(_, queue, _)| queue.is_closed()));
    }
    let added = control.add_ports(vec![port("a", Some("br0")), port("b", Some("br0"))]);
    let added = added.unwrap();
    assert!(added[0] > bridge, "a number is never used again");
    let member = |index| control.link(index).unwrap().master;
    assert_eq!(
        added.iter().map(|&i| member(i)).collect::<Vec<_>>(),
        [Some(bridge); 2]
    );
}

#[test]
fn settings_change_together_or_not_at_all() {
    let (mut control, devices, _) = control();
    let a = control.add_port(port("a", None)).unwrap();
    control.add_port(port("b", None)).unwrap();
    control.take_changes();
    let before = control.link(a).unwrap().settings.clone();
    let change = |f: fn(&mut Settings)| {
        let mut after = before.clone();
        (after.alias, after.group) = ("other".into(), 7);
        f(&mut after);
        after
    };
    for (bad, why) in [
        (
            change(|s| s.name = "b".into()),
            "there is already a link named `b`",
        ),
        (change(|s| s.mtu = 67), "mtu less than device minimum"),
        (change(|s| s.mtu = 9001), "mtu greater than device maximum"),
        (
            change(|s| s.address = Some(EthernetAddress([1; 6]))),
            "a link's address must be a unicast address",
        ),
    ] {
        assert_eq!(control.change(a, &bad).unwrap_err().to_string(), why);
        assert_eq!(control.link(a).unwrap().settings, before);
    }
    devices.refuses.store(true, Ordering::SeqCst);
    let good = change(|s| (s.mtu, s.name) = (1400, "c".into()));
    control.change(a, &good).unwrap_err();
    assert_eq!(control.link_named("a").unwrap().settings, before);
    assert_eq!(control.take_changes().0, []);
    devices.refuses.store(false, Ordering::SeqCst);
    control.change(a, &good).unwrap();
    assert_eq!(control.link_named("c").unwrap().settings, good);
    assert_eq!(*devices.changed.lock().unwrap(), [good]);
    assert_eq!(control.engine().stats().ports[0].name, "c");
    assert_eq!(control.take_changes().0, [Change::Link(a)]);
    assert!(control.change(99, &before).is_err());
}

/// What is deleted is gone from the links that were part of it. An action to it stays, as in the
/// kernel, and drops what it gets.
#[test]
fn deleting_a_link_leaves_no_trace() {
    let (mut control, devices, _) = control();
    let bridge = control.add_bridge(Settings::new("br0")).unwrap();
    let a = control.add_port(port("a", Some("br0"))).unwrap();
    let b = control.add_port(port("b", Some("br0"))).unwrap();
    assert!(control.set_master(a, Some(b)).is_err());
    assert!(control.set_master(bridge, Some(bridge)).is_err());
    let action = Action {
        mode: MirredMode::Mirror,
        dir: MirredDir::Egress,
        to: b,
    };
    control.set_actions(a, &[action]).unwrap();
    assert!(
        control
            .set_actions(a, &[Action { to: 99, ..action }])
            .is_err()
    );
    control.take_changes();
    control.delete(bridge).unwrap();
    let left = |port, name: &str| Change::Left {
        port,
        name: name.into(),
        bridge,
    };
    let changes = [
        left(a, "a"),
        Change::Link(a),
        left(b, "b"),
        Change::Link(b),
        Change::LinkGone(bridge, "br0".into()),
    ];
    assert_eq!(control.take_changes().0, changes);
    assert_eq!(control.link(a).unwrap().master, None);
    control.delete(b).unwrap();
    let opened: Vec<_> = devices.opened.lock().unwrap().drain(..).collect();
    assert!(
        opened
            .iter()
            .any(|(name, queue, _)| name == "b" && queue.is_closed())
    );
    assert!(control.delete(b).is_err());
    control.add_port(port("b", None)).unwrap();
    assert!(control.link(b).is_err(), "its number is not used again");
    let actions = |control: &Control<FedDevices>| match &control.link(a).unwrap().kind {
        LinkKind::Port { actions, .. } => actions.clone(),
        LinkKind::Bridge(_) => panic!("a is a port"),
    };
    assert_eq!(actions(&control), [action]);
    let id = control.port(a).unwrap();
    let attached = |control: &Control<FedDevices>| {
        let stats = control.engine().port_stats(id).unwrap();
        stats.device.actions.into_iter().map(|stats| stats.action)
    };
    assert!(attached(&control).eq(["mirred egress mirror dev a device that is gone"]));
    control.set_actions(a, &[]).unwrap();
    assert_eq!(
        (actions(&control), attached(&control).count()),
        (Vec::new(), 0)
    );
}

/// A link whose device is gone is changed all the same: what bears the name of its interface by
/// then is not its own. The next device is opened with the settings of that time.
#[test]
fn a_link_without_a_device_changes() {
    let (mut control, devices, _) = control();
    let a = control.add_port(port("a", None)).unwrap();
    control.close_device(a).unwrap();
    let after = Settings {
        mtu: 1400,
        ..control.link(a).unwrap().settings.clone()
    };
    control.change(a, &after).unwrap();
    assert_eq!(control.link(a).unwrap().settings, after);
    assert_eq!(*devices.changed.lock().unwrap(), []);
    let bad = Settings {
        mtu: 9001,
        ..after.clone()
    };
    control.change(a, &bad).unwrap_err();
    devices.refuses.store(true, Ordering::SeqCst);
    control.reopen_device(a).unwrap_err();
    devices.refuses.store(false, Ordering::SeqCst);
    control
        .change(
            a,
            &Settings {
                mtu: 1300,
                ..after.clone()
            },
        )
        .unwrap();
    assert_eq!(*devices.changed.lock().unwrap(), []);
    control.reopen_device(a).unwrap();
    control.change(a, &after).unwrap();
    assert_eq!(*devices.changed.lock().unwrap(), [after]);
}

/// A port that is down neither receives nor sends, and its tree is there when it is up again.
#[test]
fn ports_and_bridges_that_are_down_forward_nothing() {
    let (mut control, devices, pool) = control();
    let bridge = control.add_bridge(Settings::new("br0")).unwrap();
    let ports = ["a", "b"].map(|name| port(name, Some("br0")));
    let ports = control.add_ports(ports.into()).unwrap();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    control
        .edit_tree(ports[1], |live| {
            live.add(Handle::ROOT, Handle::new(1, 0), prio)
        })
        .unwrap();
    let (from, _) = devices.last("a");
    let (_, to) = devices.last("b");
    let send = |mark| from.feed().packets.push_back(frame(&pool, 2, 1, 60, mark));
    let drops = |control: &Control<_>| control.engine().stats().drops();
    let set_up = |control: &mut Control<_>, index, up| {
        let settings = Settings {
            up,
            ..control.link(index).unwrap().settings.clone()
        };
        control.change(index, &settings).unwrap();
    };
    for (lost, down) in (1..).zip([ports[0], ports[1], bridge]) {
        set_up(&mut control, down, false);
        send(1);
        wait("the drop", || {
            drops(&control) == [(DropReason::NoForward, lost)]
        });
        set_up(&mut control, down, true);
    }
    send(2);
    wait("the packet", || to.marks() == [2]);
    let root = control.read_tree(ports[1], |tree, _| tree.spec().root().map(|r| r.handle));
    assert_eq!(root.unwrap(), Some(Handle::new(1, 0)));
    let stats = control.into_engine().stop(Duration::ZERO);
    assert!(stats.conservation().holds());
}

/// `txqueuelen` reaches the default qdiscs; a link of the kind `dummy` has none at first.
#[test]
fn the_queue_length_reaches_default_qdiscs() {
    let (mut control, _, _) = control();
    let mut dummy = port("d", None);
    dummy.options.device = "dummy";
    let dummy = control.add_port(dummy).unwrap();
    let kind = |control: &Control<_>, index| {
        let id = control.port(index).unwrap();
        control.engine().classes(id)[0].kind
    };
    assert_eq!(kind(&control, dummy), "noqueue");
    let wide = with_queues(2, port("w", None));
    let wide = control.add_port(wide).unwrap();
    assert_eq!(kind(&control, wide), "mq");
    let longer = Settings {
        tx_queue_len: 5000,
        ..control.link(wide).unwrap().settings.clone()
    };
    control.change(wide, &longer).unwrap();
    let limit = control.read_tree(wide, |tree, _| tree.env().txqueuelen);
    assert_eq!(limit.unwrap(), 5000);
}

/// Numbers are chosen once each over all links before one comes again, and none that is in use.
#[test]
fn handles_are_chosen_in_turn() {
    let (mut control, ..) = control();
    let ports = vec![port("a", None), port("b", None)];
    let links = control.add_ports(ports).unwrap();
    let next = |control: &mut Control<FedDevices>, link: usize| {
        control.choose_handle(links[link]).unwrap().major()
    };
    assert_eq!(next(&mut control, 0), 0x8001);
    assert_eq!(next(&mut control, 1), 0x8002);
    for major in [0x8003, 0x8004] {
        let add = control.edit_tree(links[0], |tree| {
            let prio = QdiscSpec::Prio(PrioSpec::default());
            let pfifo = QdiscSpec::Pfifo { limit: 1 };
            let (at, qdisc) = match tree.spec().root() {
                None => (Handle::ROOT, prio),
                Some(root) => (root.handle.class(1), pfifo),
            };
            tree.add(at, Handle::new(major, 0), qdisc)
        });
        add.unwrap();
    }
    assert_eq!(next(&mut control, 0), 0x8005, "3 and 4 are in use");
    let last = (0x8006..=0xfffe).map(|_| next(&mut control, 1)).last();
    assert_eq!(last, Some(0xfffe));
    assert_eq!(next(&mut control, 0), 0x8001);
    assert_eq!(next(&mut control, 1), 0x8002);
    assert_eq!(next(&mut control, 1), 0x8003, "free there");
    assert!(control.choose_handle(99).is_err());
}

/// As `dev_activate`: a link that was never up has no default qdisc, nor one that lost its root
/// while it was down.
#[test]
fn the_default_qdisc_comes_with_the_link() {
    let (mut control, ..) = control();
    let down = Settings {
        up: false,
        ..Settings::new("a")
    };
    let mut new = port("a", None);
    new.settings = down.clone();
    new.options.device = "dummy";
    let link = control.add_port(new).unwrap();
    let up = Settings {
        up: true,
        ..down.clone()
    };
    let has = |control: &Control<FedDevices>| control.link(link).unwrap().has_default;
    let kind = |control: &Control<FedDevices>| {
        let kind = control.read_tree(link, |tree, stats| tree.classes(stats)[0].kind);
        kind.unwrap()
    };
    assert!(!has(&control));
    assert_eq!(kind(&control), "noqueue");
    control.change(link, &up).unwrap();
    assert!(has(&control));
    control.change(link, &down).unwrap();
    assert!(has(&control));
    let root = Handle::new(1, 0);
    let pfifo = QdiscSpec::Pfifo { limit: 1 };
    let add = control.edit_tree(link, |tree| tree.add(Handle::ROOT, root, pfifo.clone()));
    add.unwrap();
    assert_eq!(kind(&control), "pfifo");
    control.edit_tree(link, |tree| tree.delete(root)).unwrap();
    assert!(!has(&control));
    assert_eq!(kind(&control), "noqueue");
    control.change(link, &up).unwrap();
    assert!(has(&control));
    let add = control.edit_tree(link, |tree| tree.add(Handle::ROOT, root, pfifo));
    add.unwrap();
    control.edit_tree(link, |tree| tree.delete(root)).unwrap();
    assert!(has(&control));
}

/// Rates are sampled when they are due, and read from the tree.
#[test]
fn rates_are_sampled() {
    let (mut control, _, _) = control();
    let index = control.add_port(port("a", None)).unwrap();
    assert_eq!(control.engine().sample_rates(), None);
    let spec = EstimatorSpec::new(0, 3).unwrap();
    let root = Handle::new(1, 0);
    let set = control.edit_tree(index, |tree| {
        tree.replace(Handle::ROOT, root, QdiscSpec::Prio(PrioSpec::default()))?;
        tree.set_estimator(root, spec)
    });
    set.unwrap();
    let rate = |control: &Control<_>| control.read_tree(index, |tree, _| tree.rate(root)).unwrap();
    assert_eq!(rate(&control), Some(Rate::default()));
    assert_eq!(control.engine().sample_rates(), Some(spec.period()));
    let due = control.engine().sample_rates().unwrap();
    assert!(due <= spec.period(), "the time goes on");
    let gone = control.edit_tree(index, |tree| tree.delete(root));
    gone.unwrap();
    assert_eq!(control.engine().sample_rates(), None);
    assert_eq!(rate(&control), None);
}

/// Ports of a bridge have the smallest numbers that are free.
#[test]
fn ports_of_a_bridge_are_numbered() {
    let (mut control, ..) = control();
    control.add_bridge(Settings::new("br0")).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| control.add_port(port(name, Some("br0"))).unwrap());
    let number = |control: &Control<_>, index| control.link(index).unwrap().port_number;
    assert_eq!([a, b, c].map(|index| number(&control, index)), [1, 2, 3]);
    control.set_master(b, None).unwrap();
    let d = control.add_port(port("d", Some("br0"))).unwrap();
    assert_eq!(
        [a, b, c, d].map(|index| number(&control, index)),
        [1, 0, 3, 2]
    );
}

#[test]
fn random_addresses_are_local_unicast_and_differ() {
    let (one, other) = (random_address(), random_address());
    assert_eq!(one.0[0] & 0x03, 0x02);
    assert_ne!(one, other);
}

/// A port's tree runs at all of its queues, or at one, as its options say, and so it does when
/// another device takes the place of its own.
#[test]
fn a_tree_runs_at_every_queue_of_a_parallel_port() {
    let (mut control, devices, pool) = control();
    control.add_bridge(Settings::new("br0")).unwrap();
    let class = |offset| TcQueues { count: 1, offset };
    let options = |parallel| PortOptions {
        device: "tun",
        queues: 2,
        parallel,
        map: QueueMap {
            prio_tc_map: std::array::from_fn(|priority| u8::from(priority == 4)),
            classes: vec![class(0), class(1)],
        },
        ..PortOptions::default()
    };
    let wide = PortSpec {
        qdisc: QdiscSpec::Prio(PrioSpec::default()),
        options: options(true),
        ..port("a", Some("br0"))
    };
    let ports = control.add_ports(vec![wide, port("b", Some("br0"))]);
    let a = ports.unwrap()[0];
    let (from, _) = devices.last("b");
    let counted = |control: &Control<FedDevices>| {
        let read = control.read_tree(a, |tree, queues| {
            let band = tree.spec().root().unwrap().handle.class(2);
            let sum = tree.stats_at(band, queues).unwrap().packets;
            let queues: Vec<u64> = queues.iter().map(|queue| queue.packets).collect();
            (sum, queues)
        });
        read.unwrap()
    };
    let sends = |control: &Control<FedDevices>, expected: [u64; 2]| {
        for priority in [0, 4] {
            let mut packet = frame(&pool, 2, 1, 60, 1);
            packet.set_priority(priority);
            from.feed().packets.push_back(packet);
        }
        wait("the packets", || counted(control) == (2, expected.into()));
    };
    sends(&control, [1, 1]);
    for (parallel, expected) in [(false, [2, 0]), (true, [1, 1])] {
        control.set_options(a, &options(parallel)).unwrap();
        assert_eq!(counted(&control), (0, vec![0, 0]));
        sends(&control, expected);
    }
    control.close_device(a).unwrap();
    control.reopen_device(a).unwrap();
    sends(&control, [1, 1]);
    let stats = control.into_engine().stop(Duration::ZERO);
    assert!(stats.conservation().holds());
}

/// INV-MQ-2: `mqprio` chooses the queues of a port that was added with it, and goes on to when the
/// port's own map changes.
#[test]
fn inv_mq_2_a_port_added_with_mqprio_has_its_classes() {
    let (mut control, devices, pool) = control();
    control.add_bridge(Settings::new("br0")).unwrap();
    let class = |count, offset| TcQueues { count, offset };
    let mqprio = QueueMap {
        prio_tc_map: [0; 16],
        classes: vec![class(1, 0), class(3, 1)],
    };
    let mut wide = with_queues(4, port("a", Some("br0")));
    wide.qdisc = QdiscSpec::Mqprio(mqprio);
    let ports = control.add_ports(vec![wide, port("b", Some("br0"))]);
    let a = ports.unwrap()[0];
    let (from, _) = devices.last("b");
    let mut after = PortOptions::default();
    for rounds in 1..=2 {
        for flow in 0..20u32 {
            let mut packet = frame(&pool, 2, 1, 60, 1);
            packet.set_flow_hash(flow.wrapping_mul(0x9E37_79B9));
            from.feed().packets.push_back(packet);
        }
        let queues = |control: &Control<_>| {
            let read = control.read_tree(a, |_, queues| {
                queues.iter().map(|queue| queue.packets).collect::<Vec<_>>()
            });
            read.unwrap()
        };
        wait("the packets", || {
            queues(&control).iter().sum::<u64>() == 20 * rounds
        });
        assert_eq!(queues(&control), [20 * rounds, 0, 0, 0]);
        after.map.classes = vec![class(2, 0)];
        control.set_options(a, &after).unwrap();
    }
    control.into_engine().stop(Duration::ZERO);
}

/// Options of which one cannot be had leave all of them as they were.
#[test]
fn options_with_an_unknown_rate_group_change_nothing() {
    let (mut control, devices, pool) = control();
    control.add_bridge(Settings::new("br0")).unwrap();
    let wide = with_queues(2, port("a", Some("br0")));
    let ports = control.add_ports(vec![wide, port("b", Some("br0"))]);
    let a = ports.unwrap()[0];
    let mut after = PortOptions::default();
    after.map.classes = vec![TcQueues {
        count: 1,
        offset: 1,
    }];
    after.rate_group = Some("nobody".into());
    control.set_options(a, &after).unwrap_err();
    let mut packet = frame(&pool, 2, 1, 60, 1);
    packet.set_queue(Some(0));
    devices.last("b").0.feed().packets.push_back(packet);
    let queues = || {
        let read = control.read_tree(a, |_, queues| [queues[0].packets, queues[1].packets]);
        read.unwrap()
    };
    wait("the packet", || queues() != [0, 0]);
    assert_eq!(queues(), [1, 0]);
    control.into_engine().stop(Duration::ZERO);
}

/// Of too many changes the oldest are lost: what happened last is told.
#[test]
fn of_too_many_changes_the_newest_are_kept_and_the_loss_is_told() {
    let (mut control, ..) = control();
    for index in 0..KEPT as u32 {
        control.note(Change::Link(index));
    }
    let (changes, lost) = control.take_changes();
    assert!((0..KEPT as u32).map(Change::Link).eq(changes) && !lost);
    for index in 0..=KEPT as u32 {
        control.note(Change::Link(index));
    }
    let (changes, lost) = control.take_changes();
    assert!((1..=KEPT as u32).map(Change::Link).eq(changes) && lost);
    assert_eq!(control.take_changes(), (Vec::new(), false));
    control.into_engine().stop(Duration::ZERO);
}

/// Links are found by their names and ports whatever became of others.
#[test]
fn links_are_found_after_others_were_renamed_and_deleted() {
    let (mut control, ..) = control();
    let bridge = control.add_bridge(Settings::new("br0")).unwrap();
    let other = control.add_bridge(Settings::new("br1")).unwrap();
    let a = control.add_port(port("a", Some("br1"))).unwrap();
    let b = control.add_port(port("b", None)).unwrap();
    let rename = |control: &mut Control<_>, index, name: &str| {
        let mut settings = control.link(index).unwrap().settings.clone();
        settings.name = name.into();
        control.change(index, &settings).unwrap();
    };
    let found = |control: &Control<FedDevices>| {
        let found = |name| control.link_named(name).ok().map(|link| link.index);
        ["a", "b", "c", "br0", "br1"].map(found)
    };
    let (of_a, of_b) = (control.port(a).unwrap(), control.port(b).unwrap());
    rename(&mut control, a, "c");
    rename(&mut control, b, "a");
    rename(&mut control, bridge, "b");
    let all = [Some(b), Some(bridge), Some(a), None, Some(other)];
    assert_eq!(found(&control), all);
    assert_eq!(control.link_of(of_a), Some(a));
    assert_eq!(control.bridge(bridge).unwrap().name, "b");
    assert_eq!(control.bridge(other).unwrap().ports, [of_a]);
    control.delete(b).unwrap();
    control.delete(bridge).unwrap();
    assert_eq!(found(&control), [None, None, Some(a), None, Some(other)]);
    assert_eq!(control.link_of(of_b), None);
    assert!(control.bridge(bridge).is_err());
    // A name that is free again.
    let again = control.add_port(port("a", None)).unwrap();
    assert_eq!(found(&control)[0], Some(again));
    control.into_engine().stop(Duration::ZERO);
}

#[test]
fn a_dump_of_links_is_interrupted_by_links_that_come_or_go_alone() {
    let (mut control, ..) = control();
    let mut last = control.generation();
    let mut differs = |control: &Control<FedDevices>| {
        let before = std::mem::replace(&mut last, control.generation());
        before != last
    };
    control.add_bridge(Settings::new("br0")).unwrap();
    assert!(differs(&control));
    let a = control.add_port(port("a", Some("br0"))).unwrap();
    assert!(differs(&control));
    let mut settings = control.link(a).unwrap().settings.clone();
    (settings.name, settings.mtu) = ("b".into(), 1400);
    control.change(a, &settings).unwrap();
    control.edit_tree(a, |_| Ok(())).unwrap();
    control.set_master(a, None).unwrap();
    assert!(!differs(&control));
    control.delete(a).unwrap();
    assert!(differs(&control));
    control.into_engine().stop(Duration::ZERO);
}
