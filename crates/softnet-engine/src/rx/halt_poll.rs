//! Busy-poll time of an idle worker before it sleeps (the kernel's `haltpoll` governor): as long
//! as that has paid off lately, and not at all when what it waits for takes long to come.
//!
//! A poller yields the CPU now and then. One that gets it back [late](LATE) has kept a thread from
//! working that has enough to do: it polls no more, for a time that doubles with each such yield
//! from [`PAUSE`] to [`LONGEST_PAUSE`], and is forgotten once polling pays off for as long as it
//! may take.

use std::time::Duration;

use softnet::time::{Clock, Time};

/// The first window, when a sleep turned out to have been short.
const START: Duration = Duration::from_micros(5);

/// Looks between two looks at the clock.
const LOOKS: usize = 8;
/// Pauses before each look: about 200 ns. What is looked at is written by other threads, which
/// more frequent looks would slow down; and what arrives together is found together.
const PAUSES: usize = 8;

/// A yield that took longer gave the CPU to a thread that wants it for itself. A worker that
/// has what this one waits for is back sooner: it does a round, of 100 µs at most, or sleeps.
pub const LATE: Duration = Duration::from_micros(200);
/// Time without polling after a late yield.
const PAUSE: Duration = Duration::from_millis(1);
/// The same after many.
const LONGEST_PAUSE: Duration = Duration::from_millis(128);

/// Outcome of a costly look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// There is something to do.
    Found,
    /// There is nothing.
    Nothing,
    /// There is nothing, and the CPU was yielded for so long.
    Yielded(Duration),
}

/// Time to busy-poll before sleeping.
#[derive(Debug)]
pub struct HaltPoll {
    window: Duration,
    max: Duration,
    /// The last pause after a late yield, and its end.
    pause: Duration,
    paused: Time,
}

impl HaltPoll {
    /// Busy-polls for at most `max`; zero: never.
    pub fn new(max: Duration) -> HaltPoll {
        HaltPoll {
            window: Duration::ZERO,
            max,
            pause: Duration::ZERO,
            paused: Time::ZERO,
        }
    }

    /// Time to busy-poll now.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Polls for as long as that has paid off lately: until `found` says that there is something
    /// to do (true is returned), or until the window is over, or others want the CPU. `rest` is
    /// called now and then: it looks at what is costly to look at, and yields the CPU.
    pub fn busy_poll(
        &mut self,
        start: Time,
        clock: &Clock,
        found: impl Fn() -> bool,
        mut rest: impl FnMut() -> Rest,
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
            let yielded = match rest() {
                Rest::Found => return true,
                Rest::Nothing => Duration::ZERO,
                Rest::Yielded(time) => time,
            };
            let now = clock.now();
            if yielded > LATE {
                self.window = Duration::ZERO;
                self.pause = (2 * self.pause).clamp(PAUSE, LONGEST_PAUSE);
                self.paused = now + self.pause;
            }
            if yielded > LATE || now >= end {
                return false;
            }
        }
    }

    /// The worker was idle for `idle` until something came, busy polling included; it is `now`.
    pub fn was_idle(&mut self, idle: Duration, now: Time) {
        if idle > self.max {
            self.window = Duration::ZERO;
        } else if idle > self.window && now >= self.paused {
            self.window = (2 * self.window).max(START).min(self.max);
            if self.window == self.max {
                self.pause = Duration::ZERO;
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn grows_while_it_pays_off_and_gives_up_at_once() {
        let mut poll = HaltPoll::new(us(30));
        assert_eq!(poll.window(), Duration::ZERO);
        let windows: Vec<_> = (0..5)
            .map(|_| {
                poll.was_idle(us(29), Time::ZERO);
                poll.window()
            })
            .collect();
        assert_eq!(windows, [us(5), us(10), us(20), us(30), us(30)]);
        poll.was_idle(us(3), Time::ZERO);
        assert_eq!(poll.window(), us(30));
        poll.was_idle(us(31), Time::ZERO);
        assert_eq!(poll.window(), Duration::ZERO);
        let mut never = HaltPoll::new(Duration::ZERO);
        never.was_idle(Duration::ZERO, Time::ZERO);
        never.was_idle(us(1), Time::ZERO);
        assert_eq!(never.window(), Duration::ZERO);
    }

    /// A poller whose yields come back late leaves the CPU to those who want it, longer and longer,
    /// until polling has paid off for as long as it may take.
    #[test]
    fn stops_while_others_want_the_cpu() {
        let clock = Clock::virtual_at(Time::ZERO);
        let mut poll = HaltPoll::new(us(10));
        let grow = |poll: &mut HaltPoll| {
            poll.was_idle(us(9), clock.now());
            poll.window()
        };
        let yields = |poll: &mut HaltPoll, time: Duration| {
            let mut left = 100;
            let found = poll.busy_poll(
                clock.now(),
                &clock,
                || false,
                || {
                    left -= 1;
                    clock.advance(time);
                    if left == 0 {
                        Rest::Found
                    } else {
                        Rest::Yielded(time)
                    }
                },
            );
            assert!(!found, "it gives up before long");
        };
        assert_eq!(grow(&mut poll), us(5));
        yields(&mut poll, us(1));
        assert_eq!(poll.window(), us(5), "nobody wanted the CPU");
        yields(&mut poll, LATE);
        assert_eq!(poll.window(), us(5));
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 128] {
            yields(&mut poll, LATE + us(1));
            assert_eq!(poll.window(), Duration::ZERO);
            clock.advance(us(1_000 * pause - 1));
            assert_eq!(grow(&mut poll), Duration::ZERO);
            clock.advance(us(1));
            assert_eq!(grow(&mut poll), us(5));
        }
        assert_eq!(grow(&mut poll), us(10));
        yields(&mut poll, LATE + us(1));
        clock.advance(us(1_000));
        assert_eq!(grow(&mut poll), us(5), "the first pause again");
    }
}
