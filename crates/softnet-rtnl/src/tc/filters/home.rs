//! Places that filters are at: a qdisc, class or hook of a link, or a block that hooks share.

use softnet_engine::{Devices, Engine};
use softnet_tc::{
    Block, DeviceTree, FilterKey, FilterList, FilterOp, FilterSelector, FilterSpec, FilterStats,
    Handle,
};

use crate::nl::Error;
use crate::tc::place::Place;
use crate::tc::refusal;

/// The number of a link in messages about a block (`TCM_IFINDEX_MAGIC_BLOCK`).
pub(in crate::tc) const OF_BLOCK: i32 = -1;

/// Place of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tc) enum Home {
    /// That of a link, and the parent as the request names it.
    Link(u32, Handle),
    /// A block, by its number.
    Block(u32),
}

/// Filters as they are.
pub(super) struct View<'a> {
    pub(super) list: &'a FilterList,
    copies: Copies<'a>,
}

/// Copies of the filters, which count apart.
enum Copies<'a> {
    Tree(&'a DeviceTree),
    Block(&'a Block),
}

impl View<'_> {
    /// A filter with what all copies have counted.
    pub(super) fn sum<'s>(
        &self,
        filter: (&'s FilterSpec, FilterStats),
    ) -> (&'s FilterSpec, FilterStats) {
        match self.copies {
            Copies::Tree(tree) => tree.filter_sum(filter),
            Copies::Block(block) => block.filter_sum(filter),
        }
    }
}

impl Home {
    /// Link and parent, as messages name them.
    pub(super) fn names(self) -> (i32, u32) {
        match self {
            Home::Link(link, parent) => (i32::try_from(link).unwrap_or(i32::MAX), parent.raw()),
            Home::Block(number) => (OF_BLOCK, number),
        }
    }

    /// Parent of its filters.
    pub(super) fn parent(self) -> Handle {
        match self {
            Home::Link(_, parent) => parent,
            Home::Block(_) => Handle::NONE,
        }
    }

    /// Reads the filters. `check` says why a link has none there.
    pub(super) fn read<D: Devices, T>(
        self,
        engine: &Engine<D>,
        f: impl FnOnce(&View<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self {
            Home::Link(link, parent) => Place::read(engine, link, |place| {
                f(&View {
                    list: super::list(&place, parent)?,
                    copies: Copies::Tree(place.tree),
                })
            })?,
            Home::Block(number) => {
                let read = engine.read_block(number, |block| {
                    f(&View {
                        list: block.list(),
                        copies: Copies::Block(block),
                    })
                });
                read.map_err(refusal::control)?
            }
        }
    }

    /// Adds or changes a filter.
    pub(super) fn put<D: Devices>(
        self,
        engine: &Engine<D>,
        op: FilterOp,
        spec: FilterSpec,
    ) -> Result<FilterKey, Error> {
        let edited = match self {
            Home::Link(link, _) => engine.edit_tree(link, |tree| tree.put_filter(op, spec)),
            Home::Block(number) => engine.put_in_block(number, op, spec),
        };
        edited.map_err(refusal::control)
    }

    /// Removes filters.
    pub(super) fn delete<D: Devices>(
        self,
        engine: &Engine<D>,
        which: FilterSelector<'_>,
    ) -> Result<(), Error> {
        let edited = match self {
            Home::Link(link, parent) => {
                engine.edit_tree(link, |tree| tree.delete_filters(parent, which))
            }
            Home::Block(number) => engine.delete_in_block(number, which),
        };
        edited.map_err(refusal::control)
    }
}
