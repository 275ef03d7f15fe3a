//! A port's socket and connection, for a process that goes on with them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::protocol::Messages;
use crate::Listener;
use crate::hand_off::{Continued, HandOff};

/// Time that a port's thread may take to end: its front end may have it write or map something.
const END: Duration = Duration::from_secs(1);

/// A connection, and what brings another one to where it is.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) socket: OwnedFd,
    pub(super) said: Messages,
}

/// Things of a port that outlast its thread and its queues.
#[derive(Debug)]
pub(super) struct Kept {
    /// Removes the socket's file.
    listener: Option<Listener>,
    pub(super) ending: Arc<Ending>,
}

/// The end of a port's thread. It must not keep the socket, whose name is free when the port is
/// closed.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// The connection of a thread that has ended, if it had one.
    left: Mutex<Option<Option<Left>>>,
    ended: Condvar,
}

/// Files that are there, in this order, as the first byte of the state says.
const LISTENS: u8 = 1;
const CONNECTED: u8 = 2;

impl Kept {
    pub(super) fn new(listener: Option<Listener>) -> Kept {
        Kept {
            listener,
            ending: Arc::default(),
        }
    }
}

impl Ending {
    fn left(&self) -> MutexGuard<'_, Option<Option<Left>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread ends.
    pub(super) fn leave(&self, left: Option<Left>) {
        *self.left() = Some(left);
        self.ended.notify_all();
    }
}

impl Continued for Kept {
    fn hand_off(&self) -> io::Result<HandOff> {
        let (mut files, mut flags) = (Vec::new(), 0);
        if let Some(listener) = &self.listener {
            flags |= LISTENS;
            files.push(listener.as_fd().try_clone_to_owned()?);
        }
        let left = self.ending.left();
        let left = self
            .ending
            .ended
            .wait_timeout_while(left, END, |left| left.is_none());
        let (left, _) = left.unwrap_or_else(PoisonError::into_inner);
        let mut said: &[u8] = &[];
        if let Some(Some(left)) = &*left {
            flags |= CONNECTED;
            files.push(left.socket.try_clone()?);
            for file in &left.said.files {
                files.push(file.try_clone()?);
            }
            said = &left.said.bytes;
        }
        let rest = [&[flags], said].concat();
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
    pub(super) connection: Option<Left>,
}

impl From<HandOff> for Handed {
    fn from(handed: HandOff) -> Handed {
        let Some((&flags, said)) = handed.rest.split_first() else {
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
        let (listener, socket) = (file(LISTENS), file(CONNECTED));
        let said = Messages {
            bytes: said.to_owned(),
            files: files.collect(),
        };
        Handed {
            listener,
            connection: socket.map(|socket| Left { socket, said }),
        }
    }
}
