//! Failures of a TAP device, and their effects: no buffers, frames too long, refusal, removal, bad
//! configuration.

mod common;

use common::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softnet::mem::PacketList;
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet::wire::{Gso, GsoKind};
use softnet_engine::rx::{Receive, RxQueue};
use softnet_engine::{DeviceDrops, Link, LinkState};
use softnet_io::tap::OpenError;
use softnet_io::{Buffers, Links, Tap, TapConfig};

#[test]
fn frames_longer_than_the_buffers_are_cut_by_the_kernel_or_counted() {
    let buffers = Buffers {
        small: pool(256, 2048),
        large: Some(pool(4, 4096)),
    };
    let Some((netns, mut tap)) = device(|_| (), &buffers) else {
        return;
    };
    // The kernel knows the longest large frame.
    send_uso(&netns, V4, 10_000);
    let mut drops = DropCounters::new();
    let packets = receive(&mut tap.rx[0], &drops, |packets, _, _| {
        packets
            .iter()
            .filter(|p| is_udp(p))
            .map(|p| p.wire_packets())
            .sum::<u64>()
            == 10
    });
    assert!(packets.iter().all(|packet| packet.len() < 4020));
    // Somebody else raises the MTU.
    netns
        .run(|| Links::open().unwrap().set_mtu(tap.index, 9000))
        .unwrap()
        .unwrap();
    let socket = socket(&netns, V4);
    for (len, fits) in [(3977, true), (3978, false), (8000, false)] {
        socket.send_to(&vec![3; len], peer(V4)).unwrap();
        drops = DropCounters::new();
        if fits {
            assert_eq!(receive_udp(&mut tap.rx[0]).len(), len + 42);
        } else {
            receive(&mut tap.rx[0], &drops, |_, drops, _| {
                drops.get(DropReason::TooLong) > 0
            });
        }
    }
    echo(&netns, &mut tap, V4, 64);
}

#[test]
fn without_buffers_frames_are_counted_and_the_queue_recovers() {
    let buffers = Buffers {
        small: pool(4, 2048),
        large: None,
    };
    // Offload, so that a large frame is one read; no IPv6, so that the kernel sends nothing by
    // itself.
    let change = |config: &mut TapConfig| config.addresses.truncate(1);
    let Some((netns, mut tap)) = device(change, &buffers) else {
        return;
    };
    let socket = socket(&netns, V4);
    let mut drops = DropCounters::new();
    // First what the kernel sent by itself when the device came up.
    receive(&mut tap.rx[0], &drops, |_, _, polled| !polled.more);
    drops = DropCounters::new();

    let mut hoard = PacketList::new();
    while buffers.small.alloc_bulk(1, &mut hoard) == 1 {}
    let mut held = receive(&mut tap.rx[0], &drops, |packets, drops, _| {
        socket.send_to(b"x", peer(V4)).unwrap();
        packets.len() <= 4 && drops.get(DropReason::NoBuffer) >= 10
    });
    held.append(&mut hoard);
    assert_eq!(drops.total(), drops.get(DropReason::NoBuffer));

    // A large frame counts as one: nothing has looked at its header, which may claim anything.
    drops = DropCounters::new();
    send_uso(&netns, V4, 30_000);
    receive(&mut tap.rx[0], &drops, |_, drops, _| {
        drops.get(DropReason::NoBuffer) > 0
    });

    // With some buffers, but too few for the frame, too; and none is lost by that.
    drop(held);
    drops = DropCounters::new();
    send_uso(&netns, V4, 30_000);
    receive(&mut tap.rx[0], &drops, |_, drops, _| {
        drops.get(DropReason::NoBuffer) > 0
    });

    echo(&netns, &mut tap, V4, 64);
    drop(tap);
    assert_eq!(buffers.small.stats().free, 4);
}

/// Frames that find the device's queue full were never received here; the device tells of them.
#[test]
fn frames_that_find_the_queue_full_are_told() {
    let change = |config: &mut TapConfig| {
        config.addresses.truncate(1);
        config.tx_queue_len = 4;
    };
    let Some((netns, mut tap)) = device(change, &buffers()) else {
        return;
    };
    let socket = socket(&netns, V4);
    let drops = DropCounters::new();
    receive(&mut tap.rx[0], &drops, |_, _, polled| !polled.more);
    let counters = tap.rx[0].link().expect("a TAP device has a link");
    assert_eq!(counters.dropped(), DeviceDrops::default());
    for _ in 0..50 {
        socket.send_to(b"x", peer(V4)).unwrap();
    }
    let received = receive(&mut tap.rx[0], &drops, |_, _, polled| !polled.more);
    let received = received.iter().filter(|p| is_udp(p)).count() as u64;
    let dropped = counters.dropped();
    assert!(dropped.rx > 0, "{received} of 50 received");
    assert_eq!(dropped.rx + received, 50);
    drop(tap);
    assert_eq!(counters.dropped(), dropped, "the last reading stays");
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
        dropped: vec![(DropReason::DeviceDown, 3)],
        ..Sent::default()
    };
    assert_eq!(send(&mut tap.tx[0], list), expected);
    assert_eq!(copies.stats().free, 8);
    // Down is not gone.
    let polled = tap.rx[0].poll(&mut Receive::new(
        64,
        Time::ZERO,
        &mut PacketList::new(),
        &DropCounters::new(),
    ));
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
        receive(rx, &DropCounters::new(), |_, _, polled| polled.gone);
    }
    let small = pool(4, 2048);
    let mut packet = small.alloc().unwrap();
    assert!(packet.append(&[0; 60]));
    let expected = Sent {
        dropped: vec![(DropReason::DeviceDown, 1)],
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
    let Tap { rx, tx, link, .. } = tap;
    drop(rx);
    assert!(links.index("t0").is_ok());
    drop((tx, link));
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
    assert!(runt.append(&[0; 13]));
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
        (1, vec![(DropReason::DriverRefused, 5)])
    );
    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 4);
}

/// A batch that takes long ends early, so that others have their turn. No machine writes so many
/// frames in the time that one may take. The rest stays, in order.
#[test]
fn a_batch_that_takes_long_is_not_written_at_once() {
    const FRAMES: usize = 4096;
    let Some((_netns, mut tap)) = device(|_| (), &buffers()) else {
        return;
    };
    let small = pool(FRAMES, 512);
    let mut packets = PacketList::new();
    assert_eq!(small.alloc_bulk(FRAMES, &mut packets), FRAMES);
    let mut mark = 0;
    packets.for_each_mut(|packet| {
        assert!(packet.append(&[&MAC[..], &PEER_MAC, &[0x88, 0xb5], &[0; 46]].concat()));
        packet.set_mark(mark);
        mark += 1;
    });
    let mut sent = Sent::default();
    let mut batches = 1;
    while tap.tx[0].xmit(&mut packets, &mut sent) == Xmit::Busy {
        batches += 1;
        let first = packets.front().expect("it is busy with some");
        assert_eq!(u64::from(first.mark()), sent.packets);
    }
    assert!(batches > 1);
    assert!(packets.is_empty());
    let bytes = (FRAMES * 60) as u64;
    assert_eq!((sent.packets, sent.bytes), (FRAMES as u64, bytes));
    assert_eq!(small.stats().free, FRAMES);
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
        open(&|c| c.mac = Some(softnet::wire::EthernetAddress([1; 6]))),
        Err(OpenError::Configure { .. })
    ));
    let tiny = Buffers {
        small: pool(1, 2048),
        large: Some(pool(1, 1024)),
    };
    let error = Tap::open(&config(&netns), &tiny).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the MTU of the TAP device 't0' can be at most 925 with these packet buffers, not 1500"
    );
    // None of these left a device behind.
    let links = netns.run(Links::open).unwrap().unwrap();
    assert!(links.index("t0").is_err());
    assert_eq!(open(&|c| c.name = "t%d".into()).unwrap().name, "t0");
}

/// When reports are lost, older ones wait to be read; and who is privileged in the namespace can
/// send reports. Neither tells the state.
#[test]
fn lost_and_forged_reports_do_not_change_the_link() {
    let Some((netns, tap)) = device(|_| (), &buffers()) else {
        return;
    };
    let state = |up, mtu| LinkState {
        up,
        mtu: Some(mtu),
        ..LinkState::default()
    };
    assert_eq!(tap.link.state(), state(true, 1500));
    let (index, events) = (tap.index, tap.link.fd().unwrap());
    netns.run(|| forge(index)).unwrap();
    assert_eq!(tap.link.state(), state(true, 1500));
    let size = 4096;
    set_option(&events, libc::SOL_SOCKET, libc::SO_RCVBUF, size);
    let mut links = netns.run(Links::open).unwrap().unwrap();
    // Each of these says that it is up, and the buffer has no room for the last ones.
    for mtu in 1300..1400 {
        links.set_mtu(index, mtu).unwrap();
    }
    links.set_up(index, false).unwrap();
    assert_eq!(tap.link.state(), state(false, 1399));
    links.set_up(index, true).unwrap();
    assert_eq!(tap.link.state(), state(true, 1399));
}

/// However many reports wait, one look reads few; the file stays readable for the next.
#[test]
fn a_flood_of_reports_does_not_hold_the_worker() {
    let Some((netns, tap)) = device(|_| (), &buffers()) else {
        return;
    };
    let readable = || {
        let events = tap.link.fd().unwrap();
        let mut files = [PollFd::from_borrowed_fd(events, PollFlags::IN)];
        poll(&mut files, Some(&Timespec::default())).unwrap() == 1
    };
    // The kernel's own report of the device's carrier may come up to a second later, at any time.
    while readable() {
        tap.link.state();
    }
    netns
        .run(|| (0..40).for_each(|_| forge(tap.index)))
        .unwrap();
    tap.link.state();
    assert!(readable());
    softnet_tests::wait_for("the rest to be read", || {
        tap.link.state();
        !readable()
    });
}

/// Says to all who listen in the calling thread's namespace that an interface is down and has
/// another MTU.
fn forge(index: u32) {
    use netlink_packet_core::NetlinkMessage;
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};
    use rustix::net::{AddressFamily, SendFlags, SocketType, netlink, sendto, socket};
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes.push(LinkAttribute::Mtu(1));
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None).unwrap();
    let all = netlink::SocketAddrNetlink::new(0, 1);
    sendto(&socket, &bytes, SendFlags::empty(), &all).unwrap();
}
