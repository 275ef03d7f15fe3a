//! Deficit round robin among classes (Shreedhar and Varghese, 1995), and the two kinds that are
//! little more: [`drr`](Drr), whose classes are added one by one, and [`ets`](Ets), whose bands
//! come with it and follow others in strict priority.
//!
//! A class that gets its first packet goes behind the others with one quantum of credit. The class
//! in front sends while its credit covers its next packet; else it gets another quantum and goes to
//! the end. As in the kernel, credit that is left when a class has nothing more is lost.
//!
//! Two things are other than in the kernel. A class that holds its packets back (a `tbf`) is out of
//! the round meanwhile, where the kernel's stop until it lets one go. And rounds in which no class
//! has credit enough are counted, not walked: a small quantum costs no more than one of a packet.
//!
//! Fairness: while two classes both have packets, and a packet is at most `L` bytes, what they sent
//! for each byte of their quanta `q` and `p` differs by at most `1 + L/q + L/p` rounds, whatever
//! other classes do (Shreedhar and Varghese, theorem 4.1, for a quantum below `L`, too).

mod drr;
mod ets;

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Next, Peek, WireSum};
use softnet::time::Time;

use super::held::Held;
use crate::account::{Child, Children, Run};

pub use drr::{Drr, DrrClassSpec};
pub use ets::{Ets, EtsSpec};

/// The link of a class that is not in the round.
const UNLISTED: u32 = u32::MAX;

/// Bounds of a quantum, as in the kernel, which brings one from a request within them.
pub(super) const QUANTUM: std::ops::RangeInclusive<u32> = 256..=1 << 20;

/// A class in the round, or not.
#[derive(Clone, Debug)]
struct Turn {
    before: u32,
    after: u32,
    quantum: u32,
    /// Bytes that it may still send in its turn.
    credit: u64,
}

/// The classes with packets, by their slots, in a ring.
#[derive(Debug, Default)]
struct Rounds {
    turns: Vec<Turn>,
    /// Whose turn it is, if there is any class.
    first: u32,
    len: usize,
    /// Classes with packets that are not there.
    held: Held,
}

impl Rounds {
    fn turn(&mut self, slot: u32) -> &mut Turn {
        &mut self.turns[slot as usize]
    }

    fn is_listed(&self, slot: usize) -> bool {
        let turn = self.turns.get(slot);
        turn.is_some_and(|turn| turn.after != UNLISTED)
    }

    /// Sets the quantum of a class, from its next round on. There is such a class from now on.
    fn set(&mut self, slot: usize, quantum: u32) {
        if self.turns.len() <= slot {
            let turn = Turn {
                before: UNLISTED,
                after: UNLISTED,
                quantum,
                credit: 0,
            };
            self.turns.resize(slot + 1, turn);
        }
        self.turns[slot].quantum = quantum.max(1);
        self.held.set(slot);
    }

    /// Brings a class that has packets into the round; nothing happens if it is there.
    #[inline]
    fn activate(&mut self, slot: usize, classes: &Children) {
        if self.is_listed(slot) || slot >= self.turns.len() {
            return;
        }
        let slot = slot as u32;
        if self.len == 0 {
            (self.turn(slot).before, self.turn(slot).after) = (slot, slot);
            self.first = slot;
        } else {
            let (first, last) = (self.first, self.turns[self.first as usize].before);
            (self.turn(slot).before, self.turn(slot).after) = (last, first);
            self.turn(last).after = slot;
            self.turn(first).before = slot;
        }
        self.len += 1;
        let turn = self.turn(slot);
        turn.credit = turn.quantum.into();
        self.publish(slot, classes);
    }

    /// Takes a class that has no packets out of the round; nothing happens if it is not there.
    #[inline]
    fn deactivate(&mut self, slot: usize, classes: &Children) {
        if !self.is_listed(slot) {
            return;
        }
        let slot = slot as u32;
        let Turn { before, after, .. } = self.turns[slot as usize];
        self.turn(before).after = after;
        self.turn(after).before = before;
        if self.first == slot {
            self.first = after;
        }
        self.len -= 1;
        let turn = self.turn(slot);
        (turn.before, turn.after, turn.credit) = (UNLISTED, UNLISTED, 0);
        self.publish(slot, classes);
    }

    /// Takes a class out of the round for good, whether it holds packets back or not.
    fn leave(&mut self, slot: usize, classes: &Children) {
        self.held.release(slot);
        self.deactivate(slot, classes);
    }

    /// Is there as its queue says (INV-Q-7).
    #[inline]
    fn update(&mut self, slot: usize, classes: &Children) {
        self.held.release(slot);
        if classes.get(slot).is_none_or(Child::is_empty) {
            self.deactivate(slot, classes);
        } else {
            self.activate(slot, classes);
        }
    }

    /// A class that has packets sends none until then.
    fn hold(&mut self, slot: usize, until: Time, classes: &Children) {
        self.deactivate(slot, classes);
        self.held.hold(slot, until);
    }

    fn publish(&self, slot: u32, classes: &Children) {
        if let Some(child) = classes.get(slot as usize) {
            child
                .counters()
                .own
                .put(0, self.turns[slot as usize].credit);
        }
    }

    /// Gives whose turn it is so many quanta, and the turn to the next one.
    fn pass(&mut self, quanta: u64, classes: &Children) {
        let turn = &mut self.turns[self.first as usize];
        let more = u64::from(turn.quantum).saturating_mul(quanta);
        turn.credit = turn.credit.saturating_add(more);
        let next = turn.after;
        self.publish(self.first, classes);
        self.first = next;
    }

    /// Lets classes send in turn until it is `left` wire packets, of which it keeps count.
    fn dequeue(
        &mut self,
        classes: &mut Children,
        left: &mut u64,
        out: &mut PacketList,
        cx: &mut Cx,
    ) -> Next {
        while let Some(slot) = self.held.due(cx.now) {
            self.activate(slot, classes);
        }
        // Classes that were passed since one sent, and the fewest quanta that one of them lacked.
        let (mut passed, mut lacking) = (0, u64::MAX);
        while self.len > 0 {
            if *left == 0 {
                return Next::Ready;
            }
            if passed >= self.len {
                // Each of the next rounds but the last would be as this one.
                for _ in 0..self.len {
                    self.pass(lacking.saturating_sub(1), classes);
                }
                (passed, lacking) = (0, u64::MAX);
            }
            let slot = self.first as usize;
            let Turn { after, credit, .. } = self.turns[slot];
            classes.prefetch_next(after as usize);
            classes.prefetch(self.turns[after as usize].after as usize);
            let most = *left;
            let more =
                |taken: WireSum, next: u64| taken.packets < most && taken.bytes + next <= credit;
            let run = classes.pop_pfifo_turn(slot, more, out);
            let Some(run) = run.or_else(|| self.send_one(slot, classes, out, cx)) else {
                continue;
            };
            if run.sent.packets == 0 {
                let turn = &self.turns[slot];
                let lacks = run.next.unwrap_or(0).saturating_sub(turn.credit);
                lacking = lacking.min(lacks.div_ceil(turn.quantum.into()));
                passed += 1;
                self.pass(1, classes);
                continue;
            }
            *left = left.saturating_sub(run.sent.packets);
            let turn = self.turn(slot as u32);
            turn.credit = turn.credit.saturating_sub(run.sent.bytes);
            match run.next {
                None => self.deactivate(slot, classes),
                Some(_) => self.publish(slot as u32, classes),
            }
            (passed, lacking) = (0, u64::MAX);
        }
        match self.held.next() {
            Time::MAX => Next::Idle,
            time => Next::At(time),
        }
    }

    /// Lets the class whose turn it is send one packet, if its credit covers that: of any kind of
    /// queue. `None`: it has none to send now, and is out of the round.
    #[inline(never)]
    fn send_one(
        &mut self,
        slot: usize,
        classes: &mut Children,
        out: &mut PacketList,
        cx: &mut Cx,
    ) -> Option<Run> {
        let credit = self.turns[slot].credit;
        match classes.pop_turn(slot, |bytes| bytes <= credit, out, cx) {
            Ok(run) => return Some(run),
            Err(Some(until)) => self.hold(slot, until, classes),
            Err(None) => self.leave(slot, classes),
        }
        None
    }

    /// The first packet that leaves, where that shows without a change: whose turn it is has one
    /// that its credit covers.
    fn peek(&self, classes: &Children, now: Time) -> Peek {
        let due = self.held.next();
        if self.len == 0 {
            return match due {
                Time::MAX => Peek::Idle,
                time if time > now => Peek::At(time),
                _ => Peek::Unknown,
            };
        }
        let slot = self.first as usize;
        let first = classes.get(slot).map(|child| child.peek_only(now));
        match first {
            // One that is due goes behind.
            Some(Peek::Packet(size)) if size.bytes <= self.turns[slot].credit => {
                Peek::Packet(size)
            }
            _ => Peek::Unknown,
        }
    }

    /// Nothing is queued any more.
    fn clear(&mut self, classes: &Children) {
        self.held.clear();
        while self.len > 0 {
            self.deactivate(self.first as usize, classes);
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
