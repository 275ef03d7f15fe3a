//! Priorities and handles as the kernel chooses, checks and shows them.

use std::cmp::Reverse;
use std::sync::Arc;

use super::ematch;
use super::entry::Filter;
use super::list::{FilterList, PriorityList};
use super::{FilterError, FilterKind, FilterSpec, Key};

/// The lowest priority that is chosen.
const FIRST_CHOSEN: u16 = 0x8000;
/// The priority that is chosen first.
const LAST_CHOSEN: u16 = 0xC000;
/// The highest chain (`TC_ACT_EXT_VAL_MASK`).
pub(super) const MAX_CHAIN: u32 = (1 << 28) - 1;
/// A `u32` handle is a table (12 bits), a bucket (8) and a node (12).
pub(super) const NODE: u32 = 0xFFF;
pub(super) const FIRST_NODE: u32 = 0x800;
/// The table of the first priority with `u32` filters; those of others come after it.
const FIRST_TABLE: u32 = 0x800;
const LAST_TABLE: u32 = 0xFFE;

impl FilterList {
    /// As the kernel (`tcf_auto_prio`): below all that were chosen before.
    pub(super) fn choose_prio(&self, chain: u32) -> Result<u16, FilterError> {
        let of_chain = self.chains.get(&chain);
        let chosen = of_chain.and_then(|c| c.priorities.range(FIRST_CHOSEN..).next());
        match chosen {
            None => Ok(LAST_CHOSEN),
            Some((&FIRST_CHOSEN, _)) => Err(FilterError::NoPriority),
            Some((last, _)) => Ok(last - 1),
        }
    }

    /// The table of a priority with `u32` filters, if there is one left for it.
    pub(super) fn table(&self, own: Option<&PriorityList>) -> Option<u32> {
        let table = |list: &PriorityList| {
            let (handle, first) = list.by_handle.first_key_value()?;
            matches!(first.spec.kind, FilterKind::U32(_)).then_some(handle >> 20)
        };
        if let Some(own) = own {
            return table(own);
        }
        let lists = self.chains.values().flat_map(|c| c.priorities.values());
        let mut used = [false; (LAST_TABLE - FIRST_TABLE) as usize + 1];
        let mut none = true;
        for table in lists.filter_map(table) {
            used[(table - FIRST_TABLE) as usize] = true;
            none = false;
        }
        if none {
            return Some(FIRST_TABLE);
        }
        let after = (self.last_table + 1..=LAST_TABLE).chain(FIRST_TABLE + 1..=LAST_TABLE);
        let mut free = after.filter(|table| !used[(table - FIRST_TABLE) as usize]);
        free.next()
    }
}

impl PriorityList {
    /// The lowest free handle; that of `u32` from 0x800 on.
    pub(super) fn choose_handle(&self, kind: &FilterKind, table: u32) -> Option<u32> {
        let free = |first: u32, last: u32| {
            let mut free = first;
            for &used in self.by_handle.range(first..=last).map(|(handle, _)| handle) {
                if used != free {
                    break;
                }
                free = free.checked_add(1)?;
            }
            (free <= last).then_some(free)
        };
        match kind {
            FilterKind::U32(_) => {
                let base = table << 20;
                let later = free(base | FIRST_NODE, base | NODE);
                later.or_else(|| free(base | 1, base | (FIRST_NODE - 1)))
            }
            _ => free(self.free_from, i32::MAX as u32),
        }
    }

    /// In the order of the kind's `walk` in the kernel, from the one of a handle on; from the first
    /// if there is none.
    pub(super) fn shown_from(&self, handle: u32) -> Vec<&Arc<Filter>> {
        let mut filters = match self.kind() {
            // The newest first.
            Some(FilterKind::Basic(_)) => self.run.filters(),
            // By hash buckets, of each the newest first (`fw_hash`).
            Some(FilterKind::Fw { .. }) => {
                let mut filters: Vec<_> = self.by_handle.values().collect();
                filters.sort_by_key(|filter| {
                    let folded = filter.spec.handle ^ filter.spec.handle >> 16;
                    ((folded ^ folded >> 8) % 256, Reverse(filter.order))
                });
                filters
            }
            _ => return self.by_handle.range(handle..).map(|(_, f)| f).collect(),
        };
        let first = filters.iter().position(|f| f.spec.handle == handle);
        filters.drain(..first.unwrap_or(0));
        filters
    }
}

impl FilterSpec {
    pub(super) fn check(&self) -> Result<(), FilterError> {
        let actions = self.actions.as_slice().iter();
        let mut chains = actions.flat_map(|action| action.spec().chains());
        if let Some(chain) = chains.find(|&chain| chain > MAX_CHAIN) {
            return Err(FilterError::Chain(chain));
        }
        if self.chain > MAX_CHAIN {
            return Err(FilterError::Chain(self.chain));
        }
        match &self.kind {
            FilterKind::U32(of) => of.keys.iter().try_for_each(Key::check),
            FilterKind::Basic(of) => ematch::check(of),
            _ => Ok(()),
        }
    }

    pub(super) fn bad_handle(&self) -> FilterError {
        FilterError::Handle {
            handle: self.handle,
            kind: self.kind.name(),
            prio: self.prio,
        }
    }

    /// True if a handle of 0 stands for one that is chosen.
    pub(super) fn chooses_handle(&self) -> bool {
        self.handle == 0 || matches!(self.kind, FilterKind::U32(_))
    }

    /// The handle that is meant; 0, or a table alone, if it is to be chosen.
    pub(super) fn full_handle(&self, table: u32) -> Result<u32, FilterError> {
        let handle = self.handle;
        match self.kind {
            FilterKind::Matchall if handle == 0 => Ok(1),
            FilterKind::Fw { .. } if handle == 0 => Err(self.bad_handle()),
            FilterKind::U32(_) => {
                let (of, bucket, node) = (handle >> 20, handle >> 12 & 0xFF, handle & NODE);
                if of != 0 && of != table {
                    return Err(FilterError::Table(handle));
                }
                if of != 0 && node == 0 || bucket != 0 {
                    return Err(self.bad_handle());
                }
                Ok(table << 20 | node)
            }
            _ => Ok(handle),
        }
    }
}
