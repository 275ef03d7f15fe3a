//! Changes of the classes of a tree in use.

use softnet::qdisc::{Cx, QdiscStats};

use super::{Live, Queues};
use crate::account::Child;
use crate::handle::Handle;
use crate::qdisc::{AnyQdisc, ClassSpec, Left, SpecError};
use crate::tree::DeviceTree;
use crate::tree::instances::Counted;

impl<Q: Queues> Live<'_, Q> {
    /// Adds a class below a qdisc or one of its classes; see
    /// [`TreeSpec::add_class`](crate::TreeSpec::add_class). What waits in a class that is no leaf
    /// any more is enqueued again, or dropped and counted, as its kind does it.
    ///
    /// # Errors
    /// As [`TreeSpec::add_class`](crate::TreeSpec::add_class).
    pub fn add_class(
        &mut self,
        parent: Handle,
        class: Handle,
        spec: ClassSpec,
    ) -> Result<(), SpecError> {
        let instances = self.tree.instances();
        let given = parent;
        let parent = self.tree.spec.above_class(parent, class);
        // What is attached to a qdisc itself is nothing.
        let gone = self.tree.attached(parent);
        self.tree.spec.add_class(given, class, spec.clone())?;
        self.tree.forget(&gone);
        if self.is_remade(instances) {
            return Ok(());
        }
        let qdisc = class.qdisc();
        let queues = self.tree.class_queues(qdisc)?;
        let children: Vec<_> = queues.into_iter().map(Child::new).collect();
        let counters = children.iter().map(|child| child.counters().clone());
        let counted = Counted {
            instances: counters.collect(),
            before: QdiscStats::default(),
        };
        self.tree.counters.insert(class, counted);
        let mut children = children.into_iter();
        self.at_qdisc(qdisc, |_, _, own, cx| {
            own.add_class(class.minor(), parent.minor(), &spec, children.next()?, cx)
        })
    }

    /// Gives a class other parameters; see
    /// [`TreeSpec::change_class`](crate::TreeSpec::change_class).
    ///
    /// # Errors
    /// As [`TreeSpec::change_class`](crate::TreeSpec::change_class).
    pub fn change_class(&mut self, class: Handle, spec: &ClassSpec) -> Result<(), SpecError> {
        self.tree.spec.change_class(class, spec.clone())?;
        let node = self.tree.spec.class_node(class);
        let spec = node.map_or_else(|| spec.clone(), |node| node.spec.clone());
        self.at_qdisc(class.qdisc(), |_, _, own, cx| {
            own.change_class(class.minor(), &spec, cx);
            None
        })
    }

    /// Deletes a class with what is attached to it; see
    /// [`TreeSpec::delete_class`](crate::TreeSpec::delete_class). What waits there is enqueued
    /// again, or dropped and counted, as its kind does it.
    ///
    /// # Errors
    /// As [`TreeSpec::delete_class`](crate::TreeSpec::delete_class).
    pub fn delete_class(&mut self, class: Handle) -> Result<(), SpecError> {
        let instances = self.tree.instances();
        let gone = self.tree.attached(class);
        let deleted = self.tree.spec.delete_class(class)?;
        let parent = deleted.parent;
        if !deleted.filters.is_empty() {
            // A leaf's are not run, so they go beforehand.
            for lists in &mut self.tree.filters {
                lists.remove(&class);
            }
            self.refilter(class)?;
        }
        self.tree.forget(&gone);
        self.tree.counters.remove(&class);
        self.tree.estimators.stop(class);
        if self.is_remade(instances) {
            return Ok(());
        }
        let is_leaf = self.tree.spec.is_leaf(parent);
        let qdisc = class.qdisc();
        let queues = if is_leaf {
            self.tree.class_queues(qdisc)?
        } else {
            Vec::new()
        };
        let mut queues = queues.into_iter();
        let mut before = QdiscStats::default();
        self.at_qdisc(qdisc, |tree, index, own, cx| {
            let queue = queues.next().map(|queue| (parent.minor(), queue));
            let left = own.delete_class(class.minor(), queue, cx);
            // A leaf's queue counts anew.
            let kept = tree.kept_stats(parent, index).unwrap_or_default();
            before = [before, kept].into_iter().sum();
            left
        })?;
        if is_leaf && let Some(counted) = self.tree.counters.get_mut(&parent) {
            counted.before = before;
        }
        Ok(())
    }

    /// Does something with each instance of a qdisc, and frees what that leaves over when the queue
    /// has been given up.
    fn at_qdisc(
        &mut self,
        qdisc: Handle,
        mut f: impl FnMut(&DeviceTree, usize, &mut AnyQdisc, &mut Cx) -> Option<Left>,
    ) -> Result<(), SpecError> {
        let mut left = Vec::with_capacity(self.tree.instances());
        self.each_at(qdisc, |tree, index, own, cx| {
            left.push(f(tree, index, own, cx));
            Ok(())
        })
    }
}
