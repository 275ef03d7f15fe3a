//! All kinds of traffic, also when there is no buffer for it.

use std::process::Command;

use softnet::stats::DropReason;
use softnet_tests::traffic::{Connection, Flow, ping};
use softnet_tests::{LanConfig, Via, counters, wait_for};

use crate::{DRIVERS, lan, port};

#[test]
fn all_traffic_arrives() {
    use Via::{AfPacket, AfXdp, Tap};
    for (ends, mtu) in [
        ([(AfPacket, 1), (AfPacket, 1)], 1500),
        ([(AfPacket, 1), (Tap, 1)], 1500),
        ([(AfPacket, 3), (AfPacket, 2)], 1500),
        ([(AfPacket, 1), (AfPacket, 1)], 9000),
        ([(AfXdp, 1), (AfXdp, 1)], 1500),
        ([(AfXdp, 1), (Tap, 1)], 1500),
        ([(AfXdp, 2), (AfPacket, 1)], 1500),
        ([(AfXdp, 3), (AfXdp, 2)], 1500),
    ] {
        let longest = |config: &mut LanConfig| {
            for host in &mut config.hosts {
                host.mtu = mtu;
            }
        };
        let Some(lan) = lan(&ends, longest) else {
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
            let port = || lan.port(number);
            match ends[0].0 {
                AfXdp => assert!(port().tx_packets > 5 * 1024, "{:?}", port()),
                // Large frames crossed in one piece.
                _ => {
                    let frames = counters::interface(host).tx_packets;
                    wait_for("large frames", || port().rx_packets > frames + 100);
                }
            }
        }
        if ends[0].0 == AfXdp {
            let status = port(&lan, 0).status.unwrap_or_default();
            assert!(status.starts_with("copy mode, native XDP"), "{status}");
        }
        // Before the other host's interface is up, hosts say things by themselves.
        let drops = lan.stop().drops();
        let early = |&(reason, count)| reason == DropReason::DeviceDown && count < 100;
        assert!(drops.iter().all(early), "{drops:?}");
    }
}

/// The interface is as it was when the port is closed: no program, and promiscuous in between
/// alone; and the host that it belongs to hears of nothing.
#[test]
fn the_interface_stays_as_it_was() {
    for via in DRIVERS {
        let Some(lan) = lan(&[(via, 1); 2], |_| ()) else {
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
        assert_eq!(open.contains("prog/xdp"), via == Via::AfXdp, "{open}");
        Flow::open(&lan.hosts[0], &lan.hosts[1], false).echo(100);
        let keep = lan.hosts[0].netns.clone();
        lan.stop();
        // A program that another test starts has the files for a moment.
        wait_for("the interface to be as it was", || {
            let closed = show();
            match via {
                Via::AfXdp => closed.contains("promiscuity 0") && !closed.contains("xdp id"),
                _ => closed == open.replace("promiscuity 1", "promiscuity 0"),
            }
        });
        drop(keep);
    }
}

/// A pool that is used up by what waits for one host: frames are dropped, none of the queues of
/// `af_xdp` is stuck, and every buffer comes back.
#[test]
fn an_exhausted_pool_recovers() {
    let few = |config: &mut LanConfig| (config.buffers, config.large) = (512, 0);
    let hosts = [(Via::AfXdp, 1), (Via::AfXdp, 1), (Via::Tap, 1)];
    let Some(lan) = lan(&hosts, few) else {
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
