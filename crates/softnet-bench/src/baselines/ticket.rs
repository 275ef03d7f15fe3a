//! A fair spinning lock: the ticket lock (Mellor-Crummey and Scott 1991), what the kernel's queued
//! spinlock gives a sender: it is served in the order of arrival.
//!
//! A user-space port: the kernel does not preempt who holds or waits for a spinlock, here the
//! system does. A waiter therefore gives the CPU away after a while. It cannot give its place
//! away, so with more threads than CPUs every hand-off may wait for a switch.
//!
//! Invariant: whoever has drawn the ticket that `serving` shows holds the lock, and alone moves
//! `serving` on. Ordering: the load of `serving` is Acquire (A), the store at the end is Release
//! (R). A pairs with R, so everything that the last holder did is seen by the next.

use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::lock_api::{self, GuardNoSend, RawMutex};

use crate::tx_adopt::Ticks;

/// Pauses for each one ahead between two looks, and at most.
const PAUSES: u32 = 4;
const MOST_PAUSES: u32 = 256;
/// Looks before the CPU is given away.
const LOOKS: u32 = 32;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Raw {
    next: CachePadded<AtomicU32>,
    serving: CachePadded<AtomicU32>,
}

/// A value behind such a lock.
pub(super) type Ticket<T> = lock_api::Mutex<Raw, T>;
/// The right to use it.
pub(super) type TicketGuard<'a, T> = lock_api::MutexGuard<'a, Raw, T>;

#[allow(
    clippy::declare_interior_mutable_const,
    reason = "the trait wants a constant"
)]
// SAFETY: by the invariant above at most one thread is between the return of `lock`, or of
// `try_lock` with true, and `unlock`.
unsafe impl RawMutex for Raw {
    const INIT: Raw = Raw {
        next: CachePadded::new(AtomicU32::new(0)),
        serving: CachePadded::new(AtomicU32::new(0)),
    };

    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut looks = 0;
        loop {
            // A.
            let ahead = ticket.wrapping_sub(self.serving.load(Ordering::Acquire));
            if ahead == 0 {
                return;
            }
            for _ in 0..ahead.saturating_mul(PAUSES).min(MOST_PAUSES) {
                std::hint::spin_loop();
            }
            looks += 1;
            if looks % LOOKS == 0 {
                std::thread::yield_now();
            }
        }
    }

    fn try_lock(&self) -> bool {
        // A. Nobody holds a ticket from here on if it is the next one to be drawn.
        let serving = self.serving.load(Ordering::Acquire);
        let drawn = serving.wrapping_add(1);
        self.next
            .compare_exchange(serving, drawn, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    unsafe fn unlock(&self) {
        // Written by the holder alone. R.
        let next = self.serving.load(Ordering::Relaxed).wrapping_add(1);
        self.serving.store(next, Ordering::Release);
    }
}

/// Takes the lock. Adds the nanoseconds that took, if it was not free, to `waited`.
pub(super) fn lock<'a, T>(
    lock: &'a Ticket<T>,
    ticks: &Ticks,
    waited: &mut u64,
) -> TicketGuard<'a, T> {
    lock.try_lock().unwrap_or_else(|| {
        let start = ticks.nanos();
        let guard = lock.lock();
        *waited += ticks.nanos() - start;
        guard
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_lock_excludes_and_serves_all() {
        let (sum, ticks) = (Ticket::new((0_u64, 0_u64)), Ticks::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut both = lock(&sum, &ticks, &mut 0);
                        both.0 += 1;
                        both.1 += 1;
                    }
                });
            }
        });
        assert!(sum.try_lock().is_some());
        assert_eq!(sum.into_inner(), (8000, 8000));
    }

    #[test]
    fn a_taken_lock_is_not_taken_again() {
        let one = Ticket::new(());
        let held = one.lock();
        assert!(one.try_lock().is_none() && one.is_locked());
        drop(held);
        assert!(one.try_lock().is_some());
    }
}
