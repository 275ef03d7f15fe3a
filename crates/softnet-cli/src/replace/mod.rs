//! `softnet run --replace`: a daemon takes over from the one that runs.
//!
//! ```text
//! successor                          daemon that runs
//!  Operation::Replace ------------->  the control thread releases the connection
//!  <------------------ running state
//!  gets ready: helper, workers
//!  Go ----------------------------->  answers no client, receives no more, drains its queues,
//!  <--- state, devices, sockets, End  closes its devices
//!  opens ports from their files
//!  Running ------------------------>
//!  <-------------------------- Yours  ends
//!  answers clients
//! ```
//!
//! Until `Yours` the one that runs can go on: it has copies of all files, and does so if the
//! successor says nothing, or is gone: it says `Refused`, and waits for the connection's end, with
//! which the successor's devices are closed, before it opens its own. If it dies itself, the
//! successor goes on with what came, and opens the rest anew once the dead one's is closed.

mod predecessor;
mod successor;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};
use softnet_io::rights::Channel;

pub(crate) use predecessor::{Before, DYING, Predecessor, try_again};
pub(crate) use successor::{Parts, Successor, named};

/// Time that one waits for the other.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time of one wait, after which a watchdog is told.
const STEP: Duration = Duration::from_secs(1);

/// Everything that the two say.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The successor is ready to take over; its process.
    Go { pid: u32 },
    /// The running state, in the file.
    State,
    /// Files of the device that follows.
    Files,
    /// A device, with the rest of its files; the last is the driver's state if there is some.
    Device { port: String, rest: bool },
    /// The control socket, and that of monitors if there is one.
    Control,
    /// The socket for metrics.
    Metrics,
    /// All of it was sent.
    End,
    /// The successor runs.
    Running,
    /// The other ends.
    Yours,
    /// The other goes on, for this reason.
    Refused(String),
}

/// Waits for the end of the connection, whatever the other still says; false if that does not come.
/// `waits` is called every [`STEP`].
fn ended(channel: &Channel, mut waits: impl FnMut()) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        match channel.receive::<Message>() {
            Ok(None) => return true,
            Ok(Some(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => waits(),
            // A message that is none.
            Err(error) if error.get_ref().is_some() => {}
            Err(_) => return false,
        }
    }
    false
}

/// A connection of the two, on which a call waits for [`STEP`] at most.
fn channel(socket: OwnedFd) -> io::Result<Channel> {
    rustix::io::ioctl_fionbio(&socket, false)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(STEP))?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    Ok(Channel::from(socket))
}

/// The next message; `None` at the end. `waits` is called every [`STEP`].
fn receive(
    channel: &Channel,
    mut waits: impl FnMut(),
) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    for _ in 0..PATIENCE.as_secs() / STEP.as_secs() {
        match channel.receive() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => waits(),
            received => return received,
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// A file in memory with these bytes.
fn memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"softnet", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// The bytes of a file in memory.
fn bytes(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = File::from(file);
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
