//! A rate that drops instead of making wait.

use softnet::time::Time;

use super::RateSpec;
use super::word::{Draw, Lack, Word};

/// Draws that are tried where others are faster.
const TRIES: usize = 16;

/// A token bucket that lets pass or does not, for any number of threads at once: one
/// compare-and-swap of the shared [word](super::word) for each packet, no lock and no wait.
/// INV-RATE-1 without pots: in every window T less than `r·T + b + 1` passes.
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
        self.draw(units, units, now).is_some()
    }

    /// Draws `need`, and up to `want` if there are so many. `None`: there are fewer than `need`.
    #[inline]
    pub(crate) fn draw(&self, need: u64, want: u64, now: Time) -> Option<u64> {
        for _ in 0..TRIES {
            match self.0.draw(need, want, Lack::Nothing, now) {
                Draw::Granted(units) => return Some(units),
                Draw::Contended => {}
                Draw::Reserved(..) | Draw::Refused(_) => return None,
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
