//! The cost of memory accesses between this machine's first two CPUs, measured when the experiment
//! runs.

use std::hint::{black_box, spin_loop};
use std::net::UdpSocket;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::machine::Costs;
use super::model;
use super::topology::factors;
use crate::buffers::pinned::{Cpus, pin};
use crate::error::BenchError;
use crate::numbers::{median, significant};
use crate::random::Random;
use crate::tx_adopt::{FRAME, Ticks};

/// Lines that are handed over at once: more than the processor has buffers for, less than its
/// first cache holds.
const LINES: usize = 512;
/// Hand-offs.
const TURNS: usize = 100;
const OPERATIONS: u32 = 200_000;

/// The measurements, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calibration {
    pub(super) costs: Costs,
    /// An atomic operation where both CPUs do nothing else with one line.
    pub(super) contended: f64,
    pub(super) pause: f64,
    /// To read the clock, as a sender does that waits for a lock.
    pub(super) clock: f64,
    pub(super) r#yield: f64,
    /// A datagram through the kernel's stack to a full socket.
    pub(super) datagram: f64,
}

/// A line with a place that one CPU writes and a link to the next line.
#[repr(align(128))]
struct Slot {
    link: AtomicU64,
    written: AtomicU64,
}

/// Access of the second CPU to the lines that the first has written.
#[derive(Clone, Copy)]
enum Walk {
    /// Each link tells the next line.
    Load,
    Rmw,
    /// The next line is known ahead.
    Stream,
}

impl Calibration {
    /// Measures.
    pub(super) fn measure(ticks: &Ticks) -> Result<Calibration, BenchError> {
        let cpus = Cpus::choose()?;
        let walk = |walk| transfer(cpus, walk);
        let flag = AtomicU64::new(0);
        let atomic = repeated(|| flag.fetch_add(1, Ordering::SeqCst));
        let contended = contended(cpus)?;
        let rmw = walk(Walk::Rmw)?.max(atomic) - atomic;
        let (load, pause) = (walk(Walk::Load)?, repeated(spin_loop));
        let mut costs = Costs {
            atomic,
            load,
            rmw,
            // By the time that a flag takes to be seen by who waits for it: the store takes the
            // line from the reader, who looks after a pause and loads it.
            upgrade: (signal(cpus)? - load - pause / 2.0).max(0.0),
            stream: walk(Walk::Stream)?,
            flight: 0.0,
            distances: factors(rmw),
        };
        costs.flight = model::flight(costs, contended);
        Ok(Calibration {
            costs,
            contended,
            pause,
            clock: repeated(|| ticks.nanos()),
            r#yield: repeated(std::thread::yield_now),
            datagram: datagram()?,
        })
    }

    pub(super) fn to_json(self) -> Value {
        let costs = self.costs;
        let rounded = |nanos: f64| significant(nanos, 4);
        json!({
            "atomic_ns": rounded(costs.atomic),
            "load_ns": rounded(costs.load),
            "rmw_ns": rounded(costs.rmw),
            "upgrade_ns": rounded(costs.upgrade),
            "stream_ns": rounded(costs.stream),
            "contended_ns": rounded(self.contended),
            "flight": rounded(costs.flight),
            "distances": costs.distances.map(rounded),
            "pause_ns": rounded(self.pause),
            "clock_ns": rounded(self.clock),
            "yield_ns": rounded(self.r#yield),
            "datagram_ns": rounded(self.datagram),
        })
    }
}

fn nanos_each(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

/// Nanoseconds of an operation that is repeated on one CPU: of several turns the median.
pub(super) fn repeated<T>(mut operation: impl FnMut() -> T) -> f64 {
    let mut turn = |_| {
        let start = Instant::now();
        for _ in 0..OPERATIONS / 100 {
            black_box(operation());
        }
        nanos_each(start.elapsed(), (OPERATIONS / 100) as usize)
    };
    median(&(0..20).map(&mut turn).collect::<Vec<_>>())
}

/// Runs both on CPUs of their own; what the second returns.
fn on_both<T: Send>(
    cpus: Cpus,
    first: impl FnOnce() -> T + Send,
    second: impl FnOnce() -> T + Send,
) -> Result<T, BenchError> {
    let (a, b) = std::thread::scope(|scope| {
        let first = scope.spawn(move || pin(cpus.a).map(|()| first()));
        let second = scope.spawn(move || pin(cpus.b).map(|()| second()));
        (first.join(), second.join())
    });
    match (a, b) {
        (Ok(a), Ok(b)) => a.and(b),
        (Err(panic), _) | (_, Err(panic)) => std::panic::resume_unwind(panic),
    }
}

/// Waits for the other CPU. With one CPU for both threads it gets it.
fn wait(turn: &AtomicU64, value: u64) {
    let mut looks = 0_u32;
    while turn.load(Ordering::Acquire) != value {
        spin_loop();
        looks += 1;
        if looks.is_multiple_of(1 << 14) {
            std::thread::yield_now();
        }
    }
}

fn contended(cpus: Cpus) -> Result<f64, BenchError> {
    let (line, start) = (AtomicU64::new(0), Barrier::new(2));
    let add = || {
        start.wait();
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            line.fetch_add(1, Ordering::SeqCst);
        }
        start.elapsed()
    };
    let turn = |_| {
        Ok(nanos_each(
            on_both(cpus, add, add)?,
            2 * OPERATIONS as usize,
        ))
    };
    let turns: Result<Vec<_>, BenchError> = (0..5).map(turn).collect();
    Ok(median(&turns?))
}

/// Nanoseconds from a store to the moment at which the other CPU, which waits for it, has seen it.
fn signal(cpus: Cpus) -> Result<f64, BenchError> {
    const ROUNDS: u64 = 2000;
    let turn = &AtomicU64::new(0);
    let answer = move || {
        for now in 0..TURNS as u64 * ROUNDS {
            wait(turn, 2 * now + 1);
            turn.store(2 * now + 2, Ordering::Release);
        }
        0.0
    };
    let ask = move || {
        let some = |first: u64| {
            let start = Instant::now();
            for now in first * ROUNDS..(first + 1) * ROUNDS {
                turn.store(2 * now + 1, Ordering::Release);
                wait(turn, 2 * now + 2);
            }
            nanos_each(start.elapsed(), 2 * ROUNDS as usize)
        };
        median(&(0..TURNS as u64).map(some).collect::<Vec<_>>())
    };
    on_both(cpus, answer, ask)
}

/// Nanoseconds of the second CPU for each line.
fn transfer(cpus: Cpus, walk: Walk) -> Result<f64, BenchError> {
    let mut order: Vec<usize> = (0..LINES).collect();
    Random::new(7).shuffle(&mut order);
    let mut slots: Vec<_> = (0..LINES)
        .map(|_| Slot {
            link: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
        .collect();
    for (place, slot) in order.iter().enumerate() {
        slots[*slot].link = AtomicU64::new(order[(place + 1) % LINES] as u64);
    }
    let (slots, order, turn) = (&slots, &order, &AtomicU64::new(0));
    let relaxed = Ordering::Relaxed;
    let write = move || {
        for now in 0..TURNS as u64 {
            for slot in slots {
                slot.written.store(now, relaxed);
            }
            turn.store(2 * now + 1, Ordering::Release);
            wait(turn, 2 * now + 2);
        }
        0.0
    };
    let read = move || {
        let one = |now: u64| {
            wait(turn, 2 * now + 1);
            let start = Instant::now();
            let mut next = order[0];
            for place in order {
                let slot = &slots[next];
                next = match walk {
                    Walk::Load => slot.link.load(relaxed) as usize,
                    Walk::Rmw => slot.link.fetch_add(0, Ordering::SeqCst) as usize,
                    Walk::Stream => {
                        let slot = &slots[*place];
                        slot.written.store(slot.written.load(relaxed) + 1, relaxed);
                        next
                    }
                };
            }
            black_box(next);
            let time = start.elapsed();
            turn.store(2 * now + 2, Ordering::Release);
            nanos_each(time, LINES)
        };
        median(&(0..TURNS as u64).map(one).collect::<Vec<_>>())
    };
    on_both(cpus, write, read)
}

/// A datagram to a socket that nobody reads: system call, stack, loopback device.
fn datagram() -> Result<f64, BenchError> {
    let failed = |e| BenchError::io("sending datagrams to 127.0.0.1", e);
    let to = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let from = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    from.connect(to.local_addr().map_err(failed)?)
        .map_err(failed)?;
    let data = [0; FRAME];
    from.send(&data).map_err(failed)?;
    Ok(repeated(|| from.send(&data).is_ok()))
}
