//! The life of a port: waiting for a front end, talking to it, losing it.
//!
//! A thread of the port's own does it, so that no front end keeps another waiting. The port's
//! queues exist all the time; while there is no front end, or it has no ring, they are down.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use softnet_engine::LinkState;

use super::budget::Budget;
use super::connection::{Connection, ReceiveError};
use super::kept::{Ending, Kept, Left};
use super::port::{Attention, Port};
use super::protocol::{Messages, Protocol, ProtocolError, ReplayError};
use super::ring::RingError;
use crate::listener::connect_unix;
use crate::{Listener, SocketKind, rights};

/// Time until the next front end after one that went, failed, or was not there.
const RETRY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// After one that has had a worker wait.
const LONG_RETRY: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// Where the front end comes from.
pub(super) enum Place {
    /// It connects to our socket.
    Listen(OwnedFd),
    /// We connect to its socket.
    Connect,
}

/// The life of a port, shared by its queues. When the last of them is dropped the socket is removed
/// and the thread ends.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) port: Arc<Port>,
    pub(super) kept: Arc<Kept>,
}

impl Life {
    /// Starts the thread.
    pub(super) fn start(
        port: Port,
        path: PathBuf,
        place: Place,
        listener: Option<Listener>,
        before: Option<Left>,
    ) -> io::Result<Life> {
        let port = Arc::new(port);
        let kept = Arc::new(Kept::new(listener));
        let thread = Thread {
            port: port.clone(),
            path,
            place,
            before,
            ending: kept.ending.clone(),
        };
        let builder = std::thread::Builder::new().name("vhost-user".into());
        builder.spawn(move || thread.run())?;
        Ok(Life { port, kept })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.port.stop();
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    /// The port was closed.
    #[error("stopped")]
    Stopped,
    /// Bytes that are no message, or the end of the connection.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The front end asked for something impossible.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Another process left what cannot be.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The answer was not taken.
    #[error("the front end takes no answer")]
    Send(#[source] Errno),
    /// A file was truncated.
    #[error("the front end took guest memory away")]
    MemoryLost,
    /// It made an event descriptor block.
    #[error("the front end made the call event of ring {0} block")]
    CallBlocked(usize),
    /// The guest broke a ring.
    #[error("the guest broke ring {0}: {1}")]
    RingFailed(usize, RingError),
}

struct Thread {
    port: Arc<Port>,
    path: PathBuf,
    place: Place,
    /// The connection that another process had.
    before: Option<Left>,
    ending: Arc<Ending>,
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("path", &self.path).finish()
    }
}

impl Thread {
    fn run(mut self) {
        rights::port_thread();
        let before = self.before.take();
        let left = self.live(before);
        self.ending.leave(left);
    }

    /// Until the port is closed. Returns the connection that it had then.
    fn live(&self, mut before: Option<Left>) -> Option<Left> {
        let mut budget = Budget::new(self.port.pairs.len(), Instant::now());
        let waiting = format!("waiting for a front end at {}", self.path.display());
        self.port.set_status(waiting.clone());
        loop {
            let (socket, said) = match before.take() {
                Some(Left { socket, said }) => (socket, said),
                None => (self.wait_for_front_end()?, Messages::default()),
            };
            let mut connection = Connection::new(socket, &mut budget);
            let mut protocol = Protocol::new(self.port.clone());
            let ended = self.serve(&mut connection, &mut protocol, said);
            let left = matches!(ended, Ended::Stopped).then(|| {
                let said = protocol.messages().ok()?;
                let socket = connection.into_socket()?;
                Some(Left { socket, said })
            });
            self.reset();
            if let Some(left) = left {
                return left;
            }
            // At once: when the pause is over, the next may be there already.
            let status = format!("{waiting}; the last: {}", chain(&ended));
            self.port.set_status(status);
            // One that comes and goes, or fails, again and again does not keep others busy.
            let pause = match ended {
                Ended::CallBlocked(_) => &LONG_RETRY,
                _ => &RETRY,
            };
            if self.pause(pause) {
                return None;
            }
        }
    }

    /// A connected socket; `None` if the port is closed.
    fn wait_for_front_end(&self) -> Option<OwnedFd> {
        loop {
            match &self.place {
                Place::Listen(listener) => {
                    let mut fds = [
                        PollFd::new(listener, PollFlags::IN),
                        PollFd::from_borrowed_fd(self.port.attention(), PollFlags::IN),
                    ];
                    let ready = poll(&mut fds, None);
                    if self.port.take_attention() == Attention::Stop {
                        return None;
                    }
                    if ready.is_err() {
                        continue;
                    }
                    match acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                        Ok((socket, _)) => return Some(socket),
                        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                        // No file descriptors left.
                        Err(_) if self.pause(&RETRY) => return None,
                        Err(_) => {}
                    }
                }
                Place::Connect => {
                    if let Ok(socket) = connect_unix(&self.path, SocketKind::Stream) {
                        return Some(socket);
                    }
                    if self.pause(&RETRY) {
                        return None;
                    }
                }
            }
        }
    }

    /// Waits for a moment. True: the port is closed.
    fn pause(&self, time: &Timespec) -> bool {
        let attention = self.port.attention();
        let mut fds = [PollFd::from_borrowed_fd(attention, PollFlags::IN)];
        // Interrupted, it is shorter.
        let _ = poll(&mut fds, Some(time));
        self.port.take_attention() == Attention::Stop
    }

    /// Talks to a front end until it is gone; `said` are messages to another process.
    fn serve(
        &self,
        connection: &mut Connection<'_>,
        protocol: &mut Protocol,
        said: Messages,
    ) -> Ended {
        if let Err(error) = protocol.replay(said) {
            return error.into();
        }
        loop {
            if let Err(ended) = self.serve_one(connection, protocol) {
                return ended;
            }
        }
    }

    fn serve_one(
        &self,
        connection: &mut Connection<'_>,
        protocol: &mut Protocol,
    ) -> Result<(), Ended> {
        let (header, request) = match connection.receive(self.port.attention()) {
            Err(ReceiveError::Woken) => {
                return match self.port.take_attention() {
                    Attention::Nothing => Ok(()),
                    Attention::Stop => Err(Ended::Stopped),
                    Attention::MemoryLost => Err(Ended::MemoryLost),
                    Attention::CallBlocked(ring) => Err(Ended::CallBlocked(ring)),
                    Attention::RingFailed(ring, error) => Err(Ended::RingFailed(ring, error)),
                };
            }
            received => received?,
        };
        let answer = protocol.handle(request)?;
        let answer = match answer {
            None if header.needs_reply() && protocol.acknowledges() => Some(vec![0; 8]),
            answer => answer,
        };
        match answer {
            Some(answer) => {
                let answer = header.reply(&answer);
                connection.send(&answer).map_err(Ended::Send)
            }
            None => Ok(()),
        }
    }

    /// Nobody is connected: the port is down.
    fn reset(&self) {
        let none: Vec<_> = (0..2 * self.port.pairs.len()).map(|_| None).collect();
        // Nothing is set up, so nothing fails.
        let _ = self.port.apply(&none);
        self.port.set_link(LinkState {
            up: false,
            ..LinkState::default()
        });
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
