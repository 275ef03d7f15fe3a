//! The C functions that the program calls instead of the C library's: each looks whether the
//! socket is redirected, and passes it on if not.
//!
//! `poll`, `read`, `write`, `dup`, `close` and the like need no function here: what they do to the
//! Unix socket is what the program expects of its own.

#![allow(
    clippy::missing_safety_doc,
    unreachable_pub,
    reason = "as the C functions of these names; exported for C"
)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use core::ptr::{null, null_mut};

use super::c::{self, Mmsghdr, Msghdr, Socklen, Timespec, real, returned};
use super::message;
use super::names;
use super::refused;
use super::route::Route;

/// The result of a function: for a redirected socket `$ours`, else the C library's `$real`.
macro_rules! redirect {
    ($fd:expr, $real:expr, $route:ident => $ours:expr) => {
        match Route::of($fd) {
            // SAFETY: the program's arguments; it keeps the contract of the C function.
            None => unsafe { $real },
            // SAFETY: likewise.
            Some($route) => returned(unsafe { $ours }),
        }
    };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let plain = kind & !(c::SOCK_NONBLOCK | c::SOCK_CLOEXEC);
    let is_route = domain == c::AF_NETLINK && protocol == c::NETLINK_ROUTE;
    if is_route && (plain == c::SOCK_RAW || plain == c::SOCK_DGRAM) {
        return returned(Route::open(kind));
    }
    // SAFETY: no pointer is passed.
    unsafe { real::socket(domain, kind, protocol) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, address: *const c_void, len: Socklen) -> c_int {
    redirect!(fd, real::bind(fd, address, len), route =>
        message::read_name(address, len).and_then(|address| route.bind(address)).map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const c_void, len: Socklen) -> c_int {
    redirect!(fd, real::connect(fd, address, len), route =>
        message::read_name(address, len).and_then(|to| route.connect(to)).map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, name: *mut c_void, len: *mut Socklen) -> c_int {
    redirect!(fd, real::getsockname(fd, name, len), route =>
        route.port().and_then(|port| message::write_name(port, name, len)).map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, name: *mut c_void, len: *mut Socklen) -> c_int {
    redirect!(fd, real::getpeername(fd, name, len), _route =>
        message::write_name(0, name, len).map(|()| 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut Socklen,
) -> c_int {
    redirect!(fd, real::getsockopt(fd, level, option, value, len), route => {
        let answer = match (level, option) {
            (c::SOL_SOCKET, c::SO_DOMAIN) => Ok(c::AF_NETLINK),
            (c::SOL_SOCKET, c::SO_TYPE) => Ok(route.kind()),
            (c::SOL_NETLINK, _) => route.option(option),
            _ => return real::getsockopt(fd, level, option, value, len),
        };
        answer.and_then(|answer| {
            if value.is_null() || len.is_null() {
                return Err(c::EFAULT);
            }
            if *len < 4 {
                return Err(c::EINVAL);
            }
            value.cast::<c_int>().write_unaligned(answer);
            *len = 4;
            Ok(0)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: Socklen,
) -> c_int {
    redirect!(fd, real::setsockopt(fd, level, option, value, len), route => {
        if level != c::SOL_NETLINK {
            return real::setsockopt(fd, level, option, value, len);
        }
        if value.is_null() || len < 4 {
            Err(c::EINVAL)
        } else {
            route.set_option(option, value.cast::<u32>().read_unaligned()).map(|()| 0)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> isize {
    redirect!(fd, real::send(fd, bytes, len, flags), route =>
        message::send_bytes(route, (bytes, len), flags, (null(), 0)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
    flags: c_int,
    to: *const c_void,
    to_len: Socklen,
) -> isize {
    redirect!(fd, real::sendto(fd, bytes, len, flags, to, to_len), route =>
        message::send_bytes(route, (bytes, len), flags, (to, to_len)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const Msghdr, flags: c_int) -> isize {
    redirect!(fd, real::sendmsg(fd, message, flags), route => message::send(route, message, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut Mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    redirect!(fd, real::sendmmsg(fd, messages, count, flags), route =>
        message::send_many(route, messages, count, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, bytes: *mut c_void, len: usize, flags: c_int) -> isize {
    redirect!(fd, real::recv(fd, bytes, len, flags), route =>
        message::receive_bytes(route, (bytes, len), flags, (null_mut(), null_mut())))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut c_void,
    from_len: *mut Socklen,
) -> isize {
    redirect!(fd, real::recvfrom(fd, bytes, len, flags, from, from_len), route =>
        message::receive_bytes(route, (bytes, len), flags, (from, from_len)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut Msghdr, flags: c_int) -> isize {
    redirect!(fd, real::recvmsg(fd, message, flags), route =>
        message::receive(route, message, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut Mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut Timespec,
) -> c_int {
    redirect!(fd, real::recvmmsg(fd, messages, count, flags, timeout), route =>
        message::receive_many(route, messages, count, flags, timeout))
}

/// `recv` of programs built with `_FORTIFY_SOURCE`: the real one ends a program whose buffer is
/// smaller than it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: usize,
    room: usize,
    flags: c_int,
) -> isize {
    redirect!(fd, real::__recv_chk(fd, bytes, len, room, flags), route => {
        if len > room {
            return real::__recv_chk(fd, bytes, len, room, flags);
        }
        message::receive_bytes(route, (bytes, len), flags, (null_mut(), null_mut()))
    })
}

/// `recvfrom`, likewise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: usize,
    room: usize,
    flags: c_int,
    from: *mut c_void,
    from_len: *mut Socklen,
) -> isize {
    redirect!(fd, real::__recvfrom_chk(fd, bytes, len, room, flags, from, from_len), route => {
        if len > room {
            return real::__recvfrom_chk(fd, bytes, len, room, flags, from, from_len);
        }
        message::receive_bytes(route, (bytes, len), flags, (from, from_len))
    })
}

/// Variadic in C: on the architectures of the build script a third argument is passed as here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if refused::says(request) {
        return returned(Err(c::EOPNOTSUPP));
    }
    // SAFETY: the program's arguments; it keeps the contract of the C function.
    unsafe { real::ioctl(fd, request, argument) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn if_nametoindex(name: *const c_char) -> c_uint {
    // SAFETY: the program's string.
    let name = unsafe { CStr::from_ptr(name) };
    names::index(name.to_bytes()).unwrap_or_else(|errno| {
        c::set_errno(errno);
        0
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn if_indextoname(index: c_uint, to: *mut c_char) -> *mut c_char {
    match names::name(index) {
        Ok(name) => {
            // SAFETY: the program has room for a name.
            unsafe {
                to.cast::<u8>()
                    .copy_from_nonoverlapping(name.as_ptr(), name.len())
            };
            to
        }
        Err(errno) => {
            // The C library's error for it.
            c::set_errno(if errno == c::ENODEV { c::ENXIO } else { errno });
            null_mut()
        }
    }
}
