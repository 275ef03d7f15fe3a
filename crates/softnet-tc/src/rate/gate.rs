//! A rate that drops instead of making wait.

use softnet::time::Time;

use super::RateSpec;
use super::word::{Draw, Lack, Word};

/// Draws that are tried where others are faster.
const TRIES: usize = 16;

/// A token bucket that lets pass or does not, for any number of threads at once: one
/// compare-and-swap of the shared [word](super::word), no lock and no wait. Who draws more than it
/// needs keeps the rest, to use it or to give it back.
///
/// INV-RATE-1 without pots: in every window T less than `r·T + b + 1` passes, and what was in the
/// hands of those that drew in advance at its start. What is given back by an
/// [exchange](Gate::exchange) counts as if it had never been drawn: where one alone draws, and
/// exchanges all that it has whenever time has passed, as much passes as if each packet had been
/// drawn by itself.
#[derive(Debug)]
pub(crate) struct Gate(Word);

impl Gate {
    /// A full bucket.
    pub(crate) fn new(spec: RateSpec) -> Gate {
        Gate(Word::full(spec.clamped()))
    }

    /// Draws so many units. False, and nothing drawn, if there are not so many.
    #[inline]
    pub(crate) fn pass(&self, units: u64, now: Time) -> bool {
        self.exchange(0, units, units, now).is_some()
    }

    /// Gives back what was drawn for `need`, and up to `want` if there are so many, in one step.
    /// Returns what the caller has in place of it, at least `need`. `None`: there are fewer, and
    /// it keeps what it has.
    #[inline(never)]
    pub(crate) fn exchange(&self, back: u64, need: u64, want: u64, now: Time) -> Option<u64> {
        for _ in 0..TRIES {
            match self.0.exchange(back, need, want, Lack::Nothing, now) {
                // Nothing is needed and there is nothing, so that nothing was given back.
                Draw::Granted(0) => return Some(back),
                Draw::Granted(units) => return Some(units),
                Draw::Contended => {}
                Draw::Reserved(..) | Draw::Refused(_) | Draw::Lacking => return None,
            }
        }
        None
    }

    /// Gives back what was drawn.
    pub(crate) fn pour_back(&self, units: u64) {
        self.0.pour_back(units);
    }

    /// Other parameters, for all threads at once; see [`SharedRate::set`](super::SharedRate::set).
    pub(crate) fn set(&self, spec: RateSpec, now: Time) {
        self.0.change(spec.clamped(), now);
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn gate(burst: u64) -> Gate {
        Gate::new(RateSpec {
            rate: 1000,
            burst,
            unit: 10,
        })
    }

    /// Tokens that lie with whoever drew them take the place of others in the bucket.
    #[test]
    fn what_is_exchanged_is_as_if_it_had_been_there() {
        for back in [0, 60] {
            let gate = gate(100);
            let at = |millis: u64| Time(SECOND + millis * 1_000_000);
            assert_eq!(
                gate.exchange(0, 10 + back, 10 + back, at(0)),
                Some(10 + back)
            );
            // Without a pause: of 90.
            assert_eq!(gate.exchange(back, 20, 20, at(0)), Some(20));
            // 5 more, and 10 less.
            assert_eq!(gate.exchange(0, 10, 10, at(5)), Some(10));
            assert_eq!(gate.exchange(10, 75, 200, at(5)), Some(75));
            assert_eq!(gate.exchange(75, 76, 200, at(5)), None, "it has 75 still");
            // The bucket is full with them, not without them.
            assert_eq!(gate.exchange(75, 1, 200, at(1000)), Some(100));
            assert_eq!(gate.exchange(0, 1, 1, at(1000)), None);
        }
    }

    /// Nothing for nothing: the caller keeps what it has.
    #[test]
    fn what_nobody_needs_stays() {
        let gate = gate(0);
        assert_eq!(gate.exchange(7, 0, 0, Time(SECOND)), Some(7));
        assert_eq!(gate.exchange(0, 0, 0, Time(SECOND)), Some(0));
        assert_eq!(gate.exchange(0, 1, 1, Time(SECOND)), None);
    }
}
