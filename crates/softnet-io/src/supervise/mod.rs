//! A program whose NETLINK_ROUTE sockets are another daemon's, by seccomp user notification
//! (`seccomp_unotify(2)`): for programs that make system calls without the C library.
//!
//! The program runs below a filter that has a few of its calls wait for this process, the
//! supervisor. A socket for NETLINK_ROUTE is then a Unix socket to the daemon, put into the program
//! in the place of its own; calls that would tell the difference (names, options, received
//! messages) are answered here, by reading and writing the program's memory. All else goes on in
//! the kernel. So do calls that the supervisor does not answer: those find an empty network
//! namespace at most. It keeps nothing: what it knows of a socket is in the socket, as with the
//! preload library.
//!
//! The program is not trusted: lengths are bounded, its memory is read once, and a call
//! that is gone is not answered.

#![allow(
    unsafe_code,
    reason = "seccomp and another process's memory have no safe wrapper"
)]

mod answer;
mod filter;
mod ioctl;
mod memory;
mod notification;
mod route;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use notification::Listener;

/// Runs a program and what it starts until it ends; its NETLINK_ROUTE sockets reach the daemon that
/// listens at `socket`. `keeps_host` lets calls through that change the kernel's interfaces.
///
/// # Errors
/// If it cannot be started, or the system has no user notification.
pub fn supervise(mut command: Command, socket: &Path, keeps_host: bool) -> io::Result<ExitStatus> {
    let filter = filter::program();
    let (mut told, tell) = pipe()?;
    let (go, mut ready) = pipe()?;
    let (tell_fd, go_fd) = (tell.as_raw_fd(), go.as_raw_fd());
    // SAFETY: between fork and exec it makes system calls alone, with memory from before.
    unsafe {
        command.pre_exec(move || {
            let listener = filter::install(&filter)?;
            let mut word = [0_u8; 8];
            word[..4].copy_from_slice(&std::process::id().to_ne_bytes());
            word[4..].copy_from_slice(&listener.to_ne_bytes());
            let len = libc::write(tell_fd, word.as_ptr().cast(), word.len());
            let mut byte = 0_u8;
            // The supervisor has it when this returns.
            if len != 8 || libc::read(go_fd, (&raw mut byte).cast(), 1) != 1 {
                return Err(io::Error::last_os_error());
            }
            libc::close(listener);
            Ok(())
        });
    }
    let socket = socket.to_owned();
    let supervisor = thread::Builder::new().name("supervisor".to_owned());
    let supervisor = supervisor.spawn(move || {
        let mut word = [0; 8];
        // Ends without one if the program could not be made.
        told.read_exact(&mut word)?;
        let [a, b, c, d, e, f, g, h] = word;
        let (pid, fd) = (
            i32::from_ne_bytes([a, b, c, d]),
            i32::from_ne_bytes([e, f, g, h]),
        );
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let listener = memory::take_fd(&pidfd, fd)?;
        ready.write_all(&[1])?;
        Listener::new(listener).serve(&answer::Context::new(socket, keeps_host))
    })?;
    let started = command.spawn();
    // The program has its own ends.
    drop((tell, go));
    let Ok(mut child) = started else {
        // The supervisor has seen the end of the pipe.
        let _ = supervisor.join();
        return started.map(|_| ExitStatus::default());
    };
    // What it has left running is served no more.
    child.wait()
}

/// A pipe's ends, which are closed by exec.
fn pipe() -> io::Result<(std::fs::File, std::fs::File)> {
    let (read, write): (OwnedFd, OwnedFd) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((read.into(), write.into()))
}

/// The last error of a system call that returned less than 0.
fn checked(result: i64) -> io::Result<i64> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// A descriptor that a system call has made.
fn owned(result: i64) -> io::Result<OwnedFd> {
    let fd = checked(result)?;
    // SAFETY: it is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
