//! Random numbers that need not be good: the same from the same seed, or others in each run.

/// Marsaglia's xorshift.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        // 0 would stay 0.
        Random((seed ^ 0x9E37_79B9_7F4A_7C15).max(1))
    }

    /// A sequence that differs from run to run.
    pub fn of_now() -> Random {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Random::new(since.map_or(0, |since| since.subsec_nanos().into()))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(n)) >> 64) as u64
    }

    /// True with probability 1/`n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// Puts `items` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
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

    #[test]
    fn numbers_below_a_bound_are_all_of_them() {
        let mut random = Random::new(1);
        let seen: std::collections::BTreeSet<_> = (0..200).map(|_| random.below(5)).collect();
        assert!(seen.into_iter().eq(0..5));
        assert_eq!(random.below(0), 0);
    }
}
