//! Rates that are shares of a link's speed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::link_tests::{engine, port};
use super::*;
use crate::link::{DeviceDrops, Link};
use crate::testing::{CondSleeper, FedQueue, Setup, setup, with_qdisc};
use softnet::testing::{ScriptedRing, pool};
use softnet::time::{Clock, Time};
use softnet_tc::units::NOMINAL_SPEED;
use softnet_tc::{Handle, QdiscSpec, SpecError, TbfSpec, TreeError, TreeSpec};

/// A medium of a speed in bytes per second; 0: it is not known.
#[derive(Debug, Default)]
struct Medium {
    speed: AtomicU64,
    /// Nobody reports other speeds.
    silent: AtomicBool,
}

impl Medium {
    fn set(&self, speed: u64) {
        self.speed.store(speed, Ordering::Relaxed);
    }
}

impl Link for Medium {
    fn dropped(&self) -> DeviceDrops {
        DeviceDrops::default()
    }

    fn speed(&self) -> Option<u64> {
        Some(self.speed.load(Ordering::Relaxed)).filter(|&speed| speed > 0)
    }

    fn may_have_another_speed(&self) -> bool {
        !self.silent.load(Ordering::Relaxed)
    }
}

/// A `tbf` of half the speed.
fn half() -> QdiscSpec {
    let mut tree = TreeSpec::new();
    let tbf = QdiscSpec::Tbf(TbfSpec {
        rate: 1,
        burst: 10_000,
        limit: 10_000,
        ..TbfSpec::default()
    });
    let root = tree.add(Handle::ROOT, Handle::NONE, tbf).unwrap();
    tree.set_share(root, "rate", "50%".parse().unwrap());
    QdiscSpec::Tree(tree)
}

fn rate(qdisc: QdiscSpec) -> u64 {
    match &TreeSpec::from(qdisc).root().unwrap().qdisc {
        QdiscSpec::Tbf(tbf) => tbf.rate,
        other => panic!("{other:?}"),
    }
}

fn is_without_speed<T>(result: Result<T, EngineError>) -> bool {
    matches!(
        result,
        Err(EngineError::Qdisc(SpecError::Tree(TreeError::NoSpeed)))
    )
}

#[test]
fn rates_follow_the_speed_while_it_is_known() {
    let clock = Clock::virtual_at(Time(1));
    let engine: Engine<OwnQueues<FedQueue, ScriptedRing>> = Engine::start(
        vec![CondSleeper::default()],
        pool(64),
        clock.clone(),
        OwnQueues::default(),
    )
    .unwrap();
    let medium = Arc::new(Medium::default());
    let with_half = || -> Setup<FedQueue> {
        let mut rx = FedQueue::default();
        rx.link = Some(medium.clone());
        with_qdisc(half(), setup("a", vec![rx], vec![ScriptedRing::new().0]))
    };
    assert!(is_without_speed(engine.add(with_half())));
    medium.set(1000);
    let port = engine.add(with_half()).unwrap();
    let shown = || rate(engine.spec().unwrap().ports[0].qdisc.clone());
    assert_eq!(shown(), 500);
    engine.take_changes();
    medium.set(3000);
    engine.take_events();
    assert_eq!(shown(), 1500);
    let changes = engine.take_changes().0;
    assert!(matches!(changes[..], [Change::Tree { link, .. }] if link == port));
    medium.set(0);
    engine.take_events();
    assert_eq!(shown(), 1500, "as long as nothing else is known");
    // Without a report it is asked for all the same, though later.
    medium.silent.store(true, Ordering::Relaxed);
    medium.set(5000);
    engine.take_events();
    assert_eq!(shown(), 1500);
    clock.advance(Duration::from_secs(10));
    engine.take_events();
    assert_eq!(shown(), 2500);
    // A reload finds the shares as they were, of the speed by then.
    medium.set(4000);
    engine.set_tree(port, &TreeSpec::from(half())).unwrap();
    assert_eq!(shown(), 2000);
    assert!(engine.stop(Duration::ZERO).conservation().holds());
}

#[test]
fn a_device_without_a_speed_is_not_opened() {
    let (engine, devices, _) = engine();
    let spec = PortSpec {
        qdisc: half(),
        ..port("a", None)
    };
    assert!(is_without_speed(engine.add_port(spec.clone())));
    // One that is not there may have one later.
    let all = Spec {
        ports: vec![spec],
        ..Spec::default()
    };
    devices.refuses.store(true, Ordering::SeqCst);
    let missing = engine.apply(&all, false).unwrap();
    let [(index, _)] = missing[..] else {
        panic!("{missing:?}")
    };
    let shown = engine.spec().unwrap().ports[0].qdisc.clone();
    assert_eq!(rate(shown), NOMINAL_SPEED / 2);
    devices.refuses.store(false, Ordering::SeqCst);
    assert!(is_without_speed(engine.reopen_device(index)));
}
