//! Shares of hosts and flows, and the delay of sparse flows.

use std::time::Duration;

use super::*;
use crate::qdisc::cake::Isolation;
use crate::testing::jain;

/// Bytes of each of these flows, which always have packets, in five seconds.
fn shares(isolation: Isolation, flows: &[(Ends, usize)]) -> Vec<u64> {
    let mut world = World::new(CakeSpec {
        isolation,
        rtt: Duration::from_secs(1000),
        ..limited(FAST)
    });
    let mut feed: Vec<usize> = (0..flows.len()).flat_map(|flow| [flow; 8]).collect();
    let mut bytes = vec![0; flows.len()];
    while world.cx.now.nanos() < 6 * SECOND {
        for flow in feed.drain(..) {
            world.udp(flows[flow].0, flows[flow].1, 0);
        }
        let (out, next) = world.take(1);
        for packet in out {
            let of = ends_of(&packet);
            let flow = flows.iter().position(|(ends, _)| *ends == of).unwrap();
            bytes[flow] += packet.len() as u64;
            feed.push(flow);
        }
        if let Next::At(time) = next {
            world.cx.now = time;
        }
    }
    assert_eq!(world.dropped(), 0);
    bytes
}

/// Sums by some of the ends.
fn sums<K: Ord>(flows: &[(Ends, usize)], bytes: &[u64], key: impl Fn(&Ends) -> K) -> Vec<u64> {
    let mut sums = std::collections::BTreeMap::new();
    for ((ends, _), bytes) in flows.iter().zip(bytes) {
        *sums.entry(key(ends)).or_insert(0) += bytes;
    }
    sums.into_values().collect()
}

/// Flows of different sizes have the same share.
#[test]
fn flows_are_equal() {
    let flows: Vec<_> = (0..32)
        .map(|n| {
            (
                ends(n as u8, 1, n),
                [100, 600, 1514, 1000][usize::from(n % 4)],
            )
        })
        .collect();
    let bytes = shares(Isolation::Flows, &flows);
    assert!(jain(&bytes) >= 0.999, "{bytes:?}");
}

/// Hosts have the same share, whatever the number of their flows; and so have the flows of each.
#[test]
fn hosts_are_equal() {
    let mut flows = Vec::new();
    for (host, count) in [(1, 1), (2, 2), (3, 8), (4, 24)] {
        flows.extend((0..count).map(|port| (ends(host, 9, port), 1000)));
    }
    let bytes = shares(Isolation::DualSrchost, &flows);
    let hosts = sums(&flows, &bytes, |ends| ends.source);
    assert!(jain(&hosts) >= 0.999, "{hosts:?}");
    assert!(jain(&bytes[11..]) >= 0.999, "{bytes:?}");
    // The other way round.
    let turned: Vec<_> = flows
        .iter()
        .map(|(of, len)| (ends(of.destination, of.source, of.port), *len))
        .collect();
    let bytes = shares(Isolation::DualDsthost, &turned);
    let hosts = sums(&turned, &bytes, |ends| ends.destination);
    assert!(jain(&hosts) >= 0.999, "{hosts:?}");
    // Of both ends the busier one counts, and with this one all sources talk to one host.
    let mut apart = flows.clone();
    for (of, _) in &mut apart {
        of.destination = of.source;
    }
    let bytes = shares(Isolation::Triple, &apart);
    let hosts = sums(&apart, &bytes, |ends| ends.source);
    assert!(jain(&hosts) >= 0.999, "{hosts:?}");
}

/// By addresses alone: a queue for each, whatever its flows.
#[test]
fn addresses_are_queues() {
    let mut flows = Vec::new();
    for (source, destination, count) in [(1, 5, 1), (1, 6, 2), (2, 5, 5), (3, 7, 9)] {
        flows.extend((0..count).map(|port| (ends(source, destination, port), 1000)));
    }
    let by = |isolation, key: fn(&Ends) -> (u8, u8)| {
        let sums = sums(&flows, &shares(isolation, &flows), key);
        assert!(jain(&sums) >= 0.999, "{isolation:?} {sums:?}");
    };
    by(Isolation::Srchost, |ends| (ends.source, 0));
    by(Isolation::Dsthost, |ends| (0, ends.destination));
    by(Isolation::Hosts, |ends| (ends.source, ends.destination));
}

/// Two hundred flows of one host beside one of another: half each, and no call that goes round
/// thousands of times.
#[test]
fn many_flows_of_one_host() {
    let mut world = World::new(CakeSpec {
        isolation: Isolation::DualSrchost,
        rtt: Duration::from_secs(1000),
        ..limited(FAST * 10)
    });
    let mut feed: Vec<Ends> = (0..200).flat_map(|port| [ends(1, 9, port); 2]).collect();
    feed.extend([ends(2, 9, 1); 4]);
    let mut bytes = [0; 2];
    while world.cx.now.nanos() < SECOND + 400 * MS {
        for ends in feed.drain(..) {
            world.udp(ends, 1500, 0);
        }
        let (out, next) = world.take(1);
        for packet in out {
            feed.push(ends_of(&packet));
            // Once none is new any more.
            if world.cx.now.nanos() > SECOND + 100 * MS {
                bytes[usize::from(ends_of(&packet).source) - 1] += packet.len() as u64;
            }
        }
        if let Next::At(time) = next {
            world.cx.now = time;
        }
    }
    assert!(jain(&bytes) >= 0.99, "{bytes:?}");
}

/// A sparse flow beside 128 bulk flows at 100 Mbit/s waits for a packet or two.
#[test]
fn sparse_flows_do_not_wait() {
    let mut world = World::new(limited(FAST));
    let mut feed: Vec<u16> = (0..128).flat_map(|flow| [flow; 12]).collect();
    let mut waits = Vec::new();
    let mut due = 2 * SECOND;
    while world.cx.now.nanos() < 12 * SECOND {
        for flow in feed.drain(..) {
            world.udp(ends(1, (flow % 200) as u8, flow), 1514, 0);
        }
        if world.cx.now.nanos() >= due {
            world.udp(ends(3, 250, 999), 200, 0);
            due += 10_000_000;
        }
        let (out, next) = world.take(1);
        for packet in out {
            let of = ends_of(&packet);
            if of.port == 999 {
                waits.push(world.cx.now.nanos() - packet.timestamp().nanos());
            } else {
                feed.push(of.port);
            }
        }
        if let Next::At(time) = next {
            world.cx.now = time;
        }
    }
    waits.sort_unstable();
    assert!(waits.len() > 900, "{}", waits.len());
    let p99 = waits[waits.len() * 99 / 100];
    assert!(p99 <= 5 * MS, "{p99}");
}

/// Where places of a set are free, flows do not meet; of 1024 at once few do.
#[test]
fn flows_seldom_meet() {
    let mut world = World::new(limited(FAST));
    for port in 0..500 {
        world.udp(ends(1, 2, port), 100, 0);
    }
    let ways = [Xstat::WayMisses, Xstat::WayCollisions].map(|stat| world.tin(1, stat));
    // A hash of 10 bits would have 100 collisions.
    assert!(ways[0] > 480 && ways[1] < 20, "{ways:?}");
    assert_eq!(world.tin(1, Xstat::SparseFlows), 500 - ways[1]);
    world.udp(ends(1, 2, 0), 100, 0);
    let again = [Xstat::WayMisses, Xstat::WayCollisions].map(|stat| world.tin(1, stat));
    assert_eq!(ways[0], again[0]);
}
