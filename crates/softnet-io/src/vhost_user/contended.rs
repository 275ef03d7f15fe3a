//! A value that several threads share, none of which may wait for another: whoever finds it taken
//! goes on with other work and is woken.
//!
//! Somebody who finds it taken sets `wanted` and tries once more. Whoever lets go takes `wanted`
//! *after that* and, if it was set, wakes the others. Nobody is left behind: of the two exchanges
//! of `wanted` one is the first. If that of the waiting one is, the other sees it. If not, the
//! waiting one acquires what the other released, so its second attempt finds nobody there, or a
//! third one, of whom the same is true.

use std::ops::DerefMut;
use std::sync::{PoisonError, TryLockError};

use softnet::sync::primitive::{AtomicBool, Mutex, Ordering};

/// Another thread has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Contended<T> {
    value: Mutex<T>,
    wanted: AtomicBool,
}

impl<T> Contended<T> {
    /// The value; an error if somebody has it, which may be for a while yet.
    pub(super) fn try_lock(&self) -> Result<impl DerefMut<Target = T>, Taken> {
        match self.value.try_lock() {
            Ok(value) => Ok(value),
            // Whoever panicked has brought the engine down.
            Err(TryLockError::Poisoned(value)) => Ok(value.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Taken),
        }
    }

    /// An error if somebody has it, who will wake the caller. Who succeeds asks
    /// [`is_wanted`](Contended::is_wanted) after it has let go.
    pub(super) fn try_lock_or_want(&self) -> Result<impl DerefMut<Target = T>, Taken> {
        match self.try_lock() {
            Ok(value) => Ok(value),
            Err(Taken) => {
                self.wanted.swap(true, Ordering::AcqRel);
                self.try_lock()
            }
        }
    }

    /// Waits for it. As [`try_lock_or_want`](Contended::try_lock_or_want) otherwise.
    pub(super) fn lock(&self) -> impl DerefMut<Target = T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if somebody found it taken since this was last asked.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;
    use softnet::sync::primitive::AtomicUsize;

    use super::*;

    const SENDERS: usize = 2;

    #[derive(Default)]
    struct Model {
        ring: Contended<()>,
        /// Times that the lock was held, counted in two steps.
        had: AtomicUsize,
        woken: [AtomicBool; SENDERS],
    }

    impl Model {
        fn send(&self, sender: usize) -> bool {
            self.woken[sender].store(false, Ordering::Relaxed);
            let Ok(ring) = self.ring.try_lock_or_want() else {
                return false;
            };
            self.have(ring);
            true
        }

        fn have(&self, ring: impl DerefMut) {
            let had = self.had.load(Ordering::Relaxed);
            self.had.store(had + 1, Ordering::Relaxed);
            drop(ring);
            self.wake();
        }

        fn wake(&self) {
            if self.ring.is_wanted() {
                let woken = self.woken.iter();
                woken.for_each(|woken| woken.store(true, Ordering::Relaxed));
            }
        }
    }

    /// Two senders and the thread. Whoever was refused is woken after it has begun to try.
    ///
    /// Fails if `wanted` is set behind the second attempt or there is none, if it is asked for
    /// before the ring is let go, or if somebody does not ask.
    #[test]
    fn nobody_is_left_waiting() {
        loom::model(|| {
            let model = Arc::new(Model::default());
            let senders = [0, 1].map(|sender| {
                let model = model.clone();
                thread::spawn(move || model.send(sender))
            });
            model.have(model.ring.lock());
            let sent = senders.map(|sender| sender.join().unwrap());
            for (sent, woken) in sent.iter().zip(&model.woken) {
                assert!(*sent || woken.load(Ordering::Relaxed), "refused, not woken");
            }
            let had = 1 + sent.iter().filter(|sent| **sent).count();
            assert_eq!(model.had.load(Ordering::Relaxed), had);
        });
    }
}
