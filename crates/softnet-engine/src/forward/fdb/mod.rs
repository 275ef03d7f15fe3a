//! The forwarding database of a bridge: which port a MAC address is behind, in each VLAN. Read and
//! written by all workers at once; no worker waits; bounded; learnt entries age.
//!
//! A set-associative table under a keyed hash, so that nobody can choose addresses of one set. An
//! entry is one 64-bit word, `address << 16 | static << 15 | port + 1`, beside the second when it
//! was last confirmed. Without VLANs that is all a lookup needs, in one cache line.
//!
//! **Tagged entries.** An entry of a VLAN, and one of an address that ends at the bridge, has the
//! group bit of its address set, which no station's address has, so that a lookup without VLANs
//! never finds it. Its VLAN and flags are in a second word, the tag.
//!
//! **Limit per port.** In a full set a port takes the place of an entry of its own, or of the port
//! that has most entries there, if that has at least two more than itself. So each port is limited
//! to its fair share of every set that others want, and however many addresses appear behind one
//! port, they evict none of a port that has a single one there. Static entries are never evicted.
//!
//! **One entry for an address.** Entries are made and moved by whoever holds the set's flag; a
//! worker that finds it taken learns nothing, and learns with the next packet instead; the control
//! path waits for it. The flag is taken with Acquire and given back with Release, so its holder
//! sees what earlier holders wrote; no address is ever in two entries. A lookup needs no flag. Of
//! an entry without a tag it may combine the old address with the new time, or the other way
//! round, and so believe an aged entry, or flood, once: Relaxed is enough.
//!
//! **Word and tag belong together.** A writer clears the word, then writes the tag, then the new
//! word with Release. A reader loads the word with Acquire, the tag, and after an Acquire fence
//! the word again; if it differs, it takes the entry for absent. A tag from before the entry's own
//! is excluded by Release and Acquire; with one from after it, the second load sees the cleared
//! word, or a later one (the writer's Release fence after the clearing pairs with the reader's).
//! If the later word is equal, address and port are, and either VLAN was true a moment ago.
//!
//! An entry is removed by a compare-and-swap of its word to 0. Whether it is static is in the
//! word, so that no removal of learnt entries takes one that was just made static.

mod entries;

use std::time::Duration;

use crossbeam_utils::CachePadded;

use softnet::sync::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use softnet::time::Time;
use softnet::wire::{EthernetAddress, keyed_hash};

pub use entries::FdbState;
pub(crate) use entries::{FdbRow, Fixed, SetError};

/// Entries not confirmed for this long are not used (the kernel bridge's `ageing_time`, IEEE
/// 802.1D table 7-5).
pub const AGEING: Duration = Duration::from_secs(300);

const WAYS: usize = 4;
/// The group bit of an address, as a number: the entry has a tag.
const TAGGED: u64 = 1 << 40;
/// In the word: does not age.
const STATIC: u64 = 1 << 15;
/// In the tag: the address ends at the bridge.
const LOCAL: u32 = 1 << 12;
/// In the tag: learning does not move the entry.
const STICKY: u32 = 1 << 13;
/// In the tag.
const VLAN: u32 = 0xFFF;

/// An address in a VLAN; VLAN 0 stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station {
    pub(crate) vlan: u16,
    pub(crate) address: EthernetAddress,
}

impl Station {
    /// A station of a bridge without VLANs.
    pub(crate) fn new(address: EthernetAddress) -> Station {
        Station { vlan: 0, address }
    }

    /// Key that finds its set.
    fn key(self) -> u64 {
        u64::from(self.vlan) << 48 | self.address.to_u64()
    }
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) port: u16,
    /// The address ends at the bridge.
    pub(crate) local: bool,
}

/// The first cache line is all that packets without VLANs need.
#[derive(Debug, Default)]
#[repr(C)]
struct Set {
    entries: [AtomicU64; WAYS],
    /// The second when the entry was made or confirmed.
    seen: [AtomicU32; WAYS],
    /// The second when a packet was last sent there.
    used: [AtomicU32; WAYS],
    tags: [AtomicU32; WAYS],
    /// Somebody makes or moves an entry.
    changing: AtomicBool,
}

/// Which port a MAC address is behind; see the module.
#[derive(Debug)]
pub(crate) struct Fdb {
    sets: Box<[CachePadded<Set>]>,
    /// In seconds.
    ageing: AtomicU32,
}

/// The port of an entry, plus 1; 0 of an empty one.
fn port_of(word: u64) -> u64 {
    word & (STATIC - 1)
}

pub(super) fn seconds(now: Time) -> u32 {
    (now.nanos() / 1_000_000_000) as u32
}

/// Writes a second once at most, so that the line stays shared.
#[inline(always)]
pub(super) fn note(at: &AtomicU32, now: u32) {
    if at.load(Ordering::Relaxed) != now {
        at.store(now, Ordering::Relaxed);
    }
}

/// An entry to write.
#[derive(Clone, Copy)]
struct Entry {
    word: u64,
    tag: u32,
}

impl Entry {
    fn new(station: Station, port: u16, flags: u32) -> Entry {
        let tagged = station.vlan != 0 || flags & LOCAL != 0;
        let address = station.address.to_u64() | if tagged { TAGGED } else { 0 };
        Entry {
            word: address << 16 | (u64::from(port) + 1),
            tag: u32::from(station.vlan) | flags,
        }
    }
}

impl Fdb {
    /// An empty table for about `capacity` addresses, which forgets after `ageing` (in whole
    /// seconds). It has places for twice as many, as sets fill unevenly.
    pub(crate) fn new(capacity: usize, ageing: Duration) -> Fdb {
        let sets = (capacity * 2).div_ceil(WAYS).next_power_of_two();
        let fdb = Fdb {
            sets: (0..sets).map(|_| CachePadded::default()).collect(),
            ageing: AtomicU32::new(0),
        };
        fdb.set_ageing(ageing);
        fdb
    }

    /// Forgets after `ageing` from now on, rounded up to seconds. Zero: nothing is learnt.
    pub(crate) fn set_ageing(&self, ageing: Duration) {
        let seconds = ageing.as_secs() + u64::from(ageing.subsec_nanos() > 0);
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        self.ageing.store(seconds, Ordering::Relaxed);
    }

    fn set(&self, key: u64) -> &Set {
        &self.sets[keyed_hash(key) as usize & (self.sets.len() - 1)]
    }

    fn is_fresh(&self, word: u64, seen: u32, now: u32) -> bool {
        seen.saturating_add(self.ageing.load(Ordering::Relaxed)) > now || word & STATIC != 0
    }

    /// Notes that an entry is as it should be. False: it is too old, which counts as absent.
    fn confirm(&self, word: u64, seen: &AtomicU32, now: u32) -> bool {
        let last = seen.load(Ordering::Relaxed);
        if last == now {
            return true;
        }
        let fresh = self.is_fresh(word, last, now);
        if fresh {
            seen.store(now, Ordering::Relaxed);
        }
        fresh
    }

    /// The port that `address` is behind, unless it was seen too long ago. Of a bridge without
    /// VLANs and addresses of its own.
    #[inline]
    pub(crate) fn lookup(&self, address: EthernetAddress, now: Time) -> Option<u16> {
        let (key, now) = (address.to_u64(), seconds(now));
        let set = self.set(key);
        for (way, entry) in set.entries.iter().enumerate() {
            let word = entry.load(Ordering::Relaxed);
            if word >> 16 == key && word != 0 {
                if !self.is_fresh(word, set.seen[way].load(Ordering::Relaxed), now) {
                    return None;
                }
                note(&set.used[way], now);
                return Some(port_of(word) as u16 - 1);
            }
        }
        None
    }

    /// As [`lookup`](Fdb::lookup), for any bridge.
    pub(crate) fn find(&self, station: Station, now: Time) -> Option<Hit> {
        let (way, hit) = self.known(station, now)?;
        note(&self.set(station.key()).used[way], seconds(now));
        Some(hit)
    }

    /// True if a station is behind `port`. One that ends at the bridge is not.
    pub(crate) fn has(&self, station: Station, port: u16, now: Time) -> bool {
        let hit = self.known(station, now);
        hit.is_some_and(|(_, hit)| hit.port == port && !hit.local)
    }

    fn known(&self, station: Station, now: Time) -> Option<(usize, Hit)> {
        let (set, now) = (self.set(station.key()), seconds(now));
        let (way, word, tag) = set.find(station)?;
        let hit = Hit {
            port: port_of(word) as u16 - 1,
            local: is_tagged(word) && tag & LOCAL != 0,
        };
        let fresh = self.is_fresh(word, set.seen[way].load(Ordering::Relaxed), now);
        fresh.then_some((way, hit))
    }

    /// Notes that `address` is behind `port`. See the module for what a full set does. As
    /// [`lookup`](Fdb::lookup), of a bridge without VLANs.
    #[inline]
    pub(crate) fn learn(&self, address: EthernetAddress, port: u16, now: Time) {
        let (key, second) = (address.to_u64(), seconds(now));
        let word = key << 16 | (u64::from(port) + 1);
        let set = self.set(key);
        for (entry, seen) in set.entries.iter().zip(&set.seen) {
            if entry.load(Ordering::Relaxed) == word && self.confirm(word, seen, second) {
                return;
            }
        }
        self.learn_in(Station::new(address), port, now);
    }

    /// As [`learn`](Fdb::learn), for any bridge.
    #[inline(never)]
    pub(crate) fn learn_in(&self, station: Station, port: u16, now: Time) {
        let (set, now) = (self.set(station.key()), seconds(now));
        let new = Entry::new(station, port, 0);
        for way in 0..WAYS {
            if let Some((word, tag)) = set.entry(way)
                && word & !STATIC == new.word
                && (!is_tagged(word) || tag & (VLAN | LOCAL) == new.tag)
                && self.confirm(word, &set.seen[way], now)
            {
                return;
            }
        }
        if self.ageing.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(_changing) = set.try_change() else {
            return;
        };
        let seen = |way: usize| set.seen[way].load(Ordering::Relaxed);
        let way = match set.find(station) {
            Some((way, word, tag)) if self.is_fresh(word, seen(way), now) => {
                if tag & (LOCAL | STICKY) == 0 {
                    // A static entry moves as well, and stays static.
                    let word = new.word | word & STATIC;
                    set.write(way, Entry { word, tag }, now);
                }
                return;
            }
            Some((way, ..)) => Some(way),
            None => self.place(set, new.word, now),
        };
        if let Some(way) = way {
            set.used[way].store(now, Ordering::Relaxed);
            set.write(way, new, now);
        }
    }

    /// Where a new entry goes: into a place that is free or whose entry is too old, or in place of
    /// the oldest entry of the port that must give one up.
    fn place(&self, set: &Set, word: u64, now: u32) -> Option<usize> {
        let words = set.entries.each_ref().map(|e| e.load(Ordering::Relaxed));
        let seen = set.seen.each_ref().map(|s| s.load(Ordering::Relaxed));
        let learnt = |way: &usize| words[*way] & STATIC == 0;
        let free = (0..WAYS).find(|&w| words[w] == 0 || !self.is_fresh(words[w], seen[w], now));
        free.or_else(|| {
            let port = |way: usize| port_of(words[way]);
            let entries = |of: u64| (0..WAYS).filter(learnt).filter(|&w| port(w) == of).count();
            let own = port_of(word);
            let most = (0..WAYS)
                .filter(learnt)
                .map(port)
                .max_by_key(|&p| entries(p))?;
            let from = if entries(most) >= entries(own) + 2 {
                most
            } else {
                own
            };
            let of_port = (0..WAYS).filter(learnt).filter(|&way| port(way) == from);
            of_port.min_by_key(|&way| seen[way])
        })
    }

    /// Forgets what was learnt behind `port`.
    pub(crate) fn forget_learnt(&self, port: u16) {
        self.remove_words(|word| word & STATIC == 0 && port_of(word) == u64::from(port) + 1);
    }

    /// Forgets every address behind `port`.
    pub(crate) fn forget_port(&self, port: u16) {
        self.forget_ports(&[port]);
    }

    /// Forgets every address behind one of `ports`. Reads the table once.
    pub(crate) fn forget_ports(&self, ports: &[u16]) {
        let mut ports: Vec<u64> = ports.iter().map(|&port| u64::from(port) + 1).collect();
        ports.sort_unstable();
        self.remove_words(|word| ports.binary_search(&port_of(word)).is_ok());
    }

    fn remove_words(&self, select: impl Fn(u64) -> bool) {
        for entry in self.sets.iter().flat_map(|set| &set.entries) {
            let word = entry.load(Ordering::Relaxed);
            if word != 0 && select(word) {
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

fn is_tagged(word: u64) -> bool {
    word >> 16 & TAGGED != 0
}

/// The right to make and move a set's entries.
struct Changing<'a>(&'a Set);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing.store(false, Ordering::Release);
    }
}

impl Set {
    /// `None` if somebody else makes or moves an entry.
    fn try_change(&self) -> Option<Changing<'_>> {
        let taken = self.changing.swap(true, Ordering::Acquire);
        (!taken).then(|| Changing(self))
    }

    /// An entry's word and tag, as they belong together; the tag of one that has none may be any.
    fn entry(&self, way: usize) -> Option<(u64, u32)> {
        let word = self.entries[way].load(Ordering::Acquire);
        let tag = self.tags[way].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let same = self.entries[way].load(Ordering::Relaxed) == word;
        (word != 0 && same).then_some((word, tag))
    }

    /// True if this is a station's entry.
    fn holds(&self, word: u64, tag: u32, station: Station) -> bool {
        let address = word >> 16;
        let key = station.address.to_u64();
        if address & TAGGED == 0 {
            station.vlan == 0 && address == key
        } else {
            address == key | TAGGED && tag & VLAN == u32::from(station.vlan)
        }
    }

    /// A station's entry: its way, word and tag.
    fn find(&self, station: Station) -> Option<(usize, u64, u32)> {
        let entry = |way| {
            let (word, tag) = self.entry(way)?;
            self.holds(word, tag, station).then_some((way, word, tag))
        };
        (0..WAYS).find_map(entry)
    }

    /// Writes an entry. For the holder of the flag.
    fn write(&self, way: usize, entry: Entry, now: u32) {
        // An exchange, so that a removal's comes before it or finds another word.
        self.entries[way].swap(0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.tags[way].store(entry.tag, Ordering::Relaxed);
        self.seen[way].store(now, Ordering::Relaxed);
        self.entries[way].store(entry.word, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
