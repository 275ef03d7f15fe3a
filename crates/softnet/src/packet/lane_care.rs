//! When the thread that has the run serves the lanes of other CPUs, and when it leaves them to those.
//!
//! Packets that go to another CPU cost it the lines that they lie on. So while the senders of a lane are busy, they had better take their packets themselves: they try as soon as
//! [`TAKE_OVER`] wait. Others pass such a lane over, and look now and then whether it grows; one that does not has no busy senders, and is served at once. While there is little to do
//! all lanes are served at once.

use crate::packet::Header;
use crate::sync::Lanes;

/// A sender that leaves a packet in a lane in which so many wait tries to get the run.
pub(super) const TAKE_OVER: usize = 48;
/// And again after so many more: a try that fails takes a line from the CPU that has the run.
pub(super) const TRY_EVERY: usize = TAKE_OVER;
/// Rounds of one run in which other lanes had something, after which their senders count as busy.
const BUSY_ROUNDS: u32 = 4;
/// For so many disappointments.
const CONFIDENCE: u32 = 16;
/// A lane that is passed over is looked at every so many times.
const LOOK_EVERY: u32 = 64;
/// No more than so many wait in lanes that are passed over.
const MOST: usize = 2048;

/// What the thread that has the run remembers of the lanes.
#[derive(Debug, Default)]
pub(super) struct Care {
    /// How far the lanes' senders are trusted to come themselves.
    confidence: u32,
    /// Runs that ended with something in a lane since it was taken.
    passed: u32,
    /// What waited when they were looked at last.
    seen: usize,
    /// In a row in which lanes had something.
    rounds: u32,
    /// What was decided last.
    passes: bool,
}

impl Care {
    /// Nothing waits in lanes.
    #[inline]
    pub(super) fn quiet(&mut self) {
        (self.rounds, self.passes) = (0, false);
    }

    /// Decides whether the run may end although something waits in lanes.
    pub(super) fn pass(&mut self, lanes: &Lanes<Header>) -> bool {
        self.passes = self.may_pass(lanes);
        self.passes
    }

    fn may_pass(&mut self, lanes: &Lanes<Header>) -> bool {
        if self.confidence == 0 || lanes.are_all_wanted() {
            return false;
        }
        self.passed += 1;
        if self.passed % LOOK_EVERY != 1 {
            return true;
        }
        let waiting = lanes.waiting_announced();
        let grown = waiting > self.seen && waiting < MOST;
        self.seen = waiting;
        if self.passed > 1 && !grown {
            self.confidence -= 1;
            return false;
        }
        true
    }

    /// Whether the decision was to leave the lanes alone.
    pub(super) fn passes(&self) -> bool {
        self.passes
    }

    /// All lanes were taken, and so many packets were there.
    pub(super) fn taken(&mut self, packets: usize) {
        (self.passed, self.seen) = (0, 0);
        self.rounds = if packets == 0 { 0 } else { self.rounds + 1 };
        if self.rounds >= BUSY_ROUNDS {
            self.confidence = CONFIDENCE;
        }
    }

    /// A lane's sender took it.
    pub(super) fn taken_over(&mut self) {
        (self.passed, self.seen, self.rounds) = (0, 0, 0);
        self.confidence = CONFIDENCE;
    }
}
