//! Time as a value. Every part that shapes or measures takes `now: Time`; none reads a clock
//! itself. A [`Clock`] is read once per poll round, by the worker or the sender, and passed down.
//! A virtual clock makes a whole engine run deterministically.

use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A point in time: nanoseconds since an arbitrary origin (584 years fit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Time = Time(0);
    /// Later than every time a clock returns: "never".
    pub const MAX: Time = Time(u64::MAX);

    /// Nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This time plus `nanos` nanoseconds; saturates at [`Time::MAX`].
    pub const fn plus_nanos(self, nanos: u64) -> Time {
        Time(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        self.plus_nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Where `now` comes from: the machine's monotonic clock, or a number that a test or simulator
/// advances.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Monotonic(Instant),
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// The monotonic clock, with its origin at this call. Clones share the origin.
    pub fn monotonic() -> Clock {
        Clock(Source::Monotonic(Instant::now()))
    }

    /// A clock that stands still until [`advance`](Clock::advance) moves it. Clones move together.
    pub fn virtual_at(start: Time) -> Clock {
        Clock(Source::Virtual(Arc::new(AtomicU64::new(start.0))))
    }

    /// The time now.
    pub fn now(&self) -> Time {
        match &self.0 {
            Source::Monotonic(origin) => {
                Time(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            // Relaxed: the value carries no other data with it.
            Source::Virtual(t) => Time(t.load(Ordering::Relaxed)),
        }
    }

    /// Moves a virtual clock forward.
    ///
    /// # Panics
    /// On a monotonic clock, which nobody can move.
    pub fn advance(&self, by: Duration) {
        match &self.0 {
            Source::Monotonic(_) => panic!("only a virtual clock can be advanced"),
            Source::Virtual(t) => {
                t.fetch_add(
                    u64::try_from(by.as_nanos()).unwrap_or(u64::MAX),
                    Ordering::Relaxed,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_clones_move_together_and_time_saturates() {
        let a = Clock::virtual_at(Time(5));
        let b = a.clone();
        a.advance(Duration::from_nanos(7));
        assert_eq!(b.now(), Time(12));
        assert_eq!(Time(3).since(Time(9)), Duration::ZERO);
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
    }
}
