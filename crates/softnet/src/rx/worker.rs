//! The worker: one thread's poll loop over its receive queues, its transmit queues' leftovers and their timers.
//!
//! A round polls scheduled queues in turn, [`WEIGHT`] packets each, until [`BUDGET`] packets were handled; a queue that had more goes to the
//! end of the line (INV-RX-7: a flooding port does not starve another). Then come transmit queues whose bell rang or whose
//! time has come. With nothing to do the worker sleeps until a queue is readable, a bell rings or a timer is due.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::napi::Work;
use super::{BUDGET, Doorbell, Napi, RxQueue, Sleep, WEIGHT};
use crate::forward::Forwarder;
use crate::packet::PacketList;
use crate::pool::Pool;
use crate::stats::Published;
use crate::time::{Clock, Time};
use crate::tx::{Device, RUN_QUOTA, TxRing};

/// A round also ends after this time (`netdev_budget_usecs`), and a busy worker looks at queues that are not scheduled this often.
const ROUND: Duration = Duration::from_micros(100);

const FEW: usize = 2;
const REST: Duration = Duration::from_micros(500);

/// Bell number by which a worker is told to look at its commands. Transmit queues use the others.
pub(crate) const COMMANDS: usize = 0;

/// A transmit queue that the worker serves: the device and the index of its queue.
pub type Port<R> = (Arc<Device<R>>, usize);

/// The receive queues of every port.
pub type Peers<Q, R> = Vec<Vec<Arc<Napi<Q, R>>>>;

/// A change to what a worker does, made by the worker itself between two rounds.
#[derive(Debug)]
pub enum Command<Q, R> {
    /// Polls one more receive queue.
    AddRx(Arc<Napi<Q, R>>),
    /// The receive queues of every port, by port.
    Peers(Arc<Peers<Q, R>>),
    /// Stops polling the queues of this port and closes them.
    RemoveRx(u16),
    /// Serves transmit queue `token`.
    AddTx(usize, Port<R>),
    /// Forwards by these tables from now on.
    Forward(Forwarder<R>),
    /// Answers when all commands before it have been carried out.
    Sync(Sender<()>),
    /// Ends the thread.
    Stop,
}

/// Numbers of a worker, named as the columns of `/proc/net/softnet_stat` where there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Frames polled.
    pub processed: u64,
    /// Rounds that ended with the budget or the time used up and work left.
    pub time_squeeze: u64,
    /// Rounds.
    pub rounds: u64,
    /// Times the worker lay down to sleep.
    pub sleeps: u64,
    /// Wake-ups other threads sent it.
    pub wakes: u64,
}

/// The part of a worker that others see.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) doorbell: Arc<Doorbell>,
    stats: Published<4>,
}

impl Shared {
    pub(crate) fn new(doorbell: Arc<Doorbell>) -> Shared {
        Shared {
            doorbell,
            stats: Published::default(),
        }
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        let [processed, time_squeeze, rounds, sleeps] = self.stats.get();
        WorkerStats {
            processed,
            time_squeeze,
            rounds,
            sleeps,
            wakes: self.doorbell.wakes(),
        }
    }
}

/// A queue that the worker watches.
#[derive(Debug)]
struct Slot<Q, R> {
    napi: Arc<Napi<Q, R>>,
    /// On the poll list (NAPI_STATE_SCHED).
    scheduled: bool,
}

/// One thread's poll loop over its receive queues, its transmit queues' leftovers and their timers; sleeps when there is nothing to do.
#[derive(Debug)]
pub struct Worker<Q, R, S> {
    shared: Arc<Shared>,
    commands: Receiver<Command<Q, R>>,
    /// Tells the engine which port's device is gone.
    gone: Sender<u16>,
    sleeper: S,
    clock: Clock,
    /// Where packets come from: this thread is a home of it.
    pool: Pool,
    forwarder: Forwarder<R>,
    napis: Vec<Option<Slot<Q, R>>>,
    peers: Arc<Peers<Q, R>>,
    /// Indices of scheduled queues, in the order of polling.
    poll_list: VecDeque<usize>,
    /// Queues without a file to wait for, polled every round.
    unwatched: Vec<usize>,
    /// Transmit queues by token.
    queues: Vec<Option<Port<R>>>,
    /// When each transmit queue wants to be run again.
    timers: Vec<Time>,
    /// The earliest of `timers`, or earlier.
    due: Time,
    /// Bells taken in this round.
    rung: Vec<usize>,
    /// This round is the first after a long sleep.
    rested: bool,
    /// When the sleeper was last asked for readable queues.
    looked: Time,
    stats: WorkerStats,
}

impl<Q: RxQueue, R: TxRing, S: Sleep> Worker<Q, R, S> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: Receiver<Command<Q, R>>,
        gone: Sender<u16>,
        sleeper: S,
        clock: Clock,
        pool: Pool,
    ) -> Self {
        Worker {
            shared,
            commands,
            gone,
            sleeper,
            clock,
            pool,
            forwarder: Forwarder::default(),
            napis: Vec::new(),
            peers: Arc::default(),
            poll_list: VecDeque::new(),
            unwatched: Vec::new(),
            queues: Vec::new(),
            timers: Vec::new(),
            due: Time::MAX,
            rung: Vec::new(),
            rested: false,
            looked: Time::ZERO,
            stats: WorkerStats::default(),
        }
    }

    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        let doorbell = self.shared.doorbell.clone();
        self.pool.set_waker(move || doorbell.ring(COMMANDS));
        loop {
            self.pool.poll_home();
            let mut now = self.clock.now();
            self.stats.rounds += 1;
            let frames = self.poll_round(now);
            if frames > 0 {
                now = self.clock.now();
            }
            if !self.ring_round(now) {
                return;
            }
            self.timer_round(now);
            self.publish();
            self.rested = false;
            if self.poll_list.is_empty() {
                self.sleep(&mut ready);
                self.rested = self.clock.now().since(self.looked) >= REST;
            } else if now.since(self.looked) >= ROUND {
                self.looked = now;
                self.sleeper.sleep(now, Some(Time::ZERO), &mut ready);
            }
            ready.drain(..).for_each(|index| self.schedule(index));
            self.poll_list.extend(self.unwatched.iter().copied());
        }
    }

    /// NAPI: polls scheduled queues until none is left or the budget is used up. Returns the frames handled.
    fn poll_round(&mut self, start: Time) -> usize {
        let mut done = 0;
        let mut now = start;
        while let Some(index) = self.poll_list.pop_front() {
            let Some(slot) = self.napis.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            slot.scheduled = false;
            let napi = slot.napi.clone();
            let port = napi.port();
            let Some(mut claim) = napi.claim() else {
                continue;
            };
            let mut packets = PacketList::new();
            let mut work = claim.poll(WEIGHT.min(BUDGET - done), now, &mut packets);
            let mut to = None;
            if !packets.is_empty() {
                to = self.forwarder.forward(napi.device(), port, packets, now);
            }
            work.more |= claim.end();
            self.after_poll(index, port, work);
            if self.rested
                && let Some(to) = to
                && work.frames <= FEW
            {
                self.look_ahead(to, now);
            }
            done += work.frames;
            if work.frames >= WEIGHT / 2 {
                self.sleeper.give_way();
            }
            if self.poll_list.is_empty() {
                break;
            }
            now = self.clock.now();
            if done >= BUDGET || now.since(start) >= ROUND {
                self.stats.time_squeeze += 1;
                break;
            }
        }
        self.stats.processed += done as u64;
        done
    }

    fn look_ahead(&mut self, port: u16, now: Time) {
        let Some([napi]) = self.peers.get(usize::from(port)).map(|q| &q[..]) else {
            return;
        };
        if Arc::ptr_eq(napi.owner(), &self.shared.doorbell) || !napi.owner().is_asleep() {
            return;
        }
        let Some(mut claim) = napi.try_claim() else {
            return;
        };
        let mut packets = PacketList::new();
        let work = claim.poll(FEW, now, &mut packets);
        if !packets.is_empty() {
            self.forwarder.forward(napi.device(), port, packets, now);
        }
        if claim.end() {
            napi.owner().ring(COMMANDS);
        }
        self.stats.processed += work.frames as u64;
    }

    fn after_poll(&mut self, index: usize, port: u16, work: Work) {
        if work.gone {
            self.remove(index);
            // Nobody listens any more: the engine is being stopped.
            let _ = self.gone.send(port);
        } else if work.more {
            self.schedule(index);
        }
    }

    fn schedule(&mut self, index: usize) {
        if let Some(slot) = self.napis.get_mut(index).and_then(Option::as_mut)
            && !slot.scheduled
        {
            slot.scheduled = true;
            self.poll_list.push_back(index);
        }
    }

    /// Transmit queues whose bell rang (the kernel's `net_tx_action`), and commands. False: stop.
    fn ring_round(&mut self, now: Time) -> bool {
        let mut go_on = true;
        let mut rung = std::mem::take(&mut self.rung);
        self.shared.doorbell.take(|bell| rung.push(bell));
        for bell in rung.drain(..) {
            if bell == COMMANDS {
                go_on &= self.obey();
            } else {
                self.run_queue(bell, now);
            }
        }
        self.rung = rung;
        go_on
    }

    fn run_queue(&mut self, token: usize, now: Time) {
        let Some(Some((device, queue))) = self.queues.get(token) else {
            return;
        };
        let again = device
            .run_from_worker(*queue, RUN_QUOTA, now)
            .unwrap_or(Time::MAX);
        self.timers[token] = again;
        self.due = self.due.min(again);
    }

    /// Transmit queues whose time has come.
    fn timer_round(&mut self, now: Time) {
        if self.due > now {
            return;
        }
        self.due = Time::MAX;
        for token in 0..self.timers.len() {
            if self.timers[token] <= now {
                self.run_queue(token, now);
            }
            self.due = self.due.min(self.timers[token]);
        }
    }

    fn sleep(&mut self, ready: &mut Vec<usize>) {
        // Read again: running queues takes time, by which the worker would wake too late.
        let now = self.clock.now();
        let due = (self.due != Time::MAX).then_some(self.due);
        let until = if self.unwatched.is_empty() {
            due
        } else {
            Some(Time::ZERO)
        };
        let (sleeper, stats) = (&mut self.sleeper, &mut self.stats);
        if !self.pool.prepare_sleep() {
            // Buffers came home meanwhile.
            return;
        }
        self.shared.doorbell.sleep(|| {
            stats.sleeps += 1;
            sleeper.sleep(now, until, ready);
        });
        self.looked = now;
    }

    fn publish(&self) {
        let WorkerStats {
            processed,
            time_squeeze,
            rounds,
            sleeps,
            ..
        } = self.stats;
        self.shared
            .stats
            .set([processed, time_squeeze, rounds, sleeps]);
    }

    /// Carries out waiting commands. False: stop.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::AddRx(napi) => self.add(napi),
                Command::Peers(peers) => self.peers = peers,
                Command::RemoveRx(port) => {
                    for index in 0..self.napis.len() {
                        if self.napis[index]
                            .as_ref()
                            .is_some_and(|n| n.napi.port() == port)
                        {
                            self.remove(index);
                        }
                    }
                }
                Command::AddTx(token, port) => {
                    if self.queues.len() <= token {
                        self.queues.resize_with(token + 1, || None);
                        self.timers.resize(token + 1, Time::MAX);
                    }
                    self.queues[token] = Some(port);
                    self.run_queue(token, self.clock.now());
                }
                Command::Forward(forwarder) => self.forwarder = forwarder,
                // The other side may have given up waiting.
                Command::Sync(done) => drop(done.send(())),
                Command::Stop => return false,
            }
        }
        true
    }

    fn add(&mut self, napi: Arc<Napi<Q, R>>) {
        let index = self
            .napis
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.napis.len());
        let sleeper = &mut self.sleeper;
        let watched = napi.with_queue(|queue| match queue.fd() {
            Some(fd) => sleeper.watch(fd, index).is_ok(),
            None => false,
        });
        if watched == Some(false) {
            self.unwatched.push(index);
        }
        let slot = Some(Slot {
            napi,
            scheduled: false,
        });
        if index == self.napis.len() {
            self.napis.push(slot);
        } else {
            self.napis[index] = slot;
        }
        self.schedule(index);
    }

    fn remove(&mut self, index: usize) {
        if let Some(slot) = self.napis[index].take() {
            if let Some(queue) = slot.napi.close()
                && let Some(fd) = queue.fd()
            {
                self.sleeper.unwatch(fd);
            }
            self.unwatched.retain(|&i| i != index);
        }
    }
}
