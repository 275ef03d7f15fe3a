//! Interfaces that go down, go away and come back while packets flow.

use std::sync::atomic::{AtomicBool, Ordering};

use softnet::stats::DropReason;
use softnet_engine::PortEvent;
use softnet_tests::traffic::{Connection, Flow};
use softnet_tests::{HostConfig, Lan, LanConfig, wait_for};

/// Sends datagrams into the void until the port has counted 10 of them as dropped.
fn lose(lan: &Lan, flow: &Flow) {
    let before = lan.dropped(1, DropReason::DeviceDown);
    wait_for("packets to be dropped", || {
        // The host may say by now that its peer is unreachable.
        let _ = flow.a.send(b"lost");
        lan.dropped(1, DropReason::DeviceDown) >= before + 10
    });
}

/// Ports whose device has gone since the last call.
fn gone(lan: &Lan) -> Vec<u32> {
    let gone = |event| match event {
        PortEvent::Gone(port) => Some(port),
        PortEvent::Link(..) => None,
    };
    lan.engine
        .take_events()
        .into_iter()
        .filter_map(gone)
        .collect()
}

/// Only packets for the device that was not there were lost.
fn stop(lan: Lan) {
    let drops = lan.stop().drops();
    let reasons: Vec<_> = drops.iter().map(|d| d.0).collect();
    assert_eq!(reasons, [DropReason::DeviceDown], "{drops:?}");
}

#[test]
fn an_interface_goes_down_and_up() {
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    for _ in 0..3 {
        let flow = Flow::open(a, b, false);
        flow.echo(100);
        let index = b.index();
        b.links(|links| links.set_up(index, false).expect("taking it down"));
        lose(&lan, &flow);
        b.links(|links| links.set_up(index, true).expect("taking it up"));
        wait_for("the link", || lan.engine.stats().ports[1].link.up);
        let flow = Flow::open(a, b, false);
        flow.echo(1000);
        Connection::open(a, b, false).transfer(1, 1 << 20);
    }
    assert!(gone(&lan).is_empty(), "it was never gone");
    stop(lan);
}

/// With one queue and with several, and several times over.
#[test]
fn a_device_goes_away_and_comes_back() {
    for (workers, queues) in [(1, 1), (2, 2)] {
        let host = HostConfig {
            queues,
            ..HostConfig::default()
        };
        let config = LanConfig {
            hosts: vec![host; 2],
            workers,
            ..LanConfig::default()
        };
        let Some(lan) = Lan::build(config) else {
            return;
        };
        let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
        for _ in 0..3 {
            let flow = Flow::open(a, b, false);
            flow.echo(100);
            assert!(gone(&lan).is_empty());
            let index = b.index();
            b.links(|links| links.delete(index).expect("removing it"));
            let mut ports = Vec::new();
            wait_for("the engine to notice", || {
                ports.extend(gone(&lan));
                ports.contains(&b.port)
            });
            assert!(ports.iter().all(|port| *port == b.port), "{ports:?}");
            lose(&lan, &flow);
            lan.reopen(1);
            // What its other queues reported late is old news.
            gone(&lan);
            for v6 in [false, true] {
                Flow::open(a, b, v6).echo(1000);
                Connection::open(a, b, v6).transfer(2, 1 << 20);
                Connection::open(b, a, v6).transfer(3, 1 << 20);
            }
        }
        stop(lan);
    }
}

/// A connection outlives its interface: what is lost meanwhile is sent again.
#[test]
fn a_connection_survives_an_outage() {
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let connection = Connection::open(a, b, false);
    let up_again = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // It cannot be over before the outage.
        let done = |sent| sent >= 100 << 20 && up_again.load(Ordering::Relaxed);
        let transfer = scope.spawn(move || connection.transfer_until(4, done));
        wait_for("the transfer to begin", || lan.port(1).tx_packets > 1000);
        let index = b.index();
        b.links(|links| links.set_up(index, false).expect("taking it down"));
        wait_for("packets to be lost", || {
            lan.dropped(1, DropReason::DeviceDown) > 0
        });
        b.links(|links| links.set_up(index, true).expect("taking it up"));
        up_again.store(true, Ordering::Relaxed);
        transfer.join().expect("the transfer");
    });
    stop(lan);
}
