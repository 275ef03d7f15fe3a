//! Hosts joined by threads of this program that hand every packet over: what one reads from a host's TAP port, another writes to the other host's. All but
//! the hand-over is the same for all variants, and Softnet's own: drivers, buffers, transmit queues.
//!
//! With Softnet's backlog, or the older one, each port has one worker, which reads it, hands what it has read to the other port's worker, and writes what
//! that has handed over. It sleeps until its port is readable or it is woken. A receiver of a channel cannot sleep on a file as well; so there each
//! port has one thread that reads and one that blocks in `recv` and writes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use softnet::packet::PacketList;
use softnet::pool::{Pool, PoolStats};
use softnet::qdisc::QdiscSpec;
use softnet::rx::{BUDGET, CountDrop, RxQueue, Sleep, WEIGHT, Wake};
use softnet::stats::DropReason;
use softnet::time::{Clock, Time};
use softnet::tx::{DeviceConfig, Standalone, TxPolicy};
use softnet_io::{Buffers, Poller, Tap, TapRx, TapTx};

use super::embedded::{self, Counters, DRAIN};
use super::{InProcess, Join, Wiring};
use crate::backlog::inbox::{self, Inbox, Owner};
use crate::cpu;
use crate::error::BenchError;
use crate::hosts::Site;

/// Threads are named so, and counted by it.
const THREADS: &str = "softnet/relay";

/// Joins two hosts by a hand-over of the variant of this name.
#[derive(Debug)]
pub(crate) struct Relay(pub(crate) &'static str);

/// The threads at work.
struct Running {
    stop: Arc<AtomicBool>,
    inboxes: Vec<Arc<dyn Inbox>>,
    /// Of threads that sleep on a file alone.
    wakers: Vec<Arc<dyn Wake>>,
    threads: Vec<JoinHandle<()>>,
    ports: Vec<Arc<Standalone<TapTx>>>,
    counts: Vec<Arc<Counts>>,
    buffers: Buffers,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// What one thread has counted. It is the only writer.
#[derive(Debug, Default)]
struct Counts {
    frames: AtomicU64,
    handed_over: AtomicU64,
    drops: AtomicU64,
}

fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl CountDrop for &Counts {
    fn count_drop(&mut self, _: DropReason, packets: u64) {
        add(&self.drops, packets);
    }
}

/// One thread: reads a port, or is handed packets to write to one, or both.
struct Thread {
    read: Option<(TapRx, Arc<dyn Inbox>)>,
    owner: Box<dyn Owner>,
    write: Option<Arc<Standalone<TapTx>>>,
    clock: Clock,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
}

impl Thread {
    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let (mut done, mut quota) = (0, BUDGET);
            while quota > 0 {
                let (read, written) = (self.read(quota), self.write(quota));
                if read + written == 0 {
                    break;
                }
                done += read + written;
                quota = quota.saturating_sub(read + written);
                if read.max(written) >= WEIGHT / 2 {
                    // As Softnet's workers do after a long poll.
                    std::thread::yield_now();
                }
            }
            if done == 0 {
                self.owner.wait();
            }
        }
    }

    /// One poll of the port; what came is handed over, and its taker woken.
    fn read(&mut self, quota: usize) -> usize {
        let Some((port, peer)) = &mut self.read else {
            return 0;
        };
        let mut packets = PacketList::new();
        let mut counts = &*self.counts;
        port.poll(
            WEIGHT.min(quota),
            self.clock.now(),
            &mut packets,
            &mut counts,
        );
        let read = packets.len();
        if read > 0 {
            let refused = peer.push(packets) as u64;
            peer.kick();
            add(&counts.frames, read as u64);
            add(&counts.handed_over, read as u64 - refused);
            add(&counts.drops, refused);
        }
        read
    }

    /// Writes what was handed over.
    fn write(&mut self, quota: usize) -> usize {
        let Some(port) = &self.write else {
            return 0;
        };
        let mut packets = PacketList::new();
        self.owner.poll(WEIGHT.min(quota), &mut packets);
        let written = packets.len();
        port.device().transmit(packets, self.clock.now());
        written
    }
}

/// A thread that is handed nothing.
struct Alone(Poller);

impl Owner for Alone {
    fn poll(&mut self, _: usize, _: &mut PacketList) {}

    fn wait(&mut self) {
        self.0.sleep(Time::ZERO, None, &mut Vec::new());
    }

    fn watch(&mut self, file: BorrowedFd<'_>) -> Result<bool, BenchError> {
        self.0
            .watch(file, 0)
            .map_err(|e| BenchError::io("watching a port", e))?;
        Ok(true)
    }
}

impl Join for Relay {
    fn name(&self) -> &'static str {
        self.0
    }

    fn join(&self, site: &mut Site, wiring: Wiring) -> Result<(), BenchError> {
        let buffers = embedded::buffers()?;
        let clock = Clock::monotonic();
        let mut running = Running {
            stop: Arc::default(),
            inboxes: Vec::new(),
            wakers: Vec::new(),
            threads: Vec::new(),
            ports: Vec::new(),
            counts: Vec::new(),
            buffers: buffers.clone(),
        };
        let (mut readers, mut owners) = (Vec::new(), Vec::new());
        for host in &site.hosts {
            let tap =
                Tap::open(&embedded::device(host, wiring)?, &buffers).map_err(embedded::failed)?;
            let config = DeviceConfig {
                name: tap.name,
                features: tap.features,
                qdisc: QdiscSpec::default(),
                policy: TxPolicy::default(),
            };
            let port = Standalone::start(config, tap.tx, &buffers.small, clock.clone())
                .map_err(embedded::failed)?;
            running.ports.push(Arc::new(port));
            readers.extend(tap.rx);
            let (inbox, owner) = inbox::make(self.0)?;
            running.inboxes.push(inbox);
            owners.push(owner);
        }
        if readers.len() != 2 {
            return Err(BenchError::Measure(
                "a relay has two ports of one queue".into(),
            ));
        }
        for (number, (reader, mut owner)) in readers.into_iter().zip(owners).enumerate() {
            let peer = running.inboxes[1 - number].clone();
            let watched = match reader.fd() {
                Some(file) => owner.watch(file)?,
                None => false,
            };
            let write = Some(running.ports[number].clone());
            if watched {
                running.start(Some((reader, peer)), owner, write, &clock)?;
            } else {
                running.start(None, owner, write, &clock)?;
                let poller = Poller::new().map_err(|e| BenchError::io("making a poller", e))?;
                running.wakers.push(poller.waker());
                let mut alone = Alone(poller);
                if let Some(file) = reader.fd() {
                    alone.watch(file)?;
                }
                running.start(Some((reader, peer)), Box::new(alone), None, &clock)?;
            }
        }
        site.engine = Some(Box::new(running));
        Ok(())
    }
}

impl Running {
    fn start(
        &mut self,
        read: Option<(TapRx, Arc<dyn Inbox>)>,
        owner: Box<dyn Owner>,
        write: Option<Arc<Standalone<TapTx>>>,
        clock: &Clock,
    ) -> Result<(), BenchError> {
        let counts = Arc::new(Counts::default());
        self.counts.push(counts.clone());
        let thread = Thread {
            read,
            owner,
            write,
            clock: clock.clone(),
            counts,
            stop: self.stop.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(THREADS.to_owned())
            .spawn(move || thread.run())
            .map_err(|e| BenchError::io("starting a thread", e))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends the threads.
    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.inboxes.iter().for_each(|inbox| inbox.stop());
        self.wakers.iter().for_each(|waker| waker.wake());
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl InProcess for Running {
    fn counters(&self) -> Result<Counters, BenchError> {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            self.counts
                .iter()
                .map(|c| of(c).load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let devices: Vec<_> = self.ports.iter().map(|p| p.device().stats()).collect();
        let dropped: u64 = devices.iter().flat_map(|d| &d.drops).map(|d| d.1).sum();
        let sleeps = cpu::sleeps_of_threads(THREADS)?;
        // A channel wakes who blocks in it, and does not say how often.
        let wakes: Option<u64> = self.inboxes.iter().map(|inbox| inbox.wakes()).sum();
        let large = self.buffers.large.as_ref().map(Pool::stats);
        let small = self.buffers.small.stats();
        let pools = |of: fn(&PoolStats) -> u64| of(&small) + large.as_ref().map_or(0, of);
        Ok(Counters {
            frames: sum(|c| &c.frames),
            packets: devices.iter().map(|d| d.tx_packets).sum(),
            drops: sum(|c| &c.drops) + dropped,
            handed_over: sum(|c| &c.handed_over),
            wakes: wakes.unwrap_or(sleeps),
            sleeps,
            cpu_s: cpu::of_threads(THREADS)?,
            ..embedded::pool_counters(pools)
        })
    }

    fn stop(mut self: Box<Self>) -> Result<(), BenchError> {
        self.end();
        // What was handed over and not taken, goes with the inboxes.
        self.inboxes.clear();
        for port in self.ports.drain(..) {
            if let Some(port) = Arc::into_inner(port) {
                port.stop(DRAIN);
            }
        }
        let left = |pool: &Pool| {
            let stats = pool.stats();
            stats.buffers - stats.free
        };
        let left = left(&self.buffers.small) + self.buffers.large.as_ref().map_or(0, left);
        if left > 0 {
            return Err(BenchError::Measure(format!("{left} buffers got lost")));
        }
        Ok(())
    }
}
