//! Which leaf sends next. Knows nothing of packets but their sizes.
//!
//! A class that may send by itself is in the row of its level and priority; one that may borrow
//! is in a row of the class above, its *feed*. So the rows of a level lead down, through feeds,
//! to the leaves that may send now with what the classes of this level have: leaves with tokens
//! of their own at level 0, before all that borrow. Within a row leaves send in turn (deficit
//! round robin). A class that may do less than it could is in the wait queue of its level until
//! the time at which it may do more.
//!
//! INV-Q-7: a leaf is active if and only if it has packets (as [`Htb`](super::Htb) says), and an
//! inner class if and only if its feeds are not empty. INV-Q-8: a class is in a wait queue if and
//! only if its mode is not [`Mode::CanSend`].

use std::collections::BTreeSet;
use std::sync::Arc;

use softnet::sync::prefetch;
use softnet::time::Time;

use super::HtbClassSpec;
use super::class::{Class, LEVELS, Mode, NONE, PRIOS};
use super::deferred::Deferred;
use super::pots::{Pots, Sharing};
use super::row::Row;
use crate::account::ClassCounters;

/// Classes of a level that are looked at in one call.
const EVENTS: usize = 128;

/// The rows of one level, or the feeds of one class: one for each priority.
pub(super) type Rows = [Option<Box<Row>>; PRIOS];

/// A level of the hierarchy.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) rows: Rows,
    /// Bit p: row p is not empty.
    pub(super) used: u8,
    /// Classes that wait, by the time at which they may do more.
    pub(super) waiting: BTreeSet<(u64, u16)>,
}

/// A class: two cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) class: Class,
    pub(super) counters: Arc<ClassCounters>,
}
const _: () = assert!(size_of::<Option<Slot>>() <= 128);

/// The classes, and whose turn it is.
#[derive(Debug)]
pub(super) struct Scheduler {
    r2q: u32,
    /// There are other instances of the tree.
    pub(super) sharing: Option<Sharing>,
    /// Pots of the class at the same place in `slots`; empty if nothing is shared.
    pub(super) pots: Vec<Option<Pots>>,
    /// Inner classes that nothing here waits for any more, and when that is said to the others.
    pub(super) lingering: Vec<(usize, Option<Time>)>,
    pub(super) slots: Vec<Option<Slot>>,
    /// State of the inner class at the same place in `slots`, from the first time on that a class
    /// below borrows.
    pub(super) feeds: Vec<Option<Box<Rows>>>,
    /// The slot of each minor number, or [`NONE`].
    by_minor: Vec<u16>,
    pub(super) levels: [Level; LEVELS],
    /// Nothing is put off between two calls.
    pub(super) deferred: Deferred,
    /// The earliest time at which a class of each level may do more.
    events: [u64; LEVELS],
    /// Classes for which packets cost more than their length.
    pub(super) framed: usize,
    /// Times that a class reached its ceil.
    pub(super) overlimits: u64,
}

#[inline]
fn row(rows: &mut Rows, prio: usize) -> &mut Row {
    rows[prio].get_or_insert_with(|| Box::new(Row::new()))
}

/// The numbers of the set bits.
pub(super) fn bits(mut mask: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        bit
    })
}

impl Scheduler {
    pub(super) fn new(r2q: u32, sharing: Option<Sharing>) -> Scheduler {
        Scheduler {
            r2q,
            sharing,
            pots: Vec::new(),
            lingering: Vec::new(),
            slots: Vec::new(),
            feeds: Vec::new(),
            by_minor: Vec::new(),
            levels: Default::default(),
            deferred: Deferred::default(),
            events: [u64::MAX; LEVELS],
            framed: 0,
            overlimits: 0,
        }
    }

    #[inline]
    pub(super) fn slot(&mut self, slot: usize) -> &mut Slot {
        self.slots[slot]
            .as_mut()
            .expect("the tree names its classes")
    }

    #[inline]
    pub(super) fn class(&mut self, slot: usize) -> &mut Class {
        &mut self.slot(slot).class
    }

    /// The slot of a class.
    #[inline]
    pub(super) fn find(&self, minor: u16) -> Option<usize> {
        let slot = *self.by_minor.get(usize::from(minor))?;
        (slot != NONE).then_some(slot.into())
    }

    /// Asks for a class, which will send soon, or get a packet.
    #[inline]
    pub(super) fn prefetch(&self, slot: usize) {
        if let Some(slot) = self.slots.get(slot) {
            prefetch(&raw const *slot);
            prefetch((&raw const *slot).cast::<u8>().wrapping_add(64));
        }
    }

    /// The level of a class; 0 is a leaf.
    pub(super) fn level(&self, slot: usize) -> Option<u8> {
        self.slots.get(slot)?.as_ref().map(|slot| slot.class.level)
    }

    /// Adds a leaf. If the class above was a leaf, it is not any more.
    pub(super) fn add(
        &mut self,
        slot: usize,
        minor: u16,
        parent: Option<usize>,
        spec: &HtbClassSpec,
        counters: Arc<ClassCounters>,
        now: Time,
    ) {
        if let Some(parent) = parent {
            self.make_inner(parent);
            self.class(parent).children += 1;
        }
        let above = parent.map_or(NONE, |parent| parent as u16);
        let class = Class::new(minor, above, spec, self.r2q, now);
        self.framed += usize::from(!class.plain);
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
            self.feeds.resize_with(slot + 1, || None);
        }
        if self.by_minor.len() <= usize::from(minor) {
            self.by_minor.resize(usize::from(minor) + 1, NONE);
        }
        if let Some(sharing) = &self.sharing {
            self.pots.resize_with(self.slots.len(), || None);
            self.pots[slot] = Some(Pots::new(sharing, minor, spec));
        }
        self.by_minor[usize::from(minor)] = slot as u16;
        self.slots[slot] = Some(Slot { class, counters });
        self.publish(slot);
    }

    fn make_inner(&mut self, slot: usize) {
        if self.class(slot).level > 0 {
            return;
        }
        self.deactivate(slot);
        self.stop_waiting(slot);
        let class = self.class(slot);
        class.mode = Mode::CanSend;
        let above = class.parent;
        let level = match above {
            NONE => LEVELS as u8 - 1,
            above => self.class(above.into()).level.saturating_sub(1),
        };
        self.class(slot).level = level;
        if let Some(pots) = self.pots(slot) {
            pots.set_inner(true);
        }
    }

    /// Gives a class other parameters. Its mode stays until it is looked at again.
    pub(super) fn change(&mut self, slot: usize, spec: &HtbClassSpec, now: Time) {
        if let Some(sharing) = &self.sharing
            && let Some(pots) = &mut self.pots[slot]
        {
            pots.change(spec, sharing.unit, now);
        }
        let r2q = self.r2q;
        let class = self.class(slot);
        let was = usize::from(!class.plain);
        class.change(spec, r2q);
        let is = usize::from(!class.plain);
        self.framed = self.framed + is - was;
        if self.pots(slot).is_some() && self.class(slot).mode != Mode::CanSend {
            // What it waits for may come earlier now.
            self.stop_waiting(slot);
            self.wait(slot, 0);
        }
        self.publish(slot);
    }

    /// Removes a leaf. If it was the last one of the class above, that is a leaf again.
    pub(super) fn remove(&mut self, slot: usize, now: Time) {
        self.deactivate(slot);
        self.stop_waiting(slot);
        let Some(gone) = self.slots[slot].take() else {
            return;
        };
        if let Some(pots) = self.pots.get_mut(slot) {
            *pots = None;
        }
        self.by_minor[usize::from(gone.class.minor)] = NONE;
        self.framed -= usize::from(!gone.class.plain);
        if gone.class.parent == NONE {
            return;
        }
        let above = usize::from(gone.class.parent);
        self.class(above).children -= 1;
        if self.class(above).children == 0 {
            self.stop_waiting(above);
            self.feeds[above] = None;
            self.class(above).reset(now);
            if let Some(pots) = self.pots(above) {
                pots.set_inner(false);
            }
            self.publish(above);
        }
    }

    /// Says that a leaf has packets.
    #[inline]
    pub(super) fn activate(&mut self, leaf: usize) {
        let class = self.class(leaf);
        if class.active != 0 || class.level != 0 {
            return;
        }
        class.active = 1 << class.prio;
        // What is usual, without what follows from borrowing.
        if class.mode == Mode::CanSend {
            let (prio, minor, mask) = (usize::from(class.prio), class.minor, class.active);
            self.levels[0].used |= mask;
            row(&mut self.levels[0].rows, prio).insert(minor);
        } else {
            self.activate_prios(leaf);
        }
    }

    /// Says that a leaf has no packets.
    #[inline]
    pub(super) fn deactivate(&mut self, leaf: usize) {
        let class = self.class(leaf);
        let mask = class.active;
        if mask == 0 {
            return;
        }
        // What is usual, without what follows from borrowing.
        if class.mode == Mode::CanSend && class.level == 0 {
            class.active = 0;
            let (prio, minor) = (mask.trailing_zeros() as usize, class.minor);
            let row = row(&mut self.levels[0].rows, prio);
            row.remove(minor);
            if row.is_empty() {
                self.levels[0].used &= !mask;
            }
        } else {
            self.deactivate_prios(leaf, false);
            self.class(leaf).active = 0;
        }
        if let Some(pots) = self.pots(leaf) {
            pots.leave();
        }
    }

    /// Says that no leaf has packets.
    pub(super) fn deactivate_all(&mut self) {
        for slot in 0..self.slots.len() {
            if self.level(slot) == Some(0) {
                self.deactivate(slot);
            }
        }
    }

    /// Puts a class where its mode says, and so those above that had nothing to send before.
    fn activate_prios(&mut self, slot: usize) {
        self.ask_above(slot);
        let (mut slot, mut mask) = (slot, self.class(slot).active);
        while mask != 0 {
            let &mut Class {
                mode,
                parent,
                minor,
                level,
                ..
            } = self.class(slot);
            match mode {
                Mode::CannotSend => return,
                Mode::CanSend => {
                    let level = &mut self.levels[usize::from(level)];
                    level.used |= mask;
                    bits(mask).for_each(|prio| row(&mut level.rows, prio).insert(minor));
                    return;
                }
                Mode::MayBorrow if parent == NONE => return,
                Mode::MayBorrow => {}
            }
            let above = usize::from(parent);
            for prio in bits(mask) {
                let feed = row(self.feeds[above].get_or_insert_default(), prio);
                if !feed.is_empty() {
                    mask &= !(1 << prio);
                }
                feed.insert(minor);
            }
            self.note_asked(above, mask);
            self.class(above).active |= mask;
            slot = parent.into();
        }
    }

    /// Takes a class from where its mode had put it, and so those above that have nothing to send
    /// any more; or it does, but not there. `returns`: it will soon be there again.
    fn deactivate_prios(&mut self, slot: usize, returns: bool) {
        self.ask_no_more(slot);
        let (mut slot, mut mask) = (slot, self.class(slot).active);
        while mask != 0 {
            let &mut Class {
                mode,
                parent,
                minor,
                level,
                ..
            } = self.class(slot);
            match mode {
                Mode::CannotSend => return,
                Mode::CanSend => {
                    let level = &mut self.levels[usize::from(level)];
                    for prio in bits(mask) {
                        let row = row(&mut level.rows, prio);
                        row.remove(minor);
                        if row.is_empty() {
                            level.used &= !(1 << prio);
                        }
                    }
                    return;
                }
                Mode::MayBorrow if parent == NONE => return,
                Mode::MayBorrow => {}
            }
            let above = usize::from(parent);
            for prio in bits(mask) {
                let feed = row(self.feeds[above].get_or_insert_default(), prio);
                feed.suspend(minor);
                if !feed.is_empty() {
                    mask &= !(1 << prio);
                }
            }
            self.class(above).active &= !mask;
            self.note_not_asked(above, mask, returns);
            slot = parent.into();
        }
    }

    /// Puts a class into another mode, for so many nanoseconds.
    #[inline(never)]
    pub(super) fn change_mode(&mut self, slot: usize, mode: Mode, wait: u64, now: Time) {
        self.stop_waiting(slot);
        self.enter_mode(slot, mode, wait, now);
    }

    /// As [`change_mode`](Scheduler::change_mode), for a class that does not wait.
    fn enter_mode(&mut self, slot: usize, mode: Mode, wait: u64, now: Time) {
        if mode == Mode::MayBorrow && self.class(slot).level == 0 {
            self.weigh(slot, now);
        }
        self.set_mode(slot, mode);
        if mode != Mode::CanSend {
            self.wait(slot, now.nanos().saturating_add(wait.max(1)));
        }
    }

    /// Puts a class into another mode.
    fn set_mode(&mut self, slot: usize, mode: Mode) {
        let class = self.class(slot);
        let before = class.mode;
        if mode == before {
            return;
        }
        if mode == Mode::CannotSend {
            self.slot(slot).counters.own.count_overlimit();
            self.overlimits += 1;
        }
        if self.class(slot).active == 0 {
            self.class(slot).mode = mode;
            return;
        }
        // With tokens of its own it will soon wait again; at its ceil it takes nothing.
        self.deactivate_prios(slot, mode == Mode::CanSend);
        self.class(slot).mode = mode;
        self.activate_prios(slot);
    }

    pub(super) fn wait(&mut self, slot: usize, until: u64) {
        let class = self.class(slot);
        class.wakes = until;
        let level = usize::from(class.level);
        self.levels[level].waiting.insert((until, slot as u16));
        self.events[level] = self.events[level].min(until);
    }

    pub(super) fn stop_waiting(&mut self, slot: usize) {
        let class = self.class(slot);
        if class.mode != Mode::CanSend {
            let (level, key) = (usize::from(class.level), (class.wakes, slot as u16));
            self.levels[level].waiting.remove(&key);
            // An event may be left that finds nothing to do.
        }
    }

    /// Lets the classes of a level whose time has come do more.
    #[inline]
    pub(super) fn run_events(&mut self, level: usize, now: Time) {
        if self.events[level] <= now.nanos() {
            self.run_due_events(level, now);
        }
    }

    fn run_due_events(&mut self, level: usize, now: Time) {
        for _ in 0..EVENTS {
            let waiting = &mut self.levels[level].waiting;
            let Some(&(_, slot)) = waiting.first().filter(|first| first.0 <= now.nanos()) else {
                break;
            };
            waiting.pop_first();
            let slot = usize::from(slot);
            let (mode, wait) = self.mode_at(slot, now);
            self.enter_mode(slot, mode, wait, now);
        }
        let first = self.levels[level].waiting.first();
        let next = first.map_or(u64::MAX, |&(time, _)| time);
        // Any that are left over: in the next call, which is at a later time.
        self.events[level] = next.max(now.nanos().saturating_add(1));
    }

    /// True if no leaf may send before the next event.
    pub(super) fn is_blocked(&self) -> bool {
        self.levels.iter().all(|level| level.used == 0)
    }

    /// The earliest time at which a class may do more than now; none is later than this.
    pub(super) fn next_event(&self) -> Time {
        Time(self.events.into_iter().min().unwrap_or(u64::MAX))
    }

    fn publish(&mut self, slot: usize) {
        let tokens = self.pots(slot).map(|pots| pots.tokens());
        let Slot {
            class, counters, ..
        } = self.slot(slot);
        counters
            .own
            .set_tokens(tokens.unwrap_or_else(|| class.tokens()));
    }
}
