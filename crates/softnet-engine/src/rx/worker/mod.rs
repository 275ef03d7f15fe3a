//! The worker: one thread's poll loop over its receive queues, its backlog, the transmit queues
//! that bounded runs leave, and their timers.
//!
//! A round polls scheduled queues, [`WEIGHT`](super::WEIGHT) packets each, until
//! [`BUDGET`](super::BUDGET) packets were handled. Next is always a queue of the port that has had
//! the least of the worker's time ([`Line`]; INV-RX-7: neither a flooding port nor a slow one
//! starves another). The [backlog](super::Backlog) is one of the queues. Then the workers that
//! packets were steered to are woken, and transmit queues served whose event is set or whose time
//! has come. A port that has more to flood than is left of a round's copies waits in a line of
//! those who have, which is served as if it was one port: what others send to one station does not
//! wait for a thousand ports that flood. With nothing to do the worker busy-polls for a while, if
//! that has paid off lately and others do not want its CPU ([`HaltPoll`]), and then sleeps until a
//! file is ready, an event is set, its backlog is pushed to or a timer is due.

mod control;
mod line;
mod poll;
mod raised;
mod token;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::command::{COMMANDS, Command, Event, TxPort, View};
use super::halt_poll::HaltPoll;
use super::hand_off::HandOff;
use super::stats::{Own, Shared};
use super::{BacklogOwner, Napi, RxQueue, Sleep};
use crate::forward::{Begun, set_worker};
use crate::link::Link;
use line::{Flow, Line};
use poll::{has_packets, next_poll};
use raised::Raised;
use softnet::mem::Pool;
use softnet::probes;
use softnet::time::{Clock, Time};
use softnet::tx::{RUN_QUOTA, TxRing};
use token::Token;

/// A round also ends after this time (`netdev_budget_usecs`), and a busy worker looks at queues
/// that are not scheduled this often.
const ROUND: Duration = Duration::from_micros(100);

/// After a sleep of this length the worker polls for the reply to what it sends; traffic is sparse
/// then.
const REST: Duration = Duration::from_micros(500);

/// Parts that a worker is made of.
#[derive(Debug)]
pub(crate) struct Parts<Q, R, S> {
    /// Number of the worker.
    pub(crate) index: usize,
    /// All workers, this one included.
    pub(crate) workers: Arc<[Arc<Shared>]>,
    pub(crate) backlog: BacklogOwner,
    pub(crate) commands: Receiver<Command<Q, R>>,
    /// Reports to the control path.
    pub(crate) reports: Sender<Event>,
    pub(crate) sleeper: S,
    pub(crate) clock: Clock,
    pub(crate) view: Arc<View<Q, R>>,
    /// Time that it may busy-poll before it sleeps.
    pub(crate) busy_poll: Duration,
}

/// A queue that the worker watches.
#[derive(Debug)]
struct Slot<Q, R> {
    napi: Arc<Napi<Q, R>>,
    /// The port's link, if this queue knows it.
    link: Option<Arc<dyn Link>>,
    /// On the poll list (NAPI_STATE_SCHED).
    scheduled: bool,
    /// When it is to be polled, if it has no file or is held.
    next: Time,
    /// It has received what it may; its file is not watched.
    held: bool,
    /// When it was polled last.
    polled: Time,
}

/// One thread's poll loop; see the module.
#[derive(Debug)]
pub(crate) struct Worker<Q, R, S> {
    index: usize,
    shared: Arc<Shared>,
    hand_off: HandOff,
    backlog: BacklogOwner,
    commands: Receiver<Command<Q, R>>,
    reports: Sender<Event>,
    sleeper: S,
    clock: Clock,
    view: Arc<View<Q, R>>,
    napis: Vec<Option<Slot<Q, R>>>,
    /// Scheduled receive queues, the backlog, and transmit queues that have to wait for their turn.
    line: Line,
    /// The backlog is on the poll list.
    backlog_scheduled: bool,
    /// The part that is done of the work for the first packet of the backlog, if that has to wait.
    backlog_begun: Option<Begun>,
    /// Receive queues, and the backlog, whose next packet waits until it may be flooded.
    floods: Line,
    /// They are on the poll list.
    floods_scheduled: bool,
    /// Copies that may be flooded now.
    copies: usize,
    /// Queues without a file to wait for.
    unwatched: Vec<usize>,
    /// Empty queues that are looked at in every round, and armed before the worker sleeps, or when
    /// they have been empty for long.
    unarmed: Vec<usize>,
    /// Transmit queues by event.
    queues: Vec<Option<TxPort<R>>>,
    /// When each transmit queue wants to be run again.
    timers: Vec<Time>,
    /// Which of them are in line.
    in_line: Vec<bool>,
    /// The earliest of `timers`, or earlier.
    due: Time,
    /// Events taken in this round.
    taken: Vec<usize>,
    halt_poll: HaltPoll,
    raised: Raised,
    /// This round is the first after a long sleep.
    rested: bool,
    /// When the sleeper was last asked for readable queues.
    looked: Time,
    own: Own,
}

impl<Q: RxQueue, R: TxRing, S: Sleep> Worker<Q, R, S> {
    pub(crate) fn new(parts: Parts<Q, R, S>) -> Self {
        Worker {
            index: parts.index,
            shared: parts.workers[parts.index].clone(),
            hand_off: HandOff::new(parts.index, parts.workers),
            backlog: parts.backlog,
            commands: parts.commands,
            reports: parts.reports,
            sleeper: parts.sleeper,
            clock: parts.clock,
            view: parts.view,
            napis: Vec::new(),
            line: Line::default(),
            backlog_scheduled: false,
            backlog_begun: None,
            floods: Line::default(),
            floods_scheduled: false,
            copies: 0,
            unwatched: Vec::new(),
            unarmed: Vec::new(),
            queues: Vec::new(),
            timers: Vec::new(),
            in_line: Vec::new(),
            due: Time::MAX,
            taken: Vec::new(),
            halt_poll: HaltPoll::new(parts.busy_poll),
            raised: Raised::default(),
            rested: false,
            looked: Time::ZERO,
            own: Own::default(),
        }
    }

    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::new();
        self.sleeper.start();
        set_worker(&self.view.forwarder.links, self.index);
        self.use_view(self.view.clone());
        self.own.started = self.clock.now().nanos();
        loop {
            // So that no buffer waits for this worker to allocate.
            self.view.pools.iter().for_each(Pool::poll_remote_free);
            self.own.rounds += 1;
            let mut now = self.poll_round(self.clock.now());
            if !self.event_round(&mut now) {
                return;
            }
            self.timer_round(&mut now);
            self.view.forwarder.tend(now);
            self.publish();
            self.rested = false;
            // A bounded run that left something has set the worker's own event.
            let quiet = self.shared.notifier.is_quiet();
            if quiet && self.line.is_empty() && self.backlog.is_empty() {
                self.idle(&mut ready);
                // A queue may be due by now.
                now = self.clock.now();
            } else if self.raised.is_over(now) {
                self.lower();
            }
            // Files have their turn also where memory ends each idle moment.
            if now.since(self.looked) >= ROUND {
                self.looked = now;
                self.sleeper.sleep(now, Some(Time::ZERO), &mut ready);
            }
            for token in ready.drain(..) {
                match Token::unpack(token) {
                    Token::Queue(index) => self.schedule(index),
                    Token::Link(index) => self.look_at_link(index),
                    Token::Ring(event) => self.wake_queue(event),
                    Token::Backlog | Token::Floods => {}
                }
            }
            self.look(now);
        }
    }

    /// Takes the thread out of the raised class, until it sleeps.
    fn lower(&mut self) {
        if self.raised.lower() {
            self.sleeper.lower();
        }
    }

    fn schedule(&mut self, index: usize) {
        if let Some(slot) = self.napis.get_mut(index).and_then(Option::as_mut)
            && !slot.scheduled
        {
            slot.scheduled = true;
            self.line
                .push(Token::Queue(index), Flow::port(slot.napi.port()));
        }
    }

    /// The link of a queue's port may have changed.
    fn look_at_link(&mut self, index: usize) {
        let slot = self.napis.get(index).and_then(Option::as_ref);
        if let Some(slot) = slot
            && let Some(link) = &slot.link
        {
            let port = slot.napi.port();
            let state = link.state();
            let before = slot.napi.link().set(state);
            if before.up != state.up {
                let (forwarder, now) = (&self.view.forwarder, self.clock.now());
                forwarder.link_changed(port, slot.napi.link(), state.up, now);
            }
            if before != state {
                // It fails only if the engine is being dropped.
                let _ = self.reports.send(Event::Link { port });
            }
            if link.is_gone() {
                let opened = slot.napi.opened();
                self.remove(index);
                let _ = self.reports.send(Event::Gone { port, opened });
            }
        }
    }

    /// Transmit queues whose event is set (the kernel's `net_tx_action`), and commands. False:
    /// stop.
    fn event_round(&mut self, now: &mut Time) -> bool {
        let mut go_on = true;
        let mut taken = std::mem::take(&mut self.taken);
        self.shared.notifier.take(|event| taken.push(event));
        for event in taken.drain(..) {
            if event == COMMANDS {
                go_on &= self.obey();
            } else {
                self.run_in_turn(event, now);
            }
        }
        self.taken = taken;
        go_on
    }

    /// Runs a transmit queue, now or when those had their turn that its port is ahead of. `now`
    /// becomes the time at the end.
    fn run_in_turn(&mut self, event: usize, now: &mut Time) {
        let Some(Some(TxPort { port, .. })) = self.queues.get(event) else {
            return;
        };
        let flow = Flow::port(*port);
        if self.line.must_wait(flow) {
            // It is run whenever it is its turn, whatever the time.
            self.timers[event] = Time::MAX;
            if !std::mem::replace(&mut self.in_line[event], true) {
                self.line.push(Token::Ring(event), flow);
            }
            return;
        }
        self.run_queue(event, *now);
        let start = std::mem::replace(now, self.clock.now());
        self.line.charge(flow, now.since(start));
    }

    fn run_queue(&mut self, event: usize, now: Time) {
        let Some(Some(TxPort { device, queue, .. })) = self.queues.get(event) else {
            return;
        };
        let again = device
            .run_from_worker(*queue, RUN_QUOTA, now)
            .unwrap_or(Time::MAX);
        self.timers[event] = again;
        self.due = self.due.min(again);
    }

    /// The ring of a transmit queue may have capacity again.
    fn wake_queue(&self, event: usize) {
        if let Some(Some(TxPort { device, queue, .. })) = self.queues.get(event) {
            device.queues()[*queue].wake();
        }
    }

    /// Transmit queues whose time has come.
    fn timer_round(&mut self, now: &mut Time) {
        if self.due > *now {
            return;
        }
        self.due = Time::MAX;
        for event in 0..self.timers.len() {
            if self.timers[event] <= *now {
                self.run_in_turn(event, now);
            }
            self.due = self.due.min(self.timers[event]);
        }
    }

    /// Busy-polls and sleeps, until there is something to do.
    fn idle(&mut self, ready: &mut Vec<usize>) {
        self.line.rest();
        // Read again: running queues takes time, by which the worker would wake too late.
        let start = self.clock.now();
        let next = self.unwatched.iter().map(|&at| next_poll(&self.napis, at));
        let due = next.min().unwrap_or(Time::MAX).min(self.due);
        let due = due.min(self.view.forwarder.due());
        let until = (due != Time::MAX).then_some(due);
        if until.is_none_or(|until| until > start) && self.busy_poll(start, until, ready) {
            return;
        }
        if !self.arm() {
            return;
        }
        if !self.view.pools.iter().all(Pool::prepare_sleep) {
            // Buffers were freed to this thread. The next round takes them, and undoes what is
            // prepared.
            return;
        }
        let now = self.clock.now();
        if self.raised.ends(now) {
            self.sleeper.raise();
        }
        let (sleeper, own, shared) = (&mut self.sleeper, &mut self.own, &self.shared);
        shared.notifier.sleep_if(
            || shared.backlog.is_empty(),
            || {
                own.sleeps += 1;
                own.sleeps_since = now.nanos().max(1);
                shared.publish(own);
                probes::worker_sleep(until);
                sleeper.sleep(now, until, ready);
                probes::worker_wake();
                own.sleeps_since = 0;
            },
        );
        let woke = self.clock.now();
        self.raised.begins(woke);
        self.own.asleep += woke.since(now).as_nanos() as u64;
        self.halt_poll.was_idle(woke.since(start), woke);
        self.rested = woke.since(now) >= REST;
        self.looked = woke;
    }

    /// Looks for something to do for as long as that has paid off, and until others want the CPU.
    /// True: there is something, or `until` has come.
    fn busy_poll(&mut self, start: Time, until: Option<Time>, ready: &mut Vec<usize>) -> bool {
        if self.halt_poll.window().is_zero() {
            return false;
        }
        if self.raised.is_over(start) {
            // Looking keeps programs waiting no longer than work does.
            self.lower();
        }
        let (sleeper, clock, shared) = (&mut self.sleeper, &self.clock, &self.shared);
        let (napis, unarmed) = (&self.napis, &self.unarmed);
        // Where memory tells of all queues, files are looked at as seldom as by a busy worker.
        let files = napis.iter().flatten().count() > unarmed.len() + self.unwatched.len();
        let looked = &mut self.looked;
        let found = self.halt_poll.busy_poll(
            start,
            clock,
            || {
                let event = !shared.backlog.is_empty() || !shared.notifier.is_quiet();
                event || unarmed.iter().any(|&index| has_packets(napis, index))
            },
            |now| {
                if files || now.since(*looked) >= ROUND {
                    *looked = now;
                    sleeper.sleep(now, Some(Time::ZERO), ready);
                }
                let found = !ready.is_empty() || until.is_some_and(|until| until <= now);
                if !found {
                    sleeper.yield_cpu();
                }
                found
            },
        );
        self.own.polling += self.clock.now().since(start).as_nanos() as u64;
        found
    }

    fn publish(&mut self) {
        let own = &mut self.own;
        own.flow_limit = self.hand_off.limited;
        own.handed_over = self.hand_off.handed;
        own.wakes_sent = self.hand_off.wakes;
        own.process_qlen = self.backlog.taken() as u64;
        self.shared.publish(own);
    }
}
