//! Captures of an engine in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use softnet::stats::DropReason;
use softnet::testing::frame;
use softnet_tc::{PrioSpec, QdiscSpec};

use super::*;
use crate::engine::{EngineConfig, EngineError};
use crate::testing::{Net, wait};

const LEN: usize = 100;

/// Two ports with a station each, `10` and `1`, which are known.
fn net() -> Net {
    let net = Net::with(2, 2, 8192, EngineConfig::default());
    for (port, station) in [(0, 10), (1, 1)] {
        net.receive(port, [frame(&net.pool, 99, station, LEN, 0)]);
        net.settle();
    }
    net
}

fn start(net: &Net, port: usize, spec: CaptureSpec) -> Arc<Capture> {
    let capture = net.engine.capture(net.ports[port].id, spec);
    capture.expect("a capture")
}

/// Sends frames from port 0 to port 1.
fn send(net: &Net, count: u32) {
    let frames = (1..=count).map(|n| frame(&net.pool, 1, 10, LEN, n));
    net.receive(0, frames);
    net.settle();
}

fn records(capture: &Capture) -> Vec<Record> {
    let copies = capture.take();
    let read = copies.iter().map(|copy| {
        let (record, frame) = Record::read(copy.data()).expect("a record");
        assert_eq!((record.len as usize, frame.len()), (LEN, LEN));
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, 1]);
        record
    });
    read.collect()
}

#[test]
fn packets_are_captured_on_their_way_in_and_out_with_their_class() {
    let net = net();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    net.engine.set_qdisc(net.ports[1].id, &prio).expect("set");
    // Where packets of priority 0 are.
    let class = net.engine.classes(net.ports[1].id)[2].class;
    let arriving = start(&net, 0, CaptureSpec::default());
    let leaving = start(&net, 1, CaptureSpec::default());
    let of_class = start(
        &net,
        1,
        CaptureSpec {
            class: Some(class),
            ..CaptureSpec::default()
        },
    );
    let of_other = start(
        &net,
        1,
        CaptureSpec {
            class: Some(class.class(1)),
            ..CaptureSpec::default()
        },
    );
    send(&net, 20);
    let seen = records(&arriving);
    assert_eq!(seen.len(), 20);
    let is_arriving = |r: &Record| r.direction == Direction::In && r.class == 0;
    assert!(seen.iter().all(is_arriving), "{seen:?}");
    let seen = records(&leaving);
    assert_eq!(seen.len(), 20);
    for record in &seen {
        assert_eq!(record.direction, Direction::Out);
        assert_eq!((record.queue, record.class), (Some(0), class.raw()));
        assert!(record.waited.is_some() && record.reason.is_none());
    }
    assert_eq!(records(&of_class).len(), 20);
    assert_eq!(records(&of_other).len(), 0);
    let fifth = net.engine.capture(net.ports[0].id, CaptureSpec::default());
    let is_refused = matches!(fifth, Err(EngineError::Capture(CaptureError::TooMany)));
    assert!(is_refused);
    for capture in [&arriving, &leaving, &of_class, &of_other] {
        net.engine.end_capture(capture).expect("ended");
        assert!(capture.has_ended());
    }
    send(&net, 20);
    assert_eq!(leaving.stats().matched, 20, "it is over");
    net.stop();
}

#[test]
fn what_is_dropped_is_captured_with_reason_and_class() {
    let net = net();
    let prio = QdiscSpec::Prio(PrioSpec::default());
    net.engine.set_qdisc(net.ports[1].id, &prio).expect("set");
    // Where packets of priority 0 are.
    let class = net.engine.classes(net.ports[1].id)[2].class;
    let spec = || CaptureSpec {
        dropped: true,
        ..CaptureSpec::default()
    };
    let [at_source, at_sink] = [0, 1].map(|port| start(&net, port, spec()));
    net.ports[1].script.set_capacity(0);
    // More than a band and the ring hold.
    for first in 0..3 {
        let frames = (1..=400).map(|n| frame(&net.pool, 1, 10, LEN, first * 400 + n));
        net.receive(0, frames);
        wait("reception", || net.feed(0).packets.is_empty());
    }
    net.engine.sync();
    // To nobody that there is: back where it came from.
    net.receive(0, [frame(&net.pool, 10, 1, LEN, 0)]);
    wait("reception", || net.feed(0).packets.is_empty());
    net.engine.sync();
    let stats = net.engine.port_stats(net.ports[1].id).expect("a port");
    let dropped: BTreeMap<_, _> = stats.device.drops.into_iter().collect();
    assert!(dropped[&DropReason::QdiscLimit] > 100, "{dropped:?}");
    let mut seen = BTreeMap::new();
    for record in records(&at_sink) {
        let reason = record.reason.expect("a reason");
        *seen.entry(reason).or_insert(0) += 1;
        assert_eq!(record.direction, Direction::Out);
        if reason == DropReason::QdiscLimit {
            assert_eq!(record.class, class.raw());
        }
    }
    assert_eq!(seen, dropped);
    let copies = at_source.take();
    let reasons = copies.iter().map(|copy| {
        let (record, _) = Record::read(copy.data()).expect("a record");
        (record.direction, record.reason)
    });
    let expected = (Direction::In, Some(DropReason::Sameport));
    assert_eq!(reasons.collect::<Vec<_>>(), [expected]);
    drop(copies);
    net.ports[1].script.set_capacity(1 << 20);
    drop((at_source, at_sink));
    net.engine.stop(std::time::Duration::from_secs(1));
}

#[test]
fn nobody_waits_for_a_capture_that_nobody_reads() {
    let net = net();
    let capture = start(&net, 1, CaptureSpec::default());
    let rounds = WAITING / 500 + 2;
    (0..rounds).for_each(|_| send(&net, 500));
    let sent = 500 * rounds as u64;
    let stats = capture.stats();
    assert_eq!(stats.matched, sent);
    assert_eq!(stats.missed, sent - WAITING as u64);
    assert_eq!(records(&capture).len(), WAITING);
    send(&net, 10);
    assert_eq!(records(&capture).len(), 10, "it goes on");
    let id = net.ports[1].id;
    net.engine.delete(id).expect("deleted");
    assert!(capture.has_ended());
    drop(net);
}

#[test]
fn a_capture_goes_on_where_the_device_is_another() {
    let net = net();
    let filter = Filter::parse("ether dst 02:00:00:00:00:01").expect("a filter");
    let spec = CaptureSpec {
        filter,
        ..CaptureSpec::default()
    };
    let capture = start(&net, 0, spec);
    let queue = crate::testing::FedQueue::default();
    let (ring, _script) = softnet::testing::ScriptedRing::new();
    net.engine
        .replace(net.ports[0].id, vec![queue.clone()], vec![ring])
        .expect("replaced");
    let frames = [
        frame(&net.pool, 1, 10, LEN, 1),
        frame(&net.pool, 9, 10, LEN, 2),
    ];
    queue.feed().packets.extend(frames);
    wait("reception", || capture.stats().matched == 1);
    net.engine.sync();
    assert_eq!(records(&capture).len(), 1);
    drop(net);
}
