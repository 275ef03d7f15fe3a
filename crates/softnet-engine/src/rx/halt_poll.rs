//! Busy-poll time of an idle worker before it sleeps (the kernel's `haltpoll` governor): as long
//! as that has paid off lately, and not at all when what it waits for takes long to come.
//!
//! A poller yields the CPU now and then. If it gets it back late, another thread wants it for more
//! than a moment: the poller stops at once, and does not poll for a while, twice as long each time
//! until no yield has been late for some time.

use std::time::Duration;

use softnet::time::{Clock, Time};

/// The first window, when a sleep turned out to have been short.
const START: Duration = Duration::from_micros(5);

/// Looks between two looks at the clock.
const LOOKS: usize = 8;
/// Pauses before each look: about 200 ns. What is looked at is written by other threads, which
/// more frequent looks would slow down; and what arrives together is found together.
const PAUSES: usize = 8;

/// A look that yields and takes longer gave the CPU to a thread that wants it for itself. A worker
/// that has what this one waits for is done sooner: its rounds take 100 µs at most.
const LATE: Duration = Duration::from_micros(200);
/// Time without polling after a late yield.
const AWAY: Duration = Duration::from_millis(1);
/// The same after many.
const LONGEST_AWAY: Duration = Duration::from_millis(128);
/// They are forgotten when none has been late for so long after the poller was back.
const CALM: Duration = Duration::from_millis(100);

/// Time to busy-poll before sleeping.
#[derive(Debug)]
pub struct HaltPoll {
    window: Duration,
    max: Duration,
    /// The last time without polling, after a late yield, and its end.
    away: Duration,
    back: Time,
}

impl HaltPoll {
    /// Busy-polls for at most `max`; zero: never.
    pub fn new(max: Duration) -> HaltPoll {
        HaltPoll {
            window: Duration::ZERO,
            max,
            away: Duration::ZERO,
            back: Time::ZERO,
        }
    }

    /// Time to busy-poll now.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Polls for as long as that has paid off lately: until `found` says that there is something
    /// to do (true is returned), until the window is over, or until others want the CPU. `rest` is
    /// called now and then, with the time: it looks at what is costly to look at, and yields the
    /// CPU.
    pub fn busy_poll(
        &mut self,
        start: Time,
        clock: &Clock,
        found: impl Fn() -> bool,
        mut rest: impl FnMut(Time) -> bool,
    ) -> bool {
        if self.window.is_zero() {
            return false;
        }
        let end = start + self.window;
        loop {
            for _ in 0..LOOKS {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
                if found() {
                    return true;
                }
            }
            let before = clock.now();
            let any = rest(before);
            let now = clock.now();
            let late = now.since(before) > LATE;
            if late {
                self.back_off(now);
            }
            if any || late || now >= end {
                return any;
            }
        }
    }

    /// Others want the CPU.
    #[cold]
    fn back_off(&mut self, now: Time) {
        if now.since(self.back) >= CALM {
            self.away = Duration::ZERO;
        }
        self.away = (2 * self.away).clamp(AWAY, LONGEST_AWAY);
        self.back = now + self.away;
        self.window = Duration::ZERO;
    }

    /// The worker was idle for `idle` until something came, busy polling included; it is `now`.
    pub fn was_idle(&mut self, idle: Duration, now: Time) {
        if idle > self.max {
            self.window = Duration::ZERO;
        } else if idle > self.window && now >= self.back {
            self.window = (2 * self.window).max(START).min(self.max);
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// A poller for which nothing comes, and whose yields take so long each; how many they are.
    fn yields(poll: &mut HaltPoll, clock: &Clock, each: Duration) -> u32 {
        let mut yields = 0;
        let rest = |_| {
            yields += 1;
            clock.advance(each);
            false
        };
        assert!(!poll.busy_poll(clock.now(), clock, || false, rest));
        yields
    }

    #[test]
    fn grows_while_it_pays_off_and_gives_up_at_once() {
        let mut poll = HaltPoll::new(us(30));
        let now = Time::ZERO;
        assert_eq!(poll.window(), Duration::ZERO);
        let windows: Vec<_> = (0..5)
            .map(|_| {
                poll.was_idle(us(29), now);
                poll.window()
            })
            .collect();
        assert_eq!(windows, [us(5), us(10), us(20), us(30), us(30)]);
        poll.was_idle(us(3), now);
        assert_eq!(poll.window(), us(30));
        poll.was_idle(us(31), now);
        assert_eq!(poll.window(), Duration::ZERO);
        let mut never = HaltPoll::new(Duration::ZERO);
        never.was_idle(Duration::ZERO, now);
        never.was_idle(us(1), now);
        assert_eq!(never.window(), Duration::ZERO);
    }

    #[test]
    fn stays_away_longer_each_time_that_others_want_the_cpu() {
        let clock = Clock::virtual_at(Time::ZERO);
        let mut poll = HaltPoll::new(us(50));
        let idle = |poll: &mut HaltPoll| {
            poll.was_idle(us(1), clock.now());
            poll.window()
        };
        assert_eq!(idle(&mut poll), us(5));
        assert_eq!(yields(&mut poll, &clock, us(1)), 5, "nobody wants it");
        assert_eq!(yields(&mut poll, &clock, LATE), 1);
        assert_eq!(poll.window(), us(5), "a worker may have had it");
        for away in [1, 2, 4, 8, 16, 32, 64, 128, 128] {
            assert_eq!(yields(&mut poll, &clock, LATE + us(1)), 1);
            assert_eq!(yields(&mut poll, &clock, us(1)), 0);
            clock.advance(us(1000 * away - 1));
            assert_eq!(idle(&mut poll), Duration::ZERO);
            clock.advance(us(1));
            assert_eq!(idle(&mut poll), us(5));
        }
        clock.advance(CALM);
        // What was found meanwhile is not lost.
        let late = |_| {
            clock.advance(LATE + us(1));
            true
        };
        assert!(poll.busy_poll(clock.now(), &clock, || false, late));
        assert_eq!(poll.window(), Duration::ZERO);
        clock.advance(AWAY);
        assert_eq!(idle(&mut poll), us(5), "as the first time");
    }
}
