//! Links with devices in memory.

mod qdiscs;

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::change::KEPT;
use super::links::random_address;
use super::*;
use crate::forward::{MirredDir, MirredMode};
use crate::testing::{CondSleeper, FedDevices, wait};
use softnet::mem::Pool;
use softnet::stats::DropReason;
use softnet::testing::{frame, pool};
use softnet::time::Clock;
use softnet::wire::EthernetAddress;
use softnet_tc::{Handle, PrioSpec, QdiscSpec};

pub(super) fn engine() -> (Engine<FedDevices>, FedDevices, Pool) {
    let pool = pool(256);
    let sleepers = vec![CondSleeper::default()];
    let devices = FedDevices::default();
    let engine = Engine::start(sleepers, pool.clone(), Clock::monotonic(), devices.clone());
    (engine.unwrap(), devices, pool)
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

fn names(engine: &Engine<FedDevices>) -> Vec<(u32, String)> {
    let links = engine.links();
    let links = links.values();
    links
        .map(|link| (link.index, link.settings.name.clone()))
        .collect()
}

#[test]
fn ports_are_added_all_or_none() {
    let (engine, devices, _) = engine();
    let bridge = engine.add_bridge(Settings::new("br0")).unwrap();
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
        let (place, _) = engine.add_ports(ports).unwrap_err();
        assert_eq!(place, 2);
        assert_eq!(names(&engine), [(bridge, "br0".to_owned())]);
        assert!(engine.stats().ports.is_empty());
        let opened: Vec<_> = devices.opened.lock().unwrap().drain(..).collect();
        assert!(opened.iter().all(|(_, queue, _)| queue.is_closed()));
    }
    let added = engine.add_ports(vec![port("a", Some("br0")), port("b", Some("br0"))]);
    let added = added.unwrap();
    assert!(added[0] > bridge, "a number is never used again");
    let member = |index| engine.link(index).unwrap().master;
    assert_eq!(
        added.iter().map(|&i| member(i)).collect::<Vec<_>>(),
        [Some(bridge); 2]
    );
}

/// An interface that was there before keeps its MTU and address: to change them is refused, and a
/// specification leaves them.
#[test]
fn an_interface_of_somebody_else_is_left_as_it_is() {
    let (engine, devices, _) = engine();
    let mut spec = port("a", None);
    spec.options.device = "foreign";
    let a = engine.add_port(spec.clone()).unwrap();
    let before = engine.link(a).unwrap().settings.clone();
    let mtu = engine.change(a, |link| link.mtu = 1400);
    assert!(matches!(mtu, Err(EngineError::Foreign(name)) if name == "a"));
    let address = engine.change(a, |link| link.address = Some(random_address()));
    assert!(matches!(address, Err(EngineError::Foreign(_))));
    assert_eq!(engine.link(a).unwrap().settings, before);
    assert!(devices.changed.lock().unwrap().is_empty());
    spec.settings.mtu = 1400;
    spec.settings.alias = "other".into();
    let all = Spec {
        ports: vec![spec],
        ..Spec::default()
    };
    engine.apply(&all, true).unwrap();
    let after = Settings {
        alias: "other".into(),
        ..before
    };
    assert_eq!(engine.link(a).unwrap().settings, after);
}

/// A port may get such an interface in place of another device, and other settings with it.
#[test]
fn an_interface_of_somebody_else_comes_with_its_settings() {
    let (engine, devices, _) = engine();
    let mut spec = port("a", None);
    let a = engine.add_port(spec.clone()).unwrap();
    spec.options.device = "foreign";
    spec.settings.mtu = 1400;
    spec.settings.address = Some(random_address());
    let all = Spec {
        ports: vec![spec.clone()],
        ..Spec::default()
    };
    engine.apply(&all, true).unwrap();
    assert_eq!(engine.link(a).unwrap().settings, spec.settings);
    assert!(devices.changed.lock().unwrap().is_empty());
}

#[test]
fn settings_change_together_or_not_at_all() {
    let (engine, devices, _) = engine();
    let a = engine.add_port(port("a", None)).unwrap();
    engine.add_port(port("b", None)).unwrap();
    engine.take_changes();
    let before = engine.link(a).unwrap().settings.clone();
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
        assert_eq!(
            engine
                .change(a, |link| link.clone_from(&bad))
                .unwrap_err()
                .to_string(),
            why
        );
        assert_eq!(engine.link(a).unwrap().settings, before);
    }
    devices.refuses.store(true, Ordering::SeqCst);
    let good = change(|s| (s.mtu, s.name) = (1400, "c".into()));
    engine.change(a, |link| link.clone_from(&good)).unwrap_err();
    assert_eq!(engine.link_named("a").unwrap().settings, before);
    assert_eq!(engine.take_changes().0, []);
    devices.refuses.store(false, Ordering::SeqCst);
    engine.change(a, |link| link.clone_from(&good)).unwrap();
    assert_eq!(engine.link_named("c").unwrap().settings, good);
    assert_eq!(*devices.changed.lock().unwrap(), [good]);
    assert_eq!(engine.stats().ports[0].name, "c");
    assert_eq!(engine.take_changes().0, [Change::Link(a)]);
    assert!(engine.change(99, |link| link.clone_from(&before)).is_err());
}

/// A deleted link is gone from the links that were part of it. An action to it stays, as in the
/// kernel, and drops what it gets.
#[test]
fn deleting_a_link_leaves_no_trace() {
    let (engine, devices, _) = engine();
    let bridge = engine.add_bridge(Settings::new("br0")).unwrap();
    let a = engine.add_port(port("a", Some("br0"))).unwrap();
    let b = engine.add_port(port("b", Some("br0"))).unwrap();
    assert!(engine.set_master(a, Some(b)).is_err());
    assert!(engine.set_master(bridge, Some(bridge)).is_err());
    let action = ActionSpec {
        mode: MirredMode::Mirror,
        dir: MirredDir::Egress,
        to: b,
    };
    engine.set_actions(a, &[action]).unwrap();
    assert!(
        engine
            .set_actions(a, &[ActionSpec { to: 99, ..action }])
            .is_err()
    );
    engine.take_changes();
    engine.delete(bridge).unwrap();
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
    assert_eq!(engine.take_changes().0, changes);
    assert_eq!(engine.link(a).unwrap().master, None);
    engine.delete(b).unwrap();
    let opened: Vec<_> = devices.opened.lock().unwrap().drain(..).collect();
    assert!(
        opened
            .iter()
            .any(|(name, queue, _)| name == "b" && queue.is_closed())
    );
    assert!(engine.delete(b).is_err());
    engine.add_port(port("b", None)).unwrap();
    assert!(engine.link(b).is_err(), "its number is not used again");
    let actions = |engine: &Engine<FedDevices>| engine.link(a).unwrap().actions().to_vec();
    assert_eq!(actions(&engine), [action]);
    let attached = |engine: &Engine<FedDevices>| {
        let stats = engine.port_stats(a).unwrap();
        stats.actions.into_iter().map(|stats| stats.action)
    };
    assert!(attached(&engine).eq(["mirred egress mirror dev a device that is gone"]));
    engine.set_actions(a, &[]).unwrap();
    assert_eq!(
        (actions(&engine), attached(&engine).count()),
        (Vec::new(), 0)
    );
}

/// A link whose device is gone is changed all the same: what bears the name of its interface by
/// then is not its own. The next device is opened with the settings of that time.
#[test]
fn a_link_without_a_device_changes() {
    let (engine, devices, _) = engine();
    let a = engine.add_port(port("a", None)).unwrap();
    engine.close_device(a).unwrap();
    let after = Settings {
        mtu: 1400,
        ..engine.link(a).unwrap().settings.clone()
    };
    engine.change(a, |link| link.clone_from(&after)).unwrap();
    assert_eq!(engine.link(a).unwrap().settings, after);
    assert_eq!(*devices.changed.lock().unwrap(), []);
    let bad = Settings {
        mtu: 9001,
        ..after.clone()
    };
    engine.change(a, |link| link.clone_from(&bad)).unwrap_err();
    devices.refuses.store(true, Ordering::SeqCst);
    engine.reopen_device(a).unwrap_err();
    devices.refuses.store(false, Ordering::SeqCst);
    engine.change(a, |link| link.mtu = 1300).unwrap();
    assert_eq!(*devices.changed.lock().unwrap(), []);
    engine.reopen_device(a).unwrap();
    engine.change(a, |link| link.clone_from(&after)).unwrap();
    assert_eq!(*devices.changed.lock().unwrap(), [after]);
}

/// A port that is down neither receives nor sends, and its tree is there when it is up again.
#[test]
fn ports_and_bridges_that_are_down_forward_nothing() {
    let (engine, devices, pool) = engine();
    let bridge = engine.add_bridge(Settings::new("br0")).unwrap();
    let ports = ["a", "b"].map(|name| port(name, Some("br0")));
    let ports = engine.add_ports(ports.into()).unwrap();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    engine
        .edit_tree(ports[1], |live| {
            live.add(Handle::ROOT, Handle::new(1, 0), prio)
        })
        .unwrap();
    let (from, _) = devices.last("a");
    let (_, to) = devices.last("b");
    let send = |mark| from.feed().packets.push_back(frame(&pool, 2, 1, 60, mark));
    let drops = |engine: &Engine<_>| engine.stats().drops();
    let set_up = |engine: &Engine<_>, index, up| {
        let settings = Settings {
            up,
            ..engine.link(index).unwrap().settings.clone()
        };
        engine
            .change(index, |link| link.clone_from(&settings))
            .unwrap();
    };
    for (lost, down) in (1..).zip([ports[0], ports[1], bridge]) {
        set_up(&engine, down, false);
        send(1);
        wait("the drop", || {
            drops(&engine) == [(DropReason::NoForward, lost)]
        });
        set_up(&engine, down, true);
    }
    send(2);
    wait("the packet", || to.marks() == [2]);
    let root = engine.read_tree(ports[1], |tree, _| tree.spec().root().map(|r| r.handle));
    assert_eq!(root.unwrap(), Some(Handle::new(1, 0)));
    let stats = engine.stop(Duration::ZERO);
    assert!(stats.conservation().holds());
}

/// Ports of a bridge have the smallest numbers that are free.
#[test]
fn ports_of_a_bridge_are_numbered() {
    let (engine, ..) = engine();
    engine.add_bridge(Settings::new("br0")).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| engine.add_port(port(name, Some("br0"))).unwrap());
    let number = |engine: &Engine<_>, index| engine.link(index).unwrap().port_number;
    assert_eq!([a, b, c].map(|index| number(&engine, index)), [1, 2, 3]);
    engine.set_master(b, None).unwrap();
    let d = engine.add_port(port("d", Some("br0"))).unwrap();
    assert_eq!(
        [a, b, c, d].map(|index| number(&engine, index)),
        [1, 0, 3, 2]
    );
}

#[test]
fn random_addresses_are_local_unicast_and_differ() {
    let (one, other) = (random_address(), random_address());
    assert_eq!(one.0[0] & 0x03, 0x02);
    assert_ne!(one, other);
}

/// The oldest of too many changes are lost: what happened last is told.
#[test]
fn of_too_many_changes_the_newest_are_kept_and_the_loss_is_told() {
    let (engine, ..) = engine();
    for index in 0..KEPT as u32 {
        engine.state().changes.note(Change::Link(index));
    }
    let (changes, lost) = engine.take_changes();
    assert!((0..KEPT as u32).map(Change::Link).eq(changes) && !lost);
    for index in 0..=KEPT as u32 {
        engine.state().changes.note(Change::Link(index));
    }
    let (changes, lost) = engine.take_changes();
    assert!((1..=KEPT as u32).map(Change::Link).eq(changes) && lost);
    assert_eq!(engine.take_changes(), (Vec::new(), false));
    engine.stop(Duration::ZERO);
}

/// Links are found by their names and ports whatever became of others.
#[test]
fn links_are_found_after_others_were_renamed_and_deleted() {
    let (engine, ..) = engine();
    let bridge = engine.add_bridge(Settings::new("br0")).unwrap();
    let other = engine.add_bridge(Settings::new("br1")).unwrap();
    let a = engine.add_port(port("a", Some("br1"))).unwrap();
    let b = engine.add_port(port("b", None)).unwrap();
    let rename = |engine: &Engine<_>, index, name: &str| {
        let mut settings = engine.link(index).unwrap().settings.clone();
        settings.name = name.into();
        engine
            .change(index, |link| link.clone_from(&settings))
            .unwrap();
    };
    let found = |engine: &Engine<FedDevices>| {
        let found = |name| engine.link_named(name).ok().map(|link| link.index);
        ["a", "b", "c", "br0", "br1"].map(found)
    };
    rename(&engine, a, "c");
    rename(&engine, b, "a");
    rename(&engine, bridge, "b");
    let all = [Some(b), Some(bridge), Some(a), None, Some(other)];
    assert_eq!(found(&engine), all);
    assert_eq!(engine.bridge(other).unwrap().ports, [a]);
    engine.delete(b).unwrap();
    engine.delete(bridge).unwrap();
    assert_eq!(found(&engine), [None, None, Some(a), None, Some(other)]);
    assert!(engine.bridge(bridge).is_err());
    // A name that is free again.
    let again = engine.add_port(port("a", None)).unwrap();
    assert_eq!(found(&engine)[0], Some(again));
    engine.stop(Duration::ZERO);
}

#[test]
fn a_dump_of_links_is_interrupted_by_links_that_come_or_go_alone() {
    let (engine, ..) = engine();
    let mut last = engine.generation();
    let mut differs = |engine: &Engine<FedDevices>| {
        let before = std::mem::replace(&mut last, engine.generation());
        before != last
    };
    engine.add_bridge(Settings::new("br0")).unwrap();
    assert!(differs(&engine));
    let a = engine.add_port(port("a", Some("br0"))).unwrap();
    assert!(differs(&engine));
    let mut settings = engine.link(a).unwrap().settings.clone();
    (settings.name, settings.mtu) = ("b".into(), 1400);
    engine.change(a, |link| link.clone_from(&settings)).unwrap();
    engine.edit_tree(a, |_| Ok(())).unwrap();
    engine.set_master(a, None).unwrap();
    assert!(!differs(&engine));
    engine.delete(a).unwrap();
    assert!(differs(&engine));
    engine.stop(Duration::ZERO);
}
