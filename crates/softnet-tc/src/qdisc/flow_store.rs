//! Flows of the fair qdiscs, in pages of 32 that a device's qdiscs borrow from a bounded store: of
//! ten thousand classes with a thousand flows each few are busy at a time.
//!
//! The store has a page for each 32 flows of all qdiscs, as long as that is not more than an eighth
//! of the pool's memory, or 16 MiB where that is more (7,000 pages: 220 qdiscs of 1,024 flows).
//! No more flows can be busy than the pool has buffers. The control path makes the pages, with the
//! qdiscs; they stay until the device's tree goes.
//!
//! A page is borrowed with the first packet of one of its flows. While there are pages for all,
//! qdiscs keep what they have borrowed. Else they give pages back as they become idle; one with a
//! flow whose past matters to its next packet is kept as long as at least half of the store is
//! free. A packet that finds no page goes to one more flow that the qdisc has in itself, which all
//! such flows share, and is counted. So do those behind it until that flow is empty: packets of a
//! flow stay in order.

use std::fmt;
use std::sync::Arc;

use softnet::mem::Pool;
use softnet::sync::{PageStore, Pages};

use super::drr::{Flows, Linked};

/// Flows of a page.
const FLOWS: usize = 32;
/// Bytes of a store that every device may have.
const LEAST: u64 = 16 << 20;

/// The flow that those without a page share.
pub(crate) const SHARED: u32 = u32::MAX - 2;

/// A flow that lies in a page.
pub(crate) trait Paged: Linked + Default {
    /// True if no packet is in it.
    fn is_empty(&self) -> bool;

    /// Forgets the past of a flow without packets.
    fn forget(&mut self);
}

/// Flows, and the wire bytes in each, apart: the search for the largest reads all of those.
#[derive(Debug)]
pub(crate) struct Page<F> {
    flows: [F; FLOWS],
    backlogs: [u64; FLOWS],
    /// Flows that have something to forget, by their bits.
    used: u32,
}

impl<F: Default> Default for Page<F> {
    fn default() -> Page<F> {
        Page {
            flows: std::array::from_fn(|_| F::default()),
            backlogs: [0; FLOWS],
            used: 0,
        }
    }
}

/// The pages of a device's qdiscs of one kind.
pub(crate) type FlowStore<F> = Arc<PageStore<Page<F>>>;

/// A store for the qdiscs of a device, of pages of so many bytes.
fn store<T: Default>(pool: &Pool, page: usize) -> Arc<PageStore<T>> {
    let bytes = LEAST.max(pool.memory() / 8);
    let pages = usize::try_from(bytes / page as u64);
    Arc::new(PageStore::new(pages.unwrap_or(usize::MAX)))
}

/// Flows of the fair qdiscs of one device, by their kinds.
#[derive(Clone)]
pub struct FlowStores {
    pub(crate) fq_codel: FlowStore<super::fq_codel::Flow>,
    pub(crate) fq_pie: FlowStore<super::fq_pie::Flow>,
    pub(crate) sfq: Arc<PageStore<super::sfq::Slots>>,
}

impl FlowStores {
    /// Empty stores.
    pub(crate) fn new(pool: &Pool) -> FlowStores {
        FlowStores {
            fq_codel: store(pool, size_of::<Page<super::fq_codel::Flow>>()),
            fq_pie: store(pool, size_of::<Page<super::fq_pie::Flow>>()),
            sfq: store(pool, super::sfq::default_bytes()),
        }
    }
}

impl fmt::Debug for FlowStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowStores").finish_non_exhaustive()
    }
}

/// The flows of a qdisc.
#[derive(Debug)]
pub(crate) struct FlowTable<F: Default> {
    pages: Pages<Page<F>>,
    len: usize,
    shared: F,
    shared_backlog: u64,
}

impl<F: Paged> Flows for FlowTable<F> {
    type Flow = F;
    #[inline(always)]
    fn at(&mut self, index: u32) -> &mut F {
        self.entry(index).0
    }
}

impl<F: Paged> FlowTable<F> {
    pub(crate) fn new(store: &FlowStore<F>, len: usize) -> FlowTable<F> {
        FlowTable {
            pages: Pages::new(store, len.div_ceil(FLOWS)),
            len,
            shared: F::default(),
            shared_backlog: 0,
        }
    }

    /// Number of flows, but for the shared one.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Position of a flow, with a page for it; [`SHARED`] where there is none, and as long as
    /// packets are there, which may be of this flow.
    #[inline]
    pub(crate) fn find(&mut self, flow: usize) -> u32 {
        let place = flow / FLOWS;
        if self.pages.get(place).is_some() || self.shared.is_empty() && self.pages.take(place) {
            flow as u32
        } else {
            SHARED
        }
    }

    /// A flow that was found, and the wire bytes in it.
    #[inline(always)]
    pub(crate) fn entry(&mut self, index: u32) -> (&mut F, &mut u64) {
        let (place, at) = (index as usize / FLOWS, index as usize % FLOWS);
        match self.pages.get_mut(place) {
            Some(page) => (&mut page.flows[at], &mut page.backlogs[at]),
            None => (&mut self.shared, &mut self.shared_backlog),
        }
    }

    /// The flow has got packets, and so a past.
    #[inline]
    pub(crate) fn note_used(&mut self, index: u32) {
        let (place, at) = (index as usize / FLOWS, index as usize % FLOWS);
        if let Some(page) = self.pages.get_mut(place) {
            page.used |= 1 << at;
        }
    }

    /// All flows that have a page, and the shared one, with the wire bytes in each.
    pub(crate) fn backlogs(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let pages = (0..self.pages.places()).filter_map(|place| {
            let page = self.pages.get(place)?;
            Some((place as u32 * FLOWS as u32..).zip(page.backlogs))
        });
        pages
            .flatten()
            .chain(std::iter::once((SHARED, self.shared_backlog)))
    }

    /// The first flow of so many bytes that is `among` those that count; the first if there is none.
    pub(crate) fn largest(&self, bytes: u64, among: impl Fn(&F) -> bool) -> u32 {
        let is_it = |&(index, backlog): &(u32, u64)| {
            let (place, at) = (index as usize / FLOWS, index as usize % FLOWS);
            let page = self.pages.get(place);
            backlog == bytes && among(page.map_or(&self.shared, |page| &page.flows[at]))
        };
        let found = self.backlogs().find(is_it);
        found.map_or(0, |(index, _)| index)
    }

    /// Changes all flows that have a page, and the shared one, given the wire bytes in each.
    pub(crate) fn for_each(&mut self, mut change: impl FnMut(&mut F, u64)) {
        for place in 0..self.pages.places() {
            if let Some(page) = self.pages.get_mut(place) {
                let all = page.flows.iter_mut().zip(page.backlogs);
                all.for_each(|(flow, backlog)| change(flow, backlog));
            }
        }
        change(&mut self.shared, self.shared_backlog);
    }

    /// No flow has packets: gives pages back where there are not enough for all. `matters` says
    /// whether a flow's past matters to its next packet.
    #[inline]
    pub(crate) fn settle(&mut self, matters: impl Fn(&F) -> bool) {
        if self.pages.is_short() {
            self.give_back(matters);
        }
    }

    #[cold]
    fn give_back(&mut self, matters: impl Fn(&F) -> bool) {
        let keeps = self.pages.is_plentiful();
        self.shared.forget();
        for place in 0..self.pages.places() {
            let Some(page) = self.pages.get_mut(place) else {
                continue;
            };
            let mut used = std::mem::take(&mut page.used);
            while used != 0 {
                let at = used.trailing_zeros();
                used &= used - 1;
                let flow = &mut page.flows[at as usize];
                if keeps && matters(flow) {
                    page.used |= 1 << at;
                } else {
                    flow.forget();
                }
            }
            if page.used == 0 {
                self.pages.give_back(place);
            }
        }
    }
}
