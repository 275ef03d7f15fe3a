//! Spinning for a lock, as the kernel does, with what user space needs on top: a thread that has spun for long gives the CPU away, because
//! the holder may be waiting for it.

use super::try_lock::{TryLock, TryLockGuard};

use crate::tx_adopt::Ticks;

/// Pauses between two tries, at most.
const PAUSES: u32 = 64;
/// Tries before the CPU is given away.
const TRIES: u32 = 32;

/// Takes the lock. Adds the nanoseconds that took, if it was not free, to `waited`.
pub(super) fn lock<'a, T>(
    lock: &'a TryLock<T>,
    ticks: &Ticks,
    waited: &mut u64,
) -> TryLockGuard<'a, T> {
    if let Some(guard) = lock.try_lock() {
        return guard;
    }
    let start = ticks.nanos();
    let (mut pauses, mut tries) = (1, 0);
    loop {
        for _ in 0..pauses {
            std::hint::spin_loop();
        }
        pauses = (pauses * 2).min(PAUSES);
        if let Some(guard) = lock.try_lock() {
            *waited += ticks.nanos() - start;
            return guard;
        }
        tries += 1;
        if tries % TRIES == 0 {
            std::thread::yield_now();
        }
    }
}
