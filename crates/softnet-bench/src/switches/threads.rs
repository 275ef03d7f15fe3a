//! A plain switch of one thread a port, each of which sends to all ports, by Softnet's drivers,
//! buffers and table of addresses. Only how threads share a port's queue differs: `lockless`,
//! Softnet's transmit path, or `locked`, the same qdisc and driver behind a mutex. Or they hand
//! packets to a second thread of the port, which sleeps when it has none: `no-poll` by Softnet's
//! backlog, `snapshot-no-poll` by the older loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use softnet::mem::{PacketList, Pool, PoolStats};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::{Clock, Time};
use softnet::tx::{Sender, Sent, TxRing as _, Wake, Xmit};
use softnet_engine::forward::{AGEING, Bridge, Verdict};
use softnet_engine::rx::{Receive, RxQueue, Sleep, WEIGHT};
use softnet_io::{Buffers, Poller, Tap, TapRx, TapTx};
use softnet_tc::{AnyQdisc, QdiscEnv, QdiscSpec};

use super::embedded::{self, DRAIN};
use super::{Switch, Wiring};
use crate::backlog::inbox::{self, Inbox, Owner};
use crate::backlog::worker::work;
use crate::cpu;
use crate::error::{BenchError, failed};
use crate::hosts::Topology;
use crate::in_process::{Counters, InProcess};
use crate::tx_adopt::Stage;

/// Threads are named so, and counted by it.
const THREADS: &str = "softnet/port";
/// Addresses that the switch remembers.
const ADDRESSES: usize = 1024;

/// The way in which threads share a port's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortThreads {
    Lockless,
    Locked,
    /// By an inbox of this name.
    Inbox(&'static str),
}

/// The sending side of a port.
enum Out {
    Lockless(Sender<TapTx, AnyQdisc>),
    Locked(Box<Mutex<Stage<TapTx>>>),
    Inbox(Arc<dyn Inbox>),
}

/// State that all threads share.
struct Shared {
    bridge: Bridge,
    ports: Vec<Out>,
    buffers: Buffers,
    clock: Clock,
    stop: AtomicBool,
    frames: AtomicU64,
    sleeps: AtomicU64,
    drops: DropCounters,
}

impl Shared {
    fn send(&self, to: usize, packets: PacketList, now: Time) {
        match &self.ports[to] {
            Out::Lockless(port) => {
                port.device().transmit(packets, now);
            }
            Out::Locked(stage) => stage.lock().pass(packets, now, &self.drops),
            Out::Inbox(inbox) => {
                let refused = inbox.push(packets) as u64;
                self.drops.add(DropReason::NoBuffer, refused);
            }
        }
    }

    /// The inboxes, where there are some.
    fn inboxes(&self) -> impl Iterator<Item = &Arc<dyn Inbox>> {
        self.ports.iter().filter_map(|port| match port {
            Out::Inbox(inbox) => Some(inbox),
            _ => None,
        })
    }

    /// The loop of a port's second thread.
    fn write(&self, mut tx: TapTx, mut owner: Box<dyn Owner>) {
        work(&mut *owner, None, &self.stop, |packets| {
            let mut sent = Sent::default();
            while tx.xmit(packets, &mut sent) == Xmit::Busy && !self.stop.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            drop(packets.take());
        });
    }

    /// Takes what one port received to where it belongs; runs for one port are sent together.
    fn forward(&self, from: usize, mut packets: PacketList, now: Time) {
        let (mut run, mut run_to) = (PacketList::new(), from);
        while let Some(packet) = packets.pop_front() {
            let to = match self.bridge.decide(&packet, from as u16, now, true) {
                Verdict::To(port) => usize::from(port),
                Verdict::Drop(reason) => {
                    self.drops.add(reason, packet.wire_packets());
                    continue;
                }
                Verdict::Flood | Verdict::Multicast => {
                    for to in (0..self.ports.len()).filter(|&to| to != from) {
                        match packet.copy(&self.buffers.small) {
                            Some(copy) => self.send(to, copy.into(), now),
                            None => self.drops.add(DropReason::NoBuffer, packet.wire_packets()),
                        }
                    }
                    continue;
                }
            };
            if to != run_to && !run.is_empty() {
                self.send(run_to, run.take(), now);
            }
            run_to = to;
            run.push_back(packet);
        }
        if !run.is_empty() {
            self.send(run_to, run, now);
        }
    }

    /// The loop of a port's thread.
    fn serve(&self, port: usize, mut rx: TapRx, mut poller: Poller) {
        while !self.stop.load(Ordering::Acquire) {
            let (mut packets, now) = (PacketList::new(), self.clock.now());
            let polled = rx.poll(&mut Receive::new(WEIGHT, now, &mut packets, &self.drops));
            if packets.is_empty() && !polled.more {
                self.sleeps.fetch_add(1, Ordering::Relaxed);
                poller.sleep(now, None, &mut Vec::new());
                continue;
            }
            self.frames
                .fetch_add(packets.len() as u64, Ordering::Relaxed);
            let full = packets.len() >= WEIGHT / 2;
            self.forward(port, packets, now);
            self.inboxes().for_each(|inbox| inbox.kick());
            if full {
                // As Softnet's workers do after a long poll.
                std::thread::yield_now();
            }
        }
    }
}

/// The switch at work. Ends with the value.
struct Running {
    shared: Arc<Shared>,
    wakers: Vec<Arc<dyn Wake>>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Switch for PortThreads {
    fn name(&self) -> &'static str {
        match self {
            PortThreads::Lockless => "lockless",
            PortThreads::Locked => "locked",
            PortThreads::Inbox(name) => name,
        }
    }

    fn setting(&self) -> Option<&'static str> {
        Some("a plain switch whose threads differ in how they hand packets over")
    }

    fn connect(&self, topology: &mut Topology, wiring: Wiring) -> Result<(), BenchError> {
        let buffers = embedded::buffers()?;
        let clock = Clock::monotonic();
        let (mut ports, mut readers, mut writers) = (Vec::new(), Vec::new(), Vec::new());
        for host in &topology.hosts {
            let device = embedded::device(host, wiring)?;
            let mut tap = Tap::open(&device, &buffers).map_err(failed)?;
            let (Some(rx), Some(tx)) = (tap.rx.pop(), tap.tx.pop()) else {
                return Err(BenchError::Measure("a port has no queue".into()));
            };
            readers.push(rx);
            let qdisc = QdiscSpec::default();
            ports.push(match self {
                PortThreads::Lockless => {
                    let pool = &buffers.small;
                    let qdiscs = qdisc.instances(1, pool).map_err(failed)?;
                    let sender = Sender::builder().name(tap.name).features(tap.features);
                    let sender = sender.qdiscs(qdiscs).pool(pool).clock(clock.clone());
                    Out::Lockless(sender.start(tx).map_err(failed)?)
                }
                PortThreads::Locked => {
                    let pool = buffers.small.clone();
                    let env = QdiscEnv::new(&pool);
                    let qdisc = qdisc.build(&env).map_err(failed)?;
                    let stage = Stage::with_features(qdisc, tx, tap.features, pool);
                    Out::Locked(Box::new(Mutex::new(stage)))
                }
                PortThreads::Inbox(name) => {
                    let (inbox, owner) = inbox::make(name)?;
                    writers.push((tx, owner));
                    Out::Inbox(inbox)
                }
            });
        }
        let shared = Arc::new(Shared {
            bridge: Bridge::new(ADDRESSES, AGEING),
            ports,
            buffers,
            clock,
            stop: AtomicBool::new(false),
            frames: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            drops: DropCounters::new(),
        });
        let (wakers, threads) = (Vec::new(), Vec::new());
        let mut running = Running {
            shared,
            wakers,
            threads,
        };
        for (port, rx) in readers.into_iter().enumerate() {
            let mut poller = Poller::new().map_err(|e| BenchError::io("making a poller", e))?;
            if let Some(file) = rx.fd() {
                let watched = poller.watch(file, 0);
                watched.map_err(|e| BenchError::io("watching a port", e))?;
            }
            running.wakers.push(poller.waker());
            running.start(move |shared| shared.serve(port, rx, poller))?;
        }
        for (tx, owner) in writers {
            running.start(move |shared| shared.write(tx, owner))?;
        }
        topology.engine = Some(Box::new(running));
        Ok(())
    }
}

impl Running {
    fn start(&mut self, run: impl FnOnce(&Shared) + Send + 'static) -> Result<(), BenchError> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("{THREADS}{}", self.threads.len()))
            .spawn(move || run(&shared));
        let started = thread.map_err(|e| BenchError::io("starting a thread", e))?;
        self.threads.push(started);
        Ok(())
    }

    /// Ends the threads.
    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wakers.iter().for_each(|waker| waker.wake());
        self.shared.inboxes().for_each(|inbox| inbox.stop());
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
        let shared = &self.shared;
        let (mut packets, mut drops) = (0, shared.drops.total());
        for port in &shared.ports {
            match port {
                Out::Lockless(port) => {
                    let stats = port.device().stats();
                    packets += stats.tx_packets;
                    drops += stats.drops.iter().map(|drop| drop.1).sum::<u64>();
                }
                Out::Locked(stage) => packets += stage.lock().sent.packets,
                // What a second thread has sent is not counted.
                Out::Inbox(_) => {}
            }
        }
        let large = shared.buffers.large.as_ref().map(Pool::stats);
        let small = shared.buffers.small.stats();
        let pools = |of: fn(&PoolStats) -> u64| of(&small) + large.as_ref().map_or(0, of);
        Ok(Counters {
            frames: shared.frames.load(Ordering::Relaxed),
            packets,
            drops,
            handed_over: 0,
            wakes: shared.inboxes().filter_map(|inbox| inbox.wakes()).sum(),
            sleeps: shared.sleeps.load(Ordering::Relaxed),
            cpu_s: cpu::of_threads(THREADS)?,
            ..embedded::pool_counters(pools)
        })
    }

    /// Every buffer must be back.
    fn stop(mut self: Box<Self>) -> Result<(), BenchError> {
        self.end();
        let shared = self.shared.clone();
        drop(self);
        let Some(shared) = Arc::into_inner(shared) else {
            return Err(BenchError::Measure("a thread of the switch is left".into()));
        };
        for port in shared.ports {
            if let Out::Lockless(port) = port {
                port.stop(DRAIN);
            }
        }
        let left = |pool: &Pool| {
            let stats = pool.stats();
            stats.buffers - stats.free
        };
        let left = left(&shared.buffers.small) + shared.buffers.large.as_ref().map_or(0, left);
        if left > 0 {
            return Err(BenchError::Measure(format!("{left} buffers got lost")));
        }
        Ok(())
    }
}
