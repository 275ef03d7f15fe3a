//! Two hosts, one switch: pings, TCP and UDP of all sizes arrive byte for byte, whatever the ports
//! leave to whom.

use softnet_tests::raw::{IPV4, IPV6, PacketSocket};
use softnet_tests::traffic::{Connection, Flow, ping};
use softnet_tests::{Lan, counters, wait_for};

/// Every combination of ports with and without offload.
const COMBINATIONS: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];

/// Nothing was dropped, neither by Softnet nor for a wrong checksum by a host.
fn stop_without_loss(lan: Lan) {
    for host in &lan.hosts {
        assert_eq!(counters::checksum_errors(host), 0);
        assert_eq!(counters::interface(host).rx_errors, 0);
    }
    lan.all_reads_counted();
    let stats = lan.stop();
    assert_eq!(stats.drops(), []);
}

#[test]
fn pings_come_back_unchanged() {
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    for v6 in [false, true] {
        for len in [0, 1, 56, 1400, 1472, 1473, 20_000] {
            ping(a, b, v6, len);
            ping(b, a, v6, len);
        }
    }
    stop_without_loss(lan);
}

/// Bulk both ways. The sender's kernel makes large frames where it may, and the port that takes
/// none must get none.
fn tcp(offload: [bool; 2], v6: bool) {
    const LEN: usize = 10 << 20;
    let Some(lan) = Lan::pair(offload, 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    Connection::open(a, b, v6).transfer(1, LEN);
    Connection::open(b, a, v6).transfer(2, LEN);
    lan.settle();
    for (host, offload) in offload.into_iter().enumerate() {
        let wire = || lan.port(host);
        // Waits, since a run's numbers are published at its end, and the receiver may be faster.
        wait_for("the counters to reach what was sent", || {
            wire().rx_bytes > LEN as u64 && wire().tx_bytes > LEN as u64
        });
        // Large frames count as the packets that they stand for.
        let packets = LEN as u64 / 1500;
        assert!(wire().rx_packets > packets && wire().tx_packets > packets);
        let frames = || counters::interface(&lan.hosts[host]);
        if offload {
            let sent = frames().tx_packets;
            assert!(sent < wire().rx_packets, "no large frame was sent: {sent}");
        } else {
            // Read again, since the connection's last packets may still be on their way.
            wait_for("one frame for each wire packet", || {
                let (wire, frames) = (wire(), frames());
                (frames.tx_packets, frames.rx_packets) == (wire.rx_packets, wire.tx_packets)
            });
        }
    }
    // With the default queue of 1000 frames, none of a connection's is dropped.
    stop_without_loss(lan);
}

#[test]
fn tcp_v4_arrives_with_every_offload_setting() {
    for offload in COMBINATIONS {
        tcp(offload, false);
    }
}

#[test]
fn tcp_v6_arrives_with_every_offload_setting() {
    for offload in COMBINATIONS {
        tcp(offload, true);
    }
}

#[test]
fn udp_arrives_with_every_offload_setting() {
    for offload in COMBINATIONS {
        let Some(lan) = Lan::pair(offload, 1500) else {
            return;
        };
        for v6 in [false, true] {
            let flow = Flow::open(&lan.hosts[0], &lan.hosts[1], v6);
            for len in [0, 1, 2, 17, 1000, 1452, 1471, 1472, 1473, 65_507] {
                flow.echo(len);
            }
            // One large frame, where the sender's port takes it; the last datagram is shorter, or
            // of one byte.
            for (len, size) in [
                (60_500, 1000),
                (64_000, 1000),
                (61_001, 1000),
                (60_000, 1452),
                (64, 1),
            ] {
                flow.send_segmented(len, size);
            }
        }
        stop_without_loss(lan);
    }
}

#[test]
fn jumbo_and_odd_sizes_arrive() {
    for offload in COMBINATIONS {
        let Some(lan) = Lan::pair(offload, 9000) else {
            return;
        };
        let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
        for v6 in [false, true] {
            let flow = Flow::open(a, b, v6);
            for len in [
                0, 1, 2, 17, 1471, 1472, 1473, 1750, 1751, 8951, 8952, 8953, 8971, 8972, 8973,
                65_507,
            ] {
                flow.echo(len);
            }
            flow.send_segmented(62_000, 8900);
            Connection::open(a, b, v6).transfer(3, (5 << 20) + 1);
            ping(b, a, v6, 8972);
        }
        stop_without_loss(lan);
    }
}

/// Frames reach a port without offload whole: no large frame, and no checksum left to be filled in,
/// so that the receiving kernel verifies it.
#[test]
fn a_port_without_offload_gets_complete_packets() {
    let Some(lan) = Lan::pair([true, false], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    for (v6, ethertype) in [(false, IPV4), (true, IPV6)] {
        let capture = PacketSocket::open(b, ethertype);
        Connection::open(a, b, v6).transfer(4, 1 << 20);
        Flow::open(a, b, v6).send_segmented(60_500, 1000);
        let frames = capture.drain();
        assert!(frames.len() > 700, "only {} frames were seen", frames.len());
        for (header, frame) in frames {
            assert_eq!((header.flags, header.gso_type), (0, 0));
            assert!(frame.len() <= 1514, "a frame of {} bytes", frame.len());
        }
    }
    stop_without_loss(lan);
}

/// The other way round: a port with offload gets large frames as they are, so that the tests above
/// are about two different ways.
#[test]
fn a_port_with_offload_gets_large_frames() {
    let Some(lan) = Lan::pair([true, true], 1500) else {
        return;
    };
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    for (v6, ethertype) in [(false, IPV4), (true, IPV6)] {
        let capture = PacketSocket::open(b, ethertype);
        Connection::open(a, b, v6).transfer(5, 1 << 20);
        Flow::open(a, b, v6).send_segmented(60_500, 1000);
        let frames = capture.drain();
        let kinds: Vec<u8> = frames.iter().map(|(header, _)| header.gso_type).collect();
        let tcp = if v6 { 4 } else { 1 };
        assert!(kinds.contains(&tcp) && kinds.contains(&5), "{kinds:?}");
    }
    stop_without_loss(lan);
}
