//! Drivers that call the engine, on a worker that a control call would wait for.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::links::random_address;
use super::*;
use crate::forward::{FdbState, VlanFlags};
use crate::rx::{Polled, Receive, RxQueue};
use crate::testing::{CondSleeper, FedQueue, setup};
use softnet::testing::{ScriptedRing, frame, pool};
use softnet::time::Clock;
use softnet::tx::ControlError;
use softnet_tc::QdiscSpec;
use softnet_tc::rate::GroupSpec;

type Switch = Engine<OwnQueues<Asking, ScriptedRing>>;
/// Called by a poll, once.
type Ask = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A receive queue whose driver does something else in a poll.
#[derive(Clone, Default)]
struct Asking(FedQueue, Ask);

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl RxQueue for Asking {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        if let Some(ask) = self.1.lock().unwrap().take() {
            ask();
        }
        self.0.poll(rx)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Asks for a change of each kind, and returns the answers.
fn ask(engine: &Switch, port: u32, bridge: u32) -> Vec<Result<(), EngineError>> {
    let queues = || {
        let (ring, _) = ScriptedRing::new();
        setup("other", vec![Asking::default()], vec![ring])
    };
    let station = FdbSpec {
        address: random_address(),
        vlan: None,
        state: FdbState::Static,
        sticky: false,
    };
    let address = station.address;
    let limits = GroupSpec {
        bytes: None,
        packets: None,
    };
    // These have no answer; they change nothing, and wait for nobody.
    engine.at_once(|_| ());
    assert!(engine.take_events().is_empty());
    assert!(engine.watchdog().is_empty());
    vec![
        engine.add(queues()).map(drop),
        engine.change(port, |link| link.up = false),
        engine.set_options(port, |options| options.parallel = true),
        engine.set_qdisc(port, &QdiscSpec::default()),
        engine.set_actions(port, &[]),
        engine.replace(port, Vec::new(), Vec::new()),
        engine.exchange_device(port, &PortSpec::new("p"), queues().1),
        engine.close_device(port),
        engine.set_master(port, None),
        engine.add_vlans(port, 7..=7, VlanFlags::default()),
        engine.set_bridge(bridge, BridgeOptions::default()),
        engine.add_fdb(port, station, true),
        engine.remove_fdb(port, address, None),
        engine.flush_fdb(bridge, |_| true).map(drop),
        engine.set_rate_group("group", limits),
        engine.delete_rate_group("group"),
        engine
            .apply(&Spec::default(), true)
            .map(drop)
            .map_err(|error| error.source),
        engine.delete(port).map(drop),
        engine.delete(bridge).map(drop),
    ]
}

/// A driver that changes the engine, in a transmission or a poll, is told not to, instead of
/// waiting for its own worker, or ending it.
#[test]
fn drivers_that_call_the_engine_are_told_not_to() {
    for transmits in [true, false] {
        let pool = pool(256);
        let sleepers = vec![CondSleeper::default()];
        let engine = Switch::start(
            sleepers,
            pool.clone(),
            Clock::monotonic(),
            OwnQueues::default(),
        );
        let engine = Arc::new(engine.unwrap());
        let (queue, (ring, script)) = (Asking::default(), ScriptedRing::new());
        let port = engine
            .add(setup("p", vec![queue.clone()], vec![ring]))
            .unwrap();
        let (ring, _) = ScriptedRing::new();
        let other = engine.add(setup("q", Vec::new(), vec![ring])).unwrap();
        let bridge = engine.add_bridge_of("br0", &[port, other]).unwrap();
        let (answer, answers) = mpsc::channel();
        let asked = engine.clone();
        let asking = move || answer.send(ask(&asked, port, bridge)).unwrap();
        if transmits {
            script.on_next_call(asking);
            let slot = engine.state();
            let device = slot.port(port).unwrap().device.clone();
            drop(slot);
            device.transmit(frame(&pool, 1, 2, 60, 0).into(), engine.clock().now());
        } else {
            *queue.1.lock().unwrap() = Some(Box::new(asking));
        }
        let answers = answers.recv_timeout(Duration::from_secs(30));
        for (place, answer) in answers.expect("it waits").into_iter().enumerate() {
            let told = match answer.unwrap_err() {
                EngineError::Control(ControlError::CalledByOwner) => transmits,
                EngineError::CalledByWorker => !transmits,
                _ => false,
            };
            assert!(told, "call {place}");
        }
        assert_eq!(engine.links().len(), 3);
        assert!(engine.link(port).unwrap().settings.up);
        // The driver has given up its own reference when the call has ended.
        engine.sync();
        let engine = Arc::into_inner(engine).expect("the last");
        engine.stop(Duration::ZERO);
    }
}
