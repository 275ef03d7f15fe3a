//! Storm control: how many wire packets a port may flood. Token buckets that all workers share;
//! none waits.
//!
//! A bucket is one number: the tokens that were spent, counted from the start of time as those that
//! were earned are. Earned is what the rate gives by then, in whole tokens, computed anew from the
//! time, so that nothing is lost by rounding, however often it is asked. What was not spent when
//! the bucket was full is taken for spent. A frame passes while there is a token, and is charged
//! for all its wire packets, which may overdraw the bucket by one frame: the next ones wait until
//! that is earned. So in any time the port floods at most the rate's wire packets, those of one
//! second, and one frame.
//!
//! The number says nothing about other memory, so access is Relaxed; the compare-and-swap makes
//! check and charge one step. It fails only if another worker was charged meanwhile.

use super::bridge::Destination;
use softnet::sync::primitive::{AtomicU64, Ordering};
use softnet::time::Time;

/// Wire packets a second, and as many at once after a pause. None: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// To all stations.
    pub broadcast: Option<u32>,
    /// To groups.
    pub multicast: Option<u32>,
    /// To stations that the bridge does not know.
    pub unknown_unicast: Option<u32>,
}

/// The buckets of a port.
#[derive(Debug)]
pub(super) struct Storm {
    broadcast: Option<Bucket>,
    multicast: Option<Bucket>,
    unknown_unicast: Option<Bucket>,
}

impl Storm {
    pub(super) fn new(limits: StormLimits) -> Storm {
        Storm {
            broadcast: limits.broadcast.map(Bucket::new),
            multicast: limits.multicast.map(Bucket::new),
            unknown_unicast: limits.unknown_unicast.map(Bucket::new),
        }
    }

    /// True if wire packets may go there.
    pub(super) fn admits(&self, to: Destination, wire_packets: u64, now: Time) -> bool {
        let bucket = match to {
            Destination::Broadcast => &self.broadcast,
            Destination::Multicast => &self.multicast,
            Destination::Unknown => &self.unknown_unicast,
            Destination::Port(_) => &None,
        };
        bucket
            .as_ref()
            .is_none_or(|bucket| bucket.take(wire_packets, now))
    }
}

/// A token bucket, which holds the tokens of one second; see the module.
#[derive(Debug)]
struct Bucket {
    /// Tokens a second.
    rate: u32,
    /// At most what was earned, the tokens of one second, and one frame.
    spent: AtomicU64,
}

impl Bucket {
    fn new(rate: u32) -> Bucket {
        Bucket {
            rate,
            spent: AtomicU64::new(0),
        }
    }

    /// Tokens earned by a time; at the highest rate for the first 136 years.
    fn earned(&self, now: Time) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let (seconds, nanos) = (now.nanos() / SECOND, now.nanos() % SECOND);
        let rate = u64::from(self.rate);
        seconds
            .saturating_mul(rate)
            .saturating_add(nanos * rate / SECOND)
    }

    fn take(&self, tokens: u64, now: Time) -> bool {
        let earned = self.earned(now);
        // What a full bucket has, of which nothing is spent, is what was earned since.
        let full = earned.saturating_add(u64::from(self.rate));
        let charge = |spent: u64| {
            let spent = spent.max(earned);
            (spent < full).then(|| spent.saturating_add(tokens))
        };
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        self.spent.fetch_update(order.0, order.1, charge).is_ok()
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two workers, and one token: one of them gets it.
    ///
    /// Fails if check and charge are two steps.
    #[test]
    fn a_token_is_spent_once() {
        loom::model(|| {
            let bucket = Arc::new(Bucket::new(1));
            let other = {
                let bucket = bucket.clone();
                thread::spawn(move || bucket.take(1, Time(7)))
            };
            let own = bucket.take(1, Time(7));
            assert!(own != other.join().unwrap(), "one token, for one of both");
        });
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_second_at_once_and_then_the_rate() {
        let bucket = Bucket::new(3);
        let start = 7 * SECOND + 1;
        let taken = |now| (0..10).filter(|_| bucket.take(1, Time(now))).count();
        assert_eq!(taken(start), 3);
        assert_eq!(taken(start + SECOND / 3), 1);
        assert_eq!(taken(start + SECOND), 2);
        assert_eq!(taken(start + 100 * SECOND), 3, "not more after a pause");
    }

    #[test]
    fn a_large_frame_is_paid_for_afterwards() {
        let bucket = Bucket::new(10);
        assert!(bucket.take(30, Time(0)), "it would never fit");
        assert!(!bucket.take(1, Time(2 * SECOND)), "still 0");
        assert!(bucket.take(1, Time(2 * SECOND + SECOND / 10)));
        assert!(!bucket.take(1, Time(2 * SECOND + SECOND / 10)));
    }

    #[test]
    fn none_may_be_allowed() {
        let bucket = Bucket::new(0);
        assert!(!bucket.take(1, Time(0)) && !bucket.take(1, Time(u64::MAX)));
    }

    /// Time stands still for the bucket when its numbers end.
    #[test]
    fn the_end_of_time() {
        let bucket = Bucket::new(u32::MAX);
        assert!(!bucket.take(u64::MAX, Time(u64::MAX)));
    }

    proptest! {
        /// Whatever comes when: in all the time, no more than the rate, a second's and one frame.
        #[test]
        fn the_rate_is_exact(
            rate in 1..=u32::MAX,
            start in 0..u64::from(u32::MAX) * SECOND / 2,
            frames in prop::collection::vec((0..2 * SECOND, 1..200_u64), 1..200),
        ) {
            let bucket = Bucket::new(rate);
            let (mut now, mut sent) = (start, 0_u128);
            for (gap, tokens) in frames {
                now += gap;
                let before = sent;
                if bucket.take(tokens, Time(now)) {
                    sent += u128::from(tokens);
                }
                // Rounding may give one token more than whole tokens since the start.
                let given = u128::from(now - start) * u128::from(rate) / u128::from(SECOND) + 1;
                prop_assert!(before <= given + u128::from(rate) || sent == before);
            }
        }
    }
}
