//! Operations that take rights: to make, adopt, forget and connect Unix sockets.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType, bind, connect, getsockname, listen};
use serde::{Deserialize, Serialize};

use super::file::{Lock, remove_stale, take_file};
use super::{Descriptors, Listen, ListenError, SocketKind, unix};
use crate::NetnsSpec;
use crate::peer::{file_of, refuse_descriptors};
use crate::rights::{Ledger, Performed, Privileged, SocketFile, Subject};

/// Makes a listening socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    pub(super) listen: Listen,
    pub(super) kind: SocketKind,
    pub(super) backlog: i32,
    pub(super) descriptors: Descriptors,
}

/// Removes the file of a listening socket, by its number, unless another process has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    pub(super) number: u64,
    pub(super) keep: bool,
}

/// Takes over a socket that another process made, with its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    pub(super) listen: Listen,
}

/// Connects to a listening socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    pub(super) path: PathBuf,
    pub(super) kind: SocketKind,
}

impl Privileged for Bind {
    const OF_NETWORK: bool = false;
    type Answer = u64;
    type Error = ListenError;

    fn perform(self, _: Vec<OwnedFd>, ledger: &Ledger) -> Performed<u64, ListenError> {
        let (socket, file) = self.bind()?;
        Ok((note(file, ledger)?, vec![socket]))
    }
}

impl Privileged for Forget {
    const OF_NETWORK: bool = false;
    type Answer = ();
    type Error = ListenError;

    fn perform(self, _: Vec<OwnedFd>, ledger: &Ledger) -> Performed<(), ListenError> {
        let file = ledger.forget_socket(self.number);
        if let Some(file) = file.filter(|_| self.keep) {
            file.keep();
        }
        Ok(((), Vec::new()))
    }
}

impl Privileged for Adopt {
    const OF_NETWORK: bool = false;
    type Answer = u64;
    type Error = ListenError;

    fn perform(self, files: Vec<OwnedFd>, ledger: &Ledger) -> Performed<u64, ListenError> {
        let path = &self.listen.path;
        let replaced = || ListenError::Replaced(path.clone());
        let socket = files.first().ok_or_else(replaced)?;
        let name = getsockname(socket).ok();
        let name = name.and_then(|name| SocketAddrUnix::try_from(name).ok());
        let address = SocketAddrUnix::new(path.as_path()).map_err(|_| replaced())?;
        if name != Some(address) {
            return Err(replaced());
        }
        let failed = ListenError::io(path, "find the socket");
        // Its name is what the one who bound it wrote: for us it may lead to somebody else's.
        let bound = match file_of(socket) {
            Ok(file) => {
                let bound = fs::File::from(file).metadata().map_err(&failed)?;
                Some((bound.dev(), bound.ino()))
            }
            Err(error) if is_not_told(&error) => None,
            Err(error) => return Err(failed(error)),
        };
        let is_ours =
            |found: &fs::Metadata| bound.is_none_or(|bound| bound == (found.dev(), found.ino()));
        let file = take_file(&self.listen, is_ours)?;
        Ok((note(file, ledger)?, Vec::new()))
    }
}

impl Bind {
    pub(super) fn bind(&self) -> Result<(OwnedFd, SocketFile), ListenError> {
        let config = &self.listen;
        let kind = SocketType::from(self.kind);
        let path = &config.path;
        let address = SocketAddrUnix::new(path.as_path()).map_err(|error| match error {
            Errno::NAMETOOLONG => ListenError::TooLong(path.clone()),
            error => ListenError::io(path, "use the path")(error),
        })?;
        // Held until this returns: of two servers that start at once, one looks for an old socket
        // and binds, then the other. Without it, the second could remove the first one's socket.
        let _lock = Lock::take(path);
        remove_stale(path, &address, kind)?;

        let socket = unix(kind).map_err(ListenError::io(path, "make a socket"))?;
        if self.descriptors == Descriptors::Refused {
            // Before anybody connects: a connection has the option that the listener has then. An
            // older kernel does not know it.
            let _ = refuse_descriptors(&socket);
        }
        // The file is made with this mode, less the umask: nobody connects before it has its
        // group.
        fchmod(&socket, Mode::empty()).map_err(ListenError::io(path, "set the mode"))?;
        bind(&socket, &address).map_err(ListenError::io(path, "bind"))?;
        let made = take_file(config, |found| found.mode() & 0o777 == 0)?;
        if self.kind != SocketKind::Datagram
            && let Err(error) = listen(&socket, self.backlog)
        {
            made.remove_locked();
            return Err(ListenError::io(path, "listen")(error));
        }
        Ok((socket, made))
    }
}

/// Notes a socket's file. Returns the number under which it is known.
fn note(file: SocketFile, ledger: &Ledger) -> Result<u64, ListenError> {
    let path = file.path.clone();
    let number = ledger.note_socket(file);
    number.ok_or_else(|| ListenError::io(&path, "have so many sockets")(Errno::MFILE))
}

/// True where the kernel tells only who has `CAP_NET_ADMIN` what a socket is bound to, or nobody.
pub(super) fn is_not_told(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    matches!(number, Some(libc::EPERM | libc::EINVAL | libc::ENOTTY))
}

impl Privileged for Connect {
    const OF_NETWORK: bool = false;

    fn subject(&self, _: Option<&NetnsSpec>) -> Option<Subject> {
        Some(Subject::Socket(self.path.clone()))
    }

    type Answer = ();
    type Error = ListenError;

    fn perform(self, _: Vec<OwnedFd>, _: &Ledger) -> Performed<(), ListenError> {
        let Connect { path, kind } = self;
        let failed = ListenError::io(&path, "connect");
        let address = SocketAddrUnix::new(path.as_path()).map_err(&failed)?;
        let socket = unix(kind.into()).map_err(&failed)?;
        connect(&socket, &address).map_err(&failed)?;
        Ok(((), vec![socket]))
    }
}

/// Makes a datagram socket with an abstract name of the kernel's choice.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Datagram {}

impl Privileged for Datagram {
    type Answer = ();
    type Error = ListenError;
    const OF_NETWORK: bool = false;

    fn perform(self, _: Vec<OwnedFd>, _: &Ledger) -> Performed<(), ListenError> {
        let failed = ListenError::io(Path::new(""), "make a datagram socket");
        let socket = unix(SocketType::DGRAM).map_err(&failed)?;
        bind(&socket, &SocketAddrUnix::new_unnamed()).map_err(&failed)?;
        Ok(((), vec![socket]))
    }
}
