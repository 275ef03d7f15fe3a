//! Keyed hashes of what comes from outside: flows and addresses. The key is random and stays in
//! the process. Without it a sender could choose addresses or ports that all fall into one place.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

static KEY: LazyLock<[u64; 4]> = LazyLock::new(|| {
    // The standard library's states are seeded by the system and differ from one another.
    [0, 1, 2, 3].map(|n: u64| RandomState::new().hash_one(n))
});

/// The process's key.
#[inline]
pub(super) fn key() -> &'static [u64; 4] {
    &KEY
}

/// Multiplies to 128 bits and folds: every input bit reaches about half of the output bits.
#[inline]
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
pub(super) fn finish(hash: u64, more: u64) -> u32 {
    let h = mix(hash ^ key()[2], more ^ key()[3]);
    // For some keys the lower bits alone are uneven; this brings all bits to the upper half. The
    // factor is 2^64 divided by the golden ratio.
    ((h ^ (h >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// The hash of one number, such as an address.
#[inline]
pub(crate) fn keyed_hash(number: u64) -> u32 {
    finish(number ^ key()[0], number.rotate_left(32) ^ key()[1])
}
