//! Flows of `fq_codel`, in pages of 16 that the qdiscs of a device borrow from a bounded store: of
//! ten thousand classes with 1,024 flows each, few are busy at a time.
//!
//! The control path fills the store as qdiscs are made: with a page for each 16 flows of them, and
//! [`PAGES`] at most. A page is borrowed with the first packet of one of its flows. While no more
//! than half of the store is borrowed, qdiscs keep what they have, and CoDel remembers what it
//! learned of a flow; then a page whose last flow leaves goes back, and with each such page another
//! one of the qdisc that is idle, if there is one.
//!
//! Packets that find no page go to one more flow that the qdisc has in itself, and are counted.
//! A flow of which packets may be there gets no page until those have left: packets of a flow stay
//! in order, and a flow that never empties the shared one keeps no other there.

use std::sync::Arc;

use softnet::mem::PacketList;

use super::page_store::{PageStore, Pages};
use crate::qdisc::aqm::Codel;
use crate::qdisc::drr::{Flows, Linked, UNLISTED};

/// Flows of a page.
const FLOWS: usize = 16;
/// Pages that a device has at most, of 1,280 bytes each: 16.4 MB, all flows of 200 qdiscs with
/// 1,024.
const PAGES: usize = 12_800;

/// The flow of packets that found no page. (The lists have two other numbers of no flow.)
pub(crate) const SHARED: u32 = UNLISTED - 2;

/// A flow, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Flow {
    pub(super) packets: PacketList,
    pub(super) codel: Codel,
    pub(super) credit: i32,
    pub(super) link: u32,
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Default for Flow {
    fn default() -> Flow {
        Flow {
            packets: PacketList::new(),
            codel: Codel::default(),
            credit: 0,
            link: UNLISTED,
        }
    }
}

impl Linked for Flow {
    #[inline(always)]
    fn link(&mut self) -> &mut u32 {
        &mut self.link
    }
    #[inline(always)]
    fn credit(&mut self) -> &mut i32 {
        &mut self.credit
    }
}

/// Flows, and the wire bytes in each, apart: the search for the largest reads all of those.
#[derive(Debug)]
pub(crate) struct Page {
    flows: [Flow; FLOWS],
    backlogs: [u64; FLOWS],
    /// Flows that had packets since the page was borrowed, by their bits.
    used: u16,
}

impl Default for Page {
    fn default() -> Page {
        Page {
            flows: std::array::from_fn(|_| Flow::default()),
            backlogs: [0; FLOWS],
            used: 0,
        }
    }
}

impl Page {
    fn used(&self) -> impl Iterator<Item = usize> + use<> {
        let used = self.used;
        (0..FLOWS).filter(move |&at| used >> at & 1 != 0)
    }

    /// Forgets what was learned of the flows, if none of them is in a list. Returns whether.
    fn forget(&mut self) -> bool {
        let idle = self.used().all(|at| self.flows[at].link == UNLISTED);
        if idle {
            self.used()
                .for_each(|at| self.flows[at].codel = Codel::default());
            self.used = 0;
        }
        idle
    }
}

/// Flows that the `fq_codel`s of a device borrow.
#[derive(Clone, Debug)]
pub struct FlowStore(Arc<PageStore<Page>>);

impl FlowStore {
    /// An empty store. It takes memory as qdiscs are made.
    pub(crate) fn new() -> FlowStore {
        FlowStore::of(PAGES)
    }

    pub(super) fn of(pages: usize) -> FlowStore {
        FlowStore(Arc::new(PageStore::new(pages)))
    }
}

/// The flows of a qdisc.
#[derive(Debug)]
pub(crate) struct FlowTable {
    pages: Pages<Page>,
    len: usize,
    /// The flow of packets that found no page, and the wire bytes in it.
    shared: Flow,
    shared_backlog: u64,
    /// Pages of which it may have packets, by the last six bits of their places: of the first
    /// `turn` ones that found no page, and of those after them.
    in_shared: [u64; 2],
    turn: u64,
    /// Packets that found no page so far.
    pub(super) shared_packets: u64,
    /// The place that was looked at last for a page to give back.
    hand: usize,
}

impl Flows for FlowTable {
    type Flow = Flow;
    #[inline(always)]
    fn at(&mut self, index: u32) -> &mut Flow {
        self.entry(index).0
    }
}

impl FlowTable {
    pub(super) fn new(store: &FlowStore, len: usize) -> FlowTable {
        FlowTable {
            pages: Pages::new(&store.0, len.div_ceil(FLOWS)),
            len,
            shared: Flow::default(),
            shared_backlog: 0,
            in_shared: [0; 2],
            turn: 0,
            shared_packets: 0,
            hand: 0,
        }
    }

    /// Number of flows, but for the shared one.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Index of a flow for a packet that comes: [`SHARED`] if it finds no page.
    #[inline(always)]
    pub(super) fn find(&mut self, flow: usize) -> u32 {
        let place = flow / FLOWS;
        if self.pages.get(place).is_some() || self.borrow(place) {
            flow as u32
        } else {
            SHARED
        }
    }

    #[cold]
    fn borrow(&mut self, place: usize) -> bool {
        let waiting = self.shared.packets.len() as u64;
        if waiting == 0 {
            self.in_shared = [0; 2];
        } else if self.shared_packets - waiting >= self.turn {
            // They leave in their order: the first `turn` have.
            self.in_shared = [self.in_shared[1], 0];
            self.turn = self.shared_packets;
        }
        let bit: u64 = 1 << (place % 64);
        let [before, since] = self.in_shared;
        let found = (before | since) & bit == 0 && self.pages.take(place);
        if !found {
            self.in_shared[1] |= bit;
            self.shared_packets += 1;
        }
        found
    }

    /// A flow, and the wire bytes in it; the shared one's where it has no page.
    #[inline(always)]
    pub(super) fn entry(&mut self, index: u32) -> (&mut Flow, &mut u64) {
        let at = index as usize % FLOWS;
        match self.pages.get_mut(index as usize / FLOWS) {
            Some(page) => (&mut page.flows[at], &mut page.backlogs[at]),
            None => (&mut self.shared, &mut self.shared_backlog),
        }
    }

    /// As [`entry`](FlowTable::entry), to read; none where a flow has no page.
    pub(super) fn get(&self, index: usize) -> Option<(&Flow, u64)> {
        let page = self.pages.get(index / FLOWS)?;
        Some((&page.flows[index % FLOWS], page.backlogs[index % FLOWS]))
    }

    /// The flow is going to be in a list.
    #[inline]
    pub(super) fn come(&mut self, index: u32) {
        if let Some(page) = self.pages.get_mut(index as usize / FLOWS) {
            page.used |= 1_u16 << (index as usize % FLOWS);
        }
    }

    /// The flow, which is empty, is in no list any more.
    #[inline]
    pub(super) fn leave(&mut self, index: u32) {
        if self.pages.is_scarce() {
            self.give_back(index as usize / FLOWS);
        }
    }

    #[cold]
    fn give_back(&mut self, place: usize) {
        self.hand = (self.hand + 1) % self.pages.places();
        for place in [place, self.hand] {
            if self.pages.get_mut(place).is_some_and(Page::forget) {
                self.pages.give_back(place);
            }
        }
    }

    /// The most wire bytes in a flow.
    pub(super) fn largest(&self) -> u64 {
        let places = (0..self.pages.places()).filter_map(|place| self.pages.get(place));
        let largest = places.map(|page| page.backlogs.iter().copied().max().unwrap_or(0));
        largest.max().unwrap_or(0).max(self.shared_backlog)
    }

    /// The first flow with packets of so many wire bytes; the shared one if there is no other.
    pub(super) fn with_bytes(&self, bytes: u64) -> u32 {
        for place in 0..self.pages.places() {
            let Some(page) = self.pages.get(place) else {
                continue;
            };
            let is_it =
                |&at: &usize| page.backlogs[at] == bytes && !page.flows[at].packets.is_empty();
            if let Some(at) = (0..FLOWS).find(is_it) {
                return (place * FLOWS + at) as u32;
            }
        }
        SHARED
    }
}
