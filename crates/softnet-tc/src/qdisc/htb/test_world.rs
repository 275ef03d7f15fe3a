//! Classes with packets that are sizes only, in virtual time, to test the scheduler alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use softnet::qdisc::WireSize;
use softnet::time::Time;

use super::HtbClassSpec;
use super::class::{LEVELS, Mode, NONE};
use super::scheduler::Scheduler;
use super::turn::Taken;
use crate::account::{ClassCounters, HtbClassStats, Sent};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) time: u64,
    pub(super) minor: u16,
    pub(super) bytes: u64,
    /// The level of the class whose tokens it took.
    pub(super) level: usize,
}

/// Classes with packets that are sizes only.
pub(super) struct World {
    pub(super) scheduler: Scheduler,
    pub(super) counters: BTreeMap<u16, Arc<ClassCounters>>,
    pub(super) specs: BTreeMap<u16, HtbClassSpec>,
    pub(super) parents: BTreeMap<u16, Option<u16>>,
    pub(super) queues: Vec<VecDeque<u64>>,
    pub(super) now: Time,
    pub(super) sent: Vec<Departure>,
    /// A turn may be longer than one packet, and what inner classes are charged for it put off.
    pub(super) runs: bool,
    /// Wire packets for which inner classes were charged at the ends of calls.
    pub(super) put_off: u64,
}

impl World {
    pub(super) fn new() -> World {
        World {
            scheduler: Scheduler::new(10, None),
            counters: BTreeMap::new(),
            specs: BTreeMap::new(),
            parents: BTreeMap::new(),
            queues: Vec::new(),
            now: Time::ZERO,
            sent: Vec::new(),
            runs: true,
            put_off: 0,
        }
    }

    pub(super) fn slot(&self, minor: u16) -> usize {
        self.scheduler.find(minor).expect("the class")
    }

    pub(super) fn add(&mut self, minor: u16, parent: Option<u16>, spec: HtbClassSpec) {
        let above = parent.map(|parent| self.slot(parent));
        let free = (0..).find(|&slot| self.scheduler.level(slot).is_none());
        let slot = free.expect("a slot");
        if let Some(above) = above {
            self.queues[above].clear();
        }
        self.queues
            .resize_with(self.queues.len().max(slot + 1), VecDeque::new);
        self.queues[slot].clear();
        let counters = Arc::<ClassCounters>::default();
        self.counters.insert(minor, counters.clone());
        self.scheduler
            .add(slot, minor, above, &spec, counters, self.now);
        self.specs.insert(minor, spec);
        self.parents.insert(minor, parent);
    }

    pub(super) fn change(&mut self, minor: u16, spec: HtbClassSpec) {
        let slot = self.slot(minor);
        self.scheduler.change(slot, &spec, self.now);
        self.specs.insert(minor, spec);
    }

    pub(super) fn remove(&mut self, minor: u16) {
        let slot = self.slot(minor);
        self.queues[slot].clear();
        self.scheduler.remove(slot, self.now);
        self.specs.remove(&minor);
        self.parents.remove(&minor);
    }

    pub(super) fn push(&mut self, minor: u16, bytes: u64) {
        let slot = self.slot(minor);
        self.queues[slot].push_back(bytes);
        self.scheduler.activate(slot);
    }

    pub(super) fn fill(&mut self, minor: u16, bytes: u64, count: usize) {
        (0..count).for_each(|_| self.push(minor, bytes));
    }

    pub(super) fn stats(&self, minor: u16) -> HtbClassStats {
        let spec = &self.specs[&minor];
        self.counters[&minor].own.htb(spec.rate, spec.ceil)
    }

    pub(super) fn lent(&self) -> Vec<(u16, u64)> {
        let minors = self.specs.keys();
        minors.map(|&m| (m, self.stats(m).lended)).collect()
    }

    /// Sends until nothing may leave at this time, or `limit` packets. True if it was the limit.
    pub(super) fn send(&mut self, limit: usize) -> bool {
        let limited = self.serve(limit);
        self.put_off += self.scheduler.deferred.sum.packets;
        self.scheduler.settle(self.now);
        limited
    }

    fn serve(&mut self, limit: usize) -> bool {
        let mut left = limit;
        while left > 0 {
            let (before, mut taken) = (self.lent(), Vec::new());
            let World {
                queues,
                scheduler,
                now,
                runs,
                ..
            } = self;
            let served = scheduler.serve(*now, |scheduler, turn| {
                let (slot, allowed) = (turn.leaf, scheduler.allowed(turn, *now));
                let queue = &mut queues[slot];
                let mut bytes = 0;
                while let Some(packet) = queue.pop_front() {
                    bytes += packet;
                    taken.push((slot, packet));
                    if !*runs || bytes > allowed || taken.len() == left {
                        break;
                    }
                }
                if taken.is_empty() {
                    return Taken::Empty;
                }
                Taken::Sent(Sent {
                    frames: taken.len() as u64,
                    size: WireSize {
                        packets: taken.len() as u64,
                        bytes,
                        each: bytes,
                    },
                    emptied: queue.is_empty(),
                    flows: 1,
                })
            });
            if !served {
                return false;
            }
            if !self.runs {
                self.scheduler.settle(self.now);
            }
            left -= taken.len();
            let lender = self.lent().into_iter().zip(before).find(|(a, b)| a.1 > b.1);
            let lender = lender.expect("somebody's tokens").0.0;
            let level = self.scheduler.level(self.slot(lender)).expect("a class");
            for (slot, bytes) in taken {
                let minors = self.specs.keys().copied();
                let minor = minors.into_iter().find(|&m| self.slot(m) == slot);
                self.sent.push(Departure {
                    time: self.now.nanos(),
                    minor: minor.expect("a class"),
                    bytes,
                    level: level.into(),
                });
            }
        }
        true
    }

    pub(super) fn queued(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Lets time pass, and sends what may be sent.
    pub(super) fn run(&mut self, until: u64) {
        loop {
            self.send(usize::MAX);
            let next = self.scheduler.next_event();
            assert!(next > self.now, "asks to come back at once");
            if self.queued() == 0 || next.nanos() > until {
                self.now = Time(until);
                return;
            }
            self.now = next;
        }
    }

    pub(super) fn sent_by(&self, minor: u16) -> u64 {
        let own = self.sent.iter().filter(|d| d.minor == minor);
        own.map(|d| d.bytes).sum()
    }

    pub(super) fn order(&self) -> Vec<u16> {
        self.sent.iter().map(|d| d.minor).collect()
    }

    /// INV-Q-7, INV-Q-8: rows, feeds and wait queues hold what the modes say.
    pub(super) fn check(&mut self) {
        let World {
            scheduler, queues, ..
        } = self;
        let slots: Vec<usize> = (0..queues.len())
            .filter(|&slot| scheduler.level(slot).is_some())
            .collect();
        let mut waiting = [0; LEVELS];
        for &slot in &slots {
            let class = scheduler.class(slot);
            let (mode, minor) = (class.mode, class.minor);
            let (level, parent) = (usize::from(class.level), class.parent);
            let (active, wakes) = (class.active, class.wakes);
            if level == 0 {
                assert_eq!(active != 0, !queues[slot].is_empty(), "leaf {minor:x}");
            }
            if mode != Mode::CanSend {
                waiting[level] += 1;
                let queue = &scheduler.levels[level].waiting;
                assert!(queue.contains(&(wakes, slot as u16)));
            }
            for prio in 0..8 {
                let active = active & 1 << prio != 0;
                let rows = &scheduler.levels[level].rows;
                let in_row = rows[prio].as_ref().is_some_and(|r| r.contains(minor));
                assert_eq!(in_row, active && mode == Mode::CanSend, "{minor:x}");
                if parent != NONE {
                    let feeds = scheduler.feeds[usize::from(parent)].as_ref();
                    let feed = feeds.and_then(|feeds| feeds[prio].as_ref());
                    let in_feed = feed.is_some_and(|row| row.contains(minor));
                    assert_eq!(in_feed, active && mode == Mode::MayBorrow, "{minor:x}");
                }
                let feeds = scheduler.feeds[slot].as_ref();
                let feed = feeds.and_then(|feeds| feeds[prio].as_ref());
                let fed = feed.is_some_and(|row| !row.is_empty());
                assert!(level == 0 || fed == active, "{minor:x}");
            }
        }
        for (level, waiting) in scheduler.levels.iter().zip(waiting) {
            assert_eq!(level.waiting.len(), waiting);
            for (prio, row) in level.rows.iter().enumerate() {
                let used = row.as_ref().is_some_and(|row| !row.is_empty());
                assert_eq!(level.used & 1 << prio != 0, used);
            }
        }
    }
}

pub(super) fn spec(rate: u64, ceil: u64, burst: u64, cburst: u64) -> HtbClassSpec {
    HtbClassSpec {
        ceil,
        burst,
        cburst,
        ..HtbClassSpec::new(rate)
    }
}
