//! UDP from host a to host b by `sendmmsg`, flat out or paced, counted by the application that
//! receives it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::mmsg::{BATCH, Batch};
use crate::threads::joined;
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::window::Window;
use crate::cpu;
use crate::error::TestbedError;
use crate::hosts::{ADDRESS_B, Topology};
use crate::process::Process;

const PORT: u16 = 5301;
/// The receiver's socket buffer: a burst that the scheduler keeps it from reading is not lost.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Time that a call may block before it looks at the clock.
const BLOCK: Duration = Duration::from_millis(20);
/// Time that the paced sender sleeps when nothing is due.
const NAP: Duration = Duration::from_micros(100);
/// The longest datagram that is received whole.
const LARGEST: usize = 2048;

/// The traffic to send.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Bytes per datagram.
    pub payload: usize,
    /// Datagrams per second; `None` is as many as the sender can.
    pub pace: Option<f64>,
    /// Time that is sent and not measured.
    pub warm_up: Duration,
    /// Time that is measured.
    pub time: Duration,
}

/// The result.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Datagrams per second that the sender's kernel took.
    pub offered_pps: f64,
    /// Datagrams per second that the receiving application got.
    pub delivered_pps: f64,
    /// The time measured.
    pub seconds: f64,
    /// CPU time of the machine in that time.
    pub cpu_s: f64,
    /// The part of the switch's processes.
    pub daemons_cpu_s: f64,
    /// From the time at which a datagram was due until the application has it, of those that are
    /// paced.
    pub latencies_us: Vec<f64>,
}

/// Sends the load from a to b and counts.
pub fn run(topology: &Topology, load: &Load) -> Result<Measured, TestbedError> {
    let failed = |doing: &'static str| move |e: io::Error| TestbedError::io(doing, e);
    // A socket stays in the namespace where it was made.
    let receiver = topology.b().run(|| {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))
            .map_err(failed("binding the receiver's socket"))
    })?;
    let sender = topology
        .a()
        .run(|| connected().map_err(failed("making the sender's socket")))?;
    receiver
        .set_read_timeout(Some(BLOCK))
        .map_err(failed("setting a timeout"))?;
    set_socket_recv_buffer_size(&receiver, RECEIVE_BUFFER)
        .map_err(|e| TestbedError::io("sizing the receiver's buffer", e))?;
    let start = Instant::now();
    let window = Window::after(load.warm_up, load.time);
    let daemons = || -> Result<f64, TestbedError> {
        let each = topology.daemons.iter().map(Process::cpu_s);
        each.sum()
    };
    let (sent, received, cpu) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&sender, load, start, window));
        let receiver = scope.spawn(|| receive(&receiver, load, start, window));
        let cpu = || {
            std::thread::sleep(window.from.saturating_duration_since(Instant::now()));
            let before = (cpu::busy()?, daemons()?);
            std::thread::sleep(window.to.saturating_duration_since(Instant::now()));
            Ok::<_, TestbedError>((cpu::busy()? - before.0, daemons()? - before.1))
        };
        let cpu = cpu();
        (joined(sender), joined(receiver), cpu)
    });
    let seconds = load.time.as_secs_f64();
    let (received, latencies_us) = received.map_err(failed("receiving"))?;
    let (cpu_s, daemons_cpu_s) = cpu?;
    Ok(Measured {
        offered_pps: sent.map_err(failed("sending"))? as f64 / seconds,
        delivered_pps: received as f64 / seconds,
        seconds,
        cpu_s,
        daemons_cpu_s,
        latencies_us,
    })
}

fn connected() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(SocketAddr::from((ADDRESS_B, PORT)))?;
    socket.set_write_timeout(Some(BLOCK))?;
    Ok(socket)
}

/// Sends until the window closes; how many datagrams within it.
fn send(socket: &UdpSocket, load: &Load, start: Instant, window: Window) -> io::Result<u64> {
    let mut batch = Batch::new(load.payload);
    let (mut sent, mut counted) = (0u64, 0);
    loop {
        let now = Instant::now();
        if now >= window.to {
            return Ok(counted);
        }
        let due = match load.pace {
            None => BATCH,
            Some(pace) => {
                let target = (now - start).as_secs_f64() * pace;
                (target as u64).saturating_sub(sent).min(BATCH as u64) as usize
            }
        };
        if due == 0 {
            std::thread::sleep(NAP);
            continue;
        }
        if let Some(pace) = load.pace {
            for (number, datagram) in (sent..).zip(batch.datagrams().take(due)) {
                let at = (number as f64 / pace * 1e9) as u64;
                if let Some(stamp) = datagram.first_chunk_mut() {
                    *stamp = at.to_ne_bytes();
                }
            }
        }
        match batch.send(socket, due) {
            Ok(taken) => {
                sent += taken as u64;
                if now >= window.from {
                    counted += taken as u64;
                }
            }
            Err(e) if passing(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Receives until the window closes; how many datagrams within it, and how long after they were
/// due.
fn receive(
    socket: &UdpSocket,
    load: &Load,
    start: Instant,
    window: Window,
) -> io::Result<(u64, Vec<f64>)> {
    let mut batch = Batch::new(LARGEST);
    let (mut counted, mut latencies) = (0, Vec::new());
    loop {
        let mut due = Vec::new();
        let result = batch.receive(socket).map(|all| {
            for datagram in all.filter(|datagram| datagram.len() == load.payload) {
                due.push(datagram.first_chunk().copied().unwrap_or_default());
            }
        });
        let now = Instant::now();
        if now >= window.to {
            return Ok((counted, latencies));
        }
        match result {
            Ok(()) if now >= window.from => {
                counted += due.len() as u64;
                if load.pace.is_some() {
                    let now = (now - start).as_nanos() as f64;
                    let late = |due| (now - u64::from_ne_bytes(due) as f64) / 1e3;
                    latencies.extend(due.into_iter().map(late));
                }
            }
            Ok(_) => {}
            Err(e) if passing(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

/// True if the kernel only says "not now": a timeout, a full queue, an earlier datagram that met no
/// socket.
pub(super) fn passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | TimedOut | Interrupted | ConnectionRefused
    ) || error.raw_os_error() == Some(libc::ENOBUFS)
}
