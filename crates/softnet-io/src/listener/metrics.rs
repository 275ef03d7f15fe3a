//! The socket at which metrics are to be had. The process that serves it makes it, while it may,
//! and has it bound by whoever has the rights: so it is of that process's network namespace, and
//! the helper makes no socket.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_reuseaddr, socket_domain, socket_protocol, socket_type};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, ipproto, listen,
    socket_with,
};
use serde::{Deserialize, Serialize};

use super::unix;
use crate::NetnsSpec;
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
                bind(socket, address)?;
            }
            MetricsPlace::Unix(path) => {
                let address = SocketAddrUnix::new(path.as_path())?;
                remove_dead(path, &address)?;
                bind(socket, &address)?;
            }
        }
        listen(socket, BACKLOG)?;
        Ok(((), Vec::new()))
    }
}

/// Removes a socket at which nobody listens.
fn remove_dead(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let found = fs::symlink_metadata(path);
    if found.is_ok_and(|found| found.file_type().is_socket()) {
        // It does not block: one that is too busy to accept lives, too.
        let probe = unix(SocketType::STREAM)?;
        if connect(&probe, address) == Err(Errno::CONNREFUSED) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
