//! The forwarding database of a switch: which port a MAC address was last seen behind. Read and
//! written by all workers at once; nobody waits; bounded; entries age.
//!
//! A set-associative table under a keyed hash, so that nobody can choose addresses of one set. An
//! entry is one 64-bit word `address << 16 | port + 1`, so it is always read whole, beside the
//! second when it was last confirmed.
//!
//! **Limit per port.** In a full set a port takes the place of an entry of its own, or of the port
//! that has most entries there, if that has at least two more than itself. So each port is limited
//! to its fair share of every set that others want, and however many addresses appear behind one
//! port, they evict none of a port that has a single one there.
//!
//! **One entry for an address.** Entries are made and moved by whoever holds the set's flag; one
//! that finds it taken learns nothing, and learns with the next packet instead. The flag is taken
//! with Acquire and given back with Release, so its holder sees what earlier holders wrote; no
//! address is ever in two entries. A lookup needs no flag: an entry carries no data beyond its own
//! word, so everything else is Relaxed. Of an entry that is changing a lookup may combine the old
//! address with the new time, or the other way round, and so believe an aged entry, or flood,
//! once.

use std::time::Duration;

use crossbeam_utils::CachePadded;

use softnet::sync::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use softnet::time::Time;
use softnet::wire::{EthernetAddress, keyed_hash};

/// Entries not confirmed for this long are not used (the kernel bridge's `ageing_time`, IEEE
/// 802.1D table 7-5).
pub const AGEING: Duration = Duration::from_secs(300);

const WAYS: usize = 5;

#[derive(Debug, Default)]
struct Set {
    entries: [AtomicU64; WAYS],
    seen: [AtomicU32; WAYS],
    /// Somebody makes or moves an entry.
    changing: AtomicBool,
}

/// Which port a MAC address was last seen behind. Read and written by all workers at once without
/// a lock; bounded; entries age.
#[derive(Debug)]
pub(crate) struct Fdb {
    sets: Box<[CachePadded<Set>]>,
    ageing: u32,
}

/// The port of an entry, plus 1; 0 of an empty one.
fn port_of(word: u64) -> u64 {
    word & 0xFFFF
}

fn seconds(now: Time) -> u32 {
    (now.nanos() / 1_000_000_000) as u32
}

impl Fdb {
    /// An empty table for about `capacity` addresses, which forgets after `ageing` (in whole
    /// seconds).
    pub(crate) fn new(capacity: usize, ageing: Duration) -> Fdb {
        let sets = capacity.div_ceil(WAYS).next_power_of_two();
        Fdb {
            sets: (0..sets).map(|_| CachePadded::default()).collect(),
            ageing: u32::try_from(ageing.as_secs()).unwrap_or(u32::MAX),
        }
    }

    fn set(&self, key: u64) -> &Set {
        &self.sets[keyed_hash(key) as usize & (self.sets.len() - 1)]
    }

    fn is_fresh(&self, seen: u32, now: u32) -> bool {
        now.saturating_sub(seen) < self.ageing
    }

    /// The port that `address` was last seen behind, unless that is too long ago.
    pub(crate) fn lookup(&self, address: EthernetAddress, now: Time) -> Option<u16> {
        let key = address.to_u64();
        let set = self.set(key);
        for (entry, seen) in set.entries.iter().zip(&set.seen) {
            let word = entry.load(Ordering::Relaxed);
            if word >> 16 == key && word != 0 {
                return self
                    .is_fresh(seen.load(Ordering::Relaxed), seconds(now))
                    .then_some(port_of(word) as u16 - 1);
            }
        }
        None
    }

    /// Notes that `address` is behind `port`, which is below 65,535. See the module for
    /// what a full set does.
    pub(crate) fn learn(&self, address: EthernetAddress, port: u16, now: Time) {
        let (key, now) = (address.to_u64(), seconds(now));
        let word = key << 16 | (u64::from(port) + 1);
        let set = self.set(key);
        for (entry, seen) in set.entries.iter().zip(&set.seen) {
            if entry.load(Ordering::Relaxed) == word {
                // Written once a second at most, so that the line stays shared.
                if seen.load(Ordering::Relaxed) != now {
                    seen.store(now, Ordering::Relaxed);
                }
                return;
            }
        }
        self.insert(set, word, now);
    }

    #[cold]
    fn insert(&self, set: &Set, word: u64, now: u32) {
        if set.changing.swap(true, Ordering::Acquire) {
            return;
        }
        if let Some(way) = self.place(set, word, now) {
            set.seen[way].store(now, Ordering::Relaxed);
            set.entries[way].store(word, Ordering::Relaxed);
        }
        set.changing.store(false, Ordering::Release);
    }

    /// Where an entry goes: over that of the same address, into a place that is free or whose
    /// entry is too old, or in place of the oldest entry of the port that must give one up.
    fn place(&self, set: &Set, word: u64, now: u32) -> Option<usize> {
        let words = set.entries.each_ref().map(|e| e.load(Ordering::Relaxed));
        let seen = set.seen.each_ref().map(|s| s.load(Ordering::Relaxed));
        let same = words.iter().position(|&w| w != 0 && w >> 16 == word >> 16);
        let free = || (0..WAYS).find(|&way| words[way] == 0 || !self.is_fresh(seen[way], now));
        same.or_else(free).or_else(|| {
            let entries = |port| words.iter().filter(|&&w| port_of(w) == port).count();
            let own = port_of(word);
            let most = words
                .iter()
                .map(|&w| port_of(w))
                .max_by_key(|&p| entries(p))?;
            let from = if entries(most) >= entries(own) + 2 {
                most
            } else {
                own
            };
            let of_port = (0..WAYS).filter(|&way| port_of(words[way]) == from);
            of_port.min_by_key(|&way| seen[way])
        })
    }

    /// Forgets every address behind `port`.
    pub(crate) fn forget_port(&self, port: u16) {
        for entry in self.sets.iter().flat_map(|set| &set.entries) {
            let word = entry.load(Ordering::Relaxed);
            if port_of(word) == u64::from(port) + 1 {
                // Only if it is still that entry.
                let _ = entry.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Addresses in the table, aged ones included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let entries = self.sets.iter().flat_map(|set| &set.entries);
        entries
            .filter(|entry| entry.load(Ordering::Relaxed) != 0)
            .count()
    }
}

#[cfg(all(test, not(loom), not(miri)))]
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

    /// However many addresses appear behind one port, a quiet station behind another stays known,
    /// and so does one that comes later.
    #[test]
    fn a_port_that_floods_addresses_evicts_only_its_own() {
        let fdb = Fdb::new(32, AGEING);
        let (quiet, late) = (mac(1), mac(2));
        fdb.learn(quiet, 0, Time(0));
        let flood = |start: u32| {
            for n in 0..10_000 {
                fdb.learn(
                    mac(start + n),
                    1,
                    Time(SECOND + u64::from(n) * SECOND / 100),
                );
            }
        };
        flood(1_000);
        assert_eq!(fdb.lookup(quiet, Time(101 * SECOND)), Some(0));
        assert_eq!(fdb.len(), fdb.sets.len() * WAYS, "full");
        fdb.learn(late, 2, Time(101 * SECOND));
        flood(20_000);
        let known = [quiet, late].map(|a| fdb.lookup(a, Time(101 * SECOND)));
        assert_eq!(known, [Some(0), Some(2)]);
    }

    /// Ports that want more of a set than it has end with equal shares, whoever came first.
    #[test]
    fn ports_that_fill_a_set_share_it() {
        let fdb = Fdb::new(WAYS, AGEING);
        (0..100).for_each(|n| fdb.learn(mac(n), 7, Time(u64::from(n))));
        (100..200).for_each(|n| fdb.learn(mac(n), 8, Time(u64::from(n))));
        (200..300).for_each(|n| fdb.learn(mac(n), 7, Time(u64::from(n))));
        let of = |port: u64| {
            let entries = fdb.sets[0].entries.iter();
            entries
                .filter(|e| port_of(e.load(Ordering::Relaxed)) == port + 1)
                .count()
        };
        assert_eq!((of(7), of(8)), (3, 2));
    }

    /// Threads that see one address behind different ports make one entry for it.
    #[test]
    fn an_address_is_never_in_two_entries() {
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        for round in 0..rounds {
            let fdb = Fdb::new(WAYS, AGEING);
            std::thread::scope(|scope| {
                for port in 0..3 {
                    let fdb = &fdb;
                    scope.spawn(move || fdb.learn(mac(round), port, Time(0)));
                }
            });
            assert_eq!(fdb.len(), 1);
        }
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

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two workers that see one address behind different ports, while its old port is flushed: at
    /// most one entry is left, and it is of a port where the address was seen.
    #[test]
    fn an_address_has_one_entry() {
        loom::model(|| {
            let fdb = Arc::new(Fdb::new(1, AGEING));
            let address = EthernetAddress([2, 0, 0, 0, 0, 1]);
            fdb.learn(address, 9, Time(0));
            let threads = [1, 2].map(|port| {
                let fdb = fdb.clone();
                thread::spawn(move || fdb.learn(address, port, Time(0)))
            });
            fdb.forget_port(9);
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert!(fdb.len() <= 1, "one address in two entries");
            let port = fdb.lookup(address, Time(0));
            assert!(matches!(port, None | Some(1 | 2)), "{port:?}");
        });
    }
}
