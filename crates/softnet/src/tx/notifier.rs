//! Notes to a worker that it has something to do: a bit for each thing, and one coalesced wake-up.
//!
//! Invariant: after [`notify`](Notifier::notify) the bit is set until the worker takes it, and if
//! the worker sleeps, it has been woken since it lay down. Each caller sees to that itself: also
//! one that finds the bit set, as the thread that set it may have been preempted before it looked
//! whether the worker sleeps, or before its system call.
//!
//! Ordering: `notify` publishes the bit with a SeqCst read-modify-write before it looks at the
//! sleeper's state; the worker [prepares](Notify::prepare) before it looks at the bits. See
//! [`Notify`]. The read-modify-write is needed for a bit that is set already, too: it is what the
//! worker's exchange in [`take`](Notifier::take) acquires, with all that the caller did before. A
//! caller that only looked could see a bit that the worker takes before it sees what the caller
//! wrote (a store passed by a load), and nobody would come for that.
//!
//! A caller that published by a SeqCst read-modify-write (P) of a word, which the worker changes by
//! another one (B) after each exchange (T), may look first ([`notify_pushed`]). If B is before P in
//! the word's order, P acquires B, and T with it: the look (L) cannot see the bit that T took. So
//! if L sees a bit, the B after the T that takes it is behind P, and finds what was published. And
//! the look at the sleeper's state comes after L, which has acquired the bit: it is ordered behind
//! the read-modify-write that set the bit, as if this caller had done that.
//!
//! [`notify_pushed`]: Notifier::notify_pushed

use std::fmt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::sync::Notify;
use crate::sync::preempt;
use crate::sync::primitive::{AtomicBool, AtomicU64, Ordering};

/// Wakes one sleeping worker. Callers coalesce, so each call may cost a system call.
pub trait Wake: fmt::Debug + Send + Sync {
    /// Makes the current or the next sleep of the worker return.
    fn wake(&self);
}

impl Wake for std::task::Waker {
    fn wake(&self) {
        self.wake_by_ref();
    }
}

/// A bit for each event that a worker is to be told of, and one coalesced wake-up.
#[derive(Debug)]
pub struct Notifier {
    words: Box<[AtomicU64]>,
    notify: CachePadded<Notify>,
    wake: Arc<dyn Wake>,
    /// Wake-ups sent.
    wakes: AtomicU64,
}

impl Notifier {
    /// A notifier for `events` events for the worker that `wake` wakes.
    pub fn new(events: usize, wake: Arc<dyn Wake>) -> Notifier {
        let words = events.div_ceil(64).max(1);
        Notifier {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            notify: CachePadded::new(Notify::new()),
            wake,
            wakes: AtomicU64::new(0),
        }
    }

    /// Number of events.
    pub fn events(&self) -> usize {
        self.words.len() * 64
    }

    /// Sets `event` and wakes the worker if it sleeps. Never waits; at most one system call.
    pub fn notify(&self, event: usize) {
        self.set(event);
        preempt::point();
        self.wake();
    }

    /// As [`notify`](Notifier::notify), for what this thread has published by a SeqCst
    /// read-modify-write of a word that the worker changes whenever it has taken `event`. Writes
    /// nothing where the event is set already.
    pub(crate) fn notify_pushed(&self, event: usize) {
        let (word, bit) = (&self.words[event / 64], 1 << (event % 64));
        // L.
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
        preempt::point();
        self.wake();
    }

    /// State that [`wake`](Notifier::wake) looks at, in its steps.
    #[cfg(test)]
    pub(crate) fn sleeper(&self) -> &Notify {
        &self.notify
    }

    /// The first half of [`notify`](Notifier::notify).
    pub(crate) fn set(&self, event: usize) {
        self.words[event / 64].fetch_or(1 << (event % 64), Ordering::SeqCst);
    }

    /// Wakes the worker if it sleeps, for something that it looks at before it sleeps and that
    /// was published before this call by a SeqCst read-modify-write. Returns whether a wake-up
    /// was sent: one for each sleep, and one for each caller that comes before the first is noted.
    pub fn wake(&self) -> bool {
        self.notify.wake(|| {
            self.wake.wake();
            self.wakes.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Takes the set bits and calls `each` for every one. Returns whether there was any. What was
    /// pushed on a queue before its bit was found set is only seen by a read-modify-write of the
    /// queue's word: whoever takes a bit runs its queue, however idle the queue looks.
    pub fn take(&self, mut each: impl FnMut(usize)) -> bool {
        let mut any = false;
        for (index, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            any = true;
            while bits != 0 {
                each(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        any
    }

    /// True if no event is set.
    pub fn is_quiet(&self) -> bool {
        self.words
            .iter()
            .all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Calls `sleep` unless an event is set or `idle` finds something to do. What is published
    /// from now on, before [`wake`](Notifier::wake) or by [`notify`](Notifier::notify), ends the
    /// sleep. `idle` must look with SeqCst loads.
    pub fn sleep_if(&self, idle: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        if self.prepare() && idle() {
            sleep();
        }
        self.awake();
    }

    /// From now on the worker counts as asleep. Returns whether no event is set.
    pub(super) fn prepare(&self) -> bool {
        self.notify.prepare();
        self.is_quiet()
    }

    /// The worker is up again.
    pub(super) fn awake(&self) {
        self.notify.awake();
    }

    /// True if the worker sleeps, or has been woken and is not up yet. A hint: it may have
    /// changed by the time of the answer.
    pub fn is_asleep(&self) -> bool {
        self.notify.is_asleep()
    }

    /// Wake-ups sent so far.
    pub fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }
}

/// Something that happened, and that is told once to the worker that is notified of it.
#[derive(Debug, Default)]
pub struct Event {
    happened: AtomicBool,
}

impl Event {
    /// It happens: after this either it has been [taken](Event::take), or `event` is set, and
    /// the worker is awake or being woken. (Released here, acquired by the worker's
    /// [`take`](Notifier::take); a worker that leaves the queue to another thread passes it on.)
    pub fn raise(&self, notifier: &Notifier, event: usize) {
        self.happen();
        preempt::point();
        notifier.notify(event);
    }

    /// The first half of [`raise`](Event::raise).
    pub(crate) fn happen(&self) {
        self.happened.store(true, Ordering::Release);
    }

    /// True if it has happened since this was asked last.
    pub fn take(&self) -> bool {
        self.happened.load(Ordering::Relaxed) && self.happened.swap(false, Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Count(AtomicU64);
    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_once_per_sleep_and_keeps_every_event() {
        let count = Arc::new(Count(AtomicU64::new(0)));
        let notifier = Notifier::new(70, count.clone());
        notifier.notify(3);
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            0,
            "an awake worker needs no wake-up"
        );
        notifier.sleep_if(
            || true,
            || panic!("an event is set, so the worker must not sleep"),
        );
        let mut rung = Vec::new();
        assert!(notifier.take(|b| rung.push(b)));
        notifier.sleep_if(
            || true,
            || {
                for b in [69, 3, 69, 4] {
                    notifier.notify(b);
                }
            },
        );
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            1,
            "wake-ups of one sleep are coalesced"
        );
        notifier.take(|b| rung.push(b));
        assert_eq!(rung, [3, 3, 4, 69]);
        assert!(!notifier.take(|_| ()));
    }

    /// A worker that sleeps is woken for a push also where the event is set already.
    #[test]
    fn a_push_sets_the_event_once_and_wakes_a_sleeper() {
        let count = Arc::new(Count(AtomicU64::new(0)));
        let notifier = Notifier::new(70, count.clone());
        notifier.sleep_if(
            || true,
            || {
                notifier.set(69);
                notifier.notify_pushed(69);
                notifier.notify_pushed(3);
            },
        );
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let mut rung = Vec::new();
        notifier.take(|event| rung.push(event));
        assert_eq!(rung, [3, 69]);
    }

    /// A thread that found the worker asleep and has not woken it yet holds up nobody.
    #[test]
    fn a_wake_up_that_a_preempted_thread_owes_is_sent_by_the_next() {
        let count = Arc::new(Count(AtomicU64::new(0)));
        let notifier = Notifier::new(1, count.clone());
        let late = std::cell::Cell::new(None);
        notifier.sleep_if(
            || true,
            || {
                notifier.set(3);
                late.set(notifier.sleeper().sleeping());
                notifier.notify(3);
            },
        );
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        notifier.take(|_| ());
        // Its note is about a sleep that is over.
        notifier.sleep_if(
            || true,
            || {
                assert!(!notifier.sleeper().told(late.take().expect("it slept")));
                notifier.notify(3);
            },
        );
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    /// A thread that has set an event and not looked at the sleeper yet holds up nobody: the next
    /// one that notifies wakes the worker.
    #[test]
    fn an_event_set_by_a_preempted_thread_is_notified_by_the_next() {
        let count = Arc::new(Count(AtomicU64::new(0)));
        let notifier = Notifier::new(1, count.clone());
        notifier.sleep_if(
            || true,
            || {
                notifier.set(3);
                notifier.notify(3);
            },
        );
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
