//! Packets handed from worker to worker in whole engines: order per flow, conservation, overflow,
//! stalls, changes of the map.

use std::ops::Deref;

use super::*;
use crate::rx::{Rfs, SteeringSpec};
use crate::testing::{FedQueue, Net};
use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::testing::{ScriptedRing, frame};

/// An engine with a port for each worker.
struct Steered(Net);

impl Deref for Steered {
    type Target = Net;

    fn deref(&self) -> &Net {
        &self.0
    }
}

/// A station behind port 1 that everyone sends to.
const SINK: u8 = 250;

impl Steered {
    /// Port 1 has learnt [`SINK`].
    fn new(workers: usize, config: EngineConfig) -> Steered {
        let net = Net::with(workers, workers, 8192, config);
        net.receive(1, [frame(&net.pool, 0, SINK, 60, 0)]);
        let flooded = || net.ports.iter().map(|p| p.script.marks().len()).sum();
        net.wait("the sink", || workers - 1 == flooded());
        Steered(net)
    }

    fn steer(&self, rps: &[usize]) {
        let spec = SteeringSpec {
            rps: rps.to_vec(),
            rfs: Rfs::Off,
        };
        self.engine
            .set_options(self.ports[0].id, |port| port.steering = spec.clone())
            .unwrap();
    }

    /// A packet of flow `flow` (below 200), number `n` of it, for the sink.
    fn packet(&self, flow: u8, n: u32) -> Packet {
        frame(&self.pool, SINK, 1 + flow, 60, u32::from(flow) << 20 | n)
    }

    /// A flow that shares no entry of the queue's table with `flow`. (The hash's key is random.)
    fn apart_from(&self, flow: u8) -> u8 {
        let entry = |flow| {
            let packet = self.packet(flow, 0);
            let hash = packet.parse().unwrap().flow_hash(packet.data());
            hash as usize % crate::rx::ENTRIES
        };
        let other = (0..200).find(|&other| entry(other) != entry(flow));
        other.expect("4096 entries")
    }

    /// Packets arrived at the sink in order, flow by flow.
    fn assert_order(&self) -> usize {
        let marks = self.marks(1);
        for flow in 0..200 {
            let of_flow = marks.iter().filter(|&&m| m >> 20 == flow);
            assert!(of_flow.is_sorted(), "flow {flow} is out of order");
        }
        marks.len()
    }

    fn stop(self) -> EngineStats {
        self.0.stop()
    }
}

/// INV-RX-1, INV-RX-2: flows over three workers, the map changing all the time: nothing is lost or
/// counted twice, no flow is reordered.
#[test]
fn flows_stay_in_order_while_the_map_changes() {
    const MAPS: [&[usize]; 6] = [&[0, 1, 2], &[2], &[], &[1, 2], &[0], &[2, 1, 0]];
    let net = Steered::new(
        3,
        EngineConfig {
            max_backlog: 5000,
            ..EngineConfig::default()
        },
    );
    for round in 0..60_u32 {
        net.steer(MAPS[round as usize % MAPS.len()]);
        net.receive(
            0,
            (0..100_u32).map(|n| net.packet((n % 20) as u8, round * 5 + n / 20)),
        );
        if round % 7 == 0 {
            net.settle();
        }
    }
    net.settle();
    assert_eq!(net.assert_order(), 6000);
    let stats = net.stop();
    assert_eq!(stats.conservation().dropped, 0, "{:?}", stats.drops());
    let (handed, taken) = stats.workers.iter().fold((0, 0), |sum, w| {
        (sum.0 + w.handed_over, sum.1 + w.taken_over)
    });
    assert!(handed >= 100 && handed == taken, "{handed} {taken}");
    // `processed` counts where a packet was processed, and only there.
    assert_eq!(stats.workers.iter().map(|w| w.processed).sum::<u64>(), 6001);
}

/// INV-RX-1, INV-RX-2, INV-RX-3: a worker stalls, its backlog overflows: what does not fit is
/// dropped with its reason, the rest arrives in order.
#[test]
fn a_worker_that_stalls_overflows_and_goes_on() {
    let net = Steered::new(
        2,
        EngineConfig {
            max_backlog: 100,
            ..EngineConfig::default()
        },
    );
    net.steer(&[1]);
    let stalled = net.ports[1].queue.stall();
    net.receive(0, (0..1000).map(|n| net.packet((n % 150) as u8, n / 150)));
    net.wait("overflow", || net.feed(0).packets.is_empty());
    net.steer_while_stalled(&[0]);
    assert_eq!(net.engine.stats().workers[1].backlog(), 100);
    drop(stalled);
    net.settle();
    let arrived = net.assert_order() as u64;
    let stats = net.stop();
    let drops = stats.drops();
    let dropped = stats.conservation().dropped;
    assert_eq!((arrived, dropped), (100, 900), "{drops:?}");
    assert!(
        drops.iter().all(|(reason, _)| {
            [DropReason::CpuBacklog, DropReason::FlowLimit].contains(reason)
        })
    );
    assert_eq!(stats.workers[1].dropped, dropped);
}

impl Steered {
    /// Changes the map without waiting for the stalled worker: as `set_steering` does, but for the
    /// wait that precedes it.
    fn steer_while_stalled(&self, rps: &[usize]) {
        let state = self.engine.state();
        let spec = SteeringSpec {
            rps: rps.to_vec(),
            rfs: Rfs::Off,
        };
        for napi in &state.ports[0].as_ref().unwrap().napis {
            napi.set_steering(&spec);
        }
    }
}

/// INV-RX-2: the map changes while the old worker stalls: flows that wait there stay there, others
/// go to the new worker.
#[test]
fn only_flows_that_do_not_wait_move_away_from_a_stalled_worker() {
    let net = Steered::new(3, EngineConfig::default());
    let other = net.apart_from(1);
    net.steer(&[2]);
    let stalled = net.ports[2].queue.stall();
    net.receive(0, (0..10).map(|n| net.packet(1, n)));
    net.wait("the hand-over", || {
        let stats = net.engine.stats();
        net.feed(0).packets.is_empty() && stats.workers[0].handed_over == 10
    });
    net.steer_while_stalled(&[1]);
    net.receive(
        0,
        (10..20).flat_map(|n| [net.packet(1, n), net.packet(other, n)]),
    );
    net.wait("the other flow", || {
        let marks = net.marks(1);
        let of_other = |m: &&u32| **m >> 20 == u32::from(other);
        marks.iter().filter(of_other).count() == 10
    });
    assert!(net.marks(1).iter().all(|m| m >> 20 != 1));
    drop(stalled);
    net.settle();
    assert_eq!(net.assert_order(), 30);
    net.stop();
}

/// INV-RX-8, BUG-RX-1: when a port's device has been replaced, nothing that the old one received
/// is delivered any more: it has been before.
#[test]
fn a_device_that_is_replaced_leaves_nothing_in_a_backlog() {
    let net = Steered::new(2, EngineConfig::default());
    net.steer(&[1]);
    let stalled = net.ports[1].queue.stall();
    net.receive(0, (0..50).map(|n| net.packet(3, n)));
    net.wait("the hand-over", || {
        net.engine.stats().workers[0].handed_over == 50
    });
    std::thread::scope(|scope| {
        let engine = &net.engine;
        let (port, (ring, _)) = (net.ports[0].id, ScriptedRing::new());
        let replaced = scope.spawn(move || {
            engine
                .replace(port, vec![FedQueue::default()], vec![ring])
                .unwrap();
            engine.stats()
        });
        net.wait("the change to begin", || {
            net.engine.state.try_lock().is_err()
        });
        drop(stalled);
        let stats = replaced.join().unwrap();
        assert_eq!((stats.in_backlogs(), stats.workers[1].taken_over), (0, 50));
    });
    assert_eq!(net.marks(1).len(), 50);
    net.stop();
}

/// Flows follow their consumers, who record by hand or by the port they speak at.
#[test]
fn flows_are_processed_where_their_consumer_runs() {
    let net = Steered::new(3, EngineConfig::default());
    let spec = |rfs| SteeringSpec { rps: vec![], rfs };
    net.engine
        .set_options(net.ports[0].id, |port| port.steering = spec(Rfs::Follow))
        .unwrap();
    net.engine
        .set_options(net.ports[1].id, |port| port.steering = spec(Rfs::Record))
        .unwrap();
    let taken_over = |worker: usize| {
        net.engine.sync();
        net.engine.stats().workers[worker].taken_over
    };
    net.receive(0, [net.packet(7, 0)]);
    net.wait("the request", || net.marks(1).len() == 1);
    assert_eq!(taken_over(1), 0, "nobody listens yet");
    net.receive(1, [frame(&net.pool, 8, SINK, 60, 0)]);
    net.wait("the answer", || net.marks(0).len() == 2);
    net.receive(0, [net.packet(7, 1)]);
    net.wait("the next request", || net.marks(1).len() == 2);
    assert_eq!(taken_over(1), 1);
    // A program's own consumer on worker 2.
    let mut packet = net.packet(9, 0);
    let hash = packet.parse().unwrap().flow_hash(packet.data());
    packet.set_flow_hash(hash);
    net.engine.flows().record(hash, 2);
    net.receive(0, [packet]);
    net.wait("the last", || net.marks(1).len() == 3);
    assert_eq!(taken_over(2), 1);
    net.stop();
}

#[test]
fn a_worker_that_does_not_exist_is_refused() {
    let net = Steered::new(2, EngineConfig::default());
    let spec = SteeringSpec {
        rps: vec![0, 2],
        rfs: Rfs::Off,
    };
    assert!(matches!(
        net.engine
            .set_options(net.ports[0].id, |port| port.steering = spec.clone()),
        Err(EngineError::NoSuchWorker {
            worker: 2,
            workers: 2
        })
    ));
    net.stop();
}

/// The counters of hand-over wrap, and what waits is still their difference.
#[test]
fn conservation_survives_counters_that_wrap() {
    let worker = |handed_over, taken_over| crate::rx::WorkerStats {
        handed_over,
        taken_over,
        ..Default::default()
    };
    let stats = EngineStats {
        workers: vec![worker(3, u64::MAX - 1), worker(u64::MAX - 2, 0)],
        ..EngineStats::default()
    };
    assert_eq!(stats.in_backlogs(), 2);
}
