//! UDP datagrams of 64 bytes, paced or flat out, counted where they arrive. Each carries its
//! number, so that loss is exact and a change of order is seen.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use softnet_testbed::mmsg::{BATCH, Batch};

use super::{Arrived, Until, is_timeout, limit_blocking};
use crate::demo::host::Host;

/// Bytes of a datagram.
const PAYLOAD: usize = 64;
/// Asked-for receive buffer; without privilege the system gives less (net.core.rmem_max).
const RECEIVE_BUFFER: usize = 8 << 20;
/// Least time that a paced sender rests: below that, sleeping costs more than it saves. So does a
/// receiver that has caught up: blocked in the call instead, it would be woken for each datagram,
/// at the cost of a context switch each.
const REST: Duration = Duration::from_micros(100);

/// A one-way stream of datagrams.
#[derive(Debug)]
pub(crate) struct Stream {
    sender: UdpSocket,
    receiver: UdpSocket,
}

/// Datagrams that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    /// Datagrams.
    pub received: u64,
    /// Received datagrams with a lower number than one before.
    pub reordered: u64,
    /// From the first datagram to the last.
    pub elapsed: Duration,
}

impl Count {
    /// Datagrams per second.
    pub(crate) fn pps(&self) -> f64 {
        self.received as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl Stream {
    /// Opens both ends.
    pub(crate) fn open(from: &Host, to: &Host) -> io::Result<Stream> {
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let receiver = to.open(|| UdpSocket::bind(any))?;
        let sender = from.open(|| UdpSocket::bind(any))?;
        sender.connect((to.address, receiver.local_addr()?.port()))?;
        if set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER).is_err() {
            set_socket_recv_buffer_size(&receiver, RECEIVE_BUFFER)?;
        }
        limit_blocking(&sender)?;
        limit_blocking(&receiver)?;
        Ok(Stream { sender, receiver })
    }

    /// Sends `pps` datagrams per second, or flat out if `None`; returns how many were sent.
    pub(crate) fn send(&self, until: &Until, pps: Option<f64>) -> io::Result<u64> {
        let mut batch = Batch::new(PAYLOAD);
        let mut sent = 0;
        let start = Instant::now();
        while !until.is_over() {
            let due = pps.map_or(BATCH as u64, |pps| {
                // What time has earned; at most a batch, so that a delayed sender catches up in
                // batches.
                ((start.elapsed().as_secs_f64() * pps) as u64).saturating_sub(sent)
            });
            if due == 0 {
                std::thread::sleep(REST);
                continue;
            }
            for (number, datagram) in (sent..).zip(batch.datagrams()) {
                datagram[..8].copy_from_slice(&number.to_be_bytes());
            }
            match batch.send(&self.sender, BATCH.min(due as usize)) {
                Ok(n) => sent += n as u64,
                // ENOBUFS: the interface's queue is full, which a datagram's sender is told and
                // lives with.
                Err(e) if is_timeout(&e) || e.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(sent)
    }

    /// Counts what arrives.
    pub(crate) fn receive(&self, until: &Until, arrived: &Arrived) -> io::Result<Count> {
        let mut batch = Batch::new(PAYLOAD);
        let mut count = Count::default();
        let mut first = None;
        let mut next = 0;
        while !until.is_over() {
            let datagrams = match batch.receive(&self.receiver) {
                Ok(datagrams) => datagrams,
                Err(e) if is_timeout(&e) => continue,
                Err(e) => return Err(e),
            };
            let now = Instant::now();
            count.elapsed = now - *first.get_or_insert(now);
            let mut n = 0;
            for datagram in datagrams {
                n += 1;
                let number = number(datagram);
                count.reordered += u64::from(number < next);
                next = next.max(number + 1);
            }
            count.received += n;
            arrived.add(n);
            if n < BATCH as u64 {
                std::thread::sleep(REST);
            }
        }
        Ok(count)
    }
}

fn number(datagram: &[u8]) -> u64 {
    let bytes = datagram.first_chunk().copied().unwrap_or_default();
    // Only our own sender knows the port; a stranger's number must not overflow all the same.
    u64::from_be_bytes(bytes).min(u64::MAX - 1)
}
