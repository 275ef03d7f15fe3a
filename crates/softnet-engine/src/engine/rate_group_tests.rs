//! Ports that share a limit. The rate is so low that next to nothing is earned in a test: what
//! passes is what the buckets held, a packet for each second that the test took, and the rest when
//! the limit is gone.

use softnet_tc::rate::{GroupSpec, RateSpec};

use crate::testing::{Net, wait};
use softnet::testing::frame;
use softnet::time::Time;

const LEN: usize = 100;
/// Packets that the bucket holds.
const BURST: u64 = 10;
/// Packets beyond those: in the pot of each of two queues, and sent before it pays.
const BEYOND: u64 = 2 * 2;
/// Packets that are sent by, or to, each of two ports.
const EACH: u32 = 40;
const ALL: usize = 2 * EACH as usize;

fn group(packets: bool) -> GroupSpec {
    let spec = |unit| RateSpec {
        rate: 1,
        burst: BURST * unit,
        unit,
    };
    match packets {
        true => GroupSpec {
            bytes: None,
            packets: Some(spec(1)),
        },
        false => GroupSpec {
            bytes: Some(spec(LEN as u64)),
            packets: None,
        },
    }
}

/// Puts a port into a group, or takes it out.
fn put(net: &Net, port: usize, group: Option<&str>) {
    let id = net.ports[port].id;
    let put = net
        .engine
        .set_options(id, |port| port.rate_group = group.map(str::to_owned));
    put.unwrap();
}

/// Ports 1 and 2 have a station each, `1` and `2`; port 0 has `10`, which is known.
fn net(workers: usize) -> Net {
    let net = Net::new(workers, 3);
    for (port, station) in [(0, 10), (1, 1), (2, 2)] {
        net.receive(port, [frame(&net.pool, 99, station, LEN, 0)]);
        net.settle();
    }
    net
}

/// Puts ports 1 and 2 into a group of these limits, or takes them out.
fn limit(net: &Net, limits: Option<GroupSpec>) {
    let name = limits.map(|limits| {
        net.engine.set_rate_group("group", limits).unwrap();
        "group"
    });
    put(net, 1, name);
    put(net, 2, name);
}

fn sent(net: &Net, ports: &[usize]) -> usize {
    let of_port = |&port: &usize| net.marks(port).iter().filter(|&&mark| mark > 0).count();
    ports.iter().map(of_port).sum()
}

/// Packets that may have passed a limit that was set at `start` or later.
fn most(net: &Net, start: Time) -> usize {
    let earned = net.engine.clock().now().since(start).as_secs();
    (BURST + BEYOND + earned) as usize
}

#[test]
fn what_is_sent_to_a_group_waits_in_its_qdiscs() {
    for packets in [false, true] {
        let net = net(2);
        let limits = group(packets);
        let start = net.engine.clock().now();
        limit(&net, Some(limits));
        let to = |station, n| frame(&net.pool, station, 10, LEN, n);
        net.receive(0, (1..=EACH).flat_map(|n| [to(1, n), to(2, n)]));
        wait("what may pass", || sent(&net, &[1, 2]) >= BURST as usize);
        wait("the rest to be queued", || {
            let stats = net.engine.stats().conservation();
            sent(&net, &[1, 2]) + stats.queued as usize == ALL
        });
        let passed = sent(&net, &[1, 2]);
        assert!(passed <= most(&net, start), "{packets} {passed}");
        // Another qdisc has the same limit.
        let pfifo = softnet_tc::QdiscSpec::Pfifo { limit: 1000 };
        net.engine.set_qdisc(net.ports[1].id, &pfifo).unwrap();
        net.engine.sync();
        let passed = sent(&net, &[1, 2]);
        assert!(passed <= most(&net, start) + 1, "{packets} {passed}");
        limit(&net, None);
        net.settle();
        assert_eq!(sent(&net, &[1, 2]), ALL);
        for port in [1, 2] {
            assert!(net.marks(port).is_sorted());
        }
        assert_eq!(net.stop().conservation().dropped, 0);
    }
}

#[test]
fn what_comes_from_a_group_waits_in_its_devices() {
    for packets in [false, true] {
        let net = net(2);
        let limits = group(packets);
        let start = net.engine.clock().now();
        limit(&net, Some(limits));
        let from = |station, n| frame(&net.pool, 10, station, LEN, n);
        net.receive(1, (1..=EACH).map(|n| from(1, n)));
        net.receive(2, (1..=EACH).map(|n| from(2, n)));
        wait("what may pass", || sent(&net, &[0]) >= BURST as usize);
        net.engine.sync();
        let passed = sent(&net, &[0]);
        assert!(passed <= most(&net, start), "{packets} {passed}");
        let waiting = net.feed(1).packets.len() + net.feed(2).packets.len();
        assert!(waiting + most(&net, start) >= ALL, "{packets} {waiting}");
        // The same limit, higher.
        let more = RateSpec {
            rate: 1_000_000_000,
            burst: 1 << 20,
            unit: LEN as u64,
        };
        let more = GroupSpec {
            bytes: Some(more),
            packets: Some(more),
        };
        net.engine.set_rate_group("group", more).unwrap();
        net.settle();
        assert_eq!(sent(&net, &[0]), ALL);
        assert_eq!(net.stop().conservation().dropped, 0);
    }
}

#[test]
fn a_port_is_removed_while_it_must_wait() {
    let net = net(1);
    let limits = group(true);
    let start = net.engine.clock().now();
    net.engine.set_rate_group("group", limits).unwrap();
    put(&net, 1, Some("group"));
    let from = |station, n| frame(&net.pool, 10, station, LEN, n);
    net.receive(1, (1..=EACH).map(|n| from(1, n)));
    wait("what may pass", || sent(&net, &[0]) >= BURST as usize);
    net.engine.delete(net.ports[1].id).unwrap();
    let passed = sent(&net, &[0]);
    assert!(passed <= most(&net, start), "{passed}");
    drop(net.feed(1).packets.take());
    // Its worker serves the others.
    net.receive(2, (1..=EACH).map(|n| from(2, n)));
    net.settle();
    assert_eq!(sent(&net, &[0]), passed + EACH as usize);
    assert_eq!(net.stop().conservation().dropped, 0);
}
