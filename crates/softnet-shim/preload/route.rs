//! A redirected socket: which it is, how it gets its port and the daemon, its options.
//!
//! It is a Unix socket of type SOCK_SEQPACKET, bound to the abstract name `\0softnet-nl/PORT` and
//! connected to the daemon. All that the library knows of it is in the socket itself, so that
//! `dup`, `fork`, `exec` and passing it to another process need nothing:
//!
//! - its port, in its name;
//! - all else, in its `SO_INCOMING_CPU`: a number that every socket has, that anybody may set and
//!   that the kernel does not use for Unix sockets. Ours have [`OURS`] in its upper half; other
//!   sockets have the number of a processor or -1 there.
//!
//! It is bound and connected when the program binds it or first uses it, as the kernel does; to
//! look for messages without waiting is no use of it. The options set before are sent to the daemon
//! then.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::{from_mut, from_ref};

use super::c::{self, SockaddrNl, SockaddrUn, Socklen, checked, real};

const OURS: u32 = 0x4e4c_0000;
const OURS_MASK: u32 = 0xffff_0000;
/// It is connected, and the daemon knows its options.
const CONNECTED: u32 = 1 << 15;
/// The program has bound it. An option that it sets before gives it a port, too.
const BOUND: u32 = 1 << 13;
/// It was made with SOCK_DGRAM, not SOCK_RAW.
const DATAGRAM: u32 = 1 << 14;

/// Options of SOL_NETLINK: those that are on or off have the bit of their number.
const ADD_MEMBERSHIP: c_int = 1;
const DROP_MEMBERSHIP: c_int = 2;
const CAP_ACK: c_int = 10;
const EXT_ACK: c_int = 11;
const GET_STRICT_CHK: c_int = 12;
const SWITCHES: [c_int; 3] = [CAP_ACK, EXT_ACK, GET_STRICT_CHK];

/// Ports that are tried.
const ATTEMPTS: usize = 64;

const PREFIX: &[u8] = b"\0softnet-nl/";

/// Kinds of messages, and flags.
const NLMSG_ERROR: u16 = 2;
/// Sets an option of another connection: port, option, value.
const SET_OPTION: u16 = 0x0f;
const REQUEST_ACK: u16 = 0x5;

/// A redirected socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) fd: c_int,
    state: u32,
}

impl Route {
    /// The socket `fd` if it is redirected. Leaves `errno` alone.
    pub(crate) fn of(fd: c_int) -> Option<Route> {
        let before = c::errno();
        let mut state = 0_u32;
        let mut len: Socklen = 4;
        // SAFETY: `state` has the 4 bytes that `len` says.
        let result = unsafe {
            let value = from_mut(&mut state).cast();
            real::getsockopt(fd, c::SOL_SOCKET, c::SO_INCOMING_CPU, value, &mut len)
        };
        c::set_errno(before);
        (result == 0 && state & OURS_MASK == OURS).then_some(Route { fd, state })
    }

    /// A new socket; `kind` is what the program gave socket(2).
    pub(crate) fn open(kind: c_int) -> Result<c_int, c_int> {
        let flags = kind & (c::SOCK_NONBLOCK | c::SOCK_CLOEXEC);
        let fd = unix_socket(flags)?;
        let mut route = Route { fd, state: OURS };
        let datagram = if kind & !flags == c::SOCK_DGRAM {
            DATAGRAM
        } else {
            0
        };
        route.set_state(OURS | datagram).inspect_err(|_| {
            c::close(fd);
        })?;
        Ok(fd)
    }

    fn set_state(&mut self, state: u32) -> Result<(), c_int> {
        // SAFETY: the value has the 4 bytes that the length says.
        checked(unsafe {
            let value = from_ref(&state).cast();
            real::setsockopt(self.fd, c::SOL_SOCKET, c::SO_INCOMING_CPU, value, 4)
        })?;
        self.state = state;
        Ok(())
    }

    /// SOCK_RAW or SOCK_DGRAM, as the program chose.
    pub(crate) fn kind(&self) -> c_int {
        if self.state & DATAGRAM == 0 {
            c::SOCK_RAW
        } else {
            c::SOCK_DGRAM
        }
    }

    /// The socket's port id; 0 before it is bound.
    pub(crate) fn port(&self) -> Result<u32, c_int> {
        let mut name = SockaddrUn {
            family: 0,
            path: [0; 108],
        };
        let mut len = size_of::<SockaddrUn>() as Socklen;
        // SAFETY: `name` has the bytes that `len` says.
        checked(unsafe { real::getsockname(self.fd, from_mut(&mut name).cast(), &mut len) })?;
        let path = name.path.get(..(len as usize).saturating_sub(2));
        let digits = path
            .and_then(|path| path.strip_prefix(PREFIX))
            .unwrap_or_default();
        Ok(digits.iter().fold(0_u32, |port, digit| {
            port.wrapping_mul(10)
                .wrapping_add(u32::from(digit.wrapping_sub(b'0')))
        }))
    }

    /// Binds it, to the port `wanted` or, where that is 0, to one that is free, and connects it.
    /// Nothing happens where that is done.
    pub(crate) fn attach(&mut self, wanted: u32) -> Result<(), c_int> {
        if self.state & CONNECTED != 0 {
            return Ok(());
        }
        // As the kernel: the process's id, then a number that is none.
        let mut port = c::getpid().cast_unsigned();
        for _ in 0..ATTEMPTS {
            if self.port()? == 0 {
                self.take_port(wanted, &mut port)?;
            }
            connect(self.fd)?;
            let mut switches = SWITCHES.iter();
            let told = switches.try_for_each(|&option| match self.state & 1 << option {
                0 => Ok(()),
                _ => self.tell(option, 1),
            });
            if !self.is_refused() {
                told?;
                return self.set_state(self.state | CONNECTED);
            }
            self.renew()?;
            if wanted != 0 {
                break;
            }
        }
        Err(c::EADDRINUSE)
    }

    /// Attaches it for a call that waits for a message. One that does not wait finds none, as with
    /// the kernel, where receiving gives no port. With a port, binding it to another one would take
    /// a new socket, and an event loop that has looked at the old one would not look at that.
    pub(crate) fn attach_to_wait(&mut self, flags: c_int) -> Result<(), c_int> {
        if self.state & CONNECTED != 0 {
            return Ok(());
        }
        // SAFETY: this command takes nothing.
        let own = checked(unsafe { c::fcntl(self.fd, c::F_GETFL) })?;
        if flags & c::MSG_DONTWAIT != 0 || own & c::SOCK_NONBLOCK != 0 {
            return Err(c::EAGAIN);
        }
        self.attach(0)
    }

    /// True if the daemon has refused the port: names are of a network namespace, and a program in
    /// another one has it. Known once an option was told: the daemon answers in the order in which
    /// it is connected to.
    fn is_refused(&self) -> bool {
        let mut reply = [0_u8; 64];
        let flags = c::MSG_PEEK | c::MSG_DONTWAIT;
        // SAFETY: the pointer is to the bytes that the length says.
        let len =
            checked(unsafe { real::recv(self.fd, reply.as_mut_ptr().cast(), reply.len(), flags) });
        let reply = len.ok().and_then(|len| reply.get(..len.cast_unsigned()));
        reply.is_some_and(|reply| {
            // An answer to no request.
            reply.get(8..12) == Some(&[0; 4])
                && kind(reply) == Some(NLMSG_ERROR)
                && error(reply) == Err(c::EADDRINUSE)
        })
    }

    /// A new socket in the place of one that the daemon has refused.
    fn renew(&mut self) -> Result<(), c_int> {
        // SAFETY: these commands take nothing.
        let (flags, own) = unsafe {
            let flags = checked(c::fcntl(self.fd, c::F_GETFL))?;
            (flags, checked(c::fcntl(self.fd, c::F_GETFD))?)
        };
        let cloexec = match own & c::FD_CLOEXEC {
            0 => 0,
            _ => c::SOCK_CLOEXEC,
        };
        let fd = unix_socket(flags & c::SOCK_NONBLOCK | c::SOCK_CLOEXEC)?;
        let mut new = Route { fd, state: 0 };
        let renewed = new.set_state(self.state);
        let renewed = renewed.and_then(|()| checked(c::dup3(fd, self.fd, cloexec)));
        c::close(fd);
        renewed.map(|_| ())
    }

    /// Takes the port `wanted` or, where that is 0, the first that is free from `next` on, which
    /// becomes the one after it.
    fn take_port(&self, wanted: u32, next: &mut u32) -> Result<(), c_int> {
        if wanted != 0 {
            return self.bind_unix(wanted);
        }
        for _ in 0..ATTEMPTS {
            let port = *next;
            // SAFETY: `next` has the 4 bytes that are asked for.
            checked(unsafe { c::getrandom(from_mut(next).cast(), 4, 0) })?;
            // Above all processes' ids, below what the daemon assigns to clients without a name.
            *next = *next >> 2 | 1 << 30;
            match self.bind_unix(port) {
                Err(c::EADDRINUSE) => {}
                result => return result,
            }
        }
        Err(c::EADDRINUSE)
    }

    fn bind_unix(&self, port: u32) -> Result<(), c_int> {
        let (name, len) = unix_name(port);
        // SAFETY: `name` has at least `len` bytes.
        let result = checked(unsafe { real::bind(self.fd, from_ref(&name).cast(), len) });
        match result {
            // Another thread was faster.
            Err(c::EINVAL) if self.port()? != 0 => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// bind(2) with an address of ours.
    pub(crate) fn bind(mut self, address: SockaddrNl) -> Result<(), c_int> {
        let port = self.port()?;
        // The kernel refuses 0, too, once the socket has a port. Here a membership gives it one,
        // which does not with the kernel.
        if port != 0 && address.pid != 0 && address.pid != port {
            if self.state & BOUND != 0 {
                return Err(c::EINVAL);
            }
            self.state &= !CONNECTED;
            self.renew()?;
        }
        self.attach(address.pid)?;
        self.set_state(self.state | BOUND)?;
        for group in 1..=32 {
            if address.groups & 1 << (group - 1) != 0 {
                self.tell(ADD_MEMBERSHIP, group)?;
            } else if port != 0 {
                self.tell(DROP_MEMBERSHIP, group)?;
            }
        }
        Ok(())
    }

    /// connect(2) with an address of ours. The daemon is all there is to connect to.
    pub(crate) fn connect(mut self, address: SockaddrNl) -> Result<(), c_int> {
        if address.pid != 0 || address.groups != 0 {
            return Err(c::EPERM);
        }
        self.attach(0)
    }

    /// setsockopt(2) of SOL_NETLINK. When it returns, the daemon has done it.
    pub(crate) fn set_option(mut self, option: c_int, value: u32) -> Result<(), c_int> {
        if !SWITCHES.contains(&option) {
            self.attach(0)?;
            return self.tell(option, value);
        }
        if self.state & CONNECTED != 0 {
            self.tell(option, value)?;
        }
        let bit = 1 << option;
        self.set_state(if value == 0 {
            self.state & !bit
        } else {
            self.state | bit
        })
    }

    /// getsockopt(2) of SOL_NETLINK.
    pub(crate) fn option(&self, option: c_int) -> Result<c_int, c_int> {
        if SWITCHES.contains(&option) {
            Ok(c_int::from(self.state & 1 << option != 0))
        } else {
            Err(c::ENOPROTOOPT)
        }
    }

    /// Has the daemon set an option of this socket: over a connection of its own, because the
    /// program may have requests under way on this one.
    fn tell(&self, option: c_int, value: u32) -> Result<(), c_int> {
        let mut request = [0_u8; 28];
        put(&mut request, 0, &28_u32.to_ne_bytes());
        put(&mut request, 4, &SET_OPTION.to_ne_bytes());
        put(&mut request, 6, &REQUEST_ACK.to_ne_bytes());
        put(&mut request, 16, &self.port()?.to_ne_bytes());
        put(&mut request, 20, &option.to_ne_bytes());
        put(&mut request, 24, &value.to_ne_bytes());
        let fd = unix_socket(c::SOCK_CLOEXEC)?;
        let mut reply = [0_u8; 256];
        let result = connect(fd).and_then(|()| ask(fd, &request, &mut reply));
        c::close(fd);
        match result? {
            reply if kind(reply) == Some(NLMSG_ERROR) => error(reply),
            _ => Err(c::EPROTO),
        }
    }
}

/// Sends a request and waits for the first message of the answer.
pub(crate) fn ask<'r>(fd: c_int, request: &[u8], reply: &'r mut [u8]) -> Result<&'r [u8], c_int> {
    // SAFETY: the pointers are to the bytes that the lengths say.
    uninterrupted(|| unsafe {
        real::send(fd, request.as_ptr().cast(), request.len(), c::MSG_NOSIGNAL)
    })?;
    // SAFETY: as above.
    let len =
        uninterrupted(|| unsafe { real::recv(fd, reply.as_mut_ptr().cast(), reply.len(), 0) })?;
    match reply.get(..len.cast_unsigned()) {
        None | Some([]) => Err(c::ECONNRESET),
        Some(reply) => Ok(reply),
    }
}

/// The type of a netlink message.
pub(crate) fn kind(message: &[u8]) -> Option<u16> {
    message.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)
}

/// The error that an NLMSG_ERROR carries.
pub(crate) fn error(message: &[u8]) -> Result<(), c_int> {
    match message.get(16..20).and_then(|code| code.try_into().ok()) {
        None => Err(c::EPROTO),
        Some(code) => match c_int::from_ne_bytes(code) {
            0 => Ok(()),
            code => Err(code.saturating_neg()),
        },
    }
}

/// Writes `bytes` at `offset` of a message that has room for them.
pub(crate) fn put(message: &mut [u8], offset: usize, bytes: &[u8]) {
    for (to, from) in message.iter_mut().skip(offset).zip(bytes) {
        *to = *from;
    }
}

fn unix_socket(flags: c_int) -> Result<c_int, c_int> {
    // SAFETY: no pointer is passed.
    checked(unsafe { real::socket(c::AF_UNIX, c::SOCK_SEQPACKET | flags, 0) })
}

fn unix_name(mut port: u32) -> (SockaddrUn, Socklen) {
    let mut digits = [0; 10];
    let mut first = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (port % 10) as u8;
        port /= 10;
        first -= 1;
        if port == 0 {
            break;
        }
    }
    let digits = digits.get(first..).unwrap_or_default();
    let mut name = SockaddrUn {
        family: c::AF_UNIX as u16,
        path: [0; 108],
    };
    put(&mut name.path, 0, PREFIX);
    put(&mut name.path, PREFIX.len(), digits);
    (name, (2 + PREFIX.len() + digits.len()) as Socklen)
}

/// Connects to where the daemon listens.
fn connect(fd: c_int) -> Result<(), c_int> {
    // SAFETY: the name ends with NUL. The C library's string stays as it is unless the program
    // changes its environment in another thread, which C forbids.
    let path = unsafe {
        let path = c::getenv(c"SOFTNET_SOCKET".as_ptr());
        if path.is_null() {
            // Never the host's kernel by mistake.
            return Err(c::ECONNREFUSED);
        }
        CStr::from_ptr(path).to_bytes()
    };
    let mut name = SockaddrUn {
        family: c::AF_UNIX as u16,
        path: [0; 108],
    };
    if path.len() >= name.path.len() {
        return Err(c::ENAMETOOLONG);
    }
    put(&mut name.path, 0, path);
    // SAFETY: the length is that of `name`.
    let attempt = || unsafe {
        let len = size_of::<SockaddrUn>() as Socklen;
        real::connect(fd, from_ref(&name).cast::<c_void>(), len)
    };
    let mut result = uninterrupted(attempt);
    if result == Err(c::EAGAIN) {
        // The daemon's backlog is full, and the program's socket does not block.
        // SAFETY: these commands take an integer or nothing.
        unsafe {
            let flags = checked(c::fcntl(fd, c::F_GETFL))?;
            checked(c::fcntl(fd, c::F_SETFL, flags & !c::SOCK_NONBLOCK))?;
            result = uninterrupted(attempt);
            checked(c::fcntl(fd, c::F_SETFL, flags))?;
        }
    }
    match result {
        // Another thread was faster.
        Err(c::EISCONN) => Ok(()),
        result => result.map(|_| ()),
    }
}

/// Repeats a call that a signal ends.
fn uninterrupted<T: PartialOrd + From<i8>>(mut call: impl FnMut() -> T) -> Result<T, c_int> {
    loop {
        match checked(call()) {
            Err(c::EINTR) => {}
            result => return result,
        }
    }
}
