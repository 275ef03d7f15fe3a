//! A rate that several threads share: a token bucket in one atomic word, and pots.
//!
//! [`SharedRate`] lets pass `rate` units a second and `burst` units at once: bytes, packets,
//! whatever is counted. Each user of it, an *instance*, has a [`Pot`]: credit that it has drawn
//! from the shared word and not yet used. A pot is filled a quantum at a time, so that a packet
//! touches no memory of another thread; only one in some 64 packets does, and that with one
//! compare-and-swap. What is in a pot stays there until it is used. No call waits for another
//! thread, takes a lock or allocates, but for those of the control path, which say so.
//!
//! ```
//! use softnet::time::Time;
//! use softnet_tc::rate::{Members, RateSpec, SharedRate};
//!
//! // 1 Mbyte/s, 3000 bytes at once, for two threads; the longest packet has 1500 bytes.
//! let spec = RateSpec { rate: 1_000_000, burst: 3000, unit: 1500 };
//! let shared = SharedRate::new(spec, &Members::new(2));
//! let (mut a, mut b) = (shared.pot(0), shared.pot(1));
//! let now = Time(1_000_000_000);
//!
//! // Asks for what the next packet needs, then spends it. The third must wait for its turn.
//! assert_eq!(a.reserve(1500, 1, now), Ok(()));
//! a.spend(1500);
//! assert_eq!(b.reserve(1500, 1, now), Ok(()));
//! b.spend(1500);
//! let turn = Time(now.nanos() + 1_500_000);
//! assert_eq!(a.reserve(1500, 1, now), Err(turn));
//! assert_eq!(a.reserve(1500, 1, turn), Ok(()));
//! ```
//!
//! # Bounds
//!
//! For N instances, rate r, burst b and the [quantum](RateSpec::quantum) Q, which is never less
//! than `unit`, the longest packet. Where more than that is reserved at once, for a large frame
//! that leaves in one piece, Q is as much as that.
//!
//! - **What passes** (INV-RATE-1). In every window T the instances together spend less than
//!   `r·T + b + N·Q + 1` where each [reserves](Pot::reserve) before it spends. Proof: what is
//!   drawn in the window and has come due is at most what was earned, `r·T`, plus what the word
//!   held, `b`, which is counted in whole units (the 1). What is spent and was not drawn in the
//!   window was in a pot at its start, at most Q each.
//!   Where a packet needs two rates, what is reserved of one waits in its pot for the other: Q and
//!   `unit` each.
//! - Where instances [pay](Pot::charge) after they have sent, `N` packets more: what each was
//!   allowed to send and had not paid for at the end of the window.
//! - **Work conservation.** What is in the pots of instances that send nothing is lacking once, at
//!   most N·Q, not again and again. Nobody waits for others while the bucket holds more than half
//!   of the burst. So if `b/2 >= N·Q + r·δ`, and each instance with a backlog runs every δ, of
//!   which a wait for others is up to 1 ms, nothing else is lost. A wait for a higher priority may
//!   be longer: a quarter of the time that was waited before, but no longer than until a packet or
//!   a quarter of the burst has come, and 10 ms.
//! - **Fairness.** While the rate limits, instances with a backlog draw in proportion to their
//!   weights, to within two quanta each (three where it is [lent](Pot::lend)) and as far as they
//!   run; see `turns`.
//! - **Changes** (INV-RATE-3). [`SharedRate::set`] takes effect for all instances at one moment.
//!   Credit that was drawn stays: across a change at most `∫ r dt + max b + N·max Q` passes.
//!
//! - **Debts.** What instances owe that pay afterwards comes due within a minute; what is more is
//!   forgiven, as in the kernel's htb. So the bound holds for them where a frame passes within a
//!   minute; else each sends one a minute.
//!
//! Numbers are whole and exact: `earned = rate·(now − begin)` in 128 bits, rounded down once, not
//! summed.

mod bucket;
mod gate;
mod group;
mod pot;
pub(crate) mod shared_rates;
mod turns;
mod word;

use std::sync::Arc;

use softnet::time::Time;

pub(crate) use bucket::{Bucket, UNIT};
pub(crate) use gate::Gate;
pub use group::{GroupSpec, Limit, RateGroup};
pub use pot::Pot;
pub(crate) use shared_rates::{Instance, SharedRates};
use turns::Turns;
pub use turns::{Demand, Members};
use word::Word;

/// Parameters of a shared rate. A unit is a byte, or a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSpec {
    /// Units per second: 1 to 10^12 (more counts as that, 0 as 1).
    pub rate: u64,
    /// Units that may pass at once: at most 2^40 (more counts as that).
    pub burst: u64,
    /// Units of the longest packet: at most 2^32.
    pub unit: u64,
}

impl RateSpec {
    /// Units that a pot is filled with at once: what passes in 200 µs, at most 64 of the longest
    /// packets and at least one.
    pub fn quantum(&self) -> u64 {
        let spec = self.clamped();
        (spec.rate / 5000).min(64 * spec.unit).max(spec.unit)
    }

    fn clamped(self) -> RateSpec {
        RateSpec {
            rate: self.rate.clamp(1, 1_000_000_000_000),
            burst: self.burst.min(1 << 40),
            unit: self.unit.clamp(1, 1 << 32),
        }
    }
}

/// A token bucket that several instances share; see the [module](self). This is what the control
/// path has of it.
#[derive(Debug)]
pub struct SharedRate {
    word: Word,
    turns: Turns,
}

impl SharedRate {
    /// A full bucket, for the instances that `members` counts.
    pub fn new(spec: RateSpec, members: &Arc<Members>) -> Arc<SharedRate> {
        Arc::new(SharedRate {
            word: Word::full(spec.clamped()),
            turns: Turns::new(members.clone()),
        })
    }

    /// The pot of an instance, empty. Each instance has one.
    ///
    /// # Panics
    /// If there are not so many members.
    pub fn pot(self: &Arc<Self>, instance: usize) -> Pot {
        Pot::new(self.clone(), instance)
    }

    /// Other parameters, for all instances at once; tokens stay, as far as the bucket holds them.
    /// They hold from `now` on, or from the latest draw on if that is later. For the control path:
    /// waits for other changes. Nothing happens if they are the same.
    pub fn set(&self, spec: RateSpec, now: Time) {
        self.word.change(spec.clamped(), now);
    }

    /// Parameters now.
    pub fn spec(&self) -> RateSpec {
        self.word.view().spec
    }

    /// Tokens in the bucket at this time, without those in pots; negative for a debt.
    pub fn tokens(&self, now: Time) -> i64 {
        self.word.look(now).1
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod edge_tests;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
#[cfg(all(test, not(loom)))]
mod thread_tests;
