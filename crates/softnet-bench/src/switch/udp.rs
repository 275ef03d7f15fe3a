//! UDP from host a to host b by `sendmmsg`, flat out or paced, counted by the application that
//! receives it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use softnet_testbed::mmsg::{BATCH, Batch};
use softnet_testbed::threads::joined;

use crate::cpu;
use crate::error::BenchError;
use crate::hosts::{ADDRESS_B, Topology};

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
pub(super) struct Load {
    /// Bytes per datagram.
    pub(super) payload: usize,
    /// Datagrams per second; `None` is as many as the sender can.
    pub(super) pace: Option<f64>,
    /// Time that is sent and not measured.
    pub(super) warm_up: Duration,
    /// Time that is measured.
    pub(super) time: Duration,
}

/// The result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Datagrams per second that the sender's kernel took.
    pub(super) offered_pps: f64,
    /// Datagrams per second that the receiving application got.
    pub(super) delivered_pps: f64,
    /// The time measured.
    pub(super) seconds: f64,
    /// CPU time of the machine in that time.
    pub(super) cpu_s: f64,
}

/// The part of the time that is measured.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Instant,
    to: Instant,
}

/// Sends the load from a to b and counts.
pub(super) fn run(topology: &Topology, load: &Load) -> Result<Measured, BenchError> {
    let failed = |doing: &'static str| move |e: io::Error| BenchError::io(doing, e);
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
        .map_err(|e| BenchError::io("sizing the receiver's buffer", e))?;
    let start = Instant::now();
    let window = Window {
        from: start + load.warm_up,
        to: start + load.warm_up + load.time,
    };
    let (sent, received, cpu) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&sender, load, start, window));
        let receiver = scope.spawn(|| receive(&receiver, load.payload, window));
        let cpu = busy_during(window);
        (joined(sender), joined(receiver), cpu)
    });
    let seconds = load.time.as_secs_f64();
    Ok(Measured {
        offered_pps: sent.map_err(failed("sending"))? as f64 / seconds,
        delivered_pps: received.map_err(failed("receiving"))? as f64 / seconds,
        seconds,
        cpu_s: cpu?,
    })
}

fn connected() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(SocketAddr::from((ADDRESS_B, PORT)))?;
    socket.set_write_timeout(Some(BLOCK))?;
    Ok(socket)
}

fn busy_during(window: Window) -> Result<f64, BenchError> {
    std::thread::sleep(window.from.saturating_duration_since(Instant::now()));
    let before = cpu::busy()?;
    std::thread::sleep(window.to.saturating_duration_since(Instant::now()));
    Ok(cpu::busy()? - before)
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

/// Receives until the window closes; how many datagrams within it.
fn receive(socket: &UdpSocket, payload: usize, window: Window) -> io::Result<u64> {
    let mut batch = Batch::new(LARGEST);
    let mut counted = 0;
    loop {
        let counts = |datagram: &&[u8]| datagram.len() == payload;
        let result = batch.receive(socket).map(|all| all.filter(counts).count());
        let now = Instant::now();
        if now >= window.to {
            return Ok(counted);
        }
        match result {
            Ok(received) if now >= window.from => counted += received as u64,
            Ok(_) => {}
            Err(e) if passing(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

/// True if the kernel only says "not now": a timeout, a full queue, an earlier datagram that met no
/// socket.
fn passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | TimedOut | Interrupted | ConnectionRefused
    ) || error.raw_os_error() == Some(libc::ENOBUFS)
}
