//! How anyone tells a worker that it has something to do: a bit for each thing, and one coalesced wake-up.
//!
//! Invariant: after [`ring`](Doorbell::ring) the bit is set until the worker takes it, and if the worker sleeps, exactly one of the callers
//! since it lay down wakes it. (A set bit is the kernel's SCHED token: ringing again is free.)
//! Ordering: `ring` publishes the bit with a SeqCst read-modify-write before it looks at the sleeper's state; the worker
//! [prepares](Notify::prepare) before it looks at the bits. See [`Notify`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::Wake;
use crate::sync::Notify;

/// How anyone tells a worker that it has something to do: a bit for each thing, and one coalesced wake-up.
pub struct Doorbell {
    words: Box<[AtomicU64]>,
    notify: CachePadded<Notify>,
    wake: Arc<dyn Wake>,
    /// Wake-ups sent.
    wakes: AtomicU64,
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell")
            .field("wakes", &self.wakes)
            .finish_non_exhaustive()
    }
}

impl Doorbell {
    /// A doorbell with `bells` bits for the worker that `wake` wakes.
    pub fn new(bells: usize, wake: Arc<dyn Wake>) -> Doorbell {
        let words = bells.div_ceil(64).max(1);
        Doorbell {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            notify: CachePadded::new(Notify::new()),
            wake,
            wakes: AtomicU64::new(0),
        }
    }

    /// Number of bells.
    pub fn bells(&self) -> usize {
        self.words.len() * 64
    }

    /// Sets bit `bell` and wakes the worker if it sleeps. Never waits; at most one system call per sleep of the worker.
    pub fn ring(&self, bell: usize) {
        let (word, bit) = (&self.words[bell / 64], 1 << (bell % 64));
        // A set bit stays set until taken, and its setter has seen to the wake-up.
        if word.load(Ordering::SeqCst) & bit == 0 && word.fetch_or(bit, Ordering::SeqCst) & bit == 0
        {
            self.wake();
        }
    }

    /// Wakes the worker if it sleeps, for something that it looks at before it sleeps and that was published before this call by a SeqCst
    /// read-modify-write, as [`Backlog::push`](super::Backlog::push) does. Returns whether a wake-up was sent: at most one for each sleep.
    pub fn wake(&self) -> bool {
        let sleeps = self.notify.notify_published();
        if sleeps {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.wake.wake();
        }
        sleeps
    }

    /// Takes the set bits and calls `each` for every one. Returns whether there was any.
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

    /// Whether no bell rings.
    pub fn is_silent(&self) -> bool {
        self.words
            .iter()
            .all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Calls `sleep` unless a bell rang. Bells that ring from now on wake it.
    pub(crate) fn sleep(&self, sleep: impl FnOnce()) {
        self.sleep_if(|| true, sleep);
    }

    /// Calls `sleep` unless a bell rang or `idle` finds something to do. What is published from now on, before [`wake`](Doorbell::wake) or by
    /// [`ring`](Doorbell::ring), ends the sleep. `idle` must look with SeqCst loads, as [`Backlog::is_empty`](super::Backlog::is_empty) does.
    pub fn sleep_if(&self, idle: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        self.notify.prepare();
        if self.is_silent() && idle() {
            sleep();
        }
        self.notify.awake();
    }

    /// Whether the worker sleeps, or has been woken and is not up yet. A hint: it may have changed by the time of the answer.
    pub(crate) fn is_asleep(&self) -> bool {
        self.notify.is_asleep()
    }

    /// Wake-ups sent so far.
    pub fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(AtomicU64);
    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_once_per_sleep_and_keeps_every_bell() {
        let count = Arc::new(Count(AtomicU64::new(0)));
        let bell = Doorbell::new(70, count.clone());
        bell.ring(3);
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            0,
            "an awake worker needs no wake-up"
        );
        bell.sleep(|| panic!("a bell rang, so the worker must not sleep"));
        let mut rung = Vec::new();
        assert!(bell.take(|b| rung.push(b)));
        bell.sleep(|| {
            for b in [69, 3, 69, 4] {
                bell.ring(b);
            }
        });
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            1,
            "wake-ups of one sleep are coalesced"
        );
        bell.take(|b| rung.push(b));
        assert_eq!(rung, [3, 3, 4, 69]);
        assert!(!bell.take(|_| ()));
    }
}
