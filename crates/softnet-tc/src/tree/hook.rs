//! The hooks of a device: filters for what arrives, and for what leaves before a queue is chosen
//! (`sch_ingress.c`). Their qdisc is `ingress`, which has the first, or `clsact`, which has both.
//! It is beside the tree: it queues nothing.
//!
//! Who runs them makes as many copies as there are threads that do
//! ([`QdiscEnv::hook_copies`](crate::QdiscEnv)): each counts apart, and nobody waits.

use super::instances::DeviceTree;
use super::live::Live;
use super::spec::TreeSpec;
use crate::action::{Action, ActionList};
use crate::filter::{
    ChainTemplate, FilterError, FilterKey, FilterList, FilterOp, FilterSelector, FilterSpec,
    FilterStats, Filters,
};
use crate::handle::Handle;
use crate::qdisc::SpecError;

/// Kind of the qdisc at a device's hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// It has filters for what arrives.
    Ingress,
    /// It has these, and filters for what leaves.
    Clsact,
}

/// A hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where packets arrive.
    Ingress,
    /// Where they are sent, before a queue is chosen.
    Egress,
}

/// The filters of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookFilters {
    /// Number of the block that has the filters; 0: it has its own.
    pub block: u32,
    /// Own filters. None where a block has them.
    pub filters: FilterList,
}

/// The qdisc at the hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Kind.
    pub kind: HookKind,
    /// Filters for what arrives.
    pub ingress: HookFilters,
    /// Filters for what leaves. None with `ingress`.
    pub egress: HookFilters,
}

/// Copies of the filters of a hook, beside the first, which is the configuration.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) lists: Vec<FilterList>,
    pub(crate) changed: bool,
}

impl HookKind {
    /// Name, as in tc.
    pub fn name(self) -> &'static str {
        match self {
            HookKind::Ingress => "ingress",
            HookKind::Clsact => "clsact",
        }
    }

    /// The kind of this name.
    pub fn find(name: &str) -> Option<HookKind> {
        let all = [HookKind::Ingress, HookKind::Clsact];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

impl Side {
    /// Both.
    pub const ALL: [Side; 2] = [Side::Ingress, Side::Egress];

    /// Parent of its filters (`TC_H_MIN_INGRESS`, `TC_H_MIN_EGRESS`).
    pub const fn parent(self) -> Handle {
        match self {
            Side::Ingress => Handle::from_raw(0xffff_fff2),
            Side::Egress => Handle::from_raw(0xffff_fff3),
        }
    }
}

impl Hook {
    /// Handle of the qdisc (`ffff:`).
    pub const HANDLE: Handle = Handle::from_raw(0xffff_0000);
    /// Parent of the qdisc (`TC_H_INGRESS`).
    pub const PARENT: Handle = Handle::from_raw(0xffff_fff1);

    /// A qdisc without filters.
    pub fn new(kind: HookKind) -> Hook {
        Hook {
            kind,
            ingress: HookFilters::default(),
            egress: HookFilters::default(),
        }
    }

    /// The filters of one hook.
    pub fn side(&self, side: Side) -> &HookFilters {
        match side {
            Side::Ingress => &self.ingress,
            Side::Egress => &self.egress,
        }
    }

    /// As [`side`](Hook::side), to change them.
    pub fn side_mut(&mut self, side: Side) -> &mut HookFilters {
        match side {
            Side::Ingress => &mut self.ingress,
            Side::Egress => &mut self.egress,
        }
    }

    /// The hook whose filters have a parent: with `ingress` all of its classes are the one.
    ///
    /// # Errors
    /// If there is no such class.
    pub fn side_of(&self, parent: Handle) -> Result<Side, FilterError> {
        match (self.kind, parent) {
            (HookKind::Ingress, _) => Ok(Side::Ingress),
            _ if parent == Side::Ingress.parent() => Ok(Side::Ingress),
            _ if parent == Side::Egress.parent() => Ok(Side::Egress),
            _ if parent.minor() == 0 => Err(FilterError::NoHook),
            _ => Err(FilterError::NoClass(parent)),
        }
    }
}

impl TreeSpec {
    /// The qdisc at the hooks.
    pub fn hook(&self) -> Option<&Hook> {
        self.hook.as_deref()
    }

    /// Gives the hooks a qdisc in place of the one that they have, or none.
    ///
    /// # Errors
    /// If a hook has filters beside a block, or `ingress` has some for what leaves.
    pub fn set_hook(&mut self, hook: Option<Hook>) -> Result<(), FilterError> {
        if let Some(hook) = &hook {
            let beside = |side: &HookFilters| side.block != 0 && !side.filters.is_empty();
            let no_egress =
                hook.kind == HookKind::Ingress && hook.egress != HookFilters::default();
            if beside(&hook.ingress) || beside(&hook.egress) {
                return Err(FilterError::Shared);
            }
            if no_egress {
                return Err(FilterError::NoHook);
            }
        }
        self.hook = hook.map(Box::new);
        Ok(())
    }

    /// The qdisc at the hooks, if a parent is one of its names and not that of a qdisc in the tree.
    pub fn hook_of(&self, parent: Handle) -> Option<&Hook> {
        let names_hook = parent.qdisc() == Hook::HANDLE && !self.nodes.contains_key(&Hook::HANDLE);
        self.hook().filter(|_| names_hook)
    }

    /// The filters of a hook, whose parent this is.
    pub(crate) fn hook_filters(&self, parent: Handle) -> Option<Result<&FilterList, FilterError>> {
        let hook = self.hook_of(parent)?;
        let side = hook.side_of(parent).map(|side| hook.side(side));
        Some(side.and_then(|side| match side.block {
            0 => Ok(&side.filters),
            _ => Err(FilterError::Shared),
        }))
    }

    /// As [`hook_filters`](TreeSpec::hook_filters), to change them; and the parent that filters
    /// there have.
    pub(crate) fn hook_filters_mut(&mut self, parent: Handle) -> Option<(Side, &mut FilterList)> {
        let side = self.hook_of(parent)?.side_of(parent).ok()?;
        let hook = self.hook.as_deref_mut()?;
        Some((side, &mut hook.side_mut(side).filters))
    }
}

impl DeviceTree {
    /// The hook that a parent names.
    pub(crate) fn hook_side(&self, parent: Handle) -> Option<Side> {
        self.spec.hook_of(parent)?.side_of(parent).ok()
    }

    pub(crate) fn copies(&mut self, side: Side) -> &mut Copies {
        &mut self.hook_copies[side as usize]
    }

    /// Makes the copies of the filters at both hooks.
    pub(crate) fn make_hook(&mut self) {
        let count = self.env.hook_copies;
        for side in Side::ALL {
            let lists = match self.spec.hook.as_deref_mut() {
                Some(hook) => {
                    let list = &mut hook.side_mut(side).filters;
                    list.reset();
                    (0..count).map(|_| list.counting_apart()).collect()
                }
                None => Vec::new(),
            };
            *self.copies(side) = Copies {
                lists,
                changed: true,
            };
        }
    }

    /// Filters of a hook that have changed since this was last asked, each copy's: the first, and
    /// the [others](crate::QdiscEnv::hook_copies). Empty lists where there is no hook.
    pub fn take_hook_change(&mut self, side: Side) -> Option<Vec<Filters>> {
        if !std::mem::take(&mut self.copies(side).changed) {
            return None;
        }
        let Some(hook) = self.spec.hook() else {
            return Some(Vec::new());
        };
        let first = std::iter::once(&hook.side(side).filters);
        let others = &self.hook_copies[side as usize].lists;
        Some(first.chain(others).map(FilterList::filters).collect())
    }

    /// Adds what other copies of a filter at a hook have counted.
    pub(crate) fn hook_sum(&self, filter: &FilterSpec, sum: &mut FilterStats) {
        let Some(side) = self.hook_side(filter.parent) else {
            return;
        };
        for list in &self.hook_copies[side as usize].lists {
            if let Ok((_, stats)) = list.get(filter.key()) {
                sum.add(&stats);
            }
        }
    }

    /// Adds or changes a filter in the copies.
    pub(crate) fn put_in_copies(
        &mut self,
        op: FilterOp,
        filter: &FilterSpec,
    ) -> Result<(), FilterError> {
        let Some(side) = self.hook_side(filter.parent) else {
            return Ok(());
        };
        let copies = self.copies(side);
        copies.changed = true;
        for list in &mut copies.lists {
            // They differ in what they have counted alone.
            list.put(op, filter.clone())?;
        }
        Ok(())
    }

    /// Removes filters from the copies.
    pub(crate) fn delete_in_copies(
        &mut self,
        parent: Handle,
        which: FilterSelector<'_>,
    ) -> Result<(), FilterError> {
        let Some(side) = self.hook_side(parent) else {
            return Ok(());
        };
        let copies = self.copies(side);
        copies.changed = true;
        copies
            .lists
            .iter_mut()
            .try_for_each(|list| list.delete(which))
    }
}

impl<Q> Live<'_, Q> {
    /// Gives the hooks a qdisc in place of the one that they have, or none. Its filters count from
    /// zero.
    ///
    /// # Errors
    /// As [`TreeSpec::set_hook`]. Nothing is changed then.
    pub fn set_hook(&mut self, hook: Option<Hook>) -> Result<(), SpecError> {
        self.tree.spec.set_hook(hook)?;
        self.tree.make_hook();
        Ok(())
    }
}

/// Filters that several links share (`tc filter add block N`), with copies for the threads that run
/// them.
#[derive(Debug, Default)]
pub struct Block {
    list: FilterList,
    copies: Vec<FilterList>,
}

impl Block {
    /// A block without filters, with so many copies beside the first.
    pub fn new(copies: usize) -> Block {
        Block {
            list: FilterList::default(),
            copies: vec![FilterList::default(); copies],
        }
    }

    /// The filters as configuration.
    pub fn list(&self) -> &FilterList {
        &self.list
    }

    /// Each copy's filters, the first's first.
    pub fn filters(&self) -> Vec<Filters> {
        let all = std::iter::once(&self.list).chain(&self.copies);
        all.map(FilterList::filters).collect()
    }

    /// A filter with what all copies have counted, from what the list says of it.
    pub fn filter_sum<'a>(
        &self,
        (filter, mut sum): (&'a FilterSpec, FilterStats),
    ) -> (&'a FilterSpec, FilterStats) {
        for list in &self.copies {
            if let Ok((_, stats)) = list.get(filter.key()) {
                sum.add(&stats);
            }
        }
        (filter, sum)
    }

    /// Gives it other filters, which count from zero.
    pub fn set(&mut self, mut list: FilterList) {
        list.reset();
        self.copies.fill_with(|| list.counting_apart());
        self.list = list;
    }

    /// Adds or changes a filter; see [`FilterList::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&mut self, op: FilterOp, filter: FilterSpec) -> Result<FilterKey, FilterError> {
        let key = self.list.put(op, filter.clone())?;
        for list in &mut self.copies {
            list.put(op, filter.clone())?;
        }
        Ok(key)
    }

    /// Makes a chain that stays without filters; see [`FilterList::add_chain`].
    ///
    /// # Errors
    /// As there.
    pub fn add_chain(
        &mut self,
        chain: u32,
        template: Option<ChainTemplate>,
    ) -> Result<(), FilterError> {
        self.list.add_chain(chain, template)
    }

    /// Removes a chain and its filters; see [`FilterList::delete_chain`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_chain(&mut self, chain: u32) -> Result<(), FilterError> {
        self.list.delete_chain(chain)?;
        let all = FilterKey {
            chain,
            ..FilterKey::default()
        };
        self.copies.iter_mut().try_for_each(|list| list.delete(all))
    }

    /// Gives filters that have an action the action as it is now; see [`FilterList::refresh`].
    pub fn refresh(&mut self, action: &Action) -> bool {
        self.map_actions(|list| list.with(action))
    }

    /// Gives filters other actions; see [`FilterList::map_actions`]. True if there was one.
    pub fn map_actions(&mut self, f: impl FnMut(&ActionList) -> Option<ActionList>) -> bool {
        let mut f = ActionList::once_each(f);
        let mut changed = self.list.map_actions(&mut f);
        for list in &mut self.copies {
            changed |= list.map_actions(&mut f);
        }
        changed
    }

    /// Removes filters; see [`FilterList::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete<'a>(&mut self, which: impl Into<FilterSelector<'a>>) -> Result<(), FilterError> {
        let which = which.into();
        self.list.delete(which)?;
        self.copies
            .iter_mut()
            .try_for_each(|list| list.delete(which))
    }
}
