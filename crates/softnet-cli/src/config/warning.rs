//! Warnings of what a valid file hardly means: one line each, with the place.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

use softnet_engine::Settings;
use softnet_tc::{Handle, QdiscSpec, TreeSpec, warnings};

use super::error::{Place, one_line};
use super::model::Config;
use super::port::Port;
use super::source::Source;
use super::table::Table;
use super::{tree, units};

/// Prints as `FILE:LINE:COL: warning: where: what is likely wrong; what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    place: Place,
    text: String,
}

impl Warning {
    /// As an object: `file`, `line`, `column`, `text`.
    pub(crate) fn json(&self) -> serde_json::Value {
        let mut object = self.place.json();
        object["text"] = self.text.clone().into();
        object
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: warning: ", self.place)?;
        one_line(f, &self.text)
    }
}

/// Warnings of a configuration, in the order of its file.
pub(super) fn of_file(root: &Table<'_>, config: &Config) -> Vec<Warning> {
    let mut found = Found::default();
    for group in &root.tables("rate_group") {
        found.rate_group(group);
    }
    let ports = root.tables("port");
    for (table, port) in ports.iter().zip(&config.links.ports) {
        if table.has("qdisc") {
            let tree = Tree {
                owner: format!("port {:?}: ", port.settings.name),
                qdiscs: tree::qdiscs(table),
                classes: table.tables("class"),
                queues: port.options.queues,
                parallel: port.options.parallel,
                mtu: port.settings.mtu,
            };
            found.tree(&tree, &port.qdisc);
        }
    }
    let ports = config.links.ports.iter();
    let ports = ports
        .map(|port| (port.settings.name.as_str(), port))
        .collect();
    for table in &root.tables("bridge") {
        found.bridge(table, &ports);
    }
    found.finish(root.source)
}

/// Warnings of a file with a tree of qdiscs and nothing else.
pub(super) fn of_tree(root: &Table<'_>, spec: &QdiscSpec) -> Vec<Warning> {
    let mut found = Found::default();
    let tree = Tree {
        owner: String::new(),
        qdiscs: tree::qdiscs(root),
        classes: root.tables("class"),
        queues: 1,
        parallel: false,
        mtu: Settings::default().mtu,
    };
    found.tree(&tree, spec);
    found.finish(root.source)
}

/// A tree as the file has it.
struct Tree<'a> {
    /// Whose it is, for messages.
    owner: String,
    qdiscs: Vec<Table<'a>>,
    classes: Vec<Table<'a>>,
    queues: usize,
    parallel: bool,
    mtu: u32,
}

/// Where in the text, and what.
#[derive(Default)]
struct Found(Vec<(Range<usize>, String)>);

impl Found {
    fn finish(mut self, source: &Source<'_>) -> Vec<Warning> {
        self.0.sort_by_key(|(span, _)| span.start);
        let warning = |(span, text): (Range<usize>, String)| Warning {
            place: source.place(span.start),
            text,
        };
        self.0.into_iter().map(warning).collect()
    }

    fn rate_group(&mut self, table: &Table<'_>) {
        if let Some(item) = table.find("rate")
            && let Some(text) = item.as_text().and_then(rate_in_bytes)
            && let Some(name) = table.find("name").and_then(|name| name.as_text())
        {
            let text = format!("rate_group {name:?}: rate: {text}");
            self.0.push((item.span(), text));
        }
    }

    fn tree(&mut self, tree: &Tree<'_>, spec: &QdiscSpec) {
        for table in tree.qdiscs.iter().chain(&tree.classes) {
            self.units(&tree.owner, table);
        }
        let single;
        let nodes = match spec {
            QdiscSpec::Tree(nodes) => nodes,
            QdiscSpec::Default => return,
            one => {
                let mut nodes = TreeSpec::new();
                if nodes.add(Handle::ROOT, Handle::NONE, one.clone()).is_err() {
                    return;
                }
                single = nodes;
                &single
            }
        };
        // No other qdisc has its parent.
        let of = |table: &Table<'_>| table.handle("parent").unwrap_or(Handle::ROOT);
        let qdiscs: BTreeMap<_, _> = tree.qdiscs.iter().map(|q| (of(q), q)).collect();
        let of = |table: &Table<'_>| table.handle("classid");
        let classes: BTreeMap<_, _> = tree.classes.iter().map(|c| (of(c), c)).collect();
        for warning in warnings(nodes, tree.queues, tree.parallel, tree.mtu) {
            let at = warning.at;
            let (table, name) = match nodes.node(at) {
                Some(node) => {
                    let table = qdiscs.get(&node.parent).copied();
                    let name = match table.is_some_and(|table| table.has("handle")) {
                        true => format!("qdisc {at}"),
                        false => format!("{}:", node.qdisc.kind()),
                    };
                    (table, name)
                }
                None => (classes.get(&Some(at)).copied(), format!("class {at}:")),
            };
            let Some(table) = table.or_else(|| tree.qdiscs.first()) else {
                continue;
            };
            // As in the file.
            let parameter = &warning.parameter.replace('-', "_");
            let bare = bare_number(table, parameter).filter(|_| parameter != "default");
            let hint = bare.map(|n| format!("; {n} without a unit is bytes, \"{n}k\" is KiB"));
            let text = format!(
                "{}{name} {parameter} {}{}",
                tree.owner,
                warning.text,
                hint.unwrap_or_default()
            );
            self.0.push((table.span_of(parameter), text));
        }
    }

    /// Quantities of one table whose units are others than they look like.
    fn units(&mut self, owner: &str, table: &Table<'_>) {
        for item in table.items() {
            if let Some(text) = item.as_text().and_then(rate_in_bytes) {
                let text = format!("{owner}{}: {text}", item.key);
                self.0.push((item.span(), text));
            }
        }
        // Nobody wants packets to wait so shortly at a shaper.
        if let Some(n) = bare_number(table, "latency").filter(|&n| n < 1000) {
            let text = format!(
                "{owner}latency: {n} without a unit is {n} µs; write \"{n}ms\" if milliseconds are \
                 meant, else \"{n}us\""
            );
            self.0.push((table.span_of("latency"), text));
        }
    }

    fn bridge(&mut self, table: &Table<'_>, ports: &HashMap<&str, &Port>) {
        let members = table.find("ports").and_then(|item| item.as_list());
        let members = members.iter().flatten().filter_map(|name| {
            let port = ports.get(name.as_text()?)?;
            Some((name.span(), &port.settings))
        });
        let mut members = members.peekable();
        let Some(&(_, first)) = members.peek() else {
            return;
        };
        let other = members.find(|(_, port)| port.mtu != first.mtu);
        if let Some((span, other)) = other {
            let text = format!(
                "bridge {:?}: port {:?} has MTU {}, and port {:?} MTU {}: what is longer than the \
                 smaller one is dropped there; give all ports of a bridge the same",
                table
                    .find("name")
                    .and_then(|name| name.as_text())
                    .unwrap_or_default(),
                first.name,
                first.mtu,
                other.name,
                other.mtu
            );
            self.0.push((span, text));
        }
    }
}

fn rate_in_bytes(text: &str) -> Option<String> {
    let (bits, same) = units::rate_in_bytes(text)?;
    Some(format!(
        "{text:?} is bytes a second, as in tc; write {bits} if bits are meant, else {same}"
    ))
}

/// A whole number without a unit.
fn bare_number(table: &Table<'_>, key: &str) -> Option<u64> {
    let item = table.find(key)?;
    match item.as_text() {
        Some(text) => text.trim().parse().ok(),
        None => item.as_integer()?.try_into().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{checked, checked_tree};
    use super::*;

    /// The warnings of a file, without its name.
    fn of(text: &str) -> Vec<String> {
        let (_, warnings) = checked("x.toml", text, None).expect("valid");
        lines(&warnings)
    }

    fn lines(warnings: &[Warning]) -> Vec<String> {
        let line = |warning: &Warning| {
            let line = warning.to_string();
            line.strip_prefix("x.toml:").expect("the file").to_owned()
        };
        warnings.iter().map(line).collect()
    }

    fn port(rest: &str) -> String {
        format!("[[port]]\nname = \"p\"\ndriver = \"null\"\n{rest}")
    }

    #[test]
    fn a_file_that_means_what_it_says_has_none() {
        let plain = port(
            "qdisc = { kind = \"tbf\", rate = \"1mbit\", burst = \"10k\", latency = \"50ms\" }\n",
        );
        assert!(of(&plain).is_empty());
        assert!(of("").is_empty());
    }

    #[test]
    fn a_default_class_that_is_not_there() {
        let text = port(
            "[[port.qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\ndefault = \"30\"\n\
             [[port.class]]\nclassid = \"1:10\"\nrate = \"1mbit\"\n",
        );
        assert_eq!(
            of(&text),
            [
                "7:11: warning: port \"p\": qdisc 1: default names class 1:30, which does not exist: \
                 what no filter matches is sent at no class's rate"
            ]
        );
    }

    #[test]
    fn nat_where_no_address_is_translated() {
        let text = port("qdisc = { kind = \"cake\", bandwidth = \"1mbit\", nat = true }\n");
        assert_eq!(
            of(&text),
            ["4:53: warning: port \"p\": cake: nat has no effect: no address is translated here"]
        );
        assert!(of(&text.replace("true", "false")).is_empty());
    }

    #[test]
    fn the_rate_of_several_queues_follows_nothing() {
        let text = port(
            "queues = 2\nparallel = true\n\
             qdisc = { kind = \"cake\", bandwidth = \"1mbit\", autorate_ingress = true }\n",
        );
        assert_eq!(
            of(&text),
            [
                "6:66: warning: port \"p\": cake: autorate_ingress does not set the rate of \
                 several queues"
            ]
        );
        assert!(of(&text.replace("queues = 2", "queues = 1")).is_empty());
    }

    #[test]
    fn a_burst_below_a_frame_and_a_bare_latency() {
        let text =
            port("qdisc = { kind = \"tbf\", rate = \"1mbit\", burst = 32, latency = 50 }\n");
        assert_eq!(
            of(&text),
            [
                "4:49: warning: port \"p\": tbf: burst of 32 bytes is less than a frame: longer ones \
                 are dropped; give at least 1514; 32 without a unit is bytes, \"32k\" is KiB",
                "4:63: warning: port \"p\": latency: 50 without a unit is 50 µs; write \"50ms\" if \
                 milliseconds are meant, else \"50us\"",
            ]
        );
        let longer = text.replace("burst = 32", "burst = 9000");
        let jumbo = format!("{longer}mtu = 9000\n").replace("latency = 50 ", "latency = \"1ms\" ");
        let found = of(&jumbo);
        assert!(
            matches!(&found[..], [one] if one.contains("at least 9014")),
            "{found:?}"
        );
    }

    #[test]
    fn a_class_is_named_at_its_own_line() {
        let text = port(
            "mtu = 9000\n[[port.qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\n\
             [[port.class]]\nclassid = \"1:10\"\nrate = \"1mbit\"\nburst = \"2k\"\ncburst = \"10k\"\n",
        );
        let found = of(&text);
        let start =
            "11:9: warning: port \"p\": class 1:10: burst of 2048 bytes is less than a frame";
        assert!(
            matches!(&found[..], [one] if one.starts_with(start)),
            "{found:?}"
        );
    }

    #[test]
    fn ten_thousand_classes_are_named_at_their_lines() {
        let mut text = port("[[port.qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\n");
        for n in 1..=10_000 {
            let class = format!("classid = \"1:{n:x}\"\nrate = \"1mbit\"\nburst = \"1k\"\n");
            text += &format!("[[port.class]]\n{class}");
        }
        let found = of(&text);
        assert_eq!(found.len(), 10_000);
        for (n, line) in found.iter().enumerate() {
            let at = format!(
                "{}:9: warning: port \"p\": class 1:{:x}: ",
                10 + 4 * n,
                n + 1
            );
            assert!(line.starts_with(&at), "{at}\n{line}");
        }
    }

    #[test]
    fn a_burst_that_queues_share() {
        let text = port(
            "queues = 8\n[port.qdisc]\nkind = \"tbf\"\nrate = \"10gbit\"\nburst = \"32k\"\n\
             latency = \"50ms\"\n",
        );
        assert!(of(&text).is_empty());
        let found = of(&text.replace("queues = 8", "queues = 8\nparallel = true"));
        let part =
            "9:9: warning: port \"p\": tbf: burst of 32768 bytes is too little for 8 queues";
        assert!(
            matches!(&found[..], [one] if one.starts_with(part)),
            "{found:?}"
        );
    }

    #[test]
    fn rates_in_bytes() {
        let text = port(
            "[[port.qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\n\
             [[port.class]]\nclassid = \"1:1\"\nrate = \"100Mbps\"\nceil = \"1gbit\"\n\
             [[rate_group]]\nname = \"g\"\nrate = \"2.5kbps\"\n",
        );
        assert_eq!(
            of(&text),
            [
                "9:8: warning: port \"p\": rate: \"100Mbps\" is bytes a second, as in tc; write \
                 100mbit if bits are meant, else 800mbit",
                "13:8: warning: rate_group \"g\": rate: \"2.5kbps\" is bytes a second, as in tc; \
                 write 2.5kbit if bits are meant, else 20kbit",
            ]
        );
    }

    #[test]
    fn ports_of_one_bridge_with_different_mtus() {
        let two = |mtu| {
            format!(
                "{}mtu = {mtu}\n[[port]]\nname = \"q\"\ndriver = \"null\"\n\
                 [[bridge]]\nname = \"br0\"\nports = [\"p\", \"q\"]\n",
                port("")
            )
        };
        assert!(of(&two(1500)).is_empty());
        assert_eq!(
            of(&two(9000)),
            [
                "10:15: warning: bridge \"br0\": port \"p\" has MTU 9000, and port \"q\" MTU 1500: \
                 what is longer than the smaller one is dropped there; give all ports of a bridge \
                 the same"
            ]
        );
    }

    #[test]
    fn a_tree_by_itself_has_them_too() {
        let text = "[[qdisc]]\nkind = \"tbf\"\nrate = \"1mbps\"\nburst = \"1k\"\nlimit = \"10k\"\n\
                    [[qdisc]]\nparent = \"8001:1\"\nkind = \"pfifo\"\n";
        let (_, warnings) = checked_tree("x.toml", text).expect("valid");
        let found = lines(&warnings);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("3:8: warning: rate: \"1mbps\" is bytes"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("4:9: warning: tbf: burst of 1024 bytes is"),
            "{found:?}"
        );
    }
}
