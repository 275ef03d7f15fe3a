//! Workers' knowledge when a control call has returned. One of them stands still meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::forward::BridgePortOptions;
use crate::testing::{FedQueue, Net, setup};
use softnet::testing::{ScriptedRing, frame};

/// Looks for a while whether something happens that must not.
fn happens(what: impl Fn() -> bool) -> bool {
    (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        what()
    })
}

/// Hosts' first frames find their way, whichever worker they are steered to: a new port receives
/// when each of them knows all new ports.
#[test]
fn every_worker_knows_new_ports_before_one_receives() {
    let net = Net::new(2, 2);
    let queue = FedQueue::default();
    let first = frame(&net.pool, 0xFF, 1, 60, 7);
    queue.feed().packets.push_back(first);
    let (ring, _) = ScriptedRing::new();
    let (mut spec, device) = setup("new", vec![queue.clone()], vec![ring]);
    spec.master = Some("br0".into());
    // Ports take turns: the worker of this one has nothing to do with the new one.
    let stalled = net.ports[1].queue.stall();
    std::thread::scope(|scope| {
        let added = scope.spawn(|| net.engine.add_port_with(spec, device).unwrap());
        let received = happens(|| queue.feed().packets.is_empty());
        drop(stalled);
        added.join().unwrap();
        assert!(!received, "a worker does not know the port yet");
    });
    net.wait("the frame", || net.marks(1) == [7]);
    net.stop();
}

/// Workers forward by what was kept back when it is released, also where some of them were told of
/// it by another change before.
#[test]
fn what_is_released_is_in_force() {
    let net = Net::new(2, 2);
    let isolated = BridgePortOptions {
        isolated: true,
        ..BridgePortOptions::default()
    };
    let stalled = net.ports[1].queue.stall();
    let released = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let engine = &net.engine;
        engine.hold();
        let id = net.ports[0].id;
        engine.set_bridge_port(id, isolated).unwrap();
        engine.set_actions(id, &[]).unwrap();
        let releasing = scope.spawn(|| {
            engine.release();
            released.store(true, Ordering::SeqCst);
        });
        let early = happens(|| released.load(Ordering::SeqCst));
        drop(stalled);
        releasing.join().unwrap();
        assert!(!early, "a worker forwards by the old options");
    });
    net.stop();
}
