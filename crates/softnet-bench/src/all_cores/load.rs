//! The load of a rate: flows that always have packets waiting, so that only the rate holds them
//! back.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use softnet::mem::{Packet, PacketList, Pool};
use softnet::time::Clock;
use softnet::tx::Sender;
use softnet::wire::{Gso, GsoKind};
use softnet_tc::AnyQdisc;
use softnet_testbed::threads::joined;

use super::device::{Counter, Meter};
use crate::error::BenchError;
use crate::random::Random;

/// The backlog, as the time that the rate takes for it; `LEAST`: packets of each flow in it at
/// least.
const WAITING: Duration = Duration::from_millis(4);
const LEAST: usize = 4;
/// Packets in a transmit call, at most.
const BULK: usize = 64;
/// Time that a sender sleeps when all its flows have enough packets waiting, or if it is sparse.
const NAP: Duration = Duration::from_micros(50);
/// Buffers beyond what waits: threads keep some.
const SPARE: usize = 512;
/// The times of [`Senders::OnOff`], in milliseconds.
const ON: Range<u64> = 1..51;
/// Time that packets may take to leave after the last was sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// 60 bytes.
    Least,
    /// 1514 bytes.
    Full,
    /// TCP over IPv4 that stands for 44 of these.
    Large,
}

const HEADERS: u16 = 14 + 20 + 20;
const SEGMENT: u16 = 1514 - HEADERS;
const SEGMENTS: u16 = 44;

impl Frame {
    /// Bytes in a buffer.
    fn len(self) -> usize {
        match self {
            Frame::Least => 60,
            Frame::Full => 1514,
            Frame::Large => usize::from(HEADERS) + usize::from(SEGMENT) * usize::from(SEGMENTS),
        }
    }

    /// Bytes on the wire.
    pub(super) fn wire_len(self) -> u64 {
        match self {
            Frame::Least => 60,
            Frame::Full => 1514,
            Frame::Large => 1514 * u64::from(SEGMENTS),
        }
    }

    fn buffer(self) -> usize {
        match self {
            Frame::Least | Frame::Full => 2048,
            Frame::Large => 65_536,
        }
    }

    fn fill(self, packet: &mut Packet) {
        packet.extend(self.len());
        if self == Frame::Large {
            packet.set_gso(Some(Gso {
                kind: GsoKind::TcpV4,
                ecn: false,
                size: SEGMENT,
                segments: SEGMENTS,
                header_len: HEADERS,
            }));
        }
    }
}

/// When senders send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Senders {
    Always,
    /// One of them, or both, for 1 to 50 ms each time, in a random order.
    OnOff,
    /// The first always; the second one packet of 60 bytes at a time, and then it sleeps.
    Sparse,
}

/// The traffic.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// Bytes per second, for how much waits.
    pub(super) rate: u64,
    pub(super) frame: Frame,
    /// Flows of each sender.
    pub(super) flows: [usize; super::QUEUES],
    pub(super) senders: Senders,
    /// Priority of the packets of a flow.
    pub(super) priority: fn(u16) -> u32,
    /// Before, and while it is measured.
    pub(super) warm_up: Duration,
    pub(super) time: Duration,
}

/// Packets that left in the measured time.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) time: Duration,
    pub(super) bytes: u64,
    /// Packets of each flow.
    pub(super) packets: Vec<u64>,
}

/// Who sends until when, in nanoseconds from the start: bit n is sender n.
type Plan = Vec<(u64, u8)>;

impl Load {
    /// Flows of all senders.
    pub(super) fn flow_count(&self) -> usize {
        self.flows.iter().sum()
    }

    /// Packets of a flow that wait.
    fn window(&self) -> usize {
        let bytes = self.rate as f64 * WAITING.as_secs_f64() / self.flow_count() as f64;
        LEAST.max((bytes / self.frame.wire_len() as f64) as usize)
    }

    pub(super) fn pool(&self) -> Result<Pool, BenchError> {
        let buffers = self.flow_count() * self.window() + SPARE;
        crate::buffers::pool(buffers, self.frame.buffer())
    }

    fn plan(&self) -> Plan {
        let mut random = Random::of_now();
        let (mut at, mut senders, mut plan) = (0, 3, Plan::new());
        let end = (self.warm_up + self.time).as_nanos() as u64;
        while self.senders == Senders::OnOff && at < end {
            at += (ON.start + random.below(ON.end - ON.start)) * 1_000_000;
            // One of the two others of: the first, the second, both.
            senders = (senders + random.below(2) as u8) % 3 + 1;
            plan.push((at, senders));
        }
        plan
    }

    /// Sends, counts, and checks that every packet was delivered and every buffer is back.
    ///
    /// # Errors
    /// [`BenchError::Measure`] if packets are stuck, lost or dropped.
    pub(super) fn measure(
        &self,
        device: &Sender<Counter, AnyQdisc>,
        meter: &Arc<Meter>,
        pool: &Pool,
        clock: &Clock,
    ) -> Result<Reading, BenchError> {
        let stop = AtomicBool::new(false);
        let plan = self.plan();
        let (reading, sent) = std::thread::scope(|scope| {
            let (stop, plan) = (&stop, &plan);
            let mut first = 0;
            let mut senders = Vec::new();
            for (number, &count) in self.flows.iter().enumerate().filter(|(_, n)| **n > 0) {
                let flows = first..first + count;
                first = flows.end;
                let run = move || self.send(device, meter, pool, clock, number, flows, plan, stop);
                senders.push(scope.spawn(run));
            }
            std::thread::sleep(self.warm_up);
            let (from, bytes, packets) = read(meter);
            std::thread::sleep(self.time);
            let (to, more_bytes, more) = read(meter);
            stop.store(true, Ordering::Relaxed);
            let mut sent = 0;
            for sender in senders {
                sent += joined(sender);
            }
            let reading = Reading {
                time: to - from,
                bytes: more_bytes - bytes,
                packets: more
                    .iter()
                    .zip(packets)
                    .map(|(to, from)| to - from)
                    .collect(),
            };
            (reading, sent)
        });
        let deadline = Instant::now() + PATIENCE;
        loop {
            let delivered: u64 = meter.packets().iter().sum();
            let (dropped, stats) = (device.device().drops().total(), pool.stats());
            if delivered == sent && dropped == 0 && stats.free == stats.buffers {
                return Ok(reading);
            }
            if Instant::now() > deadline || dropped > 0 {
                return Err(BenchError::Measure(format!(
                    "of {sent} packets sent, {delivered} were delivered and {dropped} dropped; {} \
                     of {} buffers are free",
                    stats.free, stats.buffers
                )));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// A sender: refills its flows. Returns how many packets it sent.
    #[allow(clippy::too_many_arguments, reason = "a thread's whole state")]
    fn send(
        &self,
        device: &Sender<Counter, AnyQdisc>,
        meter: &Meter,
        pool: &Pool,
        clock: &Clock,
        number: usize,
        flows: Range<usize>,
        plan: &Plan,
        stop: &AtomicBool,
    ) -> u64 {
        let queues = device.device().queues();
        let queue = &queues[number % queues.len()];
        let sparse = self.senders == Senders::Sparse && number > 0;
        let (window, frame) = match sparse {
            true => (1, Frame::Least),
            false => (self.window() as u64, self.frame),
        };
        let mut sent = vec![0; flows.len()];
        let (start, mut part) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            let now = start.elapsed().as_nanos() as u64;
            while plan.get(part).is_some_and(|(until, _)| *until <= now) {
                part += 1;
            }
            let on = plan
                .get(part)
                .is_none_or(|(_, who)| who & (1 << number) != 0);
            let mut list = PacketList::new();
            let mut idle = true;
            for (flow, sent) in flows.clone().zip(&mut sent).filter(|_| on) {
                for _ in *sent - meter.of(flow)..window {
                    let Ok(mut packet) = pool.alloc() else { break };
                    frame.fill(&mut packet);
                    packet.set_port(flow as u16);
                    // Hashes as far from each other as they can be.
                    packet.set_flow_hash((flow as u32).wrapping_mul(0x9E37_79B1));
                    packet.set_priority((self.priority)(flow as u16));
                    list.push_back(packet);
                    *sent += 1;
                    idle = false;
                    if list.len() == BULK {
                        queue.transmit(list.take(), clock.now());
                    }
                }
            }
            if !list.is_empty() {
                queue.transmit(list, clock.now());
            }
            if idle || sparse {
                std::thread::sleep(NAP);
            }
        }
        sent.iter().sum()
    }
}

/// The counters, of one moment as far as that goes: read again if reading took long.
fn read(meter: &Meter) -> (Instant, u64, Vec<u64>) {
    for _ in 0..100 {
        let start = Instant::now();
        let bytes = meter.bytes();
        if start.elapsed() < Duration::from_micros(2) {
            return (start, bytes, meter.packets());
        }
    }
    (Instant::now(), meter.bytes(), meter.packets())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sender_or_both_send_and_never_none() {
        let load = Load {
            rate: 1,
            frame: Frame::Full,
            flows: [1, 1],
            senders: Senders::OnOff,
            priority: |_| 0,
            warm_up: Duration::ZERO,
            time: Duration::from_secs(60),
        };
        let plan = load.plan();
        let (mut before, mut seen) = ((0, 3), [0; 4]);
        for part in plan {
            let time = part.0 - before.0;
            assert!((1_000_000..=50_000_000).contains(&time), "{time}");
            assert_ne!(part.1, before.1);
            seen[usize::from(part.1)] += 1;
            before = part;
        }
        assert!(
            seen[0] == 0 && seen[1..].iter().all(|n| *n > 100),
            "{seen:?}"
        );
    }
}
