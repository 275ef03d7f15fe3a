//! Bytes that a device which completes late is given: as few as keep it busy, so that what waits,
//! waits in the qdisc. After the kernel's dynamic queue limits (`lib/dynamic_queue_limits.c`).
//!
//! A device that has completed everything, where it would have been given more but for the limit,
//! has stood still: the limit grows by what it completed at once. One that for a second never had
//! less than some bytes left when it was looked at had so many too many: the limit falls by them.

use std::time::Duration;

use softnet::time::Time;

/// The limit of a device of which nothing is known: a full run of a queue.
const FIRST: u64 = 128 * 1024;
/// Two full frames.
const LEAST: u64 = 2 * 1514;
/// Bytes that the slots of a ring hold.
const MOST: u64 = 2 << 20;
/// Time in which bytes that are left are found to be too many.
const HOLD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Limit {
    limit: u64,
    given: u64,
    /// More would have been given since the last completion.
    was_reached: bool,
    /// Fewest bytes that were left after a completion, and since when.
    left: u64,
    since: Option<Time>,
}

impl Limit {
    pub(super) fn new() -> Limit {
        Limit {
            limit: FIRST,
            given: 0,
            was_reached: false,
            left: u64::MAX,
            since: None,
        }
    }

    /// Bytes were given to the device.
    pub(super) fn give(&mut self, bytes: u64) {
        self.given += bytes;
        self.was_reached |= self.given >= self.limit;
    }

    /// Bytes that it may be given now.
    pub(super) fn available(&self) -> u64 {
        self.limit.saturating_sub(self.given)
    }

    /// True if a full run of a queue is no more than the limit.
    pub(super) fn is_wide(&self) -> bool {
        self.limit >= FIRST
    }

    /// Takes back bytes that the device has completed; `now`: if it had time for that. What is done
    /// as soon as it is given does not say how many bytes are too many.
    pub(super) fn complete(&mut self, bytes: u64, now: Option<Time>) {
        if bytes == 0 {
            return;
        }
        self.given = self.given.saturating_sub(bytes);
        if std::mem::take(&mut self.was_reached) && self.given == 0 {
            self.limit = (self.limit + bytes).min(MOST);
            self.since = None;
            return;
        }
        let Some(now) = now else { return };
        match self.since {
            None => (self.since, self.left) = (Some(now), self.given),
            Some(since) => {
                self.left = self.left.min(self.given);
                if now.since(since) >= HOLD {
                    self.limit = self.limit.saturating_sub(self.left).max(LEAST);
                    self.since = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that sends so many bytes in each interval, given as much as the limit lets.
    fn settle(limit: &mut Limit, each: u64, interval: Duration, from: Time) -> Time {
        let mut now = from;
        for _ in 0..20_000 {
            let available = limit.available();
            limit.give(available);
            assert_eq!(limit.available(), 0);
            now = now + interval;
            let sent = each.min(limit.given);
            limit.complete(sent, Some(now));
        }
        now
    }

    #[test]
    fn the_limit_is_what_keeps_the_device_busy() {
        let mut limit = Limit::new();
        let millisecond = Duration::from_millis(1);
        // 8 Mbit/s: a frame in each interval.
        let now = settle(&mut limit, 1000, millisecond, Time::ZERO);
        assert!((LEAST..6000).contains(&limit.limit), "{limit:?}");
        // 8 Gbit/s.
        let now = settle(&mut limit, 1_000_000, millisecond, now);
        assert!((1_000_000..=MOST).contains(&limit.limit), "{limit:?}");
        settle(&mut limit, 1000, millisecond, now);
        assert!(limit.limit < 6000, "{limit:?}");
    }

    /// One that had less than its limit is not starved, nor has it too much.
    #[test]
    fn light_load_changes_nothing() {
        let mut limit = Limit::new();
        for millis in 0..5000 {
            limit.give(1000);
            assert_ne!(limit.available(), 0);
            limit.complete(1000, Some(Time::ZERO + Duration::from_millis(millis)));
        }
        assert_eq!((limit.limit, limit.given), (FIRST, 0));
    }

    /// One that is done at once, after it was slow, is given more.
    #[test]
    fn what_is_done_at_once_has_no_limit() {
        let mut limit = Limit::new();
        settle(&mut limit, 1000, Duration::from_millis(1), Time::ZERO);
        for _ in 0..20 {
            let available = limit.available();
            limit.give(available);
            limit.complete(limit.given, None);
        }
        assert!(limit.is_wide(), "{limit:?}");
    }
}
