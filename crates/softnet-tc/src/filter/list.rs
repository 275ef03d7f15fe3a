//! The filters of one qdisc as configuration, kept in the order in which they are tried.

use std::ops::Range;

use super::{FilterError, FilterKind, FilterSpec};

/// The lowest priority that is chosen.
const FIRST_CHOSEN: u16 = 0x8000;
/// The priority that is chosen first.
const LAST_CHOSEN: u16 = 0xC000;
/// The highest chain (`TC_ACT_EXT_VAL_MASK`).
const MAX_CHAIN: u32 = (1 << 28) - 1;
/// A `u32` handle is a table (12 bits), a bucket (8) and a node (12).
const NODE: u32 = 0xFFF;
const FIRST_NODE: u32 = 0x800;
/// The table of the first priority with `u32` filters; those of others come after it.
const FIRST_TABLE: u32 = 0x800;
const LAST_TABLE: u32 = 0xFFE;

/// What a filter, or several, are called by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilterKey {
    /// The chain.
    pub chain: u32,
    /// The priority; 0: all of the chain's.
    pub prio: u16,
    /// The handle; 0: all of the priority's.
    pub handle: u32,
}

/// What is to become of a filter: `tc filter add`, `replace` and `change`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterOp {
    /// It is new.
    Add,
    /// It takes the place of one of its handle, if there is one.
    Replace,
    /// It takes the place of one of its handle, which there must be.
    Change,
}

/// The filters of one qdisc, in the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterList {
    /// By chain and priority. Within a priority as its kind says.
    filters: Vec<FilterSpec>,
    /// The `u32` table that was chosen last.
    last_table: u32,
}

impl FilterList {
    /// The filters, in the order in which they are tried.
    pub fn as_slice(&self) -> &[FilterSpec] {
        &self.filters
    }

    /// The filters of a chain and priority.
    fn range(&self, chain: u32, prio: u16) -> Range<usize> {
        let key = |filter: &FilterSpec| (filter.chain, filter.prio);
        let start = self.filters.partition_point(|f| key(f) < (chain, prio));
        let end = self.filters.partition_point(|f| key(f) <= (chain, prio));
        start..end
    }

    /// Adds or changes a filter, as the kernel does. Priority and handle are chosen where the
    /// filter has none. Returns what it is called by.
    ///
    /// # Errors
    /// As [`FilterError`] says; nothing is changed then.
    pub fn put(&mut self, op: FilterOp, mut filter: FilterSpec) -> Result<FilterKey, FilterError> {
        filter.check()?;
        if filter.prio == 0 {
            if op == FilterOp::Change {
                return Err(FilterError::Create);
            }
            filter.prio = self.choose_prio(filter.chain)?;
        }
        let prio = filter.prio;
        let own = self.range(filter.chain, prio);
        let first = self.filters[own.clone()].first();
        if first.is_none() && op == FilterOp::Change {
            return Err(FilterError::Create);
        }
        if let Some(first) = first {
            if first.protocol != filter.protocol {
                return Err(FilterError::Protocol(prio));
            }
            if first.kind.name() != filter.kind.name() {
                let kind = first.kind.name();
                return Err(FilterError::Kind { prio, kind });
            }
        }
        let table = match filter.kind {
            FilterKind::U32(_) => self.table(&own).ok_or(FilterError::NoTable)?,
            _ => 0,
        };
        filter.handle = filter.full_handle(table)?;
        let same = |f: &FilterSpec| f.handle == filter.handle;
        let old = own.clone().find(|&at| same(&self.filters[at]));
        match (op, old) {
            (FilterOp::Add, Some(_)) => return Err(FilterError::Exists(prio)),
            (FilterOp::Change, None) => return Err(FilterError::Create),
            _ => {}
        }
        self.check_beside(&filter, &own, old)?;
        if old.is_none() && filter.handle & NODE == 0 && filter.chooses_handle() {
            filter.handle = self.choose_handle(&filter, &own, table)?;
        }
        if own.is_empty() && table != 0 {
            self.last_table = table;
        }
        let key = filter.key();
        self.insert(filter, own, old);
        Ok(key)
    }

    /// Removes a filter, those of a priority, or those of a chain.
    ///
    /// # Errors
    /// If there is none of that priority or handle.
    pub fn delete(&mut self, which: FilterKey) -> Result<(), FilterError> {
        let FilterKey {
            chain,
            prio,
            handle,
        } = which;
        if prio == 0 && handle == 0 {
            self.filters.retain(|filter| filter.chain != chain);
            return Ok(());
        }
        if self.range(chain, prio).is_empty() {
            return Err(FilterError::NoPrio);
        }
        let before = self.filters.len();
        self.filters
            .retain(|f| (f.chain, f.prio) != (chain, prio) || handle != 0 && f.handle != handle);
        if self.filters.len() == before {
            return Err(FilterError::Missing);
        }
        Ok(())
    }

    /// As the kernel (`tcf_auto_prio`): below all that were chosen before.
    fn choose_prio(&self, chain: u32) -> Result<u16, FilterError> {
        let of_chain = self.filters.iter().filter(|f| f.chain == chain);
        match of_chain.map(|f| f.prio).find(|&prio| prio >= FIRST_CHOSEN) {
            None => Ok(LAST_CHOSEN),
            Some(FIRST_CHOSEN) => Err(FilterError::NoPriority),
            Some(last) => Ok(last - 1),
        }
    }

    /// The table of a priority with `u32` filters, if there is one left for it.
    fn table(&self, own: &Range<usize>) -> Option<u32> {
        if let Some(first) = self.filters[own.clone()].first() {
            return Some(first.handle >> 20);
        }
        let tables = || {
            let u32s = self.filters.iter();
            let u32s = u32s.filter(|f| matches!(f.kind, FilterKind::U32(_)));
            u32s.map(|f| f.handle >> 20)
        };
        if tables().next().is_none() {
            return Some(FIRST_TABLE);
        }
        let after = (self.last_table + 1..=LAST_TABLE).chain(FIRST_TABLE + 1..=LAST_TABLE);
        let mut used = [false; (LAST_TABLE - FIRST_TABLE) as usize + 1];
        for table in tables() {
            used[(table - FIRST_TABLE) as usize] = true;
        }
        let mut free = after.filter(|table| !used[(table - FIRST_TABLE) as usize]);
        free.next()
    }

    /// Checks a filter against those of its priority; `old` is the one that it replaces. As in the
    /// kernel one that replaces another may match what a third does; the first then decides.
    fn check_beside(
        &self,
        filter: &FilterSpec,
        own: &Range<usize>,
        old: Option<usize>,
    ) -> Result<(), FilterError> {
        let prio = filter.prio;
        for at in own.clone() {
            match (&filter.kind, &self.filters[at].kind) {
                // There is one, which cannot be changed (`mall_change`).
                (FilterKind::Matchall, _) => return Err(FilterError::Exists(prio)),
                (FilterKind::Flower(new), FilterKind::Flower(other))
                    if old.is_none() && new.is_same(other) =>
                {
                    return Err(FilterError::Exists(prio));
                }
                (FilterKind::Fw { mask: new }, &FilterKind::Fw { mask }) if *new != mask => {
                    return Err(FilterError::Mask { prio, mask });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The lowest free handle; that of `u32` from 0x800 on.
    fn choose_handle(
        &self,
        filter: &FilterSpec,
        own: &Range<usize>,
        table: u32,
    ) -> Result<u32, FilterError> {
        let own = &self.filters[own.clone()];
        // Of one more than there are, one is free.
        let free = |first: u32, last: u32| {
            let mut used = vec![false; own.len() + 1];
            for filter in own {
                let at = filter.handle.checked_sub(first);
                if let Some(used) = at.and_then(|at| used.get_mut(at as usize)) {
                    *used = true;
                }
            }
            let at = used.iter().position(|used| !used)? as u32;
            first.checked_add(at).filter(|&handle| handle <= last)
        };
        let chosen = match filter.kind {
            FilterKind::U32(_) => {
                let base = table << 20;
                free(base | FIRST_NODE, base | NODE)
                    .or_else(|| free(base | 1, base | (FIRST_NODE - 1)))
            }
            _ => free(1, i32::MAX as u32),
        };
        chosen.ok_or_else(|| filter.bad_handle())
    }

    fn insert(&mut self, filter: FilterSpec, mut own: Range<usize>, old: Option<usize>) {
        if let Some(at) = old {
            let stays = match (&filter.kind, &self.filters[at].kind) {
                (FilterKind::Flower(new), FilterKind::Flower(old)) => new.has_mask_of(old),
                _ => true,
            };
            if stays {
                self.filters[at] = filter;
                return;
            }
            self.filters.remove(at);
            own.end -= 1;
        }
        let others = &self.filters[own.clone()];
        let offset = match &filter.kind {
            FilterKind::U32(_) | FilterKind::Fw { .. } => {
                Some(others.partition_point(|f| f.handle < filter.handle))
            }
            FilterKind::Flower(new) => {
                let alike = |f: &FilterSpec| match &f.kind {
                    FilterKind::Flower(other) => new.has_mask_of(other),
                    _ => false,
                };
                others.iter().rposition(alike).map(|last| last + 1)
            }
            // The newest first (`basic_change`).
            FilterKind::Basic(_) | FilterKind::Matchall => Some(0),
        };
        let at = own.start + offset.unwrap_or(others.len());
        self.filters.insert(at, filter);
    }
}

impl FilterSpec {
    fn check(&self) -> Result<(), FilterError> {
        let goto = match self.action {
            super::FilterAction::Goto(chain) => chain,
            _ => 0,
        };
        if let Some(&chain) = [self.chain, goto].iter().find(|&&chain| chain > MAX_CHAIN) {
            return Err(FilterError::Chain(chain));
        }
        let FilterSpec { parent, class, .. } = *self;
        if let Some(class) = class
            && (class.qdisc() != parent || class == super::Handle::ROOT)
        {
            return Err(FilterError::ForeignClass { parent, class });
        }
        match &self.kind {
            FilterKind::U32(of) => of.keys.iter().try_for_each(super::Key::check),
            FilterKind::Basic(of) => of.iter().try_for_each(super::Ematch::check),
            _ => Ok(()),
        }
    }

    fn bad_handle(&self) -> FilterError {
        FilterError::Handle {
            handle: self.handle,
            kind: self.kind.name(),
            prio: self.prio,
        }
    }

    /// Whether a handle of 0 stands for one that is chosen.
    fn chooses_handle(&self) -> bool {
        self.handle == 0 || matches!(self.kind, FilterKind::U32(_))
    }

    /// The handle that is meant; 0, or a table alone, if it is to be chosen.
    fn full_handle(&self, table: u32) -> Result<u32, FilterError> {
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
