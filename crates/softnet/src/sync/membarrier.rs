//! A store-load barrier that is paid for by one side only.
//!
//! Two threads that each write one location and then read the other's need a full barrier between
//! the two on both sides, so that at least one sees the other's write. Where one side is a
//! million times more frequent, the kernel can make the other side pay: after
//! `membarrier(PRIVATE_EXPEDITED)` every running thread of the process has executed a full
//! barrier, so the frequent side need only keep the compiler from reordering ([`light`]), and the
//! rare one calls [`heavy`] (22 µs on a virtual machine with two CPUs, where it interrupts the
//! other CPU; measured).
//!
//! The memory model of the language does not know the system call. Under loom and miri both sides
//! are SeqCst fences; so are they on a kernel without the call, where [`available`] is false and
//! the frequent side must use a fence of its own.

use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;

use rustix::thread::{MembarrierCommand, membarrier};

use super::primitive::{Ordering, fence};

/// Fences on both sides, and no system call.
const FENCES: bool = cfg!(any(loom, miri));

/// The frequent side.
#[inline(always)]
pub(crate) fn light() {
    if FENCES {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
}

/// The rare side. False if the system call failed (it may want memory): then no order is
/// established.
#[must_use = "if false, nothing is ordered"]
pub(crate) fn heavy() -> bool {
    #[cfg(test)]
    CALLS.set(CALLS.get() + 1);
    fence(Ordering::SeqCst);
    FENCES || !available() || membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

#[cfg(test)]
thread_local! {
    /// Calls of [`heavy`] by this thread.
    pub(crate) static CALLS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// True if [`light`] suffices for the frequent side. The same for the life of the process.
pub(crate) fn available() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let register = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
    FENCES || *REGISTERED.get_or_init(register)
}
