//! The rate: a clock that says when the next packet may leave, without a burst.
//!
//! A packet moves the clock on by the time that it takes on the link, from where the clock was, so
//! that a late start is made good. A second clock, half again as slow, counts only what has left:
//! in `ingress` mode, where drops count, the flows that are left still get two thirds of the rate.

use softnet::time::Time;

/// Bytes per second for which times are computed at least, so that any rate ends.
const LEAST: u64 = 64;

/// Time for each byte, in 2^-32 ns; 0 for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteTime(u64);

impl ByteTime {
    /// At so many bytes a second; 0: no limit.
    pub(super) fn at(rate: u64) -> ByteTime {
        match rate {
            0 => ByteTime(0),
            rate => ByteTime((1_000_000_000 << 32) / rate.max(LEAST)),
        }
    }

    /// Time of so many bytes, in 2^-32 ns.
    fn exact(self, bytes: u64) -> u128 {
        u128::from(bytes) * u128::from(self.0)
    }

    /// Nanoseconds of so many bytes.
    #[inline]
    pub(super) fn of(self, bytes: u64) -> u64 {
        (self.exact(bytes) >> 32) as u64
    }
}

/// A time with a fraction, so that no rounding adds up.
#[derive(Clone, Copy, Debug, Default)]
struct Exact {
    time: Time,
    /// In 2^-32 ns.
    rest: u32,
}

impl Exact {
    fn at(time: Time) -> Exact {
        Exact { time, rest: 0 }
    }

    #[inline]
    fn add(&mut self, by: u128) {
        let sum = by + u128::from(self.rest);
        self.rest = sum as u32;
        let nanos = u64::try_from(sum >> 32).unwrap_or(u64::MAX);
        self.time = self.time.plus_nanos(nanos);
    }
}

/// The clock of a `cake` that has its rate alone.
#[derive(Debug, Default)]
pub(super) struct Shaper {
    byte: ByteTime,
    next: Exact,
    failsafe: Exact,
}

impl Shaper {
    /// Another rate; 0: no limit. What was sent before it counts at the rate of that time.
    pub(super) fn set_rate(&mut self, rate: u64) {
        self.byte = ByteTime::at(rate);
        if rate == 0 {
            (self.next, self.failsafe) = (Exact::default(), Exact::default());
        }
    }

    /// Nothing is queued: time that has passed is not made good.
    #[inline]
    pub(super) fn begin(&mut self, now: Time) {
        if self.next.time < now {
            (self.next, self.failsafe) = (Exact::at(now), Exact::at(now));
        }
    }

    /// When a packet may leave, if that is not now.
    #[inline]
    pub(super) fn wait(&self, now: Time) -> Option<Time> {
        let time = self.next.time.min(self.failsafe.time);
        (time > now).then_some(time)
    }

    /// Charges a packet; one that was dropped, or one that leaves.
    #[inline]
    pub(super) fn charge(&mut self, bytes: u64, dropped: bool) {
        let duration = self.byte.exact(bytes);
        self.next.add(duration);
        if !dropped {
            self.failsafe.add(duration + (duration >> 1));
        }
    }
}
