//! Messages to systemd about the daemon's state (sd_notify(3)), and its watchdog.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(state.as_bytes());
        }
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
