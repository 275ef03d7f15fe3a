//! Cores in virtual time: each runs a program, an `async fn` that waits wherever a real core would
//! wait for a cache line. Nothing here knows what the programs do.
//!
//! Deterministic: what happens at the same time happens in the order in which it was asked for,
//! and the only random numbers are those of the seed.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::line::{Access, Line, LineId};
use super::topology::distance;
use crate::random::Random;

/// Virtual time, in picoseconds.
pub(super) type Time = u64;
/// The program of a core.
pub(super) type Program = Pin<Box<dyn Future<Output = ()>>>;

pub(super) fn ps(nanos: f64) -> Time {
    (nanos.max(0.0) * 1e3).round() as Time
}

/// Costs of accesses to memory, in nanoseconds, between the two cores that were measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Costs {
    /// An atomic read-modify-write of a line that the core has for itself.
    pub(super) atomic: f64,
    /// A load of a line that another core wrote last.
    pub(super) load: f64,
    /// An atomic read-modify-write of such a line.
    pub(super) rmw: f64,
    /// The same of a line that the core has, and another one, too.
    pub(super) upgrade: f64,
    /// A line of several that are fetched at the same time, or ahead of their use.
    pub(super) stream: f64,
    /// The part of a transfer in which neither core has the line.
    pub(super) flight: f64,
    /// Factors of the costs above for each [distance](super::topology).
    pub(super) distances: [f64; 3],
}

/// Something that happens.
enum Event {
    Resume(usize),
    /// A store reaches its line.
    Store(LineId, u64),
}

/// The cores and their memory.
pub(super) struct Machine {
    costs: Costs,
    now: Cell<Time>,
    events: RefCell<BinaryHeap<Reverse<(Time, u64, usize)>>>,
    /// By the last number of an entry in `events`; entries are used again.
    what: RefCell<(Vec<Event>, Vec<usize>)>,
    order: Cell<u64>,
    lines: RefCell<Vec<Line>>,
    /// When a core's stores so far have reached their lines.
    drained: RefCell<Vec<Time>>,
    random: RefCell<Random>,
}

impl Machine {
    pub(super) fn new(cores: usize, costs: Costs, seed: u32) -> Rc<Machine> {
        Rc::new(Machine {
            costs,
            now: Cell::new(0),
            events: RefCell::default(),
            what: RefCell::default(),
            order: Cell::new(0),
            lines: RefCell::default(),
            drained: RefCell::new(vec![0; cores]),
            random: RefCell::new(Random::new(seed)),
        })
    }

    /// A line that no core has written.
    pub(super) fn line(&self) -> LineId {
        let mut lines = self.lines.borrow_mut();
        lines.push(Line::default());
        lines.len() - 1
    }

    pub(super) fn core(self: &Rc<Machine>, id: usize) -> Core {
        Core {
            machine: self.clone(),
            id,
            ahead: Rc::default(),
            missed: Rc::default(),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.now.get()
    }

    /// Runs the programs of cores 0, 1, … until `done` or all have ended.
    pub(super) fn run(&self, programs: &mut [Program], mut done: impl FnMut() -> bool) {
        if self.order.get() == 0 {
            (0..programs.len()).for_each(|core| self.at(0, Event::Resume(core)));
        }
        let mut context = Context::from_waker(Waker::noop());
        while !done() {
            let Some(Reverse((time, _, entry))) = self.events.borrow_mut().pop() else {
                return;
            };
            self.now.set(time);
            let event = {
                let mut what = self.what.borrow_mut();
                what.1.push(entry);
                std::mem::replace(&mut what.0[entry], Event::Resume(0))
            };
            match event {
                Event::Store(line, value) => self.lines.borrow_mut()[line].value = value,
                // One that has ended is not resumed: nothing it waited for is left.
                Event::Resume(core) => {
                    let _ = programs[core].as_mut().poll(&mut context);
                }
            }
        }
    }

    fn at(&self, time: Time, event: Event) {
        let mut what = self.what.borrow_mut();
        let entry = match what.1.pop() {
            Some(free) => {
                what.0[free] = event;
                free
            }
            None => {
                what.0.push(event);
                what.0.len() - 1
            }
        };
        let order = self.order.get();
        self.order.set(order + 1);
        self.events.borrow_mut().push(Reverse((time, order, entry)));
    }

    /// From 3/4 to 5/4 of it: no two transfers on a real machine take the same time, and without
    /// that cores march in step.
    fn vary(&self, time: f64) -> f64 {
        let share = f64::from(self.random.borrow_mut().below(1024)) / 1024.0;
        time * (0.75 + share / 2.0)
    }

    /// When a core that asks now has the line, and whether it had to be fetched.
    fn fetch(&self, core: usize, line: LineId, access: Access, asked: Time) -> (Time, bool) {
        let mut lines = self.lines.borrow_mut();
        let (line, now) = (&mut lines[line], self.now.get());
        if let Some(has) = line.has(core, access, now) {
            return (has, false);
        }
        let costs = &self.costs;
        let near = match access {
            Access::Load => costs.load,
            Access::Own if line.is_shared_by(core) => costs.upgrade,
            Access::Own => costs.rmw,
        };
        let Some(other) = line.other_holder(core) else {
            // Nobody else has used it.
            line.grant(core, access, now, now);
            return (now, false);
        };
        let way = self.vary(near * costs.distances[distance(core, other)]);
        let flight = ps(way * costs.flight);
        let request = ps(way) - flight;
        // A queued request has only the second half of its way before it.
        let queued = line.arrived() + request / 2;
        let leaves = (asked + request).max(queued).max(now);
        line.grant(core, access, leaves, leaves + flight);
        (leaves + flight, true)
    }
}

/// A core, as its program sees it.
#[derive(Clone)]
pub(super) struct Core {
    machine: Rc<Machine>,
    pub(super) id: usize,
    /// Instructions done since the last access to memory.
    ahead: Rc<Cell<Time>>,
    /// When the first load since the last atomic operation missed: the processor goes on by what
    /// it predicts, so those that miss after it were asked for at that time.
    missed: Rc<Cell<Option<Time>>>,
}

impl Core {
    pub(super) fn now(&self) -> Time {
        self.machine.now()
    }

    /// Instructions that take so many nanoseconds.
    pub(super) fn work(&self, nanos: f64) {
        self.ahead.set(self.ahead.get() + ps(nanos));
    }

    /// Instructions whose time is not always the same.
    pub(super) fn some_work(&self, nanos: f64) {
        self.work(self.machine.vary(nanos));
    }

    /// `count` lines that `other` wrote, fetched together or ahead of their use.
    pub(super) fn stream(&self, other: usize, count: usize) {
        if other != self.id {
            let costs = &self.machine.costs;
            let far = costs.distances[distance(self.id, other)];
            self.work(costs.stream * far * count as f64);
        }
    }

    /// A line that `other` wrote, whose address is read from the line before.
    pub(super) fn chase(&self, other: usize) {
        if other != self.id {
            let costs = &self.machine.costs;
            self.work(costs.load * costs.distances[distance(self.id, other)]);
        }
    }

    /// Reads a line; also whether it had to be fetched.
    pub(super) async fn look(&self, line: LineId) -> (u64, bool) {
        self.catch_up().await;
        let now = self.now();
        let asked = self.missed.get().unwrap_or(now);
        let (has, fetched) = self.machine.fetch(self.id, line, Access::Load, asked);
        if fetched {
            self.missed.set(Some(asked));
        }
        self.until(has).await;
        (self.machine.lines.borrow()[line].value, fetched)
    }

    pub(super) async fn load(&self, line: LineId) -> u64 {
        self.look(line).await.0
    }

    /// Changes a line in one atomic step, if `change` returns something. Returns what it was.
    pub(super) async fn rmw(
        &self,
        line: LineId,
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        self.catch_up().await;
        // An atomic operation waits for the stores before it.
        let drained = self.machine.drained.borrow()[self.id];
        self.until(drained).await;
        self.missed.set(None);
        let now = self.now();
        let (has, _) = self.machine.fetch(self.id, line, Access::Own, now);
        self.until(has + ps(self.machine.costs.atomic)).await;
        let value = &mut self.machine.lines.borrow_mut()[line].value;
        let was = *value;
        match change(was) {
            Some(new) => {
                *value = new;
                Ok(was)
            }
            None => Err(was),
        }
    }

    /// Compare-and-swap.
    pub(super) async fn swap(&self, line: LineId, from: u64, to: u64) -> Result<u64, u64> {
        self.rmw(line, |was| (was == from).then_some(to)).await
    }

    /// Writes a line; the core goes on, and the line comes to it meanwhile.
    pub(super) async fn store(&self, line: LineId, value: u64) {
        self.catch_up().await;
        let now = self.now();
        let (has, _) = self.machine.fetch(self.id, line, Access::Own, now);
        if has <= now {
            self.machine.lines.borrow_mut()[line].value = value;
            return;
        }
        let drained = &mut self.machine.drained.borrow_mut()[self.id];
        *drained = has.max(*drained);
        self.machine.at(*drained, Event::Store(line, value));
    }

    /// Reads and writes data of `count` lines that whoever holds a lock, or owns a queue, has for
    /// itself. `line` stands for all: they were last written by the same core. One is waited for,
    /// the others come with it.
    pub(super) async fn use_data(&self, line: LineId, count: usize) {
        let (last, fetched) = self.look(line).await;
        if fetched {
            self.stream(last as usize, count - 1);
        }
        self.store(line, self.id as u64).await;
    }

    async fn catch_up(&self) {
        let ahead = self.ahead.take();
        if ahead > 0 {
            self.until(self.now() + ahead).await;
        }
    }

    fn until(&self, time: Time) -> Until<'_> {
        Until {
            core: self,
            time,
            asked: false,
        }
    }
}

struct Until<'a> {
    core: &'a Core,
    time: Time,
    asked: bool,
}

impl Future for Until<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let machine = &self.core.machine;
        if self.asked || self.time <= machine.now() {
            return Poll::Ready(());
        }
        machine.at(self.time, Event::Resume(self.core.id));
        self.asked = true;
        Poll::Pending
    }
}
