//! A token bucket that counts billionths of a byte, so that nanoseconds times bytes per second is
//! exact: no rounding adds up, at any rate and packet size. (The kernel counts nanoseconds for a
//! packet and rounds each down.)

/// Token units in a byte.
pub(crate) const UNIT: u64 = 1_000_000_000;

/// One token bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Bytes per second, which is token units per nanosecond.
    rate: u64,
    /// Capacity in token units.
    capacity: u64,
    tokens: u64,
}

impl Bucket {
    /// Full, for at most `bytes`. 8 GiB are enough for every burst of 32 bits with its framing,
    /// and keep all products below 2^63.
    pub(crate) fn new(rate: u64, bytes: u64) -> Bucket {
        let capacity = bytes.min(8 << 30) * UNIT;
        Bucket {
            rate,
            capacity,
            tokens: capacity,
        }
    }

    /// The most tokens that it holds.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Tokens after `elapsed` nanoseconds.
    #[inline]
    pub(crate) fn after(&self, elapsed: u64) -> u64 {
        self.tokens
            .saturating_add(elapsed.saturating_mul(self.rate))
            .min(self.capacity)
    }

    /// Nanoseconds until `cost` tokens are there, or the bucket is full, counted from a moment
    /// with `tokens` of them.
    #[inline]
    pub(crate) fn wait(&self, tokens: u64, cost: u64) -> u64 {
        self.time_for(cost.min(self.capacity).saturating_sub(tokens))
    }

    /// Nanoseconds in which this many tokens come.
    #[inline]
    pub(crate) fn time_for(&self, tokens: u64) -> u64 {
        match tokens {
            // Usual, and costs no division.
            0 => 0,
            missing => missing.div_ceil(self.rate),
        }
    }

    /// Leaves this many tokens.
    pub(crate) fn set(&mut self, tokens: u64) {
        self.tokens = tokens;
    }
}
