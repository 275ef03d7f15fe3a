//! Random numbers that need not be good: for the order of turns, and so that threads do not march
//! in step.

/// Marsaglia's xorshift.
#[derive(Debug)]
pub(crate) struct Random(u32);

impl Random {
    /// The sequence of this seed.
    pub(crate) fn new(seed: u32) -> Random {
        // 0 would stay 0.
        Random((0x9E37_79B9 ^ seed).max(1))
    }

    /// A sequence that differs from run to run.
    pub(crate) fn of_now() -> Random {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Random::new(since.map_or(0, |since| since.subsec_nanos()))
    }

    /// A number below `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        ((u64::from(self.0) * u64::from(n)) >> 32) as u32
    }

    /// Puts `items` into a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_occurs_and_nothing_is_lost() {
        let mut seen = std::collections::BTreeSet::new();
        let mut random = Random::new(7);
        for _ in 0..200 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 6);
    }
}
