//! Hosts whose interfaces are ends of veths, the other ends of which are ports of the driver
//! `af_xdp`: all kinds of traffic, and what happens to the interface meanwhile.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use softnet::stats::DropReason;
use softnet_engine::{PortEvent, PortStats};
use softnet_tests::traffic::{Connection, Flow, ping};
use softnet_tests::{HostConfig, Lan, LanConfig, Via, counters, skip, wait_for};

/// Hosts that are joined like this, some with several queues.
fn lan(via: &[(Via, usize)], change: impl FnOnce(&mut LanConfig)) -> Option<Lan> {
    for program in ["ip", "ethtool"] {
        if Command::new(program).arg("--version").output().is_err() {
            skip(&format!("needs {program}"));
            return None;
        }
    }
    if !rustix::process::geteuid().is_root() {
        skip("XDP needs root");
        return None;
    }
    let host = |&(via, queues): &(Via, usize)| HostConfig {
        via,
        queues,
        ..HostConfig::default()
    };
    let mut config = LanConfig {
        hosts: via.iter().map(host).collect(),
        workers: 2,
        ..LanConfig::default()
    };
    change(&mut config);
    Lan::build(config)
}

fn port(lan: &Lan, host: usize) -> PortStats {
    lan.engine.stats().ports[host].clone()
}

const VETH: (Via, usize) = (Via::AfXdp, 1);

#[test]
fn all_traffic_arrives() {
    for ends in [
        [VETH, VETH],
        [VETH, (Via::Tap, 1)],
        [(Via::AfXdp, 2), (Via::AfPacket, 1)],
        [(Via::AfXdp, 3), (Via::AfXdp, 2)],
    ] {
        let Some(lan) = lan(&ends, |_| ()) else {
            return;
        };
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
            // Each ring is gone round several times.
            Connection::open(a, b, v6).transfer(1, 5 << 20);
            Connection::open(b, a, v6).transfer(2, 5 << 20);
        }
        lan.settle();
        for (number, host) in lan.hosts.iter().enumerate() {
            assert_eq!(counters::checksum_errors(host), 0);
            let packets = || lan.port(number).tx_packets;
            assert!(packets() > 5 * 1024, "{}", packets());
        }
        let status = port(&lan, 0).status.unwrap_or_default();
        assert!(status.starts_with("copy mode, native XDP"), "{status}");
        // Before the other host's interface is up, hosts say things by themselves.
        let drops = lan.stop().drops();
        let early = |&(reason, count)| reason == DropReason::DeviceDown && count < 100;
        assert!(drops.iter().all(early), "{drops:?}");
    }
}

/// The interface is as it was when the port is closed: no program, and not promiscuous.
#[test]
fn the_interface_stays_as_it_was() {
    let Some(lan) = lan(&[VETH, VETH], |_| ()) else {
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
    for part in ["promiscuity 1", "prog/xdp"] {
        assert!(open.contains(part), "{open}");
    }
    Flow::open(&lan.hosts[0], &lan.hosts[1], false).echo(100);
    let keep = lan.hosts[0].netns.clone();
    lan.stop();
    let closed = show();
    assert!(closed.contains("promiscuity 0"), "{closed}");
    assert!(!closed.contains("xdp id"), "{closed}");
    drop(keep);
}

/// A pool that is used up by what waits for one host: frames are dropped, none of the queues is
/// stuck, and every buffer comes back.
#[test]
fn an_exhausted_pool_recovers() {
    let few = |config: &mut LanConfig| (config.buffers, config.large) = (512, 0);
    let Some(lan) = lan(&[VETH, VETH, (Via::Tap, 1)], few) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let pool = lan.small_buffers();
    Flow::open(a, b, false).echo(100);
    let mut held = softnet::mem::PacketList::new();
    while pool.alloc_bulk(64, &mut held) > 0 {}
    let flow = Flow::open(a, b, false);
    let dropped = || lan.dropped(0, DropReason::NoBuffer);
    wait_for("frames to find no buffer", || {
        // More at once than the buffers that are on their way.
        for _ in 0..256 {
            let _ = flow.a.send(&[1; 1000]);
        }
        dropped() > 300
    });
    drop(held);
    drop(flow);
    Flow::open(a, b, false).echo_after_load(1472);
    Connection::open(a, b, false).transfer(1, 1 << 20);
    // All buffers are free again then.
    lan.stop();
}

/// An interface that is down, has no carrier, or another MTU under load: its port follows, and
/// every packet is accounted for.
#[test]
fn the_interface_changes_under_load() {
    let Some(lan) = lan(&[VETH, VETH, (Via::Tap, 1)], |_| ()) else {
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
        let host_up = |up| {
            b.links(|links| {
                let index = links.index("eth0").expect("the interface");
                links.set_up(index, up).expect("changing it");
            });
        };
        for _ in 0..3 {
            wire.ip("link set port2 down");
            up(false);
            wire.ip("link set port2 up");
            up(true);
            // The other end of a veth is its carrier.
            host_up(false);
            up(false);
            let before = lan.dropped(1, DropReason::DeviceDown);
            wait_for("packets to be dropped", || {
                lan.dropped(1, DropReason::DeviceDown) > before
            });
            host_up(true);
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

/// An interface that is renamed or deleted: gone, once it is no longer there, and usable again
/// when there is one of that name.
#[test]
fn the_interface_goes_under_load() {
    let Some(lan) = lan(&[VETH, (Via::AfXdp, 2)], |_| ()) else {
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
            let name = match wire.exists("other") {
                true => "other",
                false => "port2",
            };
            if take_down {
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
