//! Warnings of what an author hardly means: parameters that are accepted, and then lose
//! packets or rate.

use std::fmt;

use super::instances::DeviceTree;
use super::spec::{Node, TreeSpec};
use crate::account::{LinkCost, MAX_HEADER};
use crate::handle::Handle;
use crate::qdisc::{CakeSpec, ClassSpec, HtbClassSpec, HtbSpec, QdiscSpec, TbfSpec};
use crate::rate::RateSpec;

/// Bytes of an Ethernet header.
const ETHERNET: u64 = 14;

/// Parameters of a qdisc or class that are accepted, but hardly meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The qdisc, or the class that was added.
    pub at: Handle,
    /// The parameter, as in tc.
    pub parameter: &'static str,
    /// The consequence, and what to give instead.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.to_string();
        let at = at.trim_end_matches(':');
        write!(f, "{at}: {} {}", self.parameter, self.text)
    }
}

/// Warnings about a tree, for a device with `queues` transmit queues and an MTU of
/// `mtu` bytes, Ethernet header not included. `parallel` is
/// [`QdiscEnv::parallel`](crate::QdiscEnv::parallel).
pub fn warnings(tree: &TreeSpec, queues: usize, parallel: bool, mtu: u32) -> Vec<Warning> {
    let root_is_one = tree.root().is_some_and(|root| !root.qdisc.is_root_only());
    let is_single = tree.is_single(Handle::NONE);
    let check = Check {
        tree,
        instances: if parallel && root_is_one && !is_single {
            queues
        } else {
            1
        },
        mtu: mtu.into(),
    };
    let singles = tree
        .nodes()
        .filter(|node| parallel && queues > 1 && root_is_one && node.qdisc.is_single())
        .map(|node| single(node.handle, &node.qdisc));
    let of_qdiscs = tree.nodes().flat_map(|node| check.qdisc(node));
    let classes = tree.added_classes();
    let of_classes = classes.flat_map(|(class, node)| check.class(class, &node.spec));
    of_qdiscs.chain(of_classes).chain(singles).collect()
}

/// A qdisc because of which one instance serves all queues, although several are asked for.
fn single(at: Handle, qdisc: &QdiscSpec) -> Warning {
    let text = "is of a kind that cannot be shared between instances: one serves all queues, one \
                after the other, in spite of parallel";
    Warning {
        at,
        parameter: qdisc.kind(),
        text: text.to_owned(),
    }
}

fn cake_warnings(at: Handle, cake: &CakeSpec, instances: usize) -> Vec<Warning> {
    let all = cake.without_effect(instances);
    all.map(|(parameter, text)| Warning {
        at,
        parameter,
        text: text.to_owned(),
    })
    .collect()
}

impl DeviceTree {
    /// True if one instance serves all queues although several are asked for.
    pub fn is_single(&self) -> bool {
        self.env.parallel && self.queues > 1 && self.spec.is_single(Handle::NONE)
    }

    /// As [`warnings`], of one qdisc or class, but for what depends on classes that may be added
    /// later.
    pub fn warnings_of(&self, name: Handle) -> Vec<Warning> {
        let check = Check {
            tree: &self.spec,
            instances: self.instances(),
            mtu: self.env.mtu.into(),
        };
        match (self.spec.node(name), self.spec.class_node(name)) {
            (Some(Node { qdisc, .. }), _) => match qdisc {
                QdiscSpec::Tbf(tbf) => check.tbf(name, tbf),
                one if one.is_single() => vec![single(name, one)],
                _ => Vec::new(),
            },
            (None, Some(node)) => check.class(name, &node.spec),
            (None, None) => Vec::new(),
        }
    }
}

/// One of the buckets of a qdisc or class.
struct Bucket {
    at: Handle,
    parameter: &'static str,
    rate: u64,
    bytes: u64,
    link: LinkCost,
}

struct Check<'a> {
    tree: &'a TreeSpec,
    /// Parameters of each qdisc.
    instances: usize,
    mtu: u64,
}

impl Check<'_> {
    fn qdisc(&self, node: &Node) -> Vec<Warning> {
        match &node.qdisc {
            QdiscSpec::Tbf(tbf) => self.tbf(node.handle, tbf),
            QdiscSpec::Htb(htb) => self.default_class(node.handle, htb).into_iter().collect(),
            QdiscSpec::Cake(cake) | QdiscSpec::CakeMq(cake) => {
                cake_warnings(node.handle, cake, self.instances)
            }
            _ => Vec::new(),
        }
    }

    fn default_class(&self, at: Handle, htb: &HtbSpec) -> Option<Warning> {
        let class = at.class(htb.default);
        if htb.default == 0 {
            return None;
        }
        let wrong = match self.tree.class_node(class) {
            None => "does not exist",
            Some(_) if self.tree.is_inner(class) => "has classes below it",
            Some(_) => return None,
        };
        let text = format!(
            "names class {class}, which {wrong}: what no filter matches is sent at no class's rate"
        );
        Some(Warning {
            at,
            parameter: "default",
            text,
        })
    }

    fn tbf(&self, at: Handle, tbf: &TbfSpec) -> Vec<Warning> {
        let bucket = |parameter, rate, bytes| Bucket {
            at,
            parameter,
            rate,
            bytes,
            link: tbf.link,
        };
        let peak = tbf.peakrate;
        let peak = peak.map(|rate| bucket("mtu", rate, tbf.mtu.into()));
        let buckets = [bucket("burst", tbf.rate, tbf.burst)]
            .into_iter()
            .chain(peak);
        let warning = |bucket: Bucket| {
            let frame = self.frame(at);
            let text = format!(
                "of {} bytes is less than a frame: longer ones are dropped; give at least {frame}",
                bucket.bytes
            );
            if bucket.bytes < frame {
                return Some(bucket.warning(text));
            }
            self.shared(&bucket)
        };
        buckets.filter_map(warning).collect()
    }

    fn class(&self, at: Handle, spec: &ClassSpec) -> Vec<Warning> {
        match spec {
            ClassSpec::Htb(htb) => self.htb_class(at, htb),
            _ => Vec::new(),
        }
    }

    fn htb_class(&self, at: Handle, htb: &HtbClassSpec) -> Vec<Warning> {
        let &HtbClassSpec {
            rate, burst, link, ..
        } = htb;
        let bucket = |parameter, rate, bytes| Bucket {
            at,
            parameter,
            rate,
            bytes,
            link,
        };
        let buckets = [
            bucket("burst", rate, burst),
            bucket("cburst", htb.ceil, htb.cburst),
        ];
        let warning = |bucket: Bucket| {
            let frame = link.charge(self.frame(at));
            let text = format!(
                "of {} bytes is less than a frame: its rate may not be reached; give at least \
                 {frame}",
                bucket.bytes
            );
            if bucket.bytes < frame {
                return Some(bucket.warning(text));
            }
            self.shared(&bucket)
        };
        buckets.into_iter().filter_map(warning).collect()
    }

    /// The bytes that the longest frame without a VLAN tag counts as at a qdisc or class.
    fn frame(&self, at: Handle) -> u64 {
        let mut node = self.tree.node(at.qdisc());
        while let Some(of) = node {
            if let Some(stab) = &of.stab {
                return stab.size(self.mtu + ETHERNET).into();
            }
            let above = of.parent != Handle::ROOT;
            node = self.tree.node(of.parent.qdisc()).filter(|_| above);
        }
        self.mtu + ETHERNET
    }

    /// A bucket that instances share loses rate if it overflows while they wait for each other:
    /// see [`rate`](crate::rate). Where what is earned in a wait is less than a frame, that is
    /// little.
    fn shared(&self, bucket: &Bucket) -> Option<Warning> {
        let link = bucket.link;
        let spec = RateSpec {
            rate: bucket.rate,
            burst: link.charge(bucket.bytes),
            unit: link.charge(self.mtu + MAX_HEADER),
        };
        let wait = bucket.rate / 1000;
        let needed = 2 * (self.instances as u64 * spec.quantum() + wait);
        if self.instances < 2 || wait < spec.unit || spec.burst >= needed {
            return None;
        }
        let text = format!(
            "of {} bytes is too little for {} queues that share the rate: it may not be reached; \
             give at least {needed}",
            bucket.bytes, self.instances
        );
        Some(bucket.warning(text))
    }
}

impl Bucket {
    fn warning(&self, text: String) -> Warning {
        Warning {
            at: self.at,
            parameter: self.parameter,
            text,
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
#[path = "warnings_tests.rs"]
mod tests;
