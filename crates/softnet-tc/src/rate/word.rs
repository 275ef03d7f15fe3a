//! The shared word, and the parameters that it is read with.
//!
//! The word is a count of what has been drawn, below the number of the change that set the
//! parameters. What nobody drew while the bucket was full is counted as if it had been drawn.
//!
//! Invariant (INV-RATE-2): what has been drawn since a change and has come due by `now` is less
//! than `burst + rate·(now − begin) + 1`. A change takes over what the bucket holds, once.
//!
//! The parameters are in one of two slots, used in turn: a seqlock whose sequence is the word.
//!
//! - A draw is one compare-and-swap of the word, computed from the value that it replaces. So
//!   draws are totally ordered, none is lost, and none is made with parameters other than those
//!   that the word names: a change in between has changed the word.
//! - A change, one at a time, writes the slot that is not in use and then swaps the word, which
//!   fails and is computed again if somebody drew meanwhile. Nobody waits for the thread that
//!   makes the change, wherever it is preempted: until the swap the old parameters hold.
//! - Slot: S1, the swap (Release), publishes it to whoever loads the word (Acquire). A reader
//!   that was so slow that its slot is rewritten, for the change after the next, sees that: the
//!   writer has swapped the word, then issues a Release fence (S2), then writes the slot; the
//!   reader reads the slot, then issues an Acquire fence (S3), then loads the word again. If it
//!   read anything of the new parameters, the fences synchronize, so the load returns the word of
//!   the swap or a later one, and it reads again. Each repetition is for one change that has
//!   ended.
//! - The number in the word has 10 bits, so it comes back after 1024 changes. What a thread keeps
//!   across calls is compared by the whole number, which is in the slot. Within a call a thread
//!   would have to be preempted for exactly a multiple of 1024 changes that leave the same count:
//!   then one draw is computed with parameters of before. The word stays one of a bucket: full,
//!   or in debt for at most a minute.
//! - `latest` is not before the time of any draw in the word: L1, it is raised before the swap
//!   (Release), L2, and read after the word (Acquire). Who comes with a time before it, a change
//!   too, takes it for the time: what others drew is no debt, and no turn of the count.
//!   (INV-RATE-3)
//!
//! The count wraps at 2^54: in 5 hours at 10^12 units a second. A bucket that nobody drew from for
//! so long that no debt can be left, some minute, is full whatever the count says; `latest` and
//! `begin` say how long. L3: then a draw brings the count up to date before it raises `latest`.
//! Else those who come between that and its swap would take the old count for a debt.

use softnet::sync::primitive::{AtomicU64, Mutex, Ordering, fence};
use softnet::time::Time;

use super::RateSpec;

/// Bits of the count in the word.
const COUNT: u32 = 54;
const DRAWN: u64 = (1 << COUNT) - 1;
/// Seconds of debt at most, as in the kernel's htb.
const DEBT: u64 = 60;
/// Attempts to change the word in one call.
const ATTEMPTS: usize = 64;

/// Draw where there is less than is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    Nothing,
    /// All of it, in advance.
    Turn,
    /// As much of it as comes due within a minute: it is used already.
    Debt,
}

/// Outcome of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// So much is drawn, at least what was needed.
    Granted(u64),
    /// So much is drawn, and comes due at this time.
    Reserved(u64, Time),
    /// Nothing is drawn: there is not enough, and it was not to be reserved.
    Lacking,
    /// Nothing is drawn: a minute has been drawn in advance, up to this time.
    Refused(Time),
    /// Others were faster, many times: nothing is drawn.
    Contended,
}

/// The parameters since a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Number of the change.
    pub(super) number: u64,
    begin: Time,
    pub(super) spec: RateSpec,
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Word {
    word: AtomicU64,
    latest: AtomicU64,
    slots: [Slot; 2],
    /// One change at a time.
    changes: Mutex<()>,
}

/// Where a [`View`] is.
#[derive(Debug)]
#[repr(align(64))]
struct Slot([AtomicU64; 5]);

/// The word, read at a time.
#[derive(Clone, Copy)]
struct Level {
    /// Units earned since the change.
    earned: u128,
    /// Count in the word: if the bucket is full, as if all had been drawn.
    drawn: u64,
    /// Units drawn beyond those earned.
    ahead: u64,
    /// Nobody drew for so long that the bucket is full whatever the word counts.
    idle: bool,
}

/// Units that come at a rate of at most 10^12 a second in so many nanoseconds, rounded down once:
/// those of whole seconds, those of whole billions of the rate, and the rest. The compiler divides
/// 64 bits by a constant without a division.
#[inline]
fn earned(rate: u64, nanos: u64) -> u128 {
    const BILLION: u64 = 1_000_000_000;
    let (seconds, nanos) = (nanos / BILLION, nanos % BILLION);
    // Less than 10^12 and 10^18.
    let rest = rate / BILLION * nanos + rate % BILLION * nanos / BILLION;
    u128::from(rate) * u128::from(seconds) + u128::from(rest)
}

impl Slot {
    fn new() -> Slot {
        Slot(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn write(&self, view: &View) {
        let RateSpec { rate, burst, unit } = view.spec;
        let values = [view.number, view.begin.nanos(), rate, burst, unit];
        for (word, value) in self.0.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn read(&self) -> View {
        let [number, begin, rate, burst, unit] =
            std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        View {
            number,
            begin: Time(begin),
            spec: RateSpec { rate, burst, unit },
        }
    }
}

impl View {
    /// Units that may be ahead: what comes due within a minute.
    fn most_ahead(&self) -> u64 {
        self.spec.burst + DEBT * self.spec.rate
    }

    fn level(&self, word: u64, latest: Time, now: Time) -> Level {
        let now = now.max(latest);
        let since = |time: Time| now.nanos().saturating_sub(time.nanos());
        let earned = earned(self.spec.rate, since(self.begin));
        let full = earned as u64 & DRAWN;
        let drawn = word & DRAWN;
        let ahead = drawn.wrapping_sub(full) & DRAWN;
        // More than can be in advance, even with the longest packet: it is behind.
        let most = self.most_ahead() + (1 << 41);
        let unused = u128::from(self.spec.rate) * u128::from(since(latest.max(self.begin)));
        let idle = unused > u128::from(most) * 1_000_000_000;
        let (drawn, ahead) = match idle || ahead > most {
            true => (full, 0),
            false => (drawn, ahead),
        };
        Level {
            earned,
            drawn,
            ahead,
            idle,
        }
    }

    /// When so much that is drawn beyond the burst has been earned.
    fn due(&self, level: &Level, ahead: u64) -> Time {
        let beyond = level.earned + u128::from(ahead.saturating_sub(self.spec.burst));
        let nanos = (beyond * 1_000_000_000).div_ceil(u128::from(self.spec.rate));
        self.begin
            .plus_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Units drawn, and the outcome.
    fn decide(&self, level: &Level, need: u64, want: u64, lack: Lack) -> (u64, Draw) {
        let (ahead, most) = (level.ahead, self.most_ahead());
        let tokens = self.spec.burst.saturating_sub(ahead);
        let taken = match lack {
            _ if tokens >= need => {
                let taken = tokens.min(want.max(need));
                return (taken, Draw::Granted(taken));
            }
            Lack::Turn if ahead <= most => need,
            Lack::Debt if ahead < most => need.min(most - ahead),
            Lack::Nothing => return (0, Draw::Lacking),
            _ => return (0, Draw::Refused(self.due(level, ahead))),
        };
        (taken, Draw::Reserved(taken, self.due(level, ahead + taken)))
    }

    /// Start of the word after a change to other parameters: tokens that the bucket had,
    /// as far as the new one holds them; a debt as it was, but for what is more than a minute.
    fn ahead_after_change(&self, ahead: u64, next: &View) -> u64 {
        let burst = i128::from(next.spec.burst);
        let tokens = i128::from(self.spec.burst) - i128::from(ahead);
        (burst - tokens.min(burst)).min(next.most_ahead().into()) as u64
    }

    /// The word with this count.
    fn word(&self, drawn: u64) -> u64 {
        self.number << COUNT | drawn & DRAWN
    }
}

impl Word {
    pub(super) fn full(spec: RateSpec) -> Word {
        let word = Word {
            word: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            slots: [Slot::new(), Slot::new()],
            changes: Mutex::new(()),
        };
        let (number, begin) = (0, Time::ZERO);
        word.slots[0].write(&View {
            number,
            begin,
            spec,
        });
        word
    }

    /// The word, and the parameters that it names.
    fn read(&self) -> (u64, View) {
        loop {
            // S1, L2.
            let word = self.word.load(Ordering::Acquire);
            let view = self.slots[(word >> COUNT) as usize % 2].read();
            // S3.
            fence(Ordering::Acquire);
            if self.word.load(Ordering::Relaxed) >> COUNT == word >> COUNT {
                return (word, view);
            }
        }
    }

    /// The parameters now.
    pub(super) fn view(&self) -> View {
        self.read().1
    }

    /// After the word: L2.
    fn latest(&self) -> Time {
        Time(self.latest.load(Ordering::Relaxed))
    }

    /// The parameters, and tokens now; negative for a debt.
    pub(super) fn look(&self, now: Time) -> (View, i64) {
        let (word, view) = self.read();
        let ahead = view.level(word, self.latest(), now).ahead;
        (view, view.spec.burst as i64 - ahead as i64)
    }

    /// The parameters, and when all that has been drawn so far has come due.
    pub(super) fn clear(&self, now: Time) -> (View, Time) {
        let (word, view) = self.read();
        let level = view.level(word, self.latest(), now);
        (view, view.due(&level, level.ahead))
    }

    /// Draws `need`, and up to `want` if there is more.
    #[inline]
    pub(super) fn draw(&self, need: u64, want: u64, lack: Lack, now: Time) -> Draw {
        self.exchange(0, need, want, lack, now)
    }

    /// As [`draw`](Word::draw), and what was drawn before is given back, in the same swap: for
    /// who draws alone, all that has happened since is as if it had been there. Where nothing is
    /// drawn, nothing is given back.
    pub(super) fn exchange(&self, back: u64, need: u64, want: u64, lack: Lack, now: Time) -> Draw {
        for _ in 0..ATTEMPTS {
            let (word, view) = self.read();
            let level = view.level(word.wrapping_sub(back), self.latest(), now);
            let (taken, draw) = view.decide(&level, need, want, lack);
            if taken == 0 {
                return draw;
            }
            if level.idle {
                // L3.
                if self.swap(word, view.word(level.drawn)).is_ok() {
                    self.latest.fetch_max(now.nanos(), Ordering::Relaxed);
                }
                continue;
            }
            // L1.
            if self.latest() < now {
                self.latest.fetch_max(now.nanos(), Ordering::Relaxed);
            }
            if self
                .swap(word, view.word(level.drawn.wrapping_add(taken)))
                .is_ok()
            {
                return draw;
            }
        }
        Draw::Contended
    }

    /// Gives back what was drawn.
    pub(super) fn pour_back(&self, units: u64) {
        let mut word = self.word.load(Ordering::Relaxed);
        while let Err(other) = self.swap(word, word & !DRAWN | word.wrapping_sub(units) & DRAWN) {
            word = other;
        }
    }

    fn swap(&self, word: u64, other: u64) -> Result<u64, u64> {
        // Acquire if it fails: L2 for a change, whose next attempt begins with what is there.
        (self.word).compare_exchange(word, other, Ordering::Release, Ordering::Acquire)
    }

    /// Other parameters from now on, or from the latest draw on, if that is later. Nothing happens
    /// if they are the same.
    pub(super) fn change(&self, spec: RateSpec, now: Time) {
        let _one = (self.changes.lock()).unwrap_or_else(|poisoned| poisoned.into_inner());
        let (mut word, view) = self.read();
        if view.spec == spec {
            return;
        }
        // S2.
        fence(Ordering::Release);
        loop {
            let begin = now.max(self.latest()).max(view.begin);
            let number = view.number + 1;
            let next = View {
                number,
                begin,
                spec,
            };
            self.slots[number as usize % 2].write(&next);
            let ahead = view.level(word, self.latest(), begin).ahead;
            // S1.
            match self.swap(word, next.word(view.ahead_after_change(ahead, &next))) {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn what_is_earned_is_exact() {
        let billion = 1_000_000_000;
        let rates = [
            1,
            7,
            125_000,
            billion - 1,
            billion,
            billion + 1,
            3 * billion + 7,
        ];
        for rate in rates
            .into_iter()
            .chain([999_999_999_999, 1_000_000_000_000])
        {
            for seconds in [0, 1, 59, 100_000, u64::MAX / billion - 1] {
                for rest in [0, 1, 333_333_333, billion - 1] {
                    let nanos = seconds * billion + rest;
                    let exact = u128::from(rate) * u128::from(nanos) / u128::from(billion);
                    assert_eq!(earned(rate, nanos), exact, "{rate} {nanos}");
                }
            }
        }
    }
}
