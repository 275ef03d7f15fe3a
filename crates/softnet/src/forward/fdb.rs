//! The forwarding database of a switch: which port a MAC address was last seen behind. Read and written by all workers at once
//! without a lock; bounded; entries age.
//!
//! A set-associative table. An entry is one 64-bit word `address << 16 | port + 1`, so it is always read whole, beside the second when it
//! was last confirmed. Two workers that learn into the same set at once may overwrite each other's entry: the loser's address is flooded
//! once more and learnt again. Everything is Relaxed: an entry carries no data beyond its own word.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::packet::EthernetAddress;
use crate::time::Time;

/// Entries not confirmed for this long are not used (the kernel bridge's `ageing_time`, IEEE 802.1D table 7-5).
pub const AGEING: Duration = Duration::from_secs(300);

const WAYS: usize = 5;

#[derive(Debug, Default)]
struct Set {
    entries: [AtomicU64; WAYS],
    seen: [AtomicU32; WAYS],
}

/// Which port a MAC address was last seen behind. Read and written by all workers at once without a lock; bounded; entries age.
#[derive(Debug)]
pub struct Fdb {
    sets: Box<[CachePadded<Set>]>,
    ageing: u32,
}

fn key(address: EthernetAddress) -> u64 {
    let a = address.0;
    u64::from_be_bytes([0, 0, a[0], a[1], a[2], a[3], a[4], a[5]])
}

fn seconds(now: Time) -> u32 {
    (now.nanos() / 1_000_000_000) as u32
}

impl Fdb {
    /// An empty table for about `capacity` addresses, which forgets after `ageing` (in whole seconds).
    pub fn new(capacity: usize, ageing: Duration) -> Fdb {
        let sets = capacity.div_ceil(WAYS).next_power_of_two();
        Fdb {
            sets: (0..sets).map(|_| CachePadded::default()).collect(),
            ageing: u32::try_from(ageing.as_secs()).unwrap_or(u32::MAX),
        }
    }

    fn set(&self, key: u64) -> &Set {
        // Fibonacci hashing: the multiplier spreads the low bits, which differ most, over the high ones.
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.sets[hash as usize & (self.sets.len() - 1)]
    }

    /// The port that `address` was last seen behind, unless that is too long ago.
    pub fn lookup(&self, address: EthernetAddress, now: Time) -> Option<u16> {
        let key = key(address);
        let set = self.set(key);
        for (entry, seen) in set.entries.iter().zip(&set.seen) {
            let word = entry.load(Ordering::Relaxed);
            if word >> 16 == key && word & 0xFFFF != 0 {
                let fresh = seconds(now).saturating_sub(seen.load(Ordering::Relaxed)) < self.ageing;
                return fresh.then_some((word & 0xFFFF) as u16 - 1);
            }
        }
        None
    }

    /// Notes that `address` is behind `port`. A full set gives up its oldest entry.
    pub fn learn(&self, address: EthernetAddress, port: u16, now: Time) {
        let (key, now) = (key(address), seconds(now));
        let word = key << 16 | (u64::from(port) + 1);
        let set = self.set(key);
        let mut victim = (0, u32::MAX);
        for (way, (entry, seen)) in set.entries.iter().zip(&set.seen).enumerate() {
            let (old, at) = (entry.load(Ordering::Relaxed), seen.load(Ordering::Relaxed));
            if old == word {
                // Written once a second at most, so that the line stays shared.
                if at != now {
                    seen.store(now, Ordering::Relaxed);
                }
                return;
            }
            let age = if old >> 16 == key && old != 0 {
                victim = (way, 0);
                break;
            } else if old == 0 {
                0
            } else {
                at.saturating_add(1)
            };
            if age < victim.1 {
                victim = (way, age);
            }
        }
        set.seen[victim.0].store(now, Ordering::Relaxed);
        set.entries[victim.0].store(word, Ordering::Relaxed);
    }

    /// Forgets every address behind `port`.
    pub fn forget_port(&self, port: u16) {
        for entry in self.sets.iter().flat_map(|set| &set.entries) {
            let word = entry.load(Ordering::Relaxed);
            if word & 0xFFFF == u64::from(port) + 1 {
                // Only if it is still that entry.
                let _ = entry.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Addresses in the table, aged ones included.
    pub fn len(&self) -> usize {
        let entries = self.sets.iter().flat_map(|set| &set.entries);
        entries
            .filter(|entry| entry.load(Ordering::Relaxed) != 0)
            .count()
    }

    /// Whether nothing was learnt.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(n: u32) -> EthernetAddress {
        let b = n.to_be_bytes();
        EthernetAddress([2, 0, b[0], b[1], b[2], b[3]])
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn learns_moves_and_ages() {
        let fdb = Fdb::new(64, Duration::from_secs(10));
        let (a, b) = (mac(1), mac(2));
        assert_eq!(fdb.lookup(a, Time(0)), None);
        fdb.learn(a, 0, Time(0));
        fdb.learn(b, 7, Time(0));
        assert_eq!(fdb.lookup(a, Time(9 * SECOND)), Some(0));
        fdb.learn(a, 3, Time(5 * SECOND));
        assert_eq!(
            fdb.lookup(a, Time(14 * SECOND)),
            Some(3),
            "a station that moved is found"
        );
        assert_eq!(
            fdb.lookup(b, Time(10 * SECOND)),
            None,
            "an old entry is not used"
        );
        fdb.forget_port(3);
        assert_eq!(fdb.lookup(a, Time(5 * SECOND)), None);
        assert_eq!(fdb.len(), 1);
    }

    #[test]
    fn is_bounded_and_gives_up_the_oldest() {
        let fdb = Fdb::new(32, AGEING);
        let capacity = fdb.sets.len() * WAYS;
        for n in 0..10_000 {
            fdb.learn(mac(n), (n % 5) as u16, Time(u64::from(n) * SECOND));
        }
        assert!(fdb.len() <= capacity);
        assert_eq!(fdb.lookup(mac(9_999), Time(9_999 * SECOND)), Some(4));
    }

    #[test]
    fn the_zero_address_is_an_address_like_any_other() {
        let fdb = Fdb::new(8, AGEING);
        assert_eq!(fdb.lookup(EthernetAddress([0; 6]), Time(0)), None);
        fdb.learn(EthernetAddress([0; 6]), 2, Time(0));
        assert_eq!(fdb.lookup(EthernetAddress([0; 6]), Time(0)), Some(2));
    }
}
