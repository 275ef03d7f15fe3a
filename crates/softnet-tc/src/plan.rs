//! A tree of disciplines as configuration: what hangs where, by tc's names, checked as it is built, so that every [`TreeSpec`] can be put to work.
//! Knows nothing of packets; [`Tree`](super::Tree) is the same tree at work.

use super::{FilterSpec, Handle, QdiscSpec, SpecError};

/// Disciplines above one another at most, as in Linux.
const MAX_DEPTH: usize = 8;

/// Why a discipline or filter cannot be where it is asked to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The handle is a class's, or the root's.
    #[error("{0} cannot name a qdisc; a qdisc's handle is written like \"1:\"")]
    Handle(Handle),
    /// Two disciplines of one name.
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
    /// The class has a discipline already.
    #[error("{0} has a qdisc already")]
    Exists(Handle),
    /// Too many above one another.
    #[error("{0} is too deep; at most {MAX_DEPTH} qdiscs may be nested")]
    TooDeep(Handle),
    /// The kind can only be a device's only qdisc, or that of its queues.
    #[error("{0} can only be attached to a device's root, and not in a tree")]
    RootOnly(&'static str),
    /// A filter of a discipline that has none.
    #[error("{0} has no filters; give them to a prio")]
    NoFilters(Handle),
    /// The filter leads to a class of another discipline.
    #[error("{class} is not a class of {parent}")]
    ForeignClass {
        /// The discipline with the filter.
        parent: Handle,
        /// Where the filter leads.
        class: Handle,
    },
    /// All priorities that are chosen from are in use.
    #[error("{0} has no priority left to choose; give the filter one")]
    NoPriority(Handle),
    /// Nothing to delete.
    #[error("{0} has no filter of that priority")]
    NoFilter(Handle),
}

/// One discipline of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The class it hangs on, or [`Handle::ROOT`].
    pub parent: Handle,
    /// Its name.
    pub handle: Handle,
    /// Its kind and parameters.
    pub qdisc: QdiscSpec,
}

/// A tree of disciplines and the filters that lead to its classes. Parents come before children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeSpec {
    nodes: Vec<Node>,
    filters: Vec<FilterSpec>,
}

impl TreeSpec {
    /// No discipline yet. Put to work as it is, it is the kernel's default.
    pub fn new() -> TreeSpec {
        TreeSpec::default()
    }

    /// The disciplines, parents first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The filters, in the order in which they were added.
    pub fn filters(&self) -> &[FilterSpec] {
        &self.filters
    }

    /// The kind of the discipline at the root.
    pub fn kind(&self) -> &'static str {
        self.child_of(Handle::ROOT)
            .map_or("pfifo_fast", |root| root.qdisc.kind())
    }

    /// Whether it has neither disciplines nor filters.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The discipline of this name.
    pub fn node(&self, handle: Handle) -> Option<&Node> {
        self.nodes.iter().find(|node| node.handle == handle)
    }

    /// What hangs on a class or on the root.
    pub fn child_of(&self, parent: Handle) -> Option<&Node> {
        self.nodes.iter().find(|node| node.parent == parent)
    }

    /// Hangs a discipline on the free class `parent`, or the root. A handle that is [`Handle::NONE`] is chosen. Returns the handle.
    ///
    /// # Errors
    /// If the parameters are wrong, the handle is in use, or there is no such free place.
    pub fn add(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        let parent = self.class(parent);
        if self.child_of(parent).is_some() {
            return Err(TreeError::Exists(parent).into());
        }
        self.place(parent, handle, qdisc)
    }

    /// As [`add`](TreeSpec::add), on a class that may have a discipline: that is removed with all that hangs on it.
    ///
    /// # Errors
    /// As [`add`](TreeSpec::add); nothing is changed then.
    pub fn replace(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        let mut fresh = self.clone();
        let parent = self.class(parent);
        if let Some(old) = fresh.child_of(parent).map(|node| node.handle) {
            fresh.cut(old);
        }
        let handle = fresh.place(parent, handle, qdisc)?;
        *self = fresh;
        Ok(handle)
    }

    /// Gives a discipline other parameters of its kind. What hangs on classes that are no more is
    /// removed.
    ///
    /// # Errors
    /// If there is no such discipline, or the parameters are wrong or of another kind.
    pub fn change(&mut self, handle: Handle, qdisc: QdiscSpec) -> Result<(), SpecError> {
        qdisc.check()?;
        let node = self.nodes.iter_mut().find(|node| node.handle == handle);
        let node = node.ok_or(TreeError::NoQdisc(handle))?;
        if node.qdisc.kind() != qdisc.kind() {
            return Err(SpecError::Change(qdisc.kind()));
        }
        let classes = qdisc.classes();
        node.qdisc = qdisc;
        let gone: Vec<Handle> = self
            .nodes
            .iter()
            .filter(|node| node.parent.qdisc() == handle && node.parent.minor() > classes)
            .map(|node| node.handle)
            .collect();
        gone.into_iter().for_each(|handle| self.cut(handle));
        Ok(())
    }

    /// Removes a discipline and all that hangs on it.
    ///
    /// # Errors
    /// If there is no such discipline.
    pub fn delete(&mut self, handle: Handle) -> Result<Node, SpecError> {
        let node = self.node(handle).cloned();
        let node = node.ok_or(TreeError::NoQdisc(handle))?;
        self.cut(handle);
        Ok(node)
    }

    /// Adds a filter behind those of its priority. Its class need not exist (yet); see
    /// [`FilterSpec::class`].
    ///
    /// # Errors
    /// If its discipline does not exist or has no filters, or the class is one of another.
    pub fn add_filter(&mut self, mut filter: FilterSpec) -> Result<(), SpecError> {
        let FilterSpec { parent, class, .. } = filter;
        let node = self.node(parent).ok_or(TreeError::NoQdisc(parent))?;
        if !matches!(node.qdisc, QdiscSpec::Prio(_)) {
            return Err(TreeError::NoFilters(parent).into());
        }
        if class.qdisc() != parent || class == Handle::ROOT {
            return Err(TreeError::ForeignClass { parent, class }.into());
        }
        if filter.prio == 0 {
            filter.prio = self.choose_prio(parent)?;
        }
        self.filters.push(filter);
        Ok(())
    }

    /// As the kernel (`tcf_auto_prio`): below all that were chosen before.
    fn choose_prio(&self, parent: Handle) -> Result<u16, TreeError> {
        const FIRST: u16 = 0xC000;
        const NONE: u16 = 0x8000;
        let own = self.filters.iter().filter(|filter| filter.parent == parent);
        let last = own.map(|filter| filter.prio).filter(|&prio| prio > NONE);
        match last.min() {
            None => Ok(FIRST),
            Some(last) if last > NONE + 1 => Ok(last - 1),
            Some(_) => Err(TreeError::NoPriority(parent)),
        }
    }

    /// The class that a name stands for: the only one of a `tbf` has all of them.
    fn class(&self, name: Handle) -> Handle {
        match self.node(name.qdisc()) {
            Some(node) if name != Handle::ROOT && matches!(node.qdisc, QdiscSpec::Tbf(_)) => {
                name.class(1)
            }
            _ => name,
        }
    }

    /// Removes the filters of a discipline that have this priority.
    ///
    /// # Errors
    /// If there is none.
    pub fn delete_filters(&mut self, parent: Handle, prio: u16) -> Result<(), SpecError> {
        let before = self.filters.len();
        self.filters
            .retain(|filter| filter.parent != parent || filter.prio != prio);
        if self.filters.len() == before {
            return Err(TreeError::NoFilter(parent).into());
        }
        Ok(())
    }

    /// The way to what hangs on `parent`: at each discipline from the root on, the index of the class.
    pub(super) fn path(&self, parent: Handle) -> Result<Vec<usize>, SpecError> {
        let mut path = Vec::new();
        let mut at = parent;
        while at != Handle::ROOT {
            let node = self
                .node(at.qdisc())
                .ok_or_else(|| TreeError::NoQdisc(at.qdisc()))?;
            if !(1..=node.qdisc.classes()).contains(&at.minor()) {
                return Err(TreeError::NoClass(at).into());
            }
            path.push(usize::from(at.minor()) - 1);
            at = node.parent;
        }
        path.push(0);
        path.reverse();
        Ok(path)
    }

    fn place(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        qdisc.check()?;
        let kind = qdisc.kind();
        if matches!(qdisc, QdiscSpec::Tree(_)) || qdisc.is_root_only() {
            // BUG-TX-26: a class's packets have to be queued.
            return Err(TreeError::RootOnly(kind).into());
        }
        if self.path(parent)?.len() > MAX_DEPTH {
            return Err(TreeError::TooDeep(parent).into());
        }
        let handle = match handle {
            Handle::NONE => self.choose()?,
            handle if !handle.is_qdisc() => return Err(TreeError::Handle(handle).into()),
            handle if self.node(handle).is_some() => return Err(TreeError::InUse(handle).into()),
            handle => handle,
        };
        self.nodes.push(Node {
            parent,
            handle,
            qdisc,
        });
        Ok(handle)
    }

    fn choose(&self) -> Result<Handle, TreeError> {
        (Handle::FIRST_CHOSEN..u16::MAX)
            .map(|major| Handle::new(major, 0))
            .find(|&handle| self.node(handle).is_none())
            .ok_or(TreeError::NoHandle)
    }

    /// Removes a discipline, what hangs on it, and their filters.
    fn cut(&mut self, handle: Handle) {
        let mut gone = vec![handle];
        // Parents come before children, so one pass finds all.
        for node in &self.nodes {
            if gone.contains(&node.parent.qdisc()) && node.parent != Handle::ROOT {
                gone.push(node.handle);
            }
        }
        self.nodes.retain(|node| !gone.contains(&node.handle));
        self.filters.retain(|filter| !gone.contains(&filter.parent));
    }
}
