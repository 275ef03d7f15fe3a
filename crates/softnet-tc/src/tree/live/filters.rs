//! Changes of the filters of a tree in use.

use super::{Live, Queues};
use crate::action::{Action, ActionList};
#[cfg(doc)]
use crate::filter::FilterList;
use crate::filter::{
    ChainTemplate, FilterError, FilterKey, FilterOp, FilterSelector, FilterSpec, FilterStats,
};
use crate::handle::Handle;
use crate::qdisc::SpecError;
#[cfg(doc)]
use crate::tree::{DeviceTree, TreeSpec};

impl<Q: Queues> Live<'_, Q> {
    /// Adds or changes a filter; see [`TreeSpec::put_filter`].
    ///
    /// # Errors
    /// As [`TreeSpec::put_filter`].
    pub fn put_filter(
        &mut self,
        op: FilterOp,
        filter: FilterSpec,
    ) -> Result<FilterKey, SpecError> {
        let parent = filter.parent;
        let key = self.tree.put_filter(op, filter)?;
        self.refilter(parent)?;
        Ok(key)
    }

    /// Gives filters other actions; see [`FilterList::map_actions`]. Only the queues whose filters
    /// change are taken from their owners.
    ///
    /// # Errors
    /// If a queue cannot be changed.
    pub fn map_actions(
        &mut self,
        f: impl FnMut(&ActionList) -> Option<ActionList>,
    ) -> Result<(), SpecError> {
        let parents = self.tree.map_actions(f);
        parents
            .into_iter()
            .try_for_each(|parent| self.refilter(parent))
    }

    /// Makes a chain that stays without filters; see [`TreeSpec::add_chain`].
    ///
    /// # Errors
    /// As [`TreeSpec::add_chain`].
    pub fn add_chain(
        &mut self,
        parent: Handle,
        chain: u32,
        template: Option<ChainTemplate>,
    ) -> Result<(), SpecError> {
        Ok(self.tree.spec.add_chain(parent, chain, template)?)
    }

    /// Removes a chain and its filters; see [`FilterList::delete_chain`].
    ///
    /// # Errors
    /// If there is none.
    pub fn delete_chain(&mut self, parent: Handle, chain: u32) -> Result<(), SpecError> {
        let all = FilterKey {
            chain,
            ..FilterKey::default()
        };
        if !self.tree.spec.filters_of(parent)?.has_chain(chain) {
            return Err(FilterError::NoChain.into());
        }
        self.delete_filters(parent, all)?;
        // It is gone already, unless it was made by itself.
        let _ = self.tree.spec.release_chain(parent, chain);
        Ok(())
    }

    /// Gives filters that have an action the action as it is now; see [`FilterList::refresh`].
    ///
    /// # Errors
    /// If a queue cannot be changed.
    pub fn refresh_actions(&mut self, action: &Action) -> Result<(), SpecError> {
        self.map_actions(|list| list.with(action))
    }

    /// Removes filters; see [`TreeSpec::delete_filters`].
    ///
    /// # Errors
    /// As [`TreeSpec::delete_filters`].
    pub fn delete_filters<'a>(
        &mut self,
        parent: Handle,
        which: impl Into<FilterSelector<'a>>,
    ) -> Result<(), SpecError> {
        self.tree.delete_filters(parent, which.into())?;
        self.refilter(parent)
    }

    /// The filters and what they have counted; see [`DeviceTree::filters`].
    pub fn filters(&self) -> impl Iterator<Item = (&FilterSpec, FilterStats)> {
        self.tree.filters()
    }

    /// Gives the instances of a qdisc the filters that it, or its class, has in the tree.
    pub(crate) fn refilter(&mut self, parent: Handle) -> Result<(), SpecError> {
        if self.tree.spec.hook_of(parent).is_some() {
            // Who runs hooks asks for what has changed.
            return Ok(());
        }
        let mut filters = self.tree.filters_to_run(parent);
        self.each_at(parent.qdisc(), |_, index, own, _| {
            if let Some(filters) = filters.get_mut(index) {
                // The old ones are freed when the queue has been given up.
                *filters = own.set_filters(parent.minor(), std::mem::take(filters));
            }
            Ok(())
        })
    }
}
