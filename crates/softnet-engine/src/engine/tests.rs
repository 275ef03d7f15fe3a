//! Whole engines with drivers in memory: forwarding, flooding, stopping, devices that go and come
//! back.

use std::time::Duration;

use super::*;
use crate::forward::{MirredDir, MirredMode};
use crate::testing::{FedQueue, Net, setup};
use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::testing::{ScriptedRing, frame};
use softnet_tc::{ClassStats, Handle, PrioSpec, QdiscSpec, TbfSpec, TreeSpec};

/// `count` frames from one station to another.
fn frames(net: &Net, to: u8, from: u8, count: u32) -> impl Iterator<Item = Packet> {
    (0..count).map(move |n| frame(&net.pool, to, from, 60, n))
}

#[test]
fn a_switch_learns_floods_and_keeps_order() {
    for workers in [1, 2] {
        let net = Net::new(workers, 3);
        net.receive(0, frames(&net, 0, 10, 3));
        net.wait("the flood", || net.marks(1).len() + net.marks(2).len() == 6);
        assert!(
            net.marks(0).is_empty(),
            "a port never gets its own frame back"
        );
        net.receive(1, frames(&net, 10, 20, 200));
        net.wait("the answers", || net.marks(0).len() == 200);
        assert_eq!(net.marks(0), (0..200).collect::<Vec<_>>());
        assert_eq!(
            net.marks(2).len(),
            3,
            "a known station's frames go to its port only"
        );
        net.receive(0, [frame(&net.pool, 10, 30, 60, 0)]);
        net.wait("the drop", || {
            net.engine.stats().conservation().dropped == 1
        });
        let pool = net.pool.clone();
        let stats = net.stop();
        assert_eq!(stats.drops(), [(DropReason::Sameport, 1)]);
        assert_eq!((stats.conservation().rx, stats.copied), (204, 3));
        assert_eq!(pool.stats().free, 1024);
    }
}

#[test]
fn bad_sources_and_link_local_frames_end_at_the_switch() {
    let net = Net::new(1, 2);
    let mut local = frame(&net.pool, 1, 2, 60, 0);
    local.data_mut()[..6].copy_from_slice(&[0x01, 0x80, 0xC2, 0, 0, 0]);
    let mut multicast = frame(&net.pool, 1, 2, 60, 0);
    multicast.data_mut()[6] |= 1;
    net.receive(0, [local, multicast]);
    net.wait("the drops", || {
        net.engine.stats().conservation().dropped == 2
    });
    let stats = net.stop();
    assert_eq!(
        stats.drops(),
        [(DropReason::BadSource, 1), (DropReason::LinkLocal, 1)]
    );
}

/// The backlog of a stopped engine is sent if there is time, else dropped and counted.
#[test]
fn stopping_counts_what_it_cannot_send() {
    let net = Net::new(2, 2);
    let slow = TbfSpec {
        rate: 1,
        burst: 60,
        limit: 100_000,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    net.engine
        .set_qdisc(net.ports[1].id, &QdiscSpec::Tbf(slow))
        .unwrap();
    net.receive(0, frames(&net, 0, 10, 10));
    net.wait("arrival", || net.engine.stats().conservation().queued == 9);
    let stats = net.engine.stop(Duration::from_millis(20));
    assert!(stats.conservation().holds());
    assert_eq!(stats.drops(), [(DropReason::QdiscReset, 9)]);
    assert_eq!(net.pool.stats().free, 1024);
}

#[test]
fn a_device_that_went_away_can_be_replaced() {
    let net = Net::new(2, 2);
    net.feed(0).gone = true;
    let gone = std::cell::RefCell::new(Vec::new());
    net.wait("notice", || {
        gone.borrow_mut().extend(net.engine.take_events());
        !gone.borrow().is_empty()
    });
    assert_eq!(*gone.borrow(), [PortEvent::Gone(net.ports[0].id)]);
    let (queue, (ring, script)) = (FedQueue::default(), ScriptedRing::new());
    net.engine
        .replace(net.ports[0].id, vec![queue.clone()], vec![ring])
        .unwrap();
    net.receive(1, [frame(&net.pool, 0, 20, 60, 7)]);
    net.wait("the new ring", || script.marks() == [7]);
    let answer = frame(&net.pool, 20, 10, 60, 8);
    queue.feed().packets.push_back(answer);
    net.wait("the new queue", || net.marks(1) == [8]);
    net.stop();
}

/// INV-RX-7.
#[test]
fn a_flooding_port_does_not_starve_another() {
    let net = Net::new(1, 3);
    // A turn in which the CPU was lost is charged to its port: one of the flood's takes longer than
    // any such turn of the other port.
    let mut flood = net.ports[0].queue.stall();
    flood.packets = frames(&net, 2, 10, 900).collect();
    net.receive(2, [frame(&net.pool, 1, 30, 60, 5000)]);
    std::thread::sleep(Duration::from_millis(5));
    drop(flood);
    net.wait("all", || net.marks(1).len() == 901);
    // One worker serves both queues in turn: the lone frame waits for at most a few rounds of the
    // flood.
    let position = net.marks(1).iter().position(|&m| m == 5000).unwrap();
    assert!(
        position <= 2 * crate::rx::BUDGET + crate::rx::WEIGHT,
        "behind {position} frames"
    );
    let squeezed: u64 = net
        .engine
        .stats()
        .workers
        .iter()
        .map(|worker| worker.time_squeeze)
        .sum();
    assert!(
        squeezed >= 2,
        "rounds that ended with work left: {squeezed}"
    );
    net.stop();
}

#[test]
fn contradictions_are_refused() {
    let net = Net::new(1, 2);
    assert!(matches!(
        net.engine.add(setup("p0", vec![], vec![])),
        Err(EngineError::Exists(_))
    ));
    let bridge = net.engine.add_bridge(Settings::new("p1"));
    assert!(matches!(bridge, Err(EngineError::Exists(name)) if name == "p1"));
    net.stop();
}

/// Two ports that both send everything back in: a broadcast goes round through the backlogs until
/// its count is used up (BUG-TX-16), and all is accounted for.
#[test]
fn bug_tx_16_a_loop_through_the_workers_ends() {
    for workers in [1, 2] {
        let net = Net::new(workers, 2);
        for port in &net.ports {
            let again = ActionSpec {
                mode: MirredMode::Redirect,
                dir: MirredDir::Ingress,
                to: port.id,
            };
            net.engine.set_actions(port.id, &[again]).unwrap();
        }
        net.receive(0, frames(&net, 0, 7, 20));
        net.wait("the end of the loop", || {
            net.engine.stats().conservation().dropped == 20
        });
        let pool = net.pool.clone();
        let stats = net.stop();
        assert_eq!(stats.drops(), [(DropReason::MirredDefer, 20)]);
        assert_eq!(pool.stats().free, 1024);
    }
}

/// A tap for a monitor: copies of what leaves one port arrive at another's far end, and the sum is
/// even.
#[test]
fn a_mirrored_port_is_seen_elsewhere() {
    let net = Net::new(2, 3);
    let mirror = ActionSpec {
        mode: MirredMode::Mirror,
        dir: MirredDir::Egress,
        to: net.ports[2].id,
    };
    // Teach the switch where 10 is.
    net.receive(1, [frame(&net.pool, 0, 10, 60, 1000)]);
    net.wait("the lesson", || {
        net.marks(0).len() + net.marks(2).len() == 2
    });
    net.engine.set_actions(net.ports[1].id, &[mirror]).unwrap();
    net.receive(0, frames(&net, 10, 7, 100));
    net.wait("the copies", || net.marks(2).len() == 101);
    net.wait("the packets", || net.marks(1).len() == 100);
    assert_eq!(net.marks(1), (0..100).collect::<Vec<_>>());
    assert_eq!(net.marks(2)[1..], (0..100).collect::<Vec<_>>()[..]);
    let stats = net.stop();
    assert_eq!((stats.copied, stats.conservation().rx), (101, 101));
}

/// `tc -s qdisc` and `tc -s class`: a tree's classes by name with their numbers, and what stands
/// at each queue below `mq`; live, and at the end.
#[test]
fn disciplines_and_classes_are_told_apart() {
    let lines = |classes: &[ClassStats]| -> Vec<String> {
        let line = |c: &ClassStats| {
            let s = &c.stats;
            format!(
                "{} {} {} sent {} dropped {} overlimits {} backlog {}",
                c.class, c.kind, c.qdisc, s.packets, s.drops, s.overlimits, s.qlen
            )
        };
        classes.iter().map(line).collect()
    };
    let net = Net::new(1, 2);
    let mut tree = TreeSpec::new();
    let prio = PrioSpec {
        bands: 2,
        priomap: [1; 16],
    };
    let root = Handle::new(1, 0);
    tree.add(Handle::ROOT, root, QdiscSpec::Prio(prio)).unwrap();
    let slow = TbfSpec {
        rate: 1,
        burst: 60,
        limit: 300,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    tree.add(root.class(2), Handle::new(2, 0), QdiscSpec::Tbf(slow))
        .unwrap();
    let port = net.ports[1].id;
    net.engine.set_qdisc(port, &QdiscSpec::Tree(tree)).unwrap();
    // Five fit, of which the bucket lets one go at once.
    net.receive(0, frames(&net, 0, 10, 8));
    let mut live = Vec::new();
    let backlog = |c: &ClassStats| (c.stats.qlen, c.stats.backlog);
    net.wait("arrival", || {
        live = net.engine.classes(port);
        let backlogs = live.iter().map(backlog);
        backlogs.eq([(4, 240), (0, 0), (4, 240), (4, 240)]) && live[2].stats.overlimits > 0
    });
    assert!(net.engine.stats().ports[1].classes.is_empty());
    let stats = net.engine.stop(Duration::ZERO);
    let overlimits = live[2].stats.overlimits;
    let last = &stats.ports[1].classes;
    assert_eq!(
        lines(last),
        [
            // As in the kernel, what is dropped by taking the device down is not the discipline's
            // drop.
            format!(
                "root prio 1: sent 1 dropped 3 overlimits {} backlog 0",
                last[0].stats.overlimits
            ),
            "1:1 pfifo none sent 0 dropped 0 overlimits 0 backlog 0".to_owned(),
            format!(
                "1:2 tbf 2: sent 1 dropped 3 overlimits {} backlog 0",
                last[2].stats.overlimits
            ),
            "2:1 bfifo none sent 1 dropped 3 overlimits 0 backlog 0".to_owned(),
        ]
    );
    assert!(last[2].stats.overlimits >= overlimits);

    let net = Net::new(1, 1);
    let rings = ScriptedRing::many(2).0;
    let wide = setup("wide", vec![FedQueue::default()], rings);
    let wide = net.engine.add(wide).unwrap();
    net.engine
        .add_bridge_of("br1", &[wide])
        .expect("a bridge of one");
    assert_eq!(
        lines(&net.engine.classes(wide)),
        [
            "root mq none sent 0 dropped 0 overlimits 0 backlog 0",
            ":1 pfifo_fast none sent 0 dropped 0 overlimits 0 backlog 0",
            ":2 pfifo_fast none sent 0 dropped 0 overlimits 0 backlog 0",
        ]
    );
    let one = QdiscSpec::Pfifo { limit: 5 };
    net.engine.set_qdisc(wide, &one).unwrap();
    assert_eq!(
        lines(&net.engine.classes(wide)),
        ["root pfifo 8001: sent 0 dropped 0 overlimits 0 backlog 0"]
    );
    net.stop();
}

/// A flood of small packets through a port that hardly sends: with a limit in bytes that all
/// buffers fit, it took them all, and no port received any more.
#[test]
fn a_flooded_port_leaves_buffers_for_the_others() {
    for workers in [1, 2] {
        let net = Net::new(workers, 3);
        let one = |to, from, mark| [frame(&net.pool, to, from, 60, mark)];
        for (port, station) in [10, 11, 12].into_iter().enumerate() {
            net.receive(port, one(1, station, 0));
        }
        // A frame counts as received before its station is learnt, and is flooded after that.
        net.settle();
        let shaper = QdiscSpec::Tbf(TbfSpec {
            rate: 1,
            burst: 2000,
            limit: 1 << 30,
            ..TbfSpec::default()
        });
        net.engine.set_qdisc(net.ports[1].id, &shaper).unwrap();
        for _ in 0..100 {
            // No more at once than a poll takes.
            net.receive(0, frames(&net, 11, 10, 32));
            net.wait("the burst", || net.feed(0).packets.is_empty());
        }
        net.wait("the queue to be full", || {
            net.engine.stats().conservation().dropped > 2500
        });
        assert_eq!(net.engine.stats().drops()[0].0, DropReason::BufferQuota);
        // Its share is a sixth.
        net.wait("what was dropped to be free", || {
            net.pool.stats().free >= 1024 - 1024 / 6 - 64
        });
        let before = net.marks(0).len();
        net.receive(2, frames(&net, 10, 12, 200));
        net.wait("the others' packets", || net.marks(0).len() == before + 200);
        net.engine
            .set_qdisc(net.ports[1].id, &QdiscSpec::default())
            .unwrap();
        net.stop();
    }
}
