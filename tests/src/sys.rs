//! System calls that have no safe wrapper.

#![allow(unsafe_code, reason = "setsockopt and bind take untyped pointers")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Sets an option whose value is one int.
pub(crate) fn set_option(socket: &impl AsRawFd, level: c_int, name: c_int, value: c_int) {
    // SAFETY: the option's value is one int, which outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(rc, 0, "setsockopt: {}", io::Error::last_os_error());
}

/// Binds a packet socket to an interface, to receive frames of one EtherType (all if 0x0003) from
/// it and to send through it.
pub(crate) fn bind_packet(socket: &OwnedFd, interface: u32, ethertype: u16) {
    // SAFETY: a plain C structure of integers, for which all zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = interface as c_int;
    // SAFETY: the kernel reads one `sockaddr_ll`, which outlives the call.
    let rc = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    assert_eq!(rc, 0, "bind: {}", io::Error::last_os_error());
}
