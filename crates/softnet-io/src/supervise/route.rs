//! A socket in the place of one for NETLINK_ROUTE: the same as the preload library's (its
//! `route.rs`), so that a program below both, or one that passes it on, finds it the same.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    getsockname, recv, send, socket_with,
};

use super::checked;

/// Mark of our sockets in `SO_INCOMING_CPU`, and bits below it; see the preload library.
const OURS: u32 = 0x4e4c_0000;
const OURS_MASK: u32 = 0xffff_0000;
const CONNECTED: u32 = 1 << 15;
const DATAGRAM: u32 = 1 << 14;

const PREFIX: &[u8] = b"softnet-nl/";
/// Ports that are tried.
const ATTEMPTS: usize = 64;
/// Sets an option of another connection.
const SET_OPTION: u16 = 0x0f;
const REQUEST_ACK: u16 = 5;
const NLMSG_ERROR: u16 = 2;
/// Options of SOL_NETLINK.
const ADD_MEMBERSHIP: i32 = 1;
const DROP_MEMBERSHIP: i32 = 2;
const SWITCHES: [i32; 3] = [10, 11, 12];

pub(super) struct Route {
    pub(super) fd: OwnedFd,
    state: u32,
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Route {
    /// The socket if it is one of ours.
    pub(super) fn of(fd: OwnedFd) -> Option<Route> {
        let mut state = 0_u32;
        let mut len = 4;
        // SAFETY: `state` has the bytes that `len` says.
        let result = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_INCOMING_CPU,
                (&raw mut state).cast(),
                &mut len,
            )
        };
        (result == 0 && state & OURS_MASK == OURS).then_some(Route { fd, state })
    }

    /// A new socket with a port that is free, or the one that is wanted, connected to the daemon.
    pub(super) fn open(
        daemon: &Path,
        kind: i32,
        wanted: Option<u32>,
        first: u32,
    ) -> Result<Route, i32> {
        let open = || -> io::Result<Route> {
            let mut flags = SocketFlags::CLOEXEC;
            if kind & libc::SOCK_NONBLOCK != 0 {
                flags |= SocketFlags::NONBLOCK;
            }
            let mut port = wanted.unwrap_or_else(|| first.max(1));
            for _ in 0..ATTEMPTS {
                let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
                let name = [PREFIX, port.to_string().as_bytes()].concat();
                match bind(&fd, &SocketAddrUnix::new_abstract_name(&name)?) {
                    Err(rustix::io::Errno::ADDRINUSE) if wanted.is_none() => {
                        port = random_port();
                        continue;
                    }
                    other => other?,
                }
                connect_blocking(&fd, daemon)?;
                let mut route = Route { fd, state: 0 };
                let datagram = match kind & 0xf {
                    libc::SOCK_DGRAM => DATAGRAM,
                    _ => 0,
                };
                route.set_state(OURS | CONNECTED | datagram)?;
                if wanted.is_none() && route.is_refused() {
                    port = random_port();
                    continue;
                }
                return Ok(route);
            }
            Err(rustix::io::Errno::ADDRINUSE.into())
        };
        open().map_err(|error| errno(&error))
    }

    fn set_state(&mut self, state: u32) -> io::Result<()> {
        // SAFETY: the value has the 4 bytes that the length says.
        checked(i64::from(unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_INCOMING_CPU,
                (&raw const state).cast(),
                4,
            )
        }))?;
        self.state = state;
        Ok(())
    }

    /// SOCK_RAW or SOCK_DGRAM, as the program chose.
    pub(super) fn kind(&self) -> i32 {
        match self.state & DATAGRAM {
            0 => libc::SOCK_RAW,
            _ => libc::SOCK_DGRAM,
        }
    }

    pub(super) fn port(&self) -> u32 {
        let name = getsockname(&self.fd)
            .ok()
            .and_then(|name| SocketAddrUnix::try_from(name).ok());
        let name = name.as_ref().and_then(|name| name.abstract_name());
        let digits = name.and_then(|name| name.strip_prefix(PREFIX));
        digits
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
            .unwrap_or(0)
    }

    /// The daemon has refused its port, which a program in another namespace has.
    fn is_refused(&self) -> bool {
        // The daemon answers in the order in which it is connected to.
        let mut reply = [0; 64];
        if tell_at(&self.fd, self.port(), 11, 0).is_err() && self.peek(&mut reply) {
            return true;
        }
        self.peek(&mut reply)
    }

    fn peek(&self, reply: &mut [u8]) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.fd, &mut *reply, flags).is_ok_and(|(len, _)| {
            let reply = reply.get(..len).unwrap_or_default();
            reply.get(8..12) == Some(&[0; 4]) && error_of(reply) == Some(-libc::EADDRINUSE)
        })
    }

    /// bind(2): memberships; a port that is not its own needs another socket.
    pub(super) fn join(&self, daemon: &Path, groups: u32) -> Result<(), i32> {
        (1..=32)
            .filter(|group| groups & 1 << (group - 1) != 0)
            .try_for_each(|group| self.set_option(daemon, ADD_MEMBERSHIP, group))
    }

    /// setsockopt(2) of SOL_NETLINK. When it returns, the daemon has done it.
    pub(super) fn set_option(&self, daemon: &Path, option: i32, value: u32) -> Result<(), i32> {
        let known =
            SWITCHES.contains(&option) || [ADD_MEMBERSHIP, DROP_MEMBERSHIP].contains(&option);
        if !known {
            // Softnet's sockets have no others; none of them changes what is received.
            return Err(libc::ENOPROTOOPT);
        }
        tell(daemon, self.port(), option, value)?;
        if SWITCHES.contains(&option) {
            let bit = 1 << option;
            let state = match value {
                0 => self.state & !bit,
                _ => self.state | bit,
            };
            let mut own = Route {
                fd: self.fd.try_clone().map_err(|error| errno(&error))?,
                state: self.state,
            };
            own.set_state(state).map_err(|error| errno(&error))?;
        }
        Ok(())
    }

    /// getsockopt(2) of SOL_NETLINK.
    pub(super) fn option(&self, option: i32) -> Result<i32, i32> {
        match SWITCHES.contains(&option) {
            true => Ok(i32::from(self.state & 1 << option != 0)),
            false => Err(libc::ENOPROTOOPT),
        }
    }
}

fn random_port() -> u32 {
    // The standard library's hash keys are random for each process and differ for each state.
    let random = RandomState::new().hash_one(()) as u32;
    // Above all processes' ids, below what the daemon assigns to clients without a name.
    random >> 2 | 1 << 30
}

fn connect_blocking(fd: &OwnedFd, daemon: &Path) -> io::Result<()> {
    let address = SocketAddrUnix::new(daemon)?;
    match connect(fd, &address) {
        // The daemon's backlog is full, and the socket does not block.
        Err(rustix::io::Errno::AGAIN) => {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags - rustix::fs::OFlags::NONBLOCK)?;
            let connected = connect(fd, &address);
            rustix::fs::fcntl_setfl(fd, flags)?;
            Ok(connected?)
        }
        other => Ok(other?),
    }
}

/// The error that a message carries, as the kernel writes it.
fn error_of(message: &[u8]) -> Option<i32> {
    let kind = message.get(4..6)?.try_into().ok()?;
    if u16::from_ne_bytes(kind) != NLMSG_ERROR {
        return None;
    }
    let code = message.get(16..20)?.try_into().ok()?;
    Some(i32::from_ne_bytes(code))
}

/// Has the daemon set an option of a connection, over one of its own.
fn tell(daemon: &Path, port: u32, option: i32, value: u32) -> Result<(), i32> {
    let fd = connected(daemon)?;
    tell_at(&fd, port, option, value)
}

fn tell_at(fd: &OwnedFd, port: u32, option: i32, value: u32) -> Result<(), i32> {
    let mut request = [0_u8; 28];
    request[..4].copy_from_slice(&28_u32.to_ne_bytes());
    request[4..6].copy_from_slice(&SET_OPTION.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_ACK.to_ne_bytes());
    request[16..20].copy_from_slice(&port.to_ne_bytes());
    request[20..24].copy_from_slice(&option.to_ne_bytes());
    request[24..].copy_from_slice(&value.to_ne_bytes());
    let mut reply = [0; 256];
    let reply = ask(fd, &request, &mut reply)?;
    match error_of(reply) {
        None => Err(libc::EPROTO),
        Some(0) => Ok(()),
        Some(code) => Err(code.saturating_neg()),
    }
}

/// A connection of the supervisor's own.
pub(super) fn connected(daemon: &Path) -> Result<OwnedFd, i32> {
    let open = || -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect_blocking(&fd, daemon)?;
        Ok(fd)
    };
    open().map_err(|error| errno(&error))
}

/// Sends a request and waits for the first message of the answer.
pub(super) fn ask<'r>(fd: &OwnedFd, request: &[u8], reply: &'r mut [u8]) -> Result<&'r [u8], i32> {
    send(fd, request, SendFlags::NOSIGNAL).map_err(rustix::io::Errno::raw_os_error)?;
    let flags = RecvFlags::empty();
    let len = recv(fd, &mut *reply, flags).map_err(rustix::io::Errno::raw_os_error)?;
    match reply.get(..len.0) {
        None | Some([]) => Err(libc::ECONNRESET),
        Some(reply) => Ok(reply),
    }
}
