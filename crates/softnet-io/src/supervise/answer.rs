//! The answers to a program's calls.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ioctl;
use super::memory::{FAULT, Process};
use super::notification::{Call, Listener};
use super::route::Route;

/// Length of `struct sockaddr_nl`, and of `struct msghdr`.
const ADDRESS: usize = 12;
const MSGHDR: usize = 56;
/// `UIO_MAXIOV`.
const PARTS: usize = 1024;
/// Longest message that is received; the daemon's are shorter.
const LONGEST: usize = 1 << 20;
const AF_NETLINK: u16 = libc::AF_NETLINK as u16;
const SOL_NETLINK: i32 = 270;
/// The daemon's word for ENOBUFS: events were lost.
const NLMSG_OVERRUN: u16 = 4;
/// Interval at which a call that waits is looked at: it may have been given up.
const LOOK: Duration = Duration::from_millis(200);

/// Answer to a call.
pub(super) enum Answer {
    /// The kernel goes on with it.
    Continue,
    Done(Result<i64, i32>),
    /// A new descriptor, with its flags.
    Socket(OwnedFd, u32),
    /// A socket in the place of this descriptor.
    Replaced(OwnedFd, i32, u32),
    /// It waits for a message.
    Wait(Box<Receive>),
}

/// All that answers need.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) daemon: PathBuf,
    pub(super) keeps_host: bool,
}

/// A call that receives.
pub(super) struct Receive {
    process: Process,
    route: Route,
    flags: i32,
    /// Parts of the program's memory.
    parts: Vec<(u64, usize)>,
    name: Name,
}

/// The place for the sender's name.
enum Name {
    /// Address, and the address of its length.
    Of(u64, u64),
    /// In the header of this address: address and room.
    Header { at: u64, name: u64, room: u32 },
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_ne_bytes)
}

impl Context {
    pub(super) fn new(daemon: PathBuf, keeps_host: bool) -> Arc<Context> {
        Arc::new(Context { daemon, keeps_host })
    }

    pub(super) fn answer(&self, listener: &Listener, call: Call) -> Answer {
        let Ok(process) = Process::of(call.thread) else {
            return Answer::Continue;
        };
        if call.number == libc::SYS_socket {
            return self.socket(process, call);
        }
        if call.number == libc::SYS_ioctl {
            return match ioctl::answer(self, process, call) {
                Some(result) => Answer::Done(result),
                None => Answer::Continue,
            };
        }
        let fd = call.arguments[0] as i32;
        let Some(route) = process.fd(fd).ok().and_then(Route::of) else {
            return Answer::Continue;
        };
        if !listener.is_valid(call) {
            return Answer::Continue;
        }
        let done = |result: Result<i64, i32>| Answer::Done(result);
        match call.number {
            libc::SYS_bind => self.bind(process, &route, call),
            libc::SYS_connect => done(connect(process, call).map(|()| 0)),
            libc::SYS_getsockname => done(give_name(process, call, route.port())),
            libc::SYS_getpeername => done(give_name(process, call, 0)),
            libc::SYS_getsockopt => self.option(process, &route, call),
            libc::SYS_setsockopt => self.set_option(process, &route, call),
            libc::SYS_recvfrom | libc::SYS_recvmsg => match receive(process, route, call) {
                Ok(receive) => receive.now(),
                Err(errno) => done(Err(errno)),
            },
            libc::SYS_recvmmsg => {
                say("recvmmsg: not for a netlink socket; receive one message at a time");
                done(Err(libc::ENOSYS))
            }
            _ => Answer::Continue,
        }
    }

    fn socket(&self, process: Process, call: Call) -> Answer {
        let kind = call.arguments[1] as i32;
        let plain = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        if ![libc::SOCK_RAW, libc::SOCK_DGRAM].contains(&plain) {
            return Answer::Continue;
        }
        let cloexec = (kind & libc::SOCK_CLOEXEC) as u32;
        match Route::open(&self.daemon, kind, None, process.id()) {
            Ok(route) => Answer::Socket(route.fd, cloexec),
            Err(errno) => Answer::Done(Err(errno)),
        }
    }

    fn bind(&self, process: Process, route: &Route, call: Call) -> Answer {
        let address = match read_name(process, call.arguments[1], call.arguments[2]) {
            Ok(address) => address,
            Err(errno) => return Answer::Done(Err(errno)),
        };
        let (port, groups) = (half(&address, 4), half(&address, 8));
        if port == 0 || port == route.port() {
            return Answer::Done(route.join(&self.daemon, groups).map(|()| 0));
        }
        // Its port was chosen when it was made: here is one with that which is asked for.
        let nonblocking = rustix::fs::fcntl_getfl(&route.fd)
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK));
        let kind = route.kind() | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
        let fd = call.arguments[0] as i32;
        let opened = Route::open(&self.daemon, kind, Some(port), port);
        let joined = opened.and_then(|new| new.join(&self.daemon, groups).map(|()| new));
        match joined {
            Ok(new) => Answer::Replaced(new.fd, fd, process.fd_flags(fd)),
            Err(errno) => Answer::Done(Err(errno)),
        }
    }

    fn option(&self, process: Process, route: &Route, call: Call) -> Answer {
        let (level, option) = (call.arguments[1] as i32, call.arguments[2] as i32);
        let answer = match (level, option) {
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => Ok(libc::AF_NETLINK),
            (libc::SOL_SOCKET, libc::SO_TYPE) => Ok(route.kind()),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Ok(libc::NETLINK_ROUTE),
            (SOL_NETLINK, _) => route.option(option),
            _ => return Answer::Continue,
        };
        Answer::Done(answer.and_then(|answer| {
            let room = i32::from_ne_bytes(process.read(call.arguments[4])?);
            if room < 4 {
                return Err(libc::EINVAL);
            }
            process.write(call.arguments[3], &answer.to_ne_bytes())?;
            process.write(call.arguments[4], &4_i32.to_ne_bytes())?;
            Ok(0)
        }))
    }

    fn set_option(&self, process: Process, route: &Route, call: Call) -> Answer {
        let (level, option) = (call.arguments[1] as i32, call.arguments[2] as i32);
        if level != SOL_NETLINK {
            return Answer::Continue;
        }
        if (call.arguments[4] as u32) < 4 {
            return Answer::Done(Err(libc::EINVAL));
        }
        let value = process.read(call.arguments[3]).map(u32::from_ne_bytes);
        let set = value.and_then(|value| route.set_option(&self.daemon, option, value));
        Answer::Done(set.map(|()| 0))
    }
}

/// An address of ours in the program's memory.
fn read_name(process: Process, at: u64, len: u64) -> Result<[u8; ADDRESS], i32> {
    if (len as u32 as usize) < ADDRESS {
        return Err(libc::EINVAL);
    }
    let address: [u8; ADDRESS] = process.read(at)?;
    match u16::from_ne_bytes([address[0], address[1]]) {
        AF_NETLINK => Ok(address),
        _ => Err(libc::EINVAL),
    }
}

/// The daemon is all there is to connect to.
fn connect(process: Process, call: Call) -> Result<(), i32> {
    let address = read_name(process, call.arguments[1], call.arguments[2])?;
    match (half(&address, 4), half(&address, 8)) {
        (0, 0) => Ok(()),
        _ => Err(libc::EPERM),
    }
}

fn name(port: u32) -> [u8; ADDRESS] {
    let mut name = [0; ADDRESS];
    name[..2].copy_from_slice(&AF_NETLINK.to_ne_bytes());
    name[4..8].copy_from_slice(&port.to_ne_bytes());
    name
}

/// Gives the program a name, cut to the room it has, and its full length.
fn give_name(process: Process, call: Call, port: u32) -> Result<i64, i32> {
    let (at, len) = (call.arguments[1], call.arguments[2]);
    write_name(process, at, len, port)?;
    Ok(0)
}

fn write_name(process: Process, at: u64, len: u64, port: u32) -> Result<(), i32> {
    let room = i32::from_ne_bytes(process.read(len)?);
    let room = usize::try_from(room).map_err(|_| libc::EINVAL)?;
    process.write(at, &name(port)[..room.min(ADDRESS)])?;
    process.write(len, &(ADDRESS as i32).to_ne_bytes())
}

/// A call that receives, with the parts of memory that it is to fill.
fn receive(process: Process, route: Route, call: Call) -> Result<Box<Receive>, i32> {
    let (parts, flags, name) = if call.number == libc::SYS_recvfrom {
        let [_, at, len, flags, name, name_len] = call.arguments;
        let parts = vec![(at, usize::try_from(len).unwrap_or(usize::MAX))];
        (parts, flags as i32, Name::Of(name, name_len))
    } else {
        let [_, at, flags, ..] = call.arguments;
        let header: [u8; MSGHDR] = process.read(at)?;
        let count = usize::try_from(word(&header, 24)).unwrap_or(usize::MAX);
        if count > PARTS {
            return Err(libc::EMSGSIZE);
        }
        let mut words = vec![0; count * 16];
        process.read_into(word(&header, 16), &mut words)?;
        let parts = words.chunks_exact(16).map(|part| {
            let len = usize::try_from(word(part, 8)).unwrap_or(usize::MAX);
            (word(part, 0), len)
        });
        let name = Name::Header {
            at,
            name: word(&header, 0),
            room: half(&header, 8),
        };
        (parts.collect(), flags as i32, name)
    };
    Ok(Box::new(Receive {
        process,
        route,
        flags,
        parts,
        name,
    }))
}

impl Receive {
    /// The message if there is one, else what becomes of the call.
    fn now(self: Box<Self>) -> Answer {
        match self.attempt() {
            Some(result) => Answer::Done(result),
            None if self.flags & libc::MSG_DONTWAIT != 0 || self.is_nonblocking() => {
                Answer::Done(Err(libc::EAGAIN))
            }
            None => Answer::Wait(self),
        }
    }

    fn is_nonblocking(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.route.fd);
        flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// Waits for a message, as long as the call does. `None`: that was given up.
    pub(super) fn run(&self, listener: &Listener, call: Call) -> Option<Result<i64, i32>> {
        let timeout = rustix::net::sockopt::socket_timeout(
            &self.route.fd,
            rustix::net::sockopt::Timeout::Recv,
        );
        let end = timeout
            .ok()
            .flatten()
            .map(|timeout| Instant::now() + timeout);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Some(Err(libc::EAGAIN));
            }
            let wait = left.map_or(LOOK, |left| left.min(LOOK));
            let wait = Timespec::try_from(wait).ok();
            let mut fds = [PollFd::new(&self.route.fd, PollFlags::IN)];
            // Nothing but a message, or an end, is worth more than the next look.
            let _ = poll(&mut fds, wait.as_ref());
            if !listener.is_valid(call) {
                return None;
            }
            if let Some(result) = self.attempt() {
                return Some(result);
            }
        }
    }

    /// Receives without waiting. `None`: there is no message.
    fn attempt(&self) -> Option<Result<i64, i32>> {
        let own = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        let room = self
            .parts
            .iter()
            .fold(0_usize, |room, (_, len)| room.saturating_add(*len));
        let peeked = receive_bytes(&self.route.fd, &mut [0; 8], own | libc::MSG_PEEK);
        let len = match peeked {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => return Some(Err(error.raw_os_error().unwrap_or(libc::EIO))),
        };
        let mut bytes = vec![0; len.min(LONGEST)];
        let peek = self.flags & libc::MSG_PEEK;
        let len = match receive_bytes(&self.route.fd, &mut bytes, own | peek) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => return Some(Err(error.raw_os_error().unwrap_or(libc::EIO))),
        };
        // No netlink socket has an end: the daemon has gone away.
        if len == 0 {
            return Some(Err(libc::ECONNRESET));
        }
        bytes.truncate(len);
        if bytes.get(4..6) == Some(&NLMSG_OVERRUN.to_ne_bytes()) {
            if peek != 0 {
                // The error is told once.
                let _ = receive_bytes(&self.route.fd, &mut [], own);
            }
            return Some(Err(libc::ENOBUFS));
        }
        Some(self.give(&bytes, len, room))
    }

    /// Writes a message, and the sender's name, into the program's memory.
    fn give(&self, bytes: &[u8], len: usize, room: usize) -> Result<i64, i32> {
        let mut rest = bytes;
        for &(at, room) in &self.parts {
            let part = rest.get(..room.min(rest.len())).ok_or(FAULT)?;
            self.process.write(at, part)?;
            rest = &rest[part.len()..];
        }
        match self.name {
            Name::Of(0, _) => {}
            Name::Of(at, len) => write_name(self.process, at, len, 0)?,
            Name::Header { at, name: to, room } => {
                if to != 0 {
                    let room = (room as usize).min(ADDRESS);
                    self.process.write(to, &name(0)[..room])?;
                    self.process
                        .write(at + 8, &(ADDRESS as u32).to_ne_bytes())?;
                }
                let cut = if len > room_of(&self.parts) {
                    libc::MSG_TRUNC
                } else {
                    0
                };
                // No control data.
                self.process.write(at + 40, &0_u64.to_ne_bytes())?;
                self.process.write(at + 48, &cut.to_ne_bytes())?;
            }
        }
        let told = match self.flags & libc::MSG_TRUNC {
            0 => len.min(room),
            _ => len,
        };
        i64::try_from(told).map_err(|_| libc::EMSGSIZE)
    }
}

fn room_of(parts: &[(u64, usize)]) -> usize {
    parts
        .iter()
        .fold(0, |room, (_, len)| room.saturating_add(*len))
}

fn receive_bytes(fd: &OwnedFd, bytes: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: the pointer is to the bytes that the length says.
    let len = unsafe {
        libc::recv(
            fd.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            flags,
        )
    };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// Says on standard error what is refused.
pub(super) fn say(text: &str) {
    eprintln!("softnet exec: {text}");
}
