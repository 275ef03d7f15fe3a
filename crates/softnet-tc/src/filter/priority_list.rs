//! The filters of one priority as configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::Filter;
use super::priority::Priority;
use super::{FilterError, FilterKind, FilterSpec};

#[derive(Clone, Debug)]
pub(super) struct PriorityList {
    pub(super) by_handle: BTreeMap<u32, Arc<Filter>>,
    /// All handles from 1 to this one are in use, this one not included. Not kept for `u32`.
    pub(super) free_from: u32,
    /// The table that packets start in, of `u32`; else 0.
    pub(super) root: u32,
    pub(super) run: Arc<Priority>,
}

impl PriorityList {
    /// See [`FilterList::iter`](super::FilterList::iter).
    pub(super) fn filters(&self) -> Vec<&Arc<Filter>> {
        match self.root {
            0 => self.run.filters(),
            root => {
                let all = self.by_handle.values();
                all.filter(|filter| filter.spec.handle != root << 20)
                    .collect()
            }
        }
    }

    /// Puts another in the place of each filter, with its handle, order and mask. The tables of
    /// `u32` are to be made anew then.
    pub(super) fn map(&mut self, mut f: impl FnMut(&Arc<Filter>) -> Arc<Filter>) {
        if self.root != 0 {
            for filter in self.by_handle.values_mut() {
                *filter = f(filter);
            }
            return;
        }
        let filters = self.run.filters().into_iter();
        let filters: Vec<_> = filters.map(f).collect();
        self.run = Arc::new(Priority::new(&filters));
        self.by_handle = filters.into_iter().map(|f| (f.spec.handle, f)).collect();
    }

    /// All filters of a priority are of one protocol and kind.
    pub(super) fn check(
        &self,
        prio: u16,
        protocol: u16,
        kind: Option<&str>,
    ) -> Result<(), FilterError> {
        if protocol != 0 && protocol != self.run.protocol {
            return Err(FilterError::Protocol(prio));
        }
        let own = self.kind().map_or("", FilterKind::name);
        match kind {
            Some(kind) if kind != own => Err(FilterError::Kind { prio, kind: own }),
            _ => Ok(()),
        }
    }

    /// That of all.
    pub(super) fn kind(&self) -> Option<&FilterKind> {
        self.by_handle
            .values()
            .next()
            .map(|filter| &filter.spec.kind)
    }

    /// Checks a filter against the others; `may_be_same`: it may match what one of them does. As in
    /// the kernel, one that takes another's place may match what a third does (`fl_change`); the
    /// older then decides.
    pub(super) fn check_beside(
        &self,
        filter: &FilterSpec,
        may_be_same: bool,
    ) -> Result<(), FilterError> {
        let prio = filter.prio;
        match (&filter.kind, self.kind()) {
            // There is one, which cannot be changed (`mall_change`).
            (FilterKind::Matchall, _) => Err(FilterError::Exists(prio)),
            (FilterKind::Flower(new), _) if !may_be_same && self.run.has_same(new, filter) => {
                Err(FilterError::Exists(prio))
            }
            (FilterKind::Fw { mask: new, .. }, Some(&FilterKind::Fw { mask, .. }))
                if *new != mask =>
            {
                Err(FilterError::Mask { prio, mask })
            }
            _ => Ok(()),
        }
    }
}
