//! Notifications of a queue of the port by the guest.
//!
//! A worker watches one file as long as the queue lives; the guest's event descriptors come and
//! go. So the file is an epoll instance, which holds the descriptor of the moment and one of our
//! own. Both are edge-triggered: nothing is ever read from the guest's, which may be set not to
//! block and back by the front end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// The file that a worker watches for a queue.
#[derive(Debug)]
pub(super) struct Kick {
    epoll: OwnedFd,
    /// Ours.
    own: OwnedFd,
    /// The guest's.
    guest: Mutex<Option<Arc<OwnedFd>>>,
}

impl Kick {
    pub(super) fn new() -> io::Result<Kick> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        add(&epoll, &own)?;
        Ok(Kick {
            epoll,
            own,
            guest: Mutex::new(None),
        })
    }

    /// Watches this descriptor of the guest, or none. Returns whether it is another one.
    pub(super) fn set(&self, kick: Option<&Arc<OwnedFd>>) -> io::Result<bool> {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        if guest.as_ref().map(Arc::as_ptr) == kick.map(Arc::as_ptr) {
            return Ok(false);
        }
        if let Some(old) = guest.take() {
            // The front end has the file, too, so that it would stay.
            epoll::delete(&self.epoll, &*old).map_err(io::Error::from)?;
        }
        if let Some(new) = kick {
            add(&self.epoll, new)?;
            *guest = Some(new.clone());
        }
        Ok(true)
    }

    /// Reports an event.
    pub(super) fn wake(&self) {
        // It fails if the counter is at its end, in which case the event is there.
        let _ = rustix::io::write(&self.own, &1_u64.to_ne_bytes());
    }

    /// Takes the events that there are: until the next, the file is not readable.
    pub(super) fn drain(&self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 2];
        // If it fails, the queue is looked at once more.
        let _ = epoll::wait(&self.epoll, &mut events, Some(&now));
    }

    /// Readable when there are events.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn add(epoll: &OwnedFd, fd: &OwnedFd) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    Ok(epoll::add(epoll, fd, epoll::EventData::new_u64(0), flags)?)
}
