//! Threads of a measurement.

use std::thread::ScopedJoinHandle;

/// The result of a thread; its panic is ours.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    let ended = thread.join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
