//! The connection of a port, shared by its thread and its queues.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, epoll, eventfd};
use softnet::tx::RingWaker;
use softnet_engine::{DeviceDrops, Link, LinkState};

use crate::Listener;
use crate::hand_off::{Continued, HandOff};

/// Events of a port, and who is connected.
#[derive(Debug)]
pub(super) struct Port {
    /// Readable when the connection is: the file of the receive queue, which lasts.
    pub(super) readable: OwnedFd,
    /// Readable when the connection is writable again: that of the transmit queue.
    pub(super) writable: OwnedFd,
    /// Counts connections made and lost: a queue looks at its connection again when it has
    /// changed. It is changed with the lock held, after the connection.
    serial: AtomicU64,
    state: Mutex<State>,
    pub(super) waker: OnceLock<RingWaker>,
    /// Tells the thread that the connection is lost.
    pub(super) lost: OwnedFd,
    /// Tells a worker that the link changed.
    changed: OwnedFd,
    /// Removes the socket's file.
    listener: Option<Listener>,
    /// Parts of frames of a connection that another process had, or has from now on.
    parts: Mutex<Parts>,
}

/// Parts of frames, of one connection.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Received: the start of a frame.
    pub(super) received: Vec<u8>,
    /// To be sent: the end of a frame.
    pub(super) unsent: Vec<u8>,
}

#[derive(Debug)]
struct State {
    connection: Option<Arc<OwnedFd>>,
    status: String,
}

/// A queue's view of the connection.
#[derive(Debug, Default)]
pub(super) struct Seen {
    serial: u64,
    pub(super) connection: Option<Arc<OwnedFd>>,
}

impl Port {
    pub(super) fn new(listener: Option<Listener>, parts: Parts) -> io::Result<Port> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Port {
            readable: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            writable: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            serial: AtomicU64::new(0),
            state: Mutex::new(State {
                connection: None,
                status: "not connected".to_owned(),
            }),
            waker: OnceLock::new(),
            lost: event()?,
            changed: event()?,
            listener,
            parts: Mutex::new(parts),
        })
    }

    /// Parts of frames of the connection.
    pub(super) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port still has the connection that a queue sees.
    pub(super) fn has(&self, seen: &Seen) -> bool {
        let state = self.state();
        match (&state.connection, &seen.connection) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether the connection is another one. True: it is.
    pub(super) fn follow(&self, seen: &mut Seen) -> bool {
        // Acquire pairs with the Release below: who sees the number sees what it stands for, under
        // the lock all the same.
        if self.serial.load(Ordering::Acquire) == seen.serial {
            return false;
        }
        let state = self.state();
        seen.serial = self.serial.load(Ordering::Acquire);
        seen.connection.clone_from(&state.connection);
        true
    }

    /// Has a connection from now on. Called while there is none.
    pub(super) fn connect(&self, socket: OwnedFd, status: String) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.readable, &socket, data, epoll::EventFlags::IN)?;
        epoll::add(&self.writable, &socket, data, epoll::EventFlags::OUT).inspect_err(|_| {
            // To close the socket is not enough: the process that had it before may have it still.
            let _ = epoll::delete(&self.readable, &socket);
        })?;
        self.set(Some(Arc::new(socket)), status);
        Ok(())
    }

    /// The connection is lost, if it is still this one.
    pub(super) fn lose(&self, connection: &Arc<OwnedFd>, reason: String) {
        let is_current = |current: &mut Arc<OwnedFd>| Arc::ptr_eq(current, connection);
        // Of two queues that find it lost, one tells.
        if self.state().connection.take_if(is_current).is_none() {
            return;
        }
        // Their files must not be ready for it any more. The socket itself is closed when both
        // queues have looked.
        let _ = epoll::delete(&self.readable, connection);
        let _ = epoll::delete(&self.writable, connection);
        let _ = rustix::net::shutdown(connection, rustix::net::Shutdown::Both);
        *self.parts() = Parts::default();
        self.set(None, reason);
        notify(&self.lost);
    }

    fn set(&self, connection: Option<Arc<OwnedFd>>, status: String) {
        let mut state = self.state();
        state.connection = connection;
        state.status = status;
        self.serial.fetch_add(1, Ordering::Release);
        drop(state);
        notify(&self.changed);
        // What waits is sent, or dropped.
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Why there is no connection. Told as a change of the link is, once.
    pub(super) fn fail_to_connect(&self, reason: String) {
        let mut state = self.state();
        if state.connection.is_none() && state.status != reason {
            state.status = reason;
            drop(state);
            notify(&self.changed);
        }
    }
}

/// Makes an event file readable.
pub(super) fn notify(event: &OwnedFd) {
    // It fails only where it is readable already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Makes an event file readable no longer.
pub(super) fn drain(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// State beside the files: which there are, and parts of frames.
const LISTENS: u8 = 1;
const CONNECTED: u8 = 2;

impl Continued for Port {
    fn hand_off(&self) -> io::Result<HandOff> {
        let (mut files, mut flags) = (Vec::new(), 0);
        if let Some(listener) = &self.listener {
            flags |= LISTENS;
            files.push(listener.as_fd().try_clone_to_owned()?);
        }
        if let Some(connection) = &self.state().connection {
            flags |= CONNECTED;
            files.push(connection.try_clone()?);
        }
        let parts = self.parts();
        let length = (parts.received.len() as u32).to_le_bytes();
        let rest = [&[flags][..], &length, &parts.received, &parts.unsent].concat();
        Ok(HandOff { files, rest })
    }

    fn listener(&self) -> Option<&Listener> {
        self.listener.as_ref()
    }
}

/// A port that another process had.
#[derive(Debug, Default)]
pub(super) struct Handed {
    pub(super) listener: Option<OwnedFd>,
    pub(super) connection: Option<OwnedFd>,
    pub(super) parts: Parts,
}

impl From<HandOff> for Handed {
    /// Nothing, if it is none of a stream.
    fn from(handed: HandOff) -> Handed {
        let read = || {
            let (&[flags, a, b, c, d], rest) = handed.rest.split_first_chunk()?;
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            let (received, unsent) = rest.split_at_checked(length)?;
            let parts = Parts {
                received: received.to_owned(),
                unsent: unsent.to_owned(),
            };
            Some((flags, parts))
        };
        let Some((flags, parts)) = read() else {
            return Handed::default();
        };
        let mut files = handed.files.into_iter();
        let mut file = |flag| {
            if flags & flag != 0 {
                files.next()
            } else {
                None
            }
        };
        Handed {
            listener: file(LISTENS),
            connection: file(CONNECTED),
            parts,
        }
    }
}

impl Link for Port {
    fn dropped(&self) -> DeviceDrops {
        DeviceDrops::default()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.changed.as_fd())
    }

    fn status(&self) -> Option<String> {
        let state = self.state();
        let status = state.status.clone();
        Some(match (&state.connection, &self.listener) {
            (None, Some(own)) => format!("{status}; listens at {}", own.path().display()),
            _ => status,
        })
    }

    fn state(&self) -> LinkState {
        drain(&self.changed);
        LinkState {
            up: self.state().connection.is_some(),
            ..LinkState::default()
        }
    }
}
