//! Messages to systemd about the daemon's state (sd_notify(3)), and its watchdog.

use std::env;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use softnet_io::rights::FILES;

/// A connection to whoever started the daemon; it does nothing where nobody listens.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    socket: Option<Arc<UnixDatagram>>,
    /// Interval at which the watchdog is told of, and when it was last.
    watchdog: Option<(Duration, Instant)>,
}

impl Notify {
    /// Connects to `$NOTIFY_SOCKET`, before rights go. `$WATCHDOG_USEC` says how long silence may
    /// last.
    pub(crate) fn connect() -> Notify {
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Notify::default();
        };
        let micros = env::var("WATCHDOG_USEC").ok();
        let micros = micros.and_then(|micros| micros.parse().ok());
        Notify {
            socket: connected(&path).ok().map(Arc::new),
            // Twice in the time, as sd_watchdog_enabled(3) asks for.
            watchdog: micros
                .map(|micros: u64| (Duration::from_micros(micros / 2), Instant::now())),
        }
    }

    /// Another one, which leaves the watchdog to this one.
    pub(crate) fn without_watchdog(&self) -> Notify {
        Notify {
            socket: self.socket.clone(),
            watchdog: None,
        }
    }

    /// The daemon answers.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The configuration is applied anew; [`ready`](Notify::ready) says when that is over.
    pub(crate) fn reloading(&self) {
        self.tell("RELOADING=1");
    }

    /// Another process is the daemon from now on.
    pub(crate) fn main_pid(&self, pid: u32) {
        self.tell(&format!("MAINPID={pid}"));
    }

    /// The daemon ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Called in each round of the daemon's loop.
    pub(crate) fn alive(&mut self) {
        if let Some((interval, last)) = &mut self.watchdog
            && last.elapsed() >= *interval
        {
            *last = Instant::now();
            self.tell("WATCHDOG=1");
        }
    }

    /// Somebody listens.
    pub(crate) fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Has files of a name be kept for the next start. False: they were not taken.
    pub(crate) fn store(&self, name: &str, files: &[OwnedFd]) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let text = format!("FDSTORE=1\nFDNAME={name}");
        files.chunks(FILES).all(|files| {
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fits = control.push(SendAncillaryMessage::ScmRights(&files));
            let text = [IoSlice::new(text.as_bytes())];
            fits && sendmsg(socket, &text, &mut control, SendFlags::NOSIGNAL).is_ok()
        })
    }

    /// Has the files of a name be closed. False: nobody was told.
    pub(crate) fn forget(&self, name: &str) -> bool {
        self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"))
    }

    /// False: nobody listens, or too much waits to be read already.
    fn tell(&self, state: &str) -> bool {
        let socket = self.socket.as_ref();
        socket.is_some_and(|socket| socket.send(state.as_bytes()).is_ok())
    }
}

fn connected(path: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match path.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(path)?,
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}
