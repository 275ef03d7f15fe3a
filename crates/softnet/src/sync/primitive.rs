//! The one place that knows about loom: the protocols in this module are written against these
//! names, so that the model checker runs the same code as the product.

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::Mutex,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
    thread_local,
};

#[cfg(not(loom))]
pub use std::{
    sync::Mutex,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    },
    thread, thread_local,
};

/// loom's threads; no time passes in a model. loom forgets that a thread was unparked if that
/// thread is about to take a mutex, so each parks with a notification of its own.
#[cfg(loom)]
pub mod thread {
    use loom::sync::{Arc, Notify};
    pub use loom::thread::yield_now;

    loom::thread_local! {
        static UNPARKED: Arc<Notify> = Arc::new(Notify::new());
    }

    pub struct Thread(loom::thread::Thread, Arc<Notify>);

    impl Thread {
        pub fn id(&self) -> loom::thread::ThreadId {
            self.0.id()
        }

        pub fn unpark(&self) {
            self.1.notify();
        }
    }

    impl std::fmt::Debug for Thread {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }

    pub fn current() -> Thread {
        Thread(loom::thread::current(), UNPARKED.with(Arc::clone))
    }

    pub fn park_timeout(_: std::time::Duration) {
        UNPARKED.with(|unparked| unparked.wait());
    }
}

/// `std`'s cell with loom's interface.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Between an atomic write and an atomic read of another location that must not pass it.
///
/// In the product the operations on both sides are SeqCst, which is all that is needed (on
/// x86-64: the write is a locked instruction, the read a plain load). loom treats SeqCst loads
/// and stores as acquire and release only, so the model gets a fence.
#[inline(always)]
pub fn store_load_barrier() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
