//! Changes of a tree that is in use.
//!
//! A change is checked against the tree and allocated first; nothing can fail after that. Then the
//! owner of each queue applies it, in a time that does not depend on the tree's size. Where each
//! queue has an instance of the tree they change one after the other, and all have changed when
//! the call ends.
//!
//! Packets in a qdisc that is replaced or deleted move to what is attached there afterwards, in the
//! order in which they would have left; those that do not fit are dropped and counted as
//! `qdisc_limit`.

mod classes;
mod filters;

use std::collections::BTreeMap;
use std::sync::Arc;

use softnet::qdisc::{Cx, QdiscStats};
use softnet::time::Clock;
use softnet::tx::{Device, Qdiscs, TxRing};

use super::error::TreeError;
use super::instances::DeviceTree;
use super::spec::{Node, TreeSpec};
use crate::account::{Accounted, EstimatorSpec, SizeTable};
use crate::handle::Handle;
use crate::qdisc::{AnyQdisc, FlowStats, QdiscSpec, SpecError};
use crate::rate::RateGroup;

/// Where the instances of a tree are. Each call ends when the change is in effect.
pub trait Queues {
    /// Gives all queues other qdiscs. What is queued moves.
    fn install(&mut self, qdiscs: Qdiscs<AnyQdisc>);

    /// Gives one queue another qdisc. What is queued moves.
    fn install_at(&mut self, queue: usize, qdisc: AnyQdisc);

    /// Calls `f`, once, as the owner of a queue.
    fn with(&mut self, queue: usize, f: &mut dyn FnMut(&mut AnyQdisc, &mut Cx));
}

/// Trees are changed by threads of the control path.
const OUTSIDE: &str = "not called by a driver or a qdisc, for a queue that there is";

/// A device. The clock is read when a queue has been taken from its owner, which may take long.
///
/// # Panics
/// Where a driver or a qdisc of a device changes a tree: it might wait for itself.
impl<R: TxRing> Queues for (&Device<R, AnyQdisc>, &Clock) {
    fn install(&mut self, qdiscs: Qdiscs<AnyQdisc>) {
        self.0.set_qdiscs(qdiscs, self.1).expect(OUTSIDE);
    }

    fn install_at(&mut self, queue: usize, qdisc: AnyQdisc) {
        let done = self.0.set_qdisc_at(queue, qdisc, self.1);
        done.expect(OUTSIDE);
    }

    fn with(&mut self, queue: usize, f: &mut dyn FnMut(&mut AnyQdisc, &mut Cx)) {
        self.0.with_qdisc(queue, self.1, f).expect(OUTSIDE);
    }
}

impl DeviceTree {
    /// The tree together with its instances, to change both. `queues` must be what has the
    /// instances.
    pub fn on<Q: Queues>(&mut self, queues: Q) -> Live<'_, Q> {
        Live { tree: self, queues }
    }
}

/// A tree and the queues with its instances. Each change is in effect, on all queues, when the
/// call ends; if it fails, nothing has changed.
#[derive(Debug)]
pub struct Live<'a, Q> {
    pub(crate) tree: &'a mut DeviceTree,
    pub(crate) queues: Q,
}

impl<Q: Queues> Live<'_, Q> {
    /// Tree as configuration.
    pub fn spec(&self) -> &TreeSpec {
        &self.tree.spec
    }

    /// Puts another tree in the place of this one.
    ///
    /// # Errors
    /// As [`DeviceTree::new`].
    pub fn set(&mut self, spec: impl Into<TreeSpec>) -> Result<(), SpecError> {
        let (tree, roots) = DeviceTree::new(spec, self.tree.queues, &self.tree.env)?;
        *self.tree = tree;
        self.queues.install(roots);
        Ok(())
    }

    /// Attaches a qdisc to a free class or the root; see [`TreeSpec::add`].
    ///
    /// # Errors
    /// As [`TreeSpec::add`].
    pub fn add(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        self.check(parent, &qdisc)?;
        let before = self.tree.instances();
        let handle = self.tree.spec.add(parent, handle, qdisc)?;
        self.put(handle, &[], before)
    }

    /// Attaches a qdisc where another may be; see [`TreeSpec::replace`].
    ///
    /// # Errors
    /// As [`TreeSpec::replace`].
    pub fn replace(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        self.check(parent, &qdisc)?;
        let gone = self.tree.attached(self.tree.spec.class(parent));
        let before = self.tree.instances();
        let handle = self.tree.spec.replace(parent, handle, qdisc)?;
        self.put(handle, &gone, before)
    }

    /// Gives a qdisc other parameters of its kind; see [`AnyQdisc::change`].
    ///
    /// # Errors
    /// As [`TreeSpec::change`].
    pub fn change(&mut self, handle: Handle, qdisc: &QdiscSpec) -> Result<(), SpecError> {
        let mut gone = Vec::new();
        for child in self.tree.spec.children_beyond(handle, qdisc) {
            self.tree.spec.subtree(child, &mut gone);
        }
        self.tree.spec.change(handle, qdisc.clone())?;
        self.tree.forget(&gone);
        if let Some(child) = qdisc.queue_child() {
            return self.change_queues(&child);
        }
        self.each_at(handle, |tree, index, own, cx| {
            own.change(qdisc, cx)?;
            // There are never many classes that it comes with.
            if !qdisc.adds_classes() {
                if index == 0 {
                    tree.unbind(handle);
                }
                tree.bind(handle, own);
            }
            Ok(())
        })
    }

    /// Gives the qdiscs at all queues other parameters, which have been checked.
    fn change_queues(&mut self, qdisc: &QdiscSpec) -> Result<(), SpecError> {
        for queue in 0..self.tree.queues {
            let mut result = Ok(());
            self.queues
                .with(queue, &mut |own, cx| result = own.change(qdisc, cx));
            result?;
        }
        self.tree.rates.assert_taken();
        Ok(())
    }

    /// Removes a qdisc and all below it. Its class gets back what it came with, the root the
    /// default (BUG-PRIO-2).
    ///
    /// # Errors
    /// If there is no such qdisc.
    pub fn delete(&mut self, handle: Handle) -> Result<(), SpecError> {
        let mut gone = Vec::new();
        self.tree.spec.subtree(handle, &mut gone);
        let before = self.tree.instances();
        let Node { parent, .. } = self.tree.spec.delete(handle)?;
        self.tree.forget(&gone);
        if self.is_remade(before) {
            return Ok(());
        }
        let above = self.tree.spec.node(parent.qdisc());
        let env = &self.tree.env;
        let default = above.map_or(QdiscSpec::Default, |node| node.qdisc.default_child(env));
        let make = |tree: &mut DeviceTree, index| match default {
            QdiscSpec::Default => tree.default_instance(parent),
            _ => default.make(Handle::NONE, &tree.env_of(index)),
        };
        self.graft(parent, make, true)
    }

    /// Frames that a queue of the device holds where nothing else is said, from now on: also what
    /// the default qdiscs at transmit queues hold, as in the kernel
    /// (`dev_qdisc_change_tx_queue_len`). Of those only `pfifo_fast` follows.
    ///
    /// # Errors
    /// If a default qdisc cannot hold so many.
    pub fn set_tx_queue_len(&mut self, frames: u32) -> Result<(), SpecError> {
        let limit = QdiscSpec::PfifoFast { limit: frames };
        limit.check()?;
        self.tree.env.txqueuelen = frames;
        if self.tree.env.default_spec() != limit {
            return Ok(());
        }
        let root = self.tree.spec.root();
        let keeps_default =
            |root: &Node| root.qdisc.is_per_queue() && root.qdisc.queue_child().is_none();
        if root.map_or(self.tree.env.no_queue, |root| !keeps_default(root)) {
            return Ok(());
        }
        let root = root.map(|root| root.handle);
        let mut results = Vec::new();
        for (minor, queue) in (1..).zip(0..self.tree.queues) {
            if root.is_none_or(|root| self.tree.spec.child_of(root.class(minor)).is_none()) {
                let change = &mut |own: &mut AnyQdisc, cx: &mut Cx| {
                    results.push(own.change(&limit, cx));
                };
                self.queues.with(queue, change);
            }
        }
        results.into_iter().collect()
    }

    /// Sets whether the tree has an instance at each transmit queue from now on
    /// ([`parallel`](crate::QdiscEnv::parallel)). If their number changes, all are made anew: what
    /// is queued moves, and they count from zero. So it is with a change that brings a qdisc of
    /// which there is one instance in any case, or takes the last one away.
    pub fn set_parallel(&mut self, parallel: bool) {
        let before = self.tree.instances();
        self.tree.env.parallel = parallel;
        self.is_remade(before);
    }

    /// Makes all instances anew if a change made another number of them; see
    /// [`set_parallel`](Live::set_parallel). False: as many as before.
    fn is_remade(&mut self, before: usize) -> bool {
        let other = self.tree.instances() != before;
        if other {
            let roots = self.tree.roots();
            self.queues.install(roots);
        }
        other
    }

    /// Checks what depends on the device's queues.
    fn check(&self, parent: Handle, qdisc: &QdiscSpec) -> Result<(), SpecError> {
        qdisc.check_for(self.tree.queues)?;
        self.tree.spec.check_class(parent, self.tree.queues)
    }

    /// Gives the queues the instance of a qdisc that has come into the tree.
    fn put(
        &mut self,
        handle: Handle,
        gone: &[Handle],
        instances: usize,
    ) -> Result<Handle, SpecError> {
        self.tree.forget(gone);
        if self.is_remade(instances) {
            return Ok(handle);
        }
        let parent = self.tree.spec.existing(handle)?.parent;
        // Those of what came by itself.
        self.tree.xstats.remove(&parent);
        self.graft(parent, |tree, index| tree.instance(index, handle), false)?;
        Ok(handle)
    }

    /// Replaces the instances at a class by those that `make` makes; at the root, those of all
    /// queues.
    fn graft(
        &mut self,
        class: Handle,
        make: impl Fn(&mut DeviceTree, usize) -> AnyQdisc,
        default: bool,
    ) -> Result<(), SpecError> {
        if class == Handle::ROOT {
            let roots = self.tree.roots();
            self.queues.install(roots);
            return Ok(());
        }
        let (queues, path) = self.tree.locate(class)?;
        let fresh = (0..queues.len()).map(|index| make(self.tree, index));
        let fresh: Vec<AnyQdisc> = fresh.collect();
        let mut before = QdiscStats::default();
        for (index, (queue, mut fresh)) in queues.zip(fresh).enumerate() {
            if path.is_empty() {
                self.tree.limit(&mut fresh);
                self.queues.install_at(queue, fresh);
                continue;
            }
            let mut fresh = Some(fresh);
            // Freed when the queue has been given up.
            let mut old = None;
            let tree = &*self.tree;
            self.queues.with(queue, &mut |root, cx| {
                // What is dropped as it moves is the new one's.
                let kept = tree.kept_stats(class, index).unwrap_or_default();
                before = [before, kept].into_iter().sum();
                let fresh = fresh.take();
                old = fresh.and_then(|fresh| root.graft(&path, fresh, default, cx));
            });
            old.map(drop).ok_or(TreeError::NoClass(class))?;
        }
        self.tree.rates.assert_taken();
        if let Some(counted) = self.tree.counters.get_mut(&class) {
            counted.before = before;
        }
        Ok(())
    }

    /// Does something with each instance of a qdisc, by its number.
    pub(crate) fn each_at(
        &mut self,
        handle: Handle,
        mut f: impl FnMut(&mut DeviceTree, usize, &mut AnyQdisc, &mut Cx) -> Result<(), SpecError>,
    ) -> Result<(), SpecError> {
        let parent = self.tree.spec.existing(handle)?.parent;
        let (queues, path) = self.tree.locate(parent)?;
        for (index, queue) in queues.enumerate() {
            let mut result = None;
            let tree = &mut *self.tree;
            self.queues.with(queue, &mut |root, cx| {
                result = root.at(&path, cx, |own, cx| f(tree, index, own, cx));
            });
            result.unwrap_or_else(|| Err(TreeError::NoQdisc(handle).into()))?;
        }
        self.tree.rates.assert_taken();
        Ok(())
    }

    /// The flows with packets of an `fq_codel`, by class: at most `most` from the class `from` on.
    /// Another qdisc has none, nor has one that is not there any more. Takes the queues from their
    /// owners, each for a time that depends on the number of flows, not on that of packets.
    ///
    /// # Errors
    /// If a queue cannot be read.
    pub fn flows(
        &mut self,
        from: Handle,
        most: usize,
    ) -> Result<Vec<(Handle, FlowStats)>, SpecError> {
        let mut all: BTreeMap<u16, FlowStats> = BTreeMap::new();
        let qdisc = self.tree.spec.node(from.qdisc()).map(|node| &node.qdisc);
        if !matches!(qdisc, Some(QdiscSpec::FqCodel(_))) {
            return Ok(Vec::new());
        }
        self.each_at(from.qdisc(), |_, _, own, cx| {
            if let AnyQdisc::FqCodel(own) = own {
                for (class, flow) in own.classes_from(from.minor(), cx.now).take(most) {
                    let known = all.entry(class).or_default();
                    *known = known.join(flow);
                }
            }
            Ok(())
        })?;
        let named = all.into_iter().take(most);
        Ok(named
            .map(|(class, flow)| (from.class(class), flow))
            .collect())
    }

    /// Sets the limit that all queues of the device share with others, or none.
    /// What is queued stays.
    pub fn set_group(&mut self, group: Option<Arc<RateGroup>>) {
        self.tree.env.group = group;
        for queue in 0..self.tree.queues {
            let group = self.tree.env.group.as_ref();
            let mut fresh = group.map(|group| Accounted::limited(group.join()));
            // Freed when the queue has been given up.
            let mut old = None;
            self.queues
                .with(queue, &mut |root, _| old = root.set_limit(&mut fresh));
            drop((old, fresh));
        }
    }

    /// Gives a qdisc a size table, or takes it away; see [`TreeSpec::set_stab`]. What is queued
    /// counts as before until it has left.
    ///
    /// # Errors
    /// As [`TreeSpec::set_stab`].
    pub fn set_stab(&mut self, handle: Handle, table: Option<SizeTable>) -> Result<(), SpecError> {
        self.tree.spec.set_stab(handle, table.clone())?;
        let node = self.tree.spec.existing(handle)?;
        let is_passed = node.qdisc != QdiscSpec::Noqueue && !node.qdisc.is_per_queue();
        let (queues, path) = self.tree.locate(node.parent)?;
        if is_passed && path.is_empty() {
            let fresh = |_| table.clone().map(Accounted::new);
            let fresh: Vec<_> = queues.clone().map(fresh).collect();
            for (queue, mut fresh) in queues.zip(fresh) {
                // Freed when the queue has been given up.
                let mut old = None;
                self.queues
                    .with(queue, &mut |root, _| old = root.set_table(&mut fresh));
            }
        }
        Ok(())
    }

    /// Lets a rate be estimated; see [`TreeSpec::set_estimator`]. One that is estimated goes on
    /// from what it was.
    ///
    /// # Errors
    /// As [`TreeSpec::set_estimator`].
    pub fn set_estimator(&mut self, name: Handle, spec: EstimatorSpec) -> Result<(), SpecError> {
        self.tree.spec.set_estimator(name, spec)?;
        self.tree.estimators.start(name, spec);
        Ok(())
    }
}
