//! Sending and receiving on a redirected socket.
//!
//! Names are the difference to a Unix socket: a program names the kernel as the receiver, and
//! expects it as the sender.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{from_mut, null_mut};

use super::c::{self, Iovec, Mmsghdr, Msghdr, SockaddrNl, Socklen, Timespec, checked, real};
use super::route::Route;

/// The kernel's address.
const KERNEL: SockaddrNl = SockaddrNl {
    family: c::AF_NETLINK as u16,
    pad: 0,
    pid: 0,
    groups: 0,
};

/// Reads an address that a program passes.
///
/// # Safety
/// `address` is null or has `len` bytes.
pub(crate) unsafe fn read_name(address: *const c_void, len: Socklen) -> Result<SockaddrNl, c_int> {
    if address.is_null() || (len as usize) < size_of::<SockaddrNl>() {
        return Err(c::EINVAL);
    }
    // SAFETY: it has the bytes, and any bytes make an address. It may lie anywhere.
    let address: SockaddrNl = unsafe { address.cast::<SockaddrNl>().read_unaligned() };
    if c_int::from(address.family) == c::AF_NETLINK {
        Ok(address)
    } else {
        Err(c::EINVAL)
    }
}

/// Gives a program the address of `port`, cut to the room it has, and its full length.
///
/// # Safety
/// `len` is null or valid, and `address` has the bytes that it says.
pub(crate) unsafe fn write_name(
    port: u32,
    address: *mut c_void,
    len: *mut Socklen,
) -> Result<(), c_int> {
    if address.is_null() || len.is_null() {
        return Err(c::EFAULT);
    }
    let name = SockaddrNl {
        pid: port,
        ..KERNEL
    };
    // SAFETY: no more is written than `address` has room for.
    unsafe {
        let room = (*len as usize).min(size_of::<SockaddrNl>());
        address
            .cast::<u8>()
            .copy_from_nonoverlapping((&raw const name).cast(), room);
        *len = size_of::<SockaddrNl>() as Socklen;
    }
    Ok(())
}

/// sendmsg(2). Only the daemon can be written to.
///
/// # Safety
/// As the C function.
pub(crate) unsafe fn send(
    mut route: Route,
    message: *const Msghdr,
    flags: c_int,
) -> Result<isize, c_int> {
    // SAFETY: the caller's message is valid.
    let mut message = unsafe { *message };
    if !message.name.is_null() && message.namelen != 0 {
        // SAFETY: its name has the length it says.
        let to = unsafe { read_name(message.name, message.namelen)? };
        if to.pid != 0 || to.groups != 0 {
            return Err(c::EPERM);
        }
    }
    message.name = null_mut();
    message.namelen = 0;
    route.attach(0)?;
    // SAFETY: apart from its name it is the caller's. A daemon that went away is an error here,
    // not a signal: no netlink socket raises one.
    checked(unsafe { real::sendmsg(route.fd, &raw const message, flags | c::MSG_NOSIGNAL) })
}

/// send(2) and sendto(2).
///
/// # Safety
/// As the C function.
pub(crate) unsafe fn send_bytes(
    route: Route,
    bytes: (*const c_void, usize),
    flags: c_int,
    to: (*const c_void, Socklen),
) -> Result<isize, c_int> {
    let mut part = Iovec {
        base: bytes.0.cast_mut(),
        len: bytes.1,
    };
    let mut message = single(&mut part);
    message.name = to.0.cast_mut();
    message.namelen = to.1;
    // SAFETY: the message is made of the caller's memory, which is read only.
    unsafe { send(route, &raw const message, flags) }
}

/// sendmmsg(2): how many were sent, or why the first was not.
///
/// # Safety
/// As the C function.
pub(crate) unsafe fn send_many(
    mut route: Route,
    messages: *mut Mmsghdr,
    count: c_uint,
    flags: c_int,
) -> Result<c_int, c_int> {
    route.attach(0)?;
    for sent in 0..count.min(MOST) {
        // SAFETY: the caller has `count` of them.
        let message = unsafe { &mut *messages.add(sent as usize) };
        // SAFETY: the message is the caller's.
        match unsafe { send(route, &raw const message.hdr, flags) } {
            Ok(len) => message.len = len as c_uint,
            Err(why) if sent == 0 => return Err(why),
            Err(_) => return Ok(sent.cast_signed()),
        }
    }
    Ok(count.min(MOST).cast_signed())
}

/// recvmsg(2).
///
/// # Safety
/// As the C function.
pub(crate) unsafe fn receive(
    mut route: Route,
    to: *mut Msghdr,
    flags: c_int,
) -> Result<isize, c_int> {
    route.attach_to_wait(flags)?;
    // SAFETY: the caller's message is valid.
    let to = unsafe { &mut *to };
    let mut message = *to;
    message.name = null_mut();
    message.namelen = 0;
    // SAFETY: apart from its name it is the caller's. With this flag the kernel returns the
    // message's length, cut or not, and 0 only where the daemon has gone away: no message is
    // empty. No netlink socket has an end, so that is an error.
    let len = checked(unsafe { real::recvmsg(route.fd, &raw mut message, flags | c::MSG_TRUNC) })?;
    if len == 0 {
        return Err(c::ECONNRESET);
    }
    // SAFETY: the kernel has filled the caller's parts.
    if unsafe { kind(to, len) } == Some(NLMSG_OVERRUN) {
        if flags & c::MSG_PEEK != 0 {
            // The error is told once.
            // SAFETY: no bytes are asked for.
            checked(unsafe { real::recv(route.fd, null_mut(), 0, 0) })?;
        }
        return Err(c::ENOBUFS);
    }
    to.controllen = message.controllen;
    to.flags = message.flags;
    if !to.name.is_null() {
        // SAFETY: the caller's name has the length it says.
        unsafe { write_name(0, to.name, &mut to.namelen)? };
    }
    if flags & c::MSG_TRUNC != 0 {
        return Ok(len);
    }
    let parts = if to.iov.is_null() { 0 } else { to.iovlen };
    let room = (0..parts).fold(0_usize, |room, i| {
        // SAFETY: the caller has `iovlen` parts.
        room.saturating_add(unsafe { (*to.iov.add(i)).len })
    });
    Ok(len.min(isize::try_from(room).unwrap_or(isize::MAX)))
}

/// The type of a received message, if the first part has it.
///
/// # Safety
/// The first part has the bytes that it says, `len` of them filled.
unsafe fn kind(message: &Msghdr, len: isize) -> Option<u16> {
    if message.iov.is_null() || message.iovlen == 0 {
        return None;
    }
    // SAFETY: there is a first part.
    let part = unsafe { *message.iov };
    // SAFETY: it has 6 bytes.
    (len >= 6 && part.len >= 6)
        .then(|| unsafe { part.base.byte_add(4).cast::<u16>().read_unaligned() })
}

/// recv(2) and recvfrom(2).
///
/// # Safety
/// As the C function.
pub(crate) unsafe fn receive_bytes(
    route: Route,
    bytes: (*mut c_void, usize),
    flags: c_int,
    from: (*mut c_void, *mut Socklen),
) -> Result<isize, c_int> {
    let mut part = Iovec {
        base: bytes.0,
        len: bytes.1,
    };
    let mut message = single(&mut part);
    // SAFETY: the message is made of the caller's memory.
    let len = unsafe { receive(route, &raw mut message, flags)? };
    if !from.0.is_null() {
        // SAFETY: the caller's.
        unsafe { write_name(0, from.0, from.1)? };
    }
    Ok(len)
}

/// recvmmsg(2): how many were received, or why none was. As with the kernel, the timeout is looked
/// at after each.
///
/// # Safety
/// As the C function.
pub(crate) unsafe fn receive_many(
    mut route: Route,
    messages: *mut Mmsghdr,
    count: c_uint,
    mut flags: c_int,
    timeout: *mut Timespec,
) -> Result<c_int, c_int> {
    // SAFETY: the caller's, or null.
    let end = unsafe { timeout.as_ref() }.map(|timeout| now() + nanoseconds(timeout));
    route.attach_to_wait(flags)?;
    let wait_for_one = flags & c::MSG_WAITFORONE != 0;
    flags &= !c::MSG_WAITFORONE;
    let mut received = 0;
    while received < count.min(MOST) {
        // SAFETY: the caller has `count` of them.
        let message = unsafe { &mut *messages.add(received as usize) };
        // SAFETY: the message is the caller's.
        match unsafe { receive(route, &raw mut message.hdr, flags) } {
            Ok(len) => message.len = len as c_uint,
            Err(why) if received == 0 => return Err(why),
            Err(_) => break,
        }
        received += 1;
        if wait_for_one {
            flags |= c::MSG_DONTWAIT;
        }
        if end.is_some_and(|end| now() >= end) {
            break;
        }
    }
    if let Some(end) = end {
        let left = (end - now()).max(0);
        // SAFETY: it is not null, as `end` is there.
        unsafe {
            (*timeout).seconds = (left / SECOND) as _;
            (*timeout).nanoseconds = (left % SECOND) as _;
        }
    }
    Ok(received.cast_signed())
}

/// As many messages as the kernel takes in one call.
const MOST: c_uint = 1024;
/// The daemon's word for ENOBUFS: events were lost.
const NLMSG_OVERRUN: u16 = 4;
const SECOND: i128 = 1_000_000_000;

fn nanoseconds(time: &Timespec) -> i128 {
    i128::from(time.seconds) * SECOND + i128::from(time.nanoseconds)
}

fn now() -> i128 {
    let mut time = Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: `time` is valid.
    unsafe { c::clock_gettime(c::CLOCK_MONOTONIC, &mut time) };
    nanoseconds(&time)
}

/// A message of one part, without a name.
fn single(part: &mut Iovec) -> Msghdr {
    Msghdr {
        name: null_mut(),
        namelen: 0,
        iov: from_mut(part),
        iovlen: 1,
        control: null_mut(),
        controllen: 0,
        flags: 0,
    }
}
