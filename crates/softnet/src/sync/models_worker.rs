//! loom models of what owners of a queue leave to its worker, with the types as they are shipped:
//! the time for which it comes back, packets of a device that is going down, and packets of a queue
//! without rings. For each protecting step there is a model without it, which must fail.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::testing::Values;
use super::worker::{Down, Tell, WorkerTimer};
use super::*;
use crate::testing::NoWake;
use crate::time::Time;
use crate::tx::Notifier;

/// From then on the queue's rate allows all that waits.
const RELEASE: Time = Time(5);

/// A step that is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// An owner that turned the worker away notifies it.
    Missed,
    /// A sender whose time the worker does not know of notifies it.
    Armed,
    /// A sender looks whether the device is down.
    Down,
    /// An owner that has no ring for its packets notifies the worker.
    Event,
    /// Forgets no event when it takes what was left.
    Kept,
}

#[derive(Default)]
struct State {
    waiting: usize,
    done: usize,
    no_rings: bool,
}

struct Queue {
    list: OwnedList<Values, State>,
    notifier: Notifier,
    timer: WorkerTimer,
    down: Down,
    /// As published by the last owner.
    qlen: AtomicUsize,
    without: Without,
}

type Owner<'a> = ListOwner<'a, Values, State>;

impl Queue {
    fn new(without: Without) -> Arc<Queue> {
        Arc::new(Queue {
            list: OwnedList::new(State::default(), 0),
            notifier: Notifier::new(1, std::sync::Arc::new(NoWake)),
            timer: WorkerTimer::new(),
            down: Down::default(),
            qlen: AtomicUsize::new(0),
            without,
        })
    }

    fn notify(&self) {
        self.notifier.notify(0);
    }

    /// Pushes a packet, also where there is no owner.
    fn push(&self) {
        let pushed = self.list.push(&mut Values::one(0), 100);
        assert!(pushed.is_some(), "the limit is far");
    }

    /// A sender of one packet.
    fn send(&self, now: Time) {
        match self.list.enter(&mut Values::one(0), |_| 100) {
            Entry::Acquired(mut owner, left) => {
                let left = match self.without {
                    Without::Kept => {
                        let taken = owner.take(usize::MAX);
                        taken.map_or_else(Values::default, |(left, _)| left)
                    }
                    _ => owner.take_left(left),
                };
                self.serve(owner, left.0.len() + 1, Some(now), now);
            }
            Entry::Queued(_) => {}
            Entry::Full => unreachable!("the limit is far"),
        }
    }

    /// Serves the queue as its owner, as the shipped queue does. Returns when the queue wants to be
    /// served again.
    fn serve(&self, mut owner: Owner, adopted: usize, sender: Option<Time>, now: Time) -> Time {
        owner.waiting += adopted;
        let mut missed = false;
        loop {
            if owner.no_rings && owner.waiting != 0 {
                self.qlen.store(owner.waiting, Ordering::Relaxed);
                if owner.leave() || self.without != Without::Event {
                    self.notify();
                }
                return Time::MAX;
            }
            let mut timer = RELEASE;
            if now >= RELEASE {
                owner.done += std::mem::take(&mut owner.waiting);
                timer = Time::MAX;
            }
            missed &= self.without != Without::Missed;
            match self.timer.leave(timer, sender, missed) {
                Tell::Nothing => {}
                Tell::Now if self.without == Without::Armed => {}
                Tell::Now => self.notify(),
                Tell::After => {
                    let _ = owner.leave();
                    self.notify();
                    return timer;
                }
            }
            match owner.end() {
                Ok(()) => return timer,
                Err(again) => owner = again,
            }
            let Some((taken, other)) = owner.take(usize::MAX) else {
                let _ = owner.leave();
                self.notify();
                return Time::MAX;
            };
            missed = other;
            owner.waiting += taken.0.len();
        }
    }

    fn run_from_worker(&self, now: Time) -> Time {
        match self.list.begin_or_miss() {
            Some((owner, left)) => self.serve(owner, left.0.len(), None, now),
            None => Time::MAX,
        }
    }

    /// The worker, as long as it is notified or its timer is due.
    fn work(&self, timer: &mut Time, now: Time) {
        while self.notifier.take(|_| ()) || *timer <= now {
            *timer = self.run_from_worker(now);
        }
    }

    /// Packets that are done, once nobody is active any more.
    fn done(&self) -> usize {
        let (owner, left) = self.list.try_begin().expect("idle");
        assert!(left.is_empty() && owner.waiting == 0, "stuck");
        owner.done
    }
}

/// INV-TX-2: a packet waits for its time, for which the worker comes back, or will after it was
/// notified; two other senders, whose clocks say less than the worker's, come when the timer
/// fires.
fn a_timer_fires(without: Without) {
    loom::model(move || {
        let queue = Queue::new(without);
        let mut timer = Time::MAX;
        queue.send(Time(1));
        queue.work(&mut timer, Time(2));
        let senders = [Time(4), Time(3)].map(|now| {
            let queue = queue.clone();
            thread::spawn(move || queue.send(now))
        });
        queue.work(&mut timer, RELEASE);
        senders.into_iter().for_each(|s| s.join().unwrap());
        queue.work(&mut timer, RELEASE);
        assert_eq!(queue.done(), 3);
    });
}

#[test]
fn a_timer_that_fires_beside_a_sender_is_not_lost() {
    a_timer_fires(Without::Nothing);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_missed_a_timer_that_fires_beside_a_sender_is_lost() {
    a_timer_fires(Without::Missed);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_notification_a_senders_time_is_lost() {
    a_timer_fires(Without::Armed);
}

/// INV-TX-2: the timer fires, and the worker is turned away, between the step that makes a sender
/// the owner and the one that takes what was left.
fn a_timer_fires_where_something_was_left(without: Without) {
    loom::model(move || {
        let queue = Queue::new(without);
        let mut timer = Time::MAX;
        queue.send(Time(1));
        queue.work(&mut timer, Time(2));
        let (owner, left) = queue.list.try_begin().expect("idle");
        assert!(left.is_empty());
        queue.push();
        assert!(owner.leave());
        queue.notify();
        let other = queue.clone();
        let sender = thread::spawn(move || other.send(Time(3)));
        queue.work(&mut timer, RELEASE);
        sender.join().unwrap();
        queue.work(&mut timer, RELEASE);
        assert_eq!(queue.done(), 3);
    });
}

#[test]
fn a_timer_that_fires_before_what_was_left_is_taken_is_not_lost() {
    a_timer_fires_where_something_was_left(Without::Nothing);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_event_kept_a_timer_is_lost() {
    a_timer_fires_where_something_was_left(Without::Kept);
}

/// INV-TX-10: a sender that pushes for the worker beside a thread that takes the device down. No
/// worker comes.
fn a_device_goes_down(without: Without) {
    loom::model(move || {
        let queue = Queue::new(without);
        let other = queue.clone();
        let sender = thread::spawn(move || {
            other.push();
            other.notify();
            if other.down.is_set() && other.without != Without::Down {
                other.run_from_worker(RELEASE);
            }
        });
        queue.down.set(true);
        let mut owner = queue.list.begin_slow();
        owner.done += std::mem::take(&mut owner.waiting);
        let _ = owner.leave();
        queue.notify();
        while !queue.list.is_idle() {
            queue.run_from_worker(RELEASE);
            thread::yield_now();
        }
        sender.join().unwrap();
        assert_eq!(queue.done(), 1);
    });
}

#[test]
fn a_push_beside_a_device_that_goes_down_is_not_stuck() {
    a_device_goes_down(Without::Nothing);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_look_a_push_beside_a_device_that_goes_down_is_stuck() {
    a_device_goes_down(Without::Down);
}

/// A sender comes to a queue that is no longer in use, and has no rings. The worker takes what is
/// stranded to another queue; where the control path gives the queue rings again meanwhile, the
/// queue serves it.
fn packets_are_stranded(without: Without, rings_come: bool) {
    loom::model(move || {
        let queue = Queue::new(without);
        queue.list.try_begin().expect("idle").0.no_rings = true;
        let in_use = Arc::new(AtomicBool::new(false));
        let (sender, control, active) = (queue.clone(), queue.clone(), in_use.clone());
        let sender = thread::spawn(move || sender.send(RELEASE));
        let control = thread::spawn(move || {
            if rings_come {
                active.store(true, Ordering::Relaxed);
                let mut owner = control.list.begin_slow();
                owner.no_rings = false;
                let _ = owner.leave();
                control.notify();
            }
        });
        let mut moved = 0;
        let mut work = || {
            while queue.notifier.take(|_| ()) {
                let empty = queue.list.is_idle() && queue.qlen.load(Ordering::Relaxed) == 0;
                if empty || in_use.load(Ordering::Relaxed) {
                    queue.run_from_worker(RELEASE);
                } else if let Some((mut owner, left)) = queue.list.begin_or_miss() {
                    owner.waiting += left.0.len();
                    if owner.no_rings {
                        moved += std::mem::take(&mut owner.waiting);
                    }
                    queue.qlen.store(owner.waiting, Ordering::Relaxed);
                    let _ = owner.leave();
                    queue.notify();
                }
                // Until the control path has given the rings.
                thread::yield_now();
            }
        };
        work();
        sender.join().unwrap();
        control.join().unwrap();
        work();
        assert_eq!(queue.done() + moved, 1);
    });
}

#[test]
fn packets_of_a_queue_without_rings_are_taken_elsewhere() {
    packets_are_stranded(Without::Nothing, false);
    packets_are_stranded(Without::Nothing, true);
}

#[test]
#[should_panic(expected = "stuck")]
fn without_the_event_packets_of_a_queue_without_rings_are_stuck() {
    packets_are_stranded(Without::Event, false);
}
