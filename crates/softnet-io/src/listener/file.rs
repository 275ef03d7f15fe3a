//! The file of a Unix socket: who may make it, its mode and group, and one that was left behind.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, chownat, flock, open};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType, connect};
use rustix::process::geteuid;

use super::{Listen, ListenError, unix};
use crate::rights::SocketFile;

/// The file of this name, not opened. Whoever may write in the directory may put something else
/// there at any time, so what was found is looked at and changed, not what has the name.
pub(super) fn find(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
}

/// The file of a socket of ours, with its mode and group.
pub(super) fn take_file(
    config: &Listen,
    is_ours: impl FnOnce(&fs::Metadata) -> bool,
) -> Result<SocketFile, ListenError> {
    let path = &config.path;
    let file = find(path).map_err(ListenError::io(path, "find the socket"))?;
    let found = file.try_clone().map(fs::File::from);
    let found = found.and_then(|found| found.metadata());
    let found = found.map_err(ListenError::io(path, "find the socket"))?;
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
            chownat(file, "", None, group, AtFlags::EMPTY_PATH)
                .map_err(ListenError::io(path, "set the group"))?;
        }
        let mode = fs::Permissions::from_mode(config.mode & 0o777);
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(file, mode).map_err(ListenError::io(path, "set the mode"))
    };
    match set() {
        Ok(()) => Ok(taken),
        Err(error) => {
            taken.remove_locked();
            Err(error)
        }
    }
}

/// A lock file beside a socket, which only this user can open: others cannot hold it, and one of
/// theirs in its place is left alone. It is removed while it is locked.
pub(super) struct Lock {
    path: PathBuf,
    /// Closing it unlocks it.
    _file: fs::File,
}

impl Lock {
    /// Waits for at most a second; none if there can be no lock, or it is never free. The file of
    /// the socket is then looked after as well as can be.
    pub(super) fn take(socket: &Path) -> Option<Lock> {
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
    // A server that starts there meanwhile has the lock while it replaces the file.
    let _lock = is_there(path, file).then(|| Lock::take(path));
    remove_own_locked(path, file);
}

/// As [`remove_own`], for who has the lock.
pub(crate) fn remove_own_locked(path: &Path, file: (u64, u64)) {
    if is_there(path, file) {
        // Nothing can be done if it fails; the next server replaces it.
        let _ = fs::remove_file(path);
    }
}

fn is_there(path: &Path, file: (u64, u64)) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| (found.dev(), found.ino()) == file)
}

/// Removes the socket of a server that is dead.
pub(super) fn remove_stale(
    path: &Path,
    address: &SocketAddrUnix,
    kind: SocketType,
) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ListenError::io(path, "look for an old socket")(error)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.into()));
        }
        Ok(_) => {}
    }
    let probe = unix(kind).map_err(ListenError::io(path, "make a socket"))?;
    match connect(&probe, address) {
        // A full backlog, or another type of socket, has a live owner, too.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(ListenError::InUse(path.into())),
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).map_err(ListenError::io(path, "remove the old socket"))
        }
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(ListenError::io(path, "ask whether a server listens there")(
            error,
        )),
    }
}
