//! The tree of a device: the control path's own object, and how the instances that its queues run
//! are made of it. Statistics are read where the owners of the queues write them, so a dump takes
//! no queue from its owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::accounted::Accounted;
use super::children::{Child, Children};
use super::estimator::Estimators;
use super::*;
use softnet::tx::Qdiscs;

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
    /// Those that the qdisc has because of its kind.
    pub xstats: Option<Xstats>,
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
    pub(super) fn check_class(&self, class: Handle, queues: usize) -> Result<(), SpecError> {
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
    pub(super) fn subtree(&self, handle: Handle, all: &mut Vec<Handle>) {
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
    pub(super) queues: usize,
    /// Of each class that is not a transmit queue.
    pub(super) counters: BTreeMap<Handle, Arc<ClassCounters>>,
    /// Of each qdisc whose kind has some.
    pub(super) xstats: BTreeMap<Handle, Xstats>,
    pub(super) estimators: Estimators,
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
            estimators: Estimators::default(),
        };
        let roots = tree.roots();
        Ok((tree, roots))
    }

    /// Another MTU of the device, for the qdiscs that are made from now on.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.env.mtu = mtu;
    }

    /// What stands at the root if nothing is attached there.
    pub fn default_kind(&self) -> &'static str {
        self.default_at(Handle::ROOT).unwrap_or_default().kind()
    }

    /// What its qdiscs are made for.
    pub fn env(&self) -> &QdiscEnv {
        &self.env
    }

    /// What the tree is made of.
    pub fn spec(&self) -> &TreeSpec {
        &self.spec
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
        let default = self.default_at(Handle::ROOT).unwrap_or_default();
        let per_queue = root.map_or(&default, |root| &root.qdisc).is_per_queue();
        f(ClassStats {
            class: Handle::ROOT,
            parent: Handle::NONE,
            qdisc: root.map_or(Handle::NONE, |root| root.handle),
            kind: root.map_or(&default, |root| &root.qdisc).kind(),
            stats: queues.iter().copied().sum(),
            htb: None,
            xstats: root.and_then(|root| self.xstats(root.handle)).cloned(),
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
            xstats: child.and_then(|child| self.xstats(child.handle)).cloned(),
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

    /// The filters and what they have counted, of each qdisc and then of its classes, in the order
    /// in which `tc filter show` has them. No queue is taken from its owner.
    pub fn filters(&self) -> impl Iterator<Item = (&FilterSpec, FilterStats)> {
        self.spec.filter_lists().flat_map(FilterList::shown)
    }

    /// Makes the instances for all queues.
    pub(super) fn roots(&mut self) -> Qdiscs<AnyQdisc> {
        self.counters.clear();
        self.xstats.clear();
        self.estimators = Estimators::default();
        let root = self
            .spec
            .root()
            .map(|root| (root.handle, root.qdisc.clone()));
        let default = |tree: &DeviceTree| QdiscSpec::Default.make(Handle::NONE, &tree.env);
        let mut map = None;
        let mut active = self.queues;
        let mut instances = Vec::with_capacity(self.queues);
        match root {
            None if self.env.no_queue => {
                let noqueue = |_| QdiscSpec::Noqueue.make(Handle::NONE, &self.env);
                instances.extend((0..self.queues).map(noqueue));
            }
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
    pub(super) fn instance(&mut self, handle: Handle) -> AnyQdisc {
        let Some(node) = self.spec.node(handle) else {
            return QdiscSpec::Default.make(handle, &self.env);
        };
        let mut qdisc = node.qdisc.make(handle, &self.env);
        self.make_classes(node, handle, &mut qdisc, &mut Cx::new(&self.env.pool));
        self.make_filters(handle, &mut qdisc);
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
        self.start_estimators(handle);
        let stab = self.spec.node(handle).and_then(|node| node.stab.clone());
        qdisc.set_table(&mut stab.map(Accounted::new));
        qdisc
    }

    /// Adds the classes below `parent`, a qdisc or a class, that it did not come with.
    fn make_classes(&self, node: &Node, parent: Handle, qdisc: &mut AnyQdisc, cx: &mut Cx) {
        for class in self.spec.classes_below(parent) {
            if let Some(added) = self.spec.class_node(class) {
                let child = Child::new(self.class_queue(node));
                qdisc.add_class(class.minor(), parent.minor(), &added.spec, child, cx);
                self.make_classes(node, class, qdisc, cx);
            }
        }
    }

    /// Gives an instance the filters of the qdisc and of its classes. They count from zero: the
    /// configuration may have been another tree's.
    fn make_filters(&mut self, handle: Handle, qdisc: &mut AnyQdisc) {
        let classes = handle.class(1)..=handle.class(u16::MAX);
        let classes: Vec<Handle> = self.spec.filtered.range(classes).copied().collect();
        for parent in std::iter::once(handle).chain(classes) {
            if let Ok(list) = self.spec.filters_mut(parent)
                && !list.is_empty()
            {
                list.reset();
                qdisc.set_filters(parent.minor(), list.filters());
            }
        }
    }

    /// The queue that a class comes with.
    pub(super) fn class_queue(&self, node: &Node) -> AnyQdisc {
        let default = node.qdisc.default_child(&self.env);
        default.make(Handle::NONE, &self.env)
    }

    /// Takes note of where the statistics of a qdisc and of its classes are.
    pub(super) fn bind(&mut self, handle: Handle, qdisc: &AnyQdisc) {
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
                self.estimators.stop(class);
            }
            if self.spec.node(*handle).is_none() {
                self.estimators.stop(*handle);
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
    pub(super) fn locate(&self, class: Handle) -> Result<(usize, Vec<Handle>), SpecError> {
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
