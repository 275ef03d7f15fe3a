//! A program that is started for a port and is its peer.

use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::rights::Passt;

/// A way to the Internet that is started for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplink {
    /// `passt(1)`: user-mode networking, for one station.
    Passt,
}

/// Starts passt: at once, and again when it has ended, after a pause that grows.
#[derive(Debug)]
pub(super) struct Starts {
    mtu: u32,
    running: Option<Passt>,
    pause: Duration,
    due: Instant,
    /// End of the last one.
    reason: String,
}

impl Starts {
    pub(super) fn new(mtu: u32) -> Starts {
        Starts {
            mtu,
            running: None,
            pause: Duration::ZERO,
            due: Instant::now(),
            reason: String::new(),
        }
    }

    /// The one that runs.
    pub(super) fn running(&mut self) -> Option<&mut Passt> {
        self.running.as_mut()
    }

    /// A connected socket of the next one. Call it when the last one's is at its end.
    ///
    /// # Errors
    /// The reason why the last one ended, until the next may be started; or why it cannot be.
    pub(super) fn next(&mut self) -> io::Result<OwnedFd> {
        if let Some(passt) = self.running.take() {
            self.pause = passt.pause(self.pause);
            self.reason = passt.ended();
            self.due = Instant::now() + self.pause;
        }
        if Instant::now() < self.due {
            return Err(io::Error::other(self.reason.clone()));
        }
        match Passt::start(self.mtu) {
            Ok((passt, socket)) => {
                self.running = Some(passt);
                Ok(socket)
            }
            Err(error) => {
                self.pause = Passt::longer(self.pause);
                self.due = Instant::now() + self.pause;
                self.reason = match error.source() {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                };
                Err(io::Error::other(self.reason.clone()))
            }
        }
    }
}
