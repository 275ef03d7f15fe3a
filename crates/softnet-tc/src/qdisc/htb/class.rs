//! One class: its two token buckets and what they let it do.
//!
//! Tokens are billionths of a byte, so that nanoseconds times bytes per second is exact (see
//! [`bucket`](crate::rate::bucket)); here they may be negative. A class may send as long as it has
//! no debt, whatever the packet costs, and is then in debt for it. What a change of the rate
//! preserves is time, as in the kernel: a full bucket stays full, and a debt is paid at the same
//! moment.

use softnet::qdisc::WireSize;
use softnet::time::Time;

use super::spec::HtbClassSpec;
use crate::account::LinkCost;
use crate::rate::UNIT;

/// Levels of classes, leaves included.
pub(super) const LEVELS: usize = 8;
/// Priorities of leaves.
pub(super) const PRIOS: usize = 8;
/// No class.
pub(super) const NONE: u16 = u16::MAX;
/// The longest time, in nanoseconds, for which a debt is remembered and tokens come.
const MEMORY: i64 = 60_000_000_000;
/// No debt is higher: 4.6 GB.
const MAX_DEBT: i64 = 1 << 62;

/// Token units of so many bytes.
#[inline]
pub(super) fn units(bytes: u64) -> i64 {
    i64::try_from(bytes.saturating_mul(UNIT)).unwrap_or(i64::MAX)
}

/// Mode of a class: what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Send, and lend to the classes below.
    CanSend,
    /// Send if a class above lends to it.
    MayBorrow,
    /// Nothing.
    CannotSend,
}

/// One of the two buckets.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    /// Bytes per second: token units in a nanosecond.
    rate: i64,
    /// Token units when full.
    capacity: i64,
    now: i64,
}

impl Tokens {
    fn new(rate: u64, bytes: u64) -> Tokens {
        // Both have been checked.
        let capacity = (bytes * UNIT) as i64;
        Tokens {
            rate: rate as i64,
            capacity,
            now: capacity,
        }
    }

    /// After so many nanoseconds, were it never full.
    #[inline]
    fn after(&self, elapsed: i64) -> i64 {
        self.now.saturating_add(elapsed.saturating_mul(self.rate))
    }

    /// Tokens left after so many nanoseconds and a cost. `None`: a debt, or numbers that are out
    /// of range.
    #[inline]
    fn left(&self, elapsed: i64, cost: i64) -> Option<i64> {
        let tokens = self.now.checked_add(elapsed.checked_mul(self.rate)?)?;
        let left = tokens.min(self.capacity).checked_sub(cost)?;
        (left >= 0).then_some(left)
    }

    fn charge(&mut self, tokens: i64, cost: i64) {
        self.now = tokens.min(self.capacity).saturating_sub(cost);
        if self.now < 0 {
            self.now = self
                .now
                .max(-self.rate.saturating_mul(MEMORY).min(MAX_DEBT));
        }
    }

    /// Nanoseconds until a debt is paid.
    fn wait(&self, debt: i64) -> u64 {
        debt.unsigned_abs().div_ceil(self.rate.unsigned_abs())
    }

    /// Takes over the parameters of `new`; tokens stand for the same time as before.
    fn change(&mut self, new: Tokens) {
        let same = i128::from(self.now) * i128::from(new.rate) / i128::from(self.rate);
        let now = same.clamp(-i128::from(MAX_DEBT), i64::MAX.into());
        *self = Tokens {
            now: now as i64,
            ..new
        };
    }
}

/// A class, as the scheduler knows it.
#[derive(Debug)]
pub(super) struct Class {
    /// For what it sends by itself and lends.
    tokens: Tokens,
    /// For all that it sends (`ceil`).
    ceil: Tokens,
    /// Tokens have been counted up to here.
    counted: Time,
    /// When it is looked at again, if it is not [`Mode::CanSend`].
    pub(super) wakes: u64,
    /// The class above, or [`NONE`].
    pub(super) parent: u16,
    pub(super) minor: u16,
    /// Classes right below.
    pub(super) children: u16,
    /// 0: a leaf. 7: at the root, with classes below.
    pub(super) level: u8,
    pub(super) mode: Mode,
    /// Priorities at which there is something to send: of a leaf at most one, its own.
    pub(super) active: u8,
    /// A leaf's, from the next time on that it becomes active.
    pub(super) prio: u8,
    /// True if a packet costs its length.
    pub(super) plain: bool,
    pub(super) quantum: i32,
    /// Bytes that a leaf may send before it is the turn of the next one, at each level from which
    /// it borrows.
    pub(super) deficit: [i32; LEVELS],
    pub(super) link: LinkCost,
}

impl Class {
    /// A leaf with full buckets.
    pub(super) fn new(minor: u16, parent: u16, spec: &HtbClassSpec, r2q: u32, now: Time) -> Class {
        Class {
            tokens: Tokens::new(spec.rate, spec.burst),
            ceil: Tokens::new(spec.ceil, spec.cburst),
            counted: now,
            wakes: 0,
            parent,
            minor,
            children: 0,
            level: 0,
            mode: Mode::CanSend,
            active: 0,
            prio: spec.prio(),
            plain: spec.link.is_plain(),
            quantum: spec.quantum(r2q),
            deficit: [0; LEVELS],
            link: spec.link,
        }
    }

    pub(super) fn change(&mut self, spec: &HtbClassSpec, r2q: u32) {
        self.tokens.change(Tokens::new(spec.rate, spec.burst));
        self.ceil.change(Tokens::new(spec.ceil, spec.cburst));
        // What only leaves use stays as it was for when it is one again (`htb_change_class`).
        if self.level == 0 {
            self.prio = spec.prio();
            self.quantum = spec.quantum(r2q);
        }
        self.plain = spec.link.is_plain();
        self.link = spec.link;
    }

    /// A leaf again, with full buckets.
    pub(super) fn reset(&mut self, now: Time) {
        self.tokens.now = self.tokens.capacity;
        self.ceil.now = self.ceil.capacity;
        self.counted = now;
        self.level = 0;
        self.mode = Mode::CanSend;
        self.deficit = [0; LEVELS];
    }

    #[inline]
    fn elapsed(&self, now: Time) -> i64 {
        let elapsed = now.nanos().saturating_sub(self.counted.nanos());
        elapsed.min(MEMORY as u64) as i64
    }

    /// Mode now, and nanoseconds until it may do more.
    pub(super) fn mode_at(&self, now: Time) -> (Mode, u64) {
        self.mode_after(self.elapsed(now))
    }

    #[inline]
    fn mode_after(&self, elapsed: i64) -> (Mode, u64) {
        let ceil = self.ceil.after(elapsed);
        if ceil < 0 {
            return (Mode::CannotSend, self.ceil.wait(ceil));
        }
        let tokens = self.tokens.after(elapsed);
        if tokens < 0 {
            return (Mode::MayBorrow, self.tokens.wait(tokens));
        }
        (Mode::CanSend, 0)
    }

    /// Bytes that may be charged before the mode can change, where the class itself pays or is
    /// lent to. `None`: the first packet may change it.
    #[inline]
    pub(super) fn headroom(&self, pays: bool, now: Time) -> Option<u64> {
        let elapsed = self.elapsed(now);
        let mut least = self.ceil.after(elapsed).min(self.ceil.capacity);
        let tokens = self.tokens.after(elapsed);
        if pays {
            least = least.min(tokens).min(self.tokens.capacity);
        } else if tokens >= 0 {
            return None;
        }
        u64::try_from(least).ok().map(|units| units / UNIT)
    }

    /// Charges a cost to a class that pays, if it has the tokens; else nothing happens.
    #[inline]
    pub(super) fn pay(&mut self, cost: i64, now: Time) -> bool {
        let elapsed = self.elapsed(now);
        let left = (
            self.tokens.left(elapsed, cost),
            self.ceil.left(elapsed, cost),
        );
        let (Some(tokens), Some(ceil)) = left else {
            return false;
        };
        (self.tokens.now, self.ceil.now) = (tokens, ceil);
        self.counted = self.counted.max(now);
        true
    }

    /// Charges what was sent. A class that is lent to pays with its ceil only. Returns the mode
    /// from now on, as [`mode_at`](Class::mode_at).
    pub(super) fn charge(&mut self, size: WireSize, pays: bool, now: Time) -> (Mode, u64) {
        let cost = units(self.link.cost(size));
        if pays && self.pay(cost, now) {
            return (Mode::CanSend, 0);
        }
        let elapsed = self.elapsed(now);
        self.counted = self.counted.max(now);
        self.charge_into_debt(elapsed, cost, pays)
    }

    fn charge_into_debt(&mut self, elapsed: i64, cost: i64, pays: bool) -> (Mode, u64) {
        let tokens = self.tokens.after(elapsed);
        if pays {
            self.tokens.charge(tokens, cost);
        } else {
            self.tokens.now = tokens;
        }
        self.ceil.charge(self.ceil.after(elapsed), cost);
        self.mode_after(0)
    }

    /// Counts what a leaf sends in its turn at a level, with its quantum there. True: its turn is
    /// over.
    #[inline]
    pub(super) fn count_turn(&mut self, level: usize, bytes: u64, quantum: i32) -> bool {
        let deficit = &mut self.deficit[level];
        *deficit = deficit.saturating_sub(i32::try_from(bytes).unwrap_or(i32::MAX));
        let over = *deficit < 0;
        if over {
            *deficit = deficit.saturating_add(quantum);
        }
        over
    }

    /// Token units in both buckets, as last counted.
    pub(super) fn tokens(&self) -> (i64, i64) {
        (self.tokens.now, self.ceil.now)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// Whatever tokens there are, and whatever it costs.
    #[test]
    fn to_stay_out_of_debt_is_charged_as_any_cost() {
        let specs = [
            (1, 1, 1),
            (1000, 2000, 1600),
            (u64::MAX >> 30, u64::MAX >> 30, 1 << 32),
        ];
        let (mut paid, mut in_debt) = (0, 0);
        for (rate, ceil, burst) in specs {
            let spec = HtbClassSpec {
                ceil,
                burst,
                cburst: burst,
                ..HtbClassSpec::new(rate)
            };
            let [mut quick, mut slow] = [0; 2].map(|_| Class::new(1, NONE, &spec, 10, Time::ZERO));
            let mut now = Time::ZERO;
            for (nanos, bytes) in [
                (0, 1),
                (0, 1),
                (1, 60),
                (1 << 20, 1500),
                (1 << 40, 1500),
                (1 << 30, 1 << 20),
                (1 << 45, 64),
                (0, u64::MAX),
                (1 << 45, 1),
            ] {
                now = now.plus_nanos(nanos);
                let size = WireSize {
                    packets: 1,
                    bytes,
                    each: bytes,
                };
                let mode = quick.charge(size, true, now);
                let elapsed = slow.elapsed(now);
                slow.counted = now;
                assert_eq!(mode, slow.charge_into_debt(elapsed, units(bytes), true));
                assert_eq!(quick.tokens(), slow.tokens(), "{spec:?} {now:?} {bytes}");
                match mode.0 {
                    Mode::CanSend => paid += 1,
                    _ => in_debt += 1,
                }
            }
        }
        assert!(paid > 3 && in_debt > 3, "{paid} {in_debt}");
    }

    /// As in the kernel, where a class without leaves below is at level 0.
    #[test]
    fn a_change_sets_prio_and_quantum_of_a_leaf_only() {
        let spec = |prio, quantum| HtbClassSpec {
            prio,
            quantum: Some(quantum),
            ..HtbClassSpec::new(1000)
        };
        let mut class = Class::new(1, NONE, &spec(3, 3000), 10, Time::ZERO);
        class.level = 1;
        class.change(&spec(5, 5000), 10);
        assert_eq!((class.prio, class.quantum), (3, 3000));
        class.reset(Time::ZERO);
        assert_eq!((class.prio, class.quantum), (3, 3000));
        class.change(&spec(5, 5000), 10);
        assert_eq!((class.prio, class.quantum), (5, 5000));
        // The lowest priority there is.
        class.change(&spec(200, 5000), 10);
        assert_eq!(class.prio, 7);
    }
}
