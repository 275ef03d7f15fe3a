//! Scheduling where the classes' rates are shared with other instances.
//!
//! INV-Q-12: for each priority, what is asked for of an inner class is the sum of what is asked for
//! of those classes below it that wait for it: that are active and may borrow.

use softnet::qdisc::Next;
use softnet::time::Time;

use super::class::{Mode, NONE};
use super::pots::Pots;
use super::scheduler::{Scheduler, bits};

/// Nanoseconds for which a class stays in the race after nothing waits for it.
const LINGER: u64 = 1_000_000;

impl Scheduler {
    /// Pots of a class. `None`: nothing is shared.
    #[inline]
    pub(super) fn pots(&mut self, slot: usize) -> Option<&mut Pots> {
        self.pots.get_mut(slot)?.as_mut()
    }

    /// Mode of a class now, and nanoseconds until it may do more.
    pub(super) fn mode_at(&mut self, slot: usize, now: Time) -> (Mode, u64) {
        let class = self.class(slot);
        let (inner, active) = (class.level > 0, class.active);
        match self.pots(slot) {
            Some(pots) => pots.mode_at(inner, active, now),
            None => self.class(slot).mode_at(now),
        }
    }

    /// Bytes that a leaf that borrows sends before it is the turn of the next one.
    pub(super) fn quantum(&mut self, leaf: usize) -> i32 {
        match self.pots(leaf) {
            Some(pots) => pots.quantum,
            None => self.class(leaf).quantum,
        }
    }

    /// As [`weigh`](Scheduler::weigh), if it is time.
    pub(super) fn look_at_flows(&mut self, leaf: usize, now: Time) {
        if self.pots(leaf).is_none_or(|pots| !pots.is_due(now)) {
            return;
        }
        self.weigh(leaf, now);
    }

    /// Looks how the flows of a leaf are spread over the instances.
    pub(super) fn weigh(&mut self, leaf: usize, now: Time) {
        self.ask_no_more(leaf);
        let quantum = self.class(leaf).quantum;
        if let Some(pots) = self.pots(leaf) {
            pots.weigh(quantum, now);
        }
        self.ask_above(leaf);
    }

    /// A class begins to wait for the one above it, if it may borrow.
    pub(super) fn ask_above(&mut self, slot: usize) {
        self.change_asked(slot, |weight| (0, weight));
    }

    /// A class that waited for the one above it does so no more.
    pub(super) fn ask_no_more(&mut self, slot: usize) {
        self.change_asked(slot, |weight| (weight, 0));
    }

    fn change_asked(&mut self, slot: usize, change: impl Fn(u64) -> (u64, u64)) {
        if self.pots.is_empty() {
            return;
        }
        for prio in bits(self.class(slot).active) {
            let (from, to) = change(self.pots(slot).map_or(0, |pots| pots.weight(prio)));
            let mut at = slot;
            while self.class(at).mode == Mode::MayBorrow && self.class(at).parent != NONE {
                at = self.class(at).parent.into();
                if let Some(pots) = self.pots(at) {
                    pots.set_weight(prio, from, to);
                }
            }
        }
    }

    /// Leaves of these priorities come to wait for a class. If one is higher than all that wait,
    /// the class is looked at again: who comes first may be another now.
    pub(super) fn note_asked(&mut self, slot: usize, prios: u8) {
        let class = self.class(slot);
        let higher = prios.trailing_zeros() < class.active.trailing_zeros();
        if higher && class.mode != Mode::CanSend && !self.pots.is_empty() {
            self.stop_waiting(slot);
            self.wait(slot, 0);
        }
    }

    /// Leaves of these priorities wait for a class no more. If one of them `returns` soon, as it
    /// has packets and sends them with tokens of its own, others must not take its share meanwhile.
    pub(super) fn note_not_asked(&mut self, slot: usize, prios: u8, returns: bool) {
        let left = self.class(slot).active;
        if self.pots.is_empty() || prios.trailing_zeros() >= left.trailing_zeros() {
            return;
        }
        if !returns || left != 0 {
            self.pots(slot).into_iter().for_each(Pots::leave);
        } else if !self.lingering.iter().any(|&(at, _)| at == slot) {
            self.lingering.push((slot, None));
        }
    }

    /// Says of classes that nothing has waited for them for a while, or will have when this
    /// instance runs next.
    #[cold]
    fn stop_lingering(&mut self, next: Next, now: Time) {
        let next = match next {
            Next::At(time) => time,
            Next::Ready => now,
            // Without a backlog.
            Next::Idle => Time::MAX,
        };
        let mut lingering = std::mem::take(&mut self.lingering);
        lingering.retain_mut(|(slot, until)| {
            if self.level(*slot).is_none() || self.class(*slot).active != 0 {
                return false;
            }
            let over = *until.get_or_insert(now.plus_nanos(LINGER)) <= next;
            if over && let Some(pots) = self.pots(*slot) {
                pots.leave();
            }
            !over
        });
        self.lingering = lingering;
    }

    /// At the end of a call: when this instance runs again.
    #[inline]
    pub(super) fn announce(&mut self, next: Next, now: Time) {
        if !self.lingering.is_empty() {
            self.stop_lingering(next, now);
        }
        if let Some(sharing) = &self.sharing {
            sharing.instance.announce(next, now);
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
impl Scheduler {
    /// INV-Q-12.
    pub(super) fn check_asked(&mut self) {
        for slot in 0..self.slots.len() {
            if self.level(slot).is_none_or(|level| level == 0) {
                continue;
            }
            for prio in 0..8 {
                let mut sum = 0;
                for below in 0..self.slots.len() {
                    let waits = self.level(below).is_some()
                        && usize::from(self.class(below).parent) == slot
                        && self.class(below).mode == Mode::MayBorrow
                        && self.class(below).active & 1 << prio != 0;
                    if waits {
                        sum += self.pots(below).map_or(0, |pots| pots.weight(prio));
                    }
                }
                let asked = self.pots(slot).map(|pots| pots.weight(prio));
                assert_eq!(asked, Some(sum), "{slot} {prio}");
            }
        }
    }
}
