//! Another tree in the place of one that is in use, by as few changes as it takes.

use super::live::{Live, Queues};
use super::spec::TreeSpec;
use crate::filter::FilterList;
use crate::handle::Handle;
use crate::qdisc::SpecError;

impl<Q: Queues> Live<'_, Q> {
    /// Makes the tree what `spec` says. If only parameters and filters differ, and can be changed
    /// in use, they are: what is queued stays, and what does not differ goes on counting. A list of
    /// filters that differs counts from zero. Else it is as [`set`](Live::set).
    ///
    /// # Errors
    /// As [`set`](Live::set).
    pub fn apply(&mut self, spec: &TreeSpec) -> Result<(), SpecError> {
        let with_rates;
        let spec = if spec.has_shares() {
            with_rates = spec.at_speed(self.tree.env.speed)?;
            &with_rates
        } else {
            spec
        };
        if !self.spec().can_become(spec) {
            return self.set(spec.clone());
        }
        spec.check_for(self.tree.queues)?;
        // Nothing fails from here on: both trees have been checked.
        if self.spec().hook() != spec.hook() {
            self.set_hook(spec.hook().cloned())?;
        }
        for node in spec.nodes() {
            let own = self.spec().existing(node.handle)?;
            let (other, other_stab) = (own.qdisc != node.qdisc, own.stab != node.stab);
            if other {
                self.change(node.handle, &node.qdisc)?;
            }
            if other_stab {
                self.set_stab(node.handle, node.stab.clone())?;
            }
            self.apply_filters(node.handle, &node.filters)?;
        }
        for (class, node) in spec.added_classes() {
            let own = self.spec().class_node(class);
            if own.is_some_and(|own| own.spec != node.spec) {
                self.change_class(class, &node.spec)?;
            }
            self.apply_filters(class, &node.filters)?;
        }
        for (&name, &estimator) in &spec.estimators {
            if self.spec().estimator(name) != Some(estimator) {
                self.set_estimator(name, estimator)?;
            }
        }
        self.tree.spec.shares.clone_from(&spec.shares);
        Ok(())
    }

    /// Has the rates that are shares of the link's speed, in bytes per second, follow it from now
    /// on. What is queued stays.
    ///
    /// # Errors
    /// If a qdisc or class cannot have its rate. Nothing is changed then.
    pub fn set_speed(&mut self, speed: u64) -> Result<(), SpecError> {
        let spec = self.spec().at_speed(Some(speed))?;
        self.tree.env.speed = Some(speed);
        self.apply(&spec)
    }

    /// Gives a qdisc or class other filters, if they are others.
    fn apply_filters(&mut self, parent: Handle, filters: &FilterList) -> Result<(), SpecError> {
        // Most kinds have none.
        let own = self.spec().filters_of(parent).ok();
        if own.map_or(filters.is_empty(), |own| own == filters) {
            return Ok(());
        }
        let mut filters = filters.clone();
        // The counts are those of this tree alone.
        filters.reset();
        let is_empty = filters.is_empty();
        for lists in &mut self.tree.filters {
            lists.insert(parent, filters.counting_apart());
        }
        *self.tree.spec.filters_mut(parent)? = filters;
        if parent.minor() != 0 {
            if is_empty {
                self.tree.spec.filtered.remove(&parent);
            } else {
                self.tree.spec.filtered.insert(parent);
            }
        }
        self.refilter(parent)
    }
}
