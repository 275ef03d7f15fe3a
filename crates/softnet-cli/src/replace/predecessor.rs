//! The daemon that runs, as its successor sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use softnet_io::HandOff;
use softnet_io::rights::Channel;
use softnet_rtnl::nl::Operation;
use softnet_rtnl::server::Sockets;

use super::{Message, bytes, channel, receive};
use crate::client::{Daemon, Reach};
use crate::failure::{Exit, Failure};
use crate::log::log;

/// Time in which a daemon that has not accepted a connection may turn out to be none.
const LOOKING: Duration = Duration::from_secs(1);
/// Time in which a daemon that dies is waited for: all of its threads must have got a CPU before
/// what it has is closed.
pub(crate) const DYING: Duration = Duration::from_secs(10);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// The daemon before this one.
#[derive(Debug)]
pub(crate) enum Before {
    /// There is none.
    Nobody,
    /// It died when it was asked.
    Dead,
    /// It waits to be replaced.
    Runs(Predecessor),
}

/// A daemon that is to be replaced.
#[derive(Debug)]
pub(crate) struct Predecessor {
    channel: Channel,
    /// The running state when it was asked.
    pub state: String,
}

/// Things that came from it.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The last state; none if it died before.
    pub state: Option<String>,
    /// Devices by the names of their ports.
    pub devices: Vec<(String, HandOff)>,
    pub control: Sockets,
    pub metrics: Option<OwnedFd>,
    /// It died before it had given everything.
    pub has_died: bool,
}

fn lost(error: &io::Error) -> Failure {
    let what = "cannot take over from the daemon that runs";
    Failure::because(Exit::Failure, what, error)
}

impl Predecessor {
    /// Asks the daemon that listens there.
    pub(crate) fn ask(path: &Path) -> Result<Before, Failure> {
        let daemon = match Daemon::connect(&Reach::default().at(Some(path.to_owned()))) {
            Ok(daemon) => daemon,
            Err(_) if nobody_listens(path, LOOKING) => return Ok(Before::Nobody),
            Err(failure) => return Err(failure),
        };
        let state = match daemon.ask(Operation::Replace, "") {
            Ok(state) => state,
            // It dies, and is waited for.
            Err(_) if daemon.is_closed() && nobody_listens(path, DYING) => {
                return Ok(Before::Dead);
            }
            Err(failure) => return Err(failure),
        };
        let channel = channel(daemon.into_socket()).map_err(|error| lost(&error))?;
        Ok(Before::Runs(Predecessor { channel, state }))
    }

    /// Has it stop, and takes what it has. If it dies meanwhile, that is what came until then.
    pub(crate) fn take(&self) -> Result<Taken, Failure> {
        let pid = std::process::id();
        match self
            .channel
            .send(&Message::Go { pid }, &[], SendFlags::empty())
        {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent.map_err(|error| lost(&error))?,
        }
        let mut taken = Taken::default();
        let mut more = Vec::new();
        loop {
            let received = receive(&self.channel, || {});
            let Some((message, files)) = received.map_err(|error| lost(&error))? else {
                log("the daemon before this one has died; started with what it left");
                taken.has_died = true;
                return Ok(taken);
            };
            let mut files = files.into_iter();
            match message {
                Message::State => {
                    let text = files.next().map(bytes).transpose();
                    let text = text.map_err(|error| lost(&error))?.unwrap_or_default();
                    taken.state = String::from_utf8(text).ok();
                }
                Message::Files => more.extend(files),
                Message::Device { port, rest } => {
                    more.extend(files);
                    let rest = if rest { more.pop() } else { None };
                    let rest = rest.map(bytes).transpose();
                    let handed = HandOff {
                        rest: rest.map_err(|error| lost(&error))?.unwrap_or_default(),
                        files: std::mem::take(&mut more),
                    };
                    taken.devices.push((port, handed));
                }
                Message::Control => {
                    taken.control = Sockets {
                        listener: files.next(),
                        monitor: files.next(),
                    }
                }
                Message::Metrics => taken.metrics = files.next(),
                Message::End => return Ok(taken),
                Message::Refused(why) => return Err(refused(&why)),
                Message::Go { .. } | Message::Running | Message::Yours => {
                    return Err(lost(&io::ErrorKind::InvalidData.into()));
                }
            }
        }
    }

    /// Tells it that this daemon runs, and waits until it ends.
    pub(crate) fn running(&self) -> Result<(), Failure> {
        // If it has refused or died, that is to be read.
        let _ = self
            .channel
            .send(&Message::Running, &[], SendFlags::empty());
        match receive(&self.channel, || {}) {
            Ok(Some((Message::Refused(why), _))) => Err(refused(&why)),
            Ok(Some((Message::Yours, _))) => Ok(()),
            Ok(None) => {
                log("the daemon before this one has died");
                Ok(())
            }
            Ok(Some(_)) => Err(lost(&io::ErrorKind::InvalidData.into())),
            Err(error) => Err(lost(&error)),
        }
    }
}

/// True if there is no daemon, now or within this time.
fn nobody_listens(path: &Path, within: Duration) -> bool {
    let is_nobody_there = || {
        let refused = crate::client::reach(path).map_err(|error| error.kind());
        matches!(
            refused,
            Err(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        )
    };
    try_again(within, is_nobody_there, |is_nobody| !is_nobody)
}

/// Tries something every 10 ms, as long as `fails` says so of what comes of it, and for this time.
/// Returns what came last. Blocks.
pub(crate) fn try_again<T>(
    within: Duration,
    mut attempt: impl FnMut() -> T,
    fails: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + within;
    loop {
        let tried = attempt();
        if !fails(&tried) || Instant::now() >= end {
            return tried;
        }
        thread::sleep(PAUSE);
    }
}

fn refused(why: &str) -> Failure {
    let text = format!("the daemon that runs goes on: {why}");
    Failure::new(Exit::Failure, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_end_with_success_or_their_time() {
        let hour = Duration::from_secs(3600);
        let mut tries = 0;
        let third = || {
            tries += 1;
            tries == 3
        };
        assert!(try_again(hour, third, |is_third| !is_third));
        assert_eq!(tries, 3);
        // Each takes longer than all may.
        let mut tries = 0;
        let slow = || {
            tries += 1;
            thread::sleep(Duration::from_millis(2));
        };
        try_again(Duration::from_millis(1), slow, |()| true);
        assert_eq!(tries, 1);
    }
}
