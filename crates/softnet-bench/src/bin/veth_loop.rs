//! The least that a user-space switch between two interfaces does: for each direction a loop of
//! `recv` and `send` on packet sockets with virtio-net headers. A baseline of case `veth`.
//!
//! `veth_loop INTERFACE INTERFACE`

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice};

fn option(socket: &OwnedFd, name: libc::c_int) -> io::Result<()> {
    let one: libc::c_int = 1;
    // SAFETY: the option's value is an int, which lives through the call.
    let done = unsafe {
        let value = (&raw const one).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, name, value, 4)
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// All frames that arrive at an interface.
fn open(interface: &str) -> io::Result<OwnedFd> {
    const IGNORE_OUTGOING: libc::c_int = 23;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    option(&socket, libc::PACKET_VNET_HDR)?;
    option(&socket, IGNORE_OUTGOING)?;
    set_socket_recv_buffer_size_force(&socket, 4 << 20)?;
    let index = netdevice::name_to_index(&socket, interface)?;
    // SAFETY: plain data, for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the kernel reads one `struct sockaddr_ll` of that size.
    let done = unsafe {
        let length = size_of_val(&address) as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    if done == 0 {
        Ok(socket)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn forward(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    let mut frame = vec![0; 1 << 17];
    loop {
        let (_, n) = rustix::net::recv(from.as_fd(), &mut frame[..], RecvFlags::empty())?;
        // A frame that the other side does not take is lost, as in any switch.
        let _ = rustix::net::send(to, &frame[..n], SendFlags::empty());
    }
}

fn main() -> io::Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [one, other] = &names[..] else {
        return Err(io::Error::other("veth_loop INTERFACE INTERFACE"));
    };
    let (one, other) = (open(one)?, open(other)?);
    std::thread::scope(|scope| {
        scope.spawn(|| forward(&one, &other));
        forward(&other, &one)
    })
}
