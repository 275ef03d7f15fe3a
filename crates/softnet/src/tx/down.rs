//! Taking a device down and up (the kernel's `dev_deactivate` and `dev_activate`), and getting it
//! going again when its driver is stuck (`dev_watchdog`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::device::{Device, uses};
use super::{ControlError, RUN_QUOTA, TxQueue, TxRing};
use crate::qdisc::Qdisc;
#[cfg(doc)]
use crate::stats::DropReason;
use crate::sync::is_owner_here;
use crate::time::Time;

/// Time that a driver may take no packets, while some wait, before the watchdog restarts it (the
/// kernel's `watchdog_timeo`).
pub const WATCHDOG_TIMEO: Duration = Duration::from_secs(5);
/// Period of the looks whether one is (see [`Device::watchdog`]).
pub(super) const WATCHDOG_PERIOD: Duration = Duration::from_secs(1);
/// The same where another thread owned the queue of one.
pub(super) const WATCHDOG_RETRY: Duration = Duration::from_millis(10);

impl<R: TxRing, Q: Qdisc> Device<R, Q> {
    /// Restarts every ring that has been full, and has taken nothing, for [`WATCHDOG_TIMEO`].
    /// Returns how many queues had such rings; each is counted in
    /// [`DeviceStats::tx_timeouts`](super::DeviceStats). Call it every second or so; waits for
    /// running threads: control path only. (A call from a driver does nothing.)
    pub fn watchdog(&self, now: Time) -> usize {
        if !self.is_active() || is_owner_here() {
            return 0;
        }
        let stuck = |queue: &&TxQueue<R, Q>| queue.status.is_stuck(now, WATCHDOG_TIMEO);
        let mut restarted = 0;
        for queue in self.queues.iter().filter(stuck) {
            self.timeouts.fetch_add(1, Ordering::Relaxed);
            queue.control().restart(now, WATCHDOG_TIMEO);
            restarted += 1;
        }
        restarted
    }

    /// As [`watchdog`](Device::watchdog), for one queue, and waits for nobody. False: the queue has
    /// a ring to restart, and another thread owns it now.
    pub(super) fn try_watchdog(&self, queue: usize, now: Time) -> bool {
        let queue = &self.queues[queue];
        if !self.is_active() || !queue.status.is_stuck(now, WATCHDOG_TIMEO) {
            return true;
        }
        let Some(control) = queue.try_control(now) else {
            return false;
        };
        // That owner may have found the ring free since.
        if control.rings.refused_since().is_some() {
            self.timeouts.fetch_add(1, Ordering::Relaxed);
            control.restart(now, WATCHDOG_TIMEO);
        }
        true
    }

    /// Takes the device down: what is queued is dropped as [`DropReason::QdiscReset`], what is
    /// sent from now on as [`DropReason::DeviceDown`]. When this returns, no queue holds a
    /// packet, nobody runs one, and nothing reaches the driver any more (INV-TX-10). Waits for
    /// running threads: control path only, one caller at a time.
    ///
    /// In the kernel a grace period must pass before the queues may be emptied, because a sender
    /// that has chosen a queue could still put a packet into it when it is gone (BUG-TX-6). Here
    /// a queue that is down stays where it is: a sender that was preempted between its look at
    /// the device and its push finds the queue down and drops its packets itself, whenever it
    /// goes on.
    ///
    /// # Errors
    /// [`ControlError::CalledByOwner`]; nothing is changed then.
    pub fn deactivate(&self) -> Result<(), ControlError> {
        ControlError::unless_owner()?;
        self.change_uses(uses::DOWN, true);
        self.queues.iter().for_each(|queue| queue.set_active(false));
        for queue in &self.queues {
            // What was pushed meanwhile is dropped by whoever runs the queue: its sender, or this
            // thread.
            while !queue.is_empty() {
                // It only drops; no time passes there.
                let _ = queue.run_from_worker(RUN_QUOTA, Time::ZERO);
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Takes the device up again. Control path only, one caller at a time.
    ///
    /// # Errors
    /// [`ControlError::CalledByOwner`]; nothing is changed then.
    pub fn activate(&self) -> Result<(), ControlError> {
        ControlError::unless_owner()?;
        self.queues.iter().for_each(|queue| queue.set_active(true));
        self.change_uses(uses::DOWN, false);
        Ok(())
    }

    /// True if the device is up.
    pub fn is_active(&self) -> bool {
        self.uses.load(Ordering::Relaxed) & uses::DOWN == 0
    }

    /// True if no packet waits to be sent. Exact when no sender is active.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(TxQueue::is_empty)
    }
}
