//! COBALT: CoDel, and BLUE for flows that do not react to it.
//!
//! CoDel (RFC 8289) as cake has it: the count goes down one by one after the queue has drained, at
//! the distances at which it went up. BLUE (Feng and others, 2002) drops at random, with a
//! probability that rises while the memory is full and falls while the queue is empty.
//!
//! The state belongs to one flow. Times are exact, and so is the control law: the kernel's
//! approximates the root.

use softnet::mem::{Packet, Pool};
use softnet::time::Time;

use crate::qdisc::aqm::mark_ce;

/// Steps of BLUE's probability, in 2^-32: up and down.
const UP: u32 = 1 << 24;
const DOWN: u32 = 1 << 20;
/// Steps back of the count in one call, at most; more follow in the next.
const STEPS_BACK: u32 = 256;

/// Parameters of all flows of a tin, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Params {
    /// The delay that may last.
    pub(super) target: u64,
    /// About the longest round trip.
    pub(super) interval: u64,
    /// Time in which the longest packet leaves.
    pub(super) mtu_time: u64,
}

/// Fate of a packet that leaves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Send,
    /// It was marked, and is sent.
    Marked,
    Drop,
}

/// State of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cobalt {
    /// When the probability was changed last.
    blue_timer: Time,
    /// When the next packet is to be dropped, or the count goes down.
    drop_next: Time,
    /// Packets dropped in a row.
    count: u32,
    /// BLUE's probability, in 2^-32.
    p_drop: u32,
    /// The delay is above the target.
    dropping: bool,
}

impl Cobalt {
    /// The memory is full, and the flow is the longest. True: it counts as unresponsive from now
    /// on.
    pub(super) fn full(&mut self, params: &Params, now: Time) -> bool {
        let mut began = false;
        if now.nanos().saturating_sub(self.blue_timer.nanos()) > params.target {
            began = self.p_drop == 0;
            self.p_drop = self.p_drop.saturating_add(UP);
            self.blue_timer = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
        began
    }

    /// The queue was found empty. True: it counts as unresponsive no more.
    pub(super) fn empty(&mut self, params: &Params, now: Time) -> bool {
        let mut ended = false;
        let since = now.nanos().saturating_sub(self.blue_timer.nanos());
        if self.p_drop != 0 && since > params.target {
            self.p_drop = self.p_drop.saturating_sub(DOWN);
            self.blue_timer = now;
            ended = self.p_drop == 0;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.drop_next = self.later(self.drop_next, params);
        }
        ended
    }

    /// True if it remembers nothing that would matter to the next packet.
    pub(super) fn is_at_rest(&self, now: Time) -> bool {
        self.p_drop == 0 && self.count == 0 && now >= self.drop_next
    }

    /// True if BLUE's probability is not 0.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.p_drop != 0
    }

    /// `interval / sqrt(count)` later.
    fn later(&self, from: Time, params: &Params) -> Time {
        // Square root and division are exact to the last of 53 bits, on every machine.
        let distance = params.interval as f64 / f64::from(self.count.max(1)).sqrt();
        from.plus_nanos((distance as u64).max(1))
    }

    /// Decides on a packet that has waited for `sojourn` nanoseconds. `bulk` is the number of
    /// flows with a backlog, where those that wait for each other may make it wait longer.
    /// `random` is even in 32 bits.
    pub(super) fn decide(
        &mut self,
        params: &Params,
        now: Time,
        (sojourn, bulk): (u64, u64),
        packet: &mut Packet,
        pool: &Pool,
        random: impl FnOnce() -> u32,
    ) -> Fate {
        let is_late = sojourn > params.target
            && sojourn > params.mtu_time.saturating_mul(2 * bulk)
            && sojourn > params.mtu_time.saturating_mul(4);
        let is_due = self.count > 0 && now >= self.drop_next;
        if is_late {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = self.later(now, params);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        let mut fate = Fate::Send;
        if is_due && self.dropping {
            fate = match mark_ce(packet, pool) {
                true => Fate::Marked,
                false => Fate::Drop,
            };
            self.count = self.count.saturating_add(1);
            self.drop_next = self.later(self.drop_next, params);
        } else if is_due {
            let mut steps = 0;
            while self.count > 0 && now >= self.drop_next && steps < STEPS_BACK {
                self.count -= 1;
                self.drop_next = self.later(self.drop_next, params);
                steps += 1;
            }
        }
        // Marked packets, too: a flow that fills the memory does not react to marks.
        if self.p_drop != 0 && fate != Fate::Drop && random() < self.p_drop {
            fate = Fate::Drop;
        }
        if self.count == 0 {
            // The state is kept for as long.
            self.drop_next = now.plus_nanos(params.interval);
        } else if now > self.drop_next && fate != Fate::Drop {
            self.drop_next = now;
        }
        fate
    }
}
