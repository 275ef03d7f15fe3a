//! How many bytes a driver's ring should hold: as few as keep it busy (byte queue limits, BQL;
//! the algorithm of the kernel's dynamic queue limits, T. Herbert 2011, Documentation in
//! `lib/dynamic_queue_limits.c`'s header and "Byte Queue Limits", LWN 454390).
//!
//! What lies in the ring has left the qdisc: nobody can overtake it, and it waits there for
//! as long as the ring is deep. So packets stay in the qdisc while the ring holds enough to
//! last until the next completion.
//!
//! The limit *grows* when the ring ran dry although packets were held back: by what was completed
//! beyond the mark of the completion before, and by what exceeded the limit then. It *shrinks*,
//! once in [`HOLD`], by the least that was to spare at every completion of that time (the slack).
//!
//! Invariants (INV-TX-14): `completed <= queued`; a packet is let in while the bytes in flight do
//! not exceed the limit, so there are never more than the limit and one packet more; nothing in
//! flight always lets a packet in, so the ring is never starved for ever.
//!
//! One thread at a time: whoever runs the queue. Counters are 64 bits of bytes and do not wrap.

use std::time::Duration;

use crate::time::Time;

/// How long slack is observed before the limit shrinks (`DQL_DEFAULT_HOLD_TIME`,
/// `slack_hold_time`).
pub const HOLD: Duration = Duration::from_secs(1);

/// The bounds of a limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DqlBounds {
    /// The least (`limit_min`).
    pub min: u64,
    /// The most (`limit_max`).
    pub max: u64,
}

impl Default for DqlBounds {
    /// From 0, up to the kernel's `DQL_MAX_LIMIT`.
    fn default() -> Self {
        DqlBounds {
            min: 0,
            max: 0x7000_0000,
        }
    }
}

/// A dynamic limit on the bytes in a driver's ring.
#[derive(Clone, Debug)]
pub struct Dql {
    bounds: DqlBounds,
    limit: u64,
    /// Bytes ever put into the ring.
    queued: u64,
    /// Bytes that ever left it.
    completed: u64,
    /// Size of what was put in last.
    last: u64,
    /// As they were at the completion before: `queued`, `last`, and by how much the bytes in
    /// flight exceeded the limit.
    before: Mark,
    /// The least slack since `since`.
    slack: u64,
    since: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    queued: u64,
    last: u64,
    over: u64,
}

impl Dql {
    /// An empty ring with the least limit that `bounds` allow.
    pub fn new(bounds: DqlBounds, now: Time) -> Dql {
        Dql {
            bounds,
            limit: bounds.min,
            queued: 0,
            completed: 0,
            last: 0,
            before: Mark::default(),
            slack: u64::MAX,
            since: now,
        }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in the ring.
    pub fn in_flight(&self) -> u64 {
        self.queued - self.completed
    }

    /// How many bytes may still be put in; none if the ring is to be left alone until something
    /// completes (`STACK_XOFF`). `Some(0)` means: one packet more, of any size.
    pub fn available(&self) -> Option<u64> {
        self.limit.checked_sub(self.in_flight())
    }

    /// A packet of `bytes` bytes was put into the ring.
    pub fn queued(&mut self, bytes: u64) {
        self.last = bytes;
        self.queued += bytes;
    }

    /// `bytes` bytes have left the ring since the last call. More than were in it (a driver that
    /// miscounts) count as all. Call it also when nothing has left: it does nothing then.
    pub fn completed(&mut self, bytes: u64, now: Time) {
        let bytes = bytes.min(self.in_flight());
        if bytes == 0 {
            return;
        }
        let completed = self.completed + bytes;
        let over = self.in_flight().saturating_sub(self.limit);
        let in_flight = self.queued - completed;
        let before = self.before;
        // All that was in the ring at the completion before has left.
        let all_before = completed >= before.queued;
        let ran_dry = (over > 0 && in_flight == 0) || (before.over > 0 && all_before);
        let mut limit = self.limit;
        if ran_dry {
            limit += completed.saturating_sub(before.queued) + before.over;
            self.observe_anew(now);
        } else if in_flight > 0 && before.queued > self.completed && !all_before {
            // Busy from completion to completion: what could have been missing without the ring
            // running dry?
            let spare = (limit + before.over).saturating_sub(2 * bytes);
            let spare_of_last = match before.over {
                0 => 0,
                over => before.last.saturating_sub(over),
            };
            self.slack = self.slack.min(spare.max(spare_of_last));
            if now.since(self.since) > HOLD {
                limit = limit.saturating_sub(self.slack);
                self.observe_anew(now);
            }
        }
        limit = limit.clamp(self.bounds.min, self.bounds.max);
        self.before = Mark {
            queued: self.queued,
            last: self.last,
            over: if limit == self.limit { over } else { 0 },
        };
        self.limit = limit;
        self.completed = completed;
    }

    fn observe_anew(&mut self, now: Time) {
        self.slack = u64::MAX;
        self.since = now;
    }

    /// The ring was emptied: nothing in it will be completed any more (`netdev_tx_reset_queue`;
    /// BUG-TX-29). Starts from the least limit again.
    pub fn reset(&mut self, now: Time) {
        *self = Dql::new(self.bounds, now);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    /// The first packet goes in although the limit is 0; the limit then follows what a completion
    /// takes.
    #[test]
    fn grows_when_the_ring_ran_dry() {
        let mut dql = Dql::new(DqlBounds::default(), at(0));
        assert_eq!((dql.limit(), dql.available()), (0, Some(0)));
        dql.queued(1000);
        assert_eq!(dql.available(), None, "one over the limit");
        dql.completed(1000, at(1));
        assert_eq!(
            dql.limit(),
            1000,
            "it ran dry: 1000 more than the mark before"
        );
        dql.queued(1000);
        assert_eq!(dql.available(), Some(0));
        dql.queued(500);
        assert_eq!(dql.available(), None);
        dql.completed(1500, at(2));
        assert_eq!(dql.limit(), 2500);
        assert_eq!(dql.in_flight(), 0);
    }

    /// A ring that never runs dry lets the limit shrink by the least slack, after a second and
    /// not before.
    #[test]
    fn shrinks_by_the_least_slack_after_a_second() {
        let bounds = DqlBounds {
            min: 0,
            max: 1 << 20,
        };
        let mut dql = Dql::new(bounds, at(0));
        dql.limit = 100_000;
        (0..50).for_each(|_| dql.queued(1000));
        let mut spare = u64::MAX;
        for round in 1..=1001 {
            dql.completed(1000, at(round * 1000));
            dql.queued(1000);
            // From the second completion on there is a mark to compare with.
            if round > 1 {
                spare = spare.min(100_000 - 2 * 1000);
            }
            let shrunk = round > 1000;
            assert_eq!(
                dql.limit(),
                if shrunk { 100_000 - spare } else { 100_000 },
                "{round}"
            );
        }
        assert_eq!(dql.limit(), 2000, "twice what a completion takes");
    }

    #[test]
    fn bug_tx_29_an_emptied_ring_takes_packets_again() {
        let mut dql = Dql::new(DqlBounds::default(), at(0));
        dql.queued(5000);
        assert_eq!(dql.available(), None);
        dql.reset(at(1));
        assert_eq!((dql.available(), dql.in_flight()), (Some(0), 0));
        // A late completion of the old ring is ignored.
        dql.completed(5000, at(2));
        assert_eq!((dql.in_flight(), dql.limit()), (0, 0));
    }

    /// What a step of a random run does.
    #[derive(Clone, Debug)]
    enum Step {
        Queue(u64),
        Complete(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
        let step = prop_oneof![
            3 => (1u64..70_000).prop_map(Step::Queue),
            1 => (0u64..200_000).prop_map(Step::Complete),
        ];
        proptest::collection::vec((step, 0u64..300_000), 1..400)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        /// INV-TX-14: in flight never more than the limit at that time and one packet; completed
        /// never more than queued; the limit within its bounds; an empty ring always takes a
        /// packet.
        #[test]
        fn inv_tx_14_in_flight_is_bounded_and_never_starved(
            steps in steps(),
            min in 0u64..5000,
            more in 0u64..100_000,
        ) {
            let bounds = DqlBounds { min, max: min + more };
            let mut now = 0;
            let mut dql = Dql::new(bounds, at(now));
            for (step, micros) in steps {
                now += micros;
                match step {
                    Step::Queue(bytes) => if dql.available().is_some() {
                        prop_assert!(dql.in_flight() <= dql.limit());
                        dql.queued(bytes);
                    }
                    Step::Complete(bytes) => {
                        let (limit, queued) = (dql.limit(), dql.queued);
                        let in_flight = dql.in_flight();
                        dql.completed(bytes, at(now));
                        prop_assert_eq!(dql.in_flight(), in_flight.saturating_sub(bytes));
                        prop_assert_eq!(dql.queued, queued);
                        // It grows at most by what has passed, and shrinks at most to nothing.
                        prop_assert!(dql.limit() <= (limit + 2 * queued).max(bounds.min));
                    }
                }
                prop_assert!((bounds.min..=bounds.max).contains(&dql.limit()));
                prop_assert!(dql.in_flight() > 0 || dql.available().is_some());
            }
        }

        /// A link that takes `rate` bytes between completions, with a sender that always has
        /// more: the ring runs dry a bounded number of times, and the limit settles at not much
        /// more than what is needed.
        #[test]
        #[cfg_attr(miri, ignore = "long, and of numbers only")]
        fn settles_near_what_keeps_the_link_busy(rate in 3_000u64..50_000, size in 60u64..1_500) {
            let mut dql = Dql::new(DqlBounds::default(), at(0));
            let mut ring = VecDeque::new();
            let mut dry = 0;
            for round in 1..5_000u64 {
                while dql.available().is_some() {
                    dql.queued(size);
                    ring.push_back(size);
                }
                let mut room = rate;
                let mut done = 0;
                while let Some(&first) = ring.front() {
                    if first > room {
                        break;
                    }
                    room -= first;
                    done += first;
                    ring.pop_front();
                }
                if ring.is_empty() && room >= size && round > 100 {
                    dry += 1;
                }
                dql.completed(done, at(round * 1_000));
            }
            prop_assert!(dry <= 50, "ran dry {dry} times of 4,900");
            prop_assert!(dql.limit() <= 3 * rate + 2 * size, "{} at {rate}", dql.limit());
        }
    }
}
