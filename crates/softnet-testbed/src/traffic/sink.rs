//! A server on host b that swallows what TCP clients send it, and counts.

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::threads::joined;
use rustix::event::epoll::EventFlags;
use rustix::net::{AddressFamily, SocketType};

use super::events::Events;
use super::window::{Seen, Window};
use crate::error::TestbedError;
use crate::hosts::Topology;

/// Where it listens.
pub const PORT: u16 = 5303;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Bytes read at once.
const PIECE: usize = 128 << 10;
/// The listener's number; connections have those from 1 on.
const LISTENER: usize = 0;

/// The server, listening.
#[derive(Debug)]
pub struct Sink {
    listener: TcpListener,
}

/// Data that came in the window.
#[derive(Debug, Clone, Copy, Default)]
pub struct Received {
    /// Bytes of payload.
    pub bytes: u64,
    /// Connections that had sent all they were to send.
    pub finished: u64,
    /// Connections accepted so far, before the window too.
    pub connections: u64,
}

impl Sink {
    /// Host b tells its clients to send segments of `mss` bytes, TCP options included.
    pub fn listen(topology: &Topology, mss: u16) -> Result<Sink, TestbedError> {
        let host = &topology.hosts[1];
        let (interface, address) = (&host.interface, host.address);
        host.netns.ip(&format!(
            "route replace 10.99.0.0/24 dev {interface} proto kernel scope link src {address} \
             advmss {mss}"
        ))?;
        Sink::at(topology, PORT)
    }

    /// The same at another port, for segments as they come.
    pub fn at(topology: &Topology, port: u16) -> Result<Sink, TestbedError> {
        let listen = || bind(port).map_err(|e| TestbedError::io("listening on host b", e));
        let socket = topology.b().run(listen)?;
        let listener = TcpListener::from(socket);
        listener
            .set_nonblocking(true)
            .map_err(|e| TestbedError::io("listening on host b", e))?;
        Ok(Sink { listener })
    }

    /// Swallows until the window closes, and counts what comes in it. A connection that has sent
    /// `limit` bytes is closed. `check` is called at the end of the window.
    pub fn count(
        &self,
        topology: &Topology,
        limit: Option<u64>,
        window: Window,
        check: impl FnOnce() -> Result<(), TestbedError>,
    ) -> Result<(Received, Seen), TestbedError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let stop = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| self.swallow(limit, window, stop)))
                .collect();
            let seen = window.watch(topology);
            let checked = check();
            stop.store(true, Ordering::Relaxed);
            let mut sum = Received::default();
            for thread in threads {
                let part = joined(thread)?;
                sum.bytes += part.bytes;
                sum.finished += part.finished;
                sum.connections += part.connections;
            }
            checked?;
            Ok((sum, seen?))
        })
    }

    /// One thread's part.
    fn swallow(
        &self,
        limit: Option<u64>,
        window: Window,
        stop: &AtomicBool,
    ) -> Result<Received, TestbedError> {
        let failed = |e: rustix::io::Errno| TestbedError::io("waiting for sockets", e);
        let mut events = Events::new().map_err(failed)?;
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        events
            .add(&self.listener, LISTENER, flags)
            .map_err(failed)?;
        let mut streams: Vec<Option<(TcpStream, u64)>> = Vec::new();
        let mut free = Vec::new();
        let mut buffer = vec![0; PIECE];
        let mut received = Received::default();
        while !stop.load(Ordering::Relaxed) {
            for number in events.wait().map_err(failed)? {
                if number == LISTENER {
                    // Another thread may have been faster, or the client gone.
                    if let Ok((stream, _)) = self.listener.accept()
                        && stream.set_nonblocking(true).is_ok()
                    {
                        let slot = free.pop().unwrap_or(streams.len());
                        if slot == streams.len() {
                            streams.push(None);
                        }
                        events
                            .add(&stream, slot + 1, EventFlags::IN)
                            .map_err(failed)?;
                        streams[slot] = Some((stream, 0));
                        received.connections += 1;
                    }
                    continue;
                }
                let slot = number - 1;
                let Some(Some((stream, bytes))) = streams.get_mut(slot) else {
                    continue;
                };
                let ended = match stream.read(&mut buffer) {
                    Ok(0) => true,
                    Ok(n) => {
                        let now = Instant::now();
                        let counts = now >= window.from && now < window.to;
                        *bytes += n as u64;
                        let finished = limit.is_some_and(|limit| *bytes >= limit);
                        if counts {
                            received.bytes += n as u64;
                            received.finished += u64::from(finished);
                        }
                        finished
                    }
                    Err(e) => e.kind() != ErrorKind::WouldBlock,
                };
                if ended {
                    streams[slot] = None;
                    free.push(slot);
                }
            }
        }
        Ok(received)
    }
}

/// Where the sink of this topology listens.
pub fn address(topology: &Topology) -> SocketAddrV4 {
    SocketAddrV4::new(topology.hosts[1].address, PORT)
}

/// std's listener takes too few waiting connections.
fn bind(port: u16) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    rustix::net::bind(&socket, &any)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}
