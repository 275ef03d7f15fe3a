//! Filters: which class of a qdisc a packet belongs to (tc-filters(8)).
//!
//! A filter has a chain, a priority, a protocol and a handle, as in the kernel. Chain 0 is tried
//! first, its lowest priority first; the first filter that matches decides, or sends the packet to
//! another chain. All filters of a priority are of one kind and protocol.
//!
//! The kinds: [`Flower`] (tc-flower(8)), [`U32`] (tc-u32(8)), `basic` with [`Ematch`]es
//! (tc-ematch(8)), `matchall` (tc-matchall(8)) and `fw` (tc-fw(8)).
//!
//! The control path keeps a [`FilterList`] at each qdisc, and at the classes of `htb` that have
//! filters of their own. For the packet path it makes [`Chains`] of it, which never change: the
//! queue's owner swaps them for others as a whole. Those share all that a change leaves as it was:
//! the filters with their counts, and the hash table of each mask but for one bucket.
//!
//! Differences from the kernel: a hash table of `u32` goes with the priority that it came with, and
//! filters are in no other priority's first table; `replace` of a `u32` filter takes the new keys,
//! which the kernel ignores; a match of `flower` on addresses or ports needs no `protocol`, and
//! `mark` is its own; a sender is told of what a filter drops; a copy that an action makes was
//! received where the packet was, and what no port received counts as port 0's (`indev`). Headers
//! are looked at as far as [`dissect`](softnet::wire::dissect) reads them, in the first segment or
//! the first 512 bytes: behind more than 8 IPv6 extension headers, or an IP header with a wrong
//! length or version, there are no ports, and behind more than 4 VLAN tags there is no IP.
//!
//! `u32` and `basic` count bytes as if the first VLAN tag were not there, because the kernel keeps
//! it beside the packet.

#[cfg(all(test, not(any(loom, miri))))]
mod chain_tests;
mod chains;
mod ematch;
mod entry;
mod error;
mod field;
#[cfg(all(test, not(any(loom, miri))))]
mod field_tests;
mod flower;
mod frame;
mod handles;
mod indev;
mod list;
#[cfg(all(test, not(any(loom, miri))))]
mod list_tests;
mod mask;
#[cfg(all(test, not(any(loom, miri))))]
mod match_tests;
mod prefix;
mod priority;
mod priority_list;
#[cfg(all(test, not(any(loom, miri))))]
mod property_tests;
mod selector;
mod table;
mod template;
#[cfg(all(test, not(any(loom, miri))))]
mod testing;
mod u32;
mod u32_list;
#[cfg(all(test, not(any(loom, miri))))]
mod u32_tests;
mod walk;

pub(crate) use chains::Lost;
pub use chains::{Classified, Filters};
pub use ematch::{Compare, Ematch, Layer, MetaId, Test, Width};
pub use entry::FilterStats;
pub use error::FilterError;
pub use field::{FieldMatch, FlowerField};
pub use flower::Flower;
pub use indev::{Indev, IndevTable};
pub use list::FilterList;
pub use prefix::Prefix;
pub use selector::{FilterKey, FilterOp, FilterSelector};
pub use template::ChainTemplate;
pub use u32::{BucketKey, Key, Offset, U32};

use crate::action::ActionList;
#[cfg(doc)]
use crate::action::Control;
use crate::handle::Handle;

/// EtherType of IPv4, as the `protocol` of a filter.
pub const ETH_P_IP: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETH_P_IPV6: u16 = 0x86dd;
/// The `protocol` of a filter for all frames.
pub const ETH_P_ALL: u16 = 3;

/// A filter of a qdisc or class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterSpec {
    /// The qdisc it belongs to, or the class of `htb`, which asks it for packets that get there
    /// and is no leaf.
    pub parent: Handle,
    /// Packets start at chain 0; the others they get to by [`Control::Goto`].
    pub chain: u32,
    /// Lower ones are tried first. 0: one is chosen as in the kernel, 49152 for the first and one
    /// less for each one after it, so that the newest is tried first.
    pub prio: u16,
    /// The frame's EtherType, which is that of the first tag where there is one; or
    /// [`ETH_P_ALL`].
    pub protocol: u16,
    /// Number within the priority, which depends on the kind. 0: one is chosen as in the
    /// kernel. That of `fw` is the mark.
    pub handle: u32,
    /// Kind, and the packets that it is for.
    pub kind: FilterKind,
    /// The class of the qdisc that they go to (tc's `flowid` or `classid`). As long as there is
    /// no such class, or if it names none, they go where packets of priority 0 go.
    pub class: Option<Handle>,
    /// Actions on them.
    pub actions: ActionList,
    /// True if no hardware is to have it, which none has.
    pub skip_hw: bool,
}

impl FilterSpec {
    /// A filter for frames of all protocols in chain 0, of a priority that is chosen.
    pub fn new(kind: impl Into<FilterKind>, class: Handle) -> FilterSpec {
        FilterSpec {
            parent: class.qdisc(),
            chain: 0,
            prio: 0,
            protocol: ETH_P_ALL,
            handle: 0,
            kind: kind.into(),
            class: Some(class),
            actions: ActionList::default(),
            skip_hw: false,
        }
    }

    /// Name that it is called by.
    pub fn key(&self) -> FilterKey {
        FilterKey {
            chain: self.chain,
            prio: self.prio,
            handle: self.handle,
        }
    }
}

/// Kind of filter, and the packets that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// Packets whose headers are like this. Those of one priority are tried in groups that look at
    /// the same fields, in the order of the groups' first filters. None is added that is equal to
    /// another; of those that became equal, the first one in the list decides.
    Flower(Flower),
    /// Packets whose bytes are like this. Those of one priority are tried in the order of their
    /// handles, which are `800::800`, `800::801` and so on; another priority's start with `801:`.
    U32(U32),
    /// A hash table of `u32` filters, which filters of the same qdisc or hook lead to. It matches
    /// nothing itself. Its handle is `42:`, and those of its filters are `42:BUCKET:801` and so on.
    U32Table {
        /// Buckets: 1, 2, 4 and so on up to 256.
        buckets: u16,
    },
    /// A priority of `u32` without filters (`u32` without options): the table that packets start in
    /// comes with it. A priority that is there stays as it is.
    U32Root,
    /// Packets for which the expressions hold. The newest of one priority is tried first.
    Basic(Vec<Ematch>),
    /// All. There is one to a priority, and its handle is 1.
    Matchall,
    /// Packets whose mark, under the mask, is the handle. All of one priority have the same mask.
    Fw {
        /// Which bits of the mark count.
        mask: u32,
        /// The link that they were received on, as of [`Flower`].
        indev: Option<Indev>,
    },
    /// Packets whose mark is the name of a class: they go there (`fw` without options). It is alone
    /// in its priority, and gives way to filters of `fw` with a handle. Its own is 0.
    FwClass,
}

impl FilterKind {
    /// The names of all kinds, as in tc.
    pub const NAMES: [&'static str; 5] = ["flower", "u32", "basic", "matchall", "fw"];

    /// tc's word for it.
    pub fn name(&self) -> &'static str {
        match self {
            FilterKind::Flower(_) => "flower",
            FilterKind::U32(_) | FilterKind::U32Table { .. } | FilterKind::U32Root => "u32",
            FilterKind::Basic(_) => "basic",
            FilterKind::Matchall => "matchall",
            FilterKind::Fw { .. } | FilterKind::FwClass => "fw",
        }
    }

    /// `fw` for marks under this mask, of packets that any link received.
    pub fn fw(mask: u32) -> FilterKind {
        FilterKind::Fw { mask, indev: None }
    }

    /// The link that packets must have been received on.
    pub fn indev(&self) -> Option<&Indev> {
        match self {
            FilterKind::Flower(flower) => flower.indev.as_ref(),
            FilterKind::U32(of) => of.indev.as_ref(),
            FilterKind::Fw { indev, .. } => indev.as_ref(),
            _ => None,
        }
    }

    /// As [`indev`](FilterKind::indev), to be another.
    pub fn indev_mut(&mut self) -> Option<&mut Indev> {
        match self {
            FilterKind::Flower(flower) => flower.indev.as_mut(),
            FilterKind::U32(of) => of.indev.as_mut(),
            FilterKind::Fw { indev, .. } => indev.as_mut(),
            _ => None,
        }
    }
}

impl From<Flower> for FilterKind {
    fn from(flower: Flower) -> FilterKind {
        FilterKind::Flower(flower)
    }
}
