//! Workers that hang: a driver's call does not return.

use std::time::Duration;

use softnet::time::Time;

use super::state::WorkerHandle;
use super::{Devices, Engine};

/// Time in one round after which a worker hangs. A round takes 100 µs, and a few milliseconds where
/// programs have the CPU.
const HANG: Duration = Duration::from_secs(1);

/// The round in which a worker was last seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    round: u64,
    since: Time,
    told: bool,
}

impl Seen {
    /// The worker is in this round. True, once: it has been for too long.
    fn look(&mut self, round: u64, now: Time) -> bool {
        if round != self.round {
            *self = Seen {
                round,
                since: now,
                told: false,
            };
        }
        let hangs = !self.told && now.since(self.since) >= HANG;
        self.told |= hangs;
        hangs
    }
}

impl<Q, R> WorkerHandle<Q, R> {
    fn hangs(&mut self, now: Time) -> bool {
        let round = self.shared.rounds();
        // Rounds are counted from 1; one that sleeps is seen anew when it wakes.
        if round == 0 || self.shared.notifier.is_asleep() {
            self.seen = Seen::default();
            return false;
        }
        self.seen.look(round, now)
    }
}

impl<D: Devices> Engine<D> {
    /// Workers that have been in one call for a second, by number: their driver hangs. Each is
    /// told of once, and loses the raised scheduling class, so that the machine goes on without it.
    /// To be called a few times a second.
    pub fn hung_workers(&self) -> Vec<usize> {
        let now = self.clock.now();
        let mut state = self.state();
        let workers = state.workers.iter_mut().enumerate();
        let hung = workers.filter_map(|(index, worker)| {
            let hangs = worker.hangs(now);
            if hangs {
                (worker.lower)();
            }
            hangs.then_some(index)
        });
        hung.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::testing::Net;

    #[test]
    fn a_round_is_told_of_once() {
        let mut seen = Seen::default();
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        assert!(!seen.look(7, at(5000)));
        assert!(!seen.look(7, at(5999)));
        assert!(seen.look(7, at(6000)));
        assert!(!seen.look(7, at(9000)));
        assert!(!seen.look(8, at(9500)));
        assert!(seen.look(8, at(10_500)));
    }

    /// A driver's call does not return; the other worker is not meant.
    #[test]
    #[cfg_attr(miri, ignore = "takes seconds of real time")]
    fn a_worker_that_hangs_is_lowered_once() {
        let net = Net::new(2, 2);
        net.settle();
        assert_eq!(net.engine.hung_workers(), []);
        let stalled = net.ports[0].queue.stall();
        let mut hung = Vec::new();
        net.wait("the worker to hang", || {
            hung.extend(net.engine.hung_workers());
            !hung.is_empty()
        });
        assert_eq!(hung.len(), 1);
        assert_eq!(net.engine.hung_workers(), []);
        drop(stalled);
        let taken = |n: usize| net.classes[n].taken.load(Ordering::Relaxed);
        assert_eq!([taken(hung[0]), taken(1 - hung[0])], [1, 0]);
        net.stop();
    }
}
