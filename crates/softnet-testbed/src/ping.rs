//! Pings over a raw ICMP socket, timed around the system calls, as ping(8) does.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use crate::error::TestbedError;
use crate::hosts::{Host, Topology};
use crate::icmp;

/// Time for which an answer is waited for.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Time that a path may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that ping(8) sends.
const PAYLOAD: usize = 56;

/// The replies.
#[derive(Debug)]
pub struct Pings {
    /// In the order of sending.
    pub round_trips_us: Vec<f64>,
    /// Pings without a reply in time.
    pub lost: usize,
}

/// Waits until each host reaches the next.
pub fn wait_for_path(topology: &Topology) -> Result<(), TestbedError> {
    let deadline = Instant::now() + PATIENCE;
    let wait = |what: &str| {
        topology.check_running()?;
        if Instant::now() > deadline {
            let seconds = PATIENCE.as_secs();
            return Err(TestbedError::Measure(format!("{what} within {seconds} s")));
        }
        Ok(())
    };
    for host in &topology.hosts {
        while !host.netns.run(|| Ok(is_up(host) && ask_every(host, "5")))? {
            wait(&format!("{} did not come up", host.interface))?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    for pair in topology.hosts.windows(2) {
        let mut pinger = Pinger::open(&pair[0], &pair[1])?;
        // Errors such as "no route to host" pass when the path comes up.
        while !matches!(pinger.ping(Duration::from_millis(10)), Ok(Some(_))) {
            let (from, to) = (&pair[0].interface, &pair[1].interface);
            wait(&format!("{from} did not reach {to}"))?;
        }
    }
    for host in &topology.hosts {
        host.netns.run(|| Ok(ask_every(host, "1000")))?;
    }
    Ok(())
}

/// True if the interface of the host, whose namespace this is, is up with its address.
fn is_up(host: &Host) -> bool {
    // Without an address there is nothing to bind to, without an interface that is up no route to
    // connect by.
    let neighbour = Ipv4Addr::from(host.address.to_bits() ^ 0x80);
    let socket = UdpSocket::bind((host.address, 0));
    socket.is_ok_and(|socket| socket.connect((neighbour, 9)).is_ok())
}

/// Waits until the interface of each host is up.
pub fn wait_until_up(topology: &Topology, patience: Duration) -> Result<(), TestbedError> {
    let deadline = Instant::now() + patience;
    for host in &topology.hosts {
        while !host.netns.run(|| Ok(is_up(host)))? {
            topology.check_running()?;
            if Instant::now() > deadline {
                let name = &host.interface;
                return Err(TestbedError::Measure(format!("{name} did not come up")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Waits until three pings in a row from one host to another took no longer than `calm`; returns
/// the time until the first of them, at most `patience`.
pub fn wait_until_calm(
    topology: &Topology,
    [from, to]: [usize; 2],
    calm: Duration,
    patience: Duration,
) -> Result<Duration, TestbedError> {
    let start = Instant::now();
    let mut pinger = Pinger::open(&topology.hosts[from], &topology.hosts[to])?;
    let (mut begun, mut answered) = (Duration::ZERO, 0);
    while answered < 3 && start.elapsed() < patience {
        topology.check_running()?;
        if answered == 0 {
            begun = start.elapsed();
        }
        // Errors such as "no route to host" pass when the path comes up.
        let answer = pinger.ping(TIMEOUT);
        answered = match answer {
            Ok(Some(time)) if time <= calm => answered + 1,
            _ => 0,
        };
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(if answered < 3 { patience } else { begun })
}

/// Makes the host ask again so many milliseconds after it asked for a neighbour's address in
/// vain: by default a second, which is what would be measured if a switch that starts loses the
/// first request. False: it could not.
fn ask_every(host: &Host, milliseconds: &str) -> bool {
    let interval = format!(
        "/proc/sys/net/ipv4/neigh/{}/retrans_time_ms",
        host.interface
    );
    std::fs::write(interval, milliseconds).is_ok()
}

/// Sends `count` pings from a to b, one each `interval`.
pub fn run(topology: &Topology, count: usize, interval: Duration) -> Result<Pings, TestbedError> {
    let mut left = count;
    run_while(topology, interval, || {
        left = left.saturating_sub(1);
        left > 0
    })
}

/// Sends pings from a to b, one each `interval`, until `goes_on` says no after one.
pub fn run_while(
    topology: &Topology,
    interval: Duration,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Pings, TestbedError> {
    let mut pinger = Pinger::open(&topology.hosts[0], &topology.hosts[1])?;
    let mut pings = Pings {
        round_trips_us: Vec::new(),
        lost: 0,
    };
    let mut next = Instant::now();
    loop {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next = next.max(Instant::now()) + interval;
        match pinger
            .ping(TIMEOUT)
            .map_err(|e| TestbedError::io("sending a ping", e))?
        {
            Some(round_trip) => pings.round_trips_us.push(round_trip.as_secs_f64() * 1e6),
            None => pings.lost += 1,
        }
        if !goes_on() {
            return Ok(pings);
        }
    }
}

struct Pinger {
    socket: OwnedFd,
    target: SocketAddrV4,
    identifier: u16,
    sequence: u16,
}

impl Pinger {
    fn open(from: &Host, to: &Host) -> Result<Pinger, TestbedError> {
        let socket = from.netns.run(|| {
            let flags = SocketFlags::CLOEXEC;
            rustix::net::socket_with(
                AddressFamily::INET,
                SocketType::RAW,
                flags,
                Some(ipproto::ICMP),
            )
            .map_err(|e| TestbedError::io("opening a raw socket", e))
        })?;
        Ok(Pinger {
            socket,
            target: SocketAddrV4::new(to.address, 0),
            identifier: std::process::id() as u16,
            sequence: 0,
        })
    }

    /// One ping; the round-trip time, or `None` if no answer came in time.
    fn ping(&mut self, timeout: Duration) -> rustix::io::Result<Option<Duration>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = icmp::request(false, self.identifier, self.sequence, &[0; PAYLOAD]);
        set_socket_timeout(&self.socket, Timeout::Recv, Some(timeout))?;
        let sent = Instant::now();
        rustix::net::sendto(&self.socket, &request, SendFlags::empty(), &self.target)?;
        let mut packet = [0; 2048];
        // A raw socket sees all ICMP: answers to earlier pings, errors.
        while sent.elapsed() < timeout {
            match rustix::net::recv(&self.socket, &mut packet[..], RecvFlags::empty()) {
                Ok((_, length)) => {
                    let arrived = sent.elapsed();
                    let packet = icmp::behind_header(&packet[..length.min(packet.len())]);
                    let answer =
                        icmp::reply(false, packet).map(|(ident, number, _)| (ident, number));
                    if answer == Some((self.identifier, self.sequence)) {
                        return Ok(Some(arrived));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    }
}
