//! Turns GRO on for an interface, as `ethtool -K` does: by an ioctl that rustix has no name for.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// From linux/ethtool.h.
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `interface` is one of the current network namespace.
pub(super) fn enable(interface: &str) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut value = Value {
        command: ETHTOOL_SGRO,
        data: 1,
    };
    // SAFETY: ifreq is plain data, for which all zeroes is a value: an empty name, a null pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = request.ifr_name.iter_mut().zip(interface.bytes());
    // The last byte stays zero: a name that is too long is cut, and then there is no such
    // interface.
    for (to, from) in name.take(libc::IFNAMSIZ - 1) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names an interface and points at a value for its command; both live
    // through the call, and the descriptor is open.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
