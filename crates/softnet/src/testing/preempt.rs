//! Preemption where it hurts: a test build takes the CPU away from a thread in the middle of a
//! protocol.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// One point in so many; 0: none.
static ONE_IN: AtomicU32 = AtomicU32::new(0);
static SEED: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static RANDOM: Cell<u32> = Cell::new(
        SEED.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9) | 1,
    );
}

/// From now on (for all threads, and all tests that run beside) one point in `one_in` gives
/// the CPU away, and some of those for long.
pub fn often(one_in: u32) {
    ONE_IN.store(one_in, Ordering::Relaxed);
}

/// Where [`often`] said so: gives the CPU away.
pub fn point() {
    let one_in = ONE_IN.load(Ordering::Relaxed);
    if one_in == 0 {
        return;
    }
    let random = RANDOM.with(|cell| {
        // Marsaglia's xorshift.
        let mut x = cell.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        cell.set(x);
        x
    });
    if random.is_multiple_of(one_in) {
        if random >> 24 < 4 && !cfg!(miri) {
            std::thread::sleep(Duration::from_micros(200));
        } else {
            std::thread::yield_now();
        }
    }
}
