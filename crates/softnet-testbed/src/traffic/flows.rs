//! Flows and TCP connections from host a to host b, each with addresses, ports, code point and
//! congestion control as described, all from the start of a window to its end.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{
    set_ip_tos, set_socket_linger, set_socket_reuseaddr, set_tcp_congestion,
};
use rustix::net::{AddressFamily, SocketType};

use super::sink::Sink;
use super::udp::passing;
use super::window::Window;
use crate::error::TestbedError;
use crate::hosts::Topology;
use crate::threads::joined;

/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// Bytes of a write, as iperf3 has it.
const PIECE: usize = 128 << 10;
/// Time that a write may take before its caller looks at the clock: longer than 12 segments, a
/// third of the least send buffer, last at 0.3 Mb/s. A write that ends early has pushed its last
/// segment, and Linux 6.7 and later acknowledge that one alone.
const BLOCK: Duration = Duration::from_millis(500);

/// A flow, or TCP connections that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Source: an address of host a. The connections count from its port.
    pub from: SocketAddrV4,
    /// Destination on host b.
    pub to: SocketAddrV4,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// The packets that it sends.
    pub kind: Kind,
}

/// The packets that a flow sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// TCP connections, which send what congestion control lets pass.
    Tcp {
        /// Connections.
        count: u16,
        /// Name that the kernel has for its congestion control.
        congestion: String,
    },
    /// Datagrams, one after the other.
    Udp {
        /// Bytes of a frame, with the headers.
        size: usize,
        /// Bits of frames per second.
        rate: f64,
    },
}

/// Sends all of them from the start of the window to its end. They connect before.
///
/// # Errors
/// [`TestbedError::Io`] if an address or a congestion control is not there, or a connection breaks.
pub fn run(topology: &Topology, flows: &[Flow], window: Window) -> Result<(), TestbedError> {
    let connections = flows
        .iter()
        .filter(|flow| matches!(flow.kind, Kind::Tcp { .. }));
    let ports: BTreeSet<u16> = connections.map(|flow| flow.to.port()).collect();
    let sinks = ports.into_iter().map(|port| Sink::at(topology, port));
    let sinks: Vec<Sink> = sinks.collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        let counting: Vec<_> = sinks
            .iter()
            .map(|sink| scope.spawn(move || sink.count(topology, None, window, || Ok(()))))
            .collect();
        let sent = topology.a().run(|| send(flows, window));
        for thread in counting {
            joined(thread)?;
        }
        sent
    })
}

/// One thread for each connection, in the namespace of this one.
fn send(flows: &[Flow], window: Window) -> Result<(), TestbedError> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for flow in flows {
            match &flow.kind {
                Kind::Tcp { count, congestion } => threads.extend(
                    (0..*count)
                        .map(|n| scope.spawn(move || connection(flow, n, congestion, window))),
                ),
                &Kind::Udp { size, rate } => {
                    threads.push(scope.spawn(move || datagrams(flow, size, rate, window)));
                }
            }
        }
        for thread in threads {
            joined(thread).map_err(|e| TestbedError::io("sending to host b", e))?;
        }
        Ok(())
    })
}

fn sleep_until(due: Instant) {
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}

/// The connection of this number.
fn connection(flow: &Flow, number: u16, congestion: &str, window: Window) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_socket_reuseaddr(&socket, true)?;
    set_tcp_congestion(&socket, congestion)?;
    set_ip_tos(&socket, flow.dscp << 2)?;
    let from = SocketAddrV4::new(*flow.from.ip(), flow.from.port() + number);
    rustix::net::bind(&socket, &from)?;
    rustix::net::connect(&socket, &flow.to)?;
    // Closing ends the connection at once instead of sending on what is buffered.
    set_socket_linger(&socket, Some(Duration::ZERO))?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(BLOCK))?;
    let data = vec![0; PIECE];
    sleep_until(window.from);
    while Instant::now() < window.to {
        match (&stream).write(&data) {
            Ok(_) => {}
            Err(e) if passing(&e) => {}
            // The other end has closed.
            Err(_) if Instant::now() >= window.to => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn datagrams(flow: &Flow, size: usize, rate: f64, window: Window) -> io::Result<()> {
    let socket = UdpSocket::bind(flow.from)?;
    set_ip_tos(&socket, flow.dscp << 2)?;
    let data = vec![0; size.saturating_sub(HEADERS)];
    let gap = Duration::from_secs_f64(size as f64 * 8.0 / rate);
    let mut due = window.from;
    while due < window.to {
        sleep_until(due);
        // Nobody receives them: host b says so, once a second.
        match socket.send_to(&data, flow.to) {
            Err(e) if !passing(&e) => return Err(e),
            _ => due += gap,
        }
    }
    Ok(())
}
