//! The server: rtnetlink on a Unix socket of type `SOCK_SEQPACKET`. `docs/control.md` is the
//! protocol.
//!
//! One thread polls all clients and calls the [`Service`]. No client waits for another: nothing
//! blocks, and in one round a client gets at most one datagram read and `ROUND` bytes written.
//! Those that may change something are served in each round; of the others one is, in turn, so that
//! however many ask, and however much, an owner waits for one of them at most. What a client costs
//! is bounded; one that does not read is not answered further, loses events, and is told so.
//!
//! [`Clients`] is the protocol without sockets, which tests and the fuzzer drive.

mod answer;
mod clients;
mod connection;
mod dump;
mod running;
mod socket;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, acceptfrom_with, recv};
use softnet_io::{Descriptors, Listener, PeerCredentials, SocketKind};

use clients::READERS;
pub use clients::{Clients, Peer};
use running::Shared;
pub use running::{Running, Sockets, Waker};
use socket::{has_hung_up, is_member, is_own, port_of, refuse, send_with};
pub use softnet_io::{Listen, ListenError, group_id};

use crate::nl::{self, Service};

/// Type of a message that asks for an [`Operation`](nl::Operation).
pub const OPERATION: u16 = 0x0e;
/// Type of a message that does what `setsockopt(SOL_NETLINK)` does.
pub const OPTION: u16 = 0x0f;
/// In front of the port id in the abstract name that a client may bind its socket to.
pub const PORT_NAME: &str = "softnet-nl/";

/// Bytes that are written to a client in one round.
const ROUND: usize = 256 * 1024;
/// Bytes that a client may send at once; a Unix socket takes little more by default.
const DATAGRAM: usize = 256 * 1024;
/// Clients that wait to be let in.
const BACKLOG: i32 = 128;
/// Clients let in in one round.
const ACCEPTS: usize = 64;
/// Files kept for clients that may change something.
const SPARE: usize = 8;
/// Time for which nobody is let in when the process has no file descriptors left.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The socket.
    pub listen: Listen,
    /// A second socket, on which nothing can be changed.
    pub monitor: Option<Listen>,
    /// At most so many clients.
    pub clients: usize,
}

impl Config {
    /// The limit that `clients` should have.
    pub const CLIENTS: usize = 1024;
}

/// A server that listens, and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: Arc<Listener>,
    monitor: Option<Arc<Listener>>,
    /// Members may change the state.
    group: Option<u32>,
    clients: Clients,
    /// By the client's key.
    sockets: BTreeMap<u64, OwnedFd>,
    /// Closed where the process has no files left, so that those who may change something are let
    /// in all the same.
    spare: Vec<OwnedFd>,
    waker: Arc<Shared>,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// If a socket cannot be made, or another server listens there.
    pub fn bind(config: &Config) -> Result<Server, ListenError> {
        Server::take(config, Sockets::default())
    }

    /// As [`bind`](Server::bind), with sockets of another server. Their files are
    /// [its own](Running::own) later.
    ///
    /// # Errors
    /// As there.
    pub fn take(config: &Config, sockets: Sockets) -> Result<Server, ListenError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = eventfd(0, flags).map_err(|error| ListenError::Io {
            path: config.listen.path.clone(),
            what: "make an eventfd",
            source: error.into(),
        })?;
        // A client could pass a file whose close waits as long as it wants, and so stop the server.
        let bind = |listen: &Listen, socket: Option<OwnedFd>| {
            let (kind, refused) = (SocketKind::SeqPacket, Descriptors::Refused);
            let listener = match socket {
                Some(socket) => Listener::take(listen, socket),
                None => Listener::bind(listen, kind, BACKLOG, refused)?,
            };
            Ok::<_, ListenError>(Arc::new(listener))
        };
        let monitor = config.monitor.as_ref();
        Ok(Server {
            listener: bind(&config.listen, sockets.listener)?,
            monitor: monitor
                .map(|listen| bind(listen, sockets.monitor))
                .transpose()?,
            group: config.listen.group,
            clients: Clients::new(config.clients),
            sockets: BTreeMap::new(),
            spare: Vec::new(),
            waker: Arc::new(Shared {
                eventfd,
                stop: AtomicBool::new(false),
                hold: AtomicBool::new(false),
                holds: AtomicBool::new(false),
            }),
        })
    }

    /// A handle that wakes it up once it answers.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.waker))
    }

    /// Lets nobody in before [`Running::go_on`]: who connects waits.
    pub fn hold(&self) {
        self.waker.hold.store(true, Ordering::Relaxed);
    }

    /// Answers on a thread of its own.
    ///
    /// # Errors
    /// If the thread cannot be made.
    pub fn start(self, service: impl Service + Send + 'static) -> io::Result<Running> {
        let waker = self.waker();
        let (listener, monitor) = (self.listener.clone(), self.monitor.clone());
        let builder = std::thread::Builder::new().name("control".into());
        let thread = builder.spawn(move || self.run(service))?;
        Ok(Running {
            thread: Some(thread),
            waker,
            listener,
            monitor,
        })
    }

    fn run(mut self, mut service: impl Service) -> io::Result<()> {
        let mut buffer = vec![0; DATAGRAM];
        let mut pause = Pause::default();
        let mut last_reader = 0;
        loop {
            while self.spare.len() < SPARE
                && let Ok(spare) = self.waker.eventfd.try_clone()
            {
                self.spare.push(spare);
            }
            let (own, mut ready) = self.wait(&pause)?;
            if own.woken {
                let _ = rustix::io::read(&self.waker.eventfd, &mut [0; 8]);
                if self.waker.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.clients.publish_changes(&mut service);
                self.clients.settle(&service.settled());
            }
            // Before clients are read: one may name the port id of another that connected earlier.
            let listeners = [(own.listener, false), (own.monitor, true)];
            pause = Pause::default();
            for (_, read_only) in listeners.into_iter().filter(|(ready, _)| *ready) {
                for (socket, port) in self.accept(read_only, &mut pause) {
                    let peer = self.peer(&socket, port, read_only);
                    if let Some(peer) = &peer
                        && let Some(old) = self.clients.holder(peer)
                        && self.finish(old, &mut buffer, &mut service)
                    {
                        ready.retain(|(other, _)| *other != old);
                    }
                    self.welcome(socket, peer);
                }
            }
            for (port, events) in of_round(&ready, &mut last_reader) {
                if self
                    .serve(port, events, &mut buffer, &mut service)
                    .is_none()
                {
                    let socket = self.sockets.remove(&port);
                    if self.clients.is_released(port) {
                        socket
                            .into_iter()
                            .for_each(|socket| service.release(socket));
                    }
                    self.clients.disconnect(port);
                }
            }
        }
    }

    /// Sleeps until there is something to do. With a pause, nobody is let in, for a while.
    fn wait(&self, pause: &Pause) -> io::Result<(Own, Vec<(u64, PollFlags)>)> {
        // All requests that were read are answered by now.
        let holds = self.waker.hold.load(Ordering::Acquire);
        self.waker.holds.store(holds, Ordering::Release);
        let listen = |pause| match pause || holds {
            true => PollFlags::empty(),
            false => PollFlags::IN,
        };
        let mut files = vec![
            PollFd::new(&self.waker.eventfd, PollFlags::IN),
            PollFd::new(&self.listener, listen(pause.listener)),
        ];
        files.extend(
            self.monitor
                .iter()
                .map(|monitor| PollFd::new(monitor, listen(pause.monitor))),
        );
        let own = files.len();
        // A client that has hung up would be reported again and again.
        let clients = self.sockets.iter().filter(|_| !holds);
        files.extend(clients.map(|(port, socket)| {
            let mut events = PollFlags::empty();
            events.set(
                PollFlags::IN | PollFlags::RDHUP,
                self.clients.wants_input(*port),
            );
            events.set(PollFlags::OUT, self.clients.has_output(*port));
            PollFd::new(socket, events)
        }));
        let timeout = (pause.listener || pause.monitor).then_some(&PAUSE);
        match poll(&mut files, timeout) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok((Own::default(), Vec::new())),
            Err(error) => return Err(error.into()),
        }
        let ports = self.sockets.keys().zip(&files[own..]);
        let ready = ports
            .map(|(port, file)| (*port, file.revents()))
            .filter(|(_, events)| !events.is_empty())
            .collect();
        let is_ready = |file: Option<&PollFd<'_>>| file.is_some_and(|f| !f.revents().is_empty());
        let own = Own {
            woken: is_ready(files.first()),
            listener: is_ready(files.get(1)),
            monitor: self.monitor.is_some() && is_ready(files.get(2)),
        };
        Ok((own, ready))
    }

    /// Sockets of new clients, and the port ids that they want. Sets `pause` if the system has no
    /// files or memory left.
    fn accept(&mut self, read_only: bool, pause: &mut Pause) -> Vec<(OwnedFd, Option<u32>)> {
        let listener = if read_only {
            self.monitor.as_ref()
        } else {
            Some(&self.listener)
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let mut accepted = Vec::new();
        for _ in 0..ACCEPTS {
            let Some(listener) = listener else {
                break;
            };
            match acceptfrom_with(listener, flags) {
                Ok((socket, address)) => {
                    accepted.push((socket, address.as_ref().and_then(port_of)));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) if !read_only && self.spare.pop().is_some() => {}
                Err(_) => {
                    match read_only {
                        true => pause.monitor = true,
                        false => pause.listener = true,
                    }
                    break;
                }
            }
        }
        accepted
    }

    /// Forgets the client if it has closed its socket, once what it asked for is done: the next
    /// socket may have taken its name at once. Whether it had.
    fn finish(&mut self, key: u64, buffer: &mut [u8], service: &mut impl Service) -> bool {
        if !self.sockets.get(&key).is_some_and(has_hung_up) {
            return false;
        }
        // It sends no more, so its datagrams have an end.
        while self.serve(key, PollFlags::HUP, buffer, service).is_some() {}
        self.sockets.remove(&key);
        self.clients.disconnect(key);
        true
    }

    /// Who connects; none if the kernel does not say.
    fn peer(&self, socket: &OwnedFd, port: Option<u32>, read_only: bool) -> Option<Peer> {
        let peer = PeerCredentials::of(socket).ok()?;
        Some(Peer {
            port,
            uid: peer.uid,
            may_change: !read_only && (is_own(&peer) || is_member(&peer, self.group)),
            own: !read_only && is_own(&peer),
        })
    }

    /// Lets a client in.
    fn welcome(&mut self, socket: OwnedFd, peer: Option<Peer>) {
        let connected = match peer {
            None => Err(nl::Error::new(nl::Errno::EPERM)),
            // The last files are for the others.
            Some(peer) if !peer.may_change && self.spare.len() < SPARE => {
                Err(nl::Error::new(nl::Errno::ENOBUFS).text("no files left"))
            }
            Some(peer) => self.clients.connect(peer),
        };
        match connected {
            Ok(key) => {
                self.sockets.insert(key, socket);
            }
            Err(error) => refuse(&socket, &error),
        }
    }

    /// Reads from a client and writes to it; none if it is gone.
    fn serve(
        &mut self,
        key: u64,
        events: PollFlags,
        buffer: &mut [u8],
        service: &mut impl Service,
    ) -> Option<()> {
        let Server {
            sockets, clients, ..
        } = self;
        let socket = sockets.get(&key)?;
        let hung_up = events.intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR);
        if events.contains(PollFlags::HUP) {
            clients.deafen(key, service);
        }
        if clients.wants_input(key) && (hung_up || events.contains(PollFlags::IN)) {
            match recv(socket, &mut *buffer, RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
                // The end, or an empty datagram. It may still read.
                Ok((_, 0)) if hung_up => clients.end_input(key),
                Ok((_, length)) if length > buffer.len() => clients.refuse(key, buffer),
                Ok((_, length)) => clients.receive(key, &buffer[..length], service),
                // After a reset, what was sent before it can still be read.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNRESET) => {}
                Err(_) => return None,
            }
        }
        let mut written = 0;
        while written < ROUND
            && let Some(datagram) = clients.output(key, service)
        {
            match send_with(socket, &datagram, clients.file(key)) {
                Ok(_) => {
                    written += datagram.len();
                    clients.sent(key, service);
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(Errno::PIPE | Errno::CONNRESET) => clients.deafen(key, service),
                // Its end tells the client that an answer is missing.
                Err(_) => return None,
            }
        }
        (!clients.is_done(key)).then_some(())
    }
}

/// Who is served in a round: all that may change something, and the next of the others. `last` is
/// who it was in the round before.
fn of_round(ready: &[(u64, PollFlags)], last: &mut u64) -> Vec<(u64, PollFlags)> {
    let (mut served, readers): (Vec<_>, Vec<_>) =
        ready.iter().partition(|(key, _)| *key < READERS);
    let next = readers.iter().find(|(key, _)| key > last);
    if let Some(&next) = next.or_else(|| readers.first()) {
        *last = next.0;
        served.push(next);
    }
    served
}

/// Who is not let in for a while.
#[derive(Debug, Default)]
struct Pause {
    listener: bool,
    monitor: bool,
}

/// The server's own files that are ready.
#[derive(Debug, Default)]
struct Own {
    woken: bool,
    listener: bool,
    monitor: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_served_in_each_round_and_readers_in_turn() {
        let ready: Vec<_> = [1, 7, READERS + 1, READERS + 2, READERS + 5]
            .map(|key| (key, PollFlags::IN))
            .into();
        let mut last = 0;
        let mut round = |ready: &[_]| {
            let served = of_round(ready, &mut last);
            served.iter().map(|(key, _)| *key).collect::<Vec<_>>()
        };
        for reader in [1, 2, 5, 1, 2] {
            assert_eq!(round(&ready), [1, 7, READERS + reader]);
        }
        assert_eq!(round(&ready[..3]), [1, 7, READERS + 1]);
        assert_eq!(round(&ready[3..]), [READERS + 2]);
        assert_eq!(round(&ready[..2]), [1, 7]);
        assert_eq!(round(&[]), [0; 0]);
    }
}
