//! A TAP device to test with, and traffic through it.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use softnet::mem::PacketList;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet_io::{Buffers, Netns, Tap, TapConfig, TapTx};

use super::*;

/// A device with addresses and known neighbours, and its namespace.
pub(crate) fn device(
    change: impl FnOnce(&mut TapConfig),
    buffers: &Buffers,
) -> Option<(Netns, Tap)> {
    let netns = namespace()?;
    let mut config = config(&netns);
    change(&mut config);
    let tap = Tap::open(&config, buffers).unwrap();
    neighbours(&netns, &tap);
    if config.up && config.addresses.iter().any(|a| a.ip().is_ipv6()) {
        await_route(&netns);
    }
    Some((netns, tap))
}

pub(crate) fn send(tx: &mut TapTx, packets: impl Into<PacketList>) -> Sent {
    let mut packets = packets.into();
    let mut sent = Sent::default();
    // Busy: the writes took long.
    while tx.xmit(&mut packets, &mut sent) == Xmit::Busy {}
    assert!(packets.is_empty());
    sent
}

/// Waits until the kernel takes packets for [`V6`]: it adds an IPv6 address's route some time after
/// the address, and drops until then what comes for it.
fn await_route(netns: &Netns) {
    softnet_tests::wait_for("the IPv6 address to be usable", || {
        let read = || std::fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap();
        let table = netns.run(read).unwrap();
        let route = "fd090000000000000000000000000001 80 ";
        table.lines().any(|line| line.starts_with(route))
    });
}

/// Sends a payload from a socket of the kernel's end, turns the frame around in the driver, and
/// expects the payload back.
pub(crate) fn echo(netns: &Netns, tap: &mut Tap, address: &str, len: usize) {
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
            dropped: Vec::new()
        }
    );
    let mut back = vec![0; len + 1];
    assert_eq!(socket.recv(&mut back).unwrap(), len);
    assert_eq!(back[..len], payload);
}

/// One `UDP_SEGMENT` send of `len` bytes in datagrams of 1000.
pub(crate) fn send_uso(netns: &Netns, address: &str, len: usize) -> UdpSocket {
    let socket = socket(netns, address);
    set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1000);
    let payload: Vec<u8> = (0..len).map(|i| (i / 1000) as u8).collect();
    assert_eq!(socket.send_to(&payload, peer(address)).unwrap(), len);
    socket
}

pub(crate) fn set_option(socket: &impl AsRawFd, level: i32, name: i32, value: i32) {
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
