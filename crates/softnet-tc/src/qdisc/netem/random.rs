//! Random numbers: a generator with a seed, and numbers that resemble the one before.
//!
//! The generator is L'Ecuyer's LFSR113 ("Tables of maximally equidistributed combined LFSR
//! generators", 1999), the kernel's `prandom_u32_state`, and a seed is spread over its state as
//! the kernel does it (`prandom_seed_state`). So the same seed gives the same losses as there.

/// LFSR113.
#[derive(Clone, Debug)]
pub(super) struct Prng([u32; 4]);

/// The components: the shifts, the bits that do not count, and the shift of the others.
const COMPONENTS: [(u32, u32, u32, u32); 4] = [
    (6, 13, 1, 18),
    (2, 27, 7, 2),
    (13, 21, 15, 7),
    (3, 12, 127, 13),
];

impl Prng {
    pub(super) fn seeded(seed: u64) -> Prng {
        let word = ((seed >> 32) ^ (seed << 10) ^ seed) as u32;
        // A component must have a bit that counts.
        Prng(COMPONENTS.map(|(_, _, passive, _)| {
            if word <= passive {
                word + passive + 1
            } else {
                word
            }
        }))
    }

    /// A number of 32 bits.
    #[inline]
    pub(super) fn next(&mut self) -> u32 {
        let mut number = 0;
        for (state, (left, right, passive, shift)) in self.0.iter_mut().zip(COMPONENTS) {
            *state = ((*state & !passive) << shift) ^ (((*state << left) ^ *state) >> right);
            number ^= *state;
        }
        number
    }

    /// A number below this one.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(end)) >> 32) as u32
    }
}

/// Numbers of which each resembles the one before (`get_crandom`).
#[derive(Clone, Debug)]
pub(super) struct Correlated {
    /// Weight of the number before, of 2^32 - 1. 0: none.
    rho: u32,
    last: u32,
}

impl Correlated {
    pub(super) fn new(rho: u32, first: u32) -> Correlated {
        Correlated { rho, last: first }
    }

    /// Goes on with another weight.
    pub(super) fn set(&mut self, rho: u32) {
        self.rho = rho;
    }

    #[inline]
    pub(super) fn next(&mut self, prng: &mut Prng) -> u32 {
        let value = prng.next();
        if self.rho == 0 {
            return value;
        }
        let rho = u64::from(self.rho) + 1;
        // At most 2^64 - 2^32, and so no more than 32 bits are left.
        let sum = u64::from(value) * ((1 << 32) - rho) + u64::from(self.last) * rho;
        self.last = (sum >> 32) as u32;
        self.last
    }

    /// True in so many of 2^32 - 1 cases (0: never, and no number is drawn).
    #[inline]
    pub(super) fn happens(&mut self, probability: u32, prng: &mut Prng) -> bool {
        probability != 0 && probability >= self.next(prng)
    }
}
