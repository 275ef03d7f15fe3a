//! Bulk TCP: one connection, large writes, measured where the data arrives.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_linger, set_tcp_congestion};

use super::{Arrived, Until, is_timeout, limit_blocking};
use crate::demo::host::Host;

/// Bytes of a write, as iperf3 has it.
const WRITE: usize = 128 << 10;
/// Bytes of a read: fits the processor's second-level cache.
const READ: usize = 256 << 10;
/// Time for a connection, most of it for when nobody gets a CPU.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection from one host to another.
#[derive(Debug)]
pub(crate) struct Bulk {
    sender: TcpStream,
    receiver: TcpStream,
}

/// Bytes that arrived, and the time in which they did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    /// Bytes of payload.
    pub bytes: u64,
    /// From the first byte to the last.
    pub elapsed: Duration,
}

impl Transfer {
    /// Billions of payload bits per second.
    pub(crate) fn gbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64().max(1e-9) / 1e9
    }
}

impl Bulk {
    /// Connects.
    pub(crate) fn open(from: &Host, to: &Host) -> io::Result<Bulk> {
        let listener = to.open(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        let address = (to.address, listener.local_addr()?.port()).into();
        let sender = from.open(|| TcpStream::connect_timeout(&address, CONNECT))?;
        let mut ready = [PollFd::new(&listener, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: CONNECT.as_secs() as i64,
            tv_nsec: 0,
        };
        if poll(&mut ready, Some(&timeout))? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the connection was not accepted",
            ));
        }
        let (receiver, _) = listener.accept()?;
        for stream in [&sender, &receiver] {
            limit_blocking(stream)?;
            // Closing ends the connection at once instead of sending on what is buffered.
            set_socket_linger(stream, Some(Duration::ZERO))?;
        }
        Ok(Bulk { sender, receiver })
    }

    /// Begins as fast as it can until a packet is lost (Reno). Linux's default leaves slow start
    /// when round trips take longer (HyStart), and on so short a path needs minutes to fill a long
    /// queue again.
    pub(crate) fn fill_queues(&self) -> io::Result<()> {
        Ok(set_tcp_congestion(&self.sender, "reno")?)
    }

    /// Sends as fast as the connection takes it. Meant for a thread of its own beside
    /// [`receive`](Self::receive).
    pub(crate) fn send(&self, until: &Until) -> io::Result<()> {
        let data = vec![0x5a; WRITE];
        while !until.is_over() {
            match (&self.sender).write(&data) {
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what arrives.
    pub(crate) fn receive(&self, until: &Until, arrived: &Arrived) -> io::Result<Transfer> {
        let mut buffer = vec![0; READ];
        let mut transfer = Transfer::default();
        let mut first = None;
        while !until.is_over() {
            match (&self.receiver).read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    let now = Instant::now();
                    // The first read starts the clock, so its bytes were sent before.
                    if let Some(first) = first {
                        transfer.bytes += n as u64;
                        transfer.elapsed = now - first;
                    } else {
                        first = Some(now);
                    }
                    arrived.add(n as u64);
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(transfer)
    }
}
