//! A tree with one instance at each transmit queue: how many there are, the filters of each, and
//! the sums of what they count.
//!
//! Each instance has counters of its own, which its queue's owner writes, and filters of its own,
//! because they count, too. The control path changes all instances in the same way, so the lists of
//! filters stay equal but for what they have counted.

use softnet::qdisc::QdiscStats;

use super::instances::{DeviceTree, class_queue};
use super::spec::TreeError;
use crate::filter::{
    FilterError, FilterKey, FilterList, FilterOp, FilterSelector, FilterSpec, FilterStats, Filters,
};
use crate::handle::Handle;
use crate::qdisc::{AnyQdisc, ClassSpec, HtbClassStats, QdiscEnv};
use crate::rate::Instance;

impl DeviceTree {
    /// Instances of what is at the root, or of each qdisc that is at one queue.
    pub fn instances(&self) -> usize {
        let root = self.spec.root();
        let is_one = root.is_some_and(|root| !root.qdisc.is_root_only());
        if self.env.parallel && is_one {
            self.queues.max(1)
        } else {
            1
        }
    }

    /// What the qdiscs of an instance are made for.
    pub(crate) fn env_of(&self, index: usize) -> QdiscEnv {
        let instance = (self.instances() > 1).then(|| Instance {
            index,
            rates: self.rates.clone(),
        });
        QdiscEnv {
            instance,
            ..self.env.clone()
        }
    }

    /// The queues that a class comes with, by instance.
    pub(crate) fn class_queues(&self, qdisc: Handle) -> Result<Vec<AnyQdisc>, TreeError> {
        let node = self.spec.existing(qdisc)?;
        let queue = |index| class_queue(node, &self.env_of(index));
        Ok((0..self.instances()).map(queue).collect())
    }

    /// The statistics of a class that is not a transmit queue.
    pub(crate) fn class_stats(&self, class: Handle) -> Option<QdiscStats> {
        let counters = &self.counters.get(&class)?.instances;
        Some(counters.iter().map(|counters| counters.get()).sum())
    }

    /// Those that an instance of a class has, if the class counts on when it gets another qdisc.
    pub(crate) fn kept_stats(&self, class: Handle, index: usize) -> Option<QdiscStats> {
        let above = self.spec.node(class.qdisc())?;
        let counters = self.counters.get(&class)?.instances.get(index);
        let stats = counters.filter(|_| above.qdisc.adds_classes())?.get();
        Some(QdiscStats {
            qlen: 0,
            backlog: 0,
            queued: 0,
            memory: 0,
            ..stats
        })
    }

    /// Those of a class of `htb`.
    pub(crate) fn htb_stats(&self, class: Handle) -> Option<HtbClassStats> {
        let class_spec = self.spec.class_node(class).map(|node| &node.spec);
        match (class_spec, self.counters.get(&class)) {
            (Some(ClassSpec::Htb(spec)), Some(counters)) => {
                let stats = counters
                    .instances
                    .iter()
                    .map(|counters| counters.htb.get(spec));
                stats.reduce(HtbClassStats::join)
            }
            _ => None,
        }
    }

    /// A filter with what it has counted in all instances, from what its list in
    /// [`spec`](DeviceTree::spec) says of it: those counts are the first instance's.
    pub fn filter_sum<'a>(
        &self,
        (filter, mut sum): (&'a FilterSpec, FilterStats),
    ) -> (&'a FilterSpec, FilterStats) {
        for lists in &self.filters {
            let list = lists.get(&filter.parent);
            if let Some(Ok((_, stats))) = list.map(|list| list.get(filter.key())) {
                sum.add(&stats);
            }
        }
        (filter, sum)
    }

    /// Adds or changes a filter of all instances; see
    /// [`TreeSpec::put_filter`](crate::TreeSpec::put_filter).
    pub(crate) fn put_filter(
        &mut self,
        op: FilterOp,
        filter: FilterSpec,
    ) -> Result<FilterKey, FilterError> {
        let parent = filter.parent;
        let copies: Vec<_> = self.filters.iter().map(|_| filter.clone()).collect();
        let key = self.spec.put_filter(op, filter)?;
        for (lists, filter) in self.filters.iter_mut().zip(copies) {
            // It is the same list but for what it has counted, and says the same. What an empty one
            // has chosen once does not matter to it.
            lists.entry(parent).or_default().put(op, filter)?;
        }
        Ok(key)
    }

    /// Removes filters of all instances; see
    /// [`TreeSpec::delete_filters`](crate::TreeSpec::delete_filters).
    pub(crate) fn delete_filters(
        &mut self,
        parent: Handle,
        which: FilterSelector<'_>,
    ) -> Result<(), FilterError> {
        self.spec.delete_filters(parent, which)?;
        for lists in &mut self.filters {
            if let Some(list) = lists.get_mut(&parent) {
                list.delete(which)?;
            }
        }
        Ok(())
    }

    /// What each instance is to run of the filters of a qdisc or class.
    pub(crate) fn filters_to_run(&self, parent: Handle) -> Vec<Filters> {
        let first = self.spec.filters_of(parent).ok();
        let others = self.filters.iter().map(|lists| lists.get(&parent));
        let lists = std::iter::once(first).chain(others);
        lists
            .map(|list| list.map(FilterList::filters).unwrap_or_default())
            .collect()
    }
}
