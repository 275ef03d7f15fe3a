//! loom models of the receive side, with the types as they are shipped: a push to a backlog
//! against a worker that goes to sleep (MC-11), and flows that move from one worker to another
//! (MC-13).

use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};

use super::testing::Values;
use super::*;
use crate::tx::{Notifier, Wake};

/// Counts wake-ups.
#[derive(Debug)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A worker as others see it: its backlog and its notifier.
struct Target {
    backlog: BatchList<Values>,
    notifier: Notifier,
    wakes: StdArc<Count>,
    processed: AtomicUsize,
}

impl Target {
    fn new(batches: u64) -> Arc<Target> {
        let wakes = StdArc::new(Count(AtomicUsize::new(0)));
        Arc::new(Target {
            backlog: BatchList::starting_at(batches, 0),
            notifier: Notifier::new(1, wakes.clone()),
            wakes,
            processed: AtomicUsize::new(0),
        })
    }

    /// A sender's push.
    fn push(&self, value: usize) {
        assert!(self.backlog.push(Values::one(value), 1, 100).is_ok());
    }

    /// One poll of the backlog.
    fn process(&self) {
        let taken = self.backlog.take().0;
        self.processed.fetch_add(taken.len(), Ordering::Relaxed);
        self.backlog.end_batch();
    }

    /// Sleeps, if `idle` says so, while `others` do what they do. Panics if it sleeps for ever.
    fn sleep(&self, idle: impl FnOnce() -> bool, others: Vec<JoinHandle<()>>) {
        let most = others.len();
        let mut others = Some(others);
        let mut join = || {
            let others = others.take().into_iter().flatten();
            others.for_each(|thread| thread.join().unwrap());
        };
        self.notifier.sleep_if(idle, || {
            join();
            let woken = self.wakes.0.load(Ordering::Relaxed);
            let work = !self.backlog.is_empty() || !self.notifier.is_quiet();
            assert!(!work || woken != 0, "asleep with work");
        });
        join();
        let woken = self.wakes.0.load(Ordering::Relaxed);
        assert!(woken <= most, "a wake-up for each sender at most");
    }
}

/// INV-RX-1, INV-RX-4, INV-RX-5: two workers push while the target works and goes to sleep. If it
/// sleeps with packets in its backlog, a wake-up is sent.
fn going_to_sleep(looks: bool) {
    loom::model(move || {
        let target = Target::new(0);
        let senders = (0..2).map(|value| {
            let target = target.clone();
            thread::spawn(move || {
                target.push(value);
                target.notifier.wake();
            })
        });
        let senders = senders.collect();
        target.process();
        target.sleep(|| !looks || target.backlog.is_empty(), senders);
        let left = target.backlog.take().0.len();
        assert_eq!(target.processed.load(Ordering::Relaxed) + left, 2);
    });
}

#[test]
fn a_backlog_is_never_left_to_a_sleeper() {
    going_to_sleep(true);
}

/// The model can fail: a worker that does not look at its backlog once more sleeps on packets.
#[test]
#[should_panic(expected = "asleep with work")]
fn without_the_last_look_a_worker_sleeps_on_packets() {
    going_to_sleep(false);
}

/// The model can fail: a sender that wakes before it pushes wakes nobody.
#[test]
#[should_panic(expected = "asleep with work")]
fn a_wake_up_before_the_push_is_lost() {
    loom::model(|| {
        let target = Target::new(0);
        let sender = target.clone();
        let thread = thread::spawn(move || {
            sender.notifier.wake();
            sender.push(1);
        });
        target.sleep(|| target.backlog.is_empty(), vec![thread]);
    });
}

/// INV-RX-4 with an event beside the backlog (a claim that was missed): both are looked at before
/// the worker sleeps.
#[test]
fn a_missed_claim_wakes_the_owner() {
    loom::model(|| {
        let target = Target::new(0);
        let queue = Arc::new(RunState::new(0));
        let event = Arc::new(AtomicUsize::new(0));
        let (other, queue2, event2) = (target.clone(), queue.clone(), event.clone());
        // Another worker polls the queue; if the owner came by meanwhile, it notifies it.
        let thread = thread::spawn(move || {
            let Some(mut guard) = queue2.try_begin() else {
                return;
            };
            *guard = event2.load(Ordering::Relaxed);
            if guard.end().is_err() {
                other.notifier.notify(0);
            }
        });
        event.store(1, Ordering::Relaxed);
        if let Some(mut guard) = queue.begin_or_miss() {
            *guard = event.load(Ordering::Relaxed);
            drop(guard.end());
        }
        target.sleep(|| true, vec![thread]);
        let seen = queue.try_begin().map(|guard| *guard);
        let notified = !target.notifier.is_quiet();
        assert!(notified || seen == Some(1), "the event was lost");
    });
}

/// INV-RX-2: when the mark of a flow's last packet has passed, that packet has been processed, so
/// that the flow may go elsewhere. The numbers wrap in the middle.
fn moving(mark: fn(&Target) -> u64) {
    loom::model(move || {
        let target = Target::new(u64::MAX - 1);
        let owner = target.clone();
        let thread = thread::spawn(move || {
            owner.process();
            owner.process();
        });
        target.push(1);
        let mark = mark(&target);
        let overtaken =
            target.backlog.passed(mark) && target.processed.load(Ordering::Relaxed) == 0;
        thread.join().unwrap();
        assert!(!overtaken, "overtaken");
    });
}

#[test]
fn a_flow_moves_only_behind_its_packets() {
    moving(|target| target.backlog.mark());
}

/// The model can fail: the number of the current batch is not enough, for the packet may be in
/// the next.
#[test]
#[should_panic(expected = "overtaken")]
fn a_mark_one_lower_lets_a_flow_overtake_itself() {
    moving(|target| target.backlog.mark().wrapping_sub(1));
}

/// It errs on one side only: when the owner has been round twice more, every mark has passed.
#[test]
fn a_mark_passes_at_last() {
    loom::model(|| {
        let target = Target::new(0);
        let owner = target.clone();
        let thread = thread::spawn(move || owner.process());
        target.push(1);
        let mark = target.backlog.mark();
        thread.join().unwrap();
        target.process();
        target.process();
        assert!(target.backlog.passed(mark));
        assert_eq!(target.processed.load(Ordering::Relaxed), 1);
    });
}
