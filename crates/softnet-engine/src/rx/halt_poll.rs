//! Busy-poll time of an idle worker before it sleeps (the kernel's `haltpoll` governor): as long
//! as that has paid off lately, and not at all when what it waits for takes long to come.

use std::time::Duration;

use softnet::time::{Clock, Time};

/// The first window, when a sleep turned out to have been short.
const START: Duration = Duration::from_micros(5);

/// Looks between two looks at the clock.
const LOOKS: usize = 8;
/// Pauses before each look: about 200 ns. What is looked at is written by other threads, which
/// more frequent looks would slow down; and what arrives together is found together.
const PAUSES: usize = 8;

/// Time to busy-poll before sleeping.
#[derive(Debug)]
pub struct HaltPoll {
    window: Duration,
    max: Duration,
}

impl HaltPoll {
    /// Busy-polls for at most `max`; zero: never.
    pub fn new(max: Duration) -> HaltPoll {
        HaltPoll {
            window: Duration::ZERO,
            max,
        }
    }

    /// Time to busy-poll now.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Polls for as long as that has paid off lately: until `found` says that there is something
    /// to do (true is returned), or until the window is over. `rest` is called now and then: it
    /// looks at what is costly to look at, and yields the CPU.
    pub fn busy_poll(
        &self,
        start: Time,
        clock: &Clock,
        found: impl Fn() -> bool,
        mut rest: impl FnMut() -> bool,
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
            if rest() {
                return true;
            }
            if clock.now() >= end {
                return false;
            }
        }
    }

    /// The worker was idle for `idle` until something came, busy polling included.
    pub fn was_idle(&mut self, idle: Duration) {
        if idle > self.max {
            self.window = Duration::ZERO;
        } else if idle > self.window {
            self.window = (2 * self.window).max(START).min(self.max);
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
                poll.was_idle(us(29));
                poll.window()
            })
            .collect();
        assert_eq!(windows, [us(5), us(10), us(20), us(30), us(30)]);
        poll.was_idle(us(3));
        assert_eq!(poll.window(), us(30));
        poll.was_idle(us(31));
        assert_eq!(poll.window(), Duration::ZERO);
        let mut never = HaltPoll::new(Duration::ZERO);
        never.was_idle(Duration::ZERO);
        never.was_idle(us(1));
        assert_eq!(never.window(), Duration::ZERO);
    }
}
