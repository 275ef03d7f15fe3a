//! Estimate of the capacity of the link in front, from the rate of what arrives
//! (`autorate-ingress`): of bursts, each between two pauses that are longer than usual.

use softnet::time::Time;

use super::ewma_fast;

/// Nanoseconds between two changes of the rate.
const PAUSE: u64 = 250_000_000;
/// Longest pause that counts, in nanoseconds.
const LONGEST: u64 = 1_000_000_000;

/// The estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Autorate {
    last: Time,
    /// Average time between packets, in nanoseconds.
    interval: u64,
    begin: Time,
    bytes: u64,
    changed: Time,
    /// Bytes per second.
    pub(super) estimate: u64,
}

impl Autorate {
    pub(super) fn new(estimate: u64) -> Autorate {
        Autorate {
            estimate,
            ..Autorate::default()
        }
    }

    /// Packets have arrived. Returns a new rate, if it is to be changed.
    pub(super) fn arrived(&mut self, bytes: u64, now: Time) -> Option<u64> {
        self.bytes += bytes;
        let since = |earlier: Time| now.nanos().saturating_sub(earlier.nanos());
        let interval = since(self.last).min(LONGEST);
        let longer = interval > self.interval;
        self.interval = ewma_fast(self.interval, interval, longer);
        self.last = now;
        if interval <= self.interval {
            return None;
        }
        let (window, all) = (since(self.begin), u128::from(self.bytes) * 1_000_000_000);
        let rate = u64::try_from(all / u128::from(window.max(1))).unwrap_or(u64::MAX);
        self.estimate = ewma_fast(self.estimate, rate, rate > self.estimate);
        (self.bytes, self.begin) = (0, now);
        if since(self.changed) <= PAUSE {
            return None;
        }
        self.changed = now;
        Some((self.estimate / 16).saturating_mul(15).max(1))
    }

    /// Packets have arrived, and no rate follows from that.
    pub(super) fn pass(&mut self, now: Time) {
        (self.bytes, self.last) = (0, now);
    }
}
