//! The tree of a device: the control path's own object, and how the instances that its queues run
//! are made of it. Statistics are read where the owners of the queues write them, so a dump takes
//! no queue from its owner. What a tree with several instances needs besides is in `parallel`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use softnet::qdisc::{Cx, QdiscStats};
use softnet::tx::Qdiscs;

use super::spec::{Node, TreeSpec};
use crate::account::{Accounted, Child, Children, ClassCounters, Estimators, Xstats};
use crate::filter::{FilterList, FilterSpec, FilterStats};
use crate::handle::Handle;
use crate::qdisc::{AnyQdisc, HtbClassStats, QdiscEnv, QdiscSpec, SpecError};
use crate::rate::SharedRates;

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
    pub(crate) fn check_for(&self, queues: usize) -> Result<(), SpecError> {
        self.nodes().try_for_each(|node| {
            node.qdisc.check()?;
            node.qdisc.check_for(queues)?;
            self.check_class(node.parent, queues)
        })
    }

    /// Checks that a class, if it is a queue, is one that the device has.
    pub(crate) fn check_class(&self, class: Handle, queues: usize) -> Result<(), SpecError> {
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
    pub(crate) fn subtree(&self, handle: Handle, all: &mut Vec<Handle>) {
        all.push(handle);
        for node in self.children_of(handle, 1) {
            self.subtree(node.handle, all);
        }
    }
}

/// Where the statistics of a class are.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// By instance.
    pub(crate) instances: Vec<Arc<ClassCounters>>,
    /// What left the class or was dropped there before it got the qdisc that it has now.
    pub(crate) before: QdiscStats,
}

/// The tree of a device: its qdiscs, classes and filters, with the statistics of all of them.
#[derive(Debug)]
pub struct DeviceTree {
    pub(crate) spec: TreeSpec,
    pub(crate) env: QdiscEnv,
    pub(crate) queues: usize,
    /// Of each class that is not a transmit queue.
    pub(crate) counters: BTreeMap<Handle, Counted>,
    /// Of each qdisc whose kind has some.
    pub(crate) xstats: BTreeMap<Handle, Xstats>,
    pub(crate) estimators: Estimators,
    /// The filters of each instance after the first, by what they belong to. The first one runs
    /// those of `spec`.
    pub(crate) filters: Vec<BTreeMap<Handle, FilterList>>,
    pub(crate) rates: Arc<SharedRates>,
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
            filters: Vec::new(),
            rates: Arc::new(SharedRates::new(queues)),
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
        f(ClassStats {
            class,
            parent: parent.map_or_else(|| class.qdisc(), |node| node.parent),
            qdisc: child.map_or(Handle::NONE, |child| child.handle),
            kind: child.map_or(default, |child| child.qdisc.kind()),
            stats,
            htb: self.htb_stats(class),
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
            if let Some(stats) = self.class_stats(class) {
                let inner = self.spec.is_inner(class);
                self.class(class, if inner { "none" } else { default }, stats, f);
                self.classes_below(class, default, f);
            }
        }
    }

    /// The filters and what they have counted, of each qdisc and then of its classes, in the order
    /// in which `tc filter show` has them. No queue is taken from its owner.
    pub fn filters(&self) -> impl Iterator<Item = (&FilterSpec, FilterStats)> {
        let shown = self.spec.filter_lists().flat_map(FilterList::shown);
        shown.map(|filter| self.filter_sum(filter))
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
                    let qdisc = child.map(|child| self.instance(0, child));
                    instances.push(qdisc.unwrap_or_else(|| default(self)));
                }
            }
            // One for all queues, and the others' are not used; or one at each.
            Some((handle, _)) => {
                active = count.min(active);
                instances.extend((0..count).map(|index| self.instance(index, handle)));
            }
        }
        instances.resize_with(self.queues, || default(self));
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
        let classes = handle.class(1)..=handle.class(u16::MAX);
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

    /// What is attached to a class, and all below it.
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
}

/// The queue that a class comes with.
pub(crate) fn class_queue(node: &Node, env: &QdiscEnv) -> AnyQdisc {
    node.qdisc.default_child(env).make(Handle::NONE, env)
}
