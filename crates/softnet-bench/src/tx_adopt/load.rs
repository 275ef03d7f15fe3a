//! The load: threads that allocate packets and send them, flat out or at a rate, and what came of it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::param::page_size;
use softnet::packet::PacketList;
use softnet::pool::{Pool, PoolConfig};
use softnet::stats::Counts;

use super::path::{Delivery, Path, TIMED};
use super::ticks::Ticks;
use crate::error::BenchError;

/// Packets that a thread may have in flight: between its call and the driver.
const IN_FLIGHT: usize = 256;
/// Packets in the pool beyond twice those: a thread's home keeps some, and exhaustion is not what is measured here.
const SPARE: usize = 2048;
/// Bytes of a buffer; the smallest there is.
const BUFFER: usize = 512;
/// One call in so many is timed, on average.
const SAMPLE: u32 = 16;
/// Flows of each thread.
const FLOWS: u32 = 4;
/// How long packets may take to leave after the last was sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Stack of a sender.
const STACK: usize = 64 << 10;

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const STOP: u8 = 2;

/// What the senders do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) threads: usize,
    /// Packets in a transmit call.
    pub(crate) bulk: usize,
    /// Packets per second of all threads together; `None`: as many as possible.
    pub(crate) offered: Option<f64>,
    /// Bytes of a packet.
    pub(crate) frame: usize,
    pub(crate) time: Duration,
}

impl Plan {
    /// Packets in the pool.
    pub(crate) fn packets(&self) -> usize {
        2 * self.threads * IN_FLIGHT + SPARE
    }

    /// The pool.
    pub(crate) fn pool(&self) -> Result<Pool, BenchError> {
        let config = PoolConfig {
            buffers: self.packets(),
            buffer_size: BUFFER,
        };
        Pool::new(config).map_err(|e| BenchError::Measure(e.to_string()))
    }
}

/// What one turn gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) delivered: u64,
    pub(crate) drops: u64,
    pub(crate) time: Duration,
    /// User and system time of the process.
    pub(crate) cpu: Duration,
    /// Time that the senders together spent waiting for locks, where that is known.
    pub(crate) waited: Option<Duration>,
    /// Of the transmit call, in nanoseconds.
    pub(crate) call: Counts<4>,
    /// Of the packets, from the transmit call to the driver, where that is known.
    pub(crate) sojourn: Option<Counts<4>>,
}

#[derive(Debug, Default)]
struct Sender {
    sent: u64,
    waited: u64,
    call: Counts<4>,
}

/// Runs the senders, and checks that every packet was delivered or dropped and that every buffer is back.
///
/// # Errors
/// [`BenchError::Measure`] if packets are stuck or lost.
pub(crate) fn measure<P: Path>(
    path: &P,
    delivery: &Delivery,
    pool: &Pool,
    ticks: &Ticks,
    plan: &Plan,
) -> Result<Outcome, BenchError> {
    let phase = AtomicU8::new(WARMING);
    let stop = AtomicBool::new(false);
    let spawning = |e| BenchError::io("starting a sender", e);
    std::thread::scope(|scope| {
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let server = P::SERVED
            .then(|| named("server").spawn_scoped(scope, || path.serve(&stop)))
            .transpose()
            .map_err(spawning)?;
        let mut senders = Vec::new();
        let mut failed = None;
        for number in 0..plan.threads {
            let phase = &phase;
            let sender = named("sender")
                .stack_size(STACK.max(page_size()))
                .spawn_scoped(scope, move || {
                    run(path, delivery, pool, ticks, plan, number, phase)
                });
            match sender {
                Ok(sender) => senders.push(sender),
                Err(e) => failed = Some(e),
            }
        }
        std::thread::sleep((plan.time / 8).max(Duration::from_millis(20)));
        delivery.count_from(ticks.now());
        let (start, cpu, delivered, dropped) =
            (Instant::now(), cpu(), delivery.packets(), path.dropped());
        phase.store(MEASURING, Ordering::Relaxed);
        std::thread::sleep(plan.time);
        let mut outcome = Outcome {
            delivered: delivery.packets() - delivered,
            drops: path.dropped() - dropped,
            time: start.elapsed(),
            cpu: self::cpu().saturating_sub(cpu),
            waited: None,
            call: Counts::default(),
            sojourn: None,
        };
        phase.store(STOP, Ordering::Relaxed);
        let (mut sent, mut waited) = (0, Duration::ZERO);
        for sender in senders {
            match sender.join() {
                Ok(sender) => {
                    sent += sender.sent;
                    waited += Duration::from_nanos(sender.waited);
                    outcome.call.merge(&sender.call);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome.waited = Some(waited);
        let settled = settle(path, delivery, pool, sent);
        stop.store(true, Ordering::Release);
        if let Some(Err(panic)) = server.map(|server| server.join()) {
            std::panic::resume_unwind(panic);
        }
        settled?;
        outcome.sojourn = Some(delivery.sojourn());
        failed.map_or(Ok(outcome), |e| Err(spawning(e)))
    })
}

/// Waits until all that was sent has left.
fn settle<P: Path>(
    path: &P,
    delivery: &Delivery,
    pool: &Pool,
    sent: u64,
) -> Result<(), BenchError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (delivered, dropped) = (delivery.packets(), path.dropped());
        let stats = pool.stats();
        let complete = delivered + dropped == sent && stats.free == stats.buffers;
        if complete {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(BenchError::Measure(format!(
                "of {sent} packets sent, {delivered} were delivered and {dropped} dropped; \
                 {} of {} buffers are free",
                stats.free, stats.buffers
            )));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn run<P: Path>(
    path: &P,
    delivery: &Delivery,
    pool: &Pool,
    ticks: &Ticks,
    plan: &Plan,
    number: usize,
    phase: &AtomicU8,
) -> Sender {
    let mut sender = Sender::default();
    // Packets refused, and packets delivered when that was looked at last.
    let (mut refused, mut returned) = (0, 0);
    let mut random = Random(0x9E37_79B9 ^ (number as u32 + 1));
    let mut now = ticks.now();
    let mut countdown = random.below(2 * SAMPLE);
    let pace = plan
        .offered
        .map(|rate| Pace::new(rate, plan.threads, now.nanos()));
    loop {
        let phase = phase.load(Ordering::Relaxed);
        if phase == STOP {
            return sender;
        }
        if let Some(pace) = &pace {
            let due = pace.due(ticks.nanos());
            if sender.sent + plan.bulk as u64 > due {
                std::thread::sleep(pace.nap(&mut random));
                continue;
            }
        }
        let allowed =
            |returned| sender.sent + plan.bulk as u64 - refused - returned <= IN_FLIGHT as u64;
        if !allowed(returned) {
            returned = delivery.returned(number);
            if !allowed(returned) {
                std::thread::yield_now();
                continue;
            }
        }
        let mut fresh = PacketList::new();
        if plan.bulk == 1 {
            fresh.extend(pool.alloc());
        } else {
            pool.alloc_bulk(plan.bulk, &mut fresh);
        }
        let Some(mut first) = fresh.pop_front() else {
            std::thread::yield_now();
            continue;
        };
        let flow = number as u32 * FLOWS + (sender.sent as u32 / 64) % FLOWS;
        let timed = countdown == 0;
        if timed {
            countdown = random.below(2 * SAMPLE);
            now = ticks.now();
            first.set_mark(TIMED);
            first.set_timestamp(now);
        } else {
            countdown -= 1;
        }
        let mut packets = PacketList::new();
        let mut rest = Some(first);
        while let Some(mut packet) = rest {
            packet.extend(plan.frame);
            packet.set_flow_hash(flow);
            packet.set_port(number as u16);
            packets.push_back(packet);
            rest = fresh.pop_front();
        }
        sender.sent += packets.len() as u64;
        let mut waited = 0;
        if timed {
            // The packets' time in the queue includes their making, the call's does not.
            let start = ticks.nanos();
            refused += path.transmit(packets, now, &mut waited);
            if phase == MEASURING {
                sender.call.record(ticks.nanos() - start);
            }
        } else {
            refused += path.transmit(packets, now, &mut waited);
        }
        if phase == MEASURING {
            sender.waited += waited;
        }
    }
}

/// When a thread has to send.
#[derive(Debug)]
struct Pace {
    start: u64,
    /// Packets per nanosecond.
    rate: f64,
    nap: Duration,
}

impl Pace {
    fn new(rate: f64, threads: usize, start: u64) -> Pace {
        Pace {
            start,
            rate: rate / threads as f64 / 1e9,
            // So that waking up costs a part of the CPUs that does not grow with the number of threads.
            nap: Duration::from_micros(10 * threads as u64).max(Duration::from_micros(50)),
        }
    }

    /// Packets that should have been sent by `now`.
    fn due(&self, now: u64) -> u64 {
        (now.saturating_sub(self.start) as f64 * self.rate) as u64
    }

    /// How long to sleep: a random time, so that threads do not march in step.
    fn nap(&self, random: &mut Random) -> Duration {
        self.nap
            .mul_f64(0.5 + f64::from(random.below(1024)) / 1024.0)
    }
}

/// Marsaglia's xorshift; the seed must not be 0.
#[derive(Debug)]
struct Random(u32);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        ((u64::from(self.0) * u64::from(n)) >> 32) as u32
    }
}

/// User and system time of this process.
pub(crate) fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measures until something was delivered in the measured time: beside other work, the senders may not get the CPU in a few milliseconds.
///
/// # Errors
/// The measurement's, or that nothing was ever delivered.
#[cfg(test)]
pub(crate) fn until_delivered(
    mut measure: impl FnMut() -> Result<Outcome, BenchError>,
) -> Result<(), BenchError> {
    for _ in 0..100 {
        if measure()?.delivered > 0 {
            return Ok(());
        }
    }
    Err(BenchError::Measure("nothing was delivered".into()))
}
