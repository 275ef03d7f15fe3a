//! The state of a port's link: an interface that is taken down or given another MTU.

use std::process::Command;
use std::time::Duration;

use softnet::stats::DropReason;
use softnet_engine::{LinkState, PortEvent, PortStats};
use softnet_io::{Links, Netns};
use softnet_tests::traffic::Flow;
use softnet_tests::{HostConfig, Lan, LanConfig, skip, wait_for};

fn port(lan: &Lan, host: usize) -> PortStats {
    lan.engine.stats().ports[host].clone()
}

/// While an interface is down the kernel is not asked to take frames for it, the addresses behind
/// it are forgotten, and it is told in statistics and as an event; when it is up again all works
/// as before.
#[test]
fn an_interface_that_is_down_costs_no_writes() {
    let config = LanConfig {
        hosts: vec![HostConfig::default(); 3],
        ..LanConfig::default()
    };
    let Some(lan) = Lan::build(config) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let index = b.index();
    for _ in 0..3 {
        let flow = Flow::open(a, b, false);
        flow.echo(100);
        lan.engine.take_events();
        b.links(|links| links.set_up(index, false).expect("taking it down"));
        wait_for("the link to be down", || !port(&lan, 1).link.up);
        let down = PortEvent::Link(b.port, port(&lan, 1).link);
        wait_for("the event", || lan.engine.take_events().contains(&down));
        // The kernel counts what is written to an interface that is down.
        let writes = port(&lan, 1).device_drops.tx;
        let before = lan.dropped(1, DropReason::DeviceDown);
        let flooded = lan.port(2).tx_packets;
        // b is no longer known, so that c sees them.
        wait_for("packets to be dropped, and flooded", || {
            // The host may say by now that its peer is unreachable.
            let _ = flow.a.send(b"lost");
            lan.dropped(1, DropReason::DeviceDown) >= before + 20
                && lan.port(2).tx_packets >= flooded + 20
        });
        assert_eq!(port(&lan, 1).device_drops.tx, writes, "frames were written");
        b.links(|links| links.set_up(index, true).expect("taking it up"));
        wait_for("the link to be up", || port(&lan, 1).link.up);
        Flow::open(a, b, false).echo(100);
    }
    let stats = lan.stop_within(Duration::from_secs(1));
    let reasons: Vec<_> = stats.drops().iter().map(|d| d.0).collect();
    assert_eq!(reasons, [DropReason::DeviceDown]);
}

/// A changed MTU is seen.
#[test]
fn a_changed_mtu_is_seen() {
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let b = &lan.hosts[1];
    assert_eq!(port(&lan, 1).link.mtu, Some(1500));
    let index = b.index();
    for mtu in [1400, 1300, 1500] {
        b.links(|links| links.set_mtu(index, mtu).expect("another MTU"));
        let link = LinkState {
            up: true,
            mtu: Some(mtu),
            ..LinkState::default()
        };
        wait_for("the MTU", || port(&lan, 1).link == link);
        let event = PortEvent::Link(b.port, link);
        wait_for("the event", || lan.engine.take_events().contains(&event));
    }
    lan.stop();
}

/// An interface that is moved to another namespace is no longer followed: its port counts as up,
/// and sends to it there.
#[test]
fn an_interface_that_is_moved_is_sent_to() {
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    if Command::new("ip").arg("-V").output().is_err() {
        return skip("needs iproute2");
    }
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let flow = Flow::open(a, b, false);
    flow.echo(100);
    let elsewhere = Netns::anonymous().expect("a namespace");
    // A namespace is named by a process in it.
    let sleep = || Command::new("sleep").arg("60").spawn().expect("a process");
    let mut process = elsewhere.run(sleep).expect("the namespace");
    let pid = process.id().to_string();
    let moved = b.run(|| {
        let arguments = ["link", "set", "eth0", "netns", &pid];
        Command::new("ip").args(arguments).status().expect("ip")
    });
    process.kill().expect("ending the process");
    process.wait().expect("its end");
    assert!(moved.success());
    let up = || {
        let mut links = Links::open().expect("a netlink socket");
        let index = links.index("eth0").expect("the interface");
        links.set_up(index, true).expect("taking it up");
    };
    elsewhere.run(up).expect("the namespace");
    let before = lan.port(1).tx_packets;
    wait_for("packets to be sent", || {
        // The host may say by now that its peer is unreachable.
        let _ = flow.a.send(b"lost");
        lan.port(1).tx_packets >= before + 10
    });
    assert!(port(&lan, 1).link.up);
    lan.stop();
}
