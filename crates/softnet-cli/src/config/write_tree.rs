//! A tree of qdiscs as tables: `tc qdisc add`, `tc class add` and `tc filter add`, each after what
//! it belongs to.

use std::collections::BTreeMap;
use std::time::Duration;

use softnet_tc::{
    AqmSpec, ClassNode, ClassSpec, EstimatorSpec, Handle, HtbClassSpec, LinkCost, LinkLayer, Node,
    QdiscSpec, SizeOptions, SizeTable, TbfSpec, TreeSpec,
};
use toml::Value;

use super::write::{Writer, int, ints, traffic_classes};
use super::write_filter;

/// What a port asks for. `prefix` is the path of the keys.
pub(super) fn qdisc(w: &mut Writer, prefix: &str, qdisc: &QdiscSpec) {
    match qdisc {
        QdiscSpec::Default => {}
        QdiscSpec::Tree(tree) => self::tree(w, prefix, tree),
        one => {
            w.table(&format!("[{prefix}qdisc]"));
            options(w, one);
        }
    }
}

fn tree(w: &mut Writer, prefix: &str, tree: &TreeSpec) {
    let mut nodes: BTreeMap<Handle, Vec<&Node>> = BTreeMap::new();
    for node in tree.nodes() {
        let above = if node.parent == Handle::ROOT {
            Handle::ROOT
        } else {
            node.parent.qdisc()
        };
        nodes.entry(above).or_default().push(node);
    }
    let mut classes: BTreeMap<Handle, Vec<(Handle, &ClassNode)>> = BTreeMap::new();
    for (name, class) in tree.added_classes() {
        classes.entry(class.parent).or_default().push((name, class));
    }
    let children = |of: &Handle| nodes.get(of).cloned().unwrap_or_default();
    let mut left = children(&Handle::ROOT);
    while let Some(node) = left.pop() {
        w.table(&format!("[[{prefix}qdisc]]"));
        w.put("parent", node.parent.to_string());
        w.put("handle", node.handle.to_string());
        options(w, &node.qdisc);
        if let Some(table) = &node.stab {
            stab(w, node.handle, table);
        }
        estimator(w, tree, node.handle);
        let mut below = classes.get(&node.handle).cloned().unwrap_or_default();
        below.reverse();
        while let Some((name, class)) = below.pop() {
            w.table(&format!("[[{prefix}class]]"));
            w.put("parent", class.parent.to_string());
            w.put("classid", name.to_string());
            let ClassSpec::Htb(spec) = &class.spec;
            htb_class(w, spec);
            estimator(w, tree, name);
            below.extend(classes.get(&name).into_iter().flatten().rev());
        }
        left.extend(children(&node.handle).into_iter().rev());
    }
    write_filter::filters(w, prefix, tree);
}

fn options(w: &mut Writer, qdisc: &QdiscSpec) {
    w.put("kind", qdisc.kind());
    match qdisc {
        QdiscSpec::Default
        | QdiscSpec::Tree(_)
        | QdiscSpec::Mq
        | QdiscSpec::Noqueue
        // That of the link's txqueuelen.
        | QdiscSpec::PfifoFast { .. } => {}
        QdiscSpec::Mqprio(map) => traffic_classes(w, map),
        QdiscSpec::Pfifo { limit } | QdiscSpec::PfifoHeadDrop { limit } => {
            w.put("limit", int(*limit));
        }
        QdiscSpec::Bfifo { limit } => w.put("limit", int(*limit)),
        QdiscSpec::Tbf(spec) => tbf(w, spec),
        QdiscSpec::Prio(spec) => {
            w.put("bands", int(spec.bands));
            w.put("priomap", ints(&spec.priomap));
        }
        QdiscSpec::Codel(spec) => {
            w.put("limit", int(spec.limit));
            aqm(w, &spec.aqm);
        }
        QdiscSpec::FqCodel(spec) => {
            w.put("limit", int(spec.limit));
            w.put("memory_limit", int(spec.memory_limit));
            w.put("flows", int(spec.flows));
            w.put("drop_batch", int(spec.drop_batch));
            put(w, "quantum", spec.quantum.map(int));
            aqm(w, &spec.aqm);
        }
        QdiscSpec::Htb(spec) => {
            w.put("default", int(spec.default));
            w.put("r2q", int(spec.r2q));
            put(w, "direct_qlen", spec.direct_qlen.map(int));
        }
        QdiscSpec::Fq(spec) => {
            w.put("limit", int(spec.limit));
            w.put("flow_limit", int(spec.flow_limit));
            w.put("buckets", int(1_u64 << spec.buckets_log.min(62)));
            put(w, "quantum", spec.quantum.map(int));
            put(w, "initial_quantum", spec.initial_quantum.map(int));
            w.put("orphan_mask", int(spec.orphan_mask));
            w.put("refill_delay", time(spec.refill_delay));
            w.put("pacing", spec.pacing);
            put(w, "maxrate", spec.maxrate.map(rate));
            w.put("low_rate_threshold", rate(spec.low_rate_threshold));
            w.put("timer_slack", time(spec.timer_slack));
            w.put("horizon", time(spec.horizon));
            w.put("horizon_drop", spec.horizon_drop);
            put(w, "ce_threshold", spec.ce_threshold.map(time));
            w.put("priomap", ints(&spec.priomap));
            w.put("weights", ints(&spec.weights));
        }
        QdiscSpec::Custom(_) => {
            let remark = format!("{} is of a kind that the format does not have", qdisc.kind());
            w.remarks.push(remark);
        }
    }
}

fn put(w: &mut Writer, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        w.put(key, value);
    }
}

/// Bits a second.
fn rate(bytes: u64) -> Value {
    int(bytes.saturating_mul(8))
}

fn time(time: Duration) -> Value {
    format!("{}ns", time.as_nanos()).into()
}

fn tbf(w: &mut Writer, spec: &TbfSpec) {
    w.put("rate", rate(spec.rate));
    w.put("burst", int(spec.burst));
    w.put("limit", int(spec.limit));
    if let Some(peakrate) = spec.peakrate {
        w.put("peakrate", rate(peakrate));
        w.put("mtu", int(spec.mtu));
    }
    link_cost(w, &spec.link);
}

fn htb_class(w: &mut Writer, spec: &HtbClassSpec) {
    w.put("rate", rate(spec.rate));
    w.put("ceil", rate(spec.ceil));
    w.put("burst", int(spec.burst));
    w.put("cburst", int(spec.cburst));
    w.put("prio", int(spec.prio));
    put(w, "quantum", spec.quantum.map(int));
    link_cost(w, &spec.link);
}

fn link_cost(w: &mut Writer, link: &LinkCost) {
    let plain = LinkCost::default();
    if link.overhead != plain.overhead {
        w.put("overhead", int(link.overhead));
    }
    if link.mpu != plain.mpu {
        w.put("mpu", int(link.mpu));
    }
    if link.linklayer == LinkLayer::Atm {
        w.put("linklayer", "atm");
    }
}

fn aqm(w: &mut Writer, spec: &AqmSpec) {
    w.put("target", time(spec.target));
    w.put("interval", time(spec.interval));
    w.put("ecn", spec.ecn);
    if let Some(threshold) = spec.ce_threshold {
        w.put("ce_threshold", time(threshold));
        let (value, mask) = (spec.ce_threshold_selector, spec.ce_threshold_mask);
        if (value, mask) != (0, 0) {
            w.put("ce_threshold_selector", format!("{value:#04x}/{mask:#04x}"));
        }
    }
}

/// The options from which tc would compute the table.
fn stab(w: &mut Writer, handle: Handle, table: &SizeTable) {
    let spec = table.spec();
    let (linklayer, name) = match spec.linklayer {
        0 => (None, None),
        2 => (Some(LinkLayer::Atm), Some("atm")),
        _ => (Some(LinkLayer::Ethernet), Some("ethernet")),
    };
    let options = SizeOptions {
        mtu: spec.mtu,
        tsize: spec.tsize,
        mpu: spec.mpu,
        overhead: spec.overhead,
        linklayer,
    };
    if SizeTable::new(&options).as_ref() != Ok(table) {
        let remark = format!("the size table of {handle} is not one that tc computes: left out");
        w.remarks.push(remark);
        return;
    }
    let mut keys = toml::Table::new();
    keys.insert("overhead".into(), int(spec.overhead));
    keys.insert("mpu".into(), int(spec.mpu));
    keys.insert("mtu".into(), int(spec.mtu));
    keys.insert("tsize".into(), int(spec.tsize));
    if let Some(name) = name {
        keys.insert("linklayer".into(), name.into());
    }
    w.put("stab", keys);
}

fn estimator(w: &mut Writer, tree: &TreeSpec, name: Handle) {
    let Some(spec) = tree.estimator(name) else {
        return;
    };
    let period = spec.period();
    // A time constant is about the period times a power of 2: a little more is the same weight.
    let averages = (1..30).map(|log| {
        let constant = period.as_secs_f64() / -(1.0 - 0.5_f64.powi(log)).ln();
        Duration::from_secs_f64(constant * 1.05)
    });
    let mut averages =
        averages.filter(|&average| EstimatorSpec::from_times(period, average) == Ok(spec));
    let Some(average) = averages.next() else {
        w.remarks.push(format!(
            "the estimator of {name} is not one that tc computes: left out"
        ));
        return;
    };
    let mut keys = toml::Table::new();
    keys.insert("interval".into(), time(period));
    keys.insert("average".into(), time(average));
    w.put("estimator", keys);
}
