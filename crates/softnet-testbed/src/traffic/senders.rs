//! Many short TCP connections from host a to the sink on host b: each sends a little and makes
//! room for the next.
//!
//! Sockets of our own, because iperf 2.1.8 does not survive so many: it keeps them in sets of
//! 1024 file numbers, and its server corrupts its heap when many connections end at once.

use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

use crate::threads::joined;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::events::Events;
use super::sink;
use super::window::Window;
use crate::error::TestbedError;
use crate::hosts::Topology;

/// Bytes that each connection sends.
pub const EACH: u64 = 1 << 10;
/// Bytes sent at once, at most.
const PIECE: usize = 64 << 10;

/// Keeps `clients` connections going until the window closes; how many failed.
pub fn run(topology: &Topology, clients: usize, window: Window) -> Result<u64, TestbedError> {
    let to = sink::address(topology);
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(clients);
    let share = clients.div_ceil(threads);
    topology.a().run(|| {
        // A connection that has ended keeps its port for a minute otherwise, and 28,000 is all
        // that there are.
        for (name, value) in [("tcp_tw_reuse", "1"), ("ip_local_port_range", "1024 65535")] {
            let path = format!("/proc/sys/net/ipv4/{name}");
            std::fs::write(&path, value)
                .map_err(|e| TestbedError::io(format!("writing {path}"), e))?;
        }
        // Threads are born into the namespace of the thread that makes them.
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| send(to, share, window)))
                .collect();
            let mut failed = 0;
            for thread in threads {
                let part = joined(thread);
                failed += part.map_err(|e| TestbedError::io("sending to host b", e))?;
            }
            Ok(failed)
        })
    })
}

struct Sender {
    stream: TcpStream,
    left: u64,
}

/// Starts to connect.
fn connect(to: SocketAddrV4) -> rustix::io::Result<Sender> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(Sender {
            stream: socket.into(),
            left: EACH,
        }),
        Err(other) => Err(other),
    }
}

/// The state of a connection.
enum State {
    Sending,
    /// All is sent; the server will close.
    Waiting,
    Done,
    Failed,
}

fn send(to: SocketAddrV4, clients: usize, window: Window) -> rustix::io::Result<u64> {
    let data = vec![0; PIECE];
    let mut events = Events::new()?;
    let mut failed = 0;
    let mut senders = Vec::with_capacity(clients);
    for number in 0..clients {
        let sender = connect(to)?;
        events.add(&sender.stream, number, EventFlags::OUT)?;
        senders.push(sender);
    }
    while Instant::now() < window.to {
        for number in events.wait()? {
            let sender = &mut senders[number];
            match advance(sender, &data) {
                State::Sending => {}
                State::Waiting => events.change(&sender.stream, number, EventFlags::IN)?,
                state => {
                    failed += u64::from(matches!(state, State::Failed));
                    *sender = connect(to)?;
                    events.add(&sender.stream, number, EventFlags::OUT)?;
                }
            }
        }
    }
    Ok(failed)
}

fn advance(sender: &mut Sender, data: &[u8]) -> State {
    if sender.left == 0 {
        let mut nothing = [0; 1];
        return match rustix::net::recv(
            &sender.stream,
            &mut nothing[..],
            rustix::net::RecvFlags::DONTWAIT,
        ) {
            Ok((_, 0)) => State::Done,
            Err(Errno::AGAIN) => State::Waiting,
            _ => State::Failed,
        };
    }
    let piece = sender.left.min(data.len() as u64) as usize;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match rustix::net::send(&sender.stream, &data[..piece], flags) {
        Ok(n) => {
            sender.left -= n as u64;
            if sender.left == 0 {
                State::Waiting
            } else {
                State::Sending
            }
        }
        Err(Errno::AGAIN) => State::Sending,
        Err(_) => State::Failed,
    }
}
