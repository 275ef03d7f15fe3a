//! The object by which a driver, or anyone, wakes the worker that serves a transmit queue.

use std::sync::Arc;

use super::notifier::{Event, Notifier};

/// Wakes the worker of a transmit queue. A driver gets one when its ring is
/// [bound](super::TxRing::bind); it may be cloned, and used from any thread.
#[derive(Clone, Debug)]
pub struct RingWaker(Arc<Target>);

#[derive(Debug)]
struct Target {
    /// The driver may have capacity again. Cleared by the queue's owner before it tries the
    /// driver.
    capacity: Event,
    notifier: Arc<Notifier>,
    /// The event by which the worker knows the queue.
    event: usize,
}

impl RingWaker {
    pub(super) fn new(notifier: Arc<Notifier>, event: usize) -> RingWaker {
        RingWaker(Arc::new(Target {
            capacity: Event::default(),
            notifier,
            event,
        }))
    }

    /// The driver has capacity again, or may have. May be called at any time, also while the
    /// queue is owned: a wake-up between the driver's refusal and the queue's stop is not lost
    /// (BUG-TX-24). Never waits; at most one system call.
    pub fn wake(&self) {
        self.0.capacity.raise(&self.0.notifier, self.0.event);
    }

    /// True if the driver has woken the queue since this was asked last.
    pub(super) fn take(&self) -> bool {
        self.0.capacity.take()
    }

    /// Has the worker serve the queue.
    pub(super) fn notify(&self) {
        self.0.notifier.notify(self.0.event);
    }

    /// As [`notify`](RingWaker::notify), by a thread that has just pushed something on the queue's
    /// adoption list.
    pub(super) fn notify_pushed(&self) {
        self.0.notifier.notify_pushed(self.0.event);
    }
}
