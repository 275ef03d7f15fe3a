//! The TAP driver against the kernel, in namespaces of its own: frames of all kinds, both ways.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use crate::common::*;
use softnet::mem::PacketList;
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet::tx::{Features, Sent};
use softnet::wire::{Checksum, Gso, GsoKind};
use softnet_engine::rx::{Receive, RxQueue};
use softnet_io::{Buffers, Tap};

#[test]
fn frames_cross_both_ways() {
    let buffers = buffers();
    let Some((netns, mut tap)) = device(|_| (), &buffers) else {
        return;
    };
    assert_eq!(tap.name, "t0");
    assert_eq!(
        tap.features,
        Features {
            checksum: true,
            tso4: true,
            tso6: true,
            ecn: true,
            uso: true,
            scatter_gather: true,
            mtu: 1500
        }
    );
    for address in [V4, V6] {
        for len in [0, 1, 22, 64, 65, 1400, 1452] {
            echo(&netns, &mut tap, address, len);
        }
    }
    drop(tap);
    assert_eq!(buffers.small.stats().free, 256, "a buffer was not freed");
    assert_eq!(buffers.large.unwrap().stats().free, 16);
}

#[test]
fn frames_cross_without_offload() {
    let Some((netns, mut tap)) = device(|config| config.offload = false, &buffers()) else {
        return;
    };
    let plain = Features {
        scatter_gather: true,
        ..Features::default()
    };
    assert_eq!(tap.features, plain);
    let socket = socket(&netns, V4);
    socket.send_to(&[1; 100], peer(V4)).unwrap();
    assert_eq!(receive_udp(&mut tap.rx[0]).checksum(), None);
    echo(&netns, &mut tap, V4, 1472);
}

#[test]
fn jumbo_frames_use_a_large_buffer() {
    let buffers = buffers();
    let large = buffers.large.clone().unwrap();
    let Some((netns, mut tap)) = device(|config| config.mtu = 9000, &buffers) else {
        return;
    };
    // A payload of 1751 bytes is the first whose frame, 1793 bytes, exceeds a small buffer.
    for (len, used) in [(1750, 0), (1751, 1), (8972, 1)] {
        let socket = socket(&netns, V4);
        socket.send_to(&vec![7; len], peer(V4)).unwrap();
        let packet = receive_udp(&mut tap.rx[0]);
        assert_eq!((packet.len(), packet.segments().count()), (len + 42, 1));
        // One more is posted at the next poll.
        tap.rx[0].poll(&mut Receive::new(
            1,
            Time::ZERO,
            &mut PacketList::new(),
            &DropCounters::new(),
        ));
        assert_eq!(large.stats().free, 16 - 1 - used);
        drop(packet);
        echo(&netns, &mut tap, V4, len);
        echo(&netns, &mut tap, V6, len.min(8952));
    }
}

#[test]
fn large_udp_frames_cross_in_one_piece() {
    let Some((netns, mut tap)) = device(|_| (), &buffers()) else {
        return;
    };
    for (address, header_len) in [(V4, 42), (V6, 62)] {
        let socket = send_uso(&netns, address, 60_500);
        let mut packet = receive_udp(&mut tap.rx[0]);
        assert_eq!(
            (packet.len(), packet.segments().count()),
            (60_500 + header_len, 1)
        );
        let gso = Gso {
            kind: GsoKind::Udp,
            ecn: false,
            size: 1000,
            segments: 61,
            header_len: header_len as u16,
        };
        assert_eq!(packet.gso(), Some(gso));
        let start = header_len as u16 - 8;
        assert_eq!(packet.checksum(), Some(Checksum { start, offset: 6 }));
        turn_around(packet.data_mut());
        let bytes = 60_500 + 61 * header_len as u64;
        assert_eq!(
            send(&mut tap.tx[0], packet),
            Sent {
                packets: 61,
                bytes,
                dropped: Vec::new()
            }
        );
        // The receiving socket did not ask for large datagrams, so the kernel cuts the frame.
        for i in 0..61 {
            let mut datagram = [0; 2000];
            let n = socket.recv(&mut datagram).unwrap();
            assert_eq!(n, if i == 60 { 500 } else { 1000 });
            assert!(datagram[..n].iter().all(|&b| b == i));
        }
    }
}

/// The largest send there is, which is longer than one buffer may be.
#[test]
fn the_longest_datagrams_cross() {
    for large in [None, Some(pool(4, 65_536))] {
        let buffers = Buffers {
            small: pool(256, 2048),
            large,
        };
        let Some((netns, mut tap)) = device(|_| (), &buffers) else {
            return;
        };
        let socket = send_uso(&netns, V4, 64_000);
        let mut packets = PacketList::new();
        while packets.wire_packets() < 64 {
            packets.push_back(receive_udp(&mut tap.rx[0]));
        }
        let turned = packets.into_iter().map(|mut packet| {
            turn_around(packet.data_mut());
            packet
        });
        assert_eq!(
            send(&mut tap.tx[0], turned.collect::<PacketList>()).packets,
            64
        );
        assert!((0..64).all(|_| socket.recv(&mut [0; 2000]).unwrap() == 1000));
        // And in one datagram of many IP fragments.
        set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
        socket.send_to(&[1; 65_507], peer(V4)).unwrap();
        receive(&mut tap.rx[0], &DropCounters::new(), |packets, drops, _| {
            assert_eq!(drops.total(), 0);
            let fragments = packets
                .iter()
                .map(bytes)
                .filter(|b| b[12..14] == [8, 0] && b[23] == 17);
            fragments.map(|b| b.len() - 34).sum::<usize>() == 65_515
        });
    }
}

#[test]
fn without_large_buffers_a_large_frame_is_a_chain_of_small_ones() {
    let buffers = Buffers {
        small: pool(64, 2048),
        large: None,
    };
    let Some((netns, mut tap)) = device(|_| (), &buffers) else {
        return;
    };
    let socket = send_uso(&netns, V4, 40_000);
    let mut packet = receive_udp(&mut tap.rx[0]);
    // 1792 bytes, then 1984 each.
    assert_eq!((packet.len(), packet.segments().count()), (40_042, 21));
    let frame = bytes(&packet);
    assert!((0..40_000).all(|i| frame[42 + i] == (i / 1000) as u8));
    turn_around(packet.data_mut());
    assert_eq!(send(&mut tap.tx[0], packet).packets, 40);
    let mut datagram = [0; 2000];
    for i in 0..40 {
        assert_eq!(socket.recv(&mut datagram).unwrap(), 1000);
        assert!(datagram[..1000].iter().all(|&b| b == i));
    }
    drop(tap);
    assert_eq!(buffers.small.stats().free, 64);
}

#[test]
fn a_frame_with_its_checksum_missing_is_completed_by_the_kernel() {
    let Some((netns, mut tap)) = device(|_| (), &buffers()) else {
        return;
    };
    let socket = socket(&netns, V4);
    socket.send_to(b"partial", peer(V4)).unwrap();
    let mut packet = receive_udp(&mut tap.rx[0]);
    assert_eq!(
        packet.checksum(),
        Some(Checksum {
            start: 34,
            offset: 6
        })
    );
    turn_around(packet.data_mut());
    let (partial, mut wrong) = (packet.copy(&pool(4, 2048)).unwrap(), packet);
    // Without the note, the pseudo-header's sum in the field is just a wrong checksum, which the
    // receiver refuses.
    wrong.set_checksum(None);
    send(&mut tap.tx[0], wrong);
    send(&mut tap.tx[0], partial);
    let mut data = [0; 16];
    assert_eq!(socket.recv(&mut data).unwrap(), 7);
    socket.set_nonblocking(true).unwrap();
    assert!(
        socket.recv(&mut data).is_err(),
        "the frame with a wrong checksum was delivered"
    );
}

#[test]
fn a_tcp_stream_sends_large_frames() {
    let Some(netns) = namespace() else { return };
    // Two devices in one pair of namespaces, joined by hand: enough of a switch for one
    // connection.
    let Some(other) = namespace() else { return };
    let mut far_config = config(&other);
    far_config.addresses = vec![format!("{PEER4}/24").parse().unwrap()];
    let mut near = Tap::open(&config(&netns), &buffers()).unwrap();
    far_config.mac = None;
    let mut far = Tap::open(&far_config, &buffers()).unwrap();
    let listener = other
        .run(|| TcpListener::bind((PEER4, 9000)))
        .unwrap()
        .unwrap();
    let total = 4 << 20;
    let reader = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let writer = std::thread::spawn(move || {
        let mut stream = netns
            .run(|| TcpStream::connect((PEER4, 9000)))
            .unwrap()
            .unwrap();
        stream.write_all(&vec![1; total]).unwrap();
    });
    let mut largest = (0, None, 0);
    let drops = DropCounters::new();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !reader.is_finished() {
        assert!(std::time::Instant::now() < end, "the connection is stuck");
        let mut packets = PacketList::new();
        near.rx[0].poll(&mut Receive::new(64, Time::ZERO, &mut packets, &drops));
        for packet in &packets {
            if packet.len() > largest.0 {
                largest = (packet.len(), packet.gso(), packet.segments().count());
            }
        }
        assert_eq!(send(&mut far.tx[0], packets.take()).dropped, []);
        far.rx[0].poll(&mut Receive::new(64, Time::ZERO, &mut packets, &drops));
        assert_eq!(send(&mut near.tx[0], packets).dropped, []);
    }
    writer.join().unwrap();
    assert_eq!(reader.join().unwrap(), total as u64);
    assert_eq!(drops.total(), 0);
    assert!(
        largest.0 > 10_000 && largest.2 == 1,
        "no large frame: {largest:?}"
    );
    assert!(
        largest.1.is_some_and(|gso| gso.kind == GsoKind::TcpV4),
        "{largest:?}"
    );
}

#[test]
fn flows_spread_over_the_queues() {
    let Some((netns, mut tap)) = device(|config| config.queues = 4, &buffers()) else {
        return;
    };
    assert_eq!((tap.rx.len(), tap.tx.len()), (4, 4));
    let sockets: Vec<_> = (0..64).map(|_| socket(&netns, V4)).collect();
    for socket in &sockets {
        socket.send_to(b"flow", peer(V4)).unwrap();
    }
    let mut seen = vec![0; 4];
    for (queue, rx) in tap.rx.iter_mut().enumerate() {
        let mut packets = PacketList::new();
        while rx
            .poll(&mut Receive::new(
                64,
                Time::ZERO,
                &mut packets,
                &DropCounters::new(),
            ))
            .more
        {}
        assert!(
            packets
                .iter()
                .all(|packet| packet.queue() == Some(queue as u16))
        );
        seen[queue] = packets.iter().filter(|packet| is_udp(packet)).count();
        for mut packet in packets.into_iter().filter(is_udp) {
            turn_around(packet.data_mut());
            send(&mut tap.tx[queue], packet);
        }
    }
    assert_eq!(seen.iter().sum::<usize>(), 64);
    assert!(
        seen.iter().filter(|&&n| n > 0).count() > 1,
        "all flows on one queue: {seen:?}"
    );
    for socket in sockets {
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 4);
    }
}

/// Devices that somebody else made stay as they were, and go on when the port is closed.
#[test]
fn a_device_of_somebody_else_is_used_and_stays() {
    use std::process::Command;

    use softnet_io::tap::OpenError;
    use softnet_io::{Links, TapConfig, TapSource};

    let Some(netns) = namespace() else { return };
    let ip = |arguments: &str| {
        let run = || Command::new("ip").args(arguments.split(' ')).output();
        netns.run(run).unwrap()
    };
    if ip("-V").is_err() {
        return skip("needs iproute2");
    }
    let ip = |arguments: &str| {
        let output = ip(arguments).unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    ip("tuntap add dev t0 mode tap user nobody");
    ip("tuntap add dev t1 mode tap multi_queue");
    for name in ["t0", "t1"] {
        ip(&format!(
            "link set {name} address 02:00:00:00:00:01 mtu 1400"
        ));
    }
    let open = |name: &str, queues, source| {
        let config = TapConfig {
            netns: Some(netns.clone()),
            mac: None,
            queues,
            mtu: 9000,
            source,
            ..TapConfig::new(name)
        };
        Tap::open(&config, &buffers())
    };
    for (name, queues) in [("t0", 1), ("t1", 1), ("t1", 2)] {
        ip(&format!("addr flush dev {name}"));
        ip(&format!("addr add {V4} dev {name}"));
        ip(&format!("link set {name} up"));
        let mut tap = open(name, queues, TapSource::Attach).unwrap();
        let state = softnet_engine::Link::state(&*tap.link);
        assert_eq!((state.up, state.mtu), (true, Some(1400)));
        let link = ip(&format!("link show {name}"));
        assert!(
            link.contains("02:00:00:00:00:01") && link.contains("mtu 1400"),
            "{link}"
        );
        if queues == 1 {
            neighbours(&netns, &tap);
            echo(&netns, &mut tap, V4, 1000);
            let again = open(name, 1, TapSource::Attach);
            assert_eq!(again.is_err(), name == "t0", "in use");
        }
        drop(tap);
        ip(&format!("link set {name} down"));
    }
    assert!(matches!(
        open("t0", 2, TapSource::Attach),
        Err(OpenError::OtherKind(name)) if name == "t0"
    ));
    assert!(matches!(
        open("t9", 1, TapSource::Attach),
        Err(OpenError::Missing(name)) if name == "t9"
    ));
    assert!(matches!(
        open("lo", 1, TapSource::Attach),
        Err(OpenError::OtherKind(_))
    ));
    let links = netns.run(Links::open).unwrap().unwrap();
    assert!(links.index("t9").is_err(), "it was made");
    // A file of this process that is none.
    let file = std::fs::File::open("/dev/null").unwrap();
    for number in [-1, 0, 2, 9999, std::os::fd::AsRawFd::as_raw_fd(&file)] {
        assert!(matches!(
            open("t0", 1, TapSource::File(number)),
            Err(OpenError::BadFile(_))
        ));
    }
}
