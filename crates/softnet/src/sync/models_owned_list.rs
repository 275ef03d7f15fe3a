//! loom models of the [`OwnedList`] with the worker's [`Notifier`] and the driver's [`Event`]:
//! push, adopt, own, missed; hand-over to a worker; stop and wake; deactivation against a push.
//! The owner's value is plain memory in loom's cell, and so are the nodes. For each protecting
//! step there is a model without it, which must fail. Run by `.ci/loom.sh`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::testing::Values;
use super::*;
use crate::testing::NoWake;
use crate::tx::{Event, Notifier};

/// The queue, for its worker.
const QUEUE: usize = 0;

/// State that the runner owns.
#[derive(Default)]
pub(super) struct State {
    sent: Vec<usize>,
    waiting: Vec<usize>,
    stopped: bool,
    down: bool,
}

pub(super) struct Queue {
    pub(super) list: OwnedList<Values, State>,
    notifier: Notifier,
    woken: Event,
    /// The driver is full after every packet, until it has capacity again.
    narrow: bool,
    /// Looks of a sender before it pushes.
    looks: u32,
    capacity: AtomicBool,
    /// Packets that a model has counted as pushed, and that were not sent yet.
    pub(super) waiting: Option<AtomicUsize>,
}

/// Steps that can be left out.
#[derive(Clone, Copy, Default)]
pub(super) struct Without {
    /// The runner gives the run up without looking at what was pushed meanwhile.
    look: bool,
    /// Who leaves something tells the worker.
    event: bool,
    /// The worker, turned away, makes the runner go round again.
    missed: bool,
    /// A sender that becomes the owner takes what was left before it sends its own.
    left: bool,
    /// It does so also where the control path has claimed the list meanwhile.
    claimed: bool,
}

/// Nodes that a sender finds that has become the owner.
fn left_before(guard: &mut ListOwner<'_, Values, State>, left: Left, without: Without) -> Values {
    if without.left {
        Values::default()
    } else if without.claimed {
        let taken = guard.take(usize::MAX);
        taken.map_or_else(Values::default, |(left, _)| left)
    } else {
        guard.take_left(left)
    }
}

impl Queue {
    fn new(narrow: bool) -> Arc<Queue> {
        Arc::new(Queue::of(narrow))
    }

    pub(super) fn of(narrow: bool) -> Queue {
        Queue {
            list: OwnedList::new(State::default(), 0),
            notifier: Notifier::new(1, std::sync::Arc::new(NoWake)),
            woken: Event::default(),
            narrow,
            looks: 0,
            capacity: AtomicBool::new(true),
            waiting: None,
        }
    }

    fn notify(&self) {
        self.notifier.notify(QUEUE);
    }

    pub(super) fn transmit(&self, value: usize, without: Without) {
        self.transmit_list(Values::one(value), without);
    }

    fn transmit_list(&self, mut own: Values, without: Without) {
        if let Some((mut guard, left)) = self.list.begin_within(self.looks) {
            let mut left = left_before(&mut guard, left, without);
            left.0.append(&mut own.0);
            return self.serve(guard, left, without);
        }
        match self.list.enter(&mut own, |_| 100) {
            Entry::Acquired(mut guard, left) => {
                let mut left = left_before(&mut guard, left, without);
                left.0.append(&mut own.0);
                self.serve(guard, left, without);
            }
            Entry::Queued(_) => {}
            Entry::Full => unreachable!("the limit is far"),
        }
    }

    pub(super) fn serve(
        &self,
        mut guard: ListOwner<'_, Values, State>,
        mut adopted: Values,
        without: Without,
    ) {
        loop {
            guard.waiting.append(&mut adopted.0);
            self.send(&mut guard);
            if without.look {
                let _ = guard.leave();
                return;
            }
            match guard.end() {
                Ok(()) => return,
                Err(again) => guard = again,
            }
            adopted = match guard.take(usize::MAX) {
                Some((taken, _)) => taken,
                None => {
                    // The control path is next, and tells the worker when it is done.
                    let _ = guard.leave();
                    return;
                }
            };
        }
    }

    /// Sends what waits, as far as the driver takes it.
    fn send(&self, runner: &mut State) {
        if runner.stopped {
            if !self.woken.take() {
                return;
            }
            runner.stopped = false;
        }
        if runner.down {
            // Dropped, and counted as if sent: the models ask only that it is accounted for.
            runner
                .sent
                .append(&mut { std::mem::take(&mut runner.waiting) });
            return;
        }
        while !runner.waiting.is_empty() {
            if self.narrow && !self.capacity.swap(false, Ordering::SeqCst) {
                runner.stopped = true;
                return;
            }
            let first = runner.waiting.remove(0);
            runner.sent.push(first);
            if let Some(waiting) = &self.waiting {
                waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// The worker: as long as its event rings.
    fn work(&self, without: Without) {
        while self.notifier.take(|_| ()) {
            if without.missed {
                if let Some((guard, left)) = self.list.try_begin() {
                    self.serve(guard, left, without);
                }
            } else if let Some((guard, left)) = self.list.begin_or_miss() {
                self.serve(guard, left, without);
            }
        }
    }

    /// Packets sent, once nobody is active any more; those that wait are stuck.
    pub(super) fn sent(&self) -> Vec<usize> {
        let (guard, left) = self.list.try_begin().expect("idle");
        assert!(left.is_empty() && guard.waiting.is_empty(), "stuck");
        guard.sent.clone()
    }
}

pub(super) const WHOLE: Without = Without {
    look: false,
    event: false,
    missed: false,
    left: false,
    claimed: false,
};

const NO_LOOK: Without = Without {
    look: true,
    ..WHOLE
};

/// INV-TX-1, INV-TX-2, INV-TX-3, INV-TX-5: with two senders of two packets and one, all are sent
/// when both are done, no thread waited, and each sender's are in its order. The cell inside the
/// list makes loom fail if two threads own it at once.
fn two_senders(looks: u32, without: Without) {
    loom::model(move || {
        let queue = Arc::new(Queue {
            looks,
            ..Queue::of(false)
        });
        let other = queue.clone();
        let thread = thread::spawn(move || other.transmit(10, without));
        queue.transmit(1, without);
        queue.transmit(2, without);
        thread.join().unwrap();
        let sent = queue.sent();
        let mine: Vec<_> = sent.iter().copied().filter(|&v| v < 10).collect();
        assert_eq!((mine, sent.len()), (vec![1, 2], 3));
    });
}

#[test]
fn a_run_leaves_nothing_behind() {
    two_senders(0, WHOLE);
}

/// As above, for lists, which look for the ownership before they are pushed.
#[test]
fn a_run_of_lists_that_look_leaves_nothing_behind() {
    two_senders(1, WHOLE);
}

/// INV-TX-3: an owner has left a sender's first packet; the second goes behind it, beside the
/// worker or a thread that claims the list.
fn what_was_left_goes_first(claims: bool, without: Without) {
    loom::model(move || {
        let queue = Queue::new(false);
        let (owner, left) = queue.list.try_begin().expect("idle");
        assert!(left.is_empty());
        queue.transmit(1, without);
        assert!(owner.leave());
        queue.notify();
        let other = queue.clone();
        let thread = thread::spawn(move || {
            if claims {
                let _ = other.list.begin_slow().leave();
                other.notify();
            } else {
                other.work(without);
            }
        });
        queue.transmit(2, without);
        thread.join().unwrap();
        queue.work(without);
        assert_eq!(queue.sent(), [1, 2], "out of order");
    });
}

#[test]
fn a_sender_sends_what_was_left_first() {
    what_was_left_goes_first(false, WHOLE);
    what_was_left_goes_first(true, WHOLE);
}

#[test]
#[should_panic(expected = "out of order")]
fn without_the_look_for_what_was_left_a_packet_is_overtaken() {
    what_was_left_goes_first(
        false,
        Without {
            left: true,
            ..WHOLE
        },
    );
}

#[test]
#[should_panic(expected = "out of order")]
fn without_what_was_left_beside_a_claim_a_packet_is_overtaken() {
    what_was_left_goes_first(
        true,
        Without {
            claimed: true,
            ..WHOLE
        },
    );
}

/// INV-TX-1 to INV-TX-3 for lists of several packets: pushed, or refused by a list without an owner
/// and sent, they stay in one piece.
#[test]
fn a_run_keeps_lists_in_one_piece() {
    loom::model(|| {
        let queue = Queue::new(false);
        let other = queue.clone();
        let send = |queue: &Queue, values: &[usize]| {
            queue.transmit_list(Values(values.to_vec()), WHOLE);
        };
        let thread = thread::spawn(move || send(&other, &[10, 11]));
        send(&queue, &[1, 2]);
        send(&queue, &[3, 4]);
        thread.join().unwrap();
        let mut sent = queue.sent();
        let place = sent.iter().position(|&v| v == 10).expect("sent");
        assert_eq!(sent.drain(place..place + 2).next_back(), Some(11));
        assert_eq!((place % 2, &sent[..]), (0, &[1, 2, 3, 4][..]));
    });
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_look_at_the_end_a_list_that_looked_is_stuck() {
    two_senders(1, NO_LOOK);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_look_at_the_end_a_packet_is_stuck() {
    two_senders(0, NO_LOOK);
}

#[test]
fn a_run_with_three_senders() {
    loom::model(|| {
        let queue = Queue::new(false);
        let threads: Vec<_> = (1..3)
            .map(|value| {
                let queue = queue.clone();
                thread::spawn(move || queue.transmit(value, WHOLE))
            })
            .collect();
        queue.transmit(3, WHOLE);
        threads.into_iter().for_each(|t| t.join().unwrap());
        let mut sent = queue.sent();
        sent.sort_unstable();
        assert_eq!(sent, [1, 2, 3]);
    });
}

/// A runner whose quota is used up leaves the run, tells the worker, and nothing is stuck
/// (INV-TX-12).
fn leave_to_worker(without: Without) {
    loom::model(move || {
        let queue = Queue::new(false);
        let other = queue.clone();
        // Has the run, sends nothing of what is pushed meanwhile, and leaves.
        let (guard, left) = queue.list.try_begin().expect("idle");
        assert!(left.is_empty());
        let thread = thread::spawn(move || other.transmit(1, without));
        if guard.leave() && !without.event {
            queue.notify();
        }
        thread.join().unwrap();
        queue.work(without);
        assert_eq!(queue.sent(), [1]);
    });
}

#[test]
fn what_a_run_leaves_the_worker_does() {
    leave_to_worker(WHOLE);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_event_what_a_run_leaves_is_stuck() {
    leave_to_worker(Without {
        event: true,
        ..WHOLE
    });
}

/// INV-TX-11, BUG-TX-24: the driver is full after one packet, and has capacity again while the
/// owner is about to stop.
fn stop_and_wake(without: Without) {
    loom::model(move || {
        let queue = Queue::new(true);
        let other = queue.clone();
        let driver = thread::spawn(move || {
            if other.capacity.swap(true, Ordering::SeqCst) {
                // It was not full, so it has nobody to tell.
                return;
            }
            other.woken.raise(&other.notifier, QUEUE);
            other.work(without);
        });
        queue.transmit(1, without);
        queue.transmit(2, without);
        driver.join().unwrap();
        // Where the driver had capacity before the first packet, the second found it full, and
        // nobody says that it has capacity again.
        queue.capacity.store(true, Ordering::SeqCst);
        let (guard, left) = queue.list.try_begin().expect("idle");
        assert!(left.is_empty());
        let told = guard.stopped && queue.woken.take();
        assert!(
            !told,
            "stuck: the driver said that it has capacity, and nobody tries"
        );
    });
}

#[test]
fn a_wake_up_between_refusal_and_stop_is_not_lost() {
    stop_and_wake(WHOLE);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_missed_a_wake_up_is_lost() {
    stop_and_wake(Without {
        missed: true,
        ..WHOLE
    });
}

/// Deactivation against a push: a packet is sent before, or dropped by the thread that
/// deactivates, or by the worker it notifies; never left behind.
fn deactivate(without: Without) {
    loom::model(move || {
        let queue = Queue::new(false);
        let other = queue.clone();
        let sender = thread::spawn(move || other.transmit(1, without));
        let mut guard = queue.list.begin_slow();
        guard.down = true;
        let mut left = guard.take_all();
        guard.sent.append(&mut left.0);
        let _ = guard.leave();
        if !without.event {
            // As the control path does, whatever is left.
            queue.notify();
        }
        queue.work(without);
        sender.join().unwrap();
        assert_eq!(queue.sent(), [1]);
    });
}

#[test]
fn a_deactivation_loses_no_packet() {
    deactivate(WHOLE);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_event_a_deactivation_strands_a_packet() {
    deactivate(Without {
        event: true,
        ..WHOLE
    });
}

/// INV-TX-8: a list that is not empty never grows beyond the limit, and an empty one takes a chain
/// whatever the limit.
#[test]
fn the_limit_of_a_run_is_exact() {
    loom::model(|| {
        let queue = Queue::new(false);
        let (guard, _) = queue.list.try_begin().expect("idle");
        let push = |queue: &Queue, value| {
            let mut own = Values::one(value);
            let pushed = queue.list.push(&mut own, 1).is_some();
            assert_eq!(pushed, own.is_empty());
            usize::from(pushed)
        };
        let other = queue.clone();
        let thread = thread::spawn(move || push(&other, 1));
        let pushed = push(&queue, 2) + push(&queue, 3) + thread.join().unwrap();
        assert_eq!((pushed, queue.list.len()), (1, 1));
        queue.serve(guard, Values::default(), WHOLE);
        assert_eq!(queue.sent().len(), 1);
    });
}

/// Invariant 3: a thread of the control path becomes the owner beside two senders that never
/// pause, and what they left meanwhile is not stuck.
#[test]
fn a_claim_beside_senders_strands_nothing() {
    loom::model(|| {
        let queue = Queue::new(false);
        let other = queue.clone();
        let sender = thread::spawn(move || {
            other.transmit(1, WHOLE);
            other.transmit(2, WHOLE);
        });
        let mut guard = queue.list.begin_slow();
        let mut left = guard.take_all();
        guard.sent.append(&mut left.0);
        let _ = guard.leave();
        queue.notify();
        queue.work(WHOLE);
        sender.join().unwrap();
        assert_eq!(queue.sent(), [1, 2]);
    });
}

/// Invariant 3, and its other side: a thread that has claimed the list and stands still stops
/// nobody. With `turn` a sender that finds too much waiting takes its turn, and the claimer comes
/// to own the list all the same.
fn a_claimer_stands_still(turn: bool) {
    loom::model(move || {
        let queue = Queue::new(false);
        let looked = Arc::new(AtomicBool::new(false));
        let (other, over) = (queue.clone(), looked.clone());
        let (first, _) = queue.list.try_begin().expect("idle");
        let claimer = thread::spawn(move || {
            let mut guard = other.list.begin_slow();
            // The look below is about the time before this.
            while !over.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let mut left = guard.take_all();
            guard.sent.append(&mut left.0);
            let _ = guard.leave();
            other.notify();
        });
        queue.serve(first, Values::default(), WHOLE);
        queue.transmit(1, WHOLE);
        if turn && let Some((guard, left)) = queue.list.begin_overdue(1) {
            queue.serve(guard, left, WHOLE);
        }
        let served = queue.list.is_empty() || queue.list.is_owned();
        looked.store(true, Ordering::Release);
        claimer.join().unwrap();
        assert!(served, "a packet waits, and nobody owns the list");
        queue.work(WHOLE);
        assert_eq!(queue.sent(), [1]);
    });
}

#[test]
fn a_claimer_that_stands_still_stops_nobody() {
    a_claimer_stands_still(true);
}

#[test]
#[should_panic(expected = "nobody owns the list")]
fn without_the_turn_a_claimer_that_stands_still_stops_all() {
    a_claimer_stands_still(false);
}
