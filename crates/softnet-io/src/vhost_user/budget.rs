//! A limit on the messages of a front end.
//!
//! Messages cost others: the rings are locked, workers woken, memory mapped. A start of the device
//! is let through as fast as it comes; who goes on like that is read more slowly. Nothing is lost:
//! what is not read waits in the socket, as does the front end once that is full.

use std::time::{Duration, Instant};

/// Reads that a queue pair has at once, besides those of the port: a message takes two, QEMU 7.2
/// says of each pair again where the memory is, and a ring has about ten messages.
const PER_PAIR: u32 = 256;
const PER_PORT: u32 = 2048;
/// After which there is one more.
const INTERVAL: Duration = Duration::from_millis(1);

/// A token bucket of reads from the socket, the same for all connections of a port: a message in
/// many pieces is as dear as many messages.
#[derive(Debug)]
pub(super) struct Budget {
    /// So much at most lies between `empty` and now.
    full: Duration,
    /// When the bucket was empty, had nothing been taken since.
    empty: Instant,
}

impl Budget {
    /// A full one.
    pub(super) fn new(pairs: usize, now: Instant) -> Budget {
        let pairs = u32::try_from(pairs).unwrap_or(u32::MAX);
        let reads = pairs.saturating_mul(PER_PAIR).saturating_add(PER_PORT);
        let full = INTERVAL.saturating_mul(reads);
        Budget {
            full,
            // As full as it can be: the clock may have begun later than that.
            empty: now.checked_sub(full).unwrap_or(now),
        }
    }

    /// Takes a read. If there is none, how long it is until there is.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let there = now.saturating_duration_since(self.empty);
        if let Some(more) = there.checked_sub(self.full) {
            self.empty += more;
        }
        match INTERVAL.checked_sub(there) {
            Some(missing) if !missing.is_zero() => Err(missing),
            _ => {
                self.empty += INTERVAL;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(budget: &mut Budget, now: Instant) -> u32 {
        (0..).take_while(|_| budget.take(now).is_ok()).count() as u32
    }

    #[test]
    fn a_burst_and_then_a_rate() {
        let start = Instant::now() + Duration::from_secs(3600);
        let mut budget = Budget::new(2, start);
        assert_eq!(takes(&mut budget, start), PER_PORT + 2 * PER_PAIR);
        assert_eq!(budget.take(start), Err(INTERVAL));
        assert_eq!(budget.take(start + INTERVAL / 4), Err(INTERVAL * 3 / 4));
        assert_eq!(takes(&mut budget, start + INTERVAL * 7), 7);
        // It holds no more than that, however long nothing is said.
        let later = start + Duration::from_secs(1800);
        assert_eq!(takes(&mut budget, later), PER_PORT + 2 * PER_PAIR);
    }
}
