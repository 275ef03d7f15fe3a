//! The socket at which metrics are to be had. The process that serves it makes it, while it may,
//! and has it bound by whoever has the rights: so it is of that process's network namespace, and
//! the helper makes no socket.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Uid, chownat, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_reuseaddr, socket_domain, socket_protocol, socket_type};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, ipproto,
    listen, socket_with,
};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::file::{Lock, find};
use super::operations::is_not_told;
use super::{ListenError, unix};
use crate::NetnsSpec;
use crate::peer::file_of;
use crate::rights::{self, AskError, Ledger, Performed, Privileged, Subject};

/// Clients that wait to be accepted.
const BACKLOG: i32 = 128;

/// A place where metrics are to be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetricsPlace {
    /// An address, over TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl MetricsPlace {
    /// An address with a port, or the path of a socket.
    ///
    /// # Errors
    /// A sentence about the text, which is neither.
    pub fn parse(text: &str) -> Result<MetricsPlace, String> {
        if text.contains('/') {
            return Ok(MetricsPlace::Unix(text.into()));
        }
        let address = text.parse().map_err(|_| {
            format!(
                "{text:?} is no address with a port, like 127.0.0.1:9090 or [::1]:9090, and no \
                 path (which has a /)"
            )
        });
        address.map(MetricsPlace::Tcp)
    }

    /// The text that [`parse`](MetricsPlace::parse) reads; none if a path is no text.
    pub fn text(&self) -> Option<String> {
        match self {
            MetricsPlace::Tcp(address) => Some(address.to_string()),
            MetricsPlace::Unix(path) => path.to_str().map(str::to_owned),
        }
    }

    /// A socket for this place, which is bound nowhere yet.
    ///
    /// # Errors
    /// If this process may make none.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
        Ok(socket_with(self.family(), kind, flags, None)?)
    }

    /// Has a socket of [`socket`](MetricsPlace::socket) listen at this place. The file of a dead
    /// server is replaced. The helper does it, where there is one, if the configuration has the
    /// place.
    ///
    /// # Errors
    /// If another server listens there (`AddrInUse`: it may be tried again), or it is refused.
    pub fn listen(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let place = self.clone();
        let asked = rights::ask(None, ListenForMetrics { place }, &[socket]);
        asked.map(drop).map_err(|error| match error {
            AskError::Own(error) => error,
            AskError::Refused {
                errno: Some(errno), ..
            } => io::Error::from_raw_os_error(errno),
            error => io::Error::other(error),
        })
    }

    fn family(&self) -> AddressFamily {
        match self {
            MetricsPlace::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            MetricsPlace::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            MetricsPlace::Unix(_) => AddressFamily::UNIX,
        }
    }

    /// True if a socket is as [`socket`](MetricsPlace::socket) makes them.
    fn is_for(&self, socket: &OwnedFd) -> io::Result<bool> {
        let has_protocol = match self {
            MetricsPlace::Tcp(_) => socket_protocol(socket)? == Some(ipproto::TCP),
            MetricsPlace::Unix(_) => true,
        };
        Ok(has_protocol
            && socket_domain(socket)? == self.family()
            && socket_type(socket)? == SocketType::STREAM)
    }
}

/// Has the socket that comes along listen at a place that the configuration names.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenForMetrics {
    pub(crate) place: MetricsPlace,
}

impl Privileged for ListenForMetrics {
    type Answer = ();
    type Error = io::Error;
    const OF_NETWORK: bool = false;

    fn subject(&self, _: Option<&NetnsSpec>) -> Option<Subject> {
        Some(Subject::Metrics(self.place.clone()))
    }

    fn perform(self, files: Vec<OwnedFd>, _: &Ledger) -> Performed<(), io::Error> {
        let socket = files.first().ok_or(io::ErrorKind::InvalidInput)?;
        if !self.place.is_for(socket)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match &self.place {
            MetricsPlace::Tcp(address) => {
                // Connections of a server before this one may still be ending.
                set_socket_reuseaddr(socket, true)?;
                bind_once(socket, address)?;
                listen(socket, BACKLOG)?;
            }
            MetricsPlace::Unix(path) => {
                let address = SocketAddrUnix::new(path.as_path())?;
                // Of two servers that start at once, one could remove the other's file before that
                // one listens.
                let _lock = Lock::take(path);
                remove_dead(path, &address)?;
                bind(socket, &address)?;
                give_to_maker(path, socket)?;
                listen(socket, BACKLOG)?;
            }
        }
        Ok(((), Vec::new()))
    }
}

/// Binds a socket to an address, unless it is bound there by an earlier try: between the two steps
/// of that, another server began to listen there.
fn bind_once(socket: &OwnedFd, address: &SocketAddr) -> io::Result<()> {
    match bind(socket, address) {
        Err(Errno::INVAL) if SocketAddr::try_from(getsockname(socket)?) == Ok(*address) => Ok(()),
        bound => Ok(bound?),
    }
}

/// Removes a socket at which nobody listens.
fn remove_dead(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let found = fs::symlink_metadata(path);
    if found.is_ok_and(|found| found.file_type().is_socket()) {
        // It does not block: one that is too busy to accept lives, too.
        let probe = unix(SocketType::STREAM)?;
        match connect(&probe, address) {
            Err(Errno::CONNREFUSED) => fs::remove_file(path)?,
            // Another user's. The kernel asks for the right to write before it looks for who
            // listens, so that a dead one is not known from one that lives.
            Err(Errno::ACCESS) => fs::remove_file(path).map_err(|_| {
                let text = "a socket of another user is there, which this user may not remove";
                io::Error::new(io::ErrorKind::AddrInUse, text)
            })?,
            _ => {}
        }
    }
    Ok(())
}

/// Gives the file of a socket to the user who made the socket. That is another than this process's
/// if this is the helper of a daemon of another user.
fn give_to_maker(path: &Path, socket: &OwnedFd) -> io::Result<()> {
    let (maker, own) = (fstat(socket)?.st_uid, geteuid().as_raw());
    if maker == own {
        return Ok(());
    }
    let file = match file_of(socket) {
        Err(error) if is_not_told(&error) => find(path)?,
        told => told?,
    };
    let file = fs::File::from(file);
    let found = file.metadata()?;
    if !found.file_type().is_socket() || found.uid() != own {
        return Err(io::Error::other(ListenError::Replaced(path.to_owned())));
    }
    let maker = Some(Uid::from_raw(maker));
    Ok(chownat(&file, "", maker, None, AtFlags::EMPTY_PATH)?)
}
