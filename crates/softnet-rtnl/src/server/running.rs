//! The server as others see it while it answers: woken, held, copied and stopped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use softnet_io::{ListenError, Listener};

/// Looks at whether the server holds, and the time between them.
const HOLD_LOOKS: usize = 5000;
const HOLD_LOOK: Duration = Duration::from_millis(1);

/// State that a [`Waker`] shares with its server.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) eventfd: OwnedFd,
    pub(super) stop: AtomicBool,
    /// Nobody is let in, and no request is read.
    pub(super) hold: AtomicBool,
    /// The server knows of that.
    pub(super) holds: AtomicBool,
}

/// Tells the server that the service has changes to publish, or has settled some.
#[derive(Clone, Debug)]
pub struct Waker(pub(super) Arc<Shared>);

impl Waker {
    /// Has the server ask for [`Service::changes`](crate::nl::Service::changes).
    pub fn wake(&self) {
        // It can fail in one way, a counter at its end, in which case the server is woken all the
        // same.
        let _ = rustix::io::write(&self.0.eventfd, &1_u64.to_ne_bytes());
    }
}

/// Listening sockets that another server had.
#[derive(Debug, Default)]
pub struct Sockets {
    /// That of [`Config::listen`](super::Config::listen).
    pub listener: Option<OwnedFd>,
    /// That of [`Config::monitor`](super::Config::monitor).
    pub monitor: Option<OwnedFd>,
}

/// A server that answers. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    pub(super) thread: Option<JoinHandle<io::Result<()>>>,
    pub(super) waker: Waker,
    pub(super) listener: Arc<Listener>,
    pub(super) monitor: Option<Arc<Listener>>,
}

impl Running {
    /// A handle that tells the server of changes.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// True if it has ended by itself, which is an error: [`stop`](Running::stop) says which.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Answers no request from when this returns, and lets nobody in: who connects waits. False: it
    /// is in the middle of one for too long.
    pub fn hold(&self) -> bool {
        let Shared { hold, holds, .. } = &*self.waker.0;
        // Release, as what it has done for clients is seen by who sees that it holds.
        hold.store(true, Ordering::Release);
        self.waker.wake();
        (0..HOLD_LOOKS).any(|_| {
            let held = holds.load(Ordering::Acquire) || self.is_finished();
            if !held {
                std::thread::sleep(HOLD_LOOK);
            }
            held
        })
    }

    /// Goes on after [`hold`](Running::hold), or [that](super::Server::hold) before it started.
    pub fn go_on(&self) {
        self.waker.0.hold.store(false, Ordering::Release);
        self.waker.wake();
    }

    /// Copies of its sockets, for another server in its place. Their files stay from then on.
    ///
    /// # Errors
    /// If no file descriptors are left.
    pub fn sockets(&self) -> io::Result<Sockets> {
        let copy = |listener: &Arc<Listener>| listener.as_fd().try_clone_to_owned();
        let sockets = Sockets {
            listener: Some(copy(&self.listener)?),
            monitor: self.monitor.as_ref().map(copy).transpose()?,
        };
        self.listeners().for_each(|listener| listener.keep());
        Ok(sockets)
    }

    /// Removes the sockets' files at its end, once no other server has them.
    ///
    /// # Errors
    /// If a file is not a socket of ours.
    pub fn own(&self) -> Result<(), ListenError> {
        self.listeners().try_for_each(|listener| listener.own())
    }

    fn listeners(&self) -> impl Iterator<Item = &Arc<Listener>> {
        std::iter::once(&self.listener).chain(&self.monitor)
    }

    /// Stops it and removes its sockets.
    ///
    /// # Errors
    /// With which it ended before.
    pub fn stop(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        // Ordering: the eventfd's counter orders the store before the load of who reads it.
        self.waker.0.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let result = self.thread.take().map(JoinHandle::join);
        result
            .unwrap_or(Ok(Ok(())))
            .unwrap_or_else(|_| Err(io::Error::other("panicked")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Whoever wants the error calls `stop`.
        let _ = self.join();
    }
}
