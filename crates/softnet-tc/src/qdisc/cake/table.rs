//! Flows and hosts of a tin: a hash table of 1024 places in sets of eight.
//!
//! A flow that finds its place taken gets a free one of the same set. It keeps the place while it
//! has packets or COBALT remembers it, and finds it again afterwards if nobody came. Only where a
//! set has eight other flows two share a queue.
//!
//! A table comes with the first packet of its tin (18 KB), so that an idle `cake` has none; its
//! flows are as many as were active at once (a list that doubles as it grows, eleven times at
//! most). Both happen a few times in the life of a tin, not for each packet.

use std::sync::Arc;

use softnet::mem::PacketList;
use softnet::time::Time;

use super::cobalt::Cobalt;
use super::list::{Linked, Links};
use super::loads::Loads;
use super::spec::Isolation;

/// Places for flows, and for hosts.
pub(super) const PLACES: usize = 1024;
/// Places that a hash may lead to.
const WAYS: usize = 8;
/// No flow at a place.
const FREE: u16 = u16::MAX;

/// Part that a flow plays in the round robin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// In no list.
    None,
    /// It has had few packets.
    Sparse,
    /// As `Sparse`, but empty, and in the list of the others until its turn comes.
    SparseWait,
    /// It has a backlog.
    Bulk,
    /// Empty; COBALT's state goes back to rest.
    Decaying,
}

/// A flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) packets: PacketList,
    pub(super) cobalt: Cobalt,
    /// Wire bytes queued.
    pub(super) backlog: u64,
    /// Bytes that it may still send in this round.
    pub(super) deficit: i32,
    /// Remainder of its quantum when that was divided.
    rest: u32,
    pub(super) set: Set,
    links: Links,
    place: u16,
    /// Places of its hosts, and their hashes.
    hosts: [u16; 2],
    tags: [u32; 2],
}

impl Flow {
    pub(super) fn unused() -> Flow {
        Flow {
            packets: PacketList::new(),
            cobalt: Cobalt::default(),
            backlog: 0,
            deficit: 0,
            rest: 0,
            set: Set::None,
            links: Links::default(),
            place: 0,
            hosts: [0; 2],
            tags: [0; 2],
        }
    }
}

impl Linked for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// A host as source and as destination: two hosts at one place.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    tags: [u32; 2],
    /// Flows with a backlog.
    bulk: [u16; 2],
}

/// Outcomes of looking for flows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ways {
    /// Found beside its first place.
    pub(super) hits: u64,
    /// A new flow.
    pub(super) misses: u64,
    /// It shares another's queue.
    pub(super) collisions: u64,
}

/// Flows and hosts of a tin.
#[derive(Debug)]
pub(super) struct Table {
    tags: [u32; PLACES],
    flow_at: [u16; PLACES],
    hosts: [Host; PLACES],
    pub(super) flows: Vec<Flow>,
    /// Flows that are not in use.
    free: Vec<u16>,
    /// Loads of hosts over all instances, if there are several.
    loads: Option<Arc<Loads>>,
}

/// The places that a hash may lead to, its own first.
fn ways(hash: u32) -> impl Iterator<Item = usize> + Clone {
    let first = hash as usize % PLACES;
    let (inner, outer) = (first % WAYS, first - first % WAYS);
    (0..WAYS).map(move |way| outer + (inner + way) % WAYS)
}

impl Table {
    pub(super) fn new(loads: Option<Arc<Loads>>) -> Box<Table> {
        Box::new(Table {
            tags: [0; PLACES],
            flow_at: [FREE; PLACES],
            hosts: [Host::default(); PLACES],
            flows: Vec::new(),
            free: Vec::new(),
            loads,
        })
    }

    /// The flow of a hash. `hosts` are the hashes of source and destination, which count where
    /// capacity is divided between those.
    #[inline]
    pub(super) fn find(
        &mut self,
        tag: u32,
        hosts: impl FnOnce() -> [u32; 2],
        isolation: Isolation,
        found: &mut Ways,
    ) -> u16 {
        let first = tag as usize % PLACES;
        if self.tags[first] == tag && self.flow_at[first] != FREE {
            return self.flow_at[first];
        }
        self.find_other(tag, hosts, isolation, found)
    }

    fn find_other(
        &mut self,
        tag: u32,
        hosts: impl FnOnce() -> [u32; 2],
        isolation: Isolation,
        found: &mut Ways,
    ) -> u16 {
        let own = ways(tag).position(|at| self.tags[at] == tag);
        let free = || ways(tag).position(|at| self.flow_at[at] == FREE);
        let at = |way: usize| ways(tag).nth(way).unwrap_or(tag as usize % PLACES);
        let place = if let Some(way) = own {
            found.hits += u64::from(way > 0);
            at(way)
        } else if let Some(way) = free() {
            found.misses += 1;
            at(way)
        } else {
            found.collisions += 1;
            at(0)
        };
        let shared = own.is_none();
        self.tags[place] = tag;
        let mut index = self.flow_at[place];
        if index != FREE && !shared {
            return index;
        }
        if index == FREE {
            index = self.add(place);
        }
        let is_bulk = self.flows[usize::from(index)].set == Set::Bulk;
        if is_bulk {
            self.count_bulk(index, isolation, false);
        }
        if isolation.divided().next().is_some() {
            let hashes = hosts();
            for end in isolation.divided() {
                let place = self.host(hashes[end], end);
                let flow = &mut self.flows[usize::from(index)];
                (flow.hosts[end], flow.tags[end]) = (place, hashes[end]);
            }
        }
        if is_bulk {
            self.count_bulk(index, isolation, true);
        }
        index
    }

    /// A flow at a free place.
    fn add(&mut self, place: usize) -> u16 {
        let flow = Flow {
            place: place as u16,
            ..Flow::unused()
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.flows[usize::from(index)] = flow;
                index
            }
            None => {
                self.flows.push(flow);
                // There are not more than places.
                (self.flows.len() - 1) as u16
            }
        };
        self.flow_at[place] = index;
        index
    }

    /// A flow that is in no list is no more.
    pub(super) fn release(&mut self, index: u16) {
        let place = usize::from(self.flows[usize::from(index)].place);
        self.flow_at[place] = FREE;
        self.free.push(index);
    }

    /// The place of a host.
    fn host(&mut self, hash: u32, end: usize) -> u16 {
        let mut all = ways(hash);
        let known = all.clone().find(|&at| self.hosts[at].tags[end] == hash);
        let place = known.or_else(|| all.clone().find(|&at| self.hosts[at].bulk[end] == 0));
        let place = place.or_else(|| all.next()).unwrap_or_default();
        self.hosts[place].tags[end] = hash;
        place as u16
    }

    /// Counts a flow with a backlog at its hosts, or takes it away there.
    pub(super) fn count_bulk(&mut self, index: u16, isolation: Isolation, comes: bool) {
        let Flow { hosts, tags, .. } = self.flows[usize::from(index)];
        for end in isolation.divided() {
            let bulk = &mut self.hosts[usize::from(hosts[end])].bulk[end];
            *bulk = if comes {
                *bulk + 1
            } else {
                bulk.saturating_sub(1)
            };
            if let Some(loads) = &self.loads {
                loads.count(end, tags[end], comes);
            }
        }
    }

    /// Flows with a backlog that the busier host of a flow has, at least 1.
    #[inline]
    pub(super) fn load(&self, index: u16, isolation: Isolation) -> u32 {
        let flow = &self.flows[usize::from(index)];
        let loads = isolation.divided().map(|end| match &self.loads {
            Some(loads) => loads.get(end, flow.tags[end]),
            None => self.hosts[usize::from(flow.hosts[end])].bulk[end].into(),
        });
        loads.max().unwrap_or(1).max(1)
    }

    /// Bytes that a flow gets for a round: its part of its host's quantum. What is left over when
    /// that is divided counts in the next round.
    #[inline]
    pub(super) fn quantum(&mut self, index: u16, quantum: u32, isolation: Isolation) -> i32 {
        let load = self.load(index, isolation);
        if load == 1 {
            return quantum as i32;
        }
        let flow = &mut self.flows[usize::from(index)];
        let whole = quantum + flow.rest.min(load);
        flow.rest = whole % load;
        (whole / load) as i32
    }

    /// COBALT's state of a flow is at rest.
    pub(super) fn is_at_rest(&self, index: u16, now: Time) -> bool {
        self.flows[usize::from(index)].cobalt.is_at_rest(now)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
impl Table {
    /// Flows with a backlog, as hosts count them.
    pub(super) fn bulk_of_hosts(&self, _: Isolation) -> [u32; 2] {
        [0, 1].map(|end| {
            self.hosts
                .iter()
                .map(|host| u32::from(host.bulk[end]))
                .sum()
        })
    }

    /// The same, counted.
    pub(super) fn bulk_of_flows(&self, isolation: Isolation) -> [u32; 2] {
        let bulk = self.flows.iter().filter(|flow| flow.set == Set::Bulk);
        let bulk = bulk.count() as u32;
        [0, 1].map(|end| bulk * u32::from(isolation.divided().any(|of| of == end)))
    }
}
