//! The filters of one priority as the packet path runs them. What a queue has never changes: a
//! change makes a clone first, which shares with it what stays.

use std::sync::Arc;

use super::entry::Filter;
use super::frame::Frame;
use super::mask::Mask;
use super::table::Table;
use super::walk::{Bucket, HashTables, Walk};
use super::{ETH_P_ALL, FilterKind, FilterSpec, Flower};

/// The filters of one priority.
#[derive(Clone, Debug)]
pub(super) struct Priority {
    pub(super) protocol: u16,
    filters: Filters,
}

#[derive(Clone, Debug)]
enum Filters {
    /// One after the other.
    Listed(Vec<Arc<Filter>>),
    /// By hash tables that lead to each other.
    Walked {
        root: Bucket,
        tables: Arc<HashTables>,
    },
    /// One look-up for each mask, in the order of the masks' first filters.
    Hashed(Vec<(Mask, Table)>),
}

/// True if filters of a kind are looked up.
fn is_hashed(kind: &FilterKind) -> bool {
    matches!(kind, FilterKind::Flower(_) | FilterKind::Fw { .. })
}

impl Priority {
    /// Filters of one kind and protocol, of which there is one at least, in the order in which
    /// they are tried; those of one mask are side by side.
    pub(super) fn new(filters: &[Arc<Filter>]) -> Priority {
        let spec = &filters[0].spec;
        let hashed = |(mask, own): (Mask, &[Arc<Filter>])| {
            let own = own.iter().cloned();
            (mask, Table::new(own.map(|f| (Mask::hash_of(&f.spec), f))))
        };
        Priority {
            protocol: spec.protocol,
            filters: if is_hashed(&spec.kind) {
                let mask = |filter: &Filter| Mask::of(&filter.spec);
                let groups = filters.chunk_by(|a, b| mask(a) == mask(b));
                Filters::Hashed(groups.map(|own| hashed((mask(&own[0]), own))).collect())
            } else {
                Filters::Listed(filters.to_vec())
            },
        }
    }

    /// No filters, of `u32`.
    pub(super) fn walked(protocol: u16) -> Priority {
        Priority {
            protocol,
            filters: Filters::Walked {
                root: Bucket::default(),
                tables: Arc::default(),
            },
        }
    }

    /// Gives `u32` other filters to start with.
    pub(super) fn set_root(&mut self, filters: Vec<Arc<Filter>>) {
        if let Filters::Walked { root, .. } = &mut self.filters {
            *root = Arc::new(filters);
        }
    }

    /// Gives `u32` the hash tables that its filters lead to.
    pub(super) fn set_tables(&mut self, now: &Arc<HashTables>) {
        if let Filters::Walked { tables, .. } = &mut self.filters {
            *tables = now.clone();
        }
    }

    /// True if it is for frames of this protocol.
    #[inline]
    fn is_for(&self, frame: &Frame<'_>) -> bool {
        self.protocol == ETH_P_ALL || frame.ethertype() == Some(self.protocol)
    }

    /// Way of a frame through the filters of `u32`. `None`: they are of another kind.
    #[inline]
    pub(super) fn walk(&self, frame: &Frame<'_>) -> Option<Walk<'_>> {
        match &self.filters {
            Filters::Walked { root, tables } => Some(match self.is_for(frame) {
                true => Walk::new(root, tables),
                false => Walk::new(&[], tables),
            }),
            _ => None,
        }
    }

    /// True if its filters are gone through by a [`walk`](Priority::walk).
    #[inline]
    pub(super) fn is_walked(&self) -> bool {
        matches!(self.filters, Filters::Walked { .. })
    }

    /// The filters in the order in which they are tried.
    pub(super) fn filters(&self) -> Vec<&Arc<Filter>> {
        match &self.filters {
            Filters::Listed(filters) => filters.iter().collect(),
            Filters::Walked { root, .. } => root.iter().collect(),
            Filters::Hashed(masks) => {
                let mut all = Vec::new();
                for (_, table) in masks {
                    let first = all.len();
                    all.extend(table.filters());
                    all[first..].sort_by_key(|filter: &&Arc<Filter>| filter.order);
                }
                all
            }
        }
    }

    /// True if there is a `flower` that matches the same packets, and looks at the same bits, as
    /// the one of this filter.
    pub(super) fn has_same(&self, new: &Flower, filter: &FilterSpec) -> bool {
        let Filters::Hashed(masks) = &self.filters else {
            return false;
        };
        let mask = Mask::of(filter);
        let Some((_, own)) = masks.iter().find(|(own, _)| *own == mask) else {
            return false;
        };
        let same = own.find(Mask::hash_of(filter), |other| match &other.spec.kind {
            FilterKind::Flower(other) => new.is_same(other),
            _ => false,
        });
        same.is_some()
    }

    /// Adds a filter of the same kind.
    pub(super) fn add(&mut self, filter: Arc<Filter>) {
        match &mut self.filters {
            Filters::Listed(filters) => {
                // The newest first (`basic_change`).
                let at = filters.partition_point(|f| f.order > filter.order);
                filters.insert(at, filter);
            }
            Filters::Walked { .. } => {}
            Filters::Hashed(masks) => {
                let (mask, hash) = (Mask::of(&filter.spec), Mask::hash_of(&filter.spec));
                match masks.iter_mut().find(|(own, _)| *own == mask) {
                    Some((_, table)) => table.insert(hash, filter),
                    None => masks.push((mask, Table::new([(hash, filter)]))),
                }
            }
        }
    }

    /// Removes a filter, which it has. A mask goes with its last filter.
    pub(super) fn remove(&mut self, filter: &Arc<Filter>) {
        match &mut self.filters {
            Filters::Listed(filters) => filters.retain(|other| !Arc::ptr_eq(other, filter)),
            Filters::Walked { .. } => {}
            Filters::Hashed(masks) => {
                let (mask, hash) = (Mask::of(&filter.spec), Mask::hash_of(&filter.spec));
                if let Some(at) = masks.iter().position(|(own, _)| *own == mask) {
                    masks[at].1.remove(hash, filter);
                    if masks[at].1.is_empty() {
                        masks.remove(at);
                    }
                }
            }
        }
    }

    /// Puts a filter in the place of another, which it has. One of another mask goes behind those
    /// of that mask.
    pub(super) fn replace(&mut self, old: &Arc<Filter>, new: Arc<Filter>) {
        match &mut self.filters {
            Filters::Listed(filters) => {
                if let Some(own) = filters.iter_mut().find(|own| Arc::ptr_eq(own, old)) {
                    *own = new;
                }
            }
            Filters::Walked { .. } => {}
            Filters::Hashed(masks) => {
                let mask = Mask::of(&new.spec);
                let own = masks.iter_mut().find(|(own, _)| *own == mask);
                match own.filter(|_| Mask::of(&old.spec) == mask) {
                    Some((_, table)) => {
                        table.remove(Mask::hash_of(&old.spec), old);
                        table.insert(Mask::hash_of(&new.spec), new);
                    }
                    None => {
                        self.remove(old);
                        self.add(new);
                    }
                }
            }
        }
    }

    /// The next filter that matches, from a number on, which becomes the one behind it. Where the
    /// match is looked up there is only one, as in the kernel (`fl_classify`, `fw_classify`).
    #[inline]
    pub(super) fn find(&self, frame: &Frame<'_>, from: &mut usize) -> Option<&Filter> {
        if !self.is_for(frame) {
            return None;
        }
        match &self.filters {
            Filters::Walked { .. } => None,
            Filters::Listed(filters) => {
                for filter in filters.get(*from..)? {
                    *from += 1;
                    if filter.tries(frame)? {
                        return Some(filter);
                    }
                }
                None
            }
            Filters::Hashed(_) if *from > 0 => None,
            Filters::Hashed(masks) => {
                *from = 1;
                masks.iter().find_map(|(mask, table)| {
                    table.find(mask.hash(frame)?, |filter| {
                        filter.tries(frame) == Some(true)
                    })
                })
            }
        }
    }
}
