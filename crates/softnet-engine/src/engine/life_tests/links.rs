//! Links that change while packets flow.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::Duration;

use softnet::qdisc::Pfifo;
use softnet::time::Clock;
use softnet_tc::CustomSpec;

use super::*;
use crate::link::{DeviceDrops, LinkState};
use crate::testing::CondSleeper;

/// A link whose state is set by the test.
#[derive(Debug)]
struct ScriptedLink {
    state: Mutex<LinkState>,
    /// Something to watch.
    file: File,
}

impl ScriptedLink {
    fn new() -> Arc<ScriptedLink> {
        Arc::new(ScriptedLink {
            state: Mutex::default(),
            file: File::open("/dev/null").unwrap(),
        })
    }

    fn set(&self, up: bool, mtu: u32) -> LinkState {
        let mtu = Some(mtu);
        let state = LinkState {
            up,
            mtu,
            ..LinkState::default()
        };
        *self.state.lock().unwrap() = state;
        state
    }
}

impl Link for ScriptedLink {
    fn dropped(&self) -> DeviceDrops {
        DeviceDrops::default()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn state(&self) -> LinkState {
        *self.state.lock().unwrap()
    }
}

/// The worker that watches a link notes its state; of one that goes down the bridge forgets the
/// addresses, and learns none until it is up again.
#[test]
fn a_link_that_goes_down_is_noted_and_its_addresses_forgotten() {
    let mut sleepers = vec![CondSleeper::default(), CondSleeper::default()];
    sleepers.iter_mut().for_each(|s| s.reports_files = true);
    let pool = softnet::testing::pool(64);
    let engine: Engine<OwnQueues<FedQueue, ScriptedRing>> = Engine::start(
        sleepers,
        pool.clone(),
        Clock::monotonic(),
        OwnQueues::default(),
    )
    .unwrap();
    let link = ScriptedLink::new();
    let (mut rx, tx, _) = queues(1);
    rx[0].link = Some(link.clone());
    let feed = rx[0].clone();
    let port = engine.add(setup("a", rx, tx)).unwrap();
    let bridge = engine.add_bridge_of("br0", &[port]).unwrap();
    let bridge = engine.state().bridge(bridge).unwrap().bridge.clone();
    let receive = |mark| {
        let packet = frame(&pool, 0, SENDER, 60, mark);
        feed.feed().packets.push_back(packet);
        wait("reception", || {
            engine.stats().conservation().dropped == u64::from(mark)
        });
    };
    let state = || engine.stats().ports[0].link;
    receive(1);
    assert_eq!((state(), bridge.fdb().len()), (LinkState::default(), 1));
    let down = link.set(false, 1400);
    let event = || {
        let mut events = Vec::new();
        wait("an event", || {
            events = engine.take_events();
            !events.is_empty()
        });
        events
    };
    assert_eq!(event(), [PortEvent::Link(port, down)]);
    assert_eq!(state(), down);
    wait("the addresses to be forgotten", || bridge.fdb().len() == 0);
    receive(2);
    assert_eq!(bridge.fdb().len(), 0, "learnt from a link that is down");
    let up = link.set(true, 1400);
    assert_eq!(event(), [PortEvent::Link(port, up)]);
    assert_eq!(state(), up);
    receive(3);
    assert_eq!(bridge.fdb().len(), 1);
    // Another device is up until it says otherwise.
    link.set(false, 1400);
    wait("the link to go down", || !state().up);
    let (rx, tx, _) = queues(1);
    engine.replace(port, rx, tx).unwrap();
    assert_eq!(state(), LinkState::default());
    assert_eq!(
        Arc::strong_count(&link),
        2,
        "only the queue handle here has it"
    );
}

/// Packets beyond a changed MTU, or that need what a driver no longer does by itself, are dropped
/// with a reason, queued ones included.
#[test]
fn a_changed_mtu_holds_for_what_is_queued() {
    let mut sleeper = CondSleeper::default();
    sleeper.reports_files = true;
    let pool = softnet::testing::pool(64);
    let engine: Engine<OwnQueues<FedQueue, ScriptedRing>> = Engine::start(
        vec![sleeper],
        pool.clone(),
        Clock::monotonic(),
        OwnQueues::default(),
    )
    .unwrap();
    let link = ScriptedLink::new();
    let (mut rx, tx, scripts) = queues(1);
    rx[0].link = Some(link.clone());
    let port = engine.add(setup("a", rx, tx)).unwrap();
    let (rx, tx, _) = queues(1);
    let feed = rx[0].clone();
    let other = engine.add(setup("b", rx, tx)).unwrap();
    engine.add_bridge_of("br0", &[port, other]).unwrap();
    engine.set_qdisc(port, &slow()).unwrap();
    let receive = |lengths: &[usize]| {
        let packets = lengths.iter().zip(1..);
        let packets = packets.map(|(&len, mark)| frame(&pool, 0, SENDER, len, mark));
        feed.feed().packets.extend(packets);
    };
    // The bucket holds 2,000 bytes.
    receive(&[1500, 1400, 1400, 900, 60]);
    let queued = || engine.stats().conservation().queued;
    wait("the queue", || queued() == 4);
    link.set(true, 1000);
    wait("the event", || !engine.take_events().is_empty());
    let told = Arc::new(AtomicU32::new(0));
    let seen = told.clone();
    let custom = QdiscSpec::Custom(CustomSpec::new("told", move |env| {
        seen.store(env.mtu, Ordering::Relaxed);
        Box::new(Pfifo::new(env.txqueuelen))
    }));
    engine.set_qdisc(port, &custom).unwrap();
    assert_eq!(
        told.load(Ordering::Relaxed),
        1000,
        "a qdisc is told the MTU"
    );
    wait("the rest", || scripts[0].marks() == [1, 4, 5]);
    let dropped = || engine.stats().conservation().dropped;
    wait("the drops", || dropped() == 2);
    engine.change(port, |link| link.mtu = 500).unwrap();
    engine.set_qdisc(port, &custom).unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 500);
    receive(&[900, 60]);
    wait("the packets", || scripts[0].marks() == [1, 4, 5, 2]);
    assert!(engine.stop(Duration::ZERO).conservation().holds());
}
