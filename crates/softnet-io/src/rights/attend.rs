//! A helper that is a service of its own, to which daemons of one user connect.
//!
//! Each is served by a process of its own, which ends with the connection: what one daemon had made
//! is no other's to change or remove, and one that brings its process down harms no other.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{SendFlags, SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::channel::Channel;
use super::client::spawn_with;
use super::request::Reply;
use crate::PeerCredentials;

/// Daemons at a time: each has one connection, and its successor another.
const DAEMONS: usize = 16;

/// Serves daemons that connect to `socket`, which listens (`SOCK_SEQPACKET`), until `stop` is
/// readable. Who is another user than `user` is refused. For each, `command` makes one that calls
/// [`serve`](super::serve) with its standard input; these processes go on when this returns.
/// Blocks.
///
/// # Errors
/// If the socket does not listen, or there are no files left.
pub fn attend(
    socket: BorrowedFd<'_>,
    user: u32,
    stop: BorrowedFd<'_>,
    command: &dyn Fn() -> Command,
) -> io::Result<()> {
    // Who has gone again is not waited for.
    ioctl_fionbio(socket, true)?;
    let mut served: Vec<Served> = Vec::new();
    loop {
        let mut files = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(socket, PollFlags::IN),
        ];
        let ends = served
            .iter()
            .map(|one| PollFd::new(&one.end, PollFlags::IN));
        files.extend(ends);
        match poll(&mut files, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let is_ready = |file: &PollFd<'_>| !file.revents().is_empty();
        let (stops, asks) = (is_ready(&files[0]), is_ready(&files[1]));
        drop(files);
        if stops {
            return Ok(());
        }
        served.retain_mut(|one| matches!(one.child.try_wait(), Ok(None)));
        if !asks {
            continue;
        }
        let connection = match accept_with(socket, SocketFlags::CLOEXEC) {
            Ok(connection) => connection,
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let admitted = admit(&connection, user, served.len(), command);
        let reply = match admitted {
            Ok(one) => {
                served.push(one);
                Reply::Done(serde_json::Value::Null)
            }
            Err(error) => Reply::refused(&error),
        };
        // The first message has room. Who is gone needs none.
        let _ = Channel::from(connection).send(&reply, &[], SendFlags::DONTWAIT);
    }
}

/// A process that serves a daemon.
struct Served {
    child: Child,
    /// Readable once it has ended.
    end: OwnedFd,
}

/// Starts what serves a connection, unless it is refused. `served` are there already.
fn admit(
    connection: &OwnedFd,
    user: u32,
    served: usize,
    command: &dyn Fn() -> Command,
) -> io::Result<Served> {
    let peer = PeerCredentials::of(connection)?.uid;
    if peer != user {
        let text = format!("it serves user {user} alone, not user {peer}");
        return Err(io::Error::other(text));
    }
    if served >= DAEMONS {
        let text = format!("it serves {DAEMONS} daemons already");
        return Err(io::Error::other(text));
    }
    let mut child = spawn_with(command(), connection.try_clone()?)?;
    match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(end) => Ok(Served { child, end }),
        Err(error) => {
            // Nobody would count it, nor see its end.
            let _ = child.kill();
            let _ = child.wait();
            Err(error.into())
        }
    }
}
