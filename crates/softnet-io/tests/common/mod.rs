//! Kit of the tests: skipping, namespaces, frames.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses a part of it"
)]

mod device;
mod faults;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet_engine::rx::{Polled, Receive, RxQueue};
use softnet_io::{Buffers, Links, Netns, Tap, TapConfig, TapRx};
use softnet_tests::PATIENCE;

pub(crate) use device::*;
pub(crate) use faults::*;
pub(crate) use softnet_tests::skip;

/// A fresh namespace with its loopback up; `None`, and the reason printed, where the test cannot
/// run.
pub(crate) fn namespace() -> Option<Netns> {
    if let Err(e) = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        skip(&format!("/dev/net/tun: {e}"));
        return None;
    }
    match Netns::anonymous() {
        Ok(netns) => {
            netns
                .run(|| Links::open().unwrap().loopback_up().unwrap())
                .unwrap();
            Some(netns)
        }
        Err(e) => {
            skip(&format!("{e}"));
            None
        }
    }
}

pub(crate) fn pool(buffers: usize, buffer_size: usize) -> Pool {
    Pool::new(PoolConfig {
        buffers,
        buffer_size,
    })
    .unwrap()
}

pub(crate) fn buffers() -> Buffers {
    Buffers {
        small: pool(256, 2048),
        large: Some(pool(16, 65_536)),
    }
}

/// The addresses of the kernel's end in the tests.
pub(crate) const V4: &str = "10.9.0.1/24";
pub(crate) const V6: &str = "fd09::1/64";
/// A host behind the driver; its Ethernet address comes by [`neighbours`].
pub(crate) const PEER4: &str = "10.9.0.2";
pub(crate) const PEER6: &str = "fd09::2";
pub(crate) const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A device `t0` in `netns` with addresses and a fixed Ethernet address.
pub(crate) fn config(netns: &Netns) -> TapConfig {
    TapConfig {
        netns: Some(netns.clone()),
        mac: Some(softnet::wire::EthernetAddress(MAC)),
        addresses: vec![V4.parse().unwrap(), V6.parse().unwrap()],
        ..TapConfig::new("t0")
    }
}

/// Polls until `enough` says so, waiting for the queue as a worker does.
pub(crate) fn receive(
    rx: &mut TapRx,
    drops: &DropCounters,
    mut enough: impl FnMut(&PacketList, &DropCounters, Polled) -> bool,
) -> PacketList {
    let mut packets = PacketList::new();
    let end = Instant::now() + PATIENCE;
    loop {
        let polled = rx.poll(&mut Receive::new(64, Time::ZERO, &mut packets, drops));
        if enough(&packets, drops, polled) {
            return packets;
        }
        assert!(
            Instant::now() < end,
            "nothing came: {packets:?} {drops:?} {polled:?}"
        );
        if !polled.more {
            let fd = rx.fd().unwrap();
            let timeout = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            poll(
                &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
                Some(&timeout),
            )
            .unwrap();
        }
    }
}

/// The first frame that carries UDP from the kernel's end (it sends other things by itself, as
/// every host does).
pub(crate) fn receive_udp(rx: &mut TapRx) -> Packet {
    let packets = receive(rx, &DropCounters::new(), |packets, _, _| {
        packets.iter().any(is_udp)
    });
    packets.into_iter().find(is_udp).unwrap()
}

/// UDP to port 9000 or from it, which no part of the kernel sends by itself.
pub(crate) fn is_udp(packet: &Packet) -> bool {
    let frame = bytes(packet);
    let l4 = match frame.get(12..14) {
        Some([0x08, 0x00]) if frame[23] == 17 => 34,
        Some([0x86, 0xdd]) if frame[20] == 17 => 54,
        _ => return false,
    };
    frame.get(l4 + 2..l4 + 4) == Some(&9000u16.to_be_bytes()[..])
}

/// The frame's bytes, all segments.
pub(crate) fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// A UDP socket of the kernel's end, bound to `ip`.
pub(crate) fn socket(netns: &Netns, ip: &str) -> UdpSocket {
    let ip: IpAddr = ip.split('/').next().unwrap().parse().unwrap();
    let socket = netns
        .run(|| UdpSocket::bind(SocketAddr::new(ip, 0)))
        .unwrap()
        .unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The address of the host behind the driver that belongs to `ip`'s family.
pub(crate) fn peer(ip: &str) -> SocketAddr {
    let ip = if ip.contains(':') { PEER6 } else { PEER4 };
    SocketAddr::new(ip.parse().unwrap(), 9000)
}

/// Tells the kernel's end the peer's Ethernet address, so that it need not ask.
pub(crate) fn neighbours(netns: &Netns, tap: &Tap) {
    use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage};
    use netlink_packet_route::neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
    };
    use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
    use rustix::net::{
        AddressFamily as Af, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, socket_with,
    };
    let index = tap.index;
    netns
        .run(|| {
            let socket =
                socket_with(Af::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
            rustix::net::connect(&socket, &netlink::SocketAddrNetlink::new(0, 0)).unwrap();
            for ip in [PEER4, PEER6] {
                let mut m = NeighbourMessage::default();
                m.header.ifindex = index;
                m.header.state = NeighbourState::Permanent;
                let address = match ip.parse().unwrap() {
                    IpAddr::V4(ip) => {
                        m.header.family = AddressFamily::Inet;
                        NeighbourAddress::Inet(ip)
                    }
                    IpAddr::V6(ip) => {
                        m.header.family = AddressFamily::Inet6;
                        NeighbourAddress::Inet6(ip)
                    }
                };
                m.attributes.push(NeighbourAttribute::Destination(address));
                m.attributes
                    .push(NeighbourAttribute::LinkLayerAddress(PEER_MAC.to_vec()));
                let mut m = NetlinkMessage::from(RouteNetlinkMessage::NewNeighbour(m));
                m.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
                m.finalize();
                let mut out = vec![0; m.buffer_len()];
                m.serialize(&mut out);
                rustix::net::send(&socket, &out, SendFlags::empty()).unwrap();
                let mut answer = [0u8; 1024];
                rustix::net::recv(socket.as_fd(), &mut answer[..], RecvFlags::empty()).unwrap();
                assert_eq!(answer[16..20], [0; 4], "neighbour {ip} refused");
            }
        })
        .unwrap();
}

/// Turns a UDP frame around: addresses and ports swapped. Sums over both do not change.
pub(crate) fn turn_around(frame: &mut [u8]) {
    let (ip, len) = if frame[12..14] == [0x08, 0x00] {
        (26, 4)
    } else {
        (22, 16)
    };
    let l4 = if len == 4 { 34 } else { 54 };
    for (at, len) in [(0, 6), (ip, len), (l4, 2)] {
        let (a, b) = frame[at..at + 2 * len].split_at_mut(len);
        a.swap_with_slice(b);
    }
}
