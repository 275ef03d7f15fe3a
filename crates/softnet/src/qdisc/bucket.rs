//! A token bucket that counts billionths of a byte, so that `elapsed nanoseconds x bytes per second` is exact: no rounding adds up, at
//! any rate and packet size (the kernel counts nanoseconds per packet and rounds each down).

/// Token units in a byte.
pub(super) const UNIT: u64 = 1_000_000_000;

/// One token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Bytes per second, which is token units per nanosecond.
    rate: u64,
    /// Capacity in token units.
    capacity: u64,
    tokens: u64,
}

impl Bucket {
    /// Full, for at most `bytes`. 8 GiB are enough for every burst of 32 bits with its framing, and keep all products below 2^63.
    pub(super) fn new(rate: u64, bytes: u64) -> Bucket {
        let capacity = bytes.min(8 << 30) * UNIT;
        Bucket {
            rate,
            capacity,
            tokens: capacity,
        }
    }

    /// The most that can be taken at once, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.capacity / UNIT
    }

    pub(super) fn fill(&mut self) {
        self.tokens = self.capacity;
    }

    /// Tokens after `elapsed` nanoseconds.
    #[inline]
    pub(super) fn after(&self, elapsed: u64) -> u64 {
        self.tokens
            .saturating_add(elapsed.saturating_mul(self.rate))
            .min(self.capacity)
    }

    /// Nanoseconds until `cost` tokens are there, counted from a moment with `tokens` of them.
    #[inline]
    pub(super) fn wait(&self, tokens: u64, cost: u64) -> u64 {
        match cost.checked_sub(tokens) {
            // Usual, and costs no division.
            None | Some(0) => 0,
            Some(missing) => missing.div_ceil(self.rate),
        }
    }

    /// Takes `cost` of the `tokens` that there are now.
    pub(super) fn set(&mut self, tokens: u64, cost: u64) {
        self.tokens = tokens - cost;
    }
}
