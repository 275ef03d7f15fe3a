//! The load: threads that allocate packets and send them, flat out or at a rate, and what came of
//! it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::param::page_size;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::Counts;
use softnet::time::Time;
use softnet_testbed::threads::joined;

use super::path::{Delivery, Path, due as due_mark};
use super::ticks::Ticks;
use crate::error::BenchError;
use crate::htb_tree::priority;
use crate::random::Random;

/// Packets that a thread may have in flight: between its call and the driver.
const IN_FLIGHT: usize = 256;
/// Packets in the pool beyond twice those: a thread's cache keeps some, and exhaustion is not what
/// is measured here.
const SPARE: usize = 2048;
/// Bytes of a buffer; the smallest there is.
const BUFFER: usize = 512;
/// One call in so many is timed, on average.
const SAMPLE: u64 = 16;
/// Flows of each thread.
const FLOWS: u32 = 4;
/// Time that packets may take to leave after the last was sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Stack of a sender.
const STACK: usize = 64 << 10;

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const STOP: u8 = 2;

/// The load that the senders make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) threads: usize,
    /// Packets in a transmit call.
    pub(crate) bulk: usize,
    /// Packets per second of all threads together; `None`: as many as possible.
    pub(crate) offered: Option<f64>,
    /// Bytes of a packet.
    pub(crate) frame: usize,
    /// Classes of [`htb_tree`](crate::htb_tree) that the packets are for, in turn; 0: none.
    pub(crate) classes: u16,
    pub(crate) time: Duration,
}

impl Plan {
    /// Packets in the pool.
    pub(crate) fn packets(&self) -> usize {
        2 * self.threads * IN_FLIGHT + SPARE
    }

    /// The pool.
    pub(crate) fn pool(&self) -> Result<Pool, BenchError> {
        crate::buffers::pool(self.packets(), BUFFER)
    }
}

/// The result of one turn.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) delivered: u64,
    pub(crate) drops: u64,
    pub(crate) time: Duration,
    /// User and system time of the process.
    pub(crate) cpu: Duration,
    /// Time that the senders together spent waiting for locks, where that is known.
    pub(crate) waited: Option<Duration>,
    /// Time of the transmit call, in nanoseconds.
    pub(crate) call: Counts<4>,
    /// Time of the packets from the transmit call to the driver; at a given load from the time at
    /// which they were due.
    pub(crate) sojourn: Counts<4>,
}

#[derive(Debug, Default)]
struct Sender {
    sent: u64,
    waited: u64,
    call: Counts<4>,
    /// Delay at the end of the packets that were due and not sent.
    late: Counts<4>,
}

/// Runs the senders, and checks that every packet was delivered or dropped and that every buffer
/// is back.
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
            sojourn: Counts::default(),
        };
        phase.store(STOP, Ordering::Relaxed);
        let (mut sent, mut waited) = (0, Duration::ZERO);
        let mut late = Counts::default();
        for sender in senders {
            let sender = joined(sender);
            sent += sender.sent;
            waited += Duration::from_nanos(sender.waited);
            outcome.call.merge(&sender.call);
            late.merge(&sender.late);
        }
        outcome.waited = Some(waited);
        let settled = settle(path, delivery, pool, sent);
        stop.store(true, Ordering::Release);
        server.map(joined);
        settled?;
        late.merge(&delivery.sojourn());
        outcome.sojourn = late;
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
    let mut random = Random::new(number as u64 + 1);
    let mut class = (random.below(plan.classes.into())) as u16;
    let mut now = ticks.now();
    let mut countdown = random.below(2 * SAMPLE);
    let mut pace = plan
        .offered
        .map(|rate| Pace::new(rate, plan.threads, now.nanos(), &mut random));
    loop {
        let phase = phase.load(Ordering::Relaxed);
        if phase == STOP {
            if let Some(pace) = pace {
                let since = delivery.counted_from();
                pace.late(sender.sent, since, ticks.nanos(), &mut sender.late);
            }
            return sender;
        }
        let due = match &mut pace {
            // As long as packets are due, nothing holds the sender back.
            Some(pace) if sender.sent + plan.bulk as u64 <= pace.released => Some(Time(pace.due)),
            Some(pace) => {
                pace.next(&mut random);
                let ahead = pace.due.saturating_sub(ticks.nanos());
                if ahead > 0 {
                    std::thread::sleep(Duration::from_nanos(ahead));
                }
                continue;
            }
            None => {
                let allowed = |returned| {
                    sender.sent + plan.bulk as u64 - refused - returned <= IN_FLIGHT as u64
                };
                if !allowed(returned) {
                    returned = delivery.returned(number);
                    if !allowed(returned) {
                        std::thread::yield_now();
                        continue;
                    }
                }
                None
            }
        };
        let mut rest = PacketList::new();
        if plan.bulk == 1 {
            rest.extend(pool.alloc());
        } else {
            pool.alloc_bulk(plan.bulk, &mut rest);
        }
        let Some(mut first) = rest.pop_front() else {
            std::thread::yield_now();
            continue;
        };
        let flow = number as u32 * FLOWS + (sender.sent as u32 / 64) % FLOWS;
        let mut fill = |packet: &mut Packet| {
            packet.extend(plan.frame);
            if plan.classes > 0 {
                packet.set_priority(priority(class));
                class = (class + 1) % plan.classes;
            }
            packet.set_flow_hash(flow);
            packet.set_port(number as u16);
        };
        fill(&mut first);
        rest.for_each_mut(fill);
        sender.sent += 1 + rest.len() as u64;
        let timed = countdown == 0;
        if timed {
            countdown = random.below(2 * SAMPLE);
            now = ticks.now();
            first.set_mark(due_mark(due.unwrap_or(now)));
        } else {
            countdown -= 1;
        }
        let mut packets = PacketList::from(first);
        packets.append(&mut rest);
        let mut waited = 0;
        refused += path.transmit(packets, now, &mut waited);
        if phase == MEASURING {
            if timed {
                sender.call.record(ticks.nanos() - now.nanos());
            }
            sender.waited += waited;
        }
    }
}

/// When a thread has to send: bursts at times that do not depend on what became of those before.
#[derive(Debug)]
struct Pace {
    /// Time of burst 0.
    start: u64,
    period: u64,
    /// Packets in a period.
    packets: f64,
    burst: u64,
    /// When the burst is due.
    due: u64,
    /// Packets due with this burst and those before.
    released: u64,
}

impl Pace {
    fn new(rate: f64, threads: usize, start: u64, random: &mut Random) -> Pace {
        // So that waking up costs a part of the CPUs that does not grow with the number of
        // threads.
        let period = (20_000 * threads as u64).max(100_000);
        let phase = random.below(1024) * period / 1024;
        Pace {
            start: start + phase,
            period,
            packets: rate / threads as f64 * period as f64 / 1e9,
            burst: 0,
            due: start + phase,
            released: 0,
        }
    }

    /// Goes on to the next burst. Its time is moved at random, so that threads do not march in
    /// step.
    fn next(&mut self, random: &mut Random) {
        self.burst += 1;
        let moved = random.below(512) * self.period / 1024;
        self.due = self.start + self.burst * self.period + moved;
        self.released = (self.burst as f64 * self.packets) as u64;
    }

    /// Counts how late the packets are that are due by `now` and were never sent, of which `sent`
    /// were: one in [`SAMPLE`], as of the others.
    fn late(mut self, sent: u64, since: u64, now: u64, late: &mut Counts<4>) {
        let (mut random, mut sent) = (Random::new(1), sent);
        while self.due <= now {
            let packets = self.released.saturating_sub(sent);
            sent = sent.max(self.released);
            if self.due >= since {
                let sampled = (packets + SAMPLE / 2) / SAMPLE;
                (0..sampled).for_each(|_| late.record(now - self.due));
            }
            self.next(&mut random);
        }
    }
}

/// User and system time of this process.
pub(crate) fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measures until something was delivered in the measured time: beside other work, the senders may
/// not get the CPU in a few milliseconds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_times_do_not_depend_on_earlier_bursts() {
        let mut random = Random::new(3);
        // 20 packets each 100 µs.
        let mut pace = Pace::new(200_000.0, 1, 1000, &mut random);
        let start = pace.start;
        for burst in 1..100 {
            pace.next(&mut random);
            let from = start + burst * 100_000;
            assert!((from..from + 50_000).contains(&pace.due));
            assert_eq!(pace.released, burst * 20);
        }
    }

    #[test]
    fn unsent_due_packets_count_as_late() {
        let mut random = Random::new(3);
        let mut pace = Pace::new(16_000_000.0, 1, 0, &mut random);
        let start = pace.start;
        pace.next(&mut random);
        let mut late = Counts::default();
        // Burst 1 was sent; nine of 1600 packets each were not, the last of them at most 150 µs
        // ago. What was due before `since` is not counted.
        pace.late(1600, start + 500_000, start + 1_100_000, &mut late);
        assert!((500..=700).contains(&late.total()), "{}", late.total());
        assert!(late.percentile(1.0).is_some_and(|most| most < 700_000.0));
        assert!(late.percentile(0.5).is_some_and(|half| half > 200_000.0));
    }
}
