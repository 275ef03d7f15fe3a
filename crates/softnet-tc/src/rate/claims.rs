//! Strict priority over instances: who waits for credit says so, and who has a lower priority
//! leaves it alone meanwhile. A claim expires by itself: the thread that made it may be preempted
//! or gone.

use softnet::sync::primitive::{AtomicU64, Ordering};
use softnet::time::Time;

/// Until when each of eight priorities claims the credit of a rate: 0 is the highest. It is a
/// hint, and on a cache line of its own; nothing else is ordered by it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Claims([AtomicU64; 8]);

impl Claims {
    /// Claims credit for a priority (7 for any above), until then or until an earlier claim ends
    /// that lasts longer.
    pub fn claim(&self, prio: usize, until: Time) {
        let claim = &self.0[prio.min(7)];
        if claim.load(Ordering::Relaxed) < until.nanos() {
            claim.fetch_max(until.nanos(), Ordering::Relaxed);
        }
    }

    /// Ends a claim, if nobody has made one since that lasts longer.
    pub fn release(&self, prio: usize, until: Time) {
        let claim = &self.0[prio.min(7)];
        if claim.load(Ordering::Relaxed) == until.nanos() {
            // Fails if there is another.
            let relaxed = Ordering::Relaxed;
            let _ = claim.compare_exchange(until.nanos(), 0, relaxed, relaxed);
        }
    }

    /// Until when a higher priority than this claims credit; [`None`] if none does at this time.
    pub fn above(&self, prio: usize, now: Time) -> Option<Time> {
        let higher = &self.0[..prio.min(8)];
        let latest = higher.iter().map(|claim| claim.load(Ordering::Relaxed));
        latest.max().map(Time).filter(|&until| until > now)
    }
}
