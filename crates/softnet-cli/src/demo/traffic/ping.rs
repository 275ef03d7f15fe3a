//! Pings: ICMP echo over a raw socket, over a ping socket where that is refused, and a UDP echo
//! where both are. The round trip is timed by the sender, from before the send call to after the
//! receive call.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use softnet_testbed::icmp;
use softnet_testbed::threads::joined;

use super::{Until, is_timeout, limit_blocking};
use crate::demo::host::Host;

/// Bytes of payload of an echo request, as ping(8) has it.
const PAYLOAD: usize = 56;
/// After this an answer counts as lost.
const LOST: Duration = Duration::from_secs(1);

/// The protocol that carries the echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// ICMP on a raw socket; the far kernel answers.
    IcmpRaw,
    /// ICMP on a ping socket; the far kernel answers.
    IcmpPing,
    /// UDP; a thread of ours answers.
    Udp,
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Via::IcmpRaw => "ICMP echo",
            Via::IcmpPing => "ICMP echo (ping socket)",
            Via::Udp => "UDP echo (ICMP sockets are not permitted)",
        })
    }
}

/// One end of the echo, and for UDP the other.
#[derive(Debug)]
pub(crate) struct Pinger {
    pub(super) socket: OwnedFd,
    via: Via,
    /// The far end that answers UDP.
    echo: Option<Arc<UdpSocket>>,
    /// Sets our echoes apart from others'.
    ident: u16,
    /// The number of the last request.
    pub(super) sequence: u16,
}

/// Round trips.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundTrips {
    /// Sorted.
    times: Vec<Duration>,
    /// Requests without an answer.
    pub lost: u64,
}

impl RoundTrips {
    /// In any order.
    pub(super) fn new(mut times: Vec<Duration>, lost: u64) -> RoundTrips {
        times.sort_unstable();
        RoundTrips { times, lost }
    }

    /// The time that `percent` of the answers needed at most; none without answers.
    pub(crate) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times.get(rank - 1).copied()
    }

    /// Answers.
    pub(crate) fn answers(&self) -> usize {
        self.times.len()
    }
}

impl Pinger {
    /// Opens what the system permits.
    pub(crate) fn open(from: &Host, to: &Host) -> io::Result<Pinger> {
        let address = SocketAddrV4::new(to.address, 0);
        for (kind, via) in [
            (SocketType::RAW, Via::IcmpRaw),
            (SocketType::DGRAM, Via::IcmpPing),
        ] {
            if let Ok(socket) = from.open(|| connect(kind, Some(ipproto::ICMP), address)) {
                return Pinger::new(socket, via, None);
            }
        }
        Pinger::open_udp(from, to)
    }

    /// The last resort: datagrams that a thread at the other end sends back.
    pub(super) fn open_udp(from: &Host, to: &Host) -> io::Result<Pinger> {
        let echo = to.open(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        limit_blocking(&echo)?;
        let address = SocketAddrV4::new(to.address, echo.local_addr()?.port());
        let socket = from.open(|| connect(SocketType::DGRAM, None, address))?;
        Pinger::new(socket, Via::Udp, Some(Arc::new(echo)))
    }

    fn new(socket: OwnedFd, via: Via, echo: Option<Arc<UdpSocket>>) -> io::Result<Pinger> {
        limit_blocking(&socket)?;
        // Any 16 bits of the process number will do: the namespace has no other pinger.
        let ident = std::process::id() as u16;
        Ok(Pinger {
            socket,
            via,
            echo,
            ident,
            sequence: 0,
        })
    }

    /// The protocol that carries the echo.
    pub(crate) fn via(&self) -> Via {
        self.via
    }

    /// Pings until it is time, resting for `interval` after each answer; each round trip is handed
    /// to `each`.
    pub(crate) fn run(
        &mut self,
        until: &Until,
        interval: Duration,
        mut each: impl FnMut(Duration),
    ) -> io::Result<RoundTrips> {
        self.with_echo(|pinger| pinger.ping(until, interval, &mut each))
    }

    /// Runs `f` while somebody answers at the far end.
    pub(super) fn with_echo<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        let done = AtomicBool::new(false);
        let echo = self.echo.clone();
        std::thread::scope(|scope| {
            let answering = echo
                .as_ref()
                .map(|echo| scope.spawn(|| answer(echo, &done)));
            let result = f(self);
            done.store(true, Ordering::Relaxed);
            let answered = answering.map_or(Ok(()), |thread| joined(thread));
            answered.and(result)
        })
    }

    /// [`run`](Self::run), with somebody at the far end.
    fn ping(
        &mut self,
        until: &Until,
        interval: Duration,
        each: &mut impl FnMut(Duration),
    ) -> io::Result<RoundTrips> {
        let (mut times, mut lost) = (Vec::new(), 0);
        while !until.is_over() {
            match self.once(until)? {
                Some(time) => {
                    times.push(time);
                    each(time);
                }
                // Cut short: neither answered nor lost.
                None if until.stopped() => break,
                None => lost += 1,
            }
            until.sleep(interval);
        }
        Ok(RoundTrips::new(times, lost))
    }

    /// One echo; `None` if no answer came in time.
    pub(crate) fn once(&mut self, until: &Until) -> io::Result<Option<Duration>> {
        let start = Instant::now();
        if !self.send()? {
            return Ok(None);
        }
        while start.elapsed() < LOST && !until.stopped() {
            match self.receive(RecvFlags::empty()) {
                Ok(Some(sequence)) if sequence == self.sequence => {
                    return Ok(Some(start.elapsed()));
                }
                Ok(_) => {}
                Err(e) if is_unreachable(e) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }

    /// Sends a request. False: the interface's queue is full, or the neighbour did not answer yet.
    pub(super) fn send(&mut self) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = icmp::request(false, self.ident, self.sequence, &[0x5a; PAYLOAD]);
        match rustix::net::send(&self.socket, &request, SendFlags::empty()) {
            Ok(_) => Ok(true),
            Err(e) if is_timeout(&e.into()) || e == Errno::NOBUFS => Ok(false),
            Err(Errno::HOSTUNREACH) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// The number of an answer, if there is one.
    pub(super) fn receive(&self, flags: RecvFlags) -> Result<Option<u16>, Errno> {
        let mut buffer = [0; 256];
        match rustix::net::recv(&self.socket, &mut buffer[..], flags) {
            Ok((n, _)) => Ok(self.answered(&buffer[..n])),
            Err(e) if is_timeout(&e.into()) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The number of the request that this is the answer to.
    fn answered(&self, bytes: &[u8]) -> Option<u16> {
        let (ident, sequence, _) = match self.via {
            Via::IcmpRaw => icmp::reply(false, icmp::behind_header(bytes))?,
            Via::IcmpPing => icmp::reply(false, bytes)?,
            // It comes back as it was sent.
            Via::Udp => icmp::fields(bytes)?,
        };
        // A ping socket's identifier is the kernel's choice, and the kernel filters by it.
        (ident == self.ident || self.via == Via::IcmpPing).then_some(sequence)
    }
}

/// True if nobody is there to answer.
pub(super) fn is_unreachable(error: Errno) -> bool {
    matches!(error, Errno::HOSTUNREACH | Errno::CONNREFUSED)
}

/// A socket that sends to and receives from one address.
fn connect(
    kind: SocketType,
    protocol: Option<rustix::net::Protocol>,
    address: SocketAddrV4,
) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, protocol)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Sends back what arrives.
fn answer(echo: &UdpSocket, done: &AtomicBool) -> io::Result<()> {
    let mut buffer = [0; 256];
    while !done.load(Ordering::Relaxed) {
        match echo.recv_from(&mut buffer) {
            Ok((n, from)) => {
                echo.send_to(&buffer[..n], from)?;
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let times = (1..=200).map(Duration::from_micros).collect();
        let trips = RoundTrips { times, lost: 0 };
        assert_eq!(trips.percentile(50), Some(Duration::from_micros(100)));
        assert_eq!(trips.percentile(99), Some(Duration::from_micros(198)));
        assert_eq!(trips.percentile(100), Some(Duration::from_micros(200)));
        let one = RoundTrips {
            times: vec![Duration::from_micros(7)],
            lost: 0,
        };
        assert_eq!(one.percentile(1), Some(Duration::from_micros(7)));
        assert_eq!(RoundTrips::default().percentile(50), None);
    }
}
