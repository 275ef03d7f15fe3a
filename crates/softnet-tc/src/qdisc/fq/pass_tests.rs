//! Packets that pass an `fq` without a flow, and those that may not.

use std::time::Duration;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::{Cx, Qdisc, Verdict, WireSum};
use softnet::testing::pool;
use softnet::time::Time;

use super::spec::FqSpec;
use super::{Fq, PASS};
use crate::account::Xstat;
use crate::handle::Handle;
use crate::qdisc::kind::Kind;
use crate::qdisc::spec::QdiscEnv;
use crate::testing::{MS, ip};

const NOW: Time = Time(10 * MS);

fn fq(spec: &FqSpec, pool: &Pool) -> Fq {
    Fq::make(spec, Handle::NONE, &QdiscEnv::new(pool))
}

fn packets(pool: &Pool, count: usize) -> PacketList {
    (0..count).map(|n| ip(pool, 100, 0, n as u32)).collect()
}

fn passes(fq: &mut Fq, packets: &PacketList, cx: &mut Cx) -> bool {
    let mut sum = WireSum::default();
    packets.iter().for_each(|packet| sum.add(packet));
    let before = (*fq.stats(), fq.xstats.value(Xstat::FastpathPackets));
    let passed = fq.try_pass(packets, sum, cx.at(NOW));
    let after = (*fq.stats(), fq.xstats.value(Xstat::FastpathPackets));
    assert_eq!(passed, before != after, "what is refused changes nothing");
    passed
}

#[test]
fn a_few_that_find_nothing_queued_pass() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    assert!(passes(&mut fq, &packets(&pool, PASS), &mut cx));
    assert!(!passes(&mut fq, &packets(&pool, PASS + 1), &mut cx));
    assert_eq!((fq.stats().packets, fq.stats().bytes), (8, 800));
    assert_eq!(fq.xstats.value(Xstat::FastpathPackets), Some(8));
    assert_eq!(fq.xstats.value(Xstat::Flows), Some(0));
}

#[test]
fn nothing_overtakes_what_is_queued() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let mut fq = fq(&FqSpec::default(), &pool);
    let queued = fq.enqueue(&mut packets(&pool, 1), cx.at(NOW));
    assert_eq!(queued, Verdict::Queued);
    assert!(!passes(&mut fq, &packets(&pool, 1), &mut cx));
    let mut out = PacketList::new();
    fq.dequeue(8, &mut out, cx.at(NOW));
    assert_eq!(out.len(), 1);
    assert!(passes(&mut fq, &packets(&pool, 1), &mut cx));
}

#[test]
fn what_a_flow_or_a_limit_has_to_see_does_not_pass() {
    let pool = pool(64);
    let mut cx = Cx::new(&pool);
    let at = |time: u64| {
        let mut packets = packets(&pool, 1);
        packets.for_each_mut(|packet: &mut Packet| packet.set_departure_time(Time(time)));
        packets
    };
    let plain = FqSpec::default();
    let limited = |limit, flow_limit| FqSpec {
        limit,
        flow_limit,
        ..FqSpec::default()
    };
    let paced = FqSpec {
        maxrate: Some(1_000_000),
        ..FqSpec::default()
    };
    let unpaced = FqSpec {
        pacing: false,
        ..paced.clone()
    };
    let marks = FqSpec {
        ce_threshold: Some(Duration::from_millis(1)),
        ..FqSpec::default()
    };
    let cases = [
        ("due", &plain, at(NOW.0), true),
        ("not due", &plain, at(NOW.0 + 1), false),
        ("paced", &paced, packets(&pool, 1), false),
        ("not paced", &unpaced, packets(&pool, 1), true),
        ("limit", &limited(1, 100), packets(&pool, 2), false),
        ("flow_limit", &limited(100, 1), packets(&pool, 2), false),
        (
            "as many as may wait",
            &limited(2, 2),
            packets(&pool, 2),
            true,
        ),
        ("late", &marks, at(5 * MS), false),
        ("not timed", &marks, packets(&pool, 1), true),
    ];
    for (name, spec, packets, expected) in cases {
        assert_eq!(
            passes(&mut fq(spec, &pool), &packets, &mut cx),
            expected,
            "{name}"
        );
    }
}
