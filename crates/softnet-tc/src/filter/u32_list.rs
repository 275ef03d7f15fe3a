//! `u32` filters and their hash tables as configuration (`cls_u32.c`): each priority starts in a
//! table of its own, `800:`, `801:` and so on; filters of all priorities lead to those that were
//! added.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::Filter;
use super::handles::{KEY, NODE};
use super::list::{ChainList, FilterList};
use super::priority::Priority;
use super::priority_list::PriorityList;
use super::walk::{HashTable, HashTables};
use super::{FilterError, FilterKey, FilterKind, FilterOp, FilterSpec};
use crate::action::ActionList;

/// The table of the first priority with `u32` filters; those of others come after it.
const FIRST_TABLE: u32 = 0x800;
const LAST_TABLE: u32 = 0xFFE;
/// The table of the priority, whichever it is (`TC_U32_ROOT`).
const OWN_TABLE: u32 = 0xFFF;

/// The number that the kernel chooses for a table from `800:` on; those below have none.
fn id(table: u32) -> Option<usize> {
    table.checked_sub(FIRST_TABLE).map(|id| id as usize)
}

impl FilterList {
    fn priority(&self, chain: u32, prio: u16) -> Option<&PriorityList> {
        self.chains.get(&chain)?.priorities.get(&prio)
    }

    fn walked(&self) -> impl Iterator<Item = &PriorityList> {
        let lists = self.chains.values().flat_map(|c| c.priorities.values());
        lists.filter(|list| list.root != 0)
    }

    fn walked_mut(&mut self) -> impl Iterator<Item = &mut PriorityList> {
        let lists = self.chains.values_mut();
        let lists = lists.flat_map(|c| c.priorities.values_mut());
        lists.filter(|list| list.root != 0)
    }

    /// The next table that is chosen behind one, if one is left.
    fn free_table(&self, last: u32) -> Option<u32> {
        let mut used = [false; FIRST_TABLE as usize];
        let roots = self.walked().map(|list| list.root);
        for table in roots.chain(self.tables.numbers()) {
            if let Some(id) = id(table) {
                used[id] = true;
            }
        }
        let after = last.max(FIRST_TABLE) + 1..=LAST_TABLE;
        let mut free = after.chain(FIRST_TABLE + 1..=LAST_TABLE);
        free.find(|&table| table != last && id(table).is_some_and(|id| !used[id]))
    }

    /// The table that packets start in of a priority, or of one that would be new.
    pub fn u32_root(&self, chain: u32, prio: u16) -> Option<u32> {
        match self.priority(chain, prio) {
            Some(own) => Some(own.root).filter(|&root| root != 0),
            None if self.walked().next().is_none() => Some(FIRST_TABLE),
            None => self.free_table(self.last_table),
        }
    }

    /// Buckets of a table that a filter of a priority may be in.
    pub fn u32_buckets(&self, chain: u32, prio: u16, table: u32) -> Option<u16> {
        match self.u32_root(chain, prio) {
            Some(root) if root == table => Some(1),
            _ => self.tables.get(table).map(HashTable::buckets),
        }
    }

    /// Checks the table that a filter leads to.
    fn check_link(&self, filter: &FilterSpec, root: u32) -> Result<(), FilterError> {
        let FilterKind::U32(of) = &filter.kind else {
            return Ok(());
        };
        let Some(link) = of.link else { return Ok(()) };
        let table = link >> 20;
        if table == root || self.walked().any(|list| list.root == table) {
            return Err(FilterError::LinkToRoot);
        }
        match self.tables.get(table) {
            Some(_) => Ok(()),
            None => Err(FilterError::NoLink(link)),
        }
    }

    /// As [`put`](FilterList::put), for a filter of `u32` or a table, which fits its priority. A
    /// filter goes to the priority that its table came with.
    pub(super) fn put_u32(
        &mut self,
        op: FilterOp,
        mut filter: FilterSpec,
    ) -> Result<FilterKey, FilterError> {
        let root = self.u32_root(filter.chain, filter.prio);
        let root = root.ok_or(FilterError::NoTable)?;
        if filter.kind == FilterKind::U32Root {
            filter.handle = root << 20;
            self.make_priority(&filter, root);
            return Ok(filter.key());
        }
        let handle = filter.handle;
        let mut table = handle >> 20;
        let (mut created, mut chosen_table) = (None, false);
        if let FilterKind::U32Table { buckets } = filter.kind {
            if handle & KEY != 0 || table == OWN_TABLE {
                return Err(filter.bad_handle());
            }
            if op == FilterOp::Change {
                return Err(FilterError::Create);
            }
            let new = self.priority(filter.chain, filter.prio).is_none();
            let taken = |table: u32| {
                let mut roots = self.walked().map(|list| list.root);
                roots.any(|root| root == table) || new && root == table
            };
            if table == 0 {
                let last = if new { root } else { self.last_table };
                table = self.free_table(last).ok_or(FilterError::NoTable)?;
                chosen_table = true;
            } else if self.tables.get(table).is_some() || table == root {
                return Err(FilterError::Exists(filter.prio));
            } else if taken(table) {
                return Err(FilterError::NoTable);
            }
            filter.handle = table << 20;
            created = Some(buckets);
        } else {
            if table == 0 || table == OWN_TABLE {
                table = root;
            }
            let mut buckets = 1;
            if table != root {
                let of = self.tables.get(table).ok_or(FilterError::Table(handle))?;
                buckets = of.buckets();
                (filter.chain, filter.prio) = (of.chain, of.prio);
            }
            if handle >> 12 & 0xFF >= buckets.into() {
                return Err(filter.bad_handle());
            }
            self.check_link(&filter, root)?;
            filter.handle = table << 20 | handle & KEY;
        }
        let own = self.priority(filter.chain, filter.prio);
        if let Some(own) = own {
            filter.protocol = own.run.protocol;
        }
        if created.is_none() && filter.handle & NODE == 0 {
            if op == FilterOp::Change {
                return Err(FilterError::Create);
            }
            let bucket = filter.handle;
            let chosen = match own {
                Some(own) => own.choose_node(bucket),
                None => Some(bucket | 0x800),
            };
            filter.handle = chosen.ok_or_else(|| filter.bad_handle())?;
        }
        let old = own.and_then(|own| own.by_handle.get(&filter.handle));
        let old = old.cloned();
        match (op, &old) {
            (FilterOp::Add | FilterOp::Restore, Some(_)) => {
                return Err(FilterError::Exists(filter.prio));
            }
            (FilterOp::Change, None) => return Err(FilterError::Create),
            _ => {}
        }
        self.make_priority(&filter, root);
        if chosen_table {
            self.last_table = table;
        }
        if let Some(class) = filter.class {
            *self.classes.entry(class).or_default() += 1;
        }
        self.made += 1;
        let key = filter.key();
        let order = old.as_ref().map_or(self.made, |old| old.order);
        let filter = Filter::new(filter, order);
        let own = self.chains.get_mut(&key.chain);
        let own = own.and_then(|chain| chain.priorities.get_mut(&key.prio));
        if let Some(own) = own {
            own.by_handle.insert(key.handle, filter);
        }
        match created {
            Some(buckets) => {
                let new = HashTable::new(key.chain, key.prio, buckets);
                Arc::make_mut(&mut self.tables).insert(table, new);
                self.share_tables();
            }
            None => self.make_bucket(key),
        }
        self.uncount(old.iter());
        Ok(key)
    }

    /// Makes the priority of a filter, with the table that packets start in, if there is none.
    fn make_priority(&mut self, filter: &FilterSpec, root: u32) {
        if self.priority(filter.chain, filter.prio).is_some() {
            return;
        }
        self.made += 1;
        let made = self.made;
        let table = FilterSpec {
            handle: root << 20,
            kind: FilterKind::U32Table { buckets: 1 },
            class: None,
            actions: ActionList::default(),
            ..filter.clone()
        };
        let mut run = Priority::walked(filter.protocol);
        run.set_tables(&self.tables);
        let list = PriorityList {
            by_handle: BTreeMap::from([(root << 20, Filter::new(table, made))]),
            free_from: 1,
            root,
            run: Arc::new(run),
        };
        let chain = self.chains.entry(filter.chain);
        let chain = chain.or_insert_with(|| ChainList {
            made,
            stays: false,
            template: None,
            priorities: BTreeMap::new(),
        });
        chain.priorities.insert(filter.prio, list);
        self.last_table = root;
    }

    /// Removes a filter or a table with its filters. True if its priority is to go, too: the last
    /// filter of the last priority of `u32` takes it along (`u32_delete`).
    pub(super) fn delete_u32(&mut self, key: FilterKey) -> Result<bool, FilterError> {
        let FilterKey {
            chain,
            prio,
            handle,
        } = key;
        let table = handle >> 20;
        let list = self.priority(chain, prio).ok_or(FilterError::NoPrio)?;
        let known = list.by_handle.get(&handle).ok_or(FilterError::Missing)?;
        let is_table = matches!(known.spec.kind, FilterKind::U32Table { .. });
        if is_table {
            if table == list.root {
                return Err(FilterError::RootTable);
            }
            let mut all = self.walked().flat_map(|list| list.by_handle.values());
            let leads = |filter: &Arc<Filter>| match &filter.spec.kind {
                FilterKind::U32(of) => of.link == Some(handle),
                _ => false,
            };
            if all.any(leads) {
                return Err(FilterError::LinkedTable);
            }
        }
        let last = if is_table { handle | KEY } else { handle };
        let list = self.chains.get_mut(&chain);
        let list = list.and_then(|chain| chain.priorities.get_mut(&prio));
        let gone: Vec<Arc<Filter>> = list.map_or_else(Vec::new, |list| {
            let mut rest = list.by_handle.split_off(&handle);
            let mut behind = rest.split_off(&last);
            let end = behind.remove(&last);
            list.by_handle.append(&mut behind);
            rest.into_values().chain(end).collect()
        });
        self.uncount(&gone);
        if is_table {
            Arc::make_mut(&mut self.tables).remove(table);
            self.share_tables();
        } else {
            self.make_bucket(key);
        }
        let mut lists = self.walked();
        let is_only = lists.next().is_some() && lists.next().is_none();
        drop(lists);
        let filters = self.walked().flat_map(|list| list.by_handle.keys());
        Ok(is_only && filters.into_iter().all(|handle| handle & NODE == 0))
    }

    /// Forgets the tables of priorities that are no more.
    pub(super) fn forget_tables(&mut self) {
        let chains = &self.chains;
        let is_there = |chain: u32, prio: u16| {
            let chain = chains.get(&chain);
            chain.is_some_and(|chain| chain.priorities.contains_key(&prio))
        };
        let tables = &mut self.tables;
        let stays = |table: &HashTable| is_there(table.chain, table.prio);
        if !tables
            .numbers()
            .all(|number| tables.get(number).is_some_and(stays))
        {
            Arc::make_mut(tables).retain(stays);
            self.share_tables();
        }
    }

    /// Has the packet path try the filters of one bucket as they are now.
    fn make_bucket(&mut self, key: FilterKey) {
        let first = key.handle & !NODE;
        let table = first >> 20;
        let list = self.chains.get_mut(&key.chain);
        let list = list.and_then(|chain| chain.priorities.get_mut(&key.prio));
        let Some(list) = list else { return };
        let filters = list.by_handle.range(first + 1..=first | NODE);
        let filters = filters.map(|(_, filter)| filter.clone()).collect();
        if table == list.root {
            Arc::make_mut(&mut list.run).set_root(filters);
            return;
        }
        Arc::make_mut(&mut self.tables).set(table, first >> 12 & 0xFF, filters);
        self.share_tables();
    }

    /// Has the packet path try all filters of `u32` as they are now.
    pub(super) fn make_tables(&mut self) {
        let mut tables = HashTables::default();
        for (&chain, of_chain) in &mut self.chains {
            let lists = of_chain.priorities.iter_mut();
            for (&prio, list) in lists.filter(|(_, list)| list.root != 0) {
                let mut buckets: BTreeMap<u32, Vec<Arc<Filter>>> = BTreeMap::new();
                for (&handle, filter) in &list.by_handle {
                    match filter.spec.kind {
                        FilterKind::U32Table { buckets } if handle >> 20 != list.root => {
                            tables.insert(handle >> 20, HashTable::new(chain, prio, buckets));
                        }
                        FilterKind::U32Table { .. } => {}
                        _ => buckets
                            .entry(handle >> 12)
                            .or_default()
                            .push(filter.clone()),
                    }
                }
                let own = buckets.remove(&(list.root << 8)).unwrap_or_default();
                Arc::make_mut(&mut list.run).set_root(own);
                for (at, filters) in buckets {
                    tables.set(at >> 8, at & 0xFF, filters);
                }
            }
        }
        self.tables = Arc::new(tables);
        self.share_tables();
    }

    fn share_tables(&mut self) {
        let tables = self.tables.clone();
        for list in self.walked_mut() {
            Arc::make_mut(&mut list.run).set_tables(&tables);
        }
    }
}

impl PriorityList {
    /// The tables, the newest first, each before its filters.
    pub(super) fn by_tables(&self) -> Vec<&Arc<Filter>> {
        let is_table = |filter: &&Arc<Filter>| filter.spec.handle & KEY == 0;
        let mut tables: Vec<_> = self.by_handle.values().filter(is_table).collect();
        tables.sort_by_key(|table| std::cmp::Reverse(table.order));
        let of = |table: &Arc<Filter>| {
            let first = table.spec.handle;
            self.by_handle.range(first..=first | KEY).map(|(_, f)| f)
        };
        tables.into_iter().flat_map(of).collect()
    }
}
