//! Kinds of qdisc at TAP ports under what hosts really send: `cake` with its filter of
//! acknowledgments, and `netem`.

use std::time::{Duration, Instant};

use softnet::stats::DropReason;
use softnet_tc::{AckFilter, CakeSpec, NetemSpec, QdiscSpec, Xstat};
use softnet_tests::traffic::{Connection, Flow, Pinger, is_silent, receive};
use softnet_tests::{Lan, wait_for};

/// A statistic of the qdisc at a host's port, and of its tins if it has some.
fn own(lan: &Lan, host: usize, stat: Xstat) -> u64 {
    let classes = lan.engine.classes(lan.hosts[host].port);
    let xstats = classes[0].xstats.as_ref().expect("statistics of its kind");
    let all = std::iter::once(xstats).chain(xstats.parts());
    all.filter_map(|of| of.value(stat)).sum()
}

fn cake(ack_filter: AckFilter) -> QdiscSpec {
    QdiscSpec::Cake(CakeSpec {
        // An acknowledgment takes 5 ms, and others come meanwhile.
        bandwidth: Some(12_500),
        ack_filter,
        ..CakeSpec::default()
    })
}

/// `loss` is of 2^32 - 1.
fn netem(delay: Duration, loss: u32) -> QdiscSpec {
    QdiscSpec::Netem(NetemSpec {
        delay,
        loss,
        ..NetemSpec::default()
    })
}

/// The link back is hundreds of times slower. Needless acknowledgments are dropped there and
/// counted, by reason and by `cake` itself, and every byte arrives; without the filter none is.
#[test]
fn tcp_goes_on_without_needless_acknowledgments() {
    // Each packet is a frame of its own, so that there is much to acknowledge.
    let Some(lan) = Lan::pair([false, false], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    for v6 in [false, true] {
        for filter in [AckFilter::Filter, AckFilter::Aggressive] {
            let before = lan.dropped(0, DropReason::AckFilter);
            lan.set_qdisc(0, &cake(filter));
            Connection::open(a, b, v6).transfer(1, 1 << 20);
            wait_for("dropped acknowledgments to be counted", || {
                let dropped = lan.dropped(0, DropReason::AckFilter);
                dropped > before && own(&lan, 0, Xstat::AckDrops) > 0
            });
        }
        lan.set_qdisc(0, &cake(AckFilter::Off));
        Connection::open(a, b, v6).transfer(2, 1 << 17);
        lan.settle();
        assert_eq!(own(&lan, 0, Xstat::AckDrops), 0);
    }
    lan.stop();
}

/// Pings one after the other take their delay each.
#[test]
fn netem_delays_pings() {
    const DELAY: Duration = Duration::from_millis(50);
    const PINGS: u32 = 6;
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    for v6 in [false, true] {
        lan.set_qdisc(1, &QdiscSpec::default());
        let pinger = Pinger::open(&lan.hosts[0], &lan.hosts[1], v6);
        // Neighbours are found before.
        pinger.ping(56);
        // A delay counts from when the worker last looked at the clock, which may be long before
        // the packet came, on a busy machine. Behind this ping, that is not before the start.
        let start = Instant::now();
        pinger.ping(56);
        lan.set_qdisc(1, &netem(DELAY, 0));
        for _ in 0..PINGS {
            pinger.ping(56);
        }
        let took = start.elapsed();
        assert!(took >= DELAY * (PINGS - 1), "{PINGS} pings in {took:?}");
        assert!(own(&lan, 1, Xstat::Delayed) >= u64::from(PINGS));
    }
    lan.stop();
}

/// Packets that wait for their time stay, and leave in order when the delay is taken away.
#[test]
fn netem_holds_packets_until_their_time() {
    const SENT: u8 = 20;
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let flow = Flow::open(&lan.hosts[0], &lan.hosts[1], false);
    flow.echo(10);
    lan.set_qdisc(1, &netem(Duration::from_secs(3600), 0));
    for n in 0..SENT {
        flow.a.send(&[n; 100]).expect("sending");
    }
    wait_for("all to wait", || lan.port(1).queued >= u64::from(SENT));
    assert!(own(&lan, 1, Xstat::Delayed) >= u64::from(SENT));
    assert!(is_silent(&flow.b));
    lan.set_qdisc(1, &QdiscSpec::default());
    for n in 0..SENT {
        receive(&flow.b, &[n; 100]);
    }
    assert_eq!(lan.stop().drops(), []);
}

/// A loss of 100 % kills all, one way; one of 0 % kills none.
#[test]
fn netem_loses_all_or_none() {
    const SENT: u8 = 50;
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let flow = Flow::open(a, b, false);
    flow.echo(10);
    lan.set_qdisc(1, &netem(Duration::ZERO, u32::MAX));
    for n in 0..SENT {
        flow.a.send(&[n; 100]).expect("sending");
    }
    wait_for("all to be lost", || {
        lan.dropped(1, DropReason::NetemLoss) >= u64::from(SENT)
    });
    assert!(own(&lan, 1, Xstat::Dropped) >= u64::from(SENT));
    assert!(is_silent(&flow.b));
    flow.b.send(&[1; 100]).expect("sending");
    receive(&flow.a, &[1; 100]);
    lan.set_qdisc(1, &netem(Duration::ZERO, 0));
    for v6 in [false, true] {
        let pinger = Pinger::open(a, b, v6);
        (0..20).for_each(|_| pinger.ping(56));
    }
    assert_eq!(own(&lan, 1, Xstat::Dropped), 0);
    let reasons: Vec<_> = lan.stop().drops().iter().map(|d| d.0).collect();
    assert_eq!(reasons, [DropReason::NetemLoss]);
}
