//! The classes of a tree as configuration: those that a qdisc comes with, and those that are
//! added to it, below it or below one another.

use super::spec::{MAX_DEPTH, Node, TreeError, TreeSpec};
use crate::filter::FilterList;
use crate::handle::Handle;
use crate::qdisc::{ClassSpec, SpecError};

/// A class that was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNode {
    /// The class above it, or the qdisc.
    pub parent: Handle,
    /// Its parameters.
    pub spec: ClassSpec,
    /// Its own filters, for packets that get to it while it is no leaf.
    pub filters: FilterList,
}

impl TreeSpec {
    /// The class of this name, if it was added.
    pub fn class_node(&self, class: Handle) -> Option<&ClassNode> {
        self.classes.get(&class)
    }

    /// The classes that were added, by their names.
    pub fn added_classes(&self) -> impl Iterator<Item = (Handle, &ClassNode)> {
        self.classes.iter().map(|(&class, node)| (class, node))
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

    /// Whether a class has classes below it, and no qdisc.
    pub(crate) fn is_inner(&self, class: Handle) -> bool {
        class.minor() != 0 && self.classes_below(class).next().is_some()
    }

    /// Whether a qdisc has this class.
    pub(crate) fn has_class(&self, node: &Node, class: Handle) -> bool {
        (1..=node.qdisc.classes()).contains(&class.minor()) || self.classes.contains_key(&class)
    }

    /// Adds a class below a qdisc or one of its classes. What is attached to that class is removed
    /// with all that is below it: only a leaf has a qdisc.
    ///
    /// # Errors
    /// If the parameters are wrong, classes cannot be added to the qdisc, there is such a class
    /// already, or no such parent. Nothing is changed then.
    pub fn add_class(
        &mut self,
        parent: Handle,
        class: Handle,
        spec: ClassSpec,
    ) -> Result<(), SpecError> {
        let node = self.existing(class.qdisc())?;
        spec.check_for(&node.qdisc)?;
        if class.minor() == 0 || class == Handle::ROOT {
            return Err(TreeError::BadClass(class).into());
        }
        if self.classes.contains_key(&class) {
            return Err(TreeError::ClassExists(class).into());
        }
        let mut depth = 1;
        let mut above = parent;
        while above != class.qdisc() {
            let missing = if above == class {
                TreeError::Loop(class)
            } else {
                TreeError::NoClass(above)
            };
            above = self.classes.get(&above).ok_or(missing)?.parent;
            depth += 1;
        }
        if depth > MAX_DEPTH {
            return Err(TreeError::TooDeep(class).into());
        }
        if let Some(&attached) = self.attached.get(&parent) {
            self.cut(attached);
        }
        self.below.insert((parent, class));
        let filters = FilterList::default();
        let added = ClassNode {
            parent,
            spec,
            filters,
        };
        self.classes.insert(class, added);
        Ok(())
    }

    /// Gives a class other parameters.
    ///
    /// # Errors
    /// If the parameters are wrong, or there is no such class.
    pub fn change_class(&mut self, class: Handle, spec: ClassSpec) -> Result<(), SpecError> {
        let node = self.existing(class.qdisc())?;
        spec.check_for(&node.qdisc)?;
        let changed = self.classes.get_mut(&class);
        changed.ok_or(TreeError::NoClass(class))?.spec = spec;
        Ok(())
    }

    /// Removes a class, with what is attached to it.
    ///
    /// # Errors
    /// If there is no such class, its qdisc came with it, or classes or filters refer to it.
    pub fn delete_class(&mut self, class: Handle) -> Result<ClassNode, SpecError> {
        let node = self.existing(class.qdisc())?;
        if !node.qdisc.adds_classes() {
            return Err(TreeError::NoClasses(node.qdisc.kind()).into());
        }
        if !self.classes.contains_key(&class) {
            return Err(TreeError::NoClass(class).into());
        }
        if self.is_inner(class) || self.is_led_to(node, class) {
            return Err(TreeError::ClassInUse(class).into());
        }
        if let Some(&attached) = self.attached.get(&class) {
            self.cut(attached);
        }
        let deleted = self.forget(class);
        Ok(deleted.ok_or(TreeError::NoClass(class))?)
    }

    /// Whether filters of the qdisc or of its classes lead to a class.
    fn is_led_to(&self, node: &Node, class: Handle) -> bool {
        let classes = class.class(1)..=class.class(u16::MAX);
        let mut lists = self
            .filtered
            .range(classes)
            .filter_map(|of| self.classes.get(of));
        node.filters.leading_to(class) > 0 || lists.any(|of| of.filters.leading_to(class) > 0)
    }

    /// Removes the classes of a qdisc that is no more.
    pub(crate) fn forget_classes(&mut self, handle: Handle) {
        let classes = handle.class(1)..=handle.class(u16::MAX);
        let classes: Vec<Handle> = self
            .classes
            .range(classes)
            .map(|(&class, _)| class)
            .collect();
        for class in classes {
            self.forget(class);
        }
    }

    fn forget(&mut self, class: Handle) -> Option<ClassNode> {
        self.estimators.remove(&class);
        let node = self.classes.remove(&class)?;
        self.below.remove(&(node.parent, class));
        self.filtered.remove(&class);
        Some(node)
    }
}
