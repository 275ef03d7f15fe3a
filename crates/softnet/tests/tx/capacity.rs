//! Back-pressure for tasks: who is woken, who has the wake-up next, and what a waker may do. And
//! threads that must not wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use super::sender::Wakes;
use super::*;

/// A task that polls for capacity is woken when there is some, and one that gives up lets the next
/// have it.
#[test]
fn a_task_waits_for_capacity() {
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.send(0..10);
    let tasks: Vec<_> = (0..4).map(|_| Arc::new(Wakes::default())).collect();
    let mut waiters: Vec<_> = (0..4).map(|_| bench.device.capacity_waiter(0)).collect();
    let poll = |waiters: &mut [CapacityWaiter<_, _>], n: usize, limit| {
        let waker = tasks[n].clone().into();
        waiters[n].poll_capacity(limit, &mut Context::from_waker(&waker))
    };
    assert_eq!(poll(&mut waiters, 0, 11), Poll::Ready(()));
    for n in 0..4 {
        assert_eq!(poll(&mut waiters, n, 1), Poll::Pending);
        assert_eq!(poll(&mut waiters, n, 2), Poll::Pending, "again");
    }
    bench.resume(Time::ZERO);
    let woken = || -> Vec<usize> { tasks.iter().map(|task| task.take()).collect() };
    assert_eq!(woken(), [1, 1, 0, 0], "a few, and those wake the next");
    // One gives up, the other finds capacity.
    drop(waiters.remove(0));
    assert_eq!(woken(), [0, 0, 1, 1]);
    let waker = tasks[1].clone().into();
    let mut cx = Context::from_waker(&waker);
    for waiter in &mut waiters {
        assert_eq!(waiter.poll_capacity(1, &mut cx), Poll::Ready(()));
    }
    assert_eq!(woken(), [0; 4]);
    // A queue that there is not never fills.
    let mut nowhere = bench.device.capacity_waiter(7);
    assert_eq!(nowhere.poll_capacity(0, &mut cx), Poll::Ready(()));
}

/// A waker that runs its task at once, in the thread that wakes it, stops nobody.
#[test]
fn a_task_may_run_where_it_is_woken() {
    type Waiter = CapacityWaiter<ScriptedRing, AnyQdisc>;
    struct Inline(Mutex<Option<Waiter>>, AtomicUsize);
    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            let waker = self.clone().into();
            let mut waiter = self.0.lock().unwrap().take().expect("listed");
            let ready = waiter.poll_capacity(1, &mut Context::from_waker(&waker));
            self.1
                .fetch_add(usize::from(ready.is_ready()), Ordering::Relaxed);
        }
    }
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.send(0..3);
    let task = Arc::new(Inline(Mutex::new(None), AtomicUsize::new(0)));
    let waker = task.clone().into();
    let mut waiter = bench.device.capacity_waiter(0);
    let pending = waiter.poll_capacity(1, &mut Context::from_waker(&waker));
    assert_eq!(pending, Poll::Pending);
    *task.0.lock().unwrap() = Some(waiter);
    bench.resume(Time::ZERO);
    assert_eq!(task.1.load(Ordering::Relaxed), 1);
}

/// Tasks that were woken and do something else first take the wake-up from nobody, once they have
/// cancelled their waits; and these may begin anew.
#[test]
fn a_wait_that_is_cancelled_passes_its_wake_up_on() {
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.send(0..10);
    let tasks: Vec<_> = (0..4).map(|_| Arc::new(Wakes::default())).collect();
    let mut waiters: Vec<_> = (0..4).map(|_| bench.device.capacity_waiter(0)).collect();
    let poll = |waiters: &mut [CapacityWaiter<_, _>], n: usize| {
        let waker = tasks[n].clone().into();
        waiters[n].poll_capacity(1, &mut Context::from_waker(&waker))
    };
    let woken = || -> Vec<usize> { tasks.iter().map(|task| task.take()).collect() };
    waiters[0].cancel();
    for n in 0..4 {
        assert_eq!(poll(&mut waiters, n), Poll::Pending);
    }
    bench.resume(Time::ZERO);
    assert_eq!(woken(), [1, 1, 0, 0]);
    waiters[0].cancel();
    assert_eq!(woken(), [0, 0, 1, 1]);
    waiters[0].cancel();
    waiters[1].cancel();
    assert_eq!(woken(), [0; 4], "nobody is left to wake");
    waiters.iter_mut().for_each(CapacityWaiter::cancel);
    // It waits anew.
    bench.set_capacity(0);
    bench.send([10]);
    for n in 0..3 {
        assert_eq!(poll(&mut waiters, n), Poll::Pending);
    }
    // Nobody is told of a wait that was cancelled before there was capacity.
    waiters[1].cancel();
    waiters[2].cancel();
    assert_eq!(woken(), [0; 4]);
    bench.resume(Time::ZERO);
    assert_eq!(woken(), [1, 0, 0, 0]);
}

/// Wakers that run their tasks at once, each of which passes the wake-up on: the thread that wakes
/// is in one of them at a time, however many wait. (Each within the one before, some thousand
/// overran its stack.)
#[test]
fn tasks_that_run_where_they_are_woken_do_not_nest() {
    type Waiter = CapacityWaiter<ScriptedRing, AnyQdisc>;
    #[derive(Default)]
    struct Tasks {
        ready: AtomicUsize,
        depth: AtomicUsize,
        deepest: AtomicUsize,
    }
    struct Inline(Mutex<Option<Waiter>>, Arc<Tasks>);
    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            let Inline(waiter, tasks) = &*self;
            let depth = tasks.depth.fetch_add(1, Ordering::Relaxed) + 1;
            tasks.deepest.fetch_max(depth, Ordering::Relaxed);
            let mut waiter = waiter.lock().unwrap().take().expect("listed");
            let waker = self.clone().into();
            let ready = waiter.poll_capacity(1, &mut Context::from_waker(&waker));
            tasks
                .ready
                .fetch_add(usize::from(ready.is_ready()), Ordering::Relaxed);
            tasks.depth.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let count = if cfg!(miri) { 8 } else { 1000 };
    let bench = scripted(QdiscSpec::default(), 1);
    bench.set_capacity(0);
    bench.send(0..3);
    let all = Arc::new(Tasks::default());
    for _ in 0..count {
        let task = Arc::new(Inline(Mutex::new(None), all.clone()));
        let waker = task.clone().into();
        let mut waiter = bench.device.capacity_waiter(0);
        let pending = waiter.poll_capacity(1, &mut Context::from_waker(&waker));
        assert_eq!(pending, Poll::Pending);
        *task.0.lock().unwrap() = Some(waiter);
    }
    bench.resume(Time::ZERO);
    assert_eq!(all.ready.load(Ordering::Relaxed), count);
    assert_eq!(all.deepest.load(Ordering::Relaxed), 1);
}

/// A driver that waits for its own queue is told at once, instead of when its patience is over.
#[test]
fn a_driver_does_not_wait_for_capacity() {
    let bench = Arc::new(scripted(QdiscSpec::default(), 1));
    let (inner, answers) = (Arc::downgrade(&bench), Arc::new(Mutex::default()));
    let told = answers.clone();
    bench.scripts[0].on_next_call(move || {
        let bench = inner.upgrade().unwrap();
        bench.send(1..4);
        let wait = |limit| bench.device.queues()[0].wait_for_capacity(limit, Duration::MAX);
        *told.lock().unwrap() = vec![wait(1), wait(4)];
    });
    bench.send([0]);
    let expected = [Err(ControlError::CalledByOwner), Ok(true)];
    assert_eq!(*answers.lock().unwrap(), expected);
    bench.check(4);
}
