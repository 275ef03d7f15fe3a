//! Back-pressure: a sender waits until a queue has capacity, instead of losing packets to a limit.
//!
//! Invariant: when an owner has published a length below the limit of a sleeper, a thread or a
//! task, that one has seen it, or will look again, or one with at least its limit will. No owner
//! waits for a waiter, and none does anything for waiters for which there is no capacity. (A
//! sleeper that comes no more [leaves](Capacity::leave): else those behind it sleep on.)
//!
//! Argument: in each round a waiter puts itself on the list of sleepers, which says what limit is
//! [wanted](Capacity::wanted) at most (W), under the lock, then looks (L), then sleeps. The owner
//! stores the length, gives the queue up (G), and looks what is wanted (A). All four are SeqCst,
//! and L begins with a load of the word that G changed. If A comes before W, then G comes before
//! L, which acquires the length. Else the owner compares the length (the last owner's is the true
//! one: others only push), and if there is capacity sets `news` and [`tell`](Capacity::tell)s: it
//! takes the sleepers with the largest limits off the list, a few, and wakes them. Where one of
//! those finds no capacity, there is none for the rest either; one that leaves wakes the next few.
//! A waiter that comes on the list later looks after that, and sees what happened before under the
//! lock. Where the lock is held, by a waiter that comes or goes or by another owner, its holder
//! looks for `news` after it has let go: the fence in between orders that, as it orders the
//! owner's attempt after the store of `news`. Sleepers are woken without the lock: a task's waker
//! may run the task at once. What that does may wake other tasks; they are woken by the same
//! thread, when the waker has returned, so that its stack does not grow with the line.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{PoisonError, TryLockError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::primitive::thread::{self, Thread};
use super::primitive::{
    AtomicBool, AtomicUsize, Mutex, Ordering, fence, store_load_barrier, thread_local,
};

/// Sleepers that an owner wakes, and each of them when it leaves: a system call each.
const WAKES: usize = if cfg!(loom) { 1 } else { 2 };

/// The senders that wait for a queue's capacity.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    /// The largest limit of a sleeper; 0 if there is none. Changed under the lock.
    wanted: AtomicUsize,
    /// Sleepers are to be told.
    news: AtomicBool,
    line: Mutex<Line>,
}

/// Sleepers by limit, the largest last; of those with the same one the oldest last.
#[derive(Debug, Default)]
struct Line {
    sleepers: Vec<Sleeper>,
    /// The last key given.
    keys: u64,
}

#[derive(Debug)]
struct Sleeper {
    limit: usize,
    key: u64,
    who: Who,
}

#[derive(Debug)]
enum Who {
    Thread(Thread),
    Task(Waker),
}

thread_local! {
    /// Tasks to wake next; none while this thread is not in a task's waker.
    static TASKS: RefCell<Option<VecDeque<Waker>>> = RefCell::default();
}

/// Wakes sleepers that are off the list. Called without the lock.
fn wake(sleepers: Vec<Sleeper>) {
    for sleeper in sleepers {
        match sleeper.who {
            Who::Thread(thread) => thread.unpark(),
            Who::Task(waker) => wake_task(waker),
        }
    }
}

/// Wakes a task, or leaves that to the waker that this thread is in.
fn wake_task(waker: Waker) {
    let mut waker = Some(waker);
    // Fails where the thread ends; it is in no waker then.
    let _ = TASKS.try_with(|tasks| {
        let mut tasks = tasks.borrow_mut();
        match &mut *tasks {
            Some(tasks) => tasks.extend(waker.take()),
            None => *tasks = Some(VecDeque::new()),
        }
    });
    if let Some(waker) = waker {
        wake_tasks(waker);
    }
}

fn wake_tasks(first: Waker) {
    let mut next = Some(first);
    while let Some(waker) = next {
        let others = OtherTasks;
        waker.wake();
        std::mem::forget(others);
        next = next_task();
    }
}

fn next_task() -> Option<Waker> {
    let next = TASKS.try_with(|tasks| {
        let mut tasks = tasks.borrow_mut();
        let next = tasks.as_mut().and_then(VecDeque::pop_front);
        if next.is_none() {
            *tasks = None;
        }
        next
    });
    next.unwrap_or(None)
}

/// Tasks that are to be woken after one whose waker is being called. Dropped only where that waker
/// panics, which takes no wake-up from them.
struct OtherTasks;

impl Drop for OtherTasks {
    fn drop(&mut self) {
        if let Some(next) = next_task() {
            wake_tasks(next);
        }
    }
}

/// One thread's or task's wait. It must [leave](Capacity::leave) if it has ever been listed.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    /// None: not listed yet.
    key: Option<u64>,
    /// It was taken off the list, to be woken.
    woken: bool,
    /// The limit that it was listed with last.
    limit: usize,
}

impl Line {
    /// Takes a sleeper off the list. It is dropped after the lock is let go: what a waker drops may
    /// wait here itself.
    fn remove(&mut self, key: u64) -> Option<Sleeper> {
        let place = self.sleepers.iter().position(|other| other.key == key)?;
        Some(self.sleepers.remove(place))
    }

    /// The sleepers with the largest limits: if these find no capacity, no other would.
    fn first(&mut self) -> Vec<Sleeper> {
        let rest = self.sleepers.len().saturating_sub(WAKES);
        self.sleepers.split_off(rest)
    }
}

impl Capacity {
    /// Called by an owner that has given the queue up, with the new length published, which `len`
    /// reads. Never waits.
    #[inline]
    pub(crate) fn published(&self, len: impl FnOnce() -> usize) {
        store_load_barrier();
        // A
        let wanted = self.wanted.load(Ordering::SeqCst);
        if wanted != 0 && len() < wanted {
            self.news.store(true, Ordering::Release);
            self.tell();
        }
    }

    /// Wakes sleepers if there is news, or leaves it to the thread that has the lock. Called by
    /// everyone who had it.
    #[cold]
    fn tell(&self) {
        loop {
            fence(Ordering::SeqCst);
            if !self.news.load(Ordering::Relaxed) {
                return;
            }
            let mut line = match self.line.try_lock() {
                Ok(line) => line,
                Err(TryLockError::Poisoned(line)) => line.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            // Pairs with `published`, also where two owners had news.
            self.news.swap(false, Ordering::Acquire);
            let first = line.first();
            self.set_wanted(&line);
            drop(line);
            wake(first);
        }
    }

    /// Under the lock.
    fn set_wanted(&self, line: &Line) {
        let wanted = line.sleepers.last().map_or(0, |last| last.limit);
        // W
        self.wanted.store(wanted, Ordering::SeqCst);
    }

    /// Puts a waiter on the list of sleepers, in the place of where it was.
    fn join(&self, waiter: &mut Waiter, limit: usize, who: Who) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = None;
        let key = match waiter.key {
            Some(key) => {
                before = line.remove(key);
                waiter.woken |= before.is_none();
                key
            }
            None => {
                line.keys += 1;
                line.keys
            }
        };
        // There may be capacity for others, if not for it.
        let next = if waiter.woken && limit < waiter.limit {
            waiter.woken = false;
            line.first()
        } else {
            Vec::new()
        };
        (waiter.key, waiter.limit) = (Some(key), limit);
        let place = line.sleepers.partition_point(|other| other.limit < limit);
        line.sleepers.insert(place, Sleeper { limit, key, who });
        self.set_wanted(&line);
        drop(line);
        drop(before);
        wake(next);
        self.tell();
    }

    /// Takes a waiter off the list of sleepers. If it was woken, wakes the next.
    pub(crate) fn leave(&self, waiter: &mut Waiter) {
        let Waiter { key, woken, .. } = std::mem::take(waiter);
        let Some(key) = key else {
            return;
        };
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = line.remove(key);
        let next = if woken || listed.is_none() {
            line.first()
        } else {
            Vec::new()
        };
        self.set_wanted(&line);
        drop(line);
        drop(listed);
        wake(next);
        self.tell();
    }

    /// Waits until `len` is less than `limit`, for at most `timeout`. Returns whether it is. `len`
    /// first loads, SeqCst, the word by which owners give the queue up.
    pub(crate) fn wait(&self, timeout: Duration, limit: usize, len: impl Fn() -> usize) -> bool {
        if len() < limit {
            return true;
        }
        let start = Instant::now();
        let mut waiter = Waiter::default();
        let found = loop {
            self.join(&mut waiter, limit, Who::Thread(thread::current()));
            store_load_barrier();
            // L
            if len() < limit {
                break true;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                break false;
            }
            thread::park_timeout(left);
        };
        self.leave(&mut waiter);
        found
    }

    /// As [`wait`](Capacity::wait), for a task: returns at once, and if `len` is not less than
    /// `limit`, `waker` is called when it may be.
    pub(crate) fn poll(
        &self,
        waiter: &mut Waiter,
        limit: usize,
        waker: &Waker,
        len: impl Fn() -> usize,
    ) -> bool {
        let mut found = len() < limit;
        if !found {
            self.join(waiter, limit, Who::Task(waker.clone()));
            store_load_barrier();
            // L
            found = len() < limit;
        }
        if found {
            self.leave(waiter);
        }
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Above the limits of all sleepers an owner looks and goes on: no news, no lock, no wake-up,
    /// however many sleep. The first length below the largest limit wakes.
    #[test]
    fn owners_without_capacity_wake_nobody() {
        let capacity = Capacity::default();
        let mut waiters = [4, 8, 8].map(|limit| (limit, Waiter::default()));
        for (limit, waiter) in &mut waiters {
            capacity.join(waiter, *limit, Who::Thread(thread::current()));
        }
        for len in [8, 9, 1000] {
            capacity.published(|| len);
            assert!(!capacity.news.load(Ordering::Relaxed), "length {len}");
        }
        let left = || capacity.line.lock().map_or(0, |line| line.sleepers.len());
        assert_eq!(left(), 3);
        capacity.published(|| 7);
        assert_eq!(left(), 3 - WAKES.min(3));
        assert_eq!(capacity.wanted.load(Ordering::Relaxed), 4);
        capacity.published(|| 4);
        assert_eq!(left(), 1, "there is no capacity for the one that is left");
    }

    /// Says that it was woken, and when it goes leaves the line, as a task does that owns a waiter.
    struct Task {
        line: Arc<Capacity>,
        own: Mutex<Waiter>,
        woken: AtomicBool,
    }

    impl std::task::Wake for Task {
        fn wake(self: Arc<Self>) {
            self.woken.store(true, Ordering::Relaxed);
        }
    }

    impl Drop for Task {
        fn drop(&mut self) {
            let own = self.own.get_mut().unwrap_or_else(PoisonError::into_inner);
            self.line.leave(own);
        }
    }

    fn task(line: &Arc<Capacity>) -> Arc<Task> {
        Arc::new(Task {
            line: line.clone(),
            own: Mutex::default(),
            woken: AtomicBool::new(false),
        })
    }

    /// A waiter that goes may be the last that keeps a task, which waits as well.
    #[test]
    fn wakers_are_dropped_outside_the_lock() {
        let line = Arc::new(Capacity::default());
        let (mut other, kept) = (Waiter::default(), task(&line));
        let waker = Waker::from(kept.clone());
        {
            let mut own = kept.own.lock().expect("nobody has it");
            assert!(!line.poll(&mut own, 9, Waker::noop(), || 9));
        }
        assert!(!line.poll(&mut other, 9, &waker, || 9));
        drop((kept, waker));
        line.leave(&mut other);
        assert_eq!(line.line.lock().map_or(9, |line| line.sleepers.len()), 0);
    }

    /// Waiters that were woken and wait on for less pass the news on.
    #[test]
    fn who_waits_for_less_lets_others_know() {
        let line = Arc::new(Capacity::default());
        let tasks = [100, 100, 50].map(|limit| (limit, task(&line), Waiter::default()));
        let [mut a, mut b, mut c] = tasks;
        for (limit, task, waiter) in [&mut a, &mut b, &mut c] {
            assert!(!line.poll(waiter, *limit, &task.clone().into(), || 200));
        }
        line.published(|| 40);
        let woken = |of: &(usize, Arc<Task>, Waiter)| of.1.woken.load(Ordering::Relaxed);
        assert!(woken(&a) && woken(&b) && !woken(&c));
        for (_, task, waiter) in [&mut a, &mut b] {
            assert!(!line.poll(waiter, 10, &task.clone().into(), || 40));
        }
        assert!(woken(&c), "there is capacity for it");
        // Those on the list keep their tasks, and these the list.
        for (_, _, waiter) in [&mut a, &mut b, &mut c] {
            line.leave(waiter);
        }
    }
}
