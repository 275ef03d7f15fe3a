//! `[[qdisc]]`, `[[class]]` and `[[filter]]`: a tree of qdiscs, one table for each `tc qdisc add`,
//! `tc class add` and `tc filter add`, in the same words. Qdiscs and classes may be in any order.

use std::collections::BTreeSet;

use softnet_tc::{
    FilterOp, Handle, Hook, HookKind, LinkDefaults, QdiscKind, QdiscOption, QdiscSpec, Side,
    SpecError, TreeError, TreeSpec,
};

use super::class;
use super::extras;
use super::filter;
use super::qdisc;
use super::table::Table;

/// A tree as far as it is read, and what is missing in it as its table is wrong. What refers to
/// such a thing is wrong for that reason, which is not reported again.
#[derive(Debug, Default)]
pub(super) struct Building {
    pub(super) tree: TreeSpec,
    lost: BTreeSet<Handle>,
    /// Something without a name is missing, so that anything may refer to it.
    has_lost_unnamed: bool,
    /// Rates may be shares of the link's speed.
    pub(super) has_speed: bool,
}

impl Building {
    /// Notes that the qdisc or class with this name is missing.
    pub(super) fn lose(&mut self, name: Option<Handle>) {
        match name {
            Some(name) => drop(self.lost.insert(name)),
            None => self.has_lost_unnamed = true,
        }
    }

    /// Reports an error of a table that refers to `names`.
    pub(super) fn problem(&self, table: &Table<'_>, key: &str, names: &[Handle], text: String) {
        let is_lost =
            |name: &Handle| self.lost.contains(name) || self.lost.contains(&name.qdisc());
        if !self.has_lost_unnamed && !names.iter().any(is_lost) {
            table.problem::<()>(key, text);
        }
    }
}

/// Qdiscs that a port, or a file with a tree, asks for; none if that is wrong. `has_speed`: rates
/// may be shares of the link's speed.
pub(super) fn spec(table: &Table<'_>, device: LinkDefaults, has_speed: bool) -> Option<QdiscSpec> {
    let before = table.source.errors();
    let qdiscs = qdiscs(table);
    let (classes, filters) = (table.tables("class"), table.tables("filter"));
    let of_tree = ["handle", "parent", "stab", "estimator"];
    if let [one] = &qdiscs[..]
        && table
            .find("qdisc")
            .is_some_and(|item| item.as_table().is_some())
        && filters.is_empty()
        && classes.is_empty()
        && of_tree.iter().all(|key| !one.has(key))
        && hook_kind(one).is_none()
        && !(has_speed && qdisc::has_shares(one))
    {
        return qdisc::spec(one, device, has_speed);
    }
    let mut building = Building {
        has_lost_unnamed: qdiscs.is_empty(),
        has_speed,
        ..Building::default()
    };
    let (hooks, qdiscs): (Vec<_>, Vec<_>) =
        qdiscs.iter().partition(|table| hook_kind(table).is_some());
    for table in hooks {
        add_hook(&mut building, table);
    }
    let first = qdiscs.first().map(|table| table.span.start);
    let mut left: Vec<_> = classes.iter().map(|table| (table, true)).collect();
    left.extend(qdiscs.into_iter().map(|table| (table, false)));
    left.sort_by_key(|(table, _)| table.span.start);
    let add = |building: &mut Building, table, is_class| match is_class {
        true => class::add(building, table, device),
        false => {
            // As the first table's, the root goes without saying.
            let root = (first == Some(table.span.start)).then_some(Handle::ROOT);
            add_qdisc(building, table, root, device);
        }
    };
    // In the order of the file, but none before what it belongs to: `softnet port` sorts keys.
    loop {
        let before = left.len();
        left.retain(|&(table, is_class)| {
            let is_ready = has_parent(&building.tree, table, is_class);
            if is_ready {
                add(&mut building, table, is_class);
            }
            !is_ready
        });
        if left.len() == before {
            break;
        }
    }
    for (table, is_class) in left {
        add(&mut building, table, is_class);
    }
    let mut links = Vec::new();
    for table in &filters {
        links.extend(filter::add(&mut building, table).map(|filter| (table, filter)));
    }
    for (table, filter) in links {
        filter::link(table, building.tree.put_filter(FilterOp::Change, filter));
    }
    let is_sound = table.source.errors() == before;
    is_sound.then_some(QdiscSpec::Tree(building.tree))
}

/// True if the tree has what a class or qdisc belongs to, or it names nothing that can be read.
fn has_parent(tree: &TreeSpec, table: &Table<'_>, is_class: bool) -> bool {
    let name = |key| table.find(key)?.as_text()?.parse::<Handle>().ok();
    let of = if is_class { name("classid") } else { None };
    let has = |above: Handle| match tree.node(above.qdisc()) {
        _ if above == Handle::ROOT => true,
        Some(node) if above.minor() > 0 && node.qdisc.added_classes().is_some() => {
            tree.class_node(above).is_some()
        }
        found => found.is_some(),
    };
    of.is_none_or(|class| has(class.qdisc())) && name("parent").is_none_or(has)
}

/// The kind of a table's qdisc, if that is at the hooks.
fn hook_kind(table: &Table<'_>) -> Option<HookKind> {
    table
        .find("kind")
        .and_then(|kind| HookKind::find(kind.text()?))
}

/// Adds `ingress` or `clsact`.
fn add_hook(building: &mut Building, table: &Table<'_>) {
    let before = table.source.errors();
    let Some(kind) = hook_kind(table) else {
        return;
    };
    let blocks = match kind {
        HookKind::Ingress => &["ingress_block"][..],
        HookKind::Clsact => &["ingress_block", "egress_block"],
    };
    table.only(&["kind"], kind.name(), blocks);
    let mut hook = Hook::new(kind);
    for (key, side) in [
        ("ingress_block", Side::Ingress),
        ("egress_block", Side::Egress),
    ] {
        if let Some(item) = table.find(key)
            && let Some(block) = item.number(1, i64::from(u32::MAX))
        {
            hook.side_mut(side).block = block;
        }
    }
    if building.tree.hook().is_some() {
        table.problem::<()>(
            "kind",
            "is the second qdisc at the hooks; remove one of both",
        );
    }
    if table.source.errors() > before {
        return building.lose(Some(Hook::HANDLE));
    }
    if let Err(error) = building.tree.set_hook(Some(hook)) {
        table.problem::<()>("kind", error.to_string());
    }
}

/// The table of each qdisc.
pub(super) fn qdiscs<'t>(table: &'t Table<'_>) -> Vec<Table<'t>> {
    let expected = "a table like { kind = \"pfifo\" }, or a list of them";
    match table.find("qdisc") {
        Some(item) if item.is_empty_list() => {
            let text = format!("is an empty list; give {expected}, or remove it");
            item.problem(text).into_iter().collect()
        }
        Some(item) => item.one_or_more(expected),
        // A file of another kind, or with a slip, has its error.
        None if table.source.errors() > 0 => Vec::new(),
        None => table.missing("qdisc", "it").into_iter().collect(),
    }
}

fn add_qdisc(
    building: &mut Building,
    table: &Table<'_>,
    root: Option<Handle>,
    device: LinkDefaults,
) {
    let before = table.source.errors();
    let mut parent = table.handle("parent");
    if !table.has("parent") {
        let what = "the class that the qdisc is for, like \"1:2\"";
        parent = root.or_else(|| table.missing("parent", what));
    }
    let name = table.handle("handle");
    let spec = qdisc::spec(table, device, building.has_speed);
    let (Some(parent), Some(spec)) = (parent, spec) else {
        return building.lose(name);
    };
    if table.source.errors() > before {
        return building.lose(name);
    }
    let kind = QdiscKind::find(spec.kind());
    let options: &[QdiscOption] = kind.map_or(&[], |kind| kind.options);
    match building
        .tree
        .add(parent, name.unwrap_or(Handle::NONE), spec)
    {
        Ok(handle) => {
            for (option, share) in qdisc::shares(table, options) {
                building.tree.set_share(handle, option, share);
            }
            extras::of_qdisc(&mut building.tree, handle, table);
        }
        Err(error) => {
            let key = match error {
                SpecError::Tree(TreeError::Handle(_) | TreeError::InUse(_)) => "handle",
                SpecError::Tree(TreeError::RootOnly(_)) => "kind",
                _ => "parent",
            };
            building.problem(table, key, &[parent], error.to_string());
            building.lose(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_tree;
    use super::*;
    use softnet_tc::{ETH_P_ALL, ETH_P_IP, Flower, Prefix};

    fn prefix(address: &str, len: u8) -> Option<Prefix> {
        Prefix::new(address.parse().expect("an address"), len)
    }

    const TREE: &str = r#"
[[qdisc]]
kind = "tbf"
handle = "1:"
rate = "10mbit"
burst = "32k"
latency = "50ms"

[[qdisc]]
parent = "1:1"
handle = "10:"
kind = "prio"
bands = 3

[[qdisc]]
parent = "10:3"
kind = "pfifo"
limit = 100

[[filter]]
parent = "10:"
prio = 1
protocol = "ip"
dst_ip = "10.0.0.0/8"
ip_proto = "udp"
dst_port = "50-60"
flowid = "10:1"

[[filter]]
mark = "0x10/0xf0"
dscp = "0x2e"
src_ip = "fd00::1"
classid = "10:2"
"#;

    #[test]
    fn a_tree_in_tcs_words() {
        let QdiscSpec::Tree(tree) = parse_tree("x.toml", TREE).expect("valid") else {
            panic!("no tree")
        };
        let nodes: Vec<String> = tree
            .nodes()
            .map(|node| format!("{} {} {}", node.parent, node.handle, node.qdisc.kind()))
            .collect();
        assert_eq!(nodes, ["root 1: tbf", "1:1 10: prio", "10:3 8001: pfifo"]);
        let filters: Vec<_> = tree.filters().collect();
        let [first, second] = filters[..] else {
            panic!("two filters")
        };
        assert_eq!(
            (first.prio, first.class),
            (1, Some("10:1".parse().expect("a class")))
        );
        let expected = Flower {
            dst_ip: prefix("10.0.0.0", 8),
            ip_proto: Some(17),
            dst_port: Some(50..=60),
            ..Flower::default()
        };
        assert_eq!((first.protocol, &first.kind), (ETH_P_IP, &expected.into()));
        assert_eq!(
            (second.prio, second.parent),
            (49152, "10:".parse().expect("a handle"))
        );
        let expected = Flower {
            src_ip: prefix("fd00::1", 128),
            ip_tos: Some((46 << 2, 0xfc)),
            mark: Some((0x10, 0xf0)),
            ..Flower::default()
        };
        assert_eq!(
            (second.protocol, &second.kind),
            (ETH_P_ALL, &expected.into())
        );
        // One qdisc is what it is in a port.
        let one = parse_tree("x.toml", "qdisc = { kind = \"pfifo\", limit = 3 }");
        assert_eq!(one, Ok(QdiscSpec::Pfifo { limit: 3 }));
        let port = format!(
            "[[port]]\nname = \"p\"\ndriver = \"null\"\n{}",
            TREE.replace("[[", "[[port.")
        );
        let config = super::super::parse("x.toml", &port).expect("valid");
        assert_eq!(config.links.ports[0].qdisc, QdiscSpec::Tree(tree));
    }

    #[test]
    fn errors_name_place_and_key() {
        for (from, to, expected) in [
            (
                "parent = \"1:1\"",
                "",
                "9:1: key `qdisc.parent`: is missing",
            ),
            (
                "parent = \"10:3\"",
                "parent = \"10:4\"",
                "16:10: key `qdisc.parent`: there is no class 10:4",
            ),
            (
                "parent = \"1:1\"",
                "parent = \"x\"",
                "10:10: key `qdisc.parent`: \"x\" is not a handle",
            ),
            (
                "parent = \"1:1\"",
                "parent = \"root\"",
                "10:10: key `qdisc.parent`: root has a qdisc",
            ),
            (
                "handle = \"10:\"",
                "handle = \"1:\"",
                "11:10: key `qdisc.handle`: there is a qdisc 1:",
            ),
            (
                "kind = \"pfifo\"\nlimit = 100",
                "kind = \"noqueue\"",
                "17:8: key `qdisc.kind`: noqueue can only",
            ),
            (
                "flowid = \"10:1\"",
                "flowid = \"1:1\"",
                "27:10: key `filter.flowid`: 1:1 is not a class of 10:",
            ),
            (
                "flowid = \"10:1\"",
                "",
                "20:1: key `filter.flowid`: is missing",
            ),
            (
                "parent = \"10:\"",
                "parent = \"1:\"",
                "21:10: key `filter.parent`: Class doesn't support blocks: 1: has no filters",
            ),
            (
                "dst_port = \"50-60\"",
                "dst_port = \"60-50\"",
                "26:12: key `filter.dst_port`: \"60-50\" is not a port",
            ),
            (
                "dst_ip = \"10.0.0.0/8\"",
                "dst_ip = \"10.0.0.0/33\"",
                "24:10: key `filter.dst_ip`: \"10.0.0.0/33\" is not",
            ),
            // Keys of a qdisc, which were ignored here.
            (
                "ip_proto = \"udp\"",
                "kind = \"udp\"",
                "25:8: key `filter.kind`: \"udp\" is not a kind of filter",
            ),
            (
                "ip_proto = \"udp\"",
                "handle = \"1:\"",
                "25:10: key `filter.handle`: \"1:\" is not a handle of flower",
            ),
            (
                "ip_proto = \"udp\"",
                "ip_prot = \"udp\"",
                "25:1: key `filter.ip_prot`: is not an option of flower",
            ),
            (
                "prio = 1",
                "prio = 0",
                "22:8: key `filter.prio`: \"0\" is not a priority",
            ),
            (
                "dscp = \"0x2e\"",
                "dscp = 64",
                "31:8: key `filter.dscp`: \"64\" is not a code point",
            ),
            (
                "dscp = \"0x2e\"",
                "dscp = [1]",
                "31:8: key `filter.dscp`: is a list; give a code point",
            ),
            (
                "bands = 3",
                "bands = 3\ncolour = 1",
                "14:1: key `qdisc.colour`: is not an option of prio",
            ),
        ] {
            assert!(TREE.contains(from), "{from}");
            let line = parse_tree("x.toml", &TREE.replacen(from, to, 1))
                .expect_err(to)
                .to_string();
            assert!(
                line.starts_with(&format!("x.toml:{expected}")),
                "{line}\nnot {expected}"
            );
        }
        let line = parse_tree("x.toml", "[[filter]]\nflowid = \"1:1\"\n")
            .expect_err("no qdisc")
            .to_string();
        assert!(line.contains("qdisc") && line.contains("missing"), "{line}");
    }

    const MQ: &str = r#"
        [[qdisc]]
        kind = "mq"
        handle = "1:"
        [[qdisc]]
        parent = "1:2"
        handle = "20:"
        kind = "tbf"
        rate = "1mbit"
        burst = "10k"
        limit = "10k"
        [[qdisc]]
        parent = "20:1"
        kind = "pfifo"
        limit = 7
    "#;

    #[test]
    fn a_queue_is_a_class_of_mq() {
        let spec = parse_tree("x.toml", MQ).expect("valid");
        let QdiscSpec::Tree(tree) = &spec else {
            panic!("{spec:?}");
        };
        assert_eq!((spec.kind(), tree.nodes().len()), ("mq", 3));
        let queue = tree.child_of("1:2".parse().expect("a handle"));
        assert_eq!(queue.map(|node| node.qdisc.kind()), Some("tbf"));
        assert_eq!(spec.check_for(2), Ok(()));
        let far = spec.check_for(1).map_err(|error| error.to_string());
        assert_eq!(
            far,
            Err("mq needs a device with several transmit queues".into())
        );
        for (from, to, part) in [
            ("1:2", "1:0", "no class"),
            ("20:1", "30:1", "no qdisc"),
            (
                "kind = \"pfifo\"\n        limit = 7",
                "kind = \"mq\"",
                "root",
            ),
        ] {
            let text = MQ.replace(from, to);
            let error = parse_tree("x.toml", &text).expect_err(to).to_string();
            assert!(error.contains(part), "{to}: {error}");
        }
        let text = MQ.replace("1:2", "1:9");
        let far = parse_tree("x.toml", &text).expect("valid").check_for(4);
        let far = far.map_err(|error| error.to_string());
        let text = "mq has no class :9: the device has 4 transmit queues";
        assert_eq!(far, Err(text.into()));
    }
}
