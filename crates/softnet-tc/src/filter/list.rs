//! The filters of one qdisc or class as configuration. A change costs about as much among ten
//! thousand filters as among ten.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::chains::{Chain, Filters};
use super::entry::{Filter, FilterStats};
use super::handles::MAX_CHAIN;
use super::mask::Mask;
use super::priority::Priority;
use super::priority_list::PriorityList;
use super::walk::HashTables;
use super::{
    ChainTemplate, FilterError, FilterKey, FilterKind, FilterOp, FilterSelector, FilterSpec, Indev,
};
use crate::action::{Action, ActionList};
use crate::handle::Handle;

/// The filters of one qdisc or class.
#[derive(Clone, Debug, Default)]
pub struct FilterList {
    pub(super) chains: BTreeMap<u32, ChainList>,
    /// Number of filters that lead to each class.
    pub(super) classes: BTreeMap<Handle, usize>,
    /// Chains and filters that were made so far.
    pub(super) made: u64,
    /// The `u32` table that was chosen last.
    pub(super) last_table: u32,
    /// The tables of `u32` that were added.
    pub(super) tables: Arc<HashTables>,
}

#[derive(Clone, Debug)]
pub(super) struct ChainList {
    /// When it was made: chains are shown in that order.
    pub(super) made: u64,
    /// True if it was made by itself, and stays without filters.
    pub(super) stays: bool,
    /// Bits that its filters may look at; `None`: any.
    pub(super) template: Option<ChainTemplate>,
    pub(super) priorities: BTreeMap<u16, PriorityList>,
}

/// By the filters and the order in which they are tried, and the chains that stay without them.
impl PartialEq for FilterList {
    fn eq(&self, other: &FilterList) -> bool {
        self.iter().eq(other.iter()) && self.kept_chains().eq(other.kept_chains())
    }
}

impl Eq for FilterList {}

impl FilterList {
    /// True if there is no filter.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// The filters, by chain and priority, in the order in which they are tried. Those of `u32` are
    /// in the order of their handles, behind their tables; the table that packets start in goes
    /// without saying.
    pub fn iter(&self) -> impl Iterator<Item = &FilterSpec> {
        let lists = self.chains.values().flat_map(|c| c.priorities.values());
        let filters = lists.flat_map(PriorityList::filters);
        filters.map(|filter| &filter.spec)
    }

    /// The filters and what they have counted, in the order in which the kernel shows them: chains
    /// from the oldest on, of each the lowest priority first.
    pub fn shown(&self) -> impl Iterator<Item = (&FilterSpec, FilterStats)> {
        let is_table = |spec: &FilterSpec| matches!(spec.kind, FilterKind::U32Table { .. });
        self.shown_from(None)
            .filter(move |(spec, _)| !is_table(spec))
    }

    /// Filters and tables of `u32` from one on, or from the first of its chain or priority. If that
    /// is no more, its priority, or all, are gone through from the start.
    pub fn shown_from(
        &self,
        from: Option<FilterKey>,
    ) -> impl Iterator<Item = (&FilterSpec, FilterStats)> {
        let mut chains: Vec<(&u32, &ChainList)> = self.chains.iter().collect();
        chains.sort_by_key(|(_, chain)| chain.made);
        let first = from.and_then(|from| chains.iter().position(|(c, _)| **c == from.chain));
        chains.drain(..first.unwrap_or(0));
        let from = from.filter(|_| first.is_some()).unwrap_or_default();
        let lists = chains
            .into_iter()
            .enumerate()
            .flat_map(move |(n, (_, chain))| {
                let prio = if n == 0 { from.prio } else { 0 };
                let lists = chain.priorities.range(prio..);
                lists.map(move |(own, list)| (n == 0 && *own == from.prio, list))
            });
        let filters = lists.flat_map(move |(is_first, list)| {
            list.shown_from(if is_first { from.handle } else { 0 })
        });
        filters.map(|filter| (&filter.spec, filter.stats()))
    }

    /// The chains that have filters, from the oldest on.
    pub fn chains(&self) -> impl Iterator<Item = u32> {
        let mut chains: Vec<(&u32, &ChainList)> = self.chains.iter().collect();
        chains.sort_by_key(|(_, chain)| chain.made);
        chains.into_iter().map(|(number, _)| *number)
    }

    /// True if there is a chain of this number.
    pub fn has_chain(&self, number: u32) -> bool {
        self.chains.contains_key(&number)
    }

    /// The chains that were made by themselves, by their numbers, and their templates.
    pub fn kept_chains(&self) -> impl Iterator<Item = (u32, Option<&ChainTemplate>)> {
        let kept = self.chains.iter().filter(|(_, chain)| chain.stays);
        kept.map(|(number, chain)| (*number, chain.template.as_ref()))
    }

    /// The template of a chain.
    pub fn template(&self, chain: u32) -> Option<&ChainTemplate> {
        self.chains.get(&chain)?.template.as_ref()
    }

    /// One filter of each priority of a chain, from a priority on.
    pub fn one_each(&self, chain: u32, prio: u16) -> impl Iterator<Item = &FilterSpec> {
        let chain = self.chains.get(&chain).into_iter();
        let lists = chain.flat_map(move |chain| chain.priorities.range(prio..));
        let first = lists.filter_map(|(_, list)| list.by_handle.values().next());
        first.map(|filter| &filter.spec)
    }

    /// One filter and what it has counted.
    ///
    /// # Errors
    /// As [`delete`](FilterList::delete).
    pub fn get<'a>(
        &self,
        which: impl Into<FilterSelector<'a>>,
    ) -> Result<(&FilterSpec, FilterStats), FilterError> {
        let which = which.into();
        if which.key.prio == 0 {
            return Err(FilterError::ZeroPrio);
        }
        let filter = self.find(&which)?.by_handle.get(&which.key.handle);
        let filter = filter.ok_or(FilterError::Missing)?;
        Ok((&filter.spec, filter.stats()))
    }

    /// Number of filters that lead to a class.
    pub(crate) fn leading_to(&self, class: Handle) -> usize {
        self.classes.get(&class).copied().unwrap_or(0)
    }

    /// Filters as the packet path runs them.
    pub fn filters(&self) -> Filters {
        let chain = |(&number, list): (&u32, &ChainList)| Chain {
            number,
            priorities: list.priorities.values().map(|p| p.run.clone()).collect(),
        };
        let chains = self
            .chains
            .iter()
            .filter(|(_, list)| !list.priorities.is_empty());
        Filters::new(chains.map(chain).collect())
    }

    /// Starts to count from zero, apart from all clones.
    pub(crate) fn reset(&mut self) {
        let chains = self.chains.values_mut();
        for list in chains.flat_map(|chain| chain.priorities.values_mut()) {
            list.map(|filter| Filter::new(filter.spec.clone(), filter.order));
        }
        self.make_tables();
    }

    /// Has filters and templates name others in place of the links that they name. Those filters
    /// count from zero, apart from all clones.
    pub fn map_indevs(&mut self, mut f: impl FnMut(&Indev) -> Indev) {
        let mut walked = false;
        for chain in self.chains.values_mut() {
            let template = chain.template.as_mut();
            if let Some(indev) = template.and_then(|of| of.flower.indev.as_mut()) {
                *indev = f(indev);
            }
            for list in chain.priorities.values_mut() {
                let mut filters = list.by_handle.values();
                if !filters.any(|filter| filter.spec.kind.indev().is_some()) {
                    continue;
                }
                walked |= list.root != 0;
                list.map(|filter| {
                    let mut spec = filter.spec.clone();
                    let Some(indev) = spec.kind.indev_mut() else {
                        return filter.clone();
                    };
                    *indev = f(indev);
                    Filter::new(spec, filter.order)
                });
            }
        }
        if walked {
            self.make_tables();
        }
    }

    /// The same filters for another instance, which count apart from these. Chains have no
    /// templates there: what is put into it has been checked here, and a chain of this number may
    /// have another template by then.
    pub fn counting_apart(&self) -> FilterList {
        let mut other = self.clone();
        for chain in other.chains.values_mut() {
            chain.template = None;
        }
        other.reset();
        other
    }

    /// Gives filters other actions where `f` has some for theirs. Those filters count on. True if
    /// there was one, so that [`filters`](FilterList::filters) are to be run anew.
    pub fn map_actions(&mut self, mut f: impl FnMut(&ActionList) -> Option<ActionList>) -> bool {
        let mut changed = false;
        let mut walked = false;
        let lists = self.chains.values_mut();
        for list in lists.flat_map(|chain| chain.priorities.values_mut()) {
            for filter in list.by_handle.values_mut() {
                if filter.spec.actions.is_empty() {
                    continue;
                }
                if let Some(actions) = f(&filter.spec.actions) {
                    let new = filter.with_actions(actions);
                    Arc::make_mut(&mut list.run).replace(filter, new.clone());
                    *filter = new;
                    changed = true;
                    walked |= list.root != 0;
                }
            }
        }
        if walked {
            self.make_tables();
        }
        changed
    }

    /// Gives filters that have an action the action as it is now; see
    /// [`map_actions`](FilterList::map_actions).
    pub fn refresh(&mut self, action: &Action) -> bool {
        self.map_actions(|list| list.with(action))
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
                return Err(FilterError::ZeroPrio);
            }
            filter.prio = self.choose_prio(filter.chain)?;
        }
        let prio = filter.prio;
        let chain = self.chains.get(&filter.chain);
        let own = chain.and_then(|chain| chain.priorities.get(&prio));
        match own {
            Some(own) => own.check(prio, filter.protocol, Some(filter.kind.name()))?,
            None if op == FilterOp::Change => return Err(FilterError::Create),
            None => {}
        }
        if let Some(template) = self.template(filter.chain) {
            template.check(&filter)?;
        }
        if filter.kind.name() == "u32" {
            return self.put_u32(op, filter);
        }
        filter.handle = filter.full_handle()?;
        let old = own
            .and_then(|own| own.by_handle.get(&filter.handle))
            .cloned();
        match (op, &old) {
            (FilterOp::Add | FilterOp::Restore, Some(_)) => return Err(FilterError::Exists(prio)),
            (FilterOp::Change, None) => return Err(FilterError::Create),
            _ => {}
        }
        if let Some(own) = own {
            let may_be_same = old.is_some() || op == FilterOp::Restore;
            own.check_beside(&filter, may_be_same)?;
        }
        if filter.kind == FilterKind::FwClass && own.is_some() {
            return Ok(filter.key());
        }
        if filter.handle == 0 && filter.kind != FilterKind::FwClass {
            let chosen = own.map_or(Some(1), PriorityList::choose_handle);
            filter.handle = chosen.ok_or_else(|| filter.bad_handle())?;
        }
        let key = filter.key();
        self.insert(filter, old);
        Ok(key)
    }

    fn insert(&mut self, filter: FilterSpec, old: Option<Arc<Filter>>) {
        self.made += 1;
        let made = self.made;
        if let Some(class) = filter.class {
            *self.classes.entry(class).or_default() += 1;
        }
        let chain = self
            .chains
            .entry(filter.chain)
            .or_insert_with(|| ChainList {
                made,
                stays: false,
                template: None,
                priorities: BTreeMap::new(),
            });
        let (prio, handle) = (filter.prio, filter.handle);
        // What takes another's place is tried there, unless it looks at other bits.
        let place = old
            .as_ref()
            .filter(|old| Mask::of(&old.spec) == Mask::of(&filter));
        let filter = Filter::new(filter, place.map_or(made, |old| old.order));
        match chain.priorities.entry(prio) {
            Entry::Vacant(new) => {
                new.insert(PriorityList {
                    run: Arc::new(Priority::new(std::slice::from_ref(&filter))),
                    by_handle: BTreeMap::from([(handle, filter)]),
                    free_from: if handle == 1 { 2 } else { 1 },
                    root: 0,
                });
            }
            Entry::Occupied(own) => {
                let own = own.into_mut();
                if own.by_handle.remove(&0).is_some() {
                    // It was the one without options (`fw_change`).
                    own.run = Arc::new(Priority::new(std::slice::from_ref(&filter)));
                    own.by_handle.insert(handle, filter);
                    return;
                }
                own.by_handle.insert(handle, filter.clone());
                if own.free_from == handle {
                    own.free_from = handle.saturating_add(1);
                }
                let run = Arc::make_mut(&mut own.run);
                match &old {
                    Some(old) => run.replace(old, filter),
                    None => run.add(filter),
                }
            }
        }
        self.uncount(old.iter());
    }

    /// Removes a filter, those of a priority, or those of a chain.
    ///
    /// # Errors
    /// If there is none of that priority or handle, or the priority is of another protocol or kind.
    pub fn delete<'a>(&mut self, which: impl Into<FilterSelector<'a>>) -> Result<(), FilterError> {
        let which = which.into();
        let FilterKey {
            chain,
            prio,
            handle,
        } = which.key;
        if prio == 0 {
            if handle != 0 || which.protocol != 0 || which.kind.is_some() {
                return Err(FilterError::Flush);
            }
            let stays = self.chains.get_mut(&chain).filter(|chain| chain.stays);
            let gone = match stays {
                Some(chain) => std::mem::take(&mut chain.priorities),
                None => self
                    .chains
                    .remove(&chain)
                    .map(|gone| gone.priorities)
                    .unwrap_or_default(),
            };
            self.uncount(gone.values().flat_map(|list| list.by_handle.values()));
            self.forget_tables();
            return Ok(());
        }
        if self.find(&which)?.root != 0 && handle != 0 && !self.delete_u32(which.key)? {
            return Ok(());
        }
        let Some(of_chain) = self.chains.get_mut(&chain) else {
            return Err(FilterError::NoChain);
        };
        let Some(list) = of_chain.priorities.get_mut(&prio) else {
            return Err(FilterError::NoPrio);
        };
        let is_walked = list.root != 0;
        if handle != 0 && !is_walked {
            let gone = list.by_handle.remove(&handle).ok_or(FilterError::Missing)?;
            list.free_from = list.free_from.min(handle);
            Arc::make_mut(&mut list.run).remove(&gone);
            self.uncount([&gone]);
        }
        let Some(of_chain) = self.chains.get_mut(&chain) else {
            return Ok(());
        };
        let none_left = |list: &PriorityList| is_walked || list.by_handle.is_empty();
        if handle == 0 || of_chain.priorities.get(&prio).is_some_and(none_left) {
            let gone = of_chain.priorities.remove(&prio);
            if of_chain.priorities.is_empty() && !of_chain.stays {
                self.chains.remove(&chain);
            }
            self.uncount(gone.iter().flat_map(|gone| gone.by_handle.values()));
            self.forget_tables();
        }
        Ok(())
    }

    /// Makes a chain that stays without filters, too. Its filters must fit the template, if there
    /// is one.
    ///
    /// # Errors
    /// If there is a chain of this number, or none can have it.
    pub fn add_chain(
        &mut self,
        number: u32,
        template: Option<ChainTemplate>,
    ) -> Result<(), FilterError> {
        if number > MAX_CHAIN {
            return Err(FilterError::Chain(number));
        }
        if self.chains.contains_key(&number) {
            return Err(FilterError::ChainExists(number));
        }
        self.made += 1;
        let chain = ChainList {
            made: self.made,
            stays: true,
            template,
            priorities: BTreeMap::new(),
        };
        self.chains.insert(number, chain);
        Ok(())
    }

    /// Removes a chain and its filters.
    ///
    /// # Errors
    /// If there is none of this number.
    pub fn delete_chain(&mut self, number: u32) -> Result<(), FilterError> {
        let chain = self.chains.get_mut(&number).ok_or(FilterError::NoChain)?;
        chain.stays = false;
        self.delete(FilterKey {
            chain: number,
            ..FilterKey::default()
        })
    }

    /// Filters are no more: their classes lose what leads to them.
    pub(super) fn uncount<'a>(&mut self, gone: impl IntoIterator<Item = &'a Arc<Filter>>) {
        for class in gone.into_iter().filter_map(|filter| filter.spec.class) {
            if let Some(n) = self.classes.get_mut(&class) {
                *n -= 1;
                if *n == 0 {
                    self.classes.remove(&class);
                }
            }
        }
    }

    /// The priority that is meant.
    fn find(&self, which: &FilterSelector<'_>) -> Result<&PriorityList, FilterError> {
        let FilterKey { chain, prio, .. } = which.key;
        let chain = self.chains.get(&chain).ok_or(FilterError::NoChain)?;
        let own = chain.priorities.get(&prio).ok_or(FilterError::NoPrio)?;
        own.check(prio, which.protocol, which.kind)?;
        Ok(own)
    }
}
