//! Qdiscs of links.

use softnet::tx::{QueueMap, TcQueues};
use softnet_tc::{EstimatorSpec, Rate};

use super::*;

fn with_queues(queues: usize, mut port: PortSpec<&'static str>) -> PortSpec<&'static str> {
    port.options.queues = queues;
    port
}

/// `txqueuelen` reaches the default qdiscs; a link of the kind `dummy` has none at first.
#[test]
fn the_queue_length_reaches_default_qdiscs() {
    let (engine, _, _) = engine();
    let mut dummy = port("d", None);
    dummy.options.device = "dummy";
    let dummy = engine.add_port(dummy).unwrap();
    let kind = |engine: &Engine<_>, index| engine.classes(index)[0].kind;
    assert_eq!(kind(&engine, dummy), "noqueue");
    let wide = with_queues(2, port("w", None));
    let wide = engine.add_port(wide).unwrap();
    assert_eq!(kind(&engine, wide), "mq");
    let longer = Settings {
        tx_queue_len: 5000,
        ..engine.link(wide).unwrap().settings.clone()
    };
    engine
        .change(wide, |link| link.clone_from(&longer))
        .unwrap();
    let limit = engine.read_tree(wide, |tree, _| tree.env().txqueuelen);
    assert_eq!(limit.unwrap(), 5000);
}

/// Numbers are chosen once each over all links before one comes again, and none that is in use.
#[test]
fn handles_are_chosen_in_turn() {
    let (engine, ..) = engine();
    let ports = vec![port("a", None), port("b", None)];
    let links = engine.add_ports(ports).unwrap();
    let next = |engine: &Engine<FedDevices>, link: usize| {
        engine.choose_handle(links[link]).unwrap().major()
    };
    assert_eq!(next(&engine, 0), 0x8001);
    assert_eq!(next(&engine, 1), 0x8002);
    for major in [0x8003, 0x8004] {
        let add = engine.edit_tree(links[0], |tree| {
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
    assert_eq!(next(&engine, 0), 0x8005, "3 and 4 are in use");
    let last = (0x8006..=0xfffe).map(|_| next(&engine, 1)).last();
    assert_eq!(last, Some(0xfffe));
    assert_eq!(next(&engine, 0), 0x8001);
    assert_eq!(next(&engine, 1), 0x8002);
    assert_eq!(next(&engine, 1), 0x8003, "free there");
    assert!(engine.choose_handle(99).is_err());
}

/// As `dev_activate`: a link that was never up has no default qdisc, nor one that lost its root
/// while it was down.
#[test]
fn the_default_qdisc_comes_with_the_link() {
    let (engine, ..) = engine();
    let down = Settings {
        up: false,
        ..Settings::new("a")
    };
    let mut new = port("a", None);
    new.settings = down.clone();
    new.options.device = "dummy";
    let link = engine.add_port(new).unwrap();
    let up = Settings {
        up: true,
        ..down.clone()
    };
    let has = |engine: &Engine<FedDevices>| engine.link(link).unwrap().has_default;
    let kind = |engine: &Engine<FedDevices>| {
        let kind = engine.read_tree(link, |tree, stats| tree.classes(stats)[0].kind);
        kind.unwrap()
    };
    assert!(!has(&engine));
    assert_eq!(kind(&engine), "noqueue");
    engine.change(link, |link| link.clone_from(&up)).unwrap();
    assert!(has(&engine));
    engine.change(link, |link| link.clone_from(&down)).unwrap();
    assert!(has(&engine));
    let root = Handle::new(1, 0);
    let pfifo = QdiscSpec::Pfifo { limit: 1 };
    let add = engine.edit_tree(link, |tree| tree.add(Handle::ROOT, root, pfifo.clone()));
    add.unwrap();
    assert_eq!(kind(&engine), "pfifo");
    engine.edit_tree(link, |tree| tree.delete(root)).unwrap();
    assert!(!has(&engine));
    assert_eq!(kind(&engine), "noqueue");
    engine.change(link, |link| link.clone_from(&up)).unwrap();
    assert!(has(&engine));
    let add = engine.edit_tree(link, |tree| tree.add(Handle::ROOT, root, pfifo));
    add.unwrap();
    engine.edit_tree(link, |tree| tree.delete(root)).unwrap();
    assert!(has(&engine));
}

/// Rates are sampled when they are due, and read from the tree.
#[test]
fn rates_are_sampled() {
    let (engine, _, _) = engine();
    let index = engine.add_port(port("a", None)).unwrap();
    assert_eq!(engine.sample_rates(), None);
    let spec = EstimatorSpec::new(0, 3).unwrap();
    let root = Handle::new(1, 0);
    let set = engine.edit_tree(index, |tree| {
        tree.replace(Handle::ROOT, root, QdiscSpec::Prio(PrioSpec::default()))?;
        tree.set_estimator(root, spec)
    });
    set.unwrap();
    let rate = |engine: &Engine<_>| engine.read_tree(index, |tree, _| tree.rate(root)).unwrap();
    assert_eq!(rate(&engine), Some(Rate::default()));
    assert_eq!(engine.sample_rates(), Some(spec.period()));
    let due = engine.sample_rates().unwrap();
    assert!(due <= spec.period(), "the time goes on");
    let gone = engine.edit_tree(index, |tree| tree.delete(root));
    gone.unwrap();
    assert_eq!(engine.sample_rates(), None);
    assert_eq!(rate(&engine), None);
    // Those of actions as well.
    let police: softnet_tc::ActionSpec = "police avrate 1mbit estimator 500ms 2s".parse().unwrap();
    let period = police.estimator.map(EstimatorSpec::period);
    let action = engine.actions(|table, now| table.add(police, true, now));
    assert_eq!(action.unwrap().rate(), Some(Rate::default()));
    assert_eq!(engine.sample_rates(), period);
}

/// A port's tree runs at all of its queues, or at one, as its options say, and so it does when
/// another device takes the place of its own.
#[test]
fn a_tree_runs_at_every_queue_of_a_parallel_port() {
    let (engine, devices, pool) = engine();
    engine.add_bridge(Settings::new("br0")).unwrap();
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
    let ports = engine.add_ports(vec![wide, port("b", Some("br0"))]);
    let a = ports.unwrap()[0];
    let (from, _) = devices.last("b");
    let counted = |engine: &Engine<FedDevices>| {
        let read = engine.read_tree(a, |tree, queues| {
            let band = tree.spec().root().unwrap().handle.class(2);
            let sum = tree.stats_at(band, queues).unwrap().packets;
            let queues: Vec<u64> = queues.iter().map(|queue| queue.packets).collect();
            (sum, queues)
        });
        read.unwrap()
    };
    let sends = |engine: &Engine<FedDevices>, expected: [u64; 2]| {
        for priority in [0, 4] {
            let mut packet = frame(&pool, 2, 1, 60, 1);
            packet.set_priority(priority);
            from.feed().packets.push_back(packet);
        }
        wait("the packets", || counted(engine) == (2, expected.into()));
    };
    sends(&engine, [1, 1]);
    for (parallel, expected) in [(false, [2, 0]), (true, [1, 1])] {
        engine
            .set_options(a, |port| port.clone_from(&options(parallel)))
            .unwrap();
        assert_eq!(counted(&engine), (0, vec![0, 0]));
        sends(&engine, expected);
    }
    engine.close_device(a).unwrap();
    engine.reopen_device(a).unwrap();
    sends(&engine, [1, 1]);
    let stats = engine.stop(Duration::ZERO);
    assert!(stats.conservation().holds());
}

/// INV-MQ-2: `mqprio` chooses the queues of a port that was added with it, and goes on to when the
/// port's own map changes.
#[test]
fn inv_mq_2_a_port_added_with_mqprio_has_its_classes() {
    let (engine, devices, pool) = engine();
    engine.add_bridge(Settings::new("br0")).unwrap();
    let class = |count, offset| TcQueues { count, offset };
    let mqprio = QueueMap {
        prio_tc_map: [0; 16],
        classes: vec![class(1, 0), class(3, 1)],
    };
    let mut wide = with_queues(4, port("a", Some("br0")));
    wide.qdisc = QdiscSpec::Mqprio(mqprio);
    let ports = engine.add_ports(vec![wide, port("b", Some("br0"))]);
    let a = ports.unwrap()[0];
    let (from, _) = devices.last("b");
    let mut after = PortOptions::default();
    for rounds in 1..=2 {
        for flow in 0..20u32 {
            let mut packet = frame(&pool, 2, 1, 60, 1);
            packet.set_flow_hash(flow.wrapping_mul(0x9E37_79B9));
            from.feed().packets.push_back(packet);
        }
        let queues = |engine: &Engine<_>| {
            let read = engine.read_tree(a, |_, queues| {
                queues.iter().map(|queue| queue.packets).collect::<Vec<_>>()
            });
            read.unwrap()
        };
        wait("the packets", || {
            queues(&engine).iter().sum::<u64>() == 20 * rounds
        });
        assert_eq!(queues(&engine), [20 * rounds, 0, 0, 0]);
        after.map.classes = vec![class(2, 0)];
        engine
            .set_options(a, |port| port.clone_from(&after))
            .unwrap();
    }
    engine.stop(Duration::ZERO);
}

/// Options of which one cannot be had leave all of them as they were.
#[test]
fn options_with_an_unknown_rate_group_change_nothing() {
    let (engine, devices, pool) = engine();
    engine.add_bridge(Settings::new("br0")).unwrap();
    let wide = with_queues(2, port("a", Some("br0")));
    let ports = engine.add_ports(vec![wide, port("b", Some("br0"))]);
    let a = ports.unwrap()[0];
    let mut after = PortOptions::default();
    after.map.classes = vec![TcQueues {
        count: 1,
        offset: 1,
    }];
    after.rate_group = Some("nobody".into());
    engine
        .set_options(a, |port| port.clone_from(&after))
        .unwrap_err();
    let mut packet = frame(&pool, 2, 1, 60, 1);
    packet.set_queue(Some(0));
    devices.last("b").0.feed().packets.push_back(packet);
    let queues = || {
        let read = engine.read_tree(a, |_, queues| [queues[0].packets, queues[1].packets]);
        read.unwrap()
    };
    wait("the packet", || queues() != [0, 0]);
    assert_eq!(queues(), [1, 0]);
    engine.stop(Duration::ZERO);
}
