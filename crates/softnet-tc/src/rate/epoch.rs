//! The shared word, with the parameters that it is to be read with.
//!
//! Invariant (INV-RATE-2): what has been drawn from an epoch and has come due by `now` is less than
//! `burst + rate·(now − begin) + 1`. The word counts what has been drawn; what nobody drew while
//! the bucket was full is counted as if it had been. An epoch with other parameters succeeds one
//! that is sealed: nobody draws from that any more, and what it held goes over, once.
//!
//! Argument: each draw is one compare-and-swap of the word, computed from the value that it
//! replaces, so draws are totally ordered and none is lost. To change the parameters, the successor
//! is stored in `next` first, its word unset; then the seal is set in the word by one atomic
//! operation (Release). Who finds the seal (Acquire) therefore finds the successor. What the
//! successor's word begins with is a function of both sets of parameters and of the sealed value,
//! which changes no more: everybody who follows computes the same, and the first one's
//! compare-and-swap sets it. (Relaxed: nothing is read through it.) So no instance waits for the
//! thread that changes the parameters, wherever that is preempted.

use std::sync::{Arc, OnceLock};

use softnet::sync::primitive::{AtomicU64, Ordering};
use softnet::time::Time;

use super::RateSpec;

/// Nobody draws from it any more.
const SEAL: u64 = 1 << 63;
/// Not yet taken over from the epoch before. No sealed word is this.
const UNSET: u64 = u64::MAX;
/// What has been drawn, modulo 2^62.
const DRAWN: u64 = (1 << 62) - 1;
/// Seconds of debt at most, as in the kernel's htb.
const DEBT: u64 = 60;
/// Attempts to change the word in one call.
const ATTEMPTS: usize = 64;

/// What became of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// So much is drawn, at least what was needed.
    Granted(u64),
    /// What was needed is drawn, and comes due at this time.
    Reserved(Time),
    /// Nothing is drawn: there is not enough, and it was not to be reserved; or a minute has been
    /// drawn in advance, up to this time.
    Refused(Time),
    /// Others were faster, many times: nothing is drawn.
    Contended,
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Epoch {
    word: AtomicU64,
    begin: Time,
    spec: RateSpec,
    next: OnceLock<Arc<Epoch>>,
}

/// The word, read at a time.
#[derive(Clone, Copy)]
struct Level {
    /// Units earned since the epoch began.
    earned: u128,
    /// What the word counts modulo 2^62: if the bucket is full, as if all had been drawn.
    drawn: u64,
    /// Units drawn beyond those earned.
    ahead: u64,
}

impl Epoch {
    pub(super) fn full(spec: RateSpec) -> Epoch {
        Epoch::new(0, Time::ZERO, spec)
    }

    fn new(word: u64, begin: Time, spec: RateSpec) -> Epoch {
        Epoch {
            word: AtomicU64::new(word),
            begin,
            spec,
            next: OnceLock::new(),
        }
    }

    pub(super) fn spec(&self) -> &RateSpec {
        &self.spec
    }

    /// Units that may be ahead: what comes due within a minute.
    fn most_ahead(&self) -> u64 {
        self.spec.burst + DEBT * self.spec.rate
    }

    fn level(&self, word: u64, now: Time) -> Level {
        let elapsed = now.nanos().saturating_sub(self.begin.nanos());
        let earned = u128::from(self.spec.rate) * u128::from(elapsed) / 1_000_000_000;
        let full = earned as u64 & DRAWN;
        let ahead = (word & DRAWN).wrapping_sub(full) & DRAWN;
        // More than can be in advance, even with the longest packet: it is behind.
        if ahead > self.most_ahead() + (1 << 41) {
            return Level {
                earned,
                drawn: full,
                ahead: 0,
            };
        }
        Level {
            earned,
            drawn: word & DRAWN,
            ahead,
        }
    }

    /// When so much that is drawn beyond the burst has been earned.
    fn due(&self, level: &Level, ahead: u64) -> Time {
        let beyond = level.earned + u128::from(ahead.saturating_sub(self.spec.burst));
        let nanos = (beyond * 1_000_000_000).div_ceil(u128::from(self.spec.rate));
        self.begin
            .plus_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Tokens now; negative for a debt. None: it is sealed.
    pub(super) fn look(&self, now: Time) -> Option<i64> {
        // Acquire: with the seal comes the successor.
        let word = self.word.load(Ordering::Acquire);
        (word & SEAL == 0).then(|| self.spec.burst as i64 - self.level(word, now).ahead as i64)
    }

    /// When all that has been drawn so far has come due. None: it is sealed.
    pub(super) fn clear(&self, now: Time) -> Option<Time> {
        let word = self.word.load(Ordering::Acquire);
        let level = self.level(word, now);
        (word & SEAL == 0).then(|| self.due(&level, level.ahead))
    }

    /// Draws `need`, and up to `want` if there is more. If there is less, reserves `need` or not.
    /// None: it is sealed.
    pub(super) fn draw(&self, need: u64, want: u64, reserve: bool, now: Time) -> Option<Draw> {
        let mut word = self.word.load(Ordering::Acquire);
        for _ in 0..ATTEMPTS {
            if word & SEAL != 0 {
                return None;
            }
            let level = self.level(word, now);
            let tokens = self.spec.burst.saturating_sub(level.ahead);
            let (taken, draw) = if tokens >= need {
                let taken = tokens.min(want.max(need));
                (taken, Draw::Granted(taken))
            } else if !reserve || level.ahead > self.most_ahead() {
                return Some(Draw::Refused(self.due(&level, level.ahead)));
            } else {
                (need, Draw::Reserved(self.due(&level, level.ahead + need)))
            };
            let drawn = level.drawn.wrapping_add(taken) & DRAWN;
            match self.exchange(word, drawn) {
                Ok(_) => return Some(draw),
                Err(other) => word = other,
            }
        }
        Some(Draw::Contended)
    }

    /// Gives back what was drawn. False: it is sealed.
    pub(super) fn pour_back(&self, units: u64) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        while word & SEAL == 0 {
            match self.exchange(word, word.wrapping_sub(units) & DRAWN) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
        false
    }

    fn exchange(&self, word: u64, drawn: u64) -> Result<u64, u64> {
        // Acquire if it fails: it may be the seal.
        (self.word).compare_exchange(word, drawn, Ordering::Relaxed, Ordering::Acquire)
    }

    /// Tokens now, for the control path.
    pub(super) fn tokens(&self, now: Time) -> i64 {
        let word = self.word.load(Ordering::Relaxed);
        self.spec.burst as i64 - self.level(word, now).ahead as i64
    }

    /// Puts another epoch, which begins now, in the place of this one, the last one. One caller at
    /// a time.
    pub(super) fn succeed(&self, spec: RateSpec, now: Time) -> Arc<Epoch> {
        let begin = now.max(self.begin);
        let next = (self.next).get_or_init(|| Arc::new(Epoch::new(UNSET, begin, spec)));
        self.word.fetch_or(SEAL, Ordering::Release);
        self.take_over(next);
        next.clone()
    }

    /// The epoch after this one, if this is sealed.
    pub(super) fn follow(&self) -> Option<&Arc<Epoch>> {
        let next = self.next.get()?;
        (self.word.load(Ordering::Acquire) & SEAL != 0).then(|| {
            self.take_over(next);
            next
        })
    }

    /// Gives the successor of this epoch, which is sealed, the tokens or the debt of this one.
    fn take_over(&self, next: &Epoch) {
        let sealed = self.word.load(Ordering::Relaxed);
        let ahead = self.level(sealed, next.begin).ahead;
        // Tokens that the bucket had, as far as the new one holds them; a debt as it was.
        let tokens = i128::from(self.spec.burst) - i128::from(ahead);
        let drawn = i128::from(next.spec.burst) - tokens.min(i128::from(next.spec.burst));
        let drawn = drawn.min(i128::from(next.most_ahead())) as u64;
        // Fails if another has set the same.
        let (relaxed, word) = (Ordering::Relaxed, &next.word);
        let _ = word.compare_exchange(UNSET, drawn, relaxed, relaxed);
    }
}

impl Drop for Epoch {
    /// One by one: a chain that nobody has followed is not freed by recursion.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut epoch) = next.and_then(Arc::into_inner) {
            next = epoch.next.take();
        }
    }
}
