//! Qdiscs in a link's tree, as requests name them: those that were attached, and those that come
//! by themselves, which have no handle.

use softnet::qdisc::QdiscStats;
use softnet_engine::{Devices, Engine};
use softnet_tc::{DeviceTree, Handle, LinkDefaults, Node, QdiscSpec};

use super::kinds::{self, QdiscContext};
use super::refusal;
use super::shown::Shown;
use crate::nl::{Errno, Error, Replies};

/// `TC_H_INGRESS`, where packets that arrive are handled.
pub(super) const INGRESS: Handle = Handle::from_raw(0xffff_fff1);

/// A link's tree.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) index: u32,
    pub(super) tree: &'a DeviceTree,
    /// Statistics of the transmit queues.
    pub(super) queues: &'a [QdiscStats],
    link: LinkDefaults,
    has_default: bool,
}

/// A qdisc in a tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) parent: Handle,
    /// [`Handle::NONE`] if it came by itself.
    pub(super) handle: Handle,
    pub(super) spec: QdiscSpec,
}

impl From<&Node> for Found {
    fn from(node: &Node) -> Found {
        Found {
            parent: node.parent,
            handle: node.handle,
            spec: node.qdisc.clone(),
        }
    }
}

impl Place<'_> {
    /// Reads a link's tree.
    pub(super) fn read<D: Devices, T>(
        engine: &Engine<D>,
        index: u32,
        f: impl FnOnce(Place<'_>) -> T,
    ) -> Result<T, Error> {
        let link = engine.link(index).map_err(refusal::control)?;
        let read = engine.read_tree(index, |tree, queues| {
            f(Place {
                index,
                tree,
                queues,
                link: LinkDefaults {
                    mtu: link.settings.mtu,
                    tx_queue_len: link.settings.tx_queue_len,
                    queues: u16::try_from(tree.queues()).unwrap_or(u16::MAX),
                },
                has_default: link.has_default,
            })
        });
        read.map_err(refusal::control)
    }

    /// Puts what is to be warned of a qdisc or class into the answer to a request, behind what the
    /// kernel warns of. Where queues share the rates, which no kernel does; else it says what the
    /// kernel says.
    pub(super) fn warn(self, name: Handle, kernels: Option<String>, replies: &mut Replies) {
        let own = match self.tree.instances() {
            1 if !self.tree.is_single() => Vec::new(),
            _ => self.tree.warnings_of(name),
        };
        let own = own.iter().map(ToString::to_string);
        let all: Vec<String> = kernels.into_iter().chain(own).collect();
        if !all.is_empty() {
            replies.warning(all.join("; "));
        }
    }

    /// As [`warn`](Place::warn), of a qdisc.
    pub(super) fn warn_of_qdisc(self, handle: Handle, replies: &mut Replies) {
        let instances = self.tree.instances();
        let node = self.node(handle);
        let warning = node.and_then(|node| kinds::qdisc_warning(&node.qdisc, instances));
        self.warn(handle, warning, replies);
    }

    /// Context of the options of a qdisc at `parent`.
    pub(super) fn context(&self, parent: Handle) -> QdiscContext {
        QdiscContext {
            link: self.link,
            queues: self.tree.queues(),
            parent,
        }
    }

    /// The qdisc of a handle (`qdisc_lookup`).
    pub(super) fn node(&self, handle: Handle) -> Option<&Node> {
        self.tree.spec().node(handle)
    }

    /// The qdisc at the root. None: the link has none yet (`noop`).
    pub(super) fn root(&self) -> Option<Found> {
        match self.tree.spec().root() {
            Some(root) => Some(root.into()),
            None => self.default_at(Handle::ROOT),
        }
    }

    /// The qdisc that is at a class, or at the root, if none is attached.
    pub(super) fn default_at(&self, parent: Handle) -> Option<Found> {
        if self.tree.spec().is_empty() && !self.has_default {
            return None;
        }
        let spec = match parent.major() {
            // A queue below the `mq` that comes by itself.
            0 => self.tree.env().default_spec(),
            _ => self.tree.default_at(parent)?,
        };
        Some(Found {
            parent,
            handle: Handle::NONE,
            spec,
        })
    }

    /// The qdisc at a class (`qdisc_leaf`). None: the class has no qdisc.
    pub(super) fn leaf(&self, above: &Node, class: Handle) -> Result<Option<Found>, Error> {
        if !has_classes(&above.qdisc) {
            return Err(Error::new(Errno::EOPNOTSUPP).text("Parent qdisc is not classful"));
        }
        let class = self.class(class);
        let is_root = above.qdisc.added_classes().is_some_and(|of| of.root);
        let next = || self.tree.next_class(class.class(1));
        if class.minor() == 0 && is_root && next().is_some_and(|next| next.qdisc() == class) {
            // The qdisc is a class above others.
            return Ok(None);
        }
        if !self.tree.has_class(class) {
            return Err(Error::new(Errno::ENOENT).text("Specified class not found"));
        }
        let attached = self.tree.spec().child_of(class).map(Found::from);
        Ok(attached.or_else(|| self.default_at(class)))
    }

    /// The class that a name stands for: the only one of `tbf` has all of them.
    pub(super) fn class(&self, name: Handle) -> Handle {
        self.tree.spec().class(name)
    }

    /// True if a name is that of several queues of `mqprio`.
    pub(super) fn is_traffic_class(&self, class: Handle) -> bool {
        self.node(class.qdisc())
            .is_some_and(|above| above.qdisc.is_per_queue())
            && usize::from(class.minor()) > self.tree.queues()
            && self.tree.has_class(class)
    }

    /// True if the `mq` that comes by itself is at the root.
    pub(super) fn is_default_mq(&self) -> bool {
        let default = self.default_at(Handle::ROOT);
        self.tree.spec().is_empty() && default.is_some_and(|found| found.spec == QdiscSpec::Mq)
    }

    /// A qdisc with its statistics.
    pub(super) fn shown(&self, found: Found) -> Shown {
        let Found {
            parent,
            handle,
            spec,
        } = found;
        let is_root = parent == Handle::ROOT;
        Shown {
            index: self.index,
            parent: self.tree.spec().named_parent(handle).unwrap_or(parent),
            handle,
            references: match &spec {
                spec if spec.is_per_queue() => 1,
                // One of each queue and one of the device; what comes by itself is on one queue.
                _ if is_root && handle == Handle::NONE => 2,
                _ if is_root => u32::try_from(self.tree.queues()).unwrap_or(u32::MAX - 1) + 1,
                _ => 1,
            },
            stats: self
                .tree
                .qdisc_stats_at(parent, self.queues)
                .unwrap_or_default(),
            xstats: self.tree.xstats_at(handle, parent).cloned(),
            rate: self.tree.rate(handle),
            stab: self.node(handle).and_then(|node| node.stab.clone()),
            context: self.context(parent),
            spec,
        }
    }
}

/// True if requests find classes in a qdisc. `fq_pie` has filters here, which name flows, and is
/// classless in the kernel.
pub(super) fn has_classes(qdisc: &QdiscSpec) -> bool {
    qdisc.is_classful() && !matches!(qdisc, QdiscSpec::FqPie(_))
}
