//! Tins of each mode: which code points lead where, and the part of the rate that each may take
//! before others.

use super::spec::Diffserv;

/// The most tins.
pub(super) const MAX_TINS: usize = 8;

/// Code points (RFC 2474, 4594, 5865, 8622), and TOS 4 of RFC 1349 (`minimize delay`).
mod code {
    pub(super) const LE: u8 = 1;
    pub(super) const TOS1: u8 = 2;
    pub(super) const TOS4: u8 = 4;
    pub(super) const CS: [u8; 8] = [0, 8, 16, 24, 32, 40, 48, 56];
    pub(super) const AF1: [u8; 3] = [10, 12, 14];
    pub(super) const AF2: [u8; 3] = [18, 20, 22];
    pub(super) const AF3: [u8; 3] = [26, 28, 30];
    pub(super) const AF4: [u8; 3] = [34, 36, 38];
    pub(super) const VA: u8 = 44;
    pub(super) const EF: u8 = 46;
}

/// Code point that ARP counts as: a matter of the network itself.
pub(super) const NETWORK_CONTROL: u8 = code::CS[7];

/// Tins of a mode.
#[derive(Debug)]
pub(super) struct Mode {
    /// Tin of each code point.
    pub(super) by_code: [u8; 64],
    /// Tins as `tc` numbers and shows them.
    pub(super) order: &'static [u8],
}

/// A table of tins, from the code points of some tins; all others lead to tin `rest`.
const fn table<const N: usize>(rest: u8, tins: [(u8, &[&[u8]]); N]) -> [u8; 64] {
    let mut table = [rest; 64];
    let mut n = 0;
    while n < N {
        let (tin, lists) = tins[n];
        let mut list = 0;
        while list < lists.len() {
            let mut at = 0;
            while at < lists[list].len() {
                table[lists[list][at] as usize] = tin;
                at += 1;
            }
            list += 1;
        }
        n += 1;
    }
    table
}

const fn by_precedence() -> [u8; 64] {
    let mut table = [0; 64];
    let mut at = 0;
    while at < 64 {
        table[at] = (at / 8) as u8;
        at += 1;
    }
    table
}

const IN_ORDER: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7];
/// The second tin is for bulk, and is shown first.
const BULK_FIRST: &[u8] = &[1, 0, 2, 3];

static DIFFSERV3: Mode = Mode {
    by_code: table(
        0,
        [
            (1, &[&[code::LE, code::CS[1]]]),
            (
                2,
                &[&[code::TOS4, code::VA, code::EF, code::CS[6], code::CS[7]]],
            ),
        ],
    ),
    order: BULK_FIRST.split_at(3).0,
};

static DIFFSERV4: Mode = Mode {
    by_code: table(
        0,
        [
            (1, &[&[code::LE, code::CS[1]]]),
            (
                2,
                &[
                    &[code::TOS4, code::CS[2], code::CS[3]],
                    &code::AF2,
                    &code::AF3,
                    &code::AF4,
                ],
            ),
            (
                3,
                &[
                    &[code::CS[4], code::CS[5], code::VA],
                    &[code::EF, code::CS[6], code::CS[7]],
                ],
            ),
        ],
    ),
    order: BULK_FIRST,
};

static DIFFSERV8: Mode = Mode {
    by_code: table(
        2,
        [
            (0, &[&[code::LE]]),
            (1, &[&[code::TOS1, code::CS[1]], &code::AF1]),
            (3, &[&[code::CS[3]], &code::AF3, &code::AF4]),
            (4, &[&[code::TOS4], &code::AF2]),
            (5, &[&[code::CS[2]]]),
            (6, &[&[code::CS[4], code::CS[5], code::VA, code::EF]]),
            (7, &[&[code::CS[6], code::CS[7]]]),
        ],
    ),
    order: IN_ORDER,
};

static PRECEDENCE: Mode = Mode {
    by_code: by_precedence(),
    order: IN_ORDER,
};

static BESTEFFORT: Mode = Mode {
    by_code: [0; 64],
    order: IN_ORDER.split_at(1).0,
};

impl Diffserv {
    pub(super) fn mode(self) -> &'static Mode {
        match self {
            Diffserv::Diffserv3 => &DIFFSERV3,
            Diffserv::Diffserv4 => &DIFFSERV4,
            Diffserv::Diffserv8 => &DIFFSERV8,
            Diffserv::Besteffort => &BESTEFFORT,
            Diffserv::Precedence => &PRECEDENCE,
        }
    }

    /// Tins as `tc` numbers and shows them.
    pub fn order(self) -> &'static [u8] {
        self.mode().order
    }

    /// For each tin the part of a rate that it may take before those of a lower priority.
    pub(super) fn rates(self, rate: u64) -> impl Iterator<Item = u64> {
        self.parts(rate, |rate| (rate.wrapping_mul(7)) >> 3)
    }

    /// For each tin the bytes that it sends in a round where there is no rate.
    pub(super) fn quanta(self) -> impl Iterator<Item = u64> {
        let first = match self {
            Diffserv::Besteffort => 65_535,
            Diffserv::Diffserv3 | Diffserv::Diffserv4 => 1024,
            Diffserv::Diffserv8 | Diffserv::Precedence => 256,
        };
        self.parts(first, |quantum| (quantum * 7) >> 3)
    }

    fn parts(self, whole: u64, less: fn(u64) -> u64) -> impl Iterator<Item = u64> {
        let halvings: &[u32] = match self {
            Diffserv::Diffserv3 => &[0, 4, 2],
            Diffserv::Diffserv4 => &[0, 4, 1, 2],
            _ => &[],
        };
        let eights = std::iter::successors(Some(whole), move |&part| Some(less(part)));
        let eights = eights.take(if halvings.is_empty() {
            self.order().len()
        } else {
            0
        });
        let halved = halvings.iter().map(move |&by| whole >> by);
        halved.chain(eights)
    }
}
