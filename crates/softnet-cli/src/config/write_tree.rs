//! A tree of qdiscs as tables: `tc qdisc add`, `tc class add` and `tc filter add`, each after what
//! it belongs to.

use std::collections::BTreeMap;
use std::time::Duration;

use softnet_tc::units::{Share, percent_text};
use softnet_tc::{
    ClassNode, ClassSpec, CodelSpec, Field, Form, FqCodelSpec, Handle, LinkCost, LinkLayer, Node,
    QdiscKind, QdiscSpec, RedCurve, ServiceCurve, Side, SizeOptions, SizeTable, SpecOption,
    TreeSpec,
};
use toml::Value;

use super::egress::write_classes;
use super::form::{int, ints, time};
use super::netem;
use super::red;
use super::write::Writer;
use super::write_filter;

/// Writes the qdiscs that a port asks for. `prefix` is the path of the keys.
pub(super) fn qdisc(w: &mut Writer, prefix: &str, qdisc: &QdiscSpec) {
    match qdisc {
        QdiscSpec::Default => {}
        QdiscSpec::Tree(tree) => self::tree(w, prefix, tree),
        one => {
            w.table(&format!("[{prefix}qdisc]"));
            options(w, one, &[]);
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
    let shares = |of| tree.shares_of(of).collect::<Vec<_>>();
    let children = |of: &Handle| nodes.get(of).cloned().unwrap_or_default();
    let mut left = children(&Handle::ROOT);
    while let Some(node) = left.pop() {
        w.table(&format!("[[{prefix}qdisc]]"));
        let parent = tree.named_parent(node.handle).unwrap_or(node.parent);
        w.put("parent", parent.to_string());
        w.put("handle", node.handle.to_string());
        options(w, &node.qdisc, &shares(node.handle));
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
            let kind = node.qdisc.added_classes();
            described(
                w,
                kind.map_or(&[], |kind| kind.options),
                &mut class.spec.clone(),
                &shares(name),
            );
            match &class.spec {
                ClassSpec::Htb(spec) => link_cost(w, &spec.link),
                ClassSpec::Hfsc(spec) => {
                    for (key, curve) in [("rt", spec.rt), ("ls", spec.ls), ("ul", spec.ul)] {
                        put(w, key, curve.map(|curve| self::curve(&curve)));
                    }
                }
                ClassSpec::Drr(_) | ClassSpec::Qfq(_) => {}
            }
            estimator(w, tree, name);
            below.extend(classes.get(&name).into_iter().flatten().rev());
        }
        left.extend(children(&node.handle).into_iter().rev());
    }
    if let Some(hook) = tree.hook() {
        w.table(&format!("[[{prefix}qdisc]]"));
        w.put("kind", hook.kind.name());
        for (key, side) in [
            ("ingress_block", Side::Ingress),
            ("egress_block", Side::Egress),
        ] {
            let block = hook.side(side).block;
            put(w, key, (block != 0).then(|| int(block)));
        }
    }
    write_filter::filters(w, prefix, tree);
}

fn options(w: &mut Writer, qdisc: &QdiscSpec, shares: &[(&str, Share)]) {
    w.put("kind", qdisc.kind());
    if let Some(kind) = QdiscKind::find(qdisc.kind()) {
        described(w, kind.options, &mut qdisc.clone(), shares);
    }
    // What no form says.
    match qdisc {
        QdiscSpec::Mqprio(map) => write_classes(w, map),
        QdiscSpec::Tbf(spec) => {
            put(w, "mtu", spec.peakrate.map(|_| int(spec.mtu)));
            link_cost(w, &spec.link);
        }
        QdiscSpec::Codel(CodelSpec { aqm, .. }) | QdiscSpec::FqCodel(FqCodelSpec { aqm, .. }) => {
            let selector = (aqm.ce_threshold_selector, aqm.ce_threshold_mask);
            if let (value, mask @ 1..) | (value @ 1.., mask) = selector {
                w.put("ce_threshold_selector", format!("{value:#04x}/{mask:#04x}"));
            }
        }
        QdiscSpec::Red(spec) => {
            red_curve(w, &spec.curve);
            w.put("idle_table", red::idle_table(spec));
        }
        QdiscSpec::Sfq(spec) => spec.red.iter().for_each(|curve| red_curve(w, curve)),
        QdiscSpec::DualPi2(spec) => {
            w.put("coupling_factor", int(spec.coupling_factor));
            w.put("classic_protection", int(spec.classic_protection));
            w.put("ecn_mask", int(spec.ecn_mask));
        }
        QdiscSpec::Netem(spec) => netem::write(w, spec),
        QdiscSpec::Htb(spec) => w.put("default", format!("{:x}", spec.default)),
        QdiscSpec::Hfsc(spec) => w.put("default", format!("{:x}", spec.default)),
        QdiscSpec::Ets(spec) => {
            if !spec.shared().is_empty() {
                w.put("quanta", ints(spec.shared()));
            }
            w.put("priomap", ints(&spec.priomap));
        }
        QdiscSpec::Cake(spec) | QdiscSpec::CakeMq(spec) => {
            if let Some(overhead) = spec.overhead {
                w.put("overhead", int(overhead));
            }
        }
        QdiscSpec::Custom(_) => {
            let remark = format!(
                "{} is of a kind that the format does not have",
                qdisc.kind()
            );
            w.remarks.push(remark);
        }
        _ => {}
    }
}

/// The numbers of RED, from which nothing is computed any more.
fn red_curve(w: &mut Writer, curve: &RedCurve) {
    w.put("min", int(curve.min));
    w.put("max", int(curve.max));
    let probability = f64::from(curve.max_p) / 2_f64.powi(32);
    w.put("probability", probability.to_string());
    w.put("wlog", int(curve.wlog));
    w.put("plog", int(curve.plog));
}

fn described<S>(
    w: &mut Writer,
    options: &[SpecOption<S>],
    spec: &mut S,
    shares: &[(&str, Share)],
) {
    for option in options {
        let share = shares.iter().find(|(name, _)| *name == option.name);
        if let Some((name, share)) = share {
            w.put(name, share.to_string());
            continue;
        }
        let field = (option.field)(spec);
        put(
            w,
            option.name,
            field.and_then(|field| value(option.form, &field)),
        );
    }
}

/// A parameter in the form of its option; none if it has no value.
pub(super) fn value(form: Form, field: &Field<'_>) -> Option<Value> {
    if let Form::List(_) = form {
        return Some(ints(&field.list()));
    }
    let number = field.number()?;
    Some(match form {
        Form::Rate => rate(number),
        Form::Percent => percent_text(number).into(),
        Form::Time => time(Duration::from_nanos(number)),
        Form::Flag => (number != 0).into(),
        Form::Word(words) => (*words.get(usize::try_from(number).ok()?)?).into(),
        _ => int(number),
    })
}

fn put(w: &mut Writer, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        w.put(key, value);
    }
}

/// A service curve.
fn curve(curve: &ServiceCurve) -> Value {
    let mut keys = toml::Table::new();
    if curve.m1 > 0 || curve.d > 0 {
        let d = Duration::from_micros(curve.d.into());
        keys.insert("m1".into(), rate(curve.m1.into()));
        keys.insert("d".into(), time(d));
    }
    keys.insert("m2".into(), rate(curve.m2.into()));
    keys.into()
}

/// Bits a second.
fn rate(bytes: u64) -> Value {
    int(bytes.saturating_mul(8))
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
    let mut keys = toml::Table::new();
    keys.insert("interval".into(), time(spec.period()));
    keys.insert("average".into(), time(spec.average()));
    w.put("estimator", keys);
}
