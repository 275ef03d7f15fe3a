//! The C library: types and constants of Linux with glibc, and the functions behind ours.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

pub(crate) const AF_UNIX: c_int = 1;
pub(crate) const AF_NETLINK: c_int = 16;
pub(crate) const NETLINK_ROUTE: c_int = 0;
pub(crate) const SOCK_DGRAM: c_int = 2;
pub(crate) const SOCK_RAW: c_int = 3;
pub(crate) const SOCK_SEQPACKET: c_int = 5;
pub(crate) const SOCK_NONBLOCK: c_int = 0o4000;
pub(crate) const SOCK_CLOEXEC: c_int = 0o2_000_000;

pub(crate) const SOL_SOCKET: c_int = 1;
pub(crate) const SO_TYPE: c_int = 3;
pub(crate) const SO_DOMAIN: c_int = 39;
pub(crate) const SO_INCOMING_CPU: c_int = 49;
pub(crate) const SOL_NETLINK: c_int = 270;

pub(crate) const MSG_PEEK: c_int = 0x2;
pub(crate) const MSG_TRUNC: c_int = 0x20;
pub(crate) const MSG_DONTWAIT: c_int = 0x40;
pub(crate) const MSG_NOSIGNAL: c_int = 0x4000;
pub(crate) const MSG_WAITFORONE: c_int = 0x10000;

pub(crate) const F_GETFD: c_int = 1;
pub(crate) const F_GETFL: c_int = 3;
pub(crate) const F_SETFL: c_int = 4;
pub(crate) const FD_CLOEXEC: c_int = 1;
pub(crate) const CLOCK_MONOTONIC: c_int = 1;

pub(crate) const EPERM: c_int = 1;
pub(crate) const EINTR: c_int = 4;
pub(crate) const ENXIO: c_int = 6;
pub(crate) const EAGAIN: c_int = 11;
pub(crate) const EFAULT: c_int = 14;
pub(crate) const ENODEV: c_int = 19;
pub(crate) const EINVAL: c_int = 22;
pub(crate) const ENAMETOOLONG: c_int = 36;
pub(crate) const EPROTO: c_int = 71;
pub(crate) const ENOPROTOOPT: c_int = 92;
pub(crate) const EOPNOTSUPP: c_int = 95;
pub(crate) const EADDRINUSE: c_int = 98;
pub(crate) const ECONNRESET: c_int = 104;
pub(crate) const ENOBUFS: c_int = 105;
pub(crate) const EISCONN: c_int = 106;
pub(crate) const ECONNREFUSED: c_int = 111;

pub(crate) type Socklen = c_uint;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iovec {
    pub(crate) base: *mut c_void,
    pub(crate) len: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Msghdr {
    pub(crate) name: *mut c_void,
    pub(crate) namelen: Socklen,
    pub(crate) iov: *mut Iovec,
    pub(crate) iovlen: usize,
    pub(crate) control: *mut c_void,
    pub(crate) controllen: usize,
    pub(crate) flags: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mmsghdr {
    pub(crate) hdr: Msghdr,
    pub(crate) len: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SockaddrNl {
    pub(crate) family: u16,
    pub(crate) pad: u16,
    pub(crate) pid: u32,
    pub(crate) groups: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SockaddrUn {
    pub(crate) family: u16,
    pub(crate) path: [u8; 108],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timespec {
    pub(crate) seconds: c_long,
    pub(crate) nanoseconds: c_long,
}

#[link(name = "c")]
#[link(name = "dl")]
unsafe extern "C" {
    pub(crate) safe fn abort() -> !;
    pub(crate) safe fn close(fd: c_int) -> c_int;
    pub(crate) safe fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    pub(crate) safe fn getpid() -> c_int;
    pub(crate) fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    pub(crate) fn getenv(name: *const c_char) -> *const c_char;
    pub(crate) fn getrandom(buffer: *mut c_void, len: usize, flags: c_uint) -> isize;
    pub(crate) fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize;
    fn __errno_location() -> *mut c_int;
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the C library's pointer to this thread's `errno` is always valid.
    unsafe { *__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above; no other thread uses it.
    unsafe { *__errno_location() = value }
}

/// The result of a C function, or `errno` where it is negative.
pub(crate) fn checked<T: PartialOrd + From<i8>>(result: T) -> Result<T, c_int> {
    if result < T::from(0) {
        Err(errno())
    } else {
        Ok(result)
    }
}

/// A result as a C function returns it.
pub(crate) fn returned<T: From<i8>>(result: Result<T, c_int>) -> T {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        T::from(-1)
    })
}

/// The address of a C function that comes after ours in the order of symbol lookup.
pub(crate) fn next(name: &core::ffi::CStr) -> *mut c_void {
    /// `RTLD_NEXT`
    const NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
    // SAFETY: `name` ends with NUL.
    let address = unsafe { dlsym(NEXT, name.as_ptr()) };
    if address.is_null() {
        abort();
    }
    address
}

/// Declares the C library's own functions, which ours replace. Each is looked up once.
macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// The function of this name behind ours.
            ///
            /// # Safety
            /// As the C function.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                use core::sync::atomic::{AtomicPtr, Ordering};
                static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                // Relaxed: the address is all there is; who finds none looks it up, too.
                let mut address = ADDRESS.load(Ordering::Relaxed);
                if address.is_null() {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the literal ends with its only NUL.
                    let name = unsafe {
                        core::ffi::CStr::from_bytes_with_nul_unchecked(name.as_bytes())
                    };
                    address = next(name);
                    ADDRESS.store(address, Ordering::Relaxed);
                }
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: the C library's function of this name has this signature.
                let function: Function = unsafe { core::mem::transmute(address) };
                // SAFETY: the caller keeps the function's contract.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

/// The functions behind ours.
pub(crate) mod real {
    use super::*;

    real! {
        socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
        ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
        bind(fd: c_int, address: *const c_void, len: Socklen) -> c_int;
        connect(fd: c_int, address: *const c_void, len: Socklen) -> c_int;
        getsockname(fd: c_int, address: *mut c_void, len: *mut Socklen) -> c_int;
        getpeername(fd: c_int, address: *mut c_void, len: *mut Socklen) -> c_int;
        getsockopt(
            fd: c_int, level: c_int, option: c_int, value: *mut c_void, len: *mut Socklen
        ) -> c_int;
        setsockopt(
            fd: c_int, level: c_int, option: c_int, value: *const c_void, len: Socklen
        ) -> c_int;
        send(fd: c_int, buffer: *const c_void, len: usize, flags: c_int) -> isize;
        sendto(
            fd: c_int, buffer: *const c_void, len: usize, flags: c_int, to: *const c_void,
            to_len: Socklen
        ) -> isize;
        sendmsg(fd: c_int, message: *const Msghdr, flags: c_int) -> isize;
        sendmmsg(fd: c_int, messages: *mut Mmsghdr, count: c_uint, flags: c_int) -> c_int;
        recv(fd: c_int, buffer: *mut c_void, len: usize, flags: c_int) -> isize;
        recvfrom(
            fd: c_int, buffer: *mut c_void, len: usize, flags: c_int, from: *mut c_void,
            from_len: *mut Socklen
        ) -> isize;
        recvmsg(fd: c_int, message: *mut Msghdr, flags: c_int) -> isize;
        recvmmsg(
            fd: c_int, messages: *mut Mmsghdr, count: c_uint, flags: c_int,
            timeout: *mut Timespec
        ) -> c_int;
        __recv_chk(
            fd: c_int, buffer: *mut c_void, len: usize, room: usize, flags: c_int
        ) -> isize;
        __recvfrom_chk(
            fd: c_int, buffer: *mut c_void, len: usize, room: usize, flags: c_int,
            from: *mut c_void, from_len: *mut Socklen
        ) -> isize;
    }
}
