//! Changes of a tree as configuration. Each is checked first: one that fails has changed nothing.

use super::error::TreeError;
use super::hook::Side;
use super::spec::{ClassNode, MAX_DEPTH, Node, TreeSpec};
use crate::account::{EstimatorSpec, SizeTable};
use crate::action::ActionList;
use crate::filter::{
    ChainTemplate, FilterError, FilterKey, FilterList, FilterOp, FilterSelector, FilterSpec, Indev,
};
use crate::handle::Handle;
use crate::qdisc::{ClassSpec, Classes, QdiscSpec, SpecError};

impl TreeSpec {
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
        let named = parent;
        let parent = self.class(named);
        if self.attached.contains_key(&parent) {
            return Err(TreeError::Exists(parent).into());
        }
        self.place(parent, named, handle, qdisc)
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
        let named = parent;
        let parent = self.class(named);
        if self
            .path(parent)?
            .iter()
            .any(|above| above.qdisc() == handle)
        {
            return Err(TreeError::Loop(handle).into());
        }
        self.place(parent, named, handle, qdisc)
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
        self.forget_shares(handle);
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
        mut filter: FilterSpec,
    ) -> Result<FilterKey, FilterError> {
        let parent = filter.parent;
        self.filters_of(parent)?;
        if let Some((side, list)) = self.hook_filters_mut(parent) {
            filter.parent = side.parent();
            return list.put(op, filter);
        }
        let key = self.filters_mut(parent)?.put(op, filter)?;
        if parent.minor() != 0 {
            self.filtered.insert(parent);
        }
        Ok(key)
    }

    /// Makes a chain of a qdisc or class that stays without filters; see [`FilterList::add_chain`].
    ///
    /// # Errors
    /// As that, or if the qdisc or class has no filters.
    pub fn add_chain(
        &mut self,
        parent: Handle,
        chain: u32,
        template: Option<ChainTemplate>,
    ) -> Result<(), FilterError> {
        self.filters_mut(parent)?.add_chain(chain, template)?;
        if parent.minor() != 0 {
            self.filtered.insert(parent);
        }
        Ok(())
    }

    /// Lets a chain go with its last filter; see [`FilterList::delete_chain`].
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn release_chain(&mut self, parent: Handle, chain: u32) -> Result<(), FilterError> {
        let list = self.filters_mut(parent)?;
        list.delete_chain(chain)?;
        if list.is_empty() {
            self.filtered.remove(&parent);
        }
        Ok(())
    }

    /// Gives filters other actions; see [`FilterList::map_actions`]. Returns whose filters changed.
    pub fn map_actions(
        &mut self,
        mut f: impl FnMut(&ActionList) -> Option<ActionList>,
    ) -> Vec<Handle> {
        let mut changed = Vec::new();
        for (handle, node) in &mut self.nodes {
            if node.filters.map_actions(&mut f) {
                changed.push(*handle);
            }
        }
        for parent in &self.filtered {
            let class = self.classes.get_mut(parent);
            if class.is_some_and(|class| class.filters.map_actions(&mut f)) {
                changed.push(*parent);
            }
        }
        if let Some(hook) = self.hook.as_deref_mut() {
            for side in Side::ALL {
                if hook.side_mut(side).filters.map_actions(&mut f) {
                    changed.push(side.parent());
                }
            }
        }
        changed
    }

    /// Has filters and templates name others in place of the links that they name; see
    /// [`FilterList::map_indevs`].
    pub fn map_indevs(&mut self, mut f: impl FnMut(&Indev) -> Indev) {
        for node in self.nodes.values_mut() {
            node.filters.map_indevs(&mut f);
        }
        for parent in &self.filtered {
            if let Some(class) = self.classes.get_mut(parent) {
                class.filters.map_indevs(&mut f);
            }
        }
        if let Some(hook) = self.hook.as_deref_mut() {
            for side in Side::ALL {
                hook.side_mut(side).filters.map_indevs(&mut f);
            }
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
        if list.is_empty() && self.hook_of(parent).is_none() {
            self.filtered.remove(&parent);
        }
        Ok(())
    }

    /// Puts a qdisc in the place of what is attached to `parent`, which is also called `named`.
    fn place(
        &mut self,
        parent: Handle,
        named: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
    ) -> Result<Handle, SpecError> {
        qdisc.check()?;
        if matches!(qdisc, QdiscSpec::Tree(_)) || qdisc.is_root_only() && parent != Handle::ROOT {
            return Err(TreeError::RootOnly(qdisc.kind()).into());
        }
        let path = self.path(parent)?;
        let above = self.node(parent.qdisc()).filter(|_| parent != Handle::ROOT);
        if above.is_some_and(|above| above.qdisc.queue_child().is_some()) {
            return Err(TreeError::Fixed(parent).into());
        }
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
        self.singles += usize::from(node.qdisc.is_single());
        self.nodes.insert(handle, node);
        if named != parent {
            self.named.insert(handle, named);
        }
        Ok(handle)
    }

    /// True if there is such a qdisc, and not at `parent` or below.
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
        self.named.remove(&handle);
        self.forget_shares(handle);
        if let Some(node) = self.nodes.remove(&handle) {
            self.singles -= usize::from(node.qdisc.is_single());
            self.attached.remove(&node.parent);
        }
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
        let parent = self.above_class(parent, class);
        self.weigh(class, None, &spec)?;
        if let Some(&attached) = self.attached.get(&parent) {
            self.cut(attached);
        }
        if let Some(above) = self.classes.get_mut(&parent) {
            above.spec.become_inner();
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

    /// The parent of a class that is added there: the qdisc, where none is below another.
    pub(crate) fn above_class(&self, parent: Handle, class: Handle) -> Handle {
        let node = self.node(class.qdisc());
        let classes = node.and_then(|node| node.qdisc.added_classes());
        match classes {
            Some(Classes { nested: true, .. }) => parent,
            _ => class.qdisc(),
        }
    }

    /// Counts the weight of a class in the place of what it had.
    fn weigh(
        &mut self,
        class: Handle,
        before: Option<&ClassSpec>,
        spec: &ClassSpec,
    ) -> Result<(), SpecError> {
        let (weight, most) = spec.weight();
        if most == u64::MAX {
            return Ok(());
        }
        let kind = self.existing(class.qdisc())?.qdisc.kind();
        let sum = self.weights.entry(class.qdisc()).or_default();
        let before = before.map_or(0, |before| before.weight().0);
        let others = sum.saturating_sub(before);
        if weight > most.saturating_sub(others) {
            let (more, sum) = (weight.saturating_sub(before), *sum);
            return Err(TreeError::Weight {
                kind,
                more,
                sum,
                most,
            }
            .into());
        }
        *sum = others + weight;
        Ok(())
    }

    /// Gives a class other parameters.
    ///
    /// # Errors
    /// If the parameters are wrong, or there is no such class.
    pub fn change_class(&mut self, class: Handle, mut spec: ClassSpec) -> Result<(), SpecError> {
        let node = self.existing(class.qdisc())?;
        spec.check_for(&node.qdisc)?;
        let before = self.class_node(class).ok_or(TreeError::NoClass(class))?;
        let before = before.spec.clone();
        self.weigh(class, Some(&before), &spec)?;
        if self.is_inner(class) {
            spec.become_inner();
        }
        if let Some(changed) = self.classes.get_mut(&class) {
            changed.spec = spec;
        }
        self.forget_shares(class);
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
            let text = node.qdisc.added_classes().map_or("", |of| of.in_use);
            return Err(TreeError::ClassInUse { text, class }.into());
        }
        if let Some(&attached) = self.attached.get(&class) {
            self.cut(attached);
        }
        let deleted = self.forget(class);
        Ok(deleted.ok_or(TreeError::NoClass(class))?)
    }

    /// True if filters of the qdisc or of its classes lead to a class.
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
        self.weights.remove(&handle);
    }

    fn forget(&mut self, class: Handle) -> Option<ClassNode> {
        self.estimators.remove(&class);
        self.forget_shares(class);
        let node = self.classes.remove(&class)?;
        self.below.remove(&(node.parent, class));
        self.filtered.remove(&class);
        if let Some(sum) = self.weights.get_mut(&class.qdisc()) {
            *sum = sum.saturating_sub(node.spec.weight().0);
        }
        Some(node)
    }

    /// Gives a qdisc a size table, or takes it away.
    ///
    /// # Errors
    /// If there is no such qdisc, or it is not at a root.
    pub fn set_stab(&mut self, handle: Handle, table: Option<SizeTable>) -> Result<(), SpecError> {
        let parent = self.existing(handle)?.parent;
        if table.is_some() {
            self.check_stab(parent)?;
        }
        self.existing_mut(handle)?.stab = table;
        Ok(())
    }

    /// Lets the rate of a qdisc, or of a class that was added, be estimated. It goes with it.
    ///
    /// # Errors
    /// If there is no such qdisc or class, or no packet passes it.
    pub fn set_estimator(&mut self, name: Handle, spec: EstimatorSpec) -> Result<(), SpecError> {
        if name.minor() == 0 {
            if self.existing(name)?.qdisc.is_per_queue() {
                return Err(TreeError::NoEstimator.into());
            }
        } else if self.class_node(name).is_none() {
            return Err(TreeError::NoClass(name).into());
        }
        self.estimators.insert(name, spec);
        Ok(())
    }
}
