//! Memory and descriptors of the program that waits.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{checked, owned};

/// A process, by a thread of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process(i32);

/// The process cannot read or write there, or is gone.
pub(super) const FAULT: i32 = libc::EFAULT;

impl Process {
    /// The process of a thread.
    pub(super) fn of(thread: u32) -> io::Result<Process> {
        let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let id = line.and_then(|id| id.trim().parse().ok());
        id.map(Process)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// A descriptor of the process, as one of this process.
    pub(super) fn fd(self, fd: i32) -> io::Result<OwnedFd> {
        let pid = Pid::from_raw(self.0).ok_or(io::ErrorKind::InvalidData)?;
        take_fd(&pidfd_open(pid, PidfdFlags::empty())?, fd)
    }

    /// Reads memory.
    pub(super) fn read<const N: usize>(self, at: u64) -> Result<[u8; N], i32> {
        let mut bytes = [0; N];
        self.read_into(at, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn read_into(self, at: u64, bytes: &mut [u8]) -> Result<(), i32> {
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let remote = libc::iovec {
            iov_base: at as *mut _,
            iov_len: bytes.len(),
        };
        // SAFETY: the kernel writes as many bytes as `bytes` has; the other address is another
        // process's, and checked.
        let len = unsafe { libc::process_vm_readv(self.0, &local, 1, &remote, 1, 0) };
        match usize::try_from(len) {
            Ok(len) if len == bytes.len() => Ok(()),
            _ => Err(FAULT),
        }
    }

    /// Writes memory.
    pub(super) fn write(self, at: u64, bytes: &[u8]) -> Result<(), i32> {
        if bytes.is_empty() {
            return Ok(());
        }
        let local = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let remote = libc::iovec {
            iov_base: at as *mut _,
            iov_len: bytes.len(),
        };
        // SAFETY: the kernel reads as many bytes as `bytes` has; the other address is another
        // process's, and checked.
        let len = unsafe { libc::process_vm_writev(self.0, &local, 1, &remote, 1, 0) };
        match usize::try_from(len) {
            Ok(len) if len == bytes.len() => Ok(()),
            _ => Err(FAULT),
        }
    }
}

/// A descriptor of another process.
pub(super) fn take_fd(pidfd: &OwnedFd, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
    owned(checked(taken)?)
}

impl Process {
    pub(super) fn id(self) -> u32 {
        self.0.cast_unsigned()
    }

    /// Flags of a descriptor, as `socket(2)` takes them.
    pub(super) fn fd_flags(self, fd: i32) -> u32 {
        let info = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.0));
        let flags = info.ok().and_then(|info| {
            let line = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
            u32::from_str_radix(line.trim(), 8).ok()
        });
        flags.unwrap_or(0) & libc::O_CLOEXEC as u32
    }
}
