//! The tree of a device: the control path's own object, and how the instances that its queues run
//! are made of it. Statistics are read where the owners of the queues write them, so a dump takes
//! no queue from its owner, but for the flows of `fq_codel`.
//!
//! A tree has one instance for all queues, or one at each transmit queue. Each has counters and
//! filters of its own, which its queue's owner writes. The control path changes all instances in
//! the same way, so the lists of filters stay equal but for what they have counted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use softnet::mem::Pool;
use softnet::qdisc::{Cx, QdiscStats};
use softnet::tx::Qdiscs;

use super::error::TreeError;
use super::hook::Copies;
use super::spec::{Node, TreeSpec};
use crate::account::{Accounted, Child, Children, ClassCounters, Estimators, Xstats};
use crate::action::ActionList;
use crate::filter::{
    FilterError, FilterKey, FilterList, FilterOp, FilterSelector, FilterSpec, Filters,
};
use crate::handle::Handle;
use crate::qdisc::{AnyQdisc, QdiscEnv, QdiscSpec, SpecError};
use crate::rate::{Instance, SharedRates};

/// Where the statistics of a class are.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// By instance.
    pub(crate) instances: Vec<Arc<ClassCounters>>,
    /// Statistics from before the class got the qdisc that it has now.
    pub(crate) before: QdiscStats,
}

/// The tree of a device: its qdiscs, classes and filters, with the statistics of all of them.
#[derive(Debug)]
pub struct DeviceTree {
    pub(crate) spec: TreeSpec,
    pub(crate) env: QdiscEnv,
    pub(crate) queues: usize,
    /// Counters of each class that is not a transmit queue.
    pub(crate) counters: BTreeMap<Handle, Counted>,
    /// Statistics of each qdisc whose kind has some.
    pub(crate) xstats: BTreeMap<Handle, Xstats>,
    pub(crate) estimators: Estimators,
    /// The filters of each instance after the first, by what they belong to. The first one runs
    /// those of `spec`.
    pub(crate) filters: Vec<BTreeMap<Handle, FilterList>>,
    pub(crate) rates: Arc<SharedRates>,
    /// Copies of the filters at each hook.
    pub(super) hook_copies: [Copies; 2],
}

impl DeviceTree {
    /// A tree for a device with `queues` transmit queues, and the instances for them.
    ///
    /// # Errors
    /// If parameters are wrong, the device has not the queues that the tree names, or rates are
    /// shares of a speed that is not known.
    pub fn new(
        spec: impl Into<TreeSpec>,
        queues: usize,
        env: &QdiscEnv,
    ) -> Result<(DeviceTree, Qdiscs<AnyQdisc>), SpecError> {
        let mut spec = spec.into();
        if spec.has_shares() {
            spec = spec.at_speed(env.speed)?;
        }
        spec.check_for(queues)?;
        let mut tree = DeviceTree {
            spec,
            env: env.clone(),
            queues,
            counters: BTreeMap::new(),
            xstats: BTreeMap::new(),
            estimators: Estimators::default(),
            filters: Vec::new(),
            rates: Arc::new(SharedRates::new(queues)),
            hook_copies: Default::default(),
        };
        tree.make_hook();
        let roots = tree.roots();
        Ok((tree, roots))
    }

    /// Another MTU of the device, for the qdiscs that are made from now on.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.env.mtu = mtu;
    }

    /// Environment that its qdiscs are made for.
    pub fn env(&self) -> &QdiscEnv {
        &self.env
    }

    /// Tree as configuration.
    pub fn spec(&self) -> &TreeSpec {
        &self.spec
    }

    /// Makes the instances for all queues.
    pub(crate) fn roots(&mut self) -> Qdiscs<AnyQdisc> {
        self.counters.clear();
        self.xstats.clear();
        self.estimators = Estimators::default();
        let count = self.instances();
        self.filters = vec![BTreeMap::new(); count - 1];
        let root = self
            .spec
            .root()
            .map(|root| (root.handle, root.qdisc.clone()));
        let mut map = None;
        let mut active = self.queues;
        let mut instances = Vec::with_capacity(self.queues);
        match root {
            None if self.env.no_queue => {
                let noqueue = |_| QdiscSpec::Noqueue.make(Handle::NONE, &self.env);
                instances.extend((0..self.queues).map(noqueue));
            }
            None if self.queues == 1 => instances.push(self.default_instance(Handle::ROOT)),
            None => {
                for (minor, _) in (1..).zip(0..self.queues) {
                    instances.push(self.default_instance(Handle::NONE.class(minor)));
                }
            }
            Some((handle, QdiscSpec::Noqueue)) => {
                let noqueue = |_| QdiscSpec::Noqueue.make(handle, &self.env);
                instances.extend((0..self.queues).map(noqueue));
            }
            Some((handle, qdisc)) if qdisc.is_per_queue() => {
                map = qdisc.queue_map().cloned();
                let fixed = qdisc.queue_child();
                for (minor, queue) in (1..).zip(0..self.queues) {
                    if let Some(fixed) = &fixed {
                        instances.push(self.fixed_instance(queue, handle, fixed));
                        continue;
                    }
                    let class = handle.class(minor);
                    let child = self.spec.child_of(class).map(|n| n.handle);
                    instances.push(match child {
                        Some(child) => self.instance(0, child),
                        None => self.default_instance(class),
                    });
                }
            }
            // One for all queues, and the others' are not used; or one at each.
            Some((handle, _)) => {
                active = count.min(active);
                instances.extend((0..count).map(|index| self.instance(index, handle)));
            }
        }
        let unused = QdiscSpec::PfifoFast {
            limit: self.env.txqueuelen,
        };
        instances.resize_with(self.queues, || unused.make(Handle::NONE, &self.env));
        instances.iter_mut().for_each(|root| self.limit(root));
        self.rates.assert_taken();
        Qdiscs {
            instances,
            active,
            map,
        }
    }

    /// Makes a qdisc and all below it, of the instance of this number.
    pub(crate) fn instance(&mut self, index: usize, handle: Handle) -> AnyQdisc {
        let env = self.env_of(index);
        let Some(node) = self.spec.node(handle) else {
            return QdiscSpec::Default.make(handle, &env);
        };
        let mut qdisc = node.qdisc.make(handle, &env);
        if let Some(children) = qdisc.children_mut() {
            children.set_handle(handle);
        }
        self.make_classes(node, handle, &mut qdisc, &env, &mut Cx::new(&env.pool));
        self.make_filters(index, handle, &mut qdisc);
        let below: Vec<(u16, Handle)> = self
            .spec
            .children_of(handle, 1)
            .map(|child| (child.parent.minor(), child.handle))
            .collect();
        for (minor, child) in below {
            let child = self.instance(index, child);
            if let Some(children) = qdisc.children_mut()
                && let Some(slot) = children.find(minor)
            {
                children.set(slot, child);
            }
        }
        self.bind(handle, &qdisc);
        if index == 0 {
            self.start_estimators(handle);
        }
        let stab = self.spec.node(handle).and_then(|node| node.stab.clone());
        qdisc.set_table(&mut stab.map(Accounted::new));
        qdisc
    }

    /// Makes the qdisc of a transmit queue to which none is attached. Its statistics are found by
    /// `class`.
    pub(crate) fn default_instance(&mut self, class: Handle) -> AnyQdisc {
        let qdisc = QdiscSpec::Default.make(Handle::NONE, &self.env);
        if let Some(xstats) = qdisc.xstats() {
            self.xstats.insert(class, xstats.clone());
        }
        qdisc
    }

    /// Makes the qdisc of a queue that cannot have another one: all of them are one.
    fn fixed_instance(&mut self, queue: usize, root: Handle, qdisc: &QdiscSpec) -> AnyQdisc {
        let instance = Instance {
            index: queue,
            rates: self.rates.clone(),
        };
        let env = QdiscEnv {
            instance: Some(instance),
            ..self.env.clone()
        };
        let qdisc = qdisc.make(root, &env);
        if let Some(xstats) = qdisc.xstats() {
            let minor = u16::try_from(queue + 1).unwrap_or(u16::MAX);
            self.xstats.insert(root.class(minor), xstats.clone());
        }
        qdisc
    }

    /// Adds the classes below `parent`, a qdisc or a class, that it did not come with.
    fn make_classes(
        &self,
        node: &Node,
        parent: Handle,
        qdisc: &mut AnyQdisc,
        env: &QdiscEnv,
        cx: &mut Cx,
    ) {
        for class in self.spec.classes_below(parent) {
            if let Some(added) = self.spec.class_node(class) {
                let child = Child::new(class_queue(node, env));
                qdisc.add_class(class.minor(), parent.minor(), &added.spec, child, cx);
                self.make_classes(node, class, qdisc, env, cx);
            }
        }
    }

    /// Gives an instance the filters of the qdisc and of its classes. They count from zero: the
    /// configuration may have been another tree's.
    fn make_filters(&mut self, index: usize, handle: Handle, qdisc: &mut AnyQdisc) {
        let classes = handle.class(1)..=handle.class(u16::MAX);
        let classes: Vec<Handle> = self.spec.filtered.range(classes).copied().collect();
        for parent in std::iter::once(handle).chain(classes) {
            if let Ok(list) = self.spec.filters_mut(parent)
                && !list.is_empty()
            {
                let fresh = if let Some(other) = index.checked_sub(1) {
                    let copy = list.counting_apart();
                    let filters = copy.filters();
                    self.filters[other].insert(parent, copy);
                    filters
                } else {
                    list.reset();
                    list.filters()
                };
                qdisc.set_filters(parent.minor(), fresh);
            }
        }
    }

    /// Takes note of where the statistics of a qdisc and of its classes are: of its first instance,
    /// then of its second, and so on.
    pub(crate) fn bind(&mut self, handle: Handle, qdisc: &AnyQdisc) {
        if let Some(xstats) = qdisc.xstats() {
            let known = self.xstats.entry(handle);
            known
                .and_modify(|first| first.join(xstats))
                .or_insert_with(|| xstats.clone());
        }
        for (minor, child) in qdisc.children().into_iter().flat_map(Children::classes) {
            let counters = self.counters.entry(handle.class(minor)).or_default();
            counters.instances.push(child.counters().clone());
        }
    }

    /// Forgets where the statistics of a qdisc and of its classes are.
    pub(crate) fn unbind(&mut self, handle: Handle) {
        self.xstats.remove(&handle);
        // From 0 on: the qdisc may be a class itself.
        let classes = handle..=handle.class(u16::MAX);
        let classes: Vec<Handle> = self.counters.range(classes).map(|(c, _)| *c).collect();
        for class in classes {
            self.counters.remove(&class);
            self.estimators.stop(class);
        }
    }

    /// Forgets what belonged to qdiscs that were removed. One of the same name may be there.
    pub(crate) fn forget(&mut self, gone: &[Handle]) {
        for &handle in gone {
            self.unbind(handle);
            for lists in &mut self.filters {
                let of = handle..=handle.class(u16::MAX);
                let of: Vec<Handle> = lists.range(of).map(|(parent, _)| *parent).collect();
                of.iter().for_each(|parent| drop(lists.remove(parent)));
            }
            if self.spec.node(handle).is_none() {
                self.estimators.stop(handle);
            }
        }
    }

    /// Qdisc that is attached to a class, and all below it.
    pub(crate) fn attached(&self, class: Handle) -> Vec<Handle> {
        let mut all = Vec::new();
        if let Some(node) = self.spec.child_of(class) {
            self.spec.subtree(node.handle, &mut all);
        }
        all
    }

    /// The queues with the instances of what is attached to `class`, and the path there from their
    /// roots.
    pub(crate) fn locate(&self, class: Handle) -> Result<(Range<usize>, Vec<Handle>), SpecError> {
        let mut path = self.spec.path(class)?;
        let per_queue = self
            .spec
            .root()
            .is_some_and(|root| root.qdisc.is_per_queue());
        if per_queue && !path.is_empty() {
            let queue = usize::from(path.remove(0).minor());
            return Ok((queue - 1..queue, path));
        }
        Ok((0..self.instances(), path))
    }

    /// Instances of what is at the root, or of each qdisc that is at one queue.
    pub fn instances(&self) -> usize {
        let root = self.spec.root();
        let is_one = root.is_some_and(|root| !root.qdisc.is_root_only());
        if self.env.parallel && is_one && !self.spec.is_single(Handle::NONE) {
            self.queues.max(1)
        } else {
            1
        }
    }

    /// Environment that the qdiscs of an instance are made for.
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

    /// Adds or changes a filter of all instances; see
    /// [`TreeSpec::put_filter`](crate::TreeSpec::put_filter).
    pub(crate) fn put_filter(
        &mut self,
        op: FilterOp,
        filter: FilterSpec,
    ) -> Result<FilterKey, FilterError> {
        let parent = filter.parent;
        if let Some(side) = self.hook_side(parent) {
            let filter = FilterSpec {
                parent: side.parent(),
                ..filter
            };
            let key = self.spec.put_filter(op, filter.clone())?;
            self.put_in_copies(op, &filter)?;
            return Ok(key);
        }
        let copies: Vec<_> = self.filters.iter().map(|_| filter.clone()).collect();
        let key = self.spec.put_filter(op, filter)?;
        for (lists, filter) in self.filters.iter_mut().zip(copies) {
            // It is the same list but for what it has counted, and says the same. What an empty one
            // has chosen once does not matter to it.
            lists.entry(parent).or_default().put(op, filter)?;
        }
        Ok(key)
    }

    /// Gives filters of all instances other actions; see [`FilterList::map_actions`]. Returns whose
    /// filters changed.
    pub(crate) fn map_actions(
        &mut self,
        f: impl FnMut(&ActionList) -> Option<ActionList>,
    ) -> Vec<Handle> {
        let mut f = ActionList::once_each(f);
        let mut changed = self.spec.map_actions(&mut f);
        for lists in &mut self.filters {
            for (parent, list) in lists {
                if list.map_actions(&mut f) && !changed.contains(parent) {
                    changed.push(*parent);
                }
            }
        }
        for copies in &mut self.hook_copies {
            for list in &mut copies.lists {
                copies.changed |= list.map_actions(&mut f);
            }
        }
        changed
    }

    /// Removes filters of all instances; see
    /// [`TreeSpec::delete_filters`](crate::TreeSpec::delete_filters).
    pub(crate) fn delete_filters(
        &mut self,
        parent: Handle,
        which: FilterSelector<'_>,
    ) -> Result<(), FilterError> {
        self.spec.delete_filters(parent, which)?;
        self.delete_in_copies(parent, which)?;
        for lists in &mut self.filters {
            if let Some(list) = lists.get_mut(&parent) {
                list.delete(which)?;
            }
        }
        Ok(())
    }

    /// Filters of a qdisc or class for each instance to run.
    pub(crate) fn filters_to_run(&self, parent: Handle) -> Vec<Filters> {
        let first = self.spec.filters_of(parent).ok();
        let others = self.filters.iter().map(|lists| lists.get(&parent));
        let lists = std::iter::once(first).chain(others);
        lists
            .map(|list| list.map(FilterList::filters).unwrap_or_default())
            .collect()
    }

    /// Gives the root of a queue what the device's group says, if it is in one.
    pub(crate) fn limit(&self, root: &mut AnyQdisc) {
        if let Some(group) = &self.env.group {
            root.set_limit(&mut Some(Accounted::limited(group.join())));
        }
    }

    /// Starts the estimators of a new qdisc and its classes.
    pub(crate) fn start_estimators(&mut self, handle: Handle) {
        // One with this name may have been replaced.
        self.estimators.stop(handle);
        let names = handle..=handle.class(u16::MAX);
        for (&name, &spec) in self.spec.estimators.range(names) {
            self.estimators.start(name, spec);
        }
    }
}

/// The queue that a class comes with.
pub(crate) fn class_queue(node: &Node, env: &QdiscEnv) -> AnyQdisc {
    node.qdisc.default_child(env).make(Handle::NONE, env)
}

impl QdiscSpec {
    /// Builds the qdiscs of a device with `queues` transmit queues that is not changed later; see
    /// [`DeviceTree`].
    ///
    /// # Errors
    /// As [`DeviceTree::new`].
    pub fn instances(&self, queues: usize, pool: &Pool) -> Result<Qdiscs<AnyQdisc>, SpecError> {
        Ok(DeviceTree::new(self.clone(), queues, &QdiscEnv::new(pool))?.1)
    }

    /// Builds an empty qdisc, for a device with one transmit queue.
    ///
    /// # Errors
    /// As [`DeviceTree::new`].
    pub fn build(&self, env: &QdiscEnv) -> Result<AnyQdisc, SpecError> {
        let (_, mut roots) = DeviceTree::new(self.clone(), 1, env)?;
        roots
            .instances
            .pop()
            .ok_or_else(|| SpecError::OneQueue(self.kind()))
    }
}
