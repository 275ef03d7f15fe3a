//! The TAP driver against the kernel, in namespaces of its own: frames both ways, offload, limits, removal.

mod common;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use common::*;
use softnet::packet::{Checksum, Gso, GsoKind, PacketList};
use softnet::rx::RxQueue;
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::{Features, Sent, TxRing, Xmit};
use softnet_io::tap::OpenError;
use softnet_io::{Buffers, Links, Netns, Tap, TapConfig, TapTx};

/// A device with addresses and known neighbours, and its namespace.
fn device(change: impl FnOnce(&mut TapConfig), buffers: &Buffers) -> Option<(Netns, Tap)> {
    let netns = namespace()?;
    let mut config = config(&netns);
    change(&mut config);
    let tap = Tap::open(&config, buffers).unwrap();
    neighbours(&netns, &tap);
    Some((netns, tap))
}

fn send(tx: &mut TapTx, packets: impl Into<PacketList>) -> Sent {
    let mut packets = packets.into();
    let mut sent = Sent::default();
    assert_eq!(tx.xmit(&mut packets, &mut sent), Xmit::Complete);
    assert!(packets.is_empty());
    sent
}

/// Sends a payload from a socket of the kernel's end, turns the frame around in the driver, and expects the payload back.
fn echo(netns: &Netns, tap: &mut Tap, address: &str, len: usize) {
    let socket = socket(netns, address);
    let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
    socket.send_to(&payload, peer(address)).unwrap();
    let mut packet = receive_udp(&mut tap.rx[0]);
    assert!(bytes(&packet).ends_with(&payload));
    turn_around(packet.data_mut());
    let wire_len = packet.wire_len();
    assert_eq!(
        send(&mut tap.tx[0], packet),
        Sent {
            packets: 1,
            bytes: wire_len,
            dropped: None
        }
    );
    let mut back = vec![0; len + 1];
    assert_eq!(socket.recv(&mut back).unwrap(), len);
    assert_eq!(back[..len], payload);
}

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
            uso: true,
            mtu: 1500
        }
    );
    for address in [V4, V6] {
        for len in [0, 1, 22, 64, 65, 1400, 1452] {
            echo(&netns, &mut tap, address, len);
        }
    }
    drop(tap);
    assert_eq!(
        buffers.small.stats().free,
        256,
        "a buffer did not come home"
    );
    assert_eq!(buffers.large.unwrap().stats().free, 16);
}

#[test]
fn frames_cross_without_offload() {
    let Some((netns, mut tap)) = device(|config| config.offload = false, &buffers()) else {
        return;
    };
    assert_eq!(tap.features, Features::default());
    let socket = socket(&netns, V4);
    socket.send_to(&[1; 100], peer(V4)).unwrap();
    assert_eq!(receive_udp(&mut tap.rx[0]).checksum(), None);
    echo(&netns, &mut tap, V4, 1472);
}

#[test]
fn jumbo_frames_use_one_large_buffer() {
    let Some((netns, mut tap)) = device(|config| config.mtu = 9000, &buffers()) else {
        return;
    };
    // A payload of 1751 bytes is the first whose frame, 1793 bytes, exceeds a small buffer.
    for (len, segments) in [(1750, 1), (1751, 2), (8972, 2)] {
        let socket = socket(&netns, V4);
        socket.send_to(&vec![7; len], peer(V4)).unwrap();
        let packet = receive_udp(&mut tap.rx[0]);
        assert_eq!(
            (packet.len(), packet.segments().count()),
            (len + 42, segments)
        );
        echo(&netns, &mut tap, V4, len);
        echo(&netns, &mut tap, V6, len.min(8952));
    }
}

/// One `UDP_SEGMENT` send of `len` bytes in datagrams of 1000.
fn send_uso(netns: &Netns, address: &str, len: usize) -> std::net::UdpSocket {
    let socket = socket(netns, address);
    set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1000);
    let payload: Vec<u8> = (0..len).map(|i| (i / 1000) as u8).collect();
    assert_eq!(socket.send_to(&payload, peer(address)).unwrap(), len);
    socket
}

fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: i32) {
    // SAFETY: the option's value is one int, which outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            4,
        )
    };
    assert_eq!(rc, 0, "setsockopt: {}", std::io::Error::last_os_error());
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
            (60_500 + header_len, 2)
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
                dropped: None
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
    // Without the note, the pseudo-header's sum in the field is just a wrong checksum, which the receiver refuses.
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
    // Two devices in one pair of namespaces, joined by hand: enough of a switch for one connection.
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
    let mut drops = Drops::default();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !reader.is_finished() {
        assert!(std::time::Instant::now() < end, "the connection is stuck");
        let mut packets = PacketList::new();
        near.rx[0].poll(64, Time::ZERO, &mut packets, &mut drops);
        for packet in &packets {
            if packet.len() > largest.0 {
                largest = (packet.len(), packet.gso(), packet.segments().count());
            }
        }
        assert_eq!(send(&mut far.tx[0], packets.take()).dropped, None);
        far.rx[0].poll(64, Time::ZERO, &mut packets, &mut drops);
        assert_eq!(send(&mut near.tx[0], packets).dropped, None);
    }
    writer.join().unwrap();
    assert_eq!(reader.join().unwrap(), total as u64);
    assert_eq!(drops, Drops::default());
    assert!(
        largest.0 > 10_000 && largest.2 == 2,
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
            .poll(64, Time::ZERO, &mut packets, &mut Drops::default())
            .more
        {}
        assert!(packets.iter().all(|packet| packet.queue() == queue as u16));
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

#[test]
fn without_buffers_frames_are_counted_and_the_queue_recovers() {
    let buffers = Buffers {
        small: pool(4, 2048),
        large: None,
    };
    // Offload, so that a large frame is one read; no IPv6, so that the kernel sends nothing by itself.
    let change = |config: &mut TapConfig| config.addresses.truncate(1);
    let Some((netns, mut tap)) = device(change, &buffers) else {
        return;
    };
    let socket = socket(&netns, V4);
    let mut drops = Drops::default();
    // First what the kernel sent by itself when the device came up.
    receive(&mut tap.rx[0], &mut drops, |_, _, polled| !polled.more);
    drops.0.clear();

    let mut hoard = PacketList::new();
    while buffers.small.alloc_bulk(1, &mut hoard) == 1 {}
    let mut held = receive(&mut tap.rx[0], &mut drops, |packets, drops, _| {
        socket.send_to(b"x", peer(V4)).unwrap();
        packets.len() <= 4
            && drops
                .0
                .iter()
                .filter(|d| **d == (DropReason::NoBuffer, 1))
                .count()
                >= 10
    });
    held.append(&mut hoard);
    assert!(
        drops
            .0
            .iter()
            .all(|(reason, _)| *reason == DropReason::NoBuffer),
        "{drops:?}"
    );

    // A large frame counts as the packets it stands for.
    drops.0.clear();
    send_uso(&netns, V4, 30_000);
    receive(&mut tap.rx[0], &mut drops, |_, drops, _| {
        drops.0.contains(&(DropReason::NoBuffer, 30))
    });

    // With some buffers, but too few for the frame, too; and none is lost by that.
    drop(held);
    drops.0.clear();
    send_uso(&netns, V4, 30_000);
    receive(&mut tap.rx[0], &mut drops, |_, drops, _| {
        drops.0.contains(&(DropReason::NoBuffer, 30))
    });

    echo(&netns, &mut tap, V4, 64);
    drop(tap);
    assert_eq!(buffers.small.stats().free, 4);
}

#[test]
fn a_device_that_is_down_drops_and_comes_back() {
    let Some((netns, mut tap)) = device(|_| (), &buffers()) else {
        return;
    };
    let socket = socket(&netns, V4);
    socket.send_to(b"keep", peer(V4)).unwrap();
    let mut packet = receive_udp(&mut tap.rx[0]);
    turn_around(packet.data_mut());
    let copies = pool(8, 2048);
    let mut links = netns.run(Links::open).unwrap().unwrap();

    links.set_up(tap.index, false).unwrap();
    let list: PacketList = (0..3).map(|_| packet.copy(&copies).unwrap()).collect();
    let expected = Sent {
        dropped: Some((DropReason::DeviceDown, 3)),
        ..Sent::default()
    };
    assert_eq!(send(&mut tap.tx[0], list), expected);
    assert_eq!(copies.stats().free, 8);
    // Down is not gone.
    let polled = tap.rx[0].poll(
        64,
        Time::ZERO,
        &mut PacketList::new(),
        &mut Drops::default(),
    );
    assert!(!polled.gone);

    links.set_up(tap.index, true).unwrap();
    neighbours(&netns, &tap);
    assert_eq!(send(&mut tap.tx[0], packet).packets, 1);
    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 4);
}

#[test]
fn a_removed_device_is_gone() {
    let Some((netns, mut tap)) = device(|config| config.queues = 2, &buffers()) else {
        return;
    };
    let socket = socket(&netns, V4);
    socket.send_to(b"last", peer(V4)).unwrap();
    netns
        .run(|| Links::open().unwrap().delete(tap.index))
        .unwrap()
        .unwrap();
    for rx in &mut tap.rx {
        // The queue becomes readable, so that a sleeping worker learns of it.
        let fd = [rustix::event::PollFd::from_borrowed_fd(
            rx.fd().unwrap(),
            rustix::event::PollFlags::IN,
        )];
        let mut fd = fd;
        assert_eq!(rustix::event::poll(&mut fd, None).unwrap(), 1);
        receive(rx, &mut Drops::default(), |_, _, polled| polled.gone);
    }
    let small = pool(4, 2048);
    let mut packet = small.alloc().unwrap();
    packet.append(&[0; 60]);
    let expected = Sent {
        dropped: Some((DropReason::DeviceDown, 1)),
        ..Sent::default()
    };
    assert_eq!(send(&mut tap.tx[0], packet), expected);
    // The name is free again.
    assert_eq!(Tap::open(&config(&netns), &buffers()).unwrap().name, "t0");
}

#[test]
fn the_device_goes_with_its_queues() {
    let Some(netns) = namespace() else { return };
    let tap = Tap::open(&config(&netns), &buffers()).unwrap();
    let links = netns.run(Links::open).unwrap().unwrap();
    assert_eq!(links.index("t0").unwrap(), tap.index);
    let Tap { rx, tx, .. } = tap;
    drop(rx);
    assert!(links.index("t0").is_ok());
    drop(tx);
    assert!(links.index("t0").is_err());
}

#[test]
fn refused_frames_are_dropped_and_the_rest_is_sent() {
    let Some((netns, mut tap)) = device(|_| (), &buffers()) else {
        return;
    };
    let socket = socket(&netns, V4);
    socket.send_to(b"good", peer(V4)).unwrap();
    let mut good = receive_udp(&mut tap.rx[0]);
    turn_around(good.data_mut());
    let small = pool(8, 2048);
    let mut runt = small.alloc().unwrap();
    runt.append(&[0; 13]);
    // A large frame whose header claims TCP while the frame is none.
    let mut liar = good.copy(&small).unwrap();
    let gso = Gso {
        kind: GsoKind::TcpV6,
        ecn: false,
        size: 1,
        segments: 4,
        header_len: 42,
    };
    liar.set_gso(Some(gso));
    let mut list = PacketList::new();
    list.push_back(runt);
    list.push_back(liar);
    list.push_back(good);
    let sent = send(&mut tap.tx[0], list);
    assert_eq!(
        (sent.packets, sent.dropped),
        (1, Some((DropReason::DriverRefused, 5)))
    );
    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 4);
}

#[test]
fn errors_say_what_is_wrong() {
    let Some(netns) = namespace() else { return };
    let buffers = buffers();
    let open = |change: &dyn Fn(&mut TapConfig)| {
        let mut config = config(&netns);
        change(&mut config);
        Tap::open(&config, &buffers)
    };
    let first = open(&|_| ()).unwrap();
    let duplicate = open(&|_| ()).unwrap_err();
    assert!(matches!(duplicate, OpenError::Exists(_)), "{duplicate:?}");
    assert_eq!(
        duplicate.to_string(),
        "an interface named 't0' exists already in this network namespace"
    );
    // A further queue of the same device must not attach by accident either.
    assert!(matches!(open(&|c| c.queues = 2), Err(OpenError::Exists(_))));
    assert!(matches!(
        open(&|c| c.name = "lo".into()),
        Err(OpenError::Exists(_))
    ));
    drop(first);
    let multi = open(&|c| c.queues = 2).unwrap();
    assert!(matches!(open(&|c| c.queues = 2), Err(OpenError::Exists(_))));
    drop(multi);
    for name in ["", "a/b", "sixteen-letters-", "a b", "..", "x:1"] {
        assert!(
            matches!(open(&|c| c.name = name.into()), Err(OpenError::BadName(_))),
            "{name}"
        );
    }
    assert!(matches!(
        open(&|c| c.queues = 0),
        Err(OpenError::BadQueues(0))
    ));
    assert!(matches!(
        open(&|c| c.queues = 257),
        Err(OpenError::BadQueues(257))
    ));
    let bad_mtu = open(&|c| c.mtu = 10).unwrap_err();
    assert!(
        matches!(bad_mtu, OpenError::Configure { .. }),
        "{bad_mtu:?}"
    );
    assert!(matches!(
        open(&|c| c.mac = Some(softnet::packet::EthernetAddress([1; 6]))),
        Err(OpenError::Configure { .. })
    ));
    let tiny = Buffers {
        small: pool(1, 2048),
        large: Some(pool(1, 4096)),
    };
    assert!(matches!(
        Tap::open(&config(&netns), &tiny),
        Err(OpenError::BadBuffers(_))
    ));
    // None of these left a device behind.
    let links = netns.run(Links::open).unwrap().unwrap();
    assert!(links.index("t0").is_err());
    assert_eq!(open(&|c| c.name = "t%d".into()).unwrap().name, "t0");
}
