//! Softnet's transmit queue (`sync/owned_list.rs`, `tx/queue.rs`, `tx/enter.rs`): a word with the
//! list of what waits and who owns the queue.
//!
//! A sender reads the word. If nobody owns the queue, one compare-and-swap makes it the owner,
//! with all that waits; else one pushes its packet. The owner sends what it adopted and its own,
//! at most 64, and gives the queue up by a compare-and-swap that fails if more has come; what is
//! left then is the helper's, or the next sender's. Lines: the word (with the backlog hint), the
//! owner's state, the published counters, and what the [driver](super::device) touches.
//!
//! A shaper is part of the owner's state. With `parallel = true` the queue's instance has a pot
//! (`softnet_tc::rate`): a draw reads the shared word and changes it by one compare-and-swap,
//! tried again where others were faster.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::device::Driver;
use super::line::LineId;
use super::machine::{Core, Machine};
use super::pool::Packet;

const OWNED: u64 = 1;
/// One packet on the list, in the word.
const ONE: u64 = 2;
/// `QDISC_MAX_BURST`, `CROWDED`, `RUN_QUOTA` and `HELPER_QUOTA` of `tx/policy.rs`.
const LIMIT: u64 = 8192;
const CROWDED: u64 = 128;
const QUOTA: usize = 64;
const HELPER: usize = 16 * QUOTA;
/// Lines of the owner's state: its flags and sums, the qdisc with its parameters, its list, the
/// ring's slot, what is dropped.
const STATE: usize = 8;
/// Lines of the counters that it publishes.
const COUNTERS: usize = 2;
/// The oldest packets of a list, whose addresses are in no array.
const UNNOTED: usize = 8;
/// Packets of the longest frame in a pot.
const POT: u32 = 64;

/// A pot, and the line of the rate that all instances share.
pub(super) struct Pot {
    pub(super) word: LineId,
    credit: Cell<u32>,
}

impl Pot {
    pub(super) fn new(word: LineId) -> Pot {
        Pot {
            word,
            credit: Cell::new(0),
        }
    }

    /// Pays for packets.
    async fn charge(&self, core: &Core, packets: usize) {
        for _ in 0..packets {
            if self.credit.get() == 0 {
                let mut was = core.load(self.word).await;
                while let Err(other) = core.swap(self.word, was, was + 1).await {
                    was = other;
                }
                self.credit.set(POT);
            }
            self.credit.set(self.credit.get() - 1);
        }
    }
}

/// One queue.
pub(super) struct Queue {
    word: LineId,
    /// The list that the word stands for: both change together.
    list: RefCell<Vec<Packet>>,
    state: LineId,
    counters: LineId,
    /// Packets in the qdisc.
    queued: RefCell<VecDeque<Packet>>,
    /// The hint on the word's line.
    backlog: Cell<u64>,
    /// The helper was notified.
    left: Cell<bool>,
    pot: Option<Pot>,
    driver: Driver,
}

impl Queue {
    pub(super) fn new(machine: &Machine, driver: Driver, pot: Option<Pot>) -> Rc<Queue> {
        Rc::new(Queue {
            word: machine.line(),
            list: RefCell::default(),
            state: machine.line(),
            counters: machine.line(),
            queued: RefCell::default(),
            backlog: Cell::new(0),
            left: Cell::new(false),
            pot,
            driver,
        })
    }

    /// Sends one packet. False if it was dropped.
    pub(super) async fn transmit(&self, core: &Core, packet: Packet) -> bool {
        let (mut yielded, mut tried) = (false, false);
        loop {
            let word = core.load(self.word).await;
            if word & OWNED == 0 {
                let mut adopted = Vec::new();
                let begin = |was| {
                    (was == word).then(|| {
                        adopted = self.list.take();
                        OWNED
                    })
                };
                if core.rmw(self.word, begin).await.is_ok() {
                    core.work(self.driver.shared.work.call);
                    self.own(core, adopted, Some(packet), QUOTA).await;
                    return true;
                }
                continue;
            }
            let waiting = word / ONE;
            if waiting >= LIMIT {
                if yielded {
                    return false;
                }
                core.work(self.driver.shared.work.r#yield);
                yielded = true;
                continue;
            }
            if !tried {
                core.work(self.driver.shared.work.push);
                tried = true;
            }
            let push = |was| {
                (was == word).then(|| {
                    self.list.borrow_mut().push(packet);
                    was + ONE
                })
            };
            if core.rmw(self.word, push).await.is_ok() {
                if waiting + self.backlog.get() >= CROWDED {
                    core.work(self.driver.shared.work.r#yield);
                }
                return true;
            }
        }
    }

    /// The helper's turn, on this core: it runs where a sender has given its CPU away.
    pub(super) async fn help(&self, core: &Core) {
        if !self.left.replace(false) || core.load(self.word).await & OWNED != 0 {
            return;
        }
        let mut adopted = Vec::new();
        let begin = |was| {
            (was & OWNED == 0).then(|| {
                adopted = self.list.take();
                OWNED
            })
        };
        if core.rmw(self.word, begin).await.is_ok() {
            self.own(core, adopted, None, HELPER).await;
        }
    }

    async fn own(
        &self,
        core: &Core,
        adopted: Vec<Packet>,
        own: Option<Packet>,
        mut budget: usize,
    ) {
        core.use_data(self.state, STATE).await;
        self.adopt(core, adopted, own, budget);
        loop {
            let batch: Vec<_> = {
                let mut queued = self.queued.borrow_mut();
                let count = queued.len().min(budget);
                queued.drain(..count).collect()
            };
            budget -= batch.len();
            if !batch.is_empty() {
                if let Some(pot) = &self.pot {
                    pot.charge(core, batch.len()).await;
                }
                self.driver.send(core, batch).await;
            }
            core.use_data(self.counters, COUNTERS).await;
            let rest = self.queued.borrow().len() as u64;
            self.backlog.set(rest);
            if rest > 0 || budget == 0 {
                let left = core.rmw(self.word, |was| Some(was & !OWNED)).await;
                self.left.set(rest > 0 || left != Ok(OWNED));
                return;
            }
            if core.swap(self.word, OWNED, 0).await.is_ok() {
                return;
            }
            let mut adopted = Vec::new();
            let take = |_| {
                adopted = self.list.take();
                Some(OWNED)
            };
            let _ = core.rmw(self.word, take).await;
            self.adopt(core, adopted, None, budget);
        }
    }

    /// Walks down the list. The headers of all but the oldest are fetched ahead, by their
    /// addresses in an array (`sync/prefetch_index.rs`), of which 8 are on a line. If all may
    /// leave in this run, and nothing is before them, they pass the qdisc.
    fn adopt(&self, core: &Core, mut adopted: Vec<Packet>, own: Option<Packet>, budget: usize) {
        for (place, packet) in adopted.iter_mut().enumerate() {
            match place < UNNOTED {
                true => core.chase(packet.at),
                false => core.stream(packet.at, 1 + usize::from(place % 8 == 0)),
            }
            packet.at = core.id;
        }
        adopted.extend(own);
        let mut queued = self.queued.borrow_mut();
        if !queued.is_empty() || adopted.len() > budget {
            core.some_work(self.driver.shared.work.queued * adopted.len() as f64);
        }
        queued.extend(adopted);
    }
}
