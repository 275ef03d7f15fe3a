//! The work of a [`Sender`](super::Sender)'s helper: runs the queues that are due, and restarts a
//! driver that is stuck.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::down::{WATCHDOG_PERIOD, WATCHDOG_RETRY};
use super::notifier::Notifier;
use super::policy::HELPER_QUOTA;
use super::{Device, TxRing};
use crate::qdisc::Qdisc;
use crate::time::{Clock, Time};

/// Event of the thread itself; queue `n` has event `n + 1`.
pub(super) const STOP: usize = 0;

/// Turns for which the helper yields the CPU, with nothing to do, before it sleeps: to wake it
/// costs a sender more than all its own work.
const YIELDS: u32 = 4;

/// The helper of a [`Sender`](super::Sender) that was made by
/// [`drive`](super::SenderBuilder::drive), for a loop of the program to run.
#[derive(Debug)]
pub struct Runner<R, Q> {
    device: Arc<Device<R, Q>>,
    pub(super) notifier: Arc<Notifier>,
    /// The time at which each queue wants to be served.
    timers: Vec<Time>,
    /// The [event](STOP) has come.
    stopped: bool,
    /// The time of the next look at the driver. A sender's run that ends because the driver is full
    /// wakes nobody, and if the driver never answers, nobody else will.
    watchdog: Time,
}

impl<R: TxRing, Q: Qdisc> Runner<R, Q> {
    pub(super) fn new(device: Arc<Device<R, Q>>, notifier: Arc<Notifier>, now: Time) -> Self {
        // What comes before the first run calls for it.
        notifier.prepare();
        Runner {
            timers: vec![Time::MAX; device.queues().len()],
            device,
            notifier,
            stopped: false,
            watchdog: now + WATCHDOG_PERIOD,
        }
    }

    /// Runs what is due, for a bounded number of packets from each queue, and returns when it wants
    /// to be called again: at that time at the latest, `now` or before if at once. If something
    /// comes up before that, the sender's waker is called, once. Never blocks.
    ///
    /// A panic of a driver or a qdisc ends here: it takes its queue out of use, until the device is
    /// taken down and up again, and is counted ([`DeviceStats::panics`](super::DeviceStats)).
    pub fn run(&mut self, now: Time) -> Time {
        self.notifier.awake();
        self.run_due(now);
        let next = self.next();
        if self.notifier.prepare() { next } else { now }
    }

    /// The next time at which something is due without an event.
    fn next(&self) -> Time {
        let timers = self.timers.iter();
        timers.fold(self.watchdog, |next, &timer| next.min(timer))
    }

    /// Runs queues that were notified of or whose time has come, and looks after the driver. False
    /// if there was nothing to do.
    fn run_due(&mut self, now: Time) -> bool {
        let timers = &mut self.timers;
        self.notifier
            .take(|event| match event.checked_sub(STOP + 1) {
                Some(queue) => timers[queue] = Time::ZERO,
                None => self.stopped = true,
            });
        if self.watchdog <= now {
            let look = |queue| alone(|| self.device.try_watchdog(queue, now));
            let owned = (0..timers.len())
                .filter(|&queue| look(queue) == Some(false))
                .count();
            let period = if owned > 0 {
                WATCHDOG_RETRY
            } else {
                WATCHDOG_PERIOD
            };
            self.watchdog = now + period;
        }
        let mut any = false;
        for (queue, timer) in timers.iter_mut().enumerate() {
            if *timer <= now {
                any = true;
                let run = || self.device.run_from_worker(queue, HELPER_QUOTA, now);
                *timer = alone(run).flatten().unwrap_or(Time::MAX);
            }
        }
        any
    }

    /// The helper thread's loop.
    pub(super) fn serve(&mut self, clock: &Clock) {
        let mut idle = 0;
        self.notifier.awake();
        while !self.stopped {
            if self.run_due(clock.now()) {
                idle = 0;
            } else if idle < YIELDS {
                idle += 1;
                std::thread::yield_now();
            } else {
                idle = 0;
                let next = self.next();
                let sleep = || std::thread::park_timeout(next.since(clock.now()));
                self.notifier.sleep_if(|| !self.stopped, sleep);
            }
        }
    }
}

/// Calls what a panic may end. The queue that it came from has seen to itself by then.
fn alone<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}
