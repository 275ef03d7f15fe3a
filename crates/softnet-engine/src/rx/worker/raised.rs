//! Bound on the time that a worker works ahead of programs.
//!
//! A worker that is woken works at once, in a raised scheduling class, as softirq does. What is
//! left after a bounded time it does in the normal class, as ksoftirqd does, so that a flood leaves
//! programs their share of the CPU.

use std::time::Duration;

use softnet::time::Time;

/// Longest time in the raised class after a sleep (the kernel's `MAX_SOFTIRQ_TIME`).
const BOUND: Duration = Duration::from_millis(2);

/// Time since a worker was woken, and the class that it has.
#[derive(Debug, Default)]
pub(super) struct Raised {
    since: Time,
    lowered: bool,
}

impl Raised {
    /// The worker was woken.
    pub(super) fn begins(&mut self, now: Time) {
        self.since = now;
        self.lowered = false;
    }

    /// The time is over.
    pub(super) fn is_over(&self, now: Time) -> bool {
        now.since(self.since) >= BOUND
    }

    /// Has the thread lowered. False: it is.
    pub(super) fn lower(&mut self) -> bool {
        !std::mem::replace(&mut self.lowered, true)
    }

    /// The worker sleeps next. True: the thread is to be raised before; also if somebody else may
    /// have lowered it, as it was in one call for long.
    pub(super) fn ends(&self, now: Time) -> bool {
        self.lowered || self.is_over(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::Net;

    #[test]
    fn a_worker_is_lowered_once_and_raised_before_it_sleeps() {
        let at = |us| Time::ZERO + Duration::from_micros(us);
        let mut raised = Raised::default();
        raised.begins(at(100));
        assert!(!raised.is_over(at(2099)) && !raised.ends(at(2099)));
        assert!(raised.is_over(at(2100)) && raised.lower());
        assert!(raised.ends(at(2101)) && !raised.lower());
        raised.begins(at(10_000));
        assert!(!raised.is_over(at(11_000)) && !raised.ends(at(11_000)));
        // For another reason than time.
        assert!(raised.lower() && raised.ends(at(11_000)));
        raised.begins(at(10_000));
        // In one call for long, in which somebody else may have lowered it.
        assert!(raised.ends(at(13_000)));
    }

    /// A poll takes longer than the bound and leaves packets: the rest is done in the normal class,
    /// and the sleep that follows is one in the raised class.
    #[test]
    #[cfg_attr(miri, ignore = "the interpreter takes long where a worker does not")]
    fn work_beyond_the_bound_is_done_in_the_normal_class() {
        let net = Net::new(1, 2);
        let class = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        let classes = net.classes[0].clone();
        let packets = |n| (0..n).map(|mark| softnet::testing::frame(&net.pool, 2, 1, 60, mark));
        net.settle();
        let queue = net.ports[0].queue.clone();
        // One that was lowered before (it lost its CPU, say) is not lowered again until it sleeps.
        let normal = || classes.normal.load(Ordering::Relaxed);
        let mut stalls = (0..100).map(|_| {
            net.wait("the worker to be raised", || !normal());
            queue.stall()
        });
        let mut feed = stalls.find(|_| !normal()).expect("a raised worker");
        let before = class(&classes.lowered);
        feed.packets.extend(packets(3 * crate::rx::WEIGHT as u32));
        std::thread::sleep(BOUND);
        drop(feed);
        net.settle();
        assert!(class(&classes.lowered) > before);
        net.wait("the worker to be raised", || {
            class(&classes.raised) > 0 && class(&classes.raised) >= class(&classes.lowered)
        });
        net.stop();
    }
}
