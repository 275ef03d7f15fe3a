//! Listing of a tree, at once or in parts. Each qdisc and class is found by its name in
//! logarithmic time, so a listing in many parts costs no more than one in one go. No queue is taken
//! from its owner.

use softnet::qdisc::QdiscStats;

use super::instances::{Counted, DeviceTree};
use super::spec::Node;
use crate::account::{HtbClassStats, OwnStats, Xstats, zip};
use crate::filter::{FilterList, FilterSpec, FilterStats};
use crate::handle::Handle;
use crate::qdisc::{ClassSpec, FIRST_TRAFFIC_CLASS, QdiscSpec};

/// The statistics of a class, which are those of the qdisc on it.
#[derive(Clone, Debug)]
pub struct ClassStats {
    /// The class, or [`Handle::ROOT`].
    pub class: Handle,
    /// The class above it, or its qdisc; [`Handle::NONE`] for the root.
    pub parent: Handle,
    /// The qdisc that is attached: its handle, or [`Handle::NONE`] if the class came with it.
    pub qdisc: Handle,
    /// Kind of that qdisc; `none` for a class with classes below it.
    pub kind: &'static str,
    /// Statistics.
    pub stats: QdiscStats,
    /// Statistics that only a class of `htb` has.
    pub htb: Option<HtbClassStats>,
    /// Statistics that only a class of another kind has.
    pub own: Option<OwnStats>,
    /// Statistics that the qdisc has because of its kind.
    pub xstats: Option<Xstats>,
}

impl Counted {
    /// Statistics of all instances.
    fn stats(&self) -> QdiscStats {
        self.instances.iter().map(|counters| counters.get()).sum()
    }

    /// Statistics that only a class of `htb` has.
    fn htb(&self, class: &ClassSpec) -> Option<HtbClassStats> {
        let ClassSpec::Htb(spec) = class else {
            return None;
        };
        let instances = self.instances.iter();
        let stats = instances.map(|counters| counters.own.htb(spec.rate, spec.ceil));
        stats.reduce(HtbClassStats::join)
    }

    /// Statistics that only a class of this qdisc has, of a kind other than `htb`.
    fn own(&self, qdisc: &QdiscSpec) -> Option<OwnStats> {
        let instances = self.instances.iter();
        let of = instances.map(|counters| qdisc.own_stats(counters));
        of.reduce(|a, b| Some(a?.join(b?)))?
    }
}

impl DeviceTree {
    /// Transmit queues of the device.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// The class of this name or the next one after it, of whatever qdisc.
    pub fn next_class(&self, from: Handle) -> Option<Handle> {
        let mut minor = from.minor();
        for node in self.spec.nodes_from(from.qdisc()) {
            if node.handle != from.qdisc() {
                minor = 0;
            }
            if let Some(class) = self.class_from(node, minor) {
                return Some(class);
            }
        }
        None
    }

    /// As [`next_class`](DeviceTree::next_class), or before that a class that is a flow of
    /// [`Live::flows`](crate::Live::flows), or may be one: of a qdisc where packets wait. `queues`
    /// are the statistics of the transmit queues.
    pub fn next_class_or_flow(&self, from: Handle, queues: &[QdiscStats]) -> Option<Handle> {
        let mut minor = from.minor();
        for node in self.spec.nodes_from(from.qdisc()) {
            if node.handle != from.qdisc() {
                minor = 0;
            }
            let has_flows = matches!(node.qdisc, QdiscSpec::FqCodel(_))
                && self
                    .stats_at(node.parent, queues)
                    .is_some_and(|stats| stats.qlen > 0);
            if has_flows {
                return Some(node.handle.class(minor.max(1)));
            }
            if let Some(class) = self.class_from(node, minor) {
                return Some(class);
            }
        }
        None
    }

    /// The first class of a qdisc from a minor number on.
    fn class_from(&self, node: &Node, minor: u16) -> Option<Handle> {
        if minor == 0 && node.qdisc.added_classes().is_some_and(|of| of.root) {
            return Some(node.handle);
        }
        let minor = minor.max(1);
        let class = node.handle.class(minor);
        if node.qdisc.adds_classes() {
            let mut added = self.spec.classes.range(class..=node.handle.class(u16::MAX));
            return added.next().map(|(&class, _)| class);
        }
        if self.has_class(class) && self.is_listed(node, class) {
            return Some(class);
        }
        let first = node.handle.class(FIRST_TRAFFIC_CLASS);
        let is_before = minor < FIRST_TRAFFIC_CLASS && node.qdisc.queue_map().is_some();
        (is_before && self.has_class(first)).then_some(first)
    }

    /// True if a class has a queue: that of `netem` has none unless a qdisc is attached.
    fn is_listed(&self, above: &Node, class: Handle) -> bool {
        above.qdisc.has_child_by_default() || self.spec.child_of(class).is_some()
    }

    /// True if there is a class of this name.
    pub fn has_class(&self, class: Handle) -> bool {
        let Some(node) = self
            .spec
            .node(class.qdisc())
            .filter(|_| class != Handle::ROOT)
        else {
            return false;
        };
        let minor = class.minor();
        if node.qdisc.is_per_queue() {
            let is_queue = (1..=self.queues).contains(&minor.into());
            return is_queue || node.qdisc.traffic_class(minor).is_some();
        }
        self.spec.has_class(node, class)
    }

    /// The parameters of the qdisc that a class, or the root with [`Handle::ROOT`], has if none is
    /// attached to it. `None`: it has no qdisc, or there is no such class.
    pub fn default_at(&self, class: Handle) -> Option<QdiscSpec> {
        let default = if class == Handle::ROOT {
            match (self.env.no_queue, self.queues) {
                (true, _) => return Some(QdiscSpec::Noqueue),
                (false, 1) => QdiscSpec::Default,
                (false, _) => return Some(QdiscSpec::Mq),
            }
        } else {
            let node = self.spec.node(class.qdisc())?;
            let is_traffic_class =
                node.qdisc.is_per_queue() && class.minor() >= FIRST_TRAFFIC_CLASS;
            if !self.has_class(class) || self.spec.is_inner(class) || is_traffic_class {
                return None;
            }
            match node.qdisc.default_child(&self.env) {
                QdiscSpec::Noqueue => return None,
                child => child,
            }
        };
        match default {
            QdiscSpec::Default => Some(self.env.default_spec()),
            other => Some(other),
        }
    }

    /// The statistics of a class, or of the root with [`Handle::ROOT`], which are those of the
    /// qdisc there. `queues` are the statistics of the transmit queues, as for
    /// [`classes`](DeviceTree::classes). Before there is a qdisc at the root, queue 0 is the class
    /// `:1` of nothing.
    pub fn stats_at(&self, class: Handle, queues: &[QdiscStats]) -> Option<QdiscStats> {
        let queue = |minor: u16| queues.get(usize::from(minor).checked_sub(1)?).copied();
        if class == Handle::ROOT {
            return Some(queues.iter().copied().sum());
        }
        let qdisc = self.spec.node(class.qdisc()).map(|node| &node.qdisc);
        if let Some(of) = qdisc.and_then(|qdisc| qdisc.traffic_class(class.minor())) {
            let first = usize::from(of.offset);
            let of = queues.get(first..first + usize::from(of.count))?;
            return Some(of.iter().copied().sum());
        }
        match qdisc {
            Some(qdisc) if qdisc.is_per_queue() => queue(class.minor()),
            None if class.major() == 0 => queue(class.minor()),
            _ => self.class_stats(class),
        }
    }

    /// The statistics of the qdisc at a class, or at the root: [`stats_at`](DeviceTree::stats_at)
    /// without what a class that was added had counted before it got this qdisc.
    pub fn qdisc_stats_at(&self, parent: Handle, queues: &[QdiscStats]) -> Option<QdiscStats> {
        let stats = self.stats_at(parent, queues)?;
        let before = self.counters.get(&parent).map(|counted| counted.before);
        Some(zip(
            &stats,
            &before.unwrap_or_default(),
            u64::saturating_sub,
        ))
    }

    /// A class with its statistics; see [`stats_at`](DeviceTree::stats_at).
    pub fn class_at(&self, class: Handle, queues: &[QdiscStats]) -> Option<ClassStats> {
        let stats = self.stats_at(class, queues)?;
        let child = self.spec.child_of(class);
        let added = self.spec.class_node(class);
        Some(ClassStats {
            class,
            parent: added.map_or_else(|| class.qdisc(), |node| node.parent),
            qdisc: child.map_or(Handle::NONE, |child| child.handle),
            kind: child.map_or("none", |child| child.qdisc.kind()),
            stats,
            htb: self.htb_stats(class),
            own: self.own_stats(class),
            xstats: child.and_then(|child| self.xstats(child.handle)).cloned(),
        })
    }

    /// Kind of qdisc at the root if none is attached there.
    pub fn default_kind(&self) -> &'static str {
        self.default_at(Handle::ROOT).unwrap_or_default().kind()
    }

    /// The root and all classes, each before those below it. `queues` are the statistics of the
    /// transmit queues: what passes an empty qdisc, or waits for the driver, only they count. No
    /// queue is taken from its owner.
    pub fn classes(&self, queues: &[QdiscStats]) -> Vec<ClassStats> {
        let mut all = Vec::with_capacity(1 + queues.len() + self.counters.len());
        self.each_class(queues, &mut |class| all.push(class));
        all
    }

    /// The statistics that a qdisc has because of its kind, if that has some.
    pub fn xstats(&self, qdisc: Handle) -> Option<&Xstats> {
        self.xstats.get(&qdisc)
    }

    /// As [`xstats`](DeviceTree::xstats), of a qdisc that may be one of a queue and have no name.
    pub fn xstats_at(&self, qdisc: Handle, parent: Handle) -> Option<&Xstats> {
        let has_name = qdisc != Handle::NONE;
        self.xstats.get(if has_name { &qdisc } else { &parent })
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
            own: None,
            xstats: root.and_then(|root| self.xstats(root.handle)).cloned(),
        });
        if !per_queue {
            root.into_iter().for_each(|root| self.below(root, f));
            return;
        }
        let name = root.map_or(Handle::NONE, |root| root.handle);
        let default = self.env.default_spec().kind();
        for (minor, &stats) in (1..).zip(queues) {
            let queue = ClassStats {
                class: name.class(minor),
                parent: name,
                qdisc: Handle::NONE,
                kind: default,
                stats,
                htb: None,
                own: None,
                xstats: None,
            };
            self.class(queue, f);
        }
    }

    /// A class, which is as if nothing was attached to it, and those below what is attached.
    fn class(&self, mut class: ClassStats, f: &mut impl FnMut(ClassStats)) {
        let child = self.spec.child_of(class.class);
        if let Some(child) = child {
            class.qdisc = child.handle;
            class.kind = child.qdisc.kind();
            class.xstats = self.xstats(child.handle).cloned();
        }
        f(class);
        child.into_iter().for_each(|child| self.below(child, f));
    }

    fn below(&self, node: &Node, f: &mut impl FnMut(ClassStats)) {
        let default = node.qdisc.default_child(&self.env).kind();
        if self.is_listed(node, node.handle.class(1)) {
            self.classes_below(node, node.handle, default, f);
        }
    }

    /// The classes of a qdisc that are below it or below one of its classes, each before those
    /// below it. Of each one there are as few searches as can be: there may be thousands.
    fn classes_below(
        &self,
        of: &Node,
        above: Handle,
        default: &'static str,
        f: &mut impl FnMut(ClassStats),
    ) {
        for class in self.spec.classes_below(above) {
            let Some(counted) = self.counters.get(&class) else {
                continue;
            };
            let inner = self.spec.is_inner(class);
            let added = self.spec.class_node(class);
            let listed = ClassStats {
                class,
                parent: above,
                qdisc: Handle::NONE,
                kind: if inner { "none" } else { default },
                stats: counted.stats(),
                htb: added.and_then(|added| counted.htb(&added.spec)),
                own: counted.own(&of.qdisc),
                xstats: None,
            };
            self.class(listed, f);
            if inner {
                self.classes_below(of, class, default, f);
            }
        }
    }

    /// The filters and what they have counted, of each qdisc and then of its classes, in the order
    /// in which `tc filter show` has them. No queue is taken from its owner.
    pub fn filters(&self) -> impl Iterator<Item = (&FilterSpec, FilterStats)> {
        let shown = self.spec.filter_lists().flat_map(FilterList::shown);
        shown.map(|filter| self.filter_sum(filter))
    }

    /// The statistics of a class that is not a transmit queue.
    pub(crate) fn class_stats(&self, class: Handle) -> Option<QdiscStats> {
        Some(self.counters.get(&class)?.stats())
    }

    /// Statistics of an instance of a class that keeps them when it gets another qdisc.
    pub(crate) fn kept_stats(&self, class: Handle, index: usize) -> Option<QdiscStats> {
        let above = self.spec.node(class.qdisc())?;
        let counters = self.counters.get(&class)?.instances.get(index);
        let stats = counters.filter(|_| above.qdisc.adds_classes())?.get();
        Some(QdiscStats {
            qlen: 0,
            backlog: 0,
            queued: 0,
            memory: 0,
            ..stats
        })
    }

    /// Statistics that only a class of `htb` has.
    pub(crate) fn htb_stats(&self, class: Handle) -> Option<HtbClassStats> {
        let counted = self.counters.get(&class)?;
        counted.htb(&self.spec.class_node(class)?.spec)
    }

    /// Statistics that only a class of a kind other than `htb` has.
    fn own_stats(&self, class: Handle) -> Option<OwnStats> {
        let counted = self.counters.get(&class)?;
        counted.own(&self.spec.node(class.qdisc())?.qdisc)
    }

    /// A filter with what it has counted in all instances, from what its list in
    /// [`spec`](DeviceTree::spec) says of it: those counts are the first instance's.
    pub fn filter_sum<'a>(
        &self,
        (filter, mut sum): (&'a FilterSpec, FilterStats),
    ) -> (&'a FilterSpec, FilterStats) {
        for lists in &self.filters {
            let list = lists.get(&filter.parent);
            if let Some(Ok((_, stats))) = list.map(|list| list.get(filter.key())) {
                sum.add(&stats);
            }
        }
        self.hook_sum(filter, &mut sum);
        (filter, sum)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
