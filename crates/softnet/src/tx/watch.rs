//! What a queue lets be seen from outside: since when its driver has been full, and, sampled, how many packets leave at once and how long they
//! waited. Written by whoever runs the queue, read by anyone; never waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::mem::PacketList;
use crate::stats::{Counts, Histogram};
use crate::time::Time;

const RUNNING: u64 = u64::MAX;

/// A queue as seen from outside.
#[derive(Debug)]
pub(super) struct Watch {
    /// When the driver refused packets and had taken none since; [`RUNNING`] if it has room.
    stopped: AtomicU64,
    /// Wire packets that the driver had taken then.
    sent: AtomicU64,
    sojourn: Histogram,
    batch: Histogram,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            stopped: AtomicU64::new(RUNNING),
            sent: AtomicU64::new(0),
            sojourn: Histogram::default(),
            batch: Histogram::default(),
        }
    }
}

impl Watch {
    /// Called after each run through the queue, by the runner: whether the driver is full, and how many packets it has taken so far. One that takes some
    /// between two refusals is not stuck (BUG-TX-23).
    #[inline]
    pub(super) fn ran(&self, full: bool, sent: u64, now: Time) {
        let stopped = self.stopped.load(Ordering::Relaxed);
        if !full {
            if stopped != RUNNING {
                self.stopped.store(RUNNING, Ordering::Relaxed);
            }
        } else if stopped == RUNNING || self.sent.load(Ordering::Relaxed) != sent {
            self.sent.store(sent, Ordering::Relaxed);
            // MAX is for a queue that is not stopped.
            let now = now.nanos().min(RUNNING - 1);
            self.stopped.store(now, Ordering::Relaxed);
        }
    }

    /// As [`ran`](Watch::ran), of a driver with several rings: since when the ring that has been full for longest has taken nothing.
    #[inline]
    pub(super) fn stopped_since(&self, since: Option<Time>) {
        let stopped = since.map_or(RUNNING, |time| time.nanos().min(RUNNING - 1));
        if self.stopped.load(Ordering::Relaxed) != stopped {
            self.stopped.store(stopped, Ordering::Relaxed);
        }
    }

    /// The driver is tried anew.
    pub(super) fn restarted(&self) {
        self.stopped.store(RUNNING, Ordering::Relaxed);
    }

    /// Whether the driver has taken nothing for at least `timeout`.
    pub(super) fn is_stuck(&self, now: Time, timeout: Duration) -> bool {
        let stopped = self.stopped.load(Ordering::Relaxed);
        stopped != RUNNING && now.since(Time(stopped)) >= timeout
    }

    /// Notes a batch on its way to the driver. Its first packet's timestamp says since when it is here; packets without one are not looked at.
    #[cold]
    pub(super) fn note(&self, batch: &PacketList, now: Time) {
        self.batch.record(batch.len() as u64);
        match batch.front().map(|first| first.timestamp()) {
            None | Some(Time::ZERO) => {}
            Some(here) => {
                let nanos = now.nanos().saturating_sub(here.nanos());
                self.sojourn.record(nanos);
            }
        }
    }

    pub(super) fn sojourn(&self) -> Counts {
        self.sojourn.counts()
    }

    pub(super) fn batch(&self) -> Counts {
        self.batch.counts()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    #[test]
    fn bug_tx_23_a_driver_that_makes_progress_is_not_stuck() {
        let watch = Watch::default();
        assert!(!watch.is_stuck(at(100), TIMEOUT), "never stopped");
        watch.ran(true, 7, at(1));
        assert!(!watch.is_stuck(at(5), TIMEOUT));
        assert!(watch.is_stuck(at(6), TIMEOUT));
        // Tried again, without and with success.
        watch.ran(true, 7, at(5));
        assert!(watch.is_stuck(at(6), TIMEOUT));
        watch.ran(true, 8, at(6));
        assert!(!watch.is_stuck(at(10), TIMEOUT));
        assert!(watch.is_stuck(at(11), TIMEOUT));
        watch.ran(false, 9, at(11));
        assert!(!watch.is_stuck(at(100), TIMEOUT));
        watch.ran(true, 9, at(100));
        watch.restarted();
        assert!(!watch.is_stuck(at(200), TIMEOUT));
    }
}
