//! A tree with its only instance, without a device.

use std::ops::{Deref, DerefMut};

use softnet::mem::PacketList;
use softnet::qdisc::{Cx, Qdisc};
use softnet::tx::Qdiscs;

use super::instances::DeviceTree;
use super::list::ClassStats;
use super::live::{Live, Queues};
use super::spec::TreeSpec;
use crate::account::Xstats;
use crate::filter::{FilterSpec, FilterStats};
use crate::handle::Handle;
use crate::qdisc::{AnyQdisc, QdiscEnv, SpecError};

/// One queue without a device.
impl Queues for (&mut AnyQdisc, &mut Cx) {
    fn install(&mut self, qdiscs: Qdiscs<AnyQdisc>) {
        if let Some(qdisc) = qdiscs.instances.into_iter().next() {
            self.install_at(0, qdisc);
        }
    }

    fn install_at(&mut self, _: usize, qdisc: AnyQdisc) {
        let mut moved = PacketList::new();
        self.0.drain(&mut moved);
        *self.0 = qdisc;
        self.0.enqueue(&mut moved, self.1);
    }

    fn with(&mut self, _: usize, f: &mut dyn FnMut(&mut AnyQdisc, &mut Cx)) {
        f(self.0, self.1);
    }
}

/// A [`Tree`] that is being changed.
pub type LiveTree<'a> = Live<'a, (&'a mut AnyQdisc, &'a mut Cx)>;

/// A tree with its only instance, for programs without a device: a simulator, a test. What it
/// dereferences to is the qdisc at its root.
#[derive(Debug)]
pub struct Tree {
    pub(crate) tree: DeviceTree,
    root: AnyQdisc,
}

impl Tree {
    /// The tree, empty of packets.
    ///
    /// # Errors
    /// As [`DeviceTree::new`].
    pub fn build(spec: impl Into<TreeSpec>, env: &QdiscEnv) -> Result<Tree, SpecError> {
        let (tree, mut roots) = DeviceTree::new(spec, 1, env)?;
        let root = roots.instances.pop().ok_or(SpecError::OneQueue("mq"))?;
        Ok(Tree { tree, root })
    }

    /// A tree with several queues, and the instances that those after the first run.
    ///
    /// # Errors
    /// As [`DeviceTree::new`].
    pub(crate) fn with_queues(
        spec: impl Into<TreeSpec>,
        queues: usize,
        env: &QdiscEnv,
    ) -> Result<(Tree, Vec<AnyQdisc>), SpecError> {
        let (tree, roots) = DeviceTree::new(spec, queues, env)?;
        let mut roots = roots.instances.into_iter().take(roots.active);
        let root = roots.next().ok_or(SpecError::OneQueue("mq"))?;
        Ok((Tree { tree, root }, roots.collect()))
    }

    /// To change the tree.
    pub fn edit<'a>(&'a mut self, cx: &'a mut Cx) -> LiveTree<'a> {
        self.tree.on((&mut self.root, cx))
    }

    /// Tree as configuration.
    pub fn spec(&self) -> &TreeSpec {
        &self.tree.spec
    }

    /// The filters and what they have counted; see [`DeviceTree::filters`].
    pub fn filters(&self) -> impl Iterator<Item = (&FilterSpec, FilterStats)> {
        self.tree.filters()
    }

    /// The root and all classes; see [`DeviceTree::classes`].
    pub fn classes(&self) -> Vec<ClassStats> {
        self.tree.classes(&[*self.root.stats()])
    }

    /// As [`DeviceTree::xstats`].
    pub fn xstats(&self, qdisc: Handle) -> Option<&Xstats> {
        self.tree.xstats(qdisc)
    }
}

impl Deref for Tree {
    type Target = AnyQdisc;
    fn deref(&self) -> &AnyQdisc {
        &self.root
    }
}

impl DerefMut for Tree {
    fn deref_mut(&mut self) -> &mut AnyQdisc {
        &mut self.root
    }
}
