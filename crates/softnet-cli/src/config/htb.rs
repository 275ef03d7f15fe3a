//! tc-htb(8): the default class, and the options of a class, which is a table of its own for each
//! `tc class add`.

use softnet_tc::TreeError::{Loop, NoClass, TooDeep};
use softnet_tc::{ClassSpec, HtbClassSpec, SpecError};

use super::extras;
use super::qdisc;
use super::table::Table;
use super::tree::Building;
use super::words::hex;

/// The default class, in hexadecimal as in tc. A number of TOML looks the same and is another one,
/// so it is refused.
pub(super) fn minor(table: &Table<'_>) -> Option<u16> {
    if let Some(item) = table.find("default")
        && let Some(number) = item.as_integer()
    {
        let other = match number {
            10.. => format!(", or \"{number:x}\" if {number:#x} is meant"),
            _ => String::new(),
        };
        return item.problem(format!(
            "{number} is a number, and classes are named in hexadecimal; write default = \
             \"{number}\" for class 1:{number}, as tc reads it{other}"
        ));
    }
    let what = "the number of a class, like \"10\" for \"1:10\"";
    table.parsed("default", what, |text| hex(text)?.try_into().ok())
}

/// Adds a table's class to a tree.
pub(super) fn add_class(building: &mut Building, table: &Table<'_>) {
    let before = table.source.errors();
    let own = HtbClassSpec::OPTIONS.iter().map(|option| option.name);
    let keys: Vec<&str> = ["classid", "parent"].into_iter().chain(own).collect();
    table.only(&[], "class", &[keys, vec!["estimator"]].concat());
    let name = table.handle("classid");
    if !table.has("classid") {
        table.missing::<()>("classid", "the class's name, like \"1:10\"");
    }
    let parent = table.handle("parent");
    let mut spec = ClassSpec::Htb(HtbClassSpec::new(0));
    for option in HtbClassSpec::OPTIONS {
        qdisc::read(table, option, &mut spec);
    }
    let ClassSpec::Htb(mut class) = spec;
    class.link = table.link_cost();
    let Some(name) = name.filter(|_| table.source.errors() == before) else {
        return building.lose(name);
    };
    if !table.has("ceil") {
        class.ceil = class.rate;
    }
    if !table.has("burst") {
        class.burst = HtbClassSpec::default_burst(class.rate);
    }
    if !table.has("cburst") {
        class.cburst = HtbClassSpec::default_burst(class.ceil);
    }
    // The kernel's lowest.
    class.prio = class.prio.min(7);
    let parent = parent.unwrap_or_else(|| name.qdisc());
    let added = building.tree.add_class(parent, name, ClassSpec::Htb(class));
    match added {
        Ok(_) => extras::estimator(&mut building.tree, name, table),
        Err(error) => {
            let key = match &error {
                SpecError::Parameter { parameter, .. } => parameter,
                SpecError::Tree(Loop(_) | NoClass(_) | TooDeep(_)) if table.has("parent") => {
                    "parent"
                }
                _ => "classid",
            };
            building.problem(table, key, &[parent, name.qdisc()], error.to_string());
            building.lose(Some(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_tree;
    use super::*;
    use softnet_tc::{HtbSpec, QdiscSpec, TreeSpec};

    const TREE: &str = r#"
[[qdisc]]
handle = "1:"
kind = "htb"
default = "20"

[[class]]
classid = "1:1"
rate = "10mbit"

[[class]]
parent = "1:1"
classid = "1:20"
rate = "1mbit"
ceil = "10mbit"
burst = "15k"
cburst = 2000
prio = 3
quantum = 1514
overhead = 24
mpu = 84

[[qdisc]]
parent = "1:20"
kind = "pfifo"
limit = 5

[[class]]
parent = "1:1"
classid = "1:30"
rate = "5gbps"
linklayer = "atm"

[[filter]]
flowid = "1:30"
"#;

    fn read(text: &str) -> TreeSpec {
        match parse_tree("x.toml", text) {
            Ok(QdiscSpec::Tree(tree)) => tree,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn classes_as_tc_adds_them() {
        let tree = read(TREE);
        let class = |name: &str| {
            let node = tree.class_node(name.parse().expect("a name"));
            let node = node.expect("the class");
            let ClassSpec::Htb(class) = &node.spec;
            (node.parent.to_string(), class.clone())
        };
        assert_eq!(
            class("1:1"),
            ("1:".to_owned(), HtbClassSpec::new(1_250_000))
        );
        let (parent, leaf) = class("1:20");
        assert_eq!(
            (parent.as_str(), leaf.rate, leaf.ceil),
            ("1:1", 125_000, 1_250_000)
        );
        assert_eq!((leaf.burst, leaf.cburst), (15_360, 2000));
        assert_eq!((leaf.prio, leaf.quantum), (3, Some(1514)));
        assert_eq!((leaf.link.overhead, leaf.link.mpu), (24, 84));
        // A nanosecond's worth beyond tc's 1600 bytes.
        assert_eq!(class("1:30").1.burst, 1605);
        let root = tree.root().expect("a root");
        let expected = HtbSpec {
            default: 0x20,
            ..HtbSpec::default()
        };
        assert_eq!(root.qdisc, QdiscSpec::Htb(expected));
        for (text, default) in [("\"20\"", 0x20), ("\"0xffff\"", 0xffff), ("\"0\"", 0)] {
            let tree = read(&format!(
                "[[qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\ndefault = {text}"
            ));
            let root = tree.root().expect("a root");
            assert!(matches!(&root.qdisc, QdiscSpec::Htb(htb) if htb.default == default));
        }
    }

    #[test]
    fn a_default_that_is_no_text_is_refused() {
        for (number, expected) in [
            (
                "30",
                "30 is a number, and classes are named in hexadecimal; write default = \"30\" for \
                 class 1:30, as tc reads it, or \"1e\" if 0x1e is meant",
            ),
            (
                "0x30",
                "48 is a number, and classes are named in hexadecimal; write default = \"48\" for \
                 class 1:48, as tc reads it, or \"30\" if 0x30 is meant",
            ),
            (
                "1",
                "1 is a number, and classes are named in hexadecimal; write default = \"1\" for \
                 class 1:1, as tc reads it",
            ),
        ] {
            let text = TREE.replacen("\"20\"", number, 1);
            let error = parse_tree("x.toml", &text).expect_err(number).to_string();
            let start = "x.toml:5:11: key `qdisc.default`: ";
            assert_eq!(error.strip_prefix(start), Some(expected));
        }
    }

    #[test]
    fn problems_name_the_key() {
        for (wrong, right, problem) in [
            (
                "default = \"20\"",
                "default = \"x\"",
                "qdisc.default`: \"x\" is not the number",
            ),
            (
                "default = \"20\"",
                "default = \"10000\"",
                "qdisc.default`: \"10000\" is not the number",
            ),
            (
                "default = \"20\"",
                "r2q = 0",
                "qdisc.r2q`: \"0\" is not a number from 1 on",
            ),
            ("rate = \"1mbit\"", "", "class.rate`: is missing"),
            (
                "rate = \"1mbit\"",
                "rate = 0",
                "class.rate`: htb: rate must be",
            ),
            (
                "prio = 3",
                "prio = -1",
                "class.prio`: \"-1\" is not a number from 0 on",
            ),
            (
                "prio = 3",
                "kind = \"htb\"",
                "class.kind`: is not an option of class",
            ),
            (
                "\"1:30\"\nrate",
                "\"1:20\"\nrate",
                "class.classid`: there is a class 1:20",
            ),
            (
                "\"1:30\"\nrate",
                "\"2:3\"\nrate",
                "class.classid`: there is no qdisc 2:",
            ),
            (
                "parent = \"1:1\"",
                "parent = \"1:7\"",
                "class.parent`: there is no class 1:7",
            ),
            ("classid = \"1:20\"\n", "", "class.classid`: is missing"),
        ] {
            assert!(TREE.contains(wrong), "{wrong}");
            let text = TREE.replacen(wrong, right, 1);
            let error = parse_tree("x.toml", &text).expect_err(right).to_string();
            assert!(error.contains(problem), "{right}: {error}");
        }
    }
}
