//! UDP datagrams of 64 bytes, paced or flat out, counted where they arrive. Each carries its
//! number, so that loss is exact and a change of order is seen.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

use super::mmsg::{self, BATCH, Datagram, PAYLOAD};
use super::{Arrived, Until, is_timeout, limit_blocking};
use crate::demo::host::Host;

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
        let mut datagrams = [[0x5a; PAYLOAD]; BATCH];
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
            let batch = &mut datagrams[..BATCH.min(due as usize)];
            for (number, datagram) in (sent..).zip(batch.iter_mut()) {
                set_number(datagram, number);
            }
            match mmsg::send(self.sender.as_fd(), batch) {
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
        let mut datagrams = [[0; PAYLOAD]; BATCH];
        let mut count = Count::default();
        let mut first = None;
        let mut next = 0;
        while !until.is_over() {
            let n = match mmsg::receive(self.receiver.as_fd(), &mut datagrams) {
                Ok(n) => n,
                Err(e) if is_timeout(&e) => continue,
                Err(e) => return Err(e),
            };
            let now = Instant::now();
            count.elapsed = now - *first.get_or_insert(now);
            count.received += n as u64;
            for datagram in &datagrams[..n] {
                let number = number(datagram);
                count.reordered += u64::from(number < next);
                next = next.max(number + 1);
            }
            arrived.add(n as u64);
            if n < BATCH {
                std::thread::sleep(REST);
            }
        }
        Ok(count)
    }
}

fn set_number(datagram: &mut Datagram, number: u64) {
    datagram[..8].copy_from_slice(&number.to_be_bytes());
}

fn number(datagram: &Datagram) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&datagram[..8]);
    // Only our own sender knows the port; a stranger's number must not overflow all the same.
    u64::from_be_bytes(bytes).min(u64::MAX - 1)
}
