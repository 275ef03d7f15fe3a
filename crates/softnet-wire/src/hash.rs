//! Keyed hashes of what comes from outside: flows and addresses. The key is random and stays in
//! the process. Without it a sender could choose addresses or ports that all fall into one place.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::parse::read;
use crate::{Headers, L4, Network, array, dissect};

static KEY: LazyLock<[u64; 4]> = LazyLock::new(|| {
    // Relaxed: nothing else is read because of it.
    if FIXED.load(Ordering::Relaxed) {
        return FIXED_KEY;
    }
    // The standard library's states are seeded by the system and differ from one another.
    [0, 1, 2, 3].map(|n: u64| RandomState::new().hash_one(n))
});

static FIXED: AtomicBool = AtomicBool::new(false);

/// A key that everybody knows, for packets that nobody sends: those of a simulation. (The digits of
/// pi, as in Blowfish.)
pub const FIXED_KEY: [u64; 4] = [
    0x243F_6A88_85A3_08D3,
    0x1319_8A2E_0370_7344,
    0xA409_3822_299F_31D0,
    0x082E_FA98_EC4E_6C89,
];

/// Gives the process the key that everybody knows, for a program that simulates and has to come to
/// the same result again. Too late once something was hashed.
pub fn use_fixed_key() {
    FIXED.store(true, Ordering::Relaxed);
}

/// The process's key.
#[inline]
fn key() -> &'static [u64; 4] {
    &KEY
}

/// Multiplies to 128 bits and folds: every input bit reaches about half of the output bits.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let [high, low] = halves(u128::from(a) * u128::from(b));
    low ^ high
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each half is meant")]
fn halves(n: u128) -> [u64; 2] {
    [(n >> 64) as u64, n as u64]
}

#[inline]
fn finish(key: &[u64; 4], hash: u64, more: u64) -> u32 {
    let h = mix(hash ^ key[2], more ^ key[3]);
    // For some keys the lower bits alone are uneven; this brings all bits to the upper half. The
    // factor is 2^64 divided by the golden ratio.
    ((h ^ (h >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// The keyed hash of one number, such as an address.
#[inline]
pub fn keyed_hash(number: u64) -> u32 {
    let key = key();
    finish(key, number ^ key[0], number.rotate_left(32) ^ key[1])
}

/// The [hash](Headers::flow_hash) of a frame of `len` bytes, of which `data` is the first segment;
/// 0 where [`parse`](crate::parse) fails. The headers are not put into memory for it.
#[inline]
pub fn flow_hash(data: &[u8], len: usize) -> u32 {
    match read(data, len) {
        Ok((headers, true)) => headers.flow_hash(data),
        _ => 0,
    }
}

impl Headers {
    /// A hash that is the same for all packets of a flow, in both directions: over addresses,
    /// ports and protocol; over addresses and protocol for fragments; over MAC addresses and
    /// EtherType for what is not IP. It is that of the innermost IP packet in PPPoE, MPLS, GRE and
    /// IP in IP, as far as it can be read. `data` is what was parsed.
    ///
    /// The hash is keyed, so that nobody outside can choose flows that collide: it differs from
    /// one run of the program to the next.
    #[inline]
    pub fn flow_hash(&self, data: &[u8]) -> u32 {
        self.flow_hash_with(data, key())
    }

    /// As [`flow_hash`](Headers::flow_hash), with another key.
    #[inline]
    pub fn flow_hash_with(&self, data: &[u8], key: &[u64; 4]) -> u32 {
        // Most packets have ports, and what has some is no tunnel.
        let ports = match self.ports() {
            Some(ports) => ports,
            None if self.is_tunnel() => return inner_hash(self.network_end, data, key),
            None => (0, 0),
        };
        self.own_hash(ports, data, key)
    }

    /// Source and destination port of TCP or UDP.
    #[inline]
    fn ports(&self) -> Option<(u16, u16)> {
        match self.transport {
            L4::Tcp {
                source,
                destination,
            }
            | L4::Udp {
                source,
                destination,
            } => Some((source, destination)),
            _ => None,
        }
    }

    /// The hash of what these headers themselves say.
    #[inline]
    fn own_hash(&self, ports: (u16, u16), data: &[u8], key: &[u64; 4]) -> u32 {
        let at = usize::from(self.network_offset);
        let l4 = u64::from(self.protocol);
        // The smaller end first: the hash of a reply is that of the request, as in the kernel's
        // flow dissector.
        match self.network {
            Network::V4 => {
                let Some([a, b]) = array::<8>(data, at + 12).map(|x| x.as_chunks::<4>().0) else {
                    return 0;
                };
                let a = u64::from(u32::from_be_bytes(*a)) << 16 | u64::from(ports.0);
                let b = u64::from(u32::from_be_bytes(*b)) << 16 | u64::from(ports.1);
                finish(key, mix(a.min(b) ^ key[0], a.max(b) ^ key[1]), l4)
            }
            Network::V6 => {
                let Some([a, b]) = array::<32>(data, at + 8).map(|x| x.as_chunks::<16>().0) else {
                    return 0;
                };
                let a = (u128::from_be_bytes(*a), ports.0);
                let b = (u128::from_be_bytes(*b), ports.1);
                let (a, b) = if a <= b { (a, b) } else { (b, a) };
                let ([high, low], [other_high, other_low]) = (halves(a.0), halves(b.0));
                let h = mix(low ^ key[0], high ^ key[1]);
                let h = h ^ mix(other_low ^ key[2], other_high ^ key[3]).rotate_left(23);
                finish(key, h, l4 << 32 | u64::from(a.1) << 16 | u64::from(b.1))
            }
            Network::Other => {
                let (a, b) = (self.destination.to_u64(), self.source.to_u64());
                finish(
                    key,
                    mix(a.min(b) ^ key[0], a.max(b) ^ key[1]),
                    u64::from(self.ethertype),
                )
            }
        }
    }
}

/// The hash of what is inside a tunnel whose packet ends at `end`. Parses again: what is handed to
/// a function would have to be in memory for packets without a tunnel, too.
#[cold]
#[inline(never)]
fn inner_hash(end: u32, data: &[u8], key: &[u64; 4]) -> u32 {
    // As long as it was said to be, or longer: nothing is refused that was not.
    let Ok(headers) = dissect(data, data.len().max(end as usize)) else {
        return 0;
    };
    let inner = headers.innermost(data);
    inner.own_hash(inner.ports().unwrap_or_default(), data, key)
}
