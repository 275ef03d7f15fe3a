//! Calls that wait for the supervisor, and the answers to them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use super::answer::{Answer, Context};
use super::checked;

/// `SECCOMP_IOCTL_NOTIF_*`.
const RECV: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const ID_VALID: u64 = 0x4008_2102;
const ADDFD: u64 = 0x4018_2103;
const FLAG_CONTINUE: u32 = 1;
const ADDFD_SETFD: u32 = 1;
const ADDFD_SEND: u32 = 2;

/// Calls that may wait for a message at a time, each with a thread.
const WAITING: usize = 256;

/// The descriptor of a filter's notifications.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    waiting: AtomicUsize,
}

/// A call that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    id: u64,
    /// The thread that made it.
    pub(super) thread: u32,
    /// Number of the system call.
    pub(super) number: i64,
    pub(super) arguments: [u64; 6],
}

impl Listener {
    pub(super) fn new(fd: OwnedFd) -> Arc<Listener> {
        Arc::new(Listener {
            fd,
            waiting: AtomicUsize::new(0),
        })
    }

    /// Answers calls until nobody is below the filter any more.
    pub(super) fn serve(self: &Arc<Self>, context: &Arc<Context>) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let events = fds[0].revents();
            if events.contains(PollFlags::IN) {
                match self.receive() {
                    Ok(call) => self.answer(context, call),
                    // It was given up.
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            } else if !events.is_empty() {
                return Ok(());
            }
        }
    }

    fn receive(&self) -> io::Result<Call> {
        // SAFETY: all bytes may be zero, and the kernel asks for zeros.
        let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure of this size.
        checked(i64::from(unsafe {
            libc::ioctl(self.fd.as_raw_fd(), RECV, &raw mut notification)
        }))?;
        Ok(Call {
            id: notification.id,
            thread: notification.pid,
            number: notification.data.nr.into(),
            arguments: notification.data.args,
        })
    }

    fn answer(self: &Arc<Self>, context: &Arc<Context>, call: Call) {
        match context.answer(self, call) {
            Answer::Wait(wait) => {
                if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    self.finish(call, Err(libc::ENOBUFS));
                    return;
                }
                let listener = self.clone();
                let waiter = std::thread::Builder::new().name("waiter".to_owned());
                let waits = waiter.stack_size(256 * 1024).spawn(move || {
                    let result = wait.run(&listener, call);
                    listener.waiting.fetch_sub(1, Ordering::Relaxed);
                    if let Some(result) = result {
                        listener.finish(call, result);
                    }
                });
                if waits.is_err() {
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    self.finish(call, Err(libc::ENOBUFS));
                }
            }
            Answer::Continue => self.send(call, 0, 0, FLAG_CONTINUE),
            Answer::Done(result) => self.finish(call, result),
            Answer::Socket(socket, flags) => self.add(call, &socket, None, flags),
            Answer::Replaced(socket, fd, flags) => self.add(call, &socket, Some(fd), flags),
        }
    }

    fn finish(&self, call: Call, result: Result<i64, i32>) {
        match result {
            Ok(value) => self.send(call, value, 0, 0),
            Err(errno) => self.send(call, 0, -errno, 0),
        }
    }

    /// A call that is gone needs no answer.
    fn send(&self, call: Call, val: i64, error: i32, flags: u32) {
        let mut answer = libc::seccomp_notif_resp {
            id: call.id,
            val,
            error,
            flags,
        };
        // SAFETY: the kernel reads the structure of this size.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), SEND, &raw mut answer) };
    }

    /// Gives the program a socket: as the result of its call, or in the place of another.
    fn add(&self, call: Call, socket: &OwnedFd, place: Option<i32>, flags: u32) {
        let mut add = libc::seccomp_notif_addfd {
            id: call.id,
            flags: if place.is_some() {
                ADDFD_SETFD
            } else {
                ADDFD_SEND
            },
            srcfd: socket.as_raw_fd() as u32,
            newfd: place.unwrap_or(0) as u32,
            newfd_flags: flags,
        };
        // SAFETY: as above.
        let added = unsafe { libc::ioctl(self.fd.as_raw_fd(), ADDFD, &raw mut add) };
        if added < 0 {
            let errno = io::Error::last_os_error().raw_os_error();
            self.finish(call, Err(errno.unwrap_or(libc::EMFILE)));
        } else if place.is_some() {
            self.finish(call, Ok(0));
        }
    }

    /// True if the call still waits: what was read of its memory is the caller's.
    pub(super) fn is_valid(&self, call: Call) -> bool {
        let mut id = call.id;
        // SAFETY: the kernel reads a number.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), ID_VALID, &raw mut id) == 0 }
    }
}
