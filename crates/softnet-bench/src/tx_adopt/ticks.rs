//! A clock that costs a few nanoseconds to read: the processor's time stamp counter where the
//! kernel itself trusts it, the monotonic clock elsewhere. Its origin is that of [`Ticks::clock`],
//! so that both may be given to the same queue.

#![allow(
    unsafe_code,
    reason = "reading the time stamp counter is an intrinsic, unsafe until Rust 1.90"
)]

use std::time::{Duration, Instant};

use softnet::time::{Clock, Time};

/// Time for which the counter's rate is measured.
const CALIBRATION: Duration = Duration::from_millis(20);

/// See the [module](self).
#[derive(Debug, Clone)]
pub(crate) struct Ticks {
    clock: Clock,
    counter: Option<Counter>,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    origin: u64,
    /// Nanoseconds per tick, times 2^32.
    scale: u64,
}

impl Ticks {
    /// Measures the counter's rate.
    pub(crate) fn new() -> Ticks {
        let clock = Clock::monotonic();
        let counter = trusted().then(|| {
            let (start, origin) = (Instant::now(), read());
            std::thread::sleep(CALIBRATION);
            let (time, ticks) = (start.elapsed(), read() - origin);
            let scale = (time.as_nanos() << 32) / u128::from(ticks.max(1));
            Counter {
                origin,
                scale: scale as u64,
            }
        });
        Ticks { clock, counter }
    }

    /// The clock with the same origin.
    pub(crate) fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        match self.counter {
            Some(Counter { origin, scale }) => {
                let ticks = read().saturating_sub(origin);
                ((u128::from(ticks) * u128::from(scale)) >> 32) as u64
            }
            None => self.clock.now().nanos(),
        }
    }

    /// As [`nanos`](Ticks::nanos).
    #[inline]
    pub(crate) fn now(&self) -> Time {
        Time(self.nanos())
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn read() -> u64 {
    // SAFETY: the instruction exists on every x86-64 processor and has no effect but its result.
    #[allow(unused_unsafe, reason = "safe in newer compilers")]
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn read() -> u64 {
    0
}

/// True if the counter runs at one rate on all CPUs: the kernel checks that before it uses it as
/// its own clock.
fn trusted() -> bool {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(path).is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree() {
        let ticks = Ticks::new();
        let before = ticks.clock().now().nanos();
        let counted = ticks.nanos();
        let after = ticks.clock().now().nanos();
        // The rate is known to some parts in 10^4 of the time since the origin.
        let slack = after / 100;
        assert!(
            counted + slack >= before && counted <= after + slack,
            "{before} {counted} {after}"
        );
    }
}
