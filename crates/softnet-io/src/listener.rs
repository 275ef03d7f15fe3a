//! A Unix socket that listens: its file is made with its mode and group, never in the place of a
//! live one.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, chownat, fchmod, flock, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen,
    socket_with,
};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::NetnsSpec;
use crate::accounts;
use crate::peer::{file_of, refuse_descriptors};
use crate::rights::{self, AskError, Ledger, Performed, Privileged, SocketFile, Subject};

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

/// Makes a listening socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    listen: Listen,
    kind: SocketKind,
    backlog: i32,
    descriptors: Descriptors,
}

/// Removes the file of a listening socket, by its number, unless another process has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    number: u64,
    keep: bool,
}

/// Takes over a socket that another process made, with its file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    listen: Listen,
}

/// Connects to a listening socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    path: PathBuf,
    kind: SocketKind,
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
        let socket = files.into_iter().next().ok_or_else(|| ListenError::Io {
            path: config.path.clone(),
            what: "get the socket",
            source: io::ErrorKind::InvalidData.into(),
        })?;
        Ok(Listener {
            socket,
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

impl Privileged for Bind {
    const OF_NETWORK: bool = false;
    type Answer = u64;
    type Error = ListenError;

    fn perform(self, _: Vec<OwnedFd>, ledger: &Ledger) -> Performed<u64, ListenError> {
        let (socket, file) = self.bind()?;
        let path = file.path.clone();
        let number = ledger.note_socket(file);
        let number = number.ok_or_else(|| ListenError::Io {
            path,
            what: "have so many sockets",
            source: Errno::MFILE.into(),
        })?;
        Ok((number, vec![socket]))
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
        let failed = |source| ListenError::Io {
            path: path.clone(),
            what: "find the socket",
            source,
        };
        // Its name is what the one who bound it wrote: for us it may lead to somebody else's.
        let bound = match file_of(socket) {
            Ok(file) => {
                let bound = fs::File::from(file).metadata().map_err(failed)?;
                Some((bound.dev(), bound.ino()))
            }
            Err(error) if is_not_told(&error) => None,
            Err(error) => return Err(failed(error)),
        };
        let is_ours =
            |found: &fs::Metadata| bound.is_none_or(|bound| bound == (found.dev(), found.ino()));
        let file = take_file(&self.listen, is_ours)?;
        let number = ledger.note_socket(file);
        let number = number.ok_or_else(|| ListenError::Io {
            path: path.clone(),
            what: "have so many sockets",
            source: Errno::MFILE.into(),
        })?;
        Ok((number, Vec::new()))
    }
}

/// True where the kernel tells only who has `CAP_NET_ADMIN` what a socket is bound to, or nobody.
fn is_not_told(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    matches!(number, Some(libc::EPERM | libc::EINVAL | libc::ENOTTY))
}

/// The file of a socket of ours, with its mode and group.
fn take_file(
    config: &Listen,
    is_ours: impl FnOnce(&fs::Metadata) -> bool,
) -> Result<SocketFile, ListenError> {
    let path = &config.path;
    let io = |what| {
        move |source: io::Error| ListenError::Io {
            path: path.clone(),
            what,
            source,
        }
    };
    let errno = |what| move |errno: Errno| io(what)(errno.into());
    // Whoever may write in the directory may have put something else there by now, so what was
    // found is changed, not what has the name.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(errno("find the socket"))?;
    let found = fs::File::from(file.try_clone().map_err(io("find the socket"))?);
    let found = found.metadata().map_err(io("find the socket"))?;
    let is_own = found.file_type().is_socket() && found.uid() == geteuid().as_raw();
    if !is_own || !is_ours(&found) {
        return Err(ListenError::Replaced(path.clone()));
    }
    let taken = SocketFile {
        path: path.clone(),
        file: (found.dev(), found.ino()),
        held: file,
    };
    let file = &taken.held;
    let set = || {
        if let Some(group) = config.group {
            let group = Some(Gid::from_raw(group));
            chownat(file, "", None, group, AtFlags::EMPTY_PATH).map_err(errno("set the group"))?;
        }
        let mode = fs::Permissions::from_mode(config.mode & 0o777);
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(file, mode).map_err(io("set the mode"))
    };
    set().map(|()| taken)
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
        let failed = |errno: Errno| ListenError::Io {
            path: path.clone(),
            what: "connect",
            source: errno.into(),
        };
        let address = SocketAddrUnix::new(path.as_path()).map_err(failed)?;
        let socket = unix(kind.into()).map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
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
        let failed = |errno: Errno| ListenError::Io {
            path: PathBuf::new(),
            what: "make a datagram socket",
            source: errno.into(),
        };
        let socket = unix(SocketType::DGRAM).map_err(failed)?;
        bind(&socket, &SocketAddrUnix::new_unnamed()).map_err(failed)?;
        Ok(((), vec![socket]))
    }
}

/// A datagram socket that does not block, with an abstract name of the kernel's choice.
///
/// # Errors
/// [`ListenError`].
pub(crate) fn datagram_socket() -> Result<OwnedFd, ListenError> {
    let ((), files) = rights::ask(None, Datagram {}, &[])?;
    let file = files.into_iter().next();
    file.ok_or_else(|| ListenError::Io {
        path: PathBuf::new(),
        what: "get the socket",
        source: io::ErrorKind::InvalidData.into(),
    })
}

/// A socket that is connected to the one at a path, and does not block.
///
/// # Errors
/// [`ListenError`].
pub(crate) fn connect_unix(path: &Path, kind: SocketKind) -> Result<OwnedFd, ListenError> {
    let path = path.to_owned();
    let connect = Connect {
        path: path.clone(),
        kind,
    };
    let ((), files) = rights::ask(None, connect, &[])?;
    let file = files.into_iter().next();
    file.ok_or_else(|| ListenError::Io {
        path,
        what: "get the socket",
        source: io::ErrorKind::InvalidData.into(),
    })
}

impl Bind {
    fn bind(&self) -> Result<(OwnedFd, SocketFile), ListenError> {
        let config = &self.listen;
        let kind = SocketType::from(self.kind);
        let path = &config.path;
        let io = |what| {
            move |source: io::Error| ListenError::Io {
                path: path.clone(),
                what,
                source,
            }
        };
        let errno = |what| move |errno: Errno| io(what)(errno.into());
        let address = SocketAddrUnix::new(path.as_path()).map_err(|error| match error {
            Errno::NAMETOOLONG => ListenError::TooLong(path.clone()),
            error => errno("use the path")(error),
        })?;
        // Held until this returns: of two servers that start at once, one looks for an old socket
        // and binds, then the other. Without it, the second could remove the first one's socket.
        let _lock = Lock::take(path);
        remove_stale(path, &address, kind)?;

        let socket = unix(kind).map_err(errno("make a socket"))?;
        if self.descriptors == Descriptors::Refused {
            // Before anybody connects: a connection has the option that the listener has then. An
            // older kernel does not know it.
            let _ = refuse_descriptors(&socket);
        }
        // The file is made with this mode, less the umask: nobody connects before it has its
        // group.
        fchmod(&socket, Mode::empty()).map_err(errno("set the mode"))?;
        bind(&socket, &address).map_err(errno("bind"))?;
        let made = take_file(config, |found| found.mode() & 0o777 == 0)?;
        if self.kind != SocketKind::Datagram {
            listen(&socket, self.backlog).map_err(errno("listen"))?;
        }
        Ok((socket, made))
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

/// A lock file beside a socket, which only this user can open: others cannot hold it, and one of
/// theirs in its place is left alone. It is removed while it is locked.
struct Lock {
    path: PathBuf,
    /// Closing it unlocks it.
    _file: fs::File,
}

impl Lock {
    /// Waits for at most a second; none if there can be no lock, or it is never free. The file of
    /// the socket is then looked after as well as can be.
    fn take(socket: &Path) -> Option<Lock> {
        let mut path = socket.as_os_str().to_owned();
        // A name of ours alone, as the file is removed: a daemon chooses the rest of it.
        path.push(".softnet-lock");
        let path = PathBuf::from(path);
        for _ in 0..100 {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let mode = Mode::RUSR | Mode::WUSR;
            let file = open(&path, flags | OFlags::CLOEXEC, mode).ok()?;
            let file = fs::File::from(file);
            let opened = file.metadata().ok()?;
            if !opened.is_file() || opened.uid() != geteuid().as_raw() {
                return None;
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    // Who had it before has removed the file.
                    let named = fs::symlink_metadata(&path);
                    if named.is_ok_and(|named| named.ino() == opened.ino()) {
                        return Some(Lock { path, _file: file });
                    }
                }
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // One that stays is used again.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the file of a socket if it is still that one, by device and inode.
pub(crate) fn remove_own(path: &Path, file: (u64, u64)) {
    let is_there = || {
        let found = fs::symlink_metadata(path);
        found.is_ok_and(|found| (found.dev(), found.ino()) == file)
    };
    // A server that starts there meanwhile has the lock while it replaces the file.
    let _lock = is_there().then(|| Lock::take(path));
    if is_there() {
        // Nothing can be done if it fails; the next server replaces it.
        let _ = fs::remove_file(path);
    }
}

/// Removes the socket of a server that is dead.
fn remove_stale(
    path: &Path,
    address: &SocketAddrUnix,
    kind: SocketType,
) -> Result<(), ListenError> {
    let io = |what, source: io::Error| ListenError::Io {
        path: path.into(),
        what,
        source,
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io("look for an old socket", error)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.into()));
        }
        Ok(_) => {}
    }
    let probe = unix(kind).map_err(|error| io("make a socket", error.into()))?;
    match connect(&probe, address) {
        // A full backlog, or another type of socket, has a live owner, too.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(ListenError::InUse(path.into())),
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).map_err(|error| io("remove the old socket", error))
        }
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(io("ask whether a server listens there", error.into())),
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
