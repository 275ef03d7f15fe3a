//! Qdiscs and classes as messages show them.

use softnet::qdisc::QdiscStats;
use softnet_tc::{
    ClassSpec, ClassStats, FlowStats, Handle, LinkDefaults, QdiscSpec, Rate, SizeTable, TreeSpec,
    Xstats,
};

use super::kinds::{self, QdiscContext, ShownClass, ShownQdisc};
use super::place::Place;
use super::{TCA_HW_OFFLOAD, TCA_KIND, extras, stats};
use crate::nl::Message;
use crate::nl::headers::TcMsg;

fn header(index: u32, parent: Handle, handle: Handle, info: u32) -> TcMsg {
    TcMsg {
        ifindex: i32::try_from(index).unwrap_or(i32::MAX),
        parent: parent.raw(),
        handle: handle.raw(),
        info,
        ..TcMsg::default()
    }
}

/// A qdisc, as it was at a moment (`tc_fill_qdisc`).
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) index: u32,
    pub(super) parent: Handle,
    pub(super) handle: Handle,
    /// As the kernel would count them: shown as `refcnt`.
    pub(super) references: u32,
    pub(super) spec: QdiscSpec,
    pub(super) stats: QdiscStats,
    pub(super) xstats: Option<Xstats>,
    pub(super) rate: Option<Rate>,
    pub(super) stab: Option<SizeTable>,
    pub(super) context: QdiscContext,
}

impl Shown {
    /// That of a link that has no queue and never gets one.
    pub(super) fn noqueue(index: u32) -> Shown {
        Shown {
            index,
            parent: Handle::ROOT,
            handle: Handle::NONE,
            references: 2,
            spec: QdiscSpec::Noqueue,
            stats: QdiscStats::default(),
            xstats: None,
            rate: None,
            stab: None,
            context: QdiscContext {
                link: LinkDefaults {
                    mtu: 0,
                    tx_queue_len: 0,
                    queues: 1,
                },
                queues: 1,
                parent: Handle::ROOT,
            },
        }
    }

    pub(super) fn header(&self) -> TcMsg {
        header(self.index, self.parent, self.handle, self.references)
    }

    pub(super) fn put(&self, out: &mut Message<'_>) {
        let qdisc = ShownQdisc {
            spec: &self.spec,
            stats: &self.stats,
            xstats: self.xstats.as_ref(),
            context: self.context,
        };
        out.put_str(TCA_KIND, self.spec.kind());
        kinds::dump(&qdisc, out);
        out.put_u8(TCA_HW_OFFLOAD, 0);
        if let Some(stab) = &self.stab {
            extras::put_stab(stab, out);
        }
        let app = kinds::xstats(&qdisc);
        stats::put(Some(&self.stats), self.rate, app.as_ref(), out);
    }
}

/// True if the classes directly below a qdisc are shown as below the root.
fn is_below_root(qdisc: &QdiscSpec) -> bool {
    let added = qdisc.added_classes();
    added.is_some_and(|classes| !classes.root) || matches!(qdisc, QdiscSpec::Ets(_))
}

/// A class, as it was at a moment (`tc_fill_tclass`).
#[derive(Clone, Debug)]
pub(super) struct Class {
    index: u32,
    /// The qdisc that it is of.
    qdisc: QdiscSpec,
    /// Where the header says that it is.
    parent: Handle,
    /// Parameters of the class, if it was added.
    spec: Option<ClassSpec>,
    level: u32,
    stats: ClassStats,
    rate: Option<Rate>,
}

impl Class {
    /// A class of a link, if it is there.
    pub(super) fn new(place: &Place<'_>, class: Handle) -> Option<Class> {
        let qdisc = match place.node(class.qdisc()) {
            Some(node) => node.qdisc.clone(),
            None if place.is_default_mq() && class.major() == 0 => QdiscSpec::Mq,
            None => return None,
        };
        let stats = place.tree.class_at(class, place.queues)?;
        let is_own = stats.parent == class.qdisc();
        let parent = if qdisc.is_per_queue() {
            qdisc.class_above(class)
        } else if is_own && is_below_root(&qdisc) || class.minor() == 0 {
            Handle::ROOT
        } else {
            stats.parent
        };
        let spec = place.tree.spec().class_node(class);
        let spec = spec.map(|node| node.spec.clone()).or_else(|| {
            // The qdisc itself.
            let classes = qdisc.added_classes().filter(|_| class.minor() == 0)?;
            Some((classes.default)(&place.context(Handle::ROOT).link))
        });
        Some(Class {
            index: place.index,
            qdisc,
            parent,
            spec,
            level: place.tree.spec().level(class),
            stats,
            rate: place.tree.rate(class),
        })
    }

    /// A class that was added to a tree and is not there any more, without what it counted.
    pub(super) fn gone(index: u32, before: &TreeSpec, class: Handle) -> Option<Class> {
        let node = before.class_node(class)?;
        let qdisc = before.node(class.qdisc())?.qdisc.clone();
        let is_top = node.parent == class.qdisc() && is_below_root(&qdisc);
        let attached = before.child_of(class);
        Some(Class {
            index,
            qdisc,
            parent: if is_top { Handle::ROOT } else { node.parent },
            spec: Some(node.spec.clone()),
            level: before.level(class),
            stats: ClassStats {
                class,
                parent: node.parent,
                qdisc: attached.map_or(Handle::NONE, |node| node.handle),
                kind: attached.map_or("none", |node| node.qdisc.kind()),
                stats: QdiscStats::default(),
                htb: None,
                own: None,
                xstats: None,
            },
            rate: None,
        })
    }

    /// True if it has no classes below it.
    pub(super) fn is_leaf(&self) -> bool {
        self.level == 0
    }

    /// True if it is directly below this class or qdisc.
    pub(super) fn is_below(&self, parent: Handle) -> bool {
        self.stats.parent == parent
    }

    /// Parameters of the class, if it was added.
    pub(super) fn spec(&self) -> Option<&ClassSpec> {
        self.spec.as_ref()
    }

    pub(super) fn header(&self) -> TcMsg {
        let leaf = self.stats.qdisc.raw();
        header(self.index, self.parent, self.stats.class, leaf)
    }

    pub(super) fn put(&self, out: &mut Message<'_>) {
        out.put_str(TCA_KIND, self.qdisc.kind());
        let mut counted = self.stats.stats;
        let mut app = None;
        if let Some(spec) = &self.spec {
            let class = ShownClass {
                spec,
                qdisc: &self.qdisc,
                stats: &self.stats,
                level: self.level,
            };
            kinds::dump_class(&class, out);
            app = kinds::class_xstats(&class);
            // Those of the class, not of its queue.
            if let Some(htb) = &self.stats.htb {
                counted.overlimits = htb.overlimits;
            }
        } else {
            kinds::dump_own_class(&self.qdisc, self.stats.class, out);
        }
        let counts = !self.qdisc.has_one_class();
        stats::put(counts.then_some(&counted), self.rate, app.as_ref(), out);
    }
}

/// A flow of `fq_codel` with packets, shown as a class (`fq_codel_dump_class`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) index: u32,
    pub(super) class: Handle,
    pub(super) stats: FlowStats,
}

impl Flow {
    pub(super) fn header(&self) -> TcMsg {
        header(self.index, self.class.qdisc(), self.class, 0)
    }

    pub(super) fn put(&self, out: &mut Message<'_>) {
        let queue = QdiscStats {
            qlen: self.stats.qlen,
            backlog: self.stats.backlog,
            ..QdiscStats::default()
        };
        out.put_str(TCA_KIND, "fq_codel");
        stats::put_flow(&queue, &kinds::flow_xstats(&self.stats), out);
    }
}
