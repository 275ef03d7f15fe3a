//! Time of one datagram from host a to host b when everything on its way sleeps: one is sent every
//! 5 to 20 ms, at random. Two ends are measured: when the far host's stack has the packet
//! (`SO_TIMESTAMPNS`: the switch has sent it), and when the receiving program has it, which must be
//! woken first.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::threads::joined;
use rustix::time::{ClockId, clock_gettime};

use super::stamp;
use crate::error::TestbedError;
use crate::hosts::{ADDRESS_B, Topology};
use crate::random::Random;

const PORT: u16 = 5303;
/// Between two datagrams.
pub const INTERVAL_MS: (u64, u64) = (5, 20);
/// Datagrams sent at least.
const LEAST: u64 = 10;
/// Datagrams sent first, from which the path still learns.
const UNCOUNTED: u64 = 3;
/// Time that the receiver waits before it looks whether it is to end.
const BLOCK: Duration = Duration::from_millis(100);
/// Sending time by two clocks, and a number.
const LENGTH: usize = 24;

/// One-way times in microseconds.
#[derive(Debug, Default)]
pub struct OneWay {
    /// From before `send` to the far host's stack.
    pub to_stack: Vec<f64>,
    /// From before `send` to after `recv`.
    pub to_program: Vec<f64>,
    /// Sent and counted; what is missing in the others got lost.
    pub sent: u64,
}

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sends for `time`.
pub fn run(topology: &Topology, time: Duration) -> Result<OneWay, TestbedError> {
    let failed = |doing: &'static str| move |e| TestbedError::io(doing, e);
    // A socket stays in the namespace where it was made.
    let receiver = topology.b().run(|| {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).map_err(failed("opening a socket"))
    })?;
    let sender = topology.a().run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        socket.map_err(failed("opening a socket"))
    })?;
    sender
        .connect((ADDRESS_B, PORT))
        .map_err(failed("connecting a socket"))?;
    stamp::enable(&receiver).map_err(failed("asking for time stamps"))?;
    receiver
        .set_read_timeout(Some(BLOCK))
        .map_err(failed("setting a time-out"))?;
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let taken = scope.spawn(move || receive(&receiver, stop));
        let sent = send(&sender, time);
        // The last one may still be under way.
        std::thread::sleep(BLOCK);
        stop.store(true, Ordering::Relaxed);
        let mut result = joined(taken).map_err(failed("receiving a datagram"))?;
        result.sent = sent.map_err(failed("sending a datagram"))?;
        Ok(result)
    })
}

fn send(socket: &UdpSocket, time: Duration) -> std::io::Result<u64> {
    let end = Instant::now() + time;
    // All variants get the same intervals.
    let mut random = Random::new(1);
    let mut number = 0;
    while number < LEAST + UNCOUNTED || Instant::now() < end {
        let (least, most) = INTERVAL_MS;
        let range = (most - least) * 1000;
        std::thread::sleep(Duration::from_micros(least * 1000 + random.below(range)));
        let mut data = [0; LENGTH];
        data[16..].copy_from_slice(&number.to_ne_bytes());
        data[8..16].copy_from_slice(&now(ClockId::Realtime).to_ne_bytes());
        data[..8].copy_from_slice(&now(ClockId::Monotonic).to_ne_bytes());
        socket.send(&data)?;
        number += 1;
    }
    Ok(number - UNCOUNTED)
}

fn receive(socket: &UdpSocket, stop: &AtomicBool) -> std::io::Result<OneWay> {
    let mut result = OneWay::default();
    let mut data = [0; LENGTH];
    while !stop.load(Ordering::Relaxed) {
        let (length, stamped) = match stamp::receive(socket, &mut data) {
            Err(e) if e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted => {
                continue;
            }
            other => other?,
        };
        let received = now(ClockId::Monotonic);
        let word = |at: usize| {
            let bytes = data[at..at + 8].try_into().unwrap_or_default();
            u64::from_ne_bytes(bytes)
        };
        if length < LENGTH || word(16) < UNCOUNTED {
            continue;
        }
        let micros = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
        result.to_program.push(micros(word(0), received));
        let stamped = stamped.map(|stamped| micros(word(8), stamped));
        result.to_stack.extend(stamped);
    }
    Ok(result)
}
