//! Who is at the other end of a Unix socket, what it may pass, and where one is bound.

#![allow(
    unsafe_code,
    reason = "SO_PEERGROUPS, SO_PASSRIGHTS and SIOCUNIXFILE have no safe wrapper, and that of \
              SO_PEERCRED takes no process id of 0"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use zerocopy::{FromBytes, IntoBytes};

/// The rights of a process when it connected (`SO_PEERCRED`, `SO_PEERGROUPS`), as this process's
/// user namespace names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// `struct ucred`. The process id is 0 for a process of a namespace that this one does not see.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
#[repr(C)]
struct Credentials {
    pid: i32,
    uid: u32,
    gid: u32,
}

impl PeerCredentials {
    /// The credentials of the process that connected, or bound the socket that was connected to.
    ///
    /// # Errors
    /// If `socket` is not a connected Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<PeerCredentials> {
        let socket = socket.as_fd();
        let mut credentials = Credentials::default();
        get_option(socket, libc::SO_PEERCRED, credentials.as_mut_bytes())?;
        let mut groups = vec![0_u32; 32];
        loop {
            let room = size_of_val(groups.as_slice());
            match get_option(socket, libc::SO_PEERGROUPS, groups.as_mut_bytes()) {
                Ok(length) if length <= room => {
                    groups.truncate(length / size_of::<u32>());
                    break;
                }
                // The length that is needed.
                Ok(length) => groups.resize(length / size_of::<u32>(), 0),
                Err(error) => return Err(error),
            }
        }
        let Credentials { uid, gid, .. } = credentials;
        Ok(PeerCredentials { uid, gid, groups })
    }
}

/// Reads an option of `SOL_SOCKET` and returns its length, which is more than `value` has if it
/// does not fit there.
fn get_option(socket: BorrowedFd<'_>, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    let room = length;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has as many, and the
    // length to `length`; both live until it returns. Any bytes are valid in a `[u8]`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let error = io::Error::last_os_error();
    match result {
        0 => Ok(length as usize),
        _ if error.raw_os_error() == Some(libc::ERANGE) && length > room => Ok(length as usize),
        _ => Err(error),
    }
}

/// Has the kernel refuse descriptors that are sent to a Unix socket, and to those that are
/// accepted from it from now on (`SO_PASSRIGHTS`, Linux 6.16).
pub(crate) fn refuse_descriptors(socket: impl AsFd) -> io::Result<()> {
    /// `asm-generic/socket.h`; not in `libc` for all machines.
    const SO_PASSRIGHTS: i32 = 83;
    let value: i32 = 0;
    // SAFETY: the kernel reads the 4 bytes of `value`, which lives until it returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The file that a Unix socket is bound to, whatever its name leads to by now (`SIOCUNIXFILE`). It
/// can be looked at, not opened. Takes `CAP_NET_ADMIN`.
pub(crate) fn file_of(socket: impl AsFd) -> io::Result<OwnedFd> {
    /// `linux/un.h`.
    const UNIX_FILE: libc::Ioctl = 0x89e0;
    // SAFETY: takes no argument.
    let file = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), UNIX_FILE) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new file, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn credentials_of_this_process() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let peer = PeerCredentials::of(&one).expect("it is connected");
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
        let groups = rustix::process::getgroups().expect("they can be read");
        let groups: Vec<u32> = groups.into_iter().map(|group| group.as_raw()).collect();
        assert_eq!(peer.groups, groups);
    }

    /// More than fit at first.
    #[test]
    fn many_groups() {
        if !rustix::process::geteuid().is_root() {
            return softnet_tests::skip("only root can have other groups to test with");
        }
        // The groups of this thread only; it ends with the test.
        let groups: Vec<u32> = (1000..1100).collect();
        let raw: Vec<_> = groups
            .iter()
            .map(|gid| rustix::process::Gid::from_raw(*gid))
            .collect();
        rustix::thread::set_thread_groups(&raw).expect("root may");
        let (one, _other) = UnixStream::pair().expect("a pair");
        assert_eq!(
            PeerCredentials::of(&one).expect("it is connected").groups,
            groups
        );
    }
}
