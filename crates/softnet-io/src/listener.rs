//! A Unix socket that listens: its file is made with its mode and group, never in the place of a
//! live one.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The socket's file.
    pub path: PathBuf,
    /// Its mode: who may connect.
    pub mode: u32,
    /// Its group; none: the process's own.
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
    /// There is no such group.
    #[error("there is no group \"{0}\" in /etc/group")]
    NoGroup(String),
}

/// The number of a group: a number, or a name in `/etc/group`.
///
/// # Errors
/// If no group has that name.
pub fn group_id(name: &str) -> Result<u32, ListenError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let line = groups
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| {
            (fields.next() == Some(name)).then(|| fields.nth(1).and_then(|gid| gid.parse().ok()))
        });
    line.flatten()
        .ok_or_else(|| ListenError::NoGroup(name.into()))
}

/// A listening socket. Its file goes when it does.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

fn unix(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, kind, flags, None)
}

impl Listener {
    /// Listens with a socket of type `kind`, for at most `backlog` clients that wait to be
    /// accepted. The file of a server that is dead is replaced.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(config: &Listen, kind: SocketType, backlog: i32) -> Result<Listener, ListenError> {
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
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // Two servers that start at once look and bind one after the other.
        let folder = fs::File::open(folder).map_err(io("open its directory"))?;
        lock(&folder).map_err(errno("lock its directory"))?;
        remove_stale(path, &address, kind)?;

        let socket = unix(kind).map_err(errno("make a socket"))?;
        // The file is made with this mode, less the umask: nobody connects before it has its
        // group.
        fchmod(&socket, Mode::empty()).map_err(errno("set the mode"))?;
        bind(&socket, &address).map_err(errno("bind"))?;
        let file = fs::symlink_metadata(path).map_err(io("find the socket"))?;
        let listener = Listener {
            socket,
            path: path.clone(),
            file: (file.dev(), file.ino()),
        };
        if config.group.is_some() {
            lchown(path, None, config.group).map_err(io("set the group"))?;
        }
        let mode = fs::Permissions::from_mode(config.mode & 0o777);
        fs::set_permissions(path, mode).map_err(io("set the mode"))?;
        listen(&listener.socket, backlog).map_err(errno("listen"))?;
        Ok(listener)
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
        let file = fs::symlink_metadata(&self.path);
        if file.is_ok_and(|file| (file.dev(), file.ino()) == self.file) {
            // Nothing can be done if it fails; the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Locks a directory until it is closed. Whoever may read it may lock it, so the wait has an end.
fn lock(folder: &fs::File) -> rustix::io::Result<()> {
    for _ in 0..100 {
        match flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
    Err(Errno::WOULDBLOCK)
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
