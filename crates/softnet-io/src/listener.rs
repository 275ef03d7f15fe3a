//! A Unix socket that listens: its file is made with its mode and group, never in the place of a
//! live one.

mod file;
mod metrics;
mod operations;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

use crate::accounts;
use crate::rights::{self, AskError};

pub(crate) use file::{remove_own, remove_own_locked};
pub(crate) use metrics::ListenForMetrics;
pub use metrics::MetricsPlace;
pub(crate) use operations::{Adopt, Bind, Connect, Datagram, Forget};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    /// The socket's file.
    pub path: PathBuf,
    /// The socket's mode: who may connect.
    pub mode: u32,
    /// The socket's group; none: the process's own.
    pub group: Option<u32>,
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another server lives.
    #[error("{0}: another server listens there")]
    InUse(PathBuf),
    /// Something else has the name.
    #[error("{0}: exists and is not a socket")]
    NotASocket(PathBuf),
    /// Somebody who may write in its directory has put something else there.
    #[error("{0}: somebody else replaced the socket while it was made")]
    Replaced(PathBuf),
    /// The name does not fit `sockaddr_un`.
    #[error("{0}: longer than 107 bytes, the most that the path of a socket may have")]
    TooLong(PathBuf),
    /// A call failed.
    #[error("{path}: cannot {what}")]
    Io {
        /// The socket's file.
        path: PathBuf,
        /// Which call.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The privileged helper refused, or is not there.
    #[error(transparent)]
    Helper(Box<AskError<ListenError>>),
    /// There is no such group.
    #[error("there is no group \"{0}\" in /etc/group")]
    NoGroup(String),
}

impl ListenError {
    /// The error of a call that failed, by the call's own.
    fn io<E: Into<io::Error>>(path: &Path, what: &'static str) -> impl Fn(E) -> ListenError {
        move |source| ListenError::Io {
            path: path.to_owned(),
            what,
            source: source.into(),
        }
    }
}

impl From<AskError<ListenError>> for ListenError {
    fn from(error: AskError<ListenError>) -> ListenError {
        match error {
            AskError::Own(error) => error,
            error => ListenError::Helper(Box::new(error)),
        }
    }
}

/// The number of a group: a number, or a name in `/etc/group`.
///
/// # Errors
/// If no group has that name.
pub fn group_id(name: &str) -> Result<u32, ListenError> {
    accounts::group_id(name).ok_or_else(|| ListenError::NoGroup(name.into()))
}

/// The treatment of descriptors that clients pass (`SCM_RIGHTS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Descriptors {
    /// Clients may pass some.
    Passed,
    /// A client that passes one gets `EPERM` (Linux 6.16; before, they are closed unseen). The last
    /// close of a file may wait for as long as its owner wants, in the thread that reads.
    Refused,
}

/// A listening socket. Its file goes when it does.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    listen: Listen,
    /// Number under which its file is noted; 0 while another process has the file.
    number: AtomicU64,
}

fn unix(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// A type of Unix sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// `SOCK_STREAM`.
    Stream,
    /// `SOCK_DGRAM`: it is bound, as nobody connects.
    Datagram,
    /// `SOCK_SEQPACKET`.
    SeqPacket,
}

impl From<SocketKind> for SocketType {
    fn from(kind: SocketKind) -> SocketType {
        match kind {
            SocketKind::Stream => SocketType::STREAM,
            SocketKind::Datagram => SocketType::DGRAM,
            SocketKind::SeqPacket => SocketType::SEQPACKET,
        }
    }
}

impl Listener {
    /// Listens with a socket of type `kind`, for at most `backlog` clients that wait to be
    /// accepted. The file of a server that is dead is replaced.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(
        config: &Listen,
        kind: SocketKind,
        backlog: i32,
        descriptors: Descriptors,
    ) -> Result<Listener, ListenError> {
        let bind = Bind {
            listen: config.clone(),
            kind,
            backlog,
            descriptors,
        };
        let (number, files) = rights::ask(None, bind, &[])?;
        Ok(Listener {
            socket: socket_of(files, &config.path)?,
            listen: config.clone(),
            number: number.into(),
        })
    }

    /// Listens with a socket that another process made there, and which has the file until
    /// [`own`](Listener::own) is called.
    pub fn take(config: &Listen, socket: OwnedFd) -> Listener {
        Listener {
            socket,
            listen: config.clone(),
            number: AtomicU64::new(0),
        }
    }

    /// Has the socket's file go with this value, if another process has it, and gives it the mode
    /// and the group.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn own(&self) -> Result<(), ListenError> {
        if self.number.load(Ordering::Relaxed) == 0 {
            let listen = self.listen.clone();
            let (number, _) = rights::ask(None, Adopt { listen }, &[self.socket.as_fd()])?;
            self.number.store(number, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The socket's file.
    pub(crate) fn path(&self) -> &Path {
        &self.listen.path
    }

    /// Leaves the socket's file to another process, however this one ends.
    pub fn keep(&self) {
        self.forget(true);
    }

    fn forget(&self, keep: bool) {
        let number = self.number.swap(0, Ordering::Relaxed);
        if number != 0 {
            rights::tell(Forget { number, keep });
        }
    }
}

impl AsFd for Listener {
    /// The socket, which does not block.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.forget(false);
    }
}

/// A datagram socket that does not block, with an abstract name of the kernel's choice.
///
/// # Errors
/// [`ListenError`].
pub(crate) fn datagram_socket() -> Result<OwnedFd, ListenError> {
    let ((), files) = rights::ask(None, Datagram {}, &[])?;
    socket_of(files, Path::new(""))
}

/// A socket that is connected to the one at a path, and does not block.
///
/// # Errors
/// [`ListenError`].
pub(crate) fn connect_unix(path: &Path, kind: SocketKind) -> Result<OwnedFd, ListenError> {
    let connect = Connect {
        path: path.to_owned(),
        kind,
    };
    let ((), files) = rights::ask(None, connect, &[])?;
    socket_of(files, path)
}

/// The socket among the files of an operation's answer.
fn socket_of(files: Vec<OwnedFd>, path: &Path) -> Result<OwnedFd, ListenError> {
    let missing = || ListenError::io(path, "get the socket")(io::ErrorKind::InvalidData);
    files.into_iter().next().ok_or_else(missing)
}
