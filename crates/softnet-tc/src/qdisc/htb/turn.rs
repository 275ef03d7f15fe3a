//! Turns: which leaf is served next, how much it may send before anything has to be decided again,
//! and what it is charged for. What leaves, and in which order, is the same as if each packet
//! were a turn of its own.
//!
//! A leaf sends a packet in each of its turns, even while it still owes bytes, as in the kernel.
//! If its packets are longer than its quantum, it gets more than its share, and owes ever more.
//! Where rates are shared, a leaf that borrows and owes bytes is passed over instead until its
//! quanta have paid for them, so it owes at most what it sent in one turn.

use softnet::qdisc::{WireSize, WireSum};
use softnet::time::Time;

use super::class::{LEVELS, Mode, NONE};
use super::row::Row;
use super::scheduler::{Scheduler, Slot, bits};
use crate::account::Sent;

/// Where a leaf is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) leaf: usize,
    level: usize,
    prio: usize,
}

/// Outcome of a leaf's turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    Sent(Sent),
    /// It holds its packets back.
    Held,
    /// It had none.
    Empty,
}

impl Scheduler {
    /// Serves one leaf that may send now. `take` sends from a leaf: at least one packet, and more
    /// as long as their bytes together are at most what is [`allowed`](Scheduler::allowed). False:
    /// none may send.
    pub(super) fn serve(
        &mut self,
        now: Time,
        mut take: impl FnMut(&Scheduler, Turn) -> Taken,
    ) -> bool {
        for level in 0..LEVELS {
            self.run_events(level, now);
            for prio in bits(self.levels[level].used) {
                if self.serve_row(level, prio, now, &mut take) {
                    return true;
                }
            }
        }
        false
    }

    /// The leaf that [`serve`](Scheduler::serve) would serve first, if it has tokens of its own.
    #[inline]
    pub(super) fn next_own(&mut self, now: Time) -> Option<Turn> {
        self.run_events(0, now);
        let used = self.levels[0].used;
        if used == 0 {
            return None;
        }
        let prio = used.trailing_zeros() as usize;
        let leaf = self.own_turn(prio)?;
        Some(Turn {
            leaf,
            level: 0,
            prio,
        })
    }

    /// The leaf that is served after one with tokens of its own, most often.
    #[inline]
    pub(super) fn second_own(&self, turn: Turn) -> Option<usize> {
        let minor = self.levels[0].rows[turn.prio].as_deref()?.second()?;
        self.find(minor)
    }

    fn serve_row(
        &mut self,
        level: usize,
        prio: usize,
        now: Time,
        take: &mut impl FnMut(&Scheduler, Turn) -> Taken,
    ) -> bool {
        if level > 0 {
            // How much they may send depends on what the classes above have.
            self.settle(now);
        }
        // Where the round began, how many it stands for, and the rounds that it takes at least
        // until one that owes bytes may send.
        let (mut first, mut rounds, mut least) = (None, 1, i64::MAX);
        while let Some(turn) = self.turn(level, prio) {
            if first == Some(turn) {
                // None has sent. Where one owes bytes, those rounds pass at once in which the same
                // would come of it; where none does, all hold their packets back.
                if least == i64::MAX {
                    return false;
                }
                rounds = if rounds == 1 { least } else { 1 };
                least = i64::MAX;
            }
            first = first.or(Some(turn));
            if self.owes(turn) {
                least = least.min(self.pay_off(turn, rounds));
                self.advance(turn);
                continue;
            }
            match take(self, turn) {
                Taken::Sent(sent) => {
                    self.charge(turn, sent, now);
                    return true;
                }
                Taken::Held => self.advance(turn),
                Taken::Empty => {
                    self.deactivate(turn.leaf);
                    if first == Some(turn) {
                        first = None;
                    }
                }
            }
        }
        false
    }

    /// True if a leaf is passed over in this round. Where the flows of a leaf are spread over
    /// several instances, its quantum here may be much less than a packet.
    #[inline]
    fn owes(&mut self, turn: Turn) -> bool {
        turn.level > 0 && !self.pots.is_empty() && self.class(turn.leaf).deficit[turn.level] < 0
    }

    /// Gives a leaf that owes bytes the quanta of so many rounds, at most as many as it needs.
    /// Returns how many more it needs, at least 1.
    fn pay_off(&mut self, turn: Turn, rounds: i64) -> i64 {
        let quantum = i64::from(self.quantum(turn.leaf).max(1));
        let deficit = &mut self.class(turn.leaf).deficit[turn.level];
        let after = i64::from(*deficit) + rounds * quantum;
        // Less than a quantum, so it fits.
        *deficit = after.clamp(i32::MIN.into(), quantum - 1) as i32;
        ((-after).max(1) as u64).div_ceil(quantum as u64) as i64
    }

    /// Whose turn it is in a row.
    fn turn(&mut self, level: usize, prio: usize) -> Option<Turn> {
        if level > 0 {
            return self.turn_of_borrower(level, prio);
        }
        let leaf = self.own_turn(prio)?;
        Some(Turn { leaf, level, prio })
    }

    /// The leaf whose turn it is in a row of level 0, where only leaves are.
    #[inline]
    fn own_turn(&mut self, prio: usize) -> Option<usize> {
        let row = self.levels[0].rows[prio].as_deref_mut()?;
        let minor = row.current_or_first()?;
        self.find(minor)
    }

    fn turn_of_borrower(&mut self, level: usize, prio: usize) -> Option<Turn> {
        // The row of the level, and the feeds of the classes on the way down.
        let mut path = [0; LEVELS];
        let mut depth = 0;
        loop {
            let row = self.row_at(level, prio, &path[..depth])?;
            if let Some(minor) = row.current() {
                let slot = self.find(minor)?;
                if self.class(slot).level == 0 {
                    return Some(Turn {
                        leaf: slot,
                        level,
                        prio,
                    });
                }
                *path.get_mut(depth)? = slot;
                depth += 1;
            } else {
                // The last one has had its turn: the first one's, and the next class above.
                if !row.rewind() {
                    return None;
                }
                if depth > 0 {
                    depth -= 1;
                    self.row_at(level, prio, &path[..depth])?.advance();
                }
            }
        }
    }

    fn row_at(&mut self, level: usize, prio: usize, path: &[usize]) -> Option<&mut Row> {
        let rows = match path.last() {
            None => &mut self.levels[level].rows,
            Some(&class) => self.feeds[class].as_deref_mut()?,
        };
        rows[prio].as_deref_mut()
    }

    /// Gives the turn to the next leaf.
    fn advance(&mut self, turn: Turn) {
        let above = match turn.level {
            0 => None,
            _ => Some(usize::from(self.class(turn.leaf).parent)),
        };
        if let Some(row) = self.row_at(turn.level, turn.prio, above.as_slice()) {
            row.advance();
        }
    }

    /// The bytes that a leaf may send in its turn before anything has to be decided again; the
    /// packet with which it sends more is the last one. 0: one packet.
    pub(super) fn allowed(&self, turn: Turn, now: Time) -> u64 {
        let Turn { leaf, level, .. } = turn;
        let slot = self.slots[leaf].as_ref();
        match slot.map(|slot| u64::try_from(slot.class.deficit[level])) {
            Some(Ok(bytes @ 1..)) => bytes.min(self.headroom(leaf, level, now)),
            _ => 0,
        }
    }

    /// The bytes that a leaf may send with the tokens of a level before any mode can change. 0: it
    /// may change with the first packet.
    #[inline]
    fn headroom(&self, leaf: usize, level: usize, now: Time) -> u64 {
        if self.framed > 0 {
            return 0;
        }
        debug_assert!(level == 0 || self.deferred.is_from(NONE));
        let mut least = u64::MAX;
        let mut at = leaf;
        loop {
            let Some(Slot { class, .. }) = &self.slots[at] else {
                return 0;
            };
            let own = usize::from(class.level);
            let pots = self.pots.get(at).and_then(Option::as_ref);
            if own > level {
                // The first packet may end a wait, and the next one begin another.
                if class.mode != Mode::CanSend && class.wakes <= now.nanos() {
                    return 0;
                }
            } else {
                let bytes = match pots {
                    Some(pots) => Some(pots.headroom(own == level)),
                    None => class.headroom(own == level, now),
                };
                match bytes {
                    Some(bytes) => least = least.min(bytes),
                    None => return 0,
                }
            }
            match class.parent {
                NONE => return least,
                // All from there on may send.
                above if self.deferred.is_from(above) => return least,
                above => at = above.into(),
            }
        }
    }

    /// Charges a leaf and those above for what was sent in its turn.
    #[inline]
    pub(super) fn charge(&mut self, turn: Turn, sent: Sent, now: Time) {
        let Turn { leaf, level, .. } = turn;
        let quantum = match level {
            0 => self.class(leaf).quantum,
            _ => self.quantum(leaf),
        };
        if self.class(leaf).count_turn(level, sent.size.bytes, quantum) {
            self.advance(turn);
        }
        if let Some(pots) = self.pots(leaf) {
            pots.flows = sent.flows.max(1);
        }
        if sent.emptied {
            self.deactivate(leaf);
        }
        let size = sent.size;
        let from = match level {
            0 => self.pay_path(leaf as u16, sent.frames, size, true, now),
            _ => leaf as u16,
        };
        self.charge_rest(from, level, sent.frames, size, now);
    }

    /// True if a leaf may send so many packets now, one after the other, if nothing else is
    /// queued.
    pub(super) fn passes(&mut self, leaf: usize, frames: usize, sum: WireSum, now: Time) -> bool {
        self.run_events(0, now);
        if self.class(leaf).mode != Mode::CanSend {
            return false;
        }
        frames == 1 || self.headroom(leaf, 0, now) >= sum.bytes
    }

    /// Charges a leaf that [passes](Scheduler::passes) packets of these sizes, together `sum`.
    pub(super) fn pass(
        &mut self,
        leaf: usize,
        sizes: impl Iterator<Item = WireSize>,
        sum: WireSum,
        now: Time,
    ) {
        let class = self.class(leaf);
        // `each` is used with one packet only, where framing counts.
        let (mut frames, mut each) = (0, 0);
        for size in sizes {
            class.count_turn(0, size.bytes, class.quantum);
            frames += 1;
            each = size.each;
        }
        let WireSum { packets, bytes } = sum;
        let size = WireSize {
            packets,
            bytes,
            each,
        };
        let from = self.pay_path(leaf as u16, frames, size, false, now);
        self.charge_rest(from, 0, frames, size, now);
    }

    /// Charges a class, unless it is [`NONE`], and those above for what was sent with the tokens of
    /// a level.
    #[inline]
    fn charge_rest(&mut self, from: u16, level: usize, frames: u64, size: WireSize, now: Time) {
        if from != NONE {
            self.charge_from(from.into(), level, frames, size, now);
        }
    }

    /// Charges a class and those above for what was sent with the tokens of a level.
    #[inline(never)]
    fn charge_from(&mut self, from: usize, level: usize, frames: u64, size: WireSize, now: Time) {
        let WireSize { packets, bytes, .. } = size;
        self.settle(now);
        if level > 0 {
            self.look_at_flows(from, now);
        }
        let mut at = from;
        loop {
            let Slot { class, counters } =
                self.slots[at].as_mut().expect("the tree names its classes");
            let (above, own) = (class.parent, usize::from(class.level));
            let before = class.mode;
            let (mode, wait) = match self.pots.get_mut(at).and_then(Option::as_mut) {
                None => class.charge(size, own >= level, now),
                Some(pots) => {
                    let (cost, is) = (class.link.cost(size), (before, class.active));
                    match own > level {
                        true => pots.charge_apart(cost, is, now),
                        false => pots.charge(cost, own == level, own > 0, is, now),
                    }
                }
            };
            let tokens = match self.pots.get(at) {
                Some(Some(pots)) => pots.tokens(),
                _ => class.tokens(),
            };
            let htb = &counters.own;
            htb.count_sent(own == level, own < level, frames);
            htb.set_tokens(tokens);
            if own > 0 {
                counters.count_sent(WireSum { packets, bytes });
            }
            if mode != before {
                self.change_mode(at, mode, wait, now);
            }
            if above == NONE {
                return;
            }
            at = above.into();
        }
    }
}
