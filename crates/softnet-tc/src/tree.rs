//! The tree of a device: the control path's own object, and the instances that its queues run.
//!
//! A change is checked against the tree and allocated first; nothing can fail after that. Then the
//! owner of each queue applies it, in a time that does not depend on the tree's size. Statistics
//! are read where the owners write them, so a dump takes no queue from its owner.
//!
//! What is queued in a qdisc that is replaced or deleted moves to what is attached there
//! afterwards, in the order in which it would have left; what does not fit is dropped and counted
//! as `qdisc_limit`.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::children::{Child, Children, ClassCounters};
use super::filter::{Chains, Filters};
use super::{
    AnyQdisc, ClassSpec, Cx, FilterKey, FilterOp, FilterSpec, Handle, HtbClassStats, Node,
    Qdisc as _, QdiscEnv, QdiscSpec, QdiscStats, SpecError, TreeError, TreeSpec, Xstats,
};
use softnet::mem::PacketList;
use softnet::time::Time;
use softnet::tx::{Device, Qdiscs, TxRing};

/// The statistics of a class, which are those of the qdisc on it.
#[derive(Clone, Debug)]
pub struct ClassStats {
    /// The class, or [`Handle::ROOT`].
    pub class: Handle,
    /// The class above it, or its qdisc; [`Handle::NONE`] for the root.
    pub parent: Handle,
    /// The qdisc that is attached: its handle, or [`Handle::NONE`] if the class came with it.
    pub qdisc: Handle,
    /// Its kind; `none` for a class with classes below it.
    pub kind: &'static str,
    /// Its statistics.
    pub stats: QdiscStats,
    /// Those of a class of `htb`.
    pub htb: Option<HtbClassStats>,
}

/// Where the instances of a tree are. Each call ends when the change is in effect.
pub trait Queues {
    /// Gives all queues other qdiscs. What is queued moves.
    fn install(&mut self, qdiscs: Qdiscs<AnyQdisc>);

    /// Gives one queue another qdisc. What is queued moves.
    fn install_at(&mut self, queue: usize, qdisc: AnyQdisc);

    /// Calls `f`, once, as the owner of a queue.
    fn with(&mut self, queue: usize, f: &mut dyn FnMut(&mut AnyQdisc, &mut Cx));
}

/// A device at a time.
impl<R: TxRing> Queues for (&Device<R, AnyQdisc>, Time) {
    fn install(&mut self, qdiscs: Qdiscs<AnyQdisc>) {
        self.0.set_qdiscs(qdiscs, self.1);
    }

    fn install_at(&mut self, queue: usize, qdisc: AnyQdisc) {
        self.0.set_qdisc_at(queue, qdisc, self.1);
    }

    fn with(&mut self, queue: usize, f: &mut dyn FnMut(&mut AnyQdisc, &mut Cx)) {
        self.0.with_qdisc(queue, self.1, f);
    }
}

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

impl TreeSpec {
    /// Checks that a device with so many transmit queues can have it.
    pub(super) fn check_for(&self, queues: usize) -> Result<(), SpecError> {
        self.nodes().try_for_each(|node| {
            node.qdisc.check()?;
            node.qdisc.check_for(queues)?;
            self.check_class(node.parent, queues)
        })
    }

    /// Checks that a class, if it is a queue, is one that the device has.
    fn check_class(&self, class: Handle, queues: usize) -> Result<(), SpecError> {
        let minor = usize::from(class.minor());
        match self.node(class.qdisc()) {
            Some(node) if class != Handle::ROOT && node.qdisc.is_per_queue() && minor > queues => {
                Err(SpecError::NoQueue {
                    kind: node.qdisc.kind(),
                    class: minor,
                    queues,
                })
            }
            _ => Ok(()),
        }
    }

    /// A qdisc and those below it.
    fn subtree(&self, handle: Handle, all: &mut Vec<Handle>) {
        all.push(handle);
        for node in self.children_of(handle, 1) {
            self.subtree(node.handle, all);
        }
    }
}

/// The tree of a device: its qdiscs, classes and filters, with the statistics of all of them.
#[derive(Debug)]
pub struct DeviceTree {
    pub(super) spec: TreeSpec,
    pub(super) env: QdiscEnv,
    queues: usize,
    /// Of each class that is not a transmit queue.
    pub(super) counters: BTreeMap<Handle, Arc<ClassCounters>>,
    /// Of each qdisc whose kind has some.
    xstats: BTreeMap<Handle, Xstats>,
    /// Of each qdisc that has some, as its instance has them.
    filters: BTreeMap<Handle, Filters>,
}

impl DeviceTree {
    /// A tree for a device with `queues` transmit queues, and the instances for them.
    ///
    /// # Errors
    /// If parameters are wrong, or the device has not the queues that the tree names.
    pub fn new(
        spec: impl Into<TreeSpec>,
        queues: usize,
        env: &QdiscEnv,
    ) -> Result<(DeviceTree, Qdiscs<AnyQdisc>), SpecError> {
        let spec = spec.into();
        spec.check_for(queues)?;
        let mut tree = DeviceTree {
            spec,
            env: env.clone(),
            queues,
            counters: BTreeMap::new(),
            xstats: BTreeMap::new(),
            filters: BTreeMap::new(),
        };
        let roots = tree.roots();
        Ok((tree, roots))
    }

    /// Another MTU of the device, for the qdiscs that are made from now on.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.env.mtu = mtu;
    }

    /// What the tree is made of.
    pub fn spec(&self) -> &TreeSpec {
        &self.spec
    }

    /// The tree together with its instances, to change both. `queues` must be what has the
    /// instances.
    pub fn on<Q: Queues>(&mut self, queues: Q) -> Live<'_, Q> {
        Live { tree: self, queues }
    }

    /// The root and all classes, each before those below it. `queues` are the statistics of the
    /// transmit queues: what passes an empty qdisc, or waits for the driver, only they count. No
    /// queue is taken from its owner.
    pub fn classes(&self, queues: &[QdiscStats]) -> Vec<ClassStats> {
        let mut all = Vec::new();
        self.each_class(queues, &mut |class| all.push(class));
        all
    }

    /// The statistics that a qdisc has because of its kind, if that has some.
    pub fn xstats(&self, qdisc: Handle) -> Option<&Xstats> {
        self.xstats.get(&qdisc)
    }

    /// As [`classes`](DeviceTree::classes).
    pub(crate) fn each_class(&self, queues: &[QdiscStats], f: &mut impl FnMut(ClassStats)) {
        let root = self.spec.root();
        let per_queue = root.map_or(self.queues > 1, |root| root.qdisc.is_per_queue());
        let default = if per_queue { "mq" } else { "pfifo_fast" };
        f(ClassStats {
            class: Handle::ROOT,
            parent: Handle::NONE,
            qdisc: root.map_or(Handle::NONE, |root| root.handle),
            kind: root.map_or(default, |root| root.qdisc.kind()),
            stats: queues.iter().copied().sum(),
            htb: None,
        });
        if !per_queue {
            root.into_iter().for_each(|root| self.below(root, f));
            return;
        }
        let name = root.map_or(Handle::NONE, |root| root.handle);
        for (minor, &stats) in (1..).zip(queues) {
            self.class(name.class(minor), "pfifo_fast", stats, f);
        }
    }

    fn class(
        &self,
        class: Handle,
        default: &'static str,
        stats: QdiscStats,
        f: &mut impl FnMut(ClassStats),
    ) {
        let child = self.spec.child_of(class);
        let parent = self.spec.class_node(class);
        let htb = match (parent.map(|node| &node.spec), self.counters.get(&class)) {
            (Some(ClassSpec::Htb(spec)), Some(counters)) => Some(counters.htb.get(spec)),
            _ => None,
        };
        f(ClassStats {
            class,
            parent: parent.map_or_else(|| class.qdisc(), |node| node.parent),
            qdisc: child.map_or(Handle::NONE, |child| child.handle),
            kind: child.map_or(default, |child| child.qdisc.kind()),
            stats,
            htb,
        });
        child.into_iter().for_each(|child| self.below(child, f));
    }

    fn below(&self, node: &Node, f: &mut impl FnMut(ClassStats)) {
        let default = node.qdisc.default_child(&self.env).kind();
        self.classes_below(node.handle, default, f);
    }

    /// The classes below a qdisc or class, each before those below it.
    fn classes_below(&self, above: Handle, default: &'static str, f: &mut impl FnMut(ClassStats)) {
        for class in self.spec.classes_below(above) {
            if let Some(counters) = self.counters.get(&class) {
                let inner = self.spec.is_inner(class);
                self.class(
                    class,
                    if inner { "none" } else { default },
                    counters.get(),
                    f,
                );
                self.classes_below(class, default, f);
            }
        }
    }

    /// The filters of all qdiscs, each qdisc's in the order in which they are tried, and how many
    /// wire packets each has matched. No queue is taken from its owner.
    pub fn filters(&self) -> impl Iterator<Item = (&FilterSpec, u64)> {
        self.filters.values().flat_map(|filters| filters.hits())
    }

    /// Makes the instances for all queues.
    fn roots(&mut self) -> Qdiscs<AnyQdisc> {
        self.counters.clear();
        self.xstats.clear();
        self.filters.clear();
        let root = self
            .spec
            .root()
            .map(|root| (root.handle, root.qdisc.clone()));
        let default = |tree: &DeviceTree| QdiscSpec::Default.make(Handle::NONE, &tree.env);
        let mut map = None;
        let mut active = self.queues;
        let mut instances = Vec::with_capacity(self.queues);
        match root {
            None => {}
            Some((handle, QdiscSpec::Noqueue)) => {
                let noqueue = |_| QdiscSpec::Noqueue.make(handle, &self.env);
                instances.extend((0..self.queues).map(noqueue));
            }
            Some((handle, QdiscSpec::Mq | QdiscSpec::Mqprio(_))) => {
                if let Some(QdiscSpec::Mqprio(of)) = self.spec.root().map(|root| &root.qdisc) {
                    map = Some(of.clone());
                }
                for (minor, _) in (1..).zip(0..self.queues) {
                    let child = self.spec.child_of(handle.class(minor)).map(|n| n.handle);
                    let qdisc = child.map(|child| self.instance(child));
                    instances.push(qdisc.unwrap_or_else(|| default(self)));
                }
            }
            // One for all queues; the others' are not used.
            Some((handle, _)) => {
                active = active.min(1);
                instances.push(self.instance(handle));
            }
        }
        instances.resize_with(self.queues, || default(self));
        Qdiscs {
            instances,
            active,
            map,
        }
    }

    /// Makes the instance of a qdisc and of all below it.
    fn instance(&mut self, handle: Handle) -> AnyQdisc {
        let Some(node) = self.spec.node(handle) else {
            return QdiscSpec::Default.make(handle, &self.env);
        };
        let mut qdisc = node.qdisc.make(handle, &self.env);
        self.make_classes(node, handle, &mut qdisc, &mut Cx::new(&self.env.pool));
        self.filters.remove(&handle);
        if !node.filters.as_slice().is_empty() {
            let filters = Filters::new(Chains::new(&node.filters, &Chains::default()));
            qdisc.set_filters(filters.clone());
            self.filters.insert(handle, filters);
        }
        let below: Vec<(u16, Handle)> = self
            .spec
            .children_of(handle, 1)
            .map(|child| (child.parent.minor(), child.handle))
            .collect();
        for (minor, child) in below {
            let child = self.instance(child);
            if let Some(children) = qdisc.children_mut()
                && let Some(slot) = children.find(minor)
            {
                children.set(slot, child);
            }
        }
        self.bind(handle, &qdisc);
        qdisc
    }

    /// Adds the classes below `parent`, a qdisc or a class, that it did not come with.
    fn make_classes(&self, node: &Node, parent: Handle, qdisc: &mut AnyQdisc, cx: &mut Cx) {
        for class in self.spec.classes_below(parent) {
            if let Some(added) = self.spec.class_node(class) {
                let child = self.class_queue(node);
                qdisc.add_class(class.minor(), parent.minor(), &added.spec, child, cx);
                self.make_classes(node, class, qdisc, cx);
            }
        }
    }

    /// The queue that a class comes with.
    pub(super) fn class_queue(&self, node: &Node) -> Box<Child> {
        let default = node.qdisc.default_child(&self.env);
        Child::new(default.make(Handle::NONE, &self.env))
    }

    /// Takes note of where the statistics of a qdisc and of its classes are.
    fn bind(&mut self, handle: Handle, qdisc: &AnyQdisc) {
        if let Some(xstats) = qdisc.xstats() {
            self.xstats.insert(handle, xstats.clone());
        }
        for (minor, child) in qdisc.children().into_iter().flat_map(Children::classes) {
            self.counters
                .insert(handle.class(minor), child.counters().clone());
        }
    }

    /// Forgets where the statistics of qdiscs and of their classes are.
    pub(super) fn unbind(&mut self, gone: &[Handle]) {
        for handle in gone {
            self.xstats.remove(handle);
            let classes = handle.class(1)..=handle.class(u16::MAX);
            let classes: Vec<Handle> = self.counters.range(classes).map(|(c, _)| *c).collect();
            for class in classes {
                self.counters.remove(&class);
            }
            if self.spec.node(*handle).is_none() {
                self.filters.remove(handle);
            }
        }
    }

    /// What is attached to a class, and all below it.
    pub(super) fn attached(&self, class: Handle) -> Vec<Handle> {
        let mut all = Vec::new();
        if let Some(node) = self.spec.child_of(class) {
            self.spec.subtree(node.handle, &mut all);
        }
        all
    }

    /// The queue with the instance of what is attached to `class`, and the path there from that
    /// queue's root.
    fn locate(&self, class: Handle) -> Result<(usize, Vec<Handle>), SpecError> {
        let mut path = self.spec.path(class)?;
        let per_queue = self
            .spec
            .root()
            .is_some_and(|root| root.qdisc.is_per_queue());
        if per_queue && !path.is_empty() {
            let queue = path.remove(0);
            return Ok((usize::from(queue.minor()) - 1, path));
        }
        Ok((0, path))
    }
}

/// A tree and the queues with its instances. Each change is in effect, on all queues, when the
/// call ends; if it fails, nothing has changed.
#[derive(Debug)]
pub struct Live<'a, Q> {
    pub(super) tree: &'a mut DeviceTree,
    queues: Q,
}

impl<Q: Queues> Live<'_, Q> {
    /// What the tree is made of.
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
        let handle = self.tree.spec.add(parent, handle, qdisc)?;
        self.put(handle, &[])
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
        let handle = self.tree.spec.replace(parent, handle, qdisc)?;
        self.put(handle, &gone)
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
        self.tree.unbind(&gone);
        self.each_at(handle, |tree, own, cx| {
            own.change(qdisc, cx)?;
            // There are never many classes that it comes with.
            if !qdisc.adds_classes() {
                tree.unbind(&[handle]);
                tree.bind(handle, own);
            }
            Ok(())
        })
    }

    /// Removes a qdisc and all below it. Its class gets back what it came with, the root the
    /// default (BUG-PRIO-2).
    ///
    /// # Errors
    /// If there is no such qdisc.
    pub fn delete(&mut self, handle: Handle) -> Result<(), SpecError> {
        let mut gone = Vec::new();
        self.tree.spec.subtree(handle, &mut gone);
        let Node { parent, .. } = self.tree.spec.delete(handle)?;
        self.tree.unbind(&gone);
        let above = self.tree.spec.node(parent.qdisc());
        let env = &self.tree.env;
        let default = above.map_or(QdiscSpec::Default, |node| node.qdisc.default_child(env));
        self.graft(parent, |tree| default.make(Handle::NONE, &tree.env), true)
    }

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
        let key = self.tree.spec.put_filter(op, filter)?;
        self.refilter(parent)?;
        Ok(key)
    }

    /// Removes filters; see [`TreeSpec::delete_filters`].
    ///
    /// # Errors
    /// As [`TreeSpec::delete_filters`].
    pub fn delete_filters(&mut self, parent: Handle, which: FilterKey) -> Result<(), SpecError> {
        self.tree.spec.delete_filters(parent, which)?;
        self.refilter(parent)
    }

    /// Checks what depends on the device's queues.
    fn check(&self, parent: Handle, qdisc: &QdiscSpec) -> Result<(), SpecError> {
        qdisc.check_for(self.tree.queues)?;
        self.tree.spec.check_class(parent, self.tree.queues)
    }

    /// Gives the queues the instance of a qdisc that has come into the tree.
    fn put(&mut self, handle: Handle, gone: &[Handle]) -> Result<Handle, SpecError> {
        self.tree.unbind(gone);
        let parent = self.tree.spec.node(handle).map(|node| node.parent);
        let parent = parent.ok_or(TreeError::NoQdisc(handle))?;
        self.graft(parent, |tree| tree.instance(handle), false)?;
        Ok(handle)
    }

    /// Replaces the instance at a class by what `make` makes; at the root, all of them.
    fn graft(
        &mut self,
        class: Handle,
        make: impl FnOnce(&mut DeviceTree) -> AnyQdisc,
        default: bool,
    ) -> Result<(), SpecError> {
        if class == Handle::ROOT {
            let roots = self.tree.roots();
            self.queues.install(roots);
            return Ok(());
        }
        let fresh = make(self.tree);
        let (queue, path) = self.tree.locate(class)?;
        if path.is_empty() {
            self.queues.install_at(queue, fresh);
            return Ok(());
        }
        let mut fresh = Some(fresh);
        // Freed when the queue has been given up.
        let mut old = None;
        self.queues.with(queue, &mut |root, cx| {
            let fresh = fresh.take();
            old = fresh.and_then(|fresh| root.graft(&path, fresh, default, cx));
        });
        old.map(drop)
            .ok_or_else(|| TreeError::NoClass(class).into())
    }

    /// Gives the instance of a qdisc the filters that it has in the tree.
    fn refilter(&mut self, handle: Handle) -> Result<(), SpecError> {
        let node = self
            .tree
            .spec
            .node(handle)
            .ok_or(TreeError::NoQdisc(handle))?;
        let before = self.tree.filters.get(&handle).cloned();
        let filters = Chains::new(&node.filters, &before.unwrap_or_default());
        let mut filters = Filters::new(filters);
        self.tree.filters.insert(handle, filters.clone());
        self.each_at(handle, |_, own, _| {
            // The old ones are freed when the queue has been given up.
            filters = own.set_filters(std::mem::take(&mut filters));
            Ok(())
        })
    }

    /// Does something with the instance of a qdisc.
    pub(super) fn each_at(
        &mut self,
        handle: Handle,
        mut f: impl FnMut(&mut DeviceTree, &mut AnyQdisc, &mut Cx) -> Result<(), SpecError>,
    ) -> Result<(), SpecError> {
        let missing = || SpecError::from(TreeError::NoQdisc(handle));
        let parent = self.tree.spec.node(handle).ok_or_else(missing)?.parent;
        let (queue, path) = self.tree.locate(parent)?;
        let mut result = Err(missing());
        let tree = &mut *self.tree;
        self.queues.with(queue, &mut |root, cx| {
            let own = root.at(&path, cx, |own, cx| f(tree, own, cx));
            result = own.unwrap_or_else(|| Err(missing()));
        });
        result
    }
}

/// A [`Tree`] that is being changed.
pub type LiveTree<'a> = Live<'a, (&'a mut AnyQdisc, &'a mut Cx)>;

/// A tree with its only instance, for programs without a device: a simulator, a test. What it
/// dereferences to is the qdisc at its root.
#[derive(Debug)]
pub struct Tree {
    tree: DeviceTree,
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

    /// To change the tree.
    pub fn edit<'a>(&'a mut self, cx: &'a mut Cx) -> LiveTree<'a> {
        self.tree.on((&mut self.root, cx))
    }

    /// What the tree is made of.
    pub fn spec(&self) -> &TreeSpec {
        &self.tree.spec
    }

    /// The filters and their hits; see [`DeviceTree::filters`].
    pub fn filters(&self) -> impl Iterator<Item = (&FilterSpec, u64)> {
        self.tree.filters()
    }

    pub(crate) fn env(&self) -> &QdiscEnv {
        &self.tree.env
    }

    /// The root and all classes; see [`DeviceTree::classes`].
    pub fn classes(&self) -> Vec<ClassStats> {
        self.tree.classes(&[*self.root.stats()])
    }

    /// As [`DeviceTree::xstats`].
    pub fn xstats(&self, qdisc: Handle) -> Option<&Xstats> {
        self.tree.xstats(qdisc)
    }

    /// As [`classes`](Tree::classes).
    pub(crate) fn each_class(&self, mut f: impl FnMut(ClassStats)) {
        self.tree.each_class(&[*self.root.stats()], &mut f);
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
