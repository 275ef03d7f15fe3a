//! Hosts whose interfaces are ends of veths, the other ends of which are ports of the driver
//! `af_packet`: all kinds of traffic, and what happens to the interface meanwhile.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use softnet::stats::DropReason;
use softnet_engine::{PortEvent, PortStats};
use softnet_tests::traffic::{Connection, Flow, ping};
use softnet_tests::{HostConfig, Lan, LanConfig, Via, counters, skip, wait_for};

/// Hosts that are joined like this, some with several queues.
fn lan(via: &[(Via, usize)], mtu: u32) -> Option<Lan> {
    if Command::new("ip").arg("-V").output().is_err() {
        skip("needs iproute2");
        return None;
    }
    let host = |&(via, queues): &(Via, usize)| HostConfig {
        via,
        queues,
        mtu,
        ..HostConfig::default()
    };
    Lan::build(LanConfig {
        hosts: via.iter().map(host).collect(),
        workers: 2,
        ..LanConfig::default()
    })
}

fn port(lan: &Lan, host: usize) -> PortStats {
    lan.engine.stats().ports[host].clone()
}

const VETH: (Via, usize) = (Via::AfPacket, 1);

#[test]
fn all_traffic_arrives() {
    for (ends, mtu) in [
        ([VETH, VETH], 1500),
        ([VETH, (Via::Tap, 1)], 1500),
        ([(Via::AfPacket, 3), (Via::AfPacket, 2)], 1500),
        ([VETH, VETH], 9000),
    ] {
        let Some(lan) = lan(&ends, mtu) else { return };
        let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
        for v6 in [false, true] {
            for len in [0, 1, 56, 1472, 1473, 20_000] {
                ping(a, b, v6, len);
                ping(b, a, v6, len);
            }
            let flow = Flow::open(a, b, v6);
            for len in [0, 1, 17, 1452, 1472, 1473, 65_507] {
                flow.echo(len);
            }
            for (len, size) in [(60_500, 1000), (61_001, 1000), (60_000, 1452), (64, 1)] {
                flow.send_segmented(len, size);
            }
            Connection::open(a, b, v6).transfer(1, 5 << 20);
            Connection::open(b, a, v6).transfer(2, 5 << 20);
        }
        lan.settle();
        for (number, host) in lan.hosts.iter().enumerate() {
            assert_eq!(counters::checksum_errors(host), 0);
            // Large frames crossed in one piece.
            let frames = counters::interface(host).tx_packets;
            let wire = || lan.port(number).rx_packets;
            wait_for("large frames", || wire() > frames + 1000);
        }
        // Before the other host's interface is up, hosts say things by themselves.
        let drops = lan.stop().drops();
        let early = |&(reason, count)| reason == DropReason::DeviceDown && count < 100;
        assert!(drops.iter().all(early), "{drops:?}");
    }
}

/// The interface is as it was when the port is closed, promiscuous in between alone, and the
/// host that it belongs to hears of nothing.
#[test]
fn the_interface_stays_as_it_was() {
    let Some(lan) = lan(&[VETH, VETH], 1500) else {
        return;
    };
    let wire = lan.hosts[0].wire.clone().expect("a veth");
    let show = || {
        let run = || {
            let show = ["-d", "link", "show", "dev", &wire.interface];
            Command::new("ip").args(show).output()
        };
        let output = wire.netns.run(run).expect("our namespace").expect("ip");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let open = show();
    assert!(open.contains("promiscuity 1"), "{open}");
    Flow::open(&lan.hosts[0], &lan.hosts[1], false).echo(100);
    let keep = lan.hosts[0].netns.clone();
    lan.stop();
    assert_eq!(show(), open.replace("promiscuity 1", "promiscuity 0"));
    drop(keep);
}

/// An interface that is down, has no carrier, or another MTU under load: its port follows, and
/// every packet is accounted for.
#[test]
fn the_interface_changes_under_load() {
    let Some(lan) = lan(&[VETH, VETH, (Via::Tap, 1)], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let wire = b.wire.as_ref().expect("a veth");
    let done = AtomicBool::new(false);
    let flow = Flow::open(a, b, false);
    flow.echo(1000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // The host may say by now that its peer is unreachable.
                let _ = flow.a.send(&[1; 1000]);
            }
        });
        let up = |expected: bool| {
            wait_for("the link to be told", || port(&lan, 1).link.up == expected);
        };
        for _ in 0..3 {
            wire.ip("link set port2 down");
            up(false);
            wire.ip("link set port2 up");
            up(true);
            // The other end of a veth is its carrier.
            b.links(|links| {
                let index = links.index("eth0").expect("the interface");
                links.set_up(index, false).expect("taking it down");
            });
            up(false);
            let before = lan.dropped(1, DropReason::DeviceDown);
            wait_for("packets to be dropped", || {
                lan.dropped(1, DropReason::DeviceDown) > before
            });
            b.links(|links| {
                let index = links.index("eth0").expect("the interface");
                links.set_up(index, true).expect("taking it up");
            });
            up(true);
            wire.ip("link set port2 mtu 1400");
            wait_for("the MTU", || port(&lan, 1).link.mtu == Some(1400));
            wire.ip("link set port2 mtu 1500");
            wait_for("the MTU", || port(&lan, 1).link.mtu == Some(1500));
        }
        done.store(true, Ordering::Relaxed);
    });
    Flow::open(a, b, false).echo_after_load(100);
    lan.stop_within(Duration::from_secs(1));
}

/// An interface that is deleted, renamed, or moved to another namespace: gone, once it is no
/// longer there, and usable again when there is one of that name.
#[test]
fn the_interface_goes_under_load() {
    let Some(lan) = lan(&[VETH, (Via::AfPacket, 2)], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let wire = b.wire.as_ref().expect("a veth");
    // One that is renamed is the same.
    Flow::open(a, b, false).echo(100);
    wire.ip("link set port2 down");
    wire.ip("link set port2 name other");
    wire.ip("link set other up");
    wait_for("the link to be up", || port(&lan, 1).link.up);
    Flow::open(a, b, false).echo(100);
    for take_down in [false, true, false] {
        let flow = Flow::open(a, b, false);
        flow.echo(100);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = flow.a.send(&[1; 1000]);
                }
            });
            let name = if wire.exists("other") {
                "other"
            } else {
                "port2"
            };
            if take_down {
                // No socket is told of what happens to it later.
                wire.ip(&format!("link set {name} down"));
                wait_for("the link to be down", || !port(&lan, 1).link.up);
            }
            lan.engine.take_events();
            wire.ip(&format!("link del {name}"));
            wait_for("the port to be gone", || {
                lan.engine.take_events().contains(&PortEvent::Gone(b.port))
            });
            done.store(true, Ordering::Relaxed);
        });
        lan.engine.close_device(b.port).expect("closing");
        b.connect_again();
        lan.reopen(1);
        b.await_addresses();
        Flow::open(a, b, false).echo_after_load(100);
    }
    lan.stop_within(Duration::from_secs(1));
}
