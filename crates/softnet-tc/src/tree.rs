//! A tree of disciplines at work: disciplines by handle, hung on classes, changed while packets flow (tc(8)).
//!
//! The disciplines own each other: a class's discipline lies in its parent, and the numbers of all of them follow from one place (`children`). This
//! file finds a discipline by its name and puts another in its place. What is queued in a discipline that is replaced or deleted moves to what
//! stands there afterwards, in the order in which it would have left; what does not fit is dropped and counted as `qdisc_limit`.

use super::filter::Filters;
use super::{
    AnyQdisc, Cx, FilterSpec, Handle, Next, Node, Peek, Prio, Qdisc, QdiscEnv, QdiscSpec,
    QdiscStats, SpecError, TreeError, TreeSpec, Verdict, WireSum,
};
use softnet::mem::{PacketList, Pool};
use softnet::time::Time;

/// The numbers of a class, which are those of the discipline on it.
#[derive(Clone, Debug)]
pub struct ClassStats {
    /// The class, or [`Handle::ROOT`].
    pub class: Handle,
    /// What hangs there: its handle, or [`Handle::NONE`] if it is what the class came with.
    pub qdisc: Handle,
    /// Its kind.
    pub kind: &'static str,
    /// Its numbers.
    pub stats: QdiscStats,
}

/// A tree of disciplines.
#[derive(Debug)]
pub struct Tree {
    spec: TreeSpec,
    root: AnyQdisc,
    env: QdiscEnv,
}

impl Tree {
    /// The tree, empty of packets.
    ///
    /// # Errors
    /// If a discipline's parameters are wrong.
    pub fn build(spec: &TreeSpec, env: &QdiscEnv) -> Result<Tree, SpecError> {
        let mut tree = Tree {
            spec: TreeSpec::new(),
            root: QdiscSpec::default().build(env)?,
            env: env.clone(),
        };
        let mut cx = Cx::new(&env.pool);
        for node in spec.nodes() {
            let Node {
                parent,
                handle,
                qdisc,
            } = node.clone();
            tree.add(parent, handle, qdisc, &mut cx)?;
        }
        for filter in spec.filters() {
            tree.add_filter(filter.clone())?;
        }
        Ok(tree)
    }

    /// What the tree is made of.
    pub fn spec(&self) -> &TreeSpec {
        &self.spec
    }

    /// The pool that the tree was made for.
    pub(crate) fn pool(&self) -> &Pool {
        &self.env.pool
    }

    /// Hangs a discipline on a free class or the root; see [`TreeSpec::add`].
    ///
    /// # Errors
    /// As [`TreeSpec::add`]; nothing is changed then.
    pub fn add(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
        cx: &mut Cx,
    ) -> Result<Handle, SpecError> {
        let mut spec = self.spec.clone();
        let handle = spec.add(parent, handle, qdisc)?;
        self.put(spec, handle, cx)
    }

    /// Hangs a discipline where another may be; see [`TreeSpec::replace`].
    ///
    /// # Errors
    /// As [`TreeSpec::replace`]; nothing is changed then.
    pub fn replace(
        &mut self,
        parent: Handle,
        handle: Handle,
        qdisc: QdiscSpec,
        cx: &mut Cx,
    ) -> Result<Handle, SpecError> {
        let mut spec = self.spec.clone();
        let handle = spec.replace(parent, handle, qdisc)?;
        self.put(spec, handle, cx)
    }

    /// Gives a discipline other parameters of its kind; see [`AnyQdisc::change`].
    ///
    /// # Errors
    /// As [`TreeSpec::change`]; nothing is changed then.
    pub fn change(
        &mut self,
        handle: Handle,
        qdisc: &QdiscSpec,
        cx: &mut Cx,
    ) -> Result<(), SpecError> {
        let mut spec = self.spec.clone();
        spec.change(handle, qdisc.clone())?;
        let parent = spec.node(handle).map_or(Handle::ROOT, |node| node.parent);
        let path = spec.path(parent)?;
        self.at(&path, handle, |own| own.change(qdisc, cx))??;
        self.spec = spec;
        self.refilter(handle)
    }

    /// Removes a discipline and all that hangs on it. Its class goes back to the queue that it came with, the root to the default discipline
    /// (BUG-PRIO-2).
    ///
    /// # Errors
    /// If there is no such discipline.
    pub fn delete(&mut self, handle: Handle, cx: &mut Cx) -> Result<(), SpecError> {
        let mut spec = self.spec.clone();
        let node = spec.delete(handle)?;
        let path = spec.path(node.parent)?;
        let fresh = match path.split_last() {
            Some((_, above)) if !above.is_empty() => {
                let parent = node.parent.qdisc();
                self.at(above, parent, |own| own.default_child())?
            }
            _ => Some(QdiscSpec::default().build(&self.env)?),
        };
        let fresh = fresh.ok_or(TreeError::NoClass(node.parent))?;
        self.graft(&path, node.parent, fresh, true, cx)?;
        self.spec = spec;
        Ok(())
    }

    /// Adds a filter; see [`TreeSpec::add_filter`].
    ///
    /// # Errors
    /// As [`TreeSpec::add_filter`].
    pub fn add_filter(&mut self, filter: FilterSpec) -> Result<(), SpecError> {
        let parent = filter.parent;
        self.spec.add_filter(filter)?;
        self.refilter(parent)
    }

    /// Removes filters; see [`TreeSpec::delete_filters`].
    ///
    /// # Errors
    /// As [`TreeSpec::delete_filters`].
    pub fn delete_filters(&mut self, parent: Handle, prio: u16) -> Result<(), SpecError> {
        self.spec.delete_filters(parent, prio)?;
        self.refilter(parent)
    }

    /// The root and all classes, each before those below it, with their numbers.
    pub fn classes(&self) -> Vec<ClassStats> {
        let mut all = Vec::new();
        self.each_class(|class| all.push(class));
        all
    }

    /// As [`classes`](Tree::classes).
    pub(crate) fn each_class(&self, mut f: impl FnMut(ClassStats)) {
        self.list(Handle::ROOT, &self.root, *self.root.stats(), &mut f);
    }

    fn list(
        &self,
        class: Handle,
        qdisc: &AnyQdisc,
        stats: QdiscStats,
        f: &mut impl FnMut(ClassStats),
    ) {
        let node = self.spec.child_of(class);
        f(ClassStats {
            class,
            qdisc: node.map_or(Handle::NONE, |node| node.handle),
            kind: qdisc.kind(),
            stats,
        });
        if let (Some(node), Some(below)) = (node, qdisc.children()) {
            for (index, minor) in (0..below.len()).zip(1..) {
                if let Some(child) = below.get(index) {
                    let class = node.handle.class(minor);
                    self.list(class, child.qdisc(), below.stats_of(index), f);
                }
            }
        }
    }

    /// Puts the discipline that `spec` has as `handle` to work.
    fn put(&mut self, spec: TreeSpec, handle: Handle, cx: &mut Cx) -> Result<Handle, SpecError> {
        let node = spec.node(handle).ok_or(TreeError::NoQdisc(handle))?;
        let fresh = match &node.qdisc {
            // It reads its own name in packets' priorities.
            QdiscSpec::Prio(prio) => AnyQdisc::Prio(Box::new(Prio::new(handle, prio))),
            other => other.build(&self.env)?,
        };
        let path = spec.path(node.parent)?;
        self.graft(&path, node.parent, fresh, false, cx)?;
        self.spec = spec;
        Ok(handle)
    }

    /// Gives a discipline the filters that it has in the specification.
    fn refilter(&mut self, handle: Handle) -> Result<(), SpecError> {
        let node = self.spec.node(handle).ok_or(TreeError::NoQdisc(handle))?;
        let path = self.spec.path(node.parent)?;
        let own = self.spec.filters().iter().filter(|f| f.parent == handle);
        let filters = Filters::new(own);
        self.at(&path, handle, |own| {
            if let AnyQdisc::Prio(prio) = own {
                prio.set_filters(filters);
            }
        })
    }

    fn graft(
        &mut self,
        path: &[usize],
        place: Handle,
        fresh: AnyQdisc,
        default: bool,
        cx: &mut Cx,
    ) -> Result<(), SpecError> {
        let missing = TreeError::NoClass(place);
        match path.split_last() {
            Some((&0, [])) => {
                let mut moved = PacketList::new();
                self.root.drain(&mut moved);
                self.root = fresh;
                self.root.enqueue(&mut moved, cx);
                Ok(())
            }
            Some((&last, above)) => self.at(above, place.qdisc(), |qdisc| {
                let Some(children) = qdisc.children_mut() else {
                    return Err(missing.into());
                };
                if last >= children.len() {
                    return Err(missing.into());
                }
                children.graft(last, fresh, default, cx);
                Ok(())
            })?,
            None => Err(missing.into()),
        }
    }

    /// Does something with the qdisc at the end of a path, through all that stand above it.
    fn at<T>(
        &mut self,
        path: &[usize],
        handle: Handle,
        f: impl FnOnce(&mut AnyQdisc) -> T,
    ) -> Result<T, SpecError> {
        fn descend<T>(
            qdisc: &mut AnyQdisc,
            path: &[usize],
            f: impl FnOnce(&mut AnyQdisc) -> T,
        ) -> Option<T> {
            let Some((&index, rest)) = path.split_first() else {
                return Some(f(qdisc));
            };
            let children = qdisc.children_mut()?;
            children.get(index)?;
            children.with(index, |child| descend(child.qdisc_mut(), rest, f))
        }
        let found = descend(&mut self.root, path.get(1..).unwrap_or_default(), f);
        found.ok_or_else(|| TreeError::NoQdisc(handle).into())
    }
}

impl Qdisc for Tree {
    fn enqueue(&mut self, packets: &mut PacketList, cx: &mut Cx) -> Verdict {
        self.root.enqueue(packets, cx)
    }

    #[inline(never)]
    fn try_pass(&mut self, packets: &PacketList, sum: WireSum, cx: &mut Cx) -> bool {
        self.root.try_pass(packets, sum, cx)
    }

    fn dequeue(&mut self, budget: usize, out: &mut PacketList, cx: &mut Cx) -> Next {
        self.root.dequeue(budget, out, cx)
    }

    fn peek(&self, now: Time) -> Peek {
        self.root.peek(now)
    }

    fn drain(&mut self, out: &mut PacketList) {
        self.root.drain(out);
    }

    fn stats(&self) -> &QdiscStats {
        self.root.stats()
    }
}
