//! loom models of a worker's notifier, with the types as they are shipped: the bell of a transmit
//! queue and the driver's word that its ring has capacity again.

use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::thread;

use super::testing::Values;
use super::{OwnedList, RunState};
use crate::tx::{Event, Notifier, Wake};

const BELL: usize = 0;

/// Counts wake-ups.
#[derive(Debug)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A queue and the worker that serves it.
struct Queue {
    notifier: Notifier,
    /// The driver has capacity again.
    woken: Event,
    wakes: StdArc<Count>,
}

impl Queue {
    fn new() -> Arc<Queue> {
        let wakes = StdArc::new(Count(AtomicUsize::new(0)));
        Arc::new(Queue {
            notifier: Notifier::new(1, wakes.clone()),
            woken: Event::default(),
            wakes,
        })
    }

    /// The worker's round: true if it found that the driver has capacity.
    fn round(&self) -> bool {
        let mut rung = false;
        self.notifier.take(|_| rung = true);
        rung && self.woken.take()
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::Relaxed)
    }
}

/// A driver's wake-up beside the bell of another thread: the worker, which takes the bell and
/// tries the driver, either finds that there is capacity or is called once more.
#[test]
fn a_drivers_wake_up_is_not_lost() {
    loom::model(|| {
        let queue = Queue::new();
        queue.notifier.notify(BELL);
        let driver = queue.clone();
        let thread = thread::spawn(move || driver.woken.raise(&driver.notifier, BELL));
        let found = queue.round();
        thread.join().unwrap();
        assert!(found || queue.round(), "the wake-up was lost");
        assert_eq!(queue.wakes(), 0, "the worker is awake");
    });
}

/// A worker that lies down is woken, once, by whichever thread rings; and a thread that has set
/// the bell and then stands still (for ever, here) takes no wake-up with it.
#[test]
fn a_sleeper_is_woken_though_the_bell_was_set_by_a_thread_that_stands_still() {
    loom::model(|| {
        let queue = Queue::new();
        let preempted = queue.clone();
        let threads = [thread::spawn(move || preempted.notifier.set(BELL)), {
            let driver = queue.clone();
            thread::spawn(move || driver.woken.raise(&driver.notifier, BELL))
        }];
        let found = queue.round();
        let mut woken = None;
        let mut threads = Some(threads);
        queue.notifier.sleep_if(
            || true,
            || {
                for thread in threads.take().into_iter().flatten() {
                    thread.join().unwrap();
                }
                woken = Some(queue.wakes());
            },
        );
        for thread in threads.into_iter().flatten() {
            thread.join().unwrap();
        }
        assert!(
            woken.is_none_or(|wakes| found || wakes != 0),
            "asleep for ever"
        );
        assert!(found || queue.round(), "the wake-up was lost");
    });
}

/// Publication of a sender, before it looks whether the bell is set.
#[derive(Clone, Copy)]
enum Publishes {
    /// By a read-modify-write of the word that the worker changes, too.
    ByPush,
    /// By a store.
    ByStore,
}

/// INV-TX-2: a sender finds the bell set, by a thread that stands still then, and does not set it
/// again. The worker that takes the bell finds what the sender published, or is called once more;
/// one that lies down is woken.
fn a_sender_finds_the_bell_set(publishes: Publishes) {
    loom::model(move || {
        let queue = Queue::new();
        let list = Arc::new(OwnedList::<Values, usize>::new(0, 0));
        let (setter, sender, to) = (queue.clone(), queue.clone(), list.clone());
        let threads = [
            thread::spawn(move || setter.notifier.set(BELL)),
            thread::spawn(move || {
                match publishes {
                    Publishes::ByPush => {
                        let pushed = to.push(&mut Values::one(0), 100);
                        assert!(pushed.is_some(), "the limit is far");
                    }
                    Publishes::ByStore => sender.woken.happen(),
                }
                sender.notifier.notify_pushed(BELL);
            }),
        ];
        let round = || {
            let mut rung = false;
            queue.notifier.take(|_| rung = true);
            rung && match publishes {
                Publishes::ByPush => {
                    let (owner, left) = list.begin_or_miss().expect("there is no other owner");
                    // Who pushed meanwhile sets the bell.
                    let _ = owner.leave();
                    !left.is_empty()
                }
                Publishes::ByStore => queue.woken.take(),
            }
        };
        let found = round();
        let mut threads = Some(threads);
        let mut join = || {
            let threads = threads.take().into_iter().flatten();
            threads.for_each(|thread| thread.join().unwrap());
        };
        queue.notifier.sleep_if(
            || true,
            || {
                join();
                assert!(found || queue.wakes() != 0, "lost: asleep for ever");
            },
        );
        join();
        assert!(found || round(), "lost: nobody comes for it");
    });
}

#[test]
fn a_sender_that_pushed_may_find_the_bell_set() {
    a_sender_finds_the_bell_set(Publishes::ByPush);
}

/// The model can fail: a load passes a store, so who stored must ring.
#[test]
#[should_panic(expected = "lost: ")]
fn a_sender_that_stored_must_not_only_look_at_the_bell() {
    a_sender_finds_the_bell_set(Publishes::ByStore);
}

/// INV-RX-4: a thread that has found the worker asleep, and stands still before its system call,
/// takes no wake-up with it. With `notes_first` it notes the wake-up before it sends it.
fn a_waker_stands_still(notes_first: bool) {
    loom::model(move || {
        let queue = Queue::new();
        let (waker, driver) = (queue.clone(), queue.clone());
        let threads = [
            thread::spawn(move || {
                waker.notifier.set(BELL);
                let sleeper = waker.notifier.sleeper();
                if let Some(sleeping) = sleeper.sleeping()
                    && notes_first
                {
                    sleeper.told(sleeping);
                }
            }),
            thread::spawn(move || driver.woken.raise(&driver.notifier, BELL)),
        ];
        let mut threads = Some(threads);
        let mut join = || {
            let threads = threads.take().into_iter().flatten();
            threads.for_each(|thread| thread.join().unwrap());
        };
        queue.notifier.sleep_if(
            || true,
            || {
                join();
                assert!(queue.wakes() != 0, "asleep for ever");
            },
        );
        join();
        assert!(queue.round(), "the wake-up was lost");
    });
}

#[test]
fn a_waker_that_stands_still_takes_no_wake_up_with_it() {
    a_waker_stands_still(false);
}

/// The model can fail: noted before it is sent, a wake-up waits for the thread that sends it.
#[test]
#[should_panic(expected = "asleep for ever")]
fn a_wake_up_that_is_noted_before_it_is_sent_is_late() {
    a_waker_stands_still(true);
}

/// A wake-up that is noted late, in a later sleep, is none of that sleep: who notifies then wakes.
/// (Fails where sleeps are not numbered.)
#[test]
fn a_note_of_an_earlier_sleep_is_not_one_of_this() {
    loom::model(|| {
        let queue = Queue::new();
        let other = queue.clone();
        let mut waker = Some(thread::spawn(move || other.notifier.notify(BELL)));
        let mut join = || {
            waker.take().into_iter().for_each(|t| t.join().unwrap());
        };
        queue.notifier.sleep_if(|| true, || ());
        queue.notifier.take(|_| ());
        let before = queue.wakes();
        queue.notifier.sleep_if(
            || true,
            || {
                join();
                queue.notifier.notify(BELL);
                assert!(queue.wakes() > before, "asleep for ever");
            },
        );
        join();
    });
}

/// A receive queue in memory that its device shares, and the worker that owns it: notifications
/// are suppressed while that polls.
struct Receive {
    notifier: Notifier,
    packets: AtomicUsize,
    armed: AtomicBool,
    /// Packets that were polled.
    queue: RunState<usize>,
}

/// The owner's bell, by which the device tells of packets.
const PACKETS: usize = 0;
/// Wakes the owner for something that it knows of.
const COMMANDS: usize = 1;

impl Receive {
    /// The device has a packet.
    fn deliver(&self) {
        self.packets.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) {
            self.notifier.notify(PACKETS);
        }
    }

    /// The owner, until it has nothing to do.
    fn work(&self, comes_again: bool) {
        let mut scheduled = false;
        loop {
            self.notifier.take(|event| scheduled |= event == PACKETS);
            if !std::mem::take(&mut scheduled) {
                return;
            }
            let Some(mut polled) = self.queue.begin_or_miss() else {
                scheduled = comes_again;
                thread::yield_now();
                continue;
            };
            self.armed.store(false, Ordering::SeqCst);
            *polled += self.packets.swap(0, Ordering::SeqCst);
            self.armed.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            scheduled |= self.packets.load(Ordering::SeqCst) != 0;
            scheduled |= polled.end().is_err();
        }
    }

    /// Another worker takes one packet; the queue stays armed, and its notification stays unless
    /// `drains`: a poll that finds nothing consumes it.
    fn look_ahead(&self, drains: bool) {
        let Some(mut polled) = self.queue.try_begin() else {
            return;
        };
        if drains && self.packets.load(Ordering::SeqCst) == 0 {
            self.notifier.take(|_| ());
        }
        let one = |packets: usize| packets.checked_sub(1);
        let taken = self
            .packets
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, one);
        *polled += usize::from(taken.is_ok());
        if polled.end().is_err() {
            self.notifier.notify(COMMANDS);
        }
    }
}

/// INV-RX-10: an owner that is turned away by a worker that polls its queue once has not disarmed
/// it, and nothing tells of what that worker leaves. It comes again.
fn an_owner_is_turned_away(comes_again: bool) {
    loom::model(move || {
        let receive = Arc::new(Receive {
            notifier: Notifier::new(2, StdArc::new(Count(AtomicUsize::new(0)))),
            packets: AtomicUsize::new(1),
            armed: AtomicBool::new(true),
            queue: RunState::new(0),
        });
        receive.notifier.notify(PACKETS);
        let (device, other) = (receive.clone(), receive.clone());
        let threads = [
            thread::spawn(move || device.deliver()),
            thread::spawn(move || other.look_ahead(false)),
        ];
        receive.work(comes_again);
        threads.into_iter().for_each(|t| t.join().unwrap());
        receive.work(comes_again);
        let polled = receive.queue.try_begin().expect("idle");
        let left = receive.packets.load(Ordering::Relaxed);
        assert_eq!((*polled, left), (2, 0), "left behind");
    });
}

#[test]
fn an_owner_that_is_turned_away_comes_again() {
    an_owner_is_turned_away(true);
}

#[test]
#[should_panic(expected = "left behind")]
fn an_owner_that_is_turned_away_and_waits_leaves_packets() {
    an_owner_is_turned_away(false);
}

/// INV-RX-4: the device tells of packets once, since the queue was armed, and another worker polls
/// the queue before the owner is up. The owner finds its notification, or there is no packet.
fn a_sleeping_owner_is_notified(drains: bool) {
    loom::model(move || {
        let receive = Arc::new(Receive {
            notifier: Notifier::new(2, StdArc::new(Count(AtomicUsize::new(0)))),
            packets: AtomicUsize::new(0),
            armed: AtomicBool::new(true),
            queue: RunState::new(0),
        });
        let (device, other) = (receive.clone(), receive.clone());
        // One at the place that the queue is armed for; the next crosses none.
        let threads = [
            thread::spawn(move || {
                device.deliver();
                device.packets.fetch_add(1, Ordering::SeqCst);
            }),
            thread::spawn(move || {
                other.look_ahead(drains);
                other.look_ahead(drains);
            }),
        ];
        threads.into_iter().for_each(|t| t.join().unwrap());
        receive.work(true);
        let polled = receive.queue.try_begin().expect("idle");
        let left = receive.packets.load(Ordering::Relaxed);
        assert_eq!((*polled, left), (2, 0), "left behind");
    });
}

#[test]
fn a_poll_by_another_worker_leaves_the_notification() {
    a_sleeping_owner_is_notified(false);
}

/// The model can fail: the kick of a sleeping worker was consumed by another one's poll.
#[test]
#[should_panic(expected = "left behind")]
fn a_poll_that_consumes_the_notification_leaves_packets() {
    a_sleeping_owner_is_notified(true);
}
