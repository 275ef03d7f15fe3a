//! The loops that are measured, on threads bound to CPUs.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::thread::CpuSet;
use softnet_testbed::threads::joined;

use super::{Buffers, Counts, Reading};
use crate::error::BenchError;

/// Packets that are on their way between two threads at most.
const RING: usize = 512;
/// Descriptors of the driver's ring in the forwarding loop, and packets that arrive at once.
const DESCRIPTORS: usize = 256;
pub(crate) const BATCH: usize = 32;
/// Packets between two looks at the clock.
const STRIDE: usize = 8192;
/// Tries with a pause before the CPU is given away.
const SPINS: u32 = 64;
/// Time that a thread sleeps unless it is woken, in the path where it does.
const NAP: Duration = Duration::from_micros(100);

/// The CPUs that A and B are bound to; the same one if there is no other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpus {
    pub(crate) a: usize,
    pub(crate) b: usize,
}

impl Cpus {
    /// The first two that this process may use.
    pub(crate) fn choose() -> Result<Cpus, BenchError> {
        let mut cpus = crate::speed::cpus()?.into_iter();
        let a = cpus.next().unwrap_or(0);
        Ok(Cpus {
            a,
            b: cpus.next().unwrap_or(a),
        })
    }
}

pub(crate) fn pin(cpu: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| BenchError::io(format!("binding a thread to CPU {cpu}"), e))
}

/// Binds the calling thread to all CPUs that it may use but this one, if there are others.
pub(crate) fn pin_others(cpu: usize) -> Result<(), BenchError> {
    let mut set = rustix::thread::sched_getaffinity(None)
        .map_err(|e| BenchError::io("asking which CPUs may be used", e))?;
    set.unset(cpu);
    if set.count() == 0 {
        return Ok(());
    }
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|e| BenchError::io(format!("keeping a thread off CPU {cpu}"), e))
}

/// Runs `measure` on a thread of its own that is bound to `cpu`.
pub(crate) fn on_cpu<T: Send>(
    cpu: usize,
    measure: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                pin(cpu)?;
                measure()
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Repeats `stride`, which handles as many packets as it returns, for `time`, after a quarter of
/// that to warm up.
pub(crate) fn repeat(
    time: Duration,
    counts: impl Fn() -> Counts,
    mut stride: impl FnMut() -> Result<usize, BenchError>,
) -> Result<Reading, BenchError> {
    let start = Instant::now();
    while start.elapsed() < time / 4 {
        stride()?;
    }
    let before = counts();
    let start = Instant::now();
    let mut packets = 0;
    loop {
        packets += stride()? as u64;
        let elapsed = start.elapsed();
        if elapsed >= time {
            return Ok(Reading {
                packets,
                time: elapsed,
                counts: counts().since(before),
            });
        }
    }
}

fn exhausted() -> BenchError {
    BenchError::Measure("a pool was exhausted by one thread".to_owned())
}

/// Allocates and frees `bulk` packets at a time on one thread.
pub(crate) fn same_thread<B: Buffers>(
    buffers: &B,
    cpu: usize,
    bulk: usize,
    time: Duration,
) -> Result<Reading, BenchError> {
    let turns = STRIDE / bulk;
    on_cpu(cpu, || {
        repeat(
            time,
            || buffers.counts(),
            || {
                for _ in 0..turns {
                    if bulk == 1 {
                        buffers.free(buffers.alloc().ok_or_else(exhausted)?);
                    } else {
                        let mut burst = B::Burst::default();
                        if buffers.alloc_bulk(bulk, &mut burst) < bulk {
                            return Err(exhausted());
                        }
                        buffers.free_bulk(burst);
                    }
                }
                Ok(turns * bulk)
            },
        )
    })
}

/// A forwarding loop: a batch is received into fresh packets, looked at, and put into the
/// descriptors of a transmit ring, where packets stay until the driver reports the oldest batch as
/// sent. With `bulk` false, packets are allocated and freed one by one.
pub(crate) fn forward<B: Buffers>(
    buffers: &B,
    cpu: usize,
    bulk: bool,
    time: Duration,
) -> Result<Reading, BenchError> {
    on_cpu(cpu, || {
        let mut ring: Vec<Option<B::Packet>> = (0..DESCRIPTORS).map(|_| None).collect();
        let (mut head, mut bytes) = (0, 0);
        let mut batch = || {
            let sent = &mut ring[head..head + BATCH];
            if bulk {
                buffers.free_bulk(buffers.gather(sent.iter_mut().filter_map(Option::take)));
            } else {
                sent.iter_mut()
                    .filter_map(Option::take)
                    .for_each(|packet| buffers.free(packet));
            }
            let mut burst = B::Burst::default();
            if bulk {
                if buffers.alloc_bulk(BATCH, &mut burst) < BATCH {
                    return Err(exhausted());
                }
            } else {
                for _ in 0..BATCH {
                    buffers.push(&mut burst, buffers.alloc().ok_or_else(exhausted)?);
                }
            }
            for descriptor in sent.iter_mut() {
                *descriptor = buffers.pop(&mut burst);
                bytes += descriptor.as_ref().map_or(0, |p| buffers.frame_len(p));
            }
            head = (head + BATCH) % DESCRIPTORS;
            Ok(())
        };
        let reading = repeat(
            time,
            || buffers.counts(),
            || {
                for _ in 0..STRIDE / BATCH {
                    batch()?;
                }
                Ok(STRIDE / BATCH * BATCH)
            },
        );
        std::hint::black_box(bytes);
        ring.into_iter()
            .flatten()
            .for_each(|packet| buffers.free(packet));
        reading
    })
}

/// Where packets go between allocation and free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// A allocates on one CPU, B frees on the other.
    OneWay,
    /// As one way, but A sleeps when it can send no more.
    Sleeping,
    /// Each thread of a pair allocates for the other one and frees what that one allocated.
    BothWays,
    /// As one way, both threads on one CPU.
    OneCpu,
    /// One thread does both, through the same ring.
    OneThread,
}

/// One figure of packets that pass from thread to thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandOff {
    pub(crate) path: Path,
    pub(crate) threads: usize,
    pub(crate) bulk: usize,
}

/// State that the threads of a figure share.
struct Shared<'a, B> {
    buffers: &'a B,
    bulk: usize,
    sleeps: bool,
    stop: AtomicBool,
    /// Threads that may still send.
    sending: AtomicUsize,
}

/// Hands packets over between threads and counts what is freed.
pub(crate) fn hand_off<B: Buffers>(
    buffers: &B,
    cpus: Cpus,
    plan: HandOff,
    time: Duration,
) -> Result<Reading, BenchError> {
    type End<P> = (Option<Producer<P>>, Option<Consumer<P>>, usize);
    let mut ends: Vec<End<B::Packet>> = Vec::new();
    for _ in 0..plan.threads.div_ceil(2) {
        let (there, from_a) = RingBuffer::new(RING);
        match plan.path {
            Path::OneThread => ends.push((Some(there), Some(from_a), cpus.b)),
            Path::OneWay | Path::Sleeping | Path::OneCpu => {
                ends.push((Some(there), None, cpus.a));
                let cpu = if plan.path == Path::OneCpu {
                    cpus.a
                } else {
                    cpus.b
                };
                ends.push((None, Some(from_a), cpu));
            }
            Path::BothWays => {
                let (back, from_b) = RingBuffer::new(RING);
                ends.push((Some(there), Some(from_b), cpus.a));
                ends.push((Some(back), Some(from_a), cpus.b));
            }
        }
    }
    let shared = Shared {
        buffers,
        bulk: plan.bulk,
        sleeps: plan.path == Path::Sleeping,
        stop: AtomicBool::new(false),
        sending: AtomicUsize::new(ends.iter().filter(|(out, _, _)| out.is_some()).count()),
    };
    let freed: Vec<CachePadded<AtomicU64>> = ends.iter().map(|_| CachePadded::default()).collect();
    let sum = || freed.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>();
    thread::scope(|scope| {
        let threads: Vec<_> = ends
            .into_iter()
            .zip(&freed)
            .map(|((out, input, cpu), freed)| {
                let shared = &shared;
                scope.spawn(move || {
                    let pinned = pin(cpu);
                    shared.work(out, input, freed);
                    pinned
                })
            })
            .collect();
        thread::sleep(time / 4);
        let (packets, counts, start) = (sum(), buffers.counts(), Instant::now());
        thread::sleep(time);
        let reading = Reading {
            packets: sum() - packets,
            time: start.elapsed(),
            counts: buffers.counts().since(counts),
        };
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            joined(thread)?;
        }
        Ok(reading)
    })
}

impl<B: Buffers> Shared<'_, B> {
    fn work(
        &self,
        mut out: Option<Producer<B::Packet>>,
        mut input: Option<Consumer<B::Packet>>,
        freed: &AtomicU64,
    ) {
        self.buffers.start();
        let mut idle = Idle(0);
        let mut bytes = 0;
        if let Some(out) = &mut out {
            let mut sender = Sender {
                shared: self,
                burst: B::Burst::default(),
                waiting: 0,
            };
            while !self.stop.load(Ordering::Relaxed) {
                let sent = sender.send(out);
                let received = input
                    .as_mut()
                    .is_some_and(|input| self.receive(input, freed, &mut bytes));
                if idle.after(sent || received) && self.sleeps && self.buffers.before_sleep() {
                    thread::park_timeout(NAP);
                    self.buffers.after_sleep();
                }
            }
            self.buffers.free_bulk(sender.burst);
            // Release: pairs with the load below; what was sent before is seen by who sees this.
            self.sending.fetch_sub(1, Ordering::Release);
        }
        if let Some(input) = &mut input {
            loop {
                // Acquire: before the ring is looked at; pairs with the decrement above.
                let last = self.sending.load(Ordering::Acquire) == 0;
                let received = self.receive(input, freed, &mut bytes);
                if last && !received {
                    break;
                }
                idle.after(received);
            }
        }
        std::hint::black_box(bytes);
    }

    /// Frees up to a burst; false if nothing has arrived.
    fn receive(
        &self,
        input: &mut Consumer<B::Packet>,
        freed: &AtomicU64,
        bytes: &mut usize,
    ) -> bool {
        let buffers = self.buffers;
        let n = if self.bulk == 1 {
            let Ok(packet) = input.pop() else {
                return false;
            };
            *bytes += buffers.frame_len(&packet);
            buffers.free(packet);
            1
        } else {
            let chunk = match input.read_chunk(self.bulk) {
                Ok(chunk) => chunk,
                Err(rtrb::chunks::ChunkError::TooFewSlots(0)) => return false,
                Err(rtrb::chunks::ChunkError::TooFewSlots(n)) => match input.read_chunk(n) {
                    Ok(chunk) => chunk,
                    Err(_) => return false,
                },
            };
            let n = chunk.len();
            let mut burst = B::Burst::default();
            let mut sum = 0;
            chunk.into_iter().for_each(|packet| {
                sum += buffers.frame_len(&packet);
                buffers.push(&mut burst, packet);
            });
            *bytes += sum;
            buffers.free_bulk(burst);
            n
        };
        // Written by this thread alone, so a load and a store do.
        freed.store(freed.load(Ordering::Relaxed) + n as u64, Ordering::Relaxed);
        true
    }
}

/// Allocates bursts and sends them.
struct Sender<'a, 'b, B: Buffers> {
    shared: &'a Shared<'b, B>,
    /// Packets that did not fit into the ring yet.
    burst: B::Burst,
    waiting: usize,
}

impl<B: Buffers> Sender<'_, '_, B> {
    /// False if the ring is full or the pool empty.
    fn send(&mut self, out: &mut Producer<B::Packet>) -> bool {
        let buffers = self.shared.buffers;
        if self.shared.bulk == 1 {
            if out.is_full() {
                return false;
            }
            let Some(packet) = buffers.alloc() else {
                return false;
            };
            if let Err(rtrb::PushError::Full(packet)) = out.push(packet) {
                buffers.free(packet);
                return false;
            }
            return true;
        }
        if self.waiting == 0 {
            self.waiting = buffers.alloc_bulk(self.shared.bulk, &mut self.burst);
        }
        if self.waiting == 0 {
            return false;
        }
        let Ok(chunk) = out.write_chunk_uninit(self.waiting) else {
            return false;
        };
        let burst = &mut self.burst;
        chunk.fill_from_iter(std::iter::from_fn(|| buffers.pop(burst)));
        self.waiting = 0;
        true
    }
}

/// Waiting in vain: a pause first, then the CPU is given away.
struct Idle(u32);

impl Idle {
    /// True if there has been nothing to do for long.
    fn after(&mut self, did_something: bool) -> bool {
        if did_something {
            self.0 = 0;
        } else if self.0 < SPINS {
            self.0 += 1;
            std::hint::spin_loop();
        } else {
            self.0 = 0;
            thread::yield_now();
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::Softnet;
    use super::*;

    const TIME: Duration = Duration::from_millis(20);

    fn softnet() -> (Softnet, Cpus) {
        let softnet = Softnet::new(4096, true).expect("a small pool");
        (softnet, Cpus::choose().expect("a process has a CPU"))
    }

    /// Every buffer can be allocated again.
    fn all_are_back(softnet: &Softnet) {
        super::super::tests::everything_comes_back(softnet, 4096);
    }

    #[test]
    fn one_thread_s_loops_pass_packets_and_give_them_all_back() {
        let (softnet, cpus) = softnet();
        for bulk in [1, 32] {
            let reading = same_thread(&softnet, cpus.b, bulk, TIME).expect("it is measured");
            assert!(reading.packets > 0 && reading.time >= TIME);
        }
        for bulk in [false, true] {
            let reading = forward(&softnet, cpus.b, bulk, TIME).expect("it is measured");
            assert!(reading.packets > 0);
        }
        all_are_back(&softnet);
    }

    #[test]
    fn every_path_passes_packets_and_gives_them_all_back() {
        let (softnet, cpus) = softnet();
        for path in [
            Path::OneWay,
            Path::Sleeping,
            Path::BothWays,
            Path::OneCpu,
            Path::OneThread,
        ] {
            for bulk in [1, 32] {
                let threads = if path == Path::OneThread { 1 } else { 4 };
                let plan = HandOff {
                    path,
                    threads,
                    bulk,
                };
                // On a busy machine a thread may not get to run within the time.
                let passed = (0..100).any(|_| {
                    let reading = hand_off(&softnet, cpus, plan, TIME).expect("it is measured");
                    reading.packets > 0
                });
                assert!(passed, "{plan:?}");
            }
        }
        all_are_back(&softnet);
    }
}
