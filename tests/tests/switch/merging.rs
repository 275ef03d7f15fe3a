//! Datagrams that leave together are merged into large frames on transmit. The receiver, which
//! never asked for that, gets them as they were sent.

use std::net::UdpSocket;

use etherparse::PacketBuilder;
use softnet::wire::VnetHeader;
use softnet_tc::{QdiscSpec, TbfSpec};
use softnet_tests::raw::PacketSocket;
use softnet_tests::traffic::{Flow, is_silent, pattern, receive};
use softnet_tests::{Lan, counters, wait_for};

/// Lets nothing pass but the first packet of at most 2000 bytes.
fn dam() -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate: 1,
        burst: 2000,
        limit: 10 << 20,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    })
}

/// Runs `send`, holds back what it sends until the port of host 1 has seen `packets` of it (the
/// dam lets a few pass), and lets all go at once.
fn at_once(lan: &Lan, packets: u64, send: impl FnOnce()) {
    lan.set_qdisc(1, &dam());
    let seen = || {
        let port = lan.port(1);
        port.queued + port.tx_packets
    };
    let before = seen();
    send();
    wait_for("all packets to wait", || seen() >= before + packets);
    lan.set_qdisc(1, &QdiscSpec::Pfifo { limit: 1000 });
    lan.settle();
}

/// Sizes of a flow's datagrams: equal ones, shorter ones that end a large frame, longer ones that
/// begin another, very short and long ones.
fn sizes(flow: usize) -> Vec<usize> {
    let period: &[usize] = match flow {
        0 => &[100, 100, 100, 50, 100, 100, 200, 100, 1, 1, 1, 0, 1],
        1 => &[1000, 1000, 1000, 1000, 999, 1400, 1400, 3, 1400],
        _ => &[512, 513, 512, 512, 64, 64, 64],
    };
    period.iter().copied().cycle().take(100).collect()
}

fn datagram(flow: usize, number: usize, len: usize) -> Vec<u8> {
    pattern((flow * 1000 + number) as u64, len)
}

#[test]
fn merged_datagrams_arrive_as_they_were_sent() {
    for offload in [[true, true], [false, true], [true, false]] {
        let Some(lan) = Lan::pair(offload, 1500) else {
            return;
        };
        let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
        for v6 in [false, true] {
            let flows: Vec<Flow> = (0..3).map(|_| Flow::open(a, b, v6)).collect();
            // Neighbours are found before.
            flows.iter().for_each(|flow| flow.echo(10));
            let sent: Vec<Vec<Vec<u8>>> = (0..flows.len())
                .map(|flow| {
                    let sizes = sizes(flow).into_iter().enumerate();
                    sizes.map(|(n, len)| datagram(flow, n, len)).collect()
                })
                .collect();
            let before = (counters::interface(b).rx_packets, lan.port(1).tx_packets);
            at_once(&lan, 300, || {
                for number in 0..100 {
                    for (flow, sent) in flows.iter().zip(&sent) {
                        flow.a.send(&sent[number]).expect("sending");
                    }
                }
            });
            for (flow, sent) in flows.iter().zip(&sent) {
                sent.iter().for_each(|datagram| receive(&flow.b, datagram));
                assert!(is_silent(&flow.b), "a datagram too many");
            }
            let frames = counters::interface(b).rx_packets - before.0;
            let packets = lan.port(1).tx_packets - before.1;
            assert!(packets >= 300, "{packets}");
            if offload[1] {
                assert!(
                    frames < packets * 3 / 4,
                    "{packets} datagrams in {frames} frames"
                );
            } else {
                assert!(
                    frames >= 300,
                    "a port without offload got large frames: {frames}"
                );
            }
        }
        assert_eq!(counters::checksum_errors(b), 0);
        assert_eq!(lan.stop().drops(), []);
    }
}

/// A UDP frame from host 0 to host 1 as `from` would send it to `to`.
fn frame(lan: &Lan, from: &UdpSocket, to: &UdpSocket, v6: bool, payload: &[u8]) -> Vec<u8> {
    let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
    let port = |socket: &UdpSocket| socket.local_addr().expect("an address").port();
    let ethernet = PacketBuilder::ethernet2(a.mac, b.mac);
    let ip = if v6 {
        ethernet.ipv6(a.v6.octets(), b.v6.octets(), 64)
    } else {
        ethernet.ipv4(a.v4.octets(), b.v4.octets(), 64)
    };
    let mut frame = Vec::new();
    ip.udp(port(from), port(to))
        .write(&mut frame, payload)
        .expect("a frame");
    frame
}

/// The receiving kernel verifies checksums, and Softnet neither repairs a wrong one nor lets it
/// hide among merged datagrams.
#[test]
fn a_wrong_checksum_stays_wrong() {
    for offload in [[true, true], [true, false], [false, false]] {
        let Some(lan) = Lan::pair(offload, 1500) else {
            return;
        };
        let (a, b) = (&lan.hosts[0], &lan.hosts[1]);
        for (v6, protocol) in [(false, "Udp"), (true, "Udp6")] {
            let flow = Flow::open(a, b, v6);
            flow.echo(10);
            let socket = PacketSocket::open(a, 0);
            let good = |n: u64| frame(&lan, &flow.a, &flow.b, v6, &pattern(n, 300));
            let mut wrong_sum = good(3);
            let at = if v6 { 14 + 40 } else { 14 + 20 } + 6;
            wrong_sum[at] ^= 0x10;
            let mut wrong_data = good(5);
            *wrong_data.last_mut().expect("a byte") ^= 1;
            let frames = [good(1), good(2), wrong_sum, good(4), wrong_data, good(6)];
            at_once(&lan, 6, || {
                for frame in &frames {
                    socket
                        .send(VnetHeader::default(), frame)
                        .expect("sending a frame");
                }
            });
            for n in [1, 2, 4, 6] {
                receive(&flow.b, &pattern(n, 300));
            }
            assert!(
                is_silent(&flow.b),
                "a datagram with a wrong checksum was accepted"
            );
            assert_eq!(counters::protocol(b, protocol, "InCsumErrors"), 2);
        }
        assert_eq!(lan.stop().drops(), []);
    }
}
