//! The worker: one thread's poll loop over its receive queues, its backlog, its transmit queues' leftovers and their timers.
//!
//! A round polls scheduled queues in turn, [`WEIGHT`](super::WEIGHT) packets each, until [`BUDGET`](super::BUDGET) packets were handled; a queue that had more goes
//! to the end of the line (INV-RX-7: a flooding port does not starve another). The [backlog](Backlog) is one of the queues. Then the workers that
//! were handed packets are woken, and transmit queues served whose bell rang or whose time has come. With nothing to do the worker looks around
//! for a while, if that has paid off lately ([`HaltPoll`]), and then sleeps until a queue is readable, a bell rings, its backlog is pushed to or a timer is due.

mod control;
mod poll;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::halt_poll::HaltPoll;
use super::handover::HandOver;
use super::stats::{Own, Shared};
use super::{BacklogOwner, Napi, RxQueue, Sleep};
use crate::Device;
use crate::forward::Forwarder;
use softnet::mem::Pool;
use softnet::time::{Clock, Time};
use softnet::tx::{RUN_QUOTA, TxRing};

/// A round also ends after this time (`netdev_budget_usecs`), and a busy worker looks at queues that are not scheduled this often.
const ROUND: Duration = Duration::from_micros(100);

/// After a sleep of this length the worker looks for the answer to what it sends at once; traffic is sparse then.
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
    /// Polls one more receive queue, and says whether it can be waited for; if not, it is closed.
    AddRx(Arc<Napi<Q, R>>, Sender<io::Result<()>>),
    /// The receive queues of every port, by port.
    Peers(Arc<Peers<Q, R>>),
    /// Stops polling the queues of this port and closes them.
    RemoveRx(u16),
    /// Serves transmit queue `token`.
    AddTx(usize, Port<R>),
    /// The pools that the ports' packets come from, in the place of those told before.
    Pools(Arc<[Pool]>),
    /// Forwards by these tables from now on.
    Forward(Forwarder<R>),
    /// Answers when all commands before it have been carried out.
    Sync(Sender<()>),
    /// Ends the thread.
    Stop,
}

/// The device behind a port's queue is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    pub(crate) port: u16,
    /// Which of the port's devices it was.
    pub(crate) generation: u32,
}

/// What a worker is given when it is made.
#[derive(Debug)]
pub(crate) struct Parts<Q, R, S> {
    /// Its number.
    pub(crate) index: usize,
    /// All workers, this one included.
    pub(crate) workers: Arc<[Arc<Shared>]>,
    pub(crate) backlog: BacklogOwner,
    pub(crate) commands: Receiver<Command<Q, R>>,
    /// Tells the engine which port's device is gone.
    pub(crate) gone: Sender<Gone>,
    pub(crate) sleeper: S,
    pub(crate) clock: Clock,
    /// Where packets come from: the worker's thread is a home of each.
    pub(crate) pools: Arc<[Pool]>,
    /// How long it may look around before it sleeps.
    pub(crate) busy_poll: Duration,
}

/// A queue that the worker watches.
#[derive(Debug)]
struct Slot<Q, R> {
    napi: Arc<Napi<Q, R>>,
    /// On the poll list (NAPI_STATE_SCHED).
    scheduled: bool,
}

/// One thread's poll loop; see the module.
#[derive(Debug)]
pub(crate) struct Worker<Q, R, S> {
    shared: Arc<Shared>,
    hand_over: HandOver,
    backlog: BacklogOwner,
    commands: Receiver<Command<Q, R>>,
    gone: Sender<Gone>,
    sleeper: S,
    clock: Clock,
    /// Where packets come from. Each is looked into every round, so that no buffer waits for this worker to allocate.
    pools: Arc<[Pool]>,
    forwarder: Forwarder<R>,
    napis: Vec<Option<Slot<Q, R>>>,
    peers: Arc<Peers<Q, R>>,
    /// Indices of scheduled queues, in the order of polling; [`BACKLOG`] for the backlog.
    poll_list: VecDeque<usize>,
    /// The backlog is on the poll list.
    backlog_scheduled: bool,
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
    halt_poll: HaltPoll,
    /// This round is the first after a long sleep.
    rested: bool,
    /// When the sleeper was last asked for readable queues.
    looked: Time,
    own: Own,
}

/// Stands for the backlog on the poll list.
const BACKLOG: usize = usize::MAX;

impl<Q: RxQueue, R: TxRing, S: Sleep> Worker<Q, R, S> {
    pub(crate) fn new(parts: Parts<Q, R, S>) -> Self {
        Worker {
            shared: parts.workers[parts.index].clone(),
            hand_over: HandOver::new(parts.index, parts.workers),
            backlog: parts.backlog,
            commands: parts.commands,
            gone: parts.gone,
            sleeper: parts.sleeper,
            clock: parts.clock,
            pools: parts.pools,
            forwarder: Forwarder::default(),
            napis: Vec::new(),
            peers: Arc::default(),
            poll_list: VecDeque::new(),
            backlog_scheduled: false,
            unwatched: Vec::new(),
            queues: Vec::new(),
            timers: Vec::new(),
            due: Time::MAX,
            rung: Vec::new(),
            halt_poll: HaltPoll::new(parts.busy_poll),
            rested: false,
            looked: Time::ZERO,
            own: Own::default(),
        }
    }

    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        self.use_pools(self.pools.clone());
        self.own.started = self.clock.now().nanos();
        loop {
            self.pools.iter().for_each(Pool::poll_home);
            let mut now = self.clock.now();
            self.own.rounds += 1;
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
            if self.poll_list.is_empty() && self.backlog.is_empty() {
                self.idle(&mut ready);
            } else if now.since(self.looked) >= ROUND {
                self.looked = now;
                self.sleeper.sleep(now, Some(Time::ZERO), &mut ready);
            }
            ready.drain(..).for_each(|index| self.schedule(index));
            for at in 0..self.unwatched.len() {
                self.schedule(self.unwatched[at]);
            }
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
        self.shared.notifier.take(|bell| rung.push(bell));
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

    /// Looks around and sleeps, until there is something to do.
    fn idle(&mut self, ready: &mut Vec<usize>) {
        // Read again: running queues takes time, by which the worker would wake too late.
        let start = self.clock.now();
        let due = (self.due != Time::MAX).then_some(self.due);
        let until = if self.unwatched.is_empty() {
            due
        } else {
            Some(Time::ZERO)
        };
        if until.is_none_or(|until| until > start) && self.look_around(start, until, ready) {
            return;
        }
        if !self.pools.iter().all(Pool::prepare_sleep) {
            // Buffers came home meanwhile. What is prepared already is undone when the next round looks for them.
            return;
        }
        let now = self.clock.now();
        let (sleeper, own, shared) = (&mut self.sleeper, &mut self.own, &self.shared);
        shared.notifier.sleep_if(
            || shared.backlog.is_empty(),
            || {
                own.sleeps += 1;
                own.sleeps_since = now.nanos().max(1);
                shared.publish(own);
                sleeper.sleep(now, until, ready);
                own.sleeps_since = 0;
            },
        );
        let woke = self.clock.now();
        self.own.asleep += woke.since(now).as_nanos() as u64;
        self.halt_poll.was_idle(woke.since(start));
        self.rested = woke.since(now) >= REST;
        self.looked = woke;
    }

    /// Busy polling: looks for something to do for as long as that has paid off. True: there is something, or `until` has come.
    fn look_around(&mut self, start: Time, until: Option<Time>, ready: &mut Vec<usize>) -> bool {
        if self.halt_poll.window().is_zero() {
            return false;
        }
        let (sleeper, clock, shared) = (&mut self.sleeper, &self.clock, &self.shared);
        let found = self.halt_poll.look_around(
            start,
            clock,
            || !shared.backlog.is_empty() || !shared.notifier.is_quiet(),
            || {
                let now = clock.now();
                sleeper.sleep(now, Some(Time::ZERO), ready);
                let due = until.is_some_and(|until| until <= now);
                if ready.is_empty() && !due {
                    sleeper.give_way();
                }
                !ready.is_empty() || due
            },
        );
        self.looked = self.clock.now();
        self.own.polling += self.looked.since(start).as_nanos() as u64;
        found
    }

    fn publish(&mut self) {
        let own = &mut self.own;
        own.flow_limit = self.hand_over.limited;
        own.handed_over = self.hand_over.handed;
        own.wakes_sent = self.hand_over.wakes;
        own.process_qlen = self.backlog.taken() as u64;
        self.shared.publish(own);
    }
}
