//! A wake-up as a file, for loops around `poll` or `epoll`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

/// An event descriptor (`eventfd`) that becomes readable when its [waker](WakeFile::waker) is
/// called. Clones share it.
#[derive(Clone, Debug)]
pub struct WakeFile(Arc<Event>);

#[derive(Debug)]
struct Event(OwnedFd);

impl WakeFile {
    /// A file that is not readable.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new() -> io::Result<WakeFile> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(WakeFile(Arc::new(Event(file))))
    }

    /// Makes the file readable when it is called: one system call, which never blocks.
    pub fn waker(&self) -> Waker {
        self.0.clone().into()
    }

    /// Makes the file not readable, until the waker is called again. Never blocks. To be called
    /// before the look at what the waker was given for.
    pub fn clear(&self) {
        // Fails where there is nothing to read.
        let _ = rustix::io::read(&self.0.0, &mut [0; 8]);
    }
}

impl AsFd for WakeFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Fails only where so many wake-ups are to be read that one more tells nothing.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
