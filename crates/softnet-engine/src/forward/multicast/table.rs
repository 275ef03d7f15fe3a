//! Groups and their members as workers read them: published by the owner of the state, read
//! without a lock.
//!
//! **What a worker reads is one version.** The table is in parts, chosen by a keyed hash of the
//! group, and each part is a sorted list that is never changed: the owner makes a new one and
//! swaps it in whole ([`ArcSwap`]: a reader neither waits nor keeps the owner waiting). All that
//! is known of a group is in one part, so a worker decides about a frame by what was true at one
//! moment. Two groups, or a group and the [`Heed`], may be of different moments; nothing depends
//! on both at once but who gets one frame more or less.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::options::Family;
use softnet::time::Time;
use softnet::wire::{EthernetAddress, keyed_hash};

/// A group: an IP address, or an Ethernet address of frames that are not IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// An address of IP.
    Ip(IpAddr),
    /// An address of Ethernet.
    Mac(EthernetAddress),
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Group::Ip(group) => group.fmt(f),
            Group::Mac(group) => group.fmt(f),
        }
    }
}

/// A group in a VLAN, 0 of a bridge that does not filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) vlan: u16,
    pub(crate) group: Group,
}

impl Key {
    pub(super) fn ip(vlan: u16, group: IpAddr) -> Key {
        let group = Group::Ip(group);
        Key { vlan, group }
    }

    /// IGMP or MLD; `None` of an Ethernet address.
    pub(super) fn family(self) -> Option<Family> {
        self.ip_group().map(|group| Family::of(group.is_ipv4()))
    }

    pub(super) fn ip_group(self) -> Option<IpAddr> {
        match self.group {
            Group::Ip(group) => Some(group),
            Group::Mac(_) => None,
        }
    }

    fn hash(self) -> u32 {
        let group = match self.group {
            Group::Mac(mac) => mac.to_u64(),
            Group::Ip(IpAddr::V4(ip)) => u64::from(ip.to_bits()) | 1 << 62,
            Group::Ip(IpAddr::V6(ip)) => {
                let [high, low] = [ip.to_bits() >> 64, ip.to_bits()].map(|part| part as u64);
                u64::from(keyed_hash(high)) << 32 ^ low
            }
        };
        keyed_hash(group ^ u64::from(self.vlan).rotate_right(16))
    }
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(super) port: u16,
    /// It is a member; else only of these sources, where sources count.
    pub(super) any: bool,
    /// Sources that are not among `sources` pass.
    pub(super) exclude: bool,
    /// Sources that pass or not, in order.
    pub(super) sources: Box<[(IpAddr, bool)]>,
}

/// The members of a group, in the order of their ports.
pub(super) type Ways = Arc<[Way]>;

impl Way {
    /// Frames from a source pass; `None`: sources do not count.
    pub(super) fn takes(&self, source: Option<IpAddr>) -> bool {
        let known = source.map(|source| self.sources.binary_search_by_key(&source, |s| s.0));
        match known {
            None => self.any,
            Some(Ok(at)) => self.sources[at].1,
            Some(Err(_)) => self.exclude,
        }
    }
}

/// A querier of one family, as far as forwarding heeds it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// The bridge queries.
    pub(super) own: bool,
    /// Another querier counts until then.
    pub(super) other: Time,
    /// Hosts have not had the time to answer until then.
    pub(super) delay: Time,
}

/// All that forwarding heeds beside the groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Heed {
    /// Membership is looked at.
    pub(super) snoops: bool,
    pub(super) asked: [Asked; 2],
    /// Ports that get all frames to groups, by family, in order: multicast routers, and those
    /// whose hosts' groups are not all known.
    pub(super) routers: [Box<[u16]>; 2],
    /// Sources count, by family.
    pub(super) sources: [bool; 2],
}

impl Heed {
    /// Members are known: somebody queries (`__br_multicast_querier_exists`).
    pub(super) fn is_asked(&self, family: Family, now: Time) -> bool {
        let asked = self.asked[family as usize];
        now >= asked.delay && (asked.own || now < asked.other)
    }
}

/// Parts of the table: of some 16 groups each when it is full by default.
const PARTS: usize = 256;

type Part = Vec<(Key, Ways)>;

/// See the module.
pub(super) struct Table {
    parts: Box<[ArcSwap<Part>]>,
    heed: ArcSwap<Heed>,
}

impl Table {
    pub(super) fn new() -> Table {
        let part = |_| ArcSwap::default();
        Table {
            parts: (0..PARTS).map(part).collect(),
            heed: ArcSwap::default(),
        }
    }

    fn part(&self, key: Key) -> &ArcSwap<Part> {
        &self.parts[key.hash() as usize % PARTS]
    }

    pub(super) fn heed(&self) -> Guard<Arc<Heed>> {
        self.heed.load()
    }

    /// The members of a group, if it is known.
    pub(super) fn find(&self, key: Key) -> Option<Ways> {
        let part = self.part(key).load();
        let at = part.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(part[at].1.clone())
    }

    /// For the owner.
    pub(super) fn set_heed(&self, heed: Heed) {
        self.heed.store(Arc::new(heed));
    }

    /// For the owner. None: there is no such group any more.
    pub(super) fn set(&self, key: Key, ways: Option<Ways>) {
        let place = self.part(key);
        let mut part = Part::clone(&place.load());
        match (part.binary_search_by_key(&key, |(key, _)| *key), ways) {
            (Ok(at), Some(ways)) => part[at].1 = ways,
            (Ok(at), None) => drop(part.remove(at)),
            (Err(at), Some(ways)) => part.insert(at, (key, ways)),
            (Err(_), None) => return,
        }
        place.store(Arc::new(part));
    }
}

/// The ports of a group's members that take frames of a source, and of routers, each once.
#[derive(Clone, Debug)]
pub(crate) struct Takers<'a> {
    pub(super) ways: &'a [Way],
    pub(super) routers: &'a [u16],
    pub(super) source: Option<IpAddr>,
}

impl Iterator for Takers<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        while let Some((way, rest)) = self.ways.split_first() {
            if self.routers.first().is_some_and(|&port| port <= way.port) {
                break;
            }
            self.ways = rest;
            if way.takes(self.source) {
                return Some(way.port);
            }
        }
        let (&port, rest) = self.routers.split_first()?;
        self.routers = rest;
        if self.ways.first().is_some_and(|way| way.port == port) {
            self.ways = &self.ways[1..];
        }
        Some(port)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    fn way(port: u16, exclude: bool, sources: &[(u8, bool)]) -> Way {
        let sources = sources
            .iter()
            .map(|&(n, passes)| ([10, 0, 0, n].into(), passes));
        Way {
            port,
            any: true,
            exclude,
            sources: sources.collect(),
        }
    }

    #[test]
    fn who_takes_a_frame() {
        let ways = [
            way(1, true, &[]),
            way(2, true, &[(1, false)]),
            way(3, false, &[(1, true)]),
            way(5, false, &[]),
        ];
        let takers = |routers: &[u16], source: Option<u8>| {
            let source = source.map(|n| [10, 0, 0, n].into());
            let takers = Takers {
                ways: &ways,
                routers,
                source,
            };
            takers.collect::<Vec<_>>()
        };
        assert_eq!(takers(&[], None), [1, 2, 3, 5]);
        assert_eq!(takers(&[], Some(1)), [1, 3]);
        assert_eq!(takers(&[], Some(2)), [1, 2]);
        assert_eq!(takers(&[0, 2, 4, 5, 9], Some(1)), [0, 1, 2, 3, 4, 5, 9]);
    }

    #[test]
    fn groups_come_and_go() {
        let table = Table::new();
        let key = |n: u16| Key::ip(n % 3, IpAddr::from([239, 0, (n >> 8) as u8, n as u8]));
        for n in 0..1000 {
            table.set(key(n), Some([way(n, true, &[])].into()));
        }
        for n in (0..1000).step_by(2) {
            table.set(key(n), None);
        }
        for n in 0..1000 {
            let port = table.find(key(n)).map(|ways| ways[0].port);
            assert_eq!(port, (n % 2 == 1).then_some(n));
        }
    }
}
