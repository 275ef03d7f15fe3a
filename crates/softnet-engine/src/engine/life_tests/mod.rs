//! The life of ports and bridges while packets flow: every packet is accounted for, flows stay in
//! order, and nothing is left of what was removed.

mod links;

use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::state::check_number;
use super::*;
use crate::forward::{MirredDir, MirredMode};
use crate::link::Link;
use crate::rx::SteeringSpec;
use crate::testing::{FedQueue, Net, setup, wait, with_qdisc};
use softnet::stats::DropReason;
use softnet::testing::{Script, ScriptedRing, frame};
use softnet::wire::EthernetAddress;
use softnet_tc::{QdiscSpec, TbfSpec};

/// So many that a port may have all handed over that is sent while its owner lost the CPU: 64
/// packets and what ports receive in as many rounds as these last, some 600 in all (a twelfth of
/// the buffers, see `softnet::tx::quota`).
const BUFFERS: usize = 8192;
/// Stations behind ports 0 and 1.
const SENDER: u8 = 10;
const SINK: u8 = 20;
/// The mark of the traffic's broadcasts, and of one that is looked for among them.
const BROADCAST: u32 = u32::MAX;
const LAST: u32 = BROADCAST - 1;
/// Changes made while packets flow.
const ROUNDS: usize = 20;

type Queues = (Vec<FedQueue>, Vec<ScriptedRing>, Vec<Arc<Script>>);

fn queues(count: usize) -> Queues {
    let rx = (0..count).map(|_| FedQueue::default()).collect();
    let (tx, scripts) = (0..count).map(|_| ScriptedRing::new()).unzip();
    (rx, tx, scripts)
}

/// An engine with two ports that stay, and traffic between them.
struct Busy {
    net: Net,
}

impl Deref for Busy {
    type Target = Net;

    fn deref(&self) -> &Net {
        &self.net
    }
}

impl Busy {
    fn new(workers: usize) -> Busy {
        let net = Net::with(workers, 2, BUFFERS, EngineConfig::default());
        net.receive(1, [frame(&net.pool, 0, SINK, 60, 0)]);
        net.wait("the sink", || net.marks(0) == [0]);
        Busy { net }
    }

    fn send(&self, to: u8, mark: u32) {
        self.receive(0, [frame(&self.pool, to, SENDER, 60, mark)]);
    }

    /// Sends from port 0 while `change` is made: a flow to the sink behind port 1, and now and
    /// then a broadcast. The flow arrives whole and in order. Returns how many packets it had.
    fn while_packets_flow(&self, mut change: impl FnMut(usize)) -> u32 {
        let (end, sent) = (AtomicBool::new(false), AtomicU32::new(0));
        let seen = self.marks(1).len();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut arrived, mut at) = (0, seen);
                while !end.load(Ordering::Relaxed) {
                    let marks = self.ports[1].script.sent();
                    arrived += marks[at..].iter().filter(|sent| sent.0 < LAST).count();
                    at = marks.len();
                    drop(marks);
                    // What waits is bounded, so that nothing is dropped for want of a buffer, and
                    // within the port's share of them.
                    let waiting = sent.load(Ordering::Relaxed) as usize - arrived;
                    if waiting > 64 || self.pool.stats().free < BUFFERS / 2 {
                        std::thread::yield_now();
                        continue;
                    }
                    for _ in 0..8 {
                        let n = sent.fetch_add(1, Ordering::Relaxed) + 1;
                        self.send(SINK, n);
                    }
                    self.send(0, BROADCAST);
                }
            });
            // Also if a change panics.
            let _end = End(&end);
            for round in 0..ROUNDS {
                let before = sent.load(Ordering::Relaxed);
                change(round);
                self.wait("packets", || sent.load(Ordering::Relaxed) > before + 16);
            }
        });
        let sent = sent.load(Ordering::Relaxed);
        let flow = || -> Vec<u32> {
            let marks = self.marks(1);
            let new = marks[seen..].iter();
            new.copied().filter(|&mark| mark < LAST).collect()
        };
        self.wait("the flow", || flow().len() == sent as usize);
        assert!(flow().is_sorted(), "overtaken");
        sent
    }
}

/// Ends the traffic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A tbf that lets hardly anything pass, so that packets are queued.
fn slow() -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate: 1,
        burst: 2000,
        limit: 10_000,
        ..TbfSpec::default()
    })
}

/// Ports come and go, with packets queued and steered packets in backlogs. What they counted stays
/// in the sums, their queues are closed, and their names and numbers are used again.
#[test]
fn ports_come_and_go_while_packets_flow() {
    for workers in [1, 3] {
        let net = Busy::new(workers);
        let mut earlier = Vec::new();
        net.while_packets_flow(|round| {
            let (rx, tx, scripts) = queues(1 + round % 3);
            let feeds = rx.clone();
            let qdisc = if round % 2 == 0 {
                slow()
            } else {
                QdiscSpec::default()
            };
            let setup = with_qdisc(qdisc, setup("c", rx, tx));
            let port = net.engine.add(setup).unwrap();
            let number = net.engine.link(port).unwrap().number;
            assert_eq!(number, 2, "the number is used again");
            assert!(!earlier.contains(&port));
            let steering = SteeringSpec {
                rps: (0..workers).collect(),
                ..SteeringSpec::default()
            };
            net.engine
                .set_options(port, |port| port.steering = steering.clone())
                .unwrap();
            net.engine.join(net.bridge, &[port]).unwrap();
            for feed in &feeds {
                let packets = (0..50).map(|n| frame(&net.pool, SINK, 30 + n, 60, u32::MAX));
                feed.feed().packets.extend(packets);
            }
            net.wait("a broadcast", || {
                scripts.iter().any(|script| !script.marks().is_empty())
            });
            let counted = net.engine.delete(port).unwrap();
            assert_eq!(counted.queued, 0);
            assert!(counted.tx_packets > 0);
            assert!(feeds.iter().all(FedQueue::is_closed));
            assert!(scripts.iter().all(|script| Arc::strong_count(script) == 1));
            assert!(matches!(
                net.engine.delete(port),
                Err(EngineError::NoLink(_))
            ));
            earlier.push(port);
        });
        let state = net.engine.state();
        let events = state.workers.iter().flat_map(|w| &w.events);
        assert_eq!(events.filter(|used| **used).count(), workers + 2);
        drop(state);
        let stats = net.net.stop();
        assert_eq!(stats.ports.len(), 2);
        assert!(stats.removed.tx_packets >= ROUNDS as u64);
    }
}

/// A port that joins gets broadcasts, one that leaves gets none, and its addresses are forgotten.
#[test]
fn ports_join_and_leave_while_packets_flow() {
    for workers in [1, 2] {
        let net = Busy::new(workers);
        let (rx, tx, scripts) = queues(1);
        let feed = rx[0].clone();
        let port = net.engine.add(setup("c", rx, tx)).unwrap();
        let station = EthernetAddress([2, 0, 0, 0, 0, 30]);
        let known = || {
            let state = net.engine.state();
            let bridge = &state.bridge(net.bridge).unwrap().bridge;
            bridge.fdb().lookup(station, net.engine.clock.now())
        };
        net.while_packets_flow(|_| {
            net.engine.join(net.bridge, &[port]).unwrap();
            let before = scripts[0].marks().len();
            let packet = frame(&net.pool, SINK, 30, 60, u32::MAX);
            feed.feed().packets.push_back(packet);
            net.wait("a broadcast", || scripts[0].marks().len() > before);
            net.wait("the station", || known() == Some(2));
            net.engine.set_master(port, None).unwrap();
            assert_eq!(known(), None);
            let before = scripts[0].marks().len();
            let at_sink = || net.marks(1).iter().filter(|&&mark| mark == LAST).count();
            let seen = at_sink();
            net.send(0, LAST);
            net.wait("the broadcast", || at_sink() > seen);
            assert_eq!(scripts[0].marks().len(), before);
            assert!(matches!(
                net.engine.bridge_port(port),
                Err(EngineError::NotInBridge(name)) if name == "c"
            ));
        });
        net.net.stop();
    }
}

/// More queues and fewer, with packets queued: counters go on, the qdisc is of the same kind,
/// steering and actions stay.
#[test]
fn queues_grow_and_shrink_while_packets_flow() {
    for workers in [1, 2] {
        let net = Busy::new(workers);
        let (rx, tx, _) = queues(1);
        let port = net.engine.add(with_qdisc(slow(), setup("c", rx, tx)));
        let port = port.unwrap();
        let (rx, tx, copies) = queues(1);
        let monitor = net.engine.add(setup("monitor", rx, tx)).unwrap();
        let mirror = |to| ActionSpec {
            mode: MirredMode::Mirror,
            dir: MirredDir::Egress,
            to,
        };
        net.engine.set_actions(port, &[mirror(monitor)]).unwrap();
        net.engine.join(net.bridge, &[port]).unwrap();
        let mut sent = 0;
        net.while_packets_flow(|round| {
            let (rx, tx, scripts) = queues(1 + round % 4);
            let feeds = rx.clone();
            net.engine.replace(port, rx, tx).unwrap();
            net.engine.set_qdisc(port, &QdiscSpec::default()).unwrap();
            net.wait("a broadcast", || {
                scripts.iter().any(|script| !script.marks().is_empty())
            });
            net.engine.set_qdisc(port, &slow()).unwrap();
            let before = copies[0].marks().len();
            net.wait("a copy", || copies[0].marks().len() > before);
            for feed in feeds {
                let packet = frame(&net.pool, SINK, 30, 60, u32::MAX);
                feed.feed().packets.push_back(packet);
                net.wait("reception", || feed.feed().packets.is_empty());
            }
            let stats = net.engine.stats();
            let device = &stats.ports[2].device;
            assert_eq!(device.queues.len(), 1 + round % 4);
            assert!(device.tx_packets > sent, "counters go on");
            sent = device.tx_packets;
        });
        let state = net.engine.state();
        let events = state.workers.iter().flat_map(|w| &w.events);
        let queues = 2 + 1 + 1 + (ROUNDS - 1) % 4;
        assert_eq!(events.filter(|used| **used).count(), workers + queues);
        drop(state);
        net.engine.set_qdisc(port, &QdiscSpec::default()).unwrap();
        net.net.stop();
    }
}

/// As many queues as before: what is queued stays.
#[test]
fn queued_packets_survive_a_replaced_driver() {
    let net = Busy::new(2);
    let (rx, tx, _) = queues(1);
    let port = net.engine.add(setup("c", rx, tx)).unwrap();
    net.engine.join(net.bridge, &[port]).unwrap();
    net.engine.set_qdisc(port, &slow()).unwrap();
    (1..=100).for_each(|n| net.send(0, n));
    let queued = || net.engine.stats().ports[2].device.queued;
    net.wait("a queue", || queued() > 50);
    let before = queued();
    let (rx, tx, scripts) = queues(1);
    net.engine.replace(port, rx, tx).unwrap();
    net.engine.set_qdisc(port, &QdiscSpec::default()).unwrap();
    net.wait("all of them", || scripts[0].marks().len() as u64 >= before);
    assert!(scripts[0].marks().is_sorted());
    net.net.stop();
}

/// An action's target may be removed: what is sent there is dropped with a reason.
#[test]
fn a_removed_target_of_an_action_is_no_longer_sent_to() {
    for dir in [MirredDir::Egress, MirredDir::Ingress] {
        let net = Busy::new(2);
        let (rx, tx, _) = queues(1);
        let port = net.engine.add(setup("c", rx, tx)).unwrap();
        let (rx, tx, scripts) = queues(1);
        let target = net.engine.add(setup("d", rx, tx)).unwrap();
        net.engine.join(net.bridge, &[port, target]).unwrap();
        let redirect = ActionSpec {
            mode: MirredMode::Redirect,
            dir,
            to: target,
        };
        net.engine.set_actions(port, &[redirect]).unwrap();
        let dropped = || {
            let drops = net.engine.stats().ports[2].device.drops.clone();
            let of_reason = drops.iter().find(|d| d.0 == DropReason::DeviceDown);
            of_reason.map_or(0, |&(_, count)| count)
        };
        net.while_packets_flow(|round| {
            if round == ROUNDS / 2 {
                assert_eq!(dropped(), 0);
                net.engine.delete(target).unwrap();
                assert_eq!(Arc::strong_count(&scripts[0]), 1);
            } else if round > ROUNDS / 2 {
                net.wait("a drop", || dropped() > 0);
            }
        });
        net.net.stop();
    }
}

/// A name is one port's, and can be changed.
#[test]
fn ports_are_renamed() {
    let net = Busy::new(1);
    let [a, b] = [net.ports[0].id, net.ports[1].id];
    net.engine
        .change(a, |link| link.name = "uplink".into())
        .unwrap();
    net.engine
        .change(a, |link| link.name = "uplink".into())
        .unwrap();
    let taken = net.engine.change(b, |link| link.name = "uplink".into());
    assert!(matches!(taken, Err(EngineError::Exists(name)) if name == "uplink"));
    net.engine.change(b, |link| link.name = "a".into()).unwrap();
    let stats = net.net.stop();
    let names: Vec<_> = stats.ports.iter().map(|p| &p.name[..]).collect();
    assert_eq!(names, ["uplink", "a"]);
}

/// Bridges are told apart, and one that is removed leaves its ports behind.
#[test]
fn bridges_come_and_go() {
    let net = Busy::new(2);
    let taken = net.engine.add_bridge_of("br0", &[]);
    assert!(matches!(taken, Err(EngineError::Exists(name)) if name == "br0"));
    net.engine.delete(net.bridge).unwrap();
    let again = net.engine.delete(net.bridge);
    assert!(matches!(again, Err(EngineError::NoLink(_))));
    net.send(SINK, 1);
    let drops = || net.engine.stats().drops();
    net.wait("a drop", || drops() == [(DropReason::NoForward, 1)]);
    let bridge = net
        .engine
        .add_bridge_of("br0", &[net.ports[0].id, net.ports[1].id])
        .unwrap();
    assert_ne!(bridge, net.bridge);
    let old = net.engine.join(net.bridge, &[net.ports[0].id]);
    assert!(matches!(old, Err(EngineError::NoLink(_))));
    net.send(SINK, 2);
    net.wait("the packet", || net.marks(1) == [2]);
    net.net.stop();
}

/// There are numbers for so many ports and no more.
#[test]
fn port_numbers_end() {
    assert!(matches!(check_number(32_766), Ok(32_766)));
    assert!(matches!(
        check_number(32_767),
        Err(EngineError::TooManyPorts)
    ));
    assert!(matches!(
        check_number(65_536),
        Err(EngineError::TooManyPorts)
    ));
}
