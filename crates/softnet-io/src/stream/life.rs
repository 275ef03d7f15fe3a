//! The thread of a port: it waits for a peer, and for its end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{SocketFlags, accept_with};
use rustix::time::Timespec;

use super::port::{Port, drain, notify};
use super::uplink::Starts;
use crate::rights::Passt;
use crate::{PeerCredentials, rights};

/// Time between two tries to connect, and between the end of a connection and the next.
const AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// Source of connections.
pub(super) enum Place {
    /// A socket that listens.
    Listen(OwnedFd),
    /// A function that makes the next one.
    Make(Box<dyn FnMut() -> io::Result<OwnedFd> + Send>),
    /// A program that is the peer.
    Start(Starts),
}

/// A port and its thread, which ends with the value.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) port: Arc<Port>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Life {
    pub(super) fn start(
        port: Arc<Port>,
        mut place: Place,
        connection: Option<OwnedFd>,
    ) -> io::Result<Life> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        // At once: nothing that comes for the port meanwhile is lost for want of the connection.
        let mut connected = connection.map(|socket| connect(&port, socket, &place));
        let thread = {
            let (port, stop) = (port.clone(), stop.clone());
            std::thread::Builder::new()
                .name("stream".to_owned())
                .spawn(move || {
                    rights::port_thread();
                    while serve(&port, connected.take(), &mut place, &stop).is_some() {}
                })?
        };
        Ok(Life {
            port,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        notify(&self.stop);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Gives a port a connection.
pub(super) fn connect(port: &Port, socket: OwnedFd, place: &Place) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    let status = match (place, PeerCredentials::of(&socket)) {
        // The credentials are those of the process that started it.
        (Place::Start(_), _) => "connected to passt".to_owned(),
        (_, Ok(peer)) => format!("connected to a process of user {}", peer.uid),
        (_, Err(_)) => "connected".to_owned(),
    };
    port.connect(socket, status)
}

/// Serves one connection, the one that there is or from before it is made, to its end. `None`: the
/// port is closed.
fn serve(
    port: &Port,
    connected: Option<io::Result<()>>,
    place: &mut Place,
    stop: &OwnedFd,
) -> Option<()> {
    let connected = match connected {
        Some(connected) => connected,
        None => {
            let made = match &mut *place {
                Place::Listen(listener) => {
                    wait(&[stop, listener], None)?;
                    accept_with(&*listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
                        .map_err(io::Error::from)
                }
                Place::Make(make) => make(),
                Place::Start(starts) => starts.next(),
            };
            // A queue that lost the last connection may have told so twice.
            drain(&port.lost);
            made.and_then(|socket| connect(port, socket, place))
        }
    };
    match connected {
        Ok(()) => attend(port, place, stop)?,
        // Who came has gone; another one may come. (Elsewhere there is no such wait.)
        Err(error)
            if error.kind() == io::ErrorKind::WouldBlock && matches!(place, Place::Listen(_)) =>
        {
            return Some(());
        }
        Err(error) => port.fail_to_connect(format!("not connected: {error}")),
    }
    wait(&[stop], Some(&AGAIN))
}

/// Waits until the connection is lost, and listens to the program that is the peer, if one is.
fn attend(port: &Port, place: &mut Place, stop: &OwnedFd) -> Option<()> {
    loop {
        let mut program = match place {
            Place::Start(starts) => starts.running(),
            Place::Listen(_) | Place::Make(_) => None,
        };
        let words = program.as_deref().and_then(Passt::words);
        let files: Vec<_> = [stop, &port.lost].into_iter().chain(words).collect();
        wait(&files, None)?;
        if is_readable(&port.lost) {
            drain(&port.lost);
            return Some(());
        }
        if let Some(program) = &mut program {
            program.listen();
        }
    }
}

fn is_readable(file: &OwnedFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    wait(&[file], Some(&now)).is_none()
}

/// Waits until one of the files is readable, or the time is over. `None`: the first is.
fn wait(files: &[&OwnedFd], timeout: Option<&Timespec>) -> Option<()> {
    let mut files: Vec<_> = files
        .iter()
        .map(|file| PollFd::new(file, PollFlags::IN))
        .collect();
    // An error has the caller look at everything again.
    let _ = poll(&mut files, timeout);
    files[0].revents().is_empty().then_some(())
}
