//! A tree of qdiscs as configuration: what is attached where, by tc's handles, checked as it is
//! built, so that every [`TreeSpec`] can be instantiated. Knows nothing of packets;
//! [`DeviceTree`](crate::DeviceTree) is the same tree with its instances.
//!
//! A change looks at the nodes that it concerns and at those above them, at most eight, and finds
//! each in logarithmic time: it costs as much in a tree of ten nodes as in one of ten thousand.

use std::collections::{BTreeMap, BTreeSet};

use super::class_plan::ClassNode;
use crate::account::{EstimatorSpec, SizeTable};
use crate::filter::{FilterError, FilterKey, FilterList, FilterOp, FilterSelector, FilterSpec};
use crate::handle::Handle;
use crate::qdisc::{QdiscSpec, SpecError};

/// Nested qdiscs at most, and classes of one qdisc above one another, as in Linux.
pub(crate) const MAX_DEPTH: usize = 8;

/// Why a qdisc or filter cannot be where it is asked to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The handle is a class's, or the root's.
    #[error("{0} cannot name a qdisc; a qdisc's handle is written like \"1:\"")]
    Handle(Handle),
    /// Two qdiscs of one name.
    #[error("there is a qdisc {0} already; choose another handle")]
    InUse(Handle),
    /// All 32,767 numbers that are chosen from are in use.
    #[error("no handle is left to choose")]
    NoHandle,
    /// Nothing of this name.
    #[error("there is no qdisc {0}")]
    NoQdisc(Handle),
    /// The parent does not have this class.
    #[error("there is no class {0}")]
    NoClass(Handle),
    /// The class has a qdisc already.
    #[error("{0} has a qdisc already")]
    Exists(Handle),
    /// Too many above one another.
    #[error("{0} is too deep; at most {MAX_DEPTH} qdiscs or classes may be nested")]
    TooDeep(Handle),
    /// It would be above itself.
    #[error("qdisc parent/child loop detected: {0} would be below itself")]
    Loop(Handle),
    /// The class has classes below it.
    #[error("{0} has classes below it, and no qdisc")]
    Inner(Handle),
    /// Classes are not added to a qdisc of this kind.
    #[error("operation not supported: {0} has no classes that are added or deleted")]
    NoClasses(&'static str),
    /// The name is not a class's.
    #[error("{0} cannot name a class; a class's name is written like \"1:2\"")]
    BadClass(Handle),
    /// Two classes of one name.
    #[error("there is a class {0} already")]
    ClassExists(Handle),
    /// Something refers to the class.
    #[error("HTB class in use: {0} has classes below it, or filters that lead to it")]
    ClassInUse(Handle),
    /// The kind can only be at a device's root (BUG-TX-26).
    #[error("{0} can only be attached to a device's root")]
    RootOnly(&'static str),
    /// A size table of a qdisc that is below another (CVE-2024-50039).
    #[error("STAB not supported on a non root")]
    StabBelow,
    /// An estimator of a qdisc that packets do not pass.
    #[error("Cannot attach rate estimator to a multi-queue root qdisc")]
    NoEstimator,
}

/// One qdisc of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The class it is attached to, or [`Handle::ROOT`].
    pub parent: Handle,
    /// Its name.
    pub handle: Handle,
    /// Its kind and parameters.
    pub qdisc: QdiscSpec,
    /// What packets count as for it and for what is below it.
    pub stab: Option<SizeTable>,
    /// Its filters.
    pub filters: FilterList,
}

/// A tree of qdiscs and the filters that lead to its classes. Trees are equal if the same is
/// attached at the same places, whatever handles are chosen next.
#[derive(Clone, Debug, Default)]
pub struct TreeSpec {
    pub(crate) nodes: BTreeMap<Handle, Node>,
    /// The node at each class that has one, and at the root.
    pub(crate) attached: BTreeMap<Handle, Handle>,
    /// The classes that were added.
    pub(crate) classes: BTreeMap<Handle, ClassNode>,
    /// The same behind what they are directly below: a qdisc or a class.
    pub(crate) below: BTreeSet<(Handle, Handle)>,
    /// How rates are estimated, by the names of qdiscs and of classes that were added.
    pub(crate) estimators: BTreeMap<Handle, EstimatorSpec>,
    /// The classes with filters of their own.
    pub(crate) filtered: BTreeSet<Handle>,
    /// The last handle that was chosen.
    chosen: u16,
}

impl PartialEq for TreeSpec {
    fn eq(&self, other: &TreeSpec) -> bool {
        // The other fields follow from these.
        self.nodes == other.nodes
            && self.classes == other.classes
            && self.estimators == other.estimators
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
        let lists = self.nodes().flat_map(|node| {
            let classes = node.handle.class(1)..=node.handle.class(u16::MAX);
            let classes = self.filtered.range(classes);
            let of_classes = classes.filter_map(|class| Some(&self.classes.get(class)?.filters));
            std::iter::once(&node.filters).chain(of_classes)
        });
        lists.filter(|list| !list.is_empty())
    }

    /// The filters of a qdisc or class.
    ///
    /// # Errors
    /// If there is no such qdisc or class, or it can have none.
    pub fn filters_of(&self, parent: Handle) -> Result<&FilterList, FilterError> {
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
        match self.classes.get(&parent) {
            Some(class) => Ok(&class.filters),
            None if parent.minor() <= node.qdisc.classes() => {
                Err(FilterError::NotOfClasses(parent))
            }
            None => Err(FilterError::NoClass(parent)),
        }
    }

    /// As [`filters_of`](TreeSpec::filters_of), to change them.
    pub(crate) fn filters_mut(&mut self, parent: Handle) -> Result<&mut FilterList, FilterError> {
        self.filters_of(parent)?;
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

    /// Whether it has no qdisc.
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

    /// What is attached to a class or to the root.
    pub fn child_of(&self, parent: Handle) -> Option<&Node> {
        self.node(*self.attached.get(&parent)?)
    }

    /// What is attached to the classes of a qdisc from this minor number on.
    pub(crate) fn children_of(&self, handle: Handle, from: u16) -> impl Iterator<Item = &Node> {
        let classes = handle.class(from)..=handle.class(u16::MAX);
        let attached = self.attached.range(classes);
        attached
            .filter(|(class, _)| **class != Handle::ROOT)
            .filter_map(|(_, child)| self.node(*child))
    }

    /// What is attached to classes that a qdisc comes with, and that it does not have any more with
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

    /// Attaches a qdisc to the free class `parent`, or the root. A handle that is [`Handle::NONE`]
    /// is chosen. Returns the handle.
    ///
    /// # Errors
    /// If the parameters are wrong, the handle is in use, or there is no such free class.
    pub fn add(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        let parent = self.class(parent);
        if self.attached.contains_key(&parent) {
            return Err(TreeError::Exists(parent).into());
        }
        self.place(parent, handle, qdisc)
    }

    /// As [`add`](TreeSpec::add), on a class that may have a qdisc: that is removed with all that
    /// is below it.
    ///
    /// # Errors
    /// As [`add`](TreeSpec::add); nothing is changed then.
    pub fn replace(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        let parent = self.class(parent);
        if self
            .path(parent)?
            .iter()
            .any(|above| above.qdisc() == handle)
        {
            return Err(TreeError::Loop(handle).into());
        }
        self.place(parent, handle, qdisc)
    }

    /// Gives a qdisc other parameters of its kind. What is attached to classes that are no more is
    /// removed.
    ///
    /// # Errors
    /// If there is no such qdisc, or the parameters are wrong or of another kind.
    pub fn change(&mut self, handle: Handle, qdisc: QdiscSpec) -> Result<(), SpecError> {
        qdisc.check()?;
        let node = self.existing(handle)?;
        if !qdisc.can_change(&node.qdisc) {
            return Err(SpecError::Change(qdisc.kind()));
        }
        let gone = self.children_beyond(handle, &qdisc);
        self.existing_mut(handle)?.qdisc = qdisc;
        gone.into_iter().for_each(|child| self.cut(child));
        Ok(())
    }

    /// Removes a qdisc and all that is below it.
    ///
    /// # Errors
    /// If there is no such qdisc.
    pub fn delete(&mut self, handle: Handle) -> Result<Node, SpecError> {
        let node = self.existing(handle)?.clone();
        self.cut(handle);
        Ok(node)
    }

    /// Adds or changes a filter; see [`FilterList::put`]. Its class need not exist (yet); see
    /// [`FilterSpec::class`]. Returns what it is called by.
    ///
    /// # Errors
    /// If its qdisc or class does not exist or has no filters, or as [`FilterList::put`].
    pub fn put_filter(
        &mut self,
        op: FilterOp,
        filter: FilterSpec,
    ) -> Result<FilterKey, FilterError> {
        let parent = filter.parent;
        let key = self.filters_mut(parent)?.put(op, filter)?;
        if parent.minor() != 0 {
            self.filtered.insert(parent);
        }
        Ok(key)
    }

    /// The class that a name stands for: the only one of a `tbf` has all of them.
    pub fn class(&self, name: Handle) -> Handle {
        match self.node(name.qdisc()) {
            Some(node) if name != Handle::ROOT && node.qdisc.has_one_class() => name.class(1),
            _ => name,
        }
    }

    /// Removes filters of a qdisc or class; see [`FilterList::delete`].
    ///
    /// # Errors
    /// If there is no such qdisc or class, or as [`FilterList::delete`].
    pub fn delete_filters<'a>(
        &mut self,
        parent: Handle,
        which: impl Into<FilterSelector<'a>>,
    ) -> Result<(), FilterError> {
        let list = self.filters_mut(parent)?;
        list.delete(which)?;
        if list.is_empty() {
            self.filtered.remove(&parent);
        }
        Ok(())
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

    /// Puts a qdisc in the place of what is attached to `parent`.
    fn place(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        qdisc.check()?;
        if matches!(qdisc, QdiscSpec::Tree(_)) || qdisc.is_root_only() && parent != Handle::ROOT {
            return Err(TreeError::RootOnly(qdisc.kind()).into());
        }
        let path = self.path(parent)?;
        if self.is_inner(parent) {
            return Err(TreeError::Inner(parent).into());
        }
        if path.len() >= MAX_DEPTH {
            return Err(TreeError::TooDeep(parent).into());
        }
        let handle = match handle {
            unnamed if unnamed == Handle::NONE => self.choose()?,
            handle if !handle.is_qdisc() => return Err(TreeError::Handle(handle).into()),
            handle if self.is_kept(handle, parent) => return Err(TreeError::InUse(handle).into()),
            handle => handle,
        };
        if let Some(old) = self.attached.get(&parent) {
            self.cut(*old);
        }
        self.attached.insert(parent, handle);
        let node = Node {
            parent,
            handle,
            qdisc,
            stab: None,
            filters: FilterList::default(),
        };
        self.nodes.insert(handle, node);
        Ok(handle)
    }

    /// Whether there is such a qdisc, and not at `parent` or below.
    fn is_kept(&self, handle: Handle, parent: Handle) -> bool {
        let mut node = self.node(handle);
        if node.is_none() {
            return false;
        }
        while let Some(at) = node {
            if at.parent == parent {
                return false;
            }
            let below_a_class = at.parent != Handle::ROOT;
            node = self.node(at.parent.qdisc()).filter(|_| below_a_class);
        }
        true
    }

    /// As the kernel: the numbers from 8001 on, each once before one comes again.
    fn choose(&mut self) -> Result<Handle, TreeError> {
        const NONE: u16 = 0x8000;
        for _ in NONE + 1..u16::MAX {
            self.chosen = match self.chosen {
                last @ NONE..0xFFFE => last + 1,
                _ => NONE + 1,
            };
            let handle = Handle::new(self.chosen, 0);
            if !self.nodes.contains_key(&handle) {
                return Ok(handle);
            }
        }
        Err(TreeError::NoHandle)
    }

    /// Removes a qdisc and what is below it.
    pub(crate) fn cut(&mut self, handle: Handle) {
        let below: Vec<Handle> = self.children_of(handle, 1).map(|n| n.handle).collect();
        below.into_iter().for_each(|child| self.cut(child));
        self.forget_classes(handle);
        self.estimators.remove(&handle);
        if let Some(node) = self.nodes.remove(&handle) {
            self.attached.remove(&node.parent);
        }
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
                tree.nodes.insert(handle, node);
                tree.chosen = Handle::FIRST_CHOSEN;
                tree
            }
        }
    }
}
