//! The kernel's locked path up to 6.18, as `baselines/busylock.rs`, `linux.rs` and `ticket.rs`
//! have it: a sender that finds the qdisc being run takes the busylock; then the root lock; the
//! one that runs the qdisc gives the root lock up while it holds the driver's. Lines: two of each
//! lock (the next ticket, the one that is served), the data behind root and driver lock, the flag
//! that the qdisc is being run, and what the [driver](super::device) touches.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::device::{Driver, Work};
use super::line::LineId;
use super::machine::{Core, Machine};
use super::pool::Packet;

/// As in `ticket.rs`.
const PAUSES: u64 = 4;
const MOST_PAUSES: u64 = 256;
const LOOKS: u32 = 32;
/// `dev_tx_weight`.
const QUOTA: usize = 64;
/// Lines behind the root lock: the qdisc with its parameters, its list, what was requeued, what is
/// dropped.
const ROOT: usize = 6;
/// Lines behind the driver's: the ring's end, what was sent, what is dropped.
const HARD: usize = 3;

struct Ticket {
    next: LineId,
    serving: LineId,
    work: Work,
}

impl Ticket {
    fn new(machine: &Machine, work: Work) -> Ticket {
        Ticket {
            next: machine.line(),
            serving: machine.line(),
            work,
        }
    }

    async fn lock(&self, core: &Core) {
        let serving = core.load(self.serving).await;
        if core.swap(self.next, serving, serving + 1).await.is_ok() {
            return;
        }
        core.work(self.work.clock);
        let (Ok(ticket) | Err(ticket)) = core.rmw(self.next, |next| Some(next + 1)).await;
        let mut looks = 0;
        loop {
            let ahead = ticket - core.load(self.serving).await;
            if ahead == 0 {
                core.work(self.work.clock);
                return;
            }
            core.work((ahead * PAUSES).min(MOST_PAUSES) as f64 * self.work.pause);
            looks += 1;
            if looks % LOOKS == 0 {
                core.work(self.work.r#yield);
            }
        }
    }

    async fn unlock(&self, core: &Core) {
        let serving = core.load(self.serving).await;
        core.store(self.serving, serving + 1).await;
    }
}

/// One queue.
pub(super) struct Busylock {
    busy: Ticket,
    root: Ticket,
    hard: Ticket,
    running: LineId,
    root_data: LineId,
    hard_data: LineId,
    queued: RefCell<VecDeque<Packet>>,
    driver: Driver,
}

impl Busylock {
    pub(super) fn new(machine: &Machine, driver: Driver) -> Rc<Busylock> {
        let ticket = || Ticket::new(machine, driver.shared.work);
        Rc::new(Busylock {
            busy: ticket(),
            root: ticket(),
            hard: ticket(),
            running: machine.line(),
            root_data: machine.line(),
            hard_data: machine.line(),
            queued: RefCell::default(),
            driver,
        })
    }

    pub(super) async fn transmit(&self, core: &Core, packet: Packet) {
        let busy = core.load(self.running).await == 1;
        if busy {
            self.busy.lock(core).await;
        }
        self.root.lock(core).await;
        core.use_data(self.root_data, ROOT).await;
        core.some_work(self.driver.shared.work.call);
        let runs = core.load(self.running).await == 0;
        let passes = runs && self.queued.borrow().is_empty();
        if runs {
            core.store(self.running, 1).await;
        }
        if passes {
            self.direct_xmit(core, vec![packet]).await;
        } else {
            core.stream(packet.at, 1);
            core.some_work(self.driver.shared.work.queued / 2.0);
            self.queued.borrow_mut().push_back(packet);
        }
        if busy {
            self.busy.unlock(core).await;
        }
        if runs {
            self.run(core).await;
            core.store(self.running, 0).await;
        }
        self.root.unlock(core).await;
    }

    /// `__qdisc_run`. What is beyond the quota is the softirq's, which the same core runs next.
    async fn run(&self, core: &Core) {
        loop {
            let batch: Vec<_> = {
                let mut queued = self.queued.borrow_mut();
                let count = queued.len().min(QUOTA);
                queued.drain(..count).collect()
            };
            if batch.is_empty() {
                return;
            }
            core.some_work(self.driver.shared.work.queued / 2.0 * batch.len() as f64);
            self.direct_xmit(core, batch).await;
        }
    }

    /// `sch_direct_xmit`.
    async fn direct_xmit(&self, core: &Core, batch: Vec<Packet>) {
        self.root.unlock(core).await;
        self.hard.lock(core).await;
        core.use_data(self.hard_data, HARD).await;
        self.driver.send(core, batch).await;
        self.hard.unlock(core).await;
        self.root.lock(core).await;
        core.use_data(self.root_data, ROOT).await;
    }
}
