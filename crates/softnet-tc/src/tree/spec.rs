//! A tree of qdiscs as configuration: what is attached where, by tc's handles, checked as it is
//! built, so that every [`TreeSpec`] can be instantiated. Knows nothing of packets;
//! [`DeviceTree`](crate::DeviceTree) is the same tree with its instances.
//!
//! A change looks at the nodes that it concerns and at those above them, at most eight, and finds
//! each in logarithmic time: it costs as much in a tree of ten nodes as in one of ten thousand.

use std::collections::{BTreeMap, BTreeSet};

use super::error::TreeError;
use super::hook::{Hook, Side};
use crate::account::{EstimatorSpec, SizeTable};
use crate::filter::{ChainTemplate, FilterError, FilterList, FilterSpec};
use crate::handle::Handle;
use crate::qdisc::{ClassSpec, Classes, QdiscSpec, SpecError};
use crate::units::Share;

/// Nested qdiscs at most, and classes of one qdisc above one another, as in Linux.
pub(crate) const MAX_DEPTH: usize = 8;

/// One qdisc of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The class it is attached to, or [`Handle::ROOT`].
    pub parent: Handle,
    /// Name.
    pub handle: Handle,
    /// Kind and parameters.
    pub qdisc: QdiscSpec,
    /// Size table: what packets count as for the qdisc and all below it.
    pub stab: Option<SizeTable>,
    /// Filters.
    pub filters: FilterList,
}

/// A class that was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNode {
    /// The class above it, or the qdisc.
    pub parent: Handle,
    /// Parameters.
    pub spec: ClassSpec,
    /// Own filters, for packets that get to it while it is no leaf.
    pub filters: FilterList,
}

/// A tree of qdiscs and the filters that lead to its classes. Trees are equal if the same is
/// attached at the same places, whatever handles are chosen next.
#[derive(Clone, Debug, Default)]
pub struct TreeSpec {
    pub(crate) nodes: BTreeMap<Handle, Node>,
    /// The node at each class that has one, and at the root.
    pub(crate) attached: BTreeMap<Handle, Handle>,
    /// Names by which requests called the parents of qdiscs, where those have others as well.
    pub(crate) named: BTreeMap<Handle, Handle>,
    /// The classes that were added.
    pub(crate) classes: BTreeMap<Handle, ClassNode>,
    /// The same behind what they are directly below: a qdisc or a class.
    pub(crate) below: BTreeSet<(Handle, Handle)>,
    /// Estimators, by the names of qdiscs and of classes that were added.
    pub(crate) estimators: BTreeMap<Handle, EstimatorSpec>,
    /// Rates that are shares of the link's speed, by the qdisc or class and the option.
    pub(crate) shares: BTreeMap<(Handle, &'static str), Share>,
    /// The classes with filters of their own.
    pub(crate) filtered: BTreeSet<Handle>,
    /// Number of qdiscs because of which there is one instance of the tree.
    pub(crate) singles: usize,
    /// Sums of the weights of the classes of qdiscs where they are bounded.
    pub(crate) weights: BTreeMap<Handle, u64>,
    /// The last handle that was chosen.
    pub(super) chosen: u16,
    /// The qdisc at the hooks.
    pub(super) hook: Option<Box<Hook>>,
}

impl PartialEq for TreeSpec {
    fn eq(&self, other: &TreeSpec) -> bool {
        // The other fields follow from these, or are names for the same.
        self.nodes == other.nodes
            && self.classes == other.classes
            && self.estimators == other.estimators
            && self.shares == other.shares
            && self.hook == other.hook
    }
}

impl Eq for TreeSpec {}

impl TreeSpec {
    /// No qdisc yet. A device with it has the kernel's default.
    pub fn new() -> TreeSpec {
        TreeSpec::default()
    }

    /// The qdiscs, by their handles.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.nodes.values()
    }

    /// The filters of all qdiscs and classes.
    pub fn filters(&self) -> impl Iterator<Item = &FilterSpec> {
        self.filter_lists().flat_map(FilterList::iter)
    }

    /// The lists of filters that are not empty, by their qdiscs, each before those of its classes.
    pub(crate) fn filter_lists(&self) -> impl Iterator<Item = &FilterList> {
        self.lists_of().map(|(_, list)| list)
    }

    fn lists_of(&self) -> impl Iterator<Item = (Handle, &FilterList)> {
        let lists = self.nodes().flat_map(|node| {
            let classes = node.handle.class(1)..=node.handle.class(u16::MAX);
            let classes = self.filtered.range(classes);
            let of_classes =
                classes.filter_map(|class| Some((*class, &self.classes.get(class)?.filters)));
            std::iter::once((node.handle, &node.filters)).chain(of_classes)
        });
        let hook = self.hook().into_iter();
        let side = |hook, side: Side| (side.parent(), &Hook::side(hook, side).filters);
        let hooks = hook.flat_map(move |hook| Side::ALL.map(|of| side(hook, of)));
        lists.chain(hooks).filter(|(_, list)| !list.is_empty())
    }

    /// The chains with the qdisc, class or hook that they are of, and their templates.
    pub fn chains(&self) -> impl Iterator<Item = (Handle, u32, Option<&ChainTemplate>)> {
        self.lists_of().flat_map(|(parent, list)| {
            let chains = list.chains();
            chains.map(move |chain| (parent, chain, list.template(chain)))
        })
    }

    /// The chains that were made by themselves, with the qdisc, class or hook that they are of, and
    /// their templates.
    pub fn kept_chains(&self) -> impl Iterator<Item = (Handle, u32, Option<&ChainTemplate>)> {
        let lists = self.lists_of();
        lists.flat_map(|(parent, list)| {
            let kept = list.kept_chains();
            kept.map(move |(chain, template)| (parent, chain, template))
        })
    }

    /// The filters of a qdisc or class.
    ///
    /// # Errors
    /// If there is no such qdisc or class, or it can have none.
    pub fn filters_of(&self, parent: Handle) -> Result<&FilterList, FilterError> {
        if let Some(list) = self.hook_filters(parent) {
            return list;
        }
        let node = self.node(parent.qdisc());
        let node = node.ok_or_else(|| FilterError::NoParent(parent.qdisc()))?;
        if !node.qdisc.has_filters() {
            return Err(if node.qdisc.is_classful() {
                FilterError::NoBlocks(node.handle)
            } else {
                FilterError::NotClassful(node.handle)
            });
        }
        if parent.minor() == 0 {
            return Ok(&node.filters);
        }
        let have_filters = |classes: &Classes| classes.filters;
        let none = || FilterError::NotOfClasses {
            text: match node.qdisc {
                QdiscSpec::Drr => "DRR classid must be zero: ",
                QdiscSpec::Ets(_) => "ETS classid must be zero: ",
                _ => "",
            },
            class: parent,
        };
        match self.classes.get(&parent) {
            Some(_) if !node.qdisc.added_classes().is_some_and(have_filters) => Err(none()),
            Some(class) => Ok(&class.filters),
            None if parent.minor() <= node.qdisc.classes() => Err(none()),
            None => Err(FilterError::NoClass(parent)),
        }
    }

    /// As [`filters_of`](TreeSpec::filters_of), to change them.
    pub(crate) fn filters_mut(&mut self, parent: Handle) -> Result<&mut FilterList, FilterError> {
        self.filters_of(parent)?;
        if self.hook_of(parent).is_some() {
            let list = self.hook_filters_mut(parent).map(|(_, list)| list);
            return list.ok_or(FilterError::NoClass(parent));
        }
        let list = match parent.minor() {
            0 => self.nodes.get_mut(&parent).map(|node| &mut node.filters),
            _ => self
                .classes
                .get_mut(&parent)
                .map(|class| &mut class.filters),
        };
        list.ok_or(FilterError::NoClass(parent))
    }

    /// The kind of the qdisc at the root.
    pub fn kind(&self) -> &'static str {
        self.root().map_or("pfifo_fast", |root| root.qdisc.kind())
    }

    /// True if it has no qdisc.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The qdisc of this name.
    pub fn node(&self, handle: Handle) -> Option<&Node> {
        self.nodes.get(&handle)
    }

    /// As [`node`](TreeSpec::node), of a qdisc that should be there.
    pub(crate) fn existing(&self, handle: Handle) -> Result<&Node, TreeError> {
        self.node(handle).ok_or(TreeError::NoQdisc(handle))
    }

    pub(crate) fn existing_mut(&mut self, handle: Handle) -> Result<&mut Node, TreeError> {
        let node = self.nodes.get_mut(&handle);
        node.ok_or(TreeError::NoQdisc(handle))
    }

    /// The qdisc at the root.
    pub fn root(&self) -> Option<&Node> {
        self.child_of(Handle::ROOT)
    }

    /// Qdisc that is attached to a class or to the root.
    pub fn child_of(&self, parent: Handle) -> Option<&Node> {
        self.node(*self.attached.get(&parent)?)
    }

    /// Qdiscs that are attached to a qdisc's classes from this minor number on.
    pub(crate) fn children_of(&self, handle: Handle, from: u16) -> impl Iterator<Item = &Node> {
        let classes = handle.class(from)..=handle.class(u16::MAX);
        let attached = self.attached.range(classes);
        attached
            .filter(|(class, _)| **class != Handle::ROOT)
            .filter_map(|(_, child)| self.node(*child))
    }

    /// Qdiscs on classes that a qdisc comes with, and that it does not have any more with
    /// other parameters.
    pub(crate) fn children_beyond(&self, handle: Handle, qdisc: &QdiscSpec) -> Vec<Handle> {
        match qdisc.classes().checked_add(1) {
            Some(first) if !qdisc.adds_classes() => {
                let gone = self.children_of(handle, first);
                gone.map(|node| node.handle).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The class that a name stands for: the only one of a `tbf` has all of them.
    pub fn class(&self, name: Handle) -> Handle {
        match self.node(name.qdisc()) {
            Some(node) if name != Handle::ROOT && node.qdisc.has_one_class() => name.class(1),
            _ => name,
        }
    }

    /// Parent of a qdisc as it was called when that was attached.
    pub fn named_parent(&self, handle: Handle) -> Option<Handle> {
        let named = self.named.get(&handle).copied();
        named.or_else(|| Some(self.node(handle)?.parent))
    }

    /// The path to what is attached to `parent`: the classes from the root on.
    pub(crate) fn path(&self, parent: Handle) -> Result<Vec<Handle>, SpecError> {
        let mut path = Vec::new();
        let mut at = parent;
        while at != Handle::ROOT {
            let node = self.existing(at.qdisc())?;
            if !self.has_class(node, at) {
                return Err(TreeError::NoClass(at).into());
            }
            path.push(at);
            at = node.parent;
        }
        path.reverse();
        Ok(path)
    }

    /// The class of this name, if it was added.
    pub fn class_node(&self, class: Handle) -> Option<&ClassNode> {
        self.classes.get(&class)
    }

    /// The classes that were added, by their names.
    pub fn added_classes(&self) -> impl Iterator<Item = (Handle, &ClassNode)> {
        self.classes.iter().map(|(&class, node)| (class, node))
    }

    /// True if there is one instance of the tree for all queues in any case, because of the qdisc
    /// of this name or, with [`Handle::NONE`], any qdisc in it.
    pub fn is_single(&self, handle: Handle) -> bool {
        match self.node(handle) {
            Some(node) => node.qdisc.is_single(),
            None => self.singles > 0,
        }
    }

    /// The classes directly below a qdisc or class.
    pub(crate) fn classes_below(&self, parent: Handle) -> impl Iterator<Item = Handle> {
        let node = self.node(parent);
        let fixed = node.map_or(0, |node| node.qdisc.classes());
        let added = (parent, Handle::NONE)..=(parent, Handle::ROOT);
        let added = self.below.range(added).map(|&(_, class)| class);
        (1..=fixed)
            .map(move |minor| parent.class(minor))
            .chain(added)
    }

    /// True if a class that has lost one below it has a queue again.
    pub(crate) fn is_leaf(&self, class: Handle) -> bool {
        let classes = self
            .node(class.qdisc())
            .and_then(|node| node.qdisc.added_classes());
        let is_class = class.minor() != 0 || classes.is_some_and(|classes| classes.root);
        is_class && self.classes_below(class).next().is_none()
    }

    /// True if a class has classes below it, and no qdisc.
    pub(crate) fn is_inner(&self, class: Handle) -> bool {
        class.minor() != 0 && self.classes_below(class).next().is_some()
    }

    /// True if a qdisc has this class.
    pub(crate) fn has_class(&self, node: &Node, class: Handle) -> bool {
        (1..=node.qdisc.classes()).contains(&class.minor()) || self.classes.contains_key(&class)
    }

    /// The qdiscs from a handle on, by their handles.
    pub fn nodes_from(&self, from: Handle) -> impl Iterator<Item = &Node> {
        self.nodes.range(from..).map(|(_, node)| node)
    }

    /// The level of a class of `htb` in the kernel's terms: 0 for a leaf, and for others 7 less the
    /// classes above it.
    pub fn level(&self, class: Handle) -> u32 {
        if !self.is_inner(class) {
            return 0;
        }
        let above = |class: &Handle| Some(self.class_node(*class)?.parent);
        let above = std::iter::successors(above(&class), above);
        7_u32.saturating_sub(above.filter(|parent| parent.minor() != 0).count() as u32)
    }

    /// Checks that what is attached to `parent` may have a size table. A qdisc with a child at each
    /// queue may have one that is not used: packets do not pass it.
    ///
    /// # Errors
    /// If it is neither at the root nor at a transmit queue.
    pub fn check_stab(&self, parent: Handle) -> Result<(), SpecError> {
        let above = self.node(parent.qdisc()).map(|node| &node.qdisc);
        if parent == Handle::ROOT || above.is_some_and(QdiscSpec::is_per_queue) {
            return Ok(());
        }
        Err(TreeError::StabBelow.into())
    }

    /// Estimator of a qdisc or class, if there is one.
    pub fn estimator(&self, name: Handle) -> Option<EstimatorSpec> {
        self.estimators.get(&name).copied()
    }

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

    /// True if the same qdiscs and classes are at the same places, with parameters that can be
    /// changed in use where they differ.
    pub(super) fn can_become(&self, other: &TreeSpec) -> bool {
        let nodes = self.nodes().len() == other.nodes().len()
            && self.nodes().zip(other.nodes()).all(|(own, other)| {
                (own.handle, own.parent) == (other.handle, other.parent)
                    && (own.qdisc == other.qdisc || other.qdisc.can_change(&own.qdisc))
            });
        let classes = self.classes.len() == other.classes.len()
            && self
                .classes
                .iter()
                .zip(&other.classes)
                .all(|(own, other)| (own.0, own.1.parent) == (other.0, other.1.parent));
        // An estimator goes with what it belongs to.
        let mut estimators = self.estimators.keys();
        nodes && classes && estimators.all(|name| other.estimators.contains_key(name))
    }
}

impl From<QdiscSpec> for TreeSpec {
    /// A tree of this qdisc alone; the default's is empty. Its parameters are not checked yet.
    fn from(qdisc: QdiscSpec) -> TreeSpec {
        match qdisc {
            QdiscSpec::Tree(tree) => tree,
            QdiscSpec::Default => TreeSpec::new(),
            one => {
                let mut tree = TreeSpec::new();
                let handle = Handle::new(Handle::FIRST_CHOSEN, 0);
                let node = Node {
                    parent: Handle::ROOT,
                    handle,
                    qdisc: one,
                    stab: None,
                    filters: FilterList::default(),
                };
                tree.attached.insert(Handle::ROOT, handle);
                tree.singles += usize::from(node.qdisc.is_single());
                tree.nodes.insert(handle, node);
                tree.chosen = Handle::FIRST_CHOSEN;
                tree
            }
        }
    }
}
