//! `[[qdisc]]`, `[[class]]` and `[[filter]]`: a tree of qdiscs, one table for each `tc qdisc add`,
//! `tc class add` and `tc filter add`, in the same words and order.

use softnet_tc::{Handle, LinkDefaults, QdiscSpec, SpecError, TreeError, TreeSpec};
use toml::Spanned;

use super::error::Problem;
use super::extras;
use super::file::{OptionTable, Qdiscs};
use super::filter;
use super::htb;
use super::options::Options;
use super::qdisc;

/// What a port (or a file with a tree) asks for. `prefix` is the path of the keys, for messages.
pub(super) fn spec(
    prefix: &str,
    qdiscs: &Spanned<Qdiscs>,
    classes: &[Spanned<OptionTable>],
    filters: &[Spanned<OptionTable>],
    device: LinkDefaults,
) -> Result<QdiscSpec, Problem> {
    let path = format!("{prefix}qdisc");
    let tables = tables(qdiscs, &path);
    let of_tree = ["handle", "parent", "stab", "estimator"];
    if let (Qdiscs::One(_), [options]) = (qdiscs.get_ref(), &tables[..])
        && filters.is_empty()
        && classes.is_empty()
        && of_tree.iter().all(|key| options.find(key).is_none())
    {
        return qdisc::spec(options, device);
    }
    let mut tree = TreeSpec::new();
    let class_path = format!("{prefix}class");
    let mut classes = classes.iter().peekable();
    // In the order of the file: a class is there for the qdiscs and classes after it.
    for options in &tables {
        while let Some(class) = classes.next_if(|c| c.span().start < options.span.start) {
            htb::add_class(&mut tree, &Options::of(class, &class_path))?;
        }
        add_qdisc(&mut tree, options, device)?;
    }
    for class in classes {
        htb::add_class(&mut tree, &Options::of(class, &class_path))?;
    }
    let path = format!("{prefix}filter");
    for table in filters {
        filter::add(&mut tree, &Options::of(table, &path))?;
    }
    Ok(QdiscSpec::Tree(tree))
}

/// The options of each qdisc.
pub(super) fn tables<'a>(qdiscs: &'a Spanned<Qdiscs>, path: &'a str) -> Vec<Options<'a>> {
    match qdiscs.get_ref() {
        Qdiscs::One(table) => vec![Options {
            table,
            span: qdiscs.span(),
            path,
        }],
        Qdiscs::Many(tables) => tables.iter().map(|t| Options::of(t, path)).collect(),
    }
}

fn add_qdisc(
    tree: &mut TreeSpec,
    options: &Options<'_>,
    device: LinkDefaults,
) -> Result<(), Problem> {
    let parent = match options.handle("parent")? {
        Some(parent) => parent,
        // As the first table's, it goes without saying.
        None if tree.is_empty() => Handle::ROOT,
        None => {
            let text = "is missing; add the class that the qdisc is for, like \"1:2\"";
            return Err(options.problem("parent", options.span.clone(), text));
        }
    };
    put(tree, parent, options, device)
}

/// Puts a table's qdisc into a tree.
pub(super) fn put(
    tree: &mut TreeSpec,
    parent: Handle,
    options: &Options<'_>,
    device: LinkDefaults,
) -> Result<(), Problem> {
    let spec = qdisc::spec(options, device)?;
    let name = options.handle("handle")?.unwrap_or(Handle::NONE);
    let handle = tree.add(parent, name, spec).map_err(|error| {
        let key = match error {
            SpecError::Tree(TreeError::Handle(_) | TreeError::InUse(_)) => "handle",
            SpecError::Tree(TreeError::RootOnly(_)) => "kind",
            _ => "parent",
        };
        options.problem(key, options.span_of(key), error.to_string())
    })?;
    extras::of_qdisc(tree, handle, options)
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
                "31:8: key `filter.dscp`: is array; give a code point",
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
