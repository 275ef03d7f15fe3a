//! `[[class]]`: a class that is added to a qdisc, for each `tc class add`, and the default class of
//! a qdisc.

use softnet_tc::TreeError::{Loop, NoClass, TooDeep, Weight};
use softnet_tc::{
    ClassSpec, HfscClassSpec, HtbClassSpec, HtbSpec, LinkDefaults, QdiscSpec, ServiceCurve,
    SpecError,
};

use super::extras;
use super::qdisc;
use super::table::Table;
use super::tree::Building;
use super::units;
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
pub(super) fn add(building: &mut Building, table: &Table<'_>, link: LinkDefaults) {
    let before = table.source.errors();
    let name = table.handle("classid");
    // The kind is that of the qdisc; of one that is not there, any will do.
    let above = name.and_then(|name| building.tree.node(name.qdisc()));
    let htb = QdiscSpec::Htb(HtbSpec::default());
    let kind = above.and_then(|node| node.qdisc.added_classes());
    let Some(kind) = kind.or_else(|| htb.added_classes()) else {
        return;
    };
    if !table.has("classid") {
        table.missing::<()>("classid", "the class's name, like \"1:10\"");
    }
    if name.is_none() {
        // Nor is its kind known, so what else is missing or wrong is not.
        return building.lose(None);
    }
    let own = kind.options.iter().map(|option| option.name);
    let keys: Vec<&str> = ["classid", "parent"].into_iter().chain(own).collect();
    table.only(&[], "class", &[keys, vec!["estimator"]].concat());
    let parent = table.handle("parent");
    let mut spec = (kind.default)(&link);
    for option in kind.options {
        qdisc::read(table, option, &mut spec, building.has_speed);
    }
    match &mut spec {
        ClassSpec::Htb(class) => htb_class(table, class),
        ClassSpec::Hfsc(class) => hfsc_class(table, class),
        ClassSpec::Drr(_) | ClassSpec::Qfq(_) => {}
    }
    let Some(name) = name.filter(|_| table.source.errors() == before) else {
        return building.lose(name);
    };
    let parent = parent.unwrap_or_else(|| name.qdisc());
    let added = building.tree.add_class(parent, name, spec);
    match added {
        Ok(_) => {
            for (option, share) in qdisc::shares(table, kind.options) {
                building.tree.set_share(name, option, share);
                // As in `htb_class`.
                if option == "rate" && !table.has("ceil") {
                    building.tree.set_share(name, "ceil", share);
                }
            }
            extras::estimator(&mut building.tree, name, table);
        }
        Err(error) => {
            let key = match &error {
                SpecError::Parameter { parameter, .. } => parameter,
                SpecError::Tree(Loop(_) | NoClass(_) | TooDeep(_)) if table.has("parent") => {
                    "parent"
                }
                SpecError::Tree(Weight { .. }) => "weight",
                _ => "classid",
            };
            building.problem(table, key, &[parent, name.qdisc()], error.to_string());
            building.lose(Some(name));
        }
    }
}

/// Options of a class of `htb` that follow from others.
fn htb_class(table: &Table<'_>, class: &mut HtbClassSpec) {
    class.link = table.link_cost();
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
}

/// The curves of a class of `hfsc`.
fn hfsc_class(table: &Table<'_>, class: &mut HfscClassSpec) {
    let both = curve(table, "sc");
    for (key, place) in [("rt", &mut class.rt), ("ls", &mut class.ls)] {
        *place = curve(table, key).or(both);
        if table.has("sc") && table.has(key) {
            let text = format!("sc is {key} as well; keep one of them");
            table.problem::<()>(key, text);
        }
    }
    class.ul = curve(table, "ul");
    if table.has("ul") && class.ls.is_none() {
        table.problem::<()>("ul", "limits what is shared, and needs ls or sc");
    }
}

/// A service curve (tc-hfsc(7)).
fn curve(table: &Table<'_>, key: &str) -> Option<ServiceCurve> {
    let item = table.find(key)?;
    let Some(curve) = item.as_table() else {
        let text = format!("is {}; give a table, like {{ m2 = \"1mbit\" }}", item.is());
        return item.problem(text);
    };
    let before = table.source.errors();
    curve.only(&[], "curve", &["m1", "d", "m2", "umax", "dmax", "rate"]);
    let rate = |key| {
        let rate = curve.quantity(key, units::rate).unwrap_or(0);
        u32::try_from(rate).ok().or_else(|| {
            let text = "is too large; at most 34359738360 bits a second";
            curve.problem(key, text)
        })
    };
    let micros = |key| {
        let nanos = curve.quantity(key, units::time).unwrap_or(0);
        u32::try_from(nanos.div_ceil(1000)).ok().or_else(|| {
            let text = "is too long; at most 4294 s";
            curve.problem(key, text)
        })
    };
    let linear = curve.has("rate") || curve.has("umax") || curve.has("dmax");
    if linear && ["m1", "d", "m2"].iter().any(|key| curve.has(key)) {
        return item.problem("give m1, d and m2, or umax, dmax and rate");
    }
    let spec = if linear {
        for (key, other) in [("umax", "dmax"), ("dmax", "umax")] {
            if curve.has(key) && !curve.has(other) {
                return item.problem(format!("{key} needs {other}"));
            }
        }
        let umax = curve.quantity("umax", units::size).unwrap_or(0);
        let (dmax, rate) = (micros("dmax")?, rate("rate")?);
        if curve.has("umax") {
            let spec = ServiceCurve::of_delay(umax, dmax, rate);
            spec.or_else(|| {
                item.problem("needs a rate above what fits 32 bits of bytes a second")
            })?
        } else {
            ServiceCurve::linear(rate)
        }
    } else {
        ServiceCurve {
            m1: rate("m1")?,
            d: micros("d")?,
            m2: rate("m2")?,
        }
    };
    if table.source.errors() > before {
        return None;
    }
    if spec.is_nothing() {
        return item.problem("must have a rate above 0: m2 or rate, or m1 for a time");
    }
    if curve.has("m1") && !curve.has("d") {
        return item.problem("has m1, which needs d, the time that it is for");
    }
    Some(spec)
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
            let ClassSpec::Htb(class) = &node.spec else {
                panic!("{node:?}")
            };
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

    #[test]
    fn classes_of_other_kinds() {
        let tree = read(
            r#"
[[qdisc]]
handle = "1:"
kind = "hfsc"
default = "12"

[[class]]
classid = "1:1"
rt = { umax = 1540, dmax = "5ms", rate = 10000 }
ls = { rate = "8kbit" }

[[class]]
parent = "1:1"
classid = "1:12"
sc = { m1 = "3mbit", d = "10ms", m2 = "1mbit" }
ul = { m2 = "2mbit" }

[[qdisc]]
parent = "1:12"
handle = "2:"
kind = "drr"

[[class]]
classid = "2:1"

[[class]]
classid = "2:2"
quantum = "3k"

[[qdisc]]
parent = "2:1"
handle = "3:"
kind = "qfq"

[[class]]
classid = "3:1"
weight = 7
"#,
        );
        let class = |name: &str| {
            let node = tree.class_node(name.parse().expect("a name"));
            node.expect("the class").spec.clone()
        };
        let curve = |m1, d, m2| Some(ServiceCurve { m1, d, m2 });
        assert_eq!(
            class("1:1"),
            ClassSpec::Hfsc(HfscClassSpec {
                rt: curve(308_000, 5000, 1250),
                ls: curve(0, 0, 1000),
                ul: None,
            })
        );
        let both = curve(375_000, 10_000, 125_000);
        assert_eq!(
            class("1:12"),
            ClassSpec::Hfsc(HfscClassSpec {
                rt: both,
                ls: both,
                ul: curve(0, 0, 250_000),
            })
        );
        let quantum = |name| match class(name) {
            ClassSpec::Drr(class) => class.quantum,
            other => panic!("{other:?}"),
        };
        assert_eq!((quantum("2:1"), quantum("2:2")), (1514, 3072));
        let ClassSpec::Qfq(qfq) = class("3:1") else {
            panic!("{:?}", class("3:1"))
        };
        assert_eq!((qfq.weight, qfq.maxpkt), (7, 1514));
    }
}
