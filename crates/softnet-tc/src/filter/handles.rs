//! Priorities and handles as the kernel chooses, checks and shows them.

use std::cmp::Reverse;
use std::sync::Arc;

use super::ematch;
use super::entry::Filter;
use super::priority_list::PriorityList;
use super::{FilterError, FilterKind, FilterList, FilterSpec};

/// The lowest priority that is chosen.
const FIRST_CHOSEN: u16 = 0x8000;
/// The priority that is chosen first.
const LAST_CHOSEN: u16 = 0xC000;
/// The highest chain (`TC_ACT_EXT_VAL_MASK`).
pub(super) const MAX_CHAIN: u32 = (1 << 28) - 1;
/// A `u32` handle is a table (12 bits), a bucket (8) and a node (12).
pub(super) const NODE: u32 = 0xFFF;
/// Bits of a handle besides the table's.
pub(super) const KEY: u32 = 0xF_FFFF;
const FIRST_NODE: u32 = 0x800;

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
}

impl PriorityList {
    /// The lowest free handle.
    pub(super) fn choose_handle(&self) -> Option<u32> {
        self.free(self.free_from, i32::MAX as u32)
    }

    /// The lowest free handle in a bucket of `u32`, from 0x800 on.
    pub(super) fn choose_node(&self, bucket: u32) -> Option<u32> {
        let later = self.free(bucket | FIRST_NODE, bucket | NODE);
        later.or_else(|| self.free(bucket | 1, bucket | (FIRST_NODE - 1)))
    }

    fn free(&self, first: u32, last: u32) -> Option<u32> {
        let mut free = first;
        for &used in self.by_handle.range(first..=last).map(|(handle, _)| handle) {
            if used != free {
                break;
            }
            free = free.checked_add(1)?;
        }
        (free <= last).then_some(free)
    }

    /// In the order of the kind's `walk` in the kernel, from the one of a handle on; from the first
    /// if there is none.
    pub(super) fn shown_from(&self, handle: u32) -> Vec<&Arc<Filter>> {
        let mut filters = match self.kind() {
            // The newest first.
            Some(FilterKind::Basic(_)) => self.run.filters(),
            // The newest table first, each before its filters.
            Some(FilterKind::U32(_) | FilterKind::U32Table { .. }) => self.by_tables(),
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
            FilterKind::U32(of) => of.check(),
            &FilterKind::U32Table { buckets } => {
                let is_good = buckets.is_power_of_two() && buckets <= 256;
                is_good.then_some(()).ok_or(FilterError::Divisor(buckets))
            }
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

    /// The handle that is meant; 0, if it is to be chosen.
    pub(super) fn full_handle(&self) -> Result<u32, FilterError> {
        match self.kind {
            FilterKind::Matchall if self.handle == 0 => Ok(1),
            FilterKind::Fw { .. } if self.handle == 0 => Err(self.bad_handle()),
            FilterKind::FwClass if self.handle != 0 => Err(self.bad_handle()),
            _ => Ok(self.handle),
        }
    }
}
