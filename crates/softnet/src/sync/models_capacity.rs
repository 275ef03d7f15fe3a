//! loom models of senders that wait for capacity, with the list, the owner's way of giving it up
//! and the waiters as they are shipped. Lost news is a deadlock: in a model a sleep has no end.

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::testing::Values;
use super::*;

/// A queue that publishes its length as `TxQueue` does: a plain store before it is given up.
struct Queue {
    /// The owner's length. Nothing is pushed: what waits is in the qdisc.
    list: OwnedList<Values, usize>,
    published: AtomicUsize,
    capacity: Capacity,
}

impl Queue {
    fn new(len: usize) -> Arc<Queue> {
        Arc::new(Queue {
            list: OwnedList::new(len, 0),
            published: AtomicUsize::new(len),
            capacity: Capacity::default(),
        })
    }

    /// An owner that sends so many packets.
    fn send(&self, packets: usize) {
        loop {
            let Some((mut owner, _)) = self.list.try_begin() else {
                thread::yield_now();
                continue;
            };
            *owner -= packets;
            self.published.store(*owner, Ordering::Relaxed);
            assert!(owner.end().is_ok(), "nothing is pushed, nothing missed");
            return self.capacity.published(|| self.waiting());
        }
    }

    fn waiting(&self) -> usize {
        self.list.len() + self.published.load(Ordering::Relaxed)
    }

    fn wait(&self, limit: usize) -> bool {
        let patience = Duration::from_secs(3600);
        self.capacity.wait(patience, limit, || self.waiting())
    }
}

/// A sender sees the capacity, or is woken for it; by the first owner or the second.
#[test]
fn a_waiter_is_told_of_capacity() {
    loom::model(|| {
        let queue = Queue::new(2);
        let owner = queue.clone();
        let owner = thread::spawn(move || {
            owner.send(1);
            owner.send(1);
        });
        assert!(queue.wait(1));
        owner.join().unwrap();
    });
}

/// Two senders that come and go beside an owner: it waits for neither, so one of them may have to
/// wake the other. It fails where one that was woken, and leaves, does not wake the next.
#[test]
fn waiters_that_come_and_go_take_no_news_from_each_other() {
    loom::model(|| {
        let queue = Queue::new(1);
        let threads = [0, 1].map(|n| {
            let queue = queue.clone();
            thread::spawn(move || {
                if n == 0 {
                    queue.send(1);
                } else {
                    assert!(queue.wait(1));
                }
            })
        });
        assert!(queue.wait(1));
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Two senders that wait for different lengths, and an owner that wakes one at a time: the one for
/// which there is capacity. It fails where the smallest limit is woken first.
#[test]
fn each_waiter_is_told_of_its_own_capacity() {
    let mut model = loom::model::Builder::new();
    // With 3 it takes a minute.
    model.preemption_bound = model.preemption_bound.map(|bound| bound.min(2));
    model.check(|| {
        let queue = Queue::new(2);
        let waiters = [2, 1].map(|limit| {
            let queue = queue.clone();
            thread::spawn(move || assert!(queue.wait(limit)))
        });
        for waiter in waiters {
            queue.send(1);
            waiter.join().unwrap();
        }
    });
}

/// Wakes a task: its thread.
struct Unpark(super::primitive::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

impl Queue {
    /// A task's look, which says how to wake this thread.
    fn poll(&self, waiter: &mut Waiter, limit: usize) -> bool {
        let unpark = Unpark(super::primitive::thread::current());
        let waker = std::sync::Arc::new(unpark).into();
        self.capacity.poll(waiter, limit, &waker, || self.waiting())
    }
}

/// A task sees the capacity, or is woken for it.
#[test]
fn a_task_is_told_of_capacity() {
    loom::model(|| {
        let queue = Queue::new(2);
        let owner = queue.clone();
        let owner = thread::spawn(move || {
            owner.send(1);
            owner.send(1);
        });
        let mut waiter = Waiter::default();
        while !queue.poll(&mut waiter, 1) {
            super::primitive::thread::park_timeout(Duration::MAX);
        }
        owner.join().unwrap();
    });
}

/// A task that asks once and goes away takes no news from the thread that waits behind it.
#[test]
fn a_task_that_goes_away_passes_the_news_on() {
    loom::model(|| {
        let queue = Queue::new(1);
        let mut waiter = Waiter::default();
        assert!(!queue.poll(&mut waiter, 1));
        let other = queue.clone();
        let other = thread::spawn(move || assert!(other.wait(1)));
        queue.send(1);
        queue.capacity.leave(&mut waiter);
        other.join().unwrap();
    });
}
