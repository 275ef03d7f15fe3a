//! The control path: devices that go and come back, ports that cannot be added, and calls that
//! name what is not there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use super::life::spawn;
use super::state::EVENTS;
use super::*;
use crate::forward::{BridgePortOptions, MirredDir, MirredMode, VlanFlags};
use crate::link::{DeviceDrops, Link};
use crate::testing::{CondSleeper, FedQueue, setup, wait, with_qdisc};
use softnet::stats::DropReason;
use softnet::testing::{Script, ScriptedRing, frame, pool};
use softnet::time::Clock;
use softnet_tc::{QdiscSpec, TbfSpec};

/// A device's count of what it dropped.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Link for Counter {
    fn dropped(&self) -> DeviceDrops {
        let (rx, tx) = (self.0.load(Relaxed), 1);
        DeviceDrops { rx, tx }
    }
}

type Queue = FedQueue;

/// An engine whose workers can watch no file.
fn engine(workers: usize) -> Engine<OwnQueues<Queue, ScriptedRing>> {
    let sleepers = (0..workers).map(|_| refusing(&Arc::default()));
    Engine::start(
        sleepers.collect(),
        pool(256),
        Clock::monotonic(),
        OwnQueues::default(),
    )
    .unwrap()
}

fn refusing(alive: &Arc<()>) -> CondSleeper {
    let mut sleeper = CondSleeper::default();
    sleeper.refuses_files = true;
    sleeper.alive = alive.clone();
    sleeper
}

fn feeds(queues: usize) -> (Vec<Queue>, Vec<Queue>) {
    let feeds: Vec<_> = (0..queues).map(|_| Queue::default()).collect();
    (feeds.clone(), feeds)
}

fn rings(queues: usize) -> (Vec<ScriptedRing>, Vec<Arc<Script>>) {
    ScriptedRing::many(queues)
}

/// A late report of a device's second queue does not concern the device that came after it.
#[test]
fn a_late_report_does_not_kill_the_next_device() {
    let engine = engine(2);
    let (rx, fed) = feeds(2);
    let port = engine.add(setup("p", rx, rings(2).0)).unwrap();
    fed[0].feed().gone = true;
    let mut gone = Vec::new();
    wait("the first report", || {
        gone = engine.take_events();
        !gone.is_empty()
    });
    assert_eq!(gone, [PortEvent::Gone(port)]);
    fed[1].feed().gone = true;
    // Its worker closes the queue, which drops it, just before it reports.
    wait("the second queue", || fed[1].is_closed());
    engine.replace(port, Vec::new(), Vec::new()).unwrap();
    engine.replace(port, feeds(2).0, rings(2).0).unwrap();
    assert_eq!(engine.take_events(), []);
}

/// A device that is replaced by none is closed both ways: its name is free, and packets for it die
/// with a reason until there is another.
#[test]
fn a_device_replaced_by_none_is_closed() {
    for qdisc in [QdiscSpec::default(), QdiscSpec::Pfifo { limit: 100 }] {
        let engine = engine(2);
        let pool = pool(64);
        let ((rx, fed), (tx, scripts)) = (feeds(2), rings(2));
        let (source, source_fed) = feeds(1);
        let port = with_qdisc(qdisc, setup("p", rx, tx));
        let port = engine.add(port).unwrap();
        let other = engine.add(setup("q", source, rings(1).0)).unwrap();
        engine.add_bridge_of("br0", &[port, other]).unwrap();
        engine.replace(port, Vec::new(), Vec::new()).unwrap();
        assert!(fed.iter().all(Queue::is_closed));
        assert!(scripts.iter().all(|script| Arc::strong_count(script) == 1));
        let receive = |mark| {
            source_fed[0]
                .feed()
                .packets
                .push_back(frame(&pool, 0, 9, 60, mark));
        };
        receive(1);
        let dropped = || engine.stats().drops();
        wait("a drop", || dropped() == [(DropReason::DeviceDown, 1)]);
        let (tx, scripts) = rings(2);
        engine.replace(port, feeds(2).0, tx).unwrap();
        receive(2);
        wait("the new rings", || {
            scripts.iter().flat_map(|r| r.marks()).eq([2])
        });
        let stats = engine.stop(Duration::from_secs(1));
        assert!(stats.conservation().holds(), "{stats:?}");
    }
}

/// A port that is taken down stays down while its device goes and comes back, with as many queues
/// or with more; one that is taken up without a device sends nothing, and holds nothing for the
/// next one.
#[test]
fn up_and_down_do_not_depend_on_the_device() {
    let engine = engine(1);
    let pool = pool(64);
    let ((rx, _), (tx, _)) = (feeds(1), rings(1));
    let port = engine.add(setup("p", rx, tx)).unwrap();
    let (source, source_fed) = feeds(1);
    let other = engine.add(setup("q", source, rings(1).0)).unwrap();
    engine.add_bridge_of("br0", &[port, other]).unwrap();
    let mut drops = std::collections::BTreeMap::new();
    let mut lost = |reason| {
        let packet = frame(&pool, 0, 9, 60, 0);
        source_fed[0].feed().packets.push_back(packet);
        *drops.entry(reason).or_default() += 1;
        wait("a drop", || {
            engine.stats().drops().into_iter().eq(drops.clone())
        });
    };
    for (round, queues) in (1..).zip([1, 2]) {
        engine.replace(port, Vec::new(), Vec::new()).unwrap();
        lost(DropReason::DeviceDown);
        engine.change(port, |link| link.up = false).unwrap();
        lost(DropReason::NoForward);
        engine.change(port, |link| link.up = true).unwrap();
        lost(DropReason::DeviceDown);
        engine.change(port, |link| link.up = false).unwrap();
        let (tx, scripts) = rings(queues);
        engine.replace(port, feeds(queues).0, tx).unwrap();
        lost(DropReason::NoForward);
        engine.change(port, |link| link.up = true).unwrap();
        let packet = frame(&pool, 0, 9, 60, round);
        source_fed[0].feed().packets.push_back(packet);
        wait("the new rings", || {
            scripts.iter().flat_map(|r| r.marks()).eq([round])
        });
    }
    let stats = engine.stop(Duration::from_secs(1));
    assert!(stats.conservation().holds(), "{stats:?}");
}

/// A redirect whose target was removed drops what it gets, also when its own port has other queues.
#[test]
fn a_redirect_to_nowhere_outlives_the_device() {
    let engine = engine(1);
    let pool = pool(64);
    let (source, fed) = feeds(1);
    let source = engine.add(setup("a", source, rings(1).0)).unwrap();
    let add = |name| engine.add(setup(name, feeds(1).0, rings(1).0)).unwrap();
    let [port, target] = ["b", "c"].map(add);
    engine.add_bridge_of("br0", &[source, port]).unwrap();
    let redirect = ActionSpec {
        mode: MirredMode::Redirect,
        dir: MirredDir::Egress,
        to: target,
    };
    engine.set_actions(port, &[redirect]).unwrap();
    engine.delete(target).unwrap();
    for (lost, queues) in (1..).zip([1, 2]) {
        let (tx, scripts) = rings(queues);
        engine.replace(port, feeds(queues).0, tx).unwrap();
        fed[0].feed().packets.push_back(frame(&pool, 2, 9, 60, 1));
        wait("a drop", || {
            engine.stats().drops() == [(DropReason::DeviceDown, lost)]
        });
        assert_eq!(scripts.iter().flat_map(|r| r.marks()).count(), 0);
    }
    engine.set_actions(port, &[]).unwrap();
    let (tx, scripts) = rings(2);
    engine.replace(port, feeds(2).0, tx).unwrap();
    fed[0].feed().packets.push_back(frame(&pool, 2, 9, 60, 2));
    wait("the packet", || {
        scripts.iter().flat_map(|r| r.marks()).eq([2])
    });
    engine.stop(Duration::from_secs(1));
}

/// Frames for a station are not sent to the port that it was behind once that has another device.
#[test]
fn stations_behind_a_replaced_device_are_forgotten() {
    let engine = engine(1);
    let pool = pool(64);
    let (mut ports, mut fed, mut scripts) = (Vec::new(), Vec::new(), Vec::new());
    for name in ["a", "b", "c"] {
        let ((rx, feed), (tx, script)) = (feeds(1), rings(1));
        ports.push(engine.add(setup(name, rx, tx)).unwrap());
        fed.extend(feed);
        scripts.extend(script);
    }
    engine.add_bridge_of("br0", &ports).unwrap();
    let receive = |port: usize, to, from, mark| {
        fed[port]
            .feed()
            .packets
            .push_back(frame(&pool, to, from, 60, mark));
    };
    receive(0, 0, 7, 1);
    wait("the station", || scripts[1].marks() == [1]);
    receive(1, 7, 8, 2);
    wait("the station's frame", || scripts[0].marks() == [2]);
    assert_eq!(scripts[2].marks(), [1]);
    let (tx, _script) = rings(1);
    engine.replace(ports[0], feeds(1).0, tx).unwrap();
    receive(1, 7, 8, 3);
    wait("a flood", || scripts[2].marks() == [1, 3]);
}

/// A queue that the system cannot watch is refused, and leaves nothing behind.
#[test]
#[cfg_attr(miri, ignore = "opens a file")]
fn a_queue_that_cannot_be_watched_is_refused() {
    let engine = engine(2);
    let (mut rx, fed) = feeds(2);
    let null = std::fs::File::open("/dev/null").unwrap();
    rx[1].file = Some(Arc::new(null.into()));
    let (tx, scripts) = rings(2);
    let refused = engine.add(setup("p", rx, tx));
    assert!(matches!(&refused, Err(EngineError::Watch { port, .. }) if port == "p"));
    wait("the queues to be closed", || {
        fed.iter().all(Queue::is_closed)
    });
    wait("the rings to be closed", || {
        scripts.iter().all(|script| Arc::strong_count(script) == 1)
    });
    let port = engine.add(setup("p", feeds(2).0, rings(2).0)).unwrap();
    assert_eq!(engine.stats().ports.len(), 1);
    let mut rx = feeds(1).0;
    let null = std::fs::File::open("/dev/null").unwrap();
    rx[0].file = Some(Arc::new(null.into()));
    let refused = engine.replace(port, rx, rings(2).0);
    assert!(matches!(refused, Err(EngineError::Watch { .. })));
    // Nor with another number of queues.
    let mut rx = feeds(1).0;
    let null = std::fs::File::open("/dev/null").unwrap();
    rx[0].file = Some(Arc::new(null.into()));
    let refused = engine.replace(port, rx, rings(3).0);
    assert!(matches!(refused, Err(EngineError::Watch { .. })));
    let state = engine.state();
    let events = state.workers.iter().flat_map(|w| &w.events);
    assert_eq!(
        events.filter(|used| **used).count(),
        2 + 2,
        "events are left"
    );
}

/// Calls that fail take no events: there are as many for the ports that come after them.
#[test]
fn ports_that_are_refused_take_no_events() {
    let engine = engine(1);
    let tbf = TbfSpec {
        rate: 0,
        burst: 0,
        limit: 0,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    for _ in 0..EVENTS {
        let setup = setup("p", Vec::new(), rings(1).0);
        let port = with_qdisc(QdiscSpec::Tbf(tbf.clone()), setup);
        assert!(matches!(engine.add(port), Err(EngineError::Qdisc(_))));
    }
    let port = setup("p", Vec::new(), rings(EVENTS - 1).0);
    engine.add(port).unwrap();
    let one_more = engine.add(setup("q", Vec::new(), rings(1).0));
    assert!(matches!(one_more, Err(EngineError::TooManyQueues(_))));
    let none = engine.add(setup("r", Vec::new(), Vec::new()));
    assert!(matches!(none, Err(EngineError::NoQueue(name)) if name == "r"));
}

/// Workers that were started before one could not be are stopped.
#[test]
fn a_thread_that_cannot_be_started_leaves_none_behind() {
    let alive = Arc::new(());
    let sleepers = (0..3).map(|_| refusing(&alive));
    let started = AtomicUsize::new(0);
    let engine: Result<Engine<OwnQueues<Queue, ScriptedRing>>, _> = Engine::with_spawn(
        sleepers.collect(),
        pool(64),
        Clock::monotonic(),
        EngineConfig::default(),
        OwnQueues::default(),
        |index, work| {
            if index == 2 {
                return Err(io::Error::from(io::ErrorKind::OutOfMemory));
            }
            started.fetch_add(1, Relaxed);
            spawn(index, work)
        },
    );
    assert!(matches!(engine, Err(EngineError::Thread(_))));
    assert_eq!(started.load(Relaxed), 2);
    assert_eq!(Arc::strong_count(&alive), 1, "a worker is left");
}

/// No call panics on a link that is gone, hits the port that has its number now, or says that all
/// is well.
#[test]
fn a_link_that_is_gone_is_refused() {
    let engine = engine(1);
    let add = || engine.add(setup("p", feeds(1).0, rings(1).0)).unwrap();
    let gone = add();
    engine.delete(gone).unwrap();
    let own = add();
    let qdisc = QdiscSpec::default();
    let to = |to| ActionSpec {
        mode: MirredMode::Mirror,
        dir: MirredDir::Egress,
        to,
    };
    let answers = [
        engine.set_qdisc(gone, &qdisc),
        engine.set_options(gone, |_| {}),
        engine.set_actions(gone, &[to(own)]),
        engine.set_actions(own, &[to(gone)]),
        engine.add_bridge_of("br0", &[own, gone]).map(drop),
        engine.set_master(gone, None),
        engine.set_master(own, Some(gone)),
        engine.change(gone, |link| link.name = "r".into()),
        engine.delete(gone).map(drop),
        engine.replace(gone, Vec::new(), rings(1).0),
        engine.set_bridge_port(gone, BridgePortOptions::default()),
        engine.add_vlans(gone, 2..=2, VlanFlags::default()),
        engine.fdb_entries(gone, 0, 1).map(drop),
    ];
    for (call, answer) in answers.into_iter().enumerate() {
        assert!(
            matches!(answer, Err(EngineError::NoLink(index)) if index == gone),
            "call {call}"
        );
    }
    assert!(engine.classes(gone).is_empty());
    assert!(engine.edit_tree(gone, |_| Ok(())).is_err());
    assert_eq!(engine.port_stats(own).unwrap().name, "p");
}

/// Drops inside devices are told per port, those of the port's earlier devices included.
#[test]
fn drops_inside_devices_are_told() {
    let engine = engine(1);
    let counter = |n| Arc::new(Counter(AtomicU64::new(n)));
    let queue = |counter: &Arc<Counter>| {
        let mut queue = Queue::default();
        queue.link = Some(counter.clone());
        queue
    };
    let first = counter(5);
    let port = setup("p", vec![Queue::default(), queue(&first)], rings(2).0);
    let port = engine.add(port).unwrap();
    let drops = || engine.stats().ports[0].device_drops;
    assert_eq!(drops(), DeviceDrops { rx: 5, tx: 1 });
    first.0.store(7, Relaxed);
    engine.replace(port, Vec::new(), Vec::new()).unwrap();
    first.0.store(100, Relaxed);
    assert_eq!(drops(), DeviceDrops { rx: 7, tx: 1 });
    engine
        .replace(port, vec![queue(&counter(3))], rings(2).0)
        .unwrap();
    assert_eq!(drops(), DeviceDrops { rx: 10, tx: 2 });
}
