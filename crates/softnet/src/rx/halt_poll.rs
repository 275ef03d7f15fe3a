//! How long an idle worker looks around before it sleeps (the kernel's `haltpoll` governor): as long as that has paid off lately, and not at all
//! when what it waits for takes long to come.

use std::time::Duration;

/// The first window, when a sleep turned out to have been short.
const START: Duration = Duration::from_micros(5);

/// How long to look around before sleeping.
#[derive(Debug)]
pub(super) struct HaltPoll {
    window: Duration,
    max: Duration,
}

impl HaltPoll {
    /// Looks around for at most `max`; zero: never.
    pub(super) fn new(max: Duration) -> HaltPoll {
        HaltPoll {
            window: Duration::ZERO,
            max,
        }
    }

    /// How long to look around now.
    pub(super) fn window(&self) -> Duration {
        self.window
    }

    /// The worker was idle for `idle` until something came, looking around included.
    pub(super) fn was_idle(&mut self, idle: Duration) {
        if idle > self.max {
            self.window = Duration::ZERO;
        } else if idle > self.window {
            self.window = (2 * self.window).max(START).min(self.max);
        }
    }
}

#[cfg(test)]
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
