//! `docs/configuration.md` against the parser: every key, default and error in it is true, and
//! every key is in it.

use std::collections::BTreeSet;

use softnet_engine::forward::MirredDir;
use softnet_tc::{
    ClassSpec, Form, HfscSpec, HtbClassSpec, LinkDefaults, QDISC_KINDS, QdiscKind, QdiscSpec,
    SpecOption, Unset,
};

use super::error::ConfigError;
use super::key::Key;
use super::{Config, parse};
use super::{
    block, bridge, device, egress, engine, expect, fdb, filter, link, member, port, qdisc,
    rate_group, vlans, write_tree,
};

/// One entry: `` - `key`: meaning. **Default** `1`. **Error** `0`: what is said ``.
struct Entry {
    key: String,
    required: bool,
    /// The default, where it can be written down.
    default: Option<String>,
    /// A wrong value, and how the problem begins.
    error: (String, String),
}

/// The entries of the table that a heading names.
struct Section {
    table: String,
    entries: Vec<Entry>,
}

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

fn reference() -> Vec<Section> {
    let text = std::fs::read_to_string(PATH).expect("configuration.md");
    let mut sections: Vec<Section> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            let table = line.split('`').nth(1).unwrap_or_default().to_owned();
            let entries = Vec::new();
            sections.push(Section { table, entries });
        } else if let Some(first) = line.strip_prefix("- ") {
            let mut item = first.to_owned();
            while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
                item = format!("{item} {}", more.trim());
            }
            let section = sections.last_mut().expect("a heading");
            section.entries.push(entry(&item));
        }
    }
    sections.retain(|section| !section.table.is_empty());
    sections
}

fn entry(item: &str) -> Entry {
    let (rest, error) = item.split_once("**Error** `").expect(item);
    let (value, problem) = error.split_once("`: ").expect(item);
    let key = rest.split('`').nth(1).expect(item).to_owned();
    let default = rest.split_once("**Default** `").map(|(_, text)| {
        let (literal, _) = text.split_once('`').expect(item);
        literal.to_owned()
    });
    let required = rest.contains("**Required**");
    assert!(
        required != rest.contains("**Default**"),
        "{item}: required, or a default"
    );
    Entry {
        key,
        required,
        default,
        error: (value.to_owned(), problem.to_owned()),
    }
}

/// Values of what must be given.
fn examples(
    of: impl IntoIterator<Item = (&'static str, Unset)>,
) -> Vec<(&'static str, &'static str)> {
    let required = of.into_iter().filter_map(|(name, unset)| match unset {
        Unset::Required(_, example) => Some((name, example)),
        Unset::Value | Unset::Words(_) => None,
    });
    required.collect()
}

fn of_options<S>(options: &[SpecOption<S>]) -> Vec<(&'static str, &'static str)> {
    examples(options.iter().map(|option| (option.name, option.unset)))
}

fn of_keys<T>(keys: &[Key<T>]) -> Vec<(&'static str, &'static str)> {
    examples(keys.iter().map(|key| (key.name, key.unset)))
}

/// The file up to the table, keys that the table has of its own, and the file after it.
fn file_around(table: &str) -> (String, Vec<(&'static str, &'static str)>, &'static str) {
    let a_port = "[engine]\nworkers = 2\n[[port]]\nname = \"p\"\ndriver = \"tap\"\n";
    if let Some(kind) = QdiscKind::find(table) {
        let is_per_queue = (kind.default)(&LinkDefaults::default()).is_per_queue();
        let queues = if is_per_queue { "queues = 2\n" } else { "" };
        let before = format!("{a_port}{queues}[port.qdisc]\nkind = {table:?}");
        return (before, of_options(kind.options), "");
    }
    let filter = |kind| {
        (
            a_port.to_owned() + "[[port.filter]]",
            vec![("kind", kind), ("flowid", "\"1:1\"")],
            "[[port.qdisc]]\nkind = \"prio\"\nhandle = \"1:\"\n",
        )
    };
    match table {
        "[engine]" => ("[engine]".to_owned(), vec![("workers", "2")], ""),
        "[[port]]" => (
            "[engine]\nworkers = 2\n[[port]]".to_owned(),
            of_keys(port::PORT),
            "",
        ),
        "mirror" => (
            a_port.to_owned() + "[port.mirror]",
            of_keys(egress::MIRRED),
            "",
        ),
        "storm" => (a_port.to_owned() + "[port.storm]", vec![], ""),
        "redirect" => (
            a_port.to_owned() + "[port.redirect]",
            of_keys(egress::MIRRED),
            "",
        ),
        "[[bridge]]" => (
            a_port.to_owned() + "[[bridge]]",
            of_keys(bridge::BRIDGE),
            "",
        ),
        "[[fdb]]" => (
            a_port.to_owned() + "[[bridge]]\nname = \"br0\"\nports = [\"p\"]\n[[fdb]]",
            of_keys(fdb::FDB),
            "",
        ),
        "[[expect]]" => (
            a_port.to_owned() + "[[expect]]",
            of_keys(expect::EXPECT),
            "",
        ),
        "[[block]]" => (
            a_port.to_owned() + "[port.qdisc]\nkind = \"ingress\"\ningress_block = 7\n[[block]]",
            of_keys(block::BLOCK),
            "",
        ),
        "[[rate_group]]" => (
            a_port.to_owned() + "[[rate_group]]",
            [
                of_keys(rate_group::RATE_GROUP),
                vec![("rate", "\"1gbit\""), ("pps", "1000000")],
            ]
            .concat(),
            "",
        ),
        "qdisc" => (
            a_port.to_owned() + "[port.qdisc]",
            vec![("kind", "\"pfifo\"")],
            "",
        ),
        "stab" | "estimator" => {
            let own: &[_] = match table {
                "stab" => &[("linklayer", "\"atm\""), ("mpu", "1")],
                _ => &[("interval", "\"1s\""), ("average", "\"8s\"")],
            };
            let before = format!("{a_port}[port.qdisc]\nkind = \"pfifo\"\n[port.qdisc.{table}]");
            (before, own.to_vec(), "")
        }
        "class" => (
            a_port.to_owned() + "[[port.qdisc]]\nkind = \"htb\"\nhandle = \"1:\"\n[[port.class]]",
            [
                vec![("classid", "\"1:10\"")],
                of_options(HtbClassSpec::OPTIONS),
            ]
            .concat(),
            "",
        ),
        "class of drr" | "class of qfq" | "class of hfsc" => {
            let kind = &table["class of ".len()..];
            let before = format!(
                "{a_port}[[port.qdisc]]\nkind = {kind:?}\nhandle = \"1:\"\n[[port.class]]"
            );
            (before, vec![("classid", "\"1:10\"")], "")
        }
        "filter" | "flower" => filter("\"flower\""),
        "u32" => filter("\"u32\""),
        "basic" => filter("\"basic\""),
        "fw" => {
            let (before, mut own, after) = filter("\"fw\"");
            own.push(("handle", "1"));
            (before, own, after)
        }
        other => panic!("a table that the test does not know: {other}"),
    }
}

/// A file in which `key` of `table` has this value, or is left out.
fn file_with(table: &str, key: &str, value: Option<&str>) -> String {
    let (before, mut own, after) = file_around(table);
    let of_socket = [
        "socket",
        "server",
        "socket_mode",
        "socket_group",
        "memory",
        "memory_kind",
        "guest_offloads",
    ]
    .contains(&key);
    if table == "[[port]]" && of_socket && (key, value) != ("socket", None) {
        own[1] = ("driver", "\"vhost_user\"");
        own.push(("socket", "\"vm.sock\""));
    }
    // One of them is needed, and sc is both.
    if table == "class of hfsc" && (key != "sc" || value.is_none()) {
        let curve = "{ m2 = \"1mbit\" }";
        own.extend([("rt", curve), ("ls", curve)]);
    }
    if table == "[[port]]" && ["read", "write", "pace"].contains(&key) {
        own[1] = ("driver", "\"pcap\"");
    }
    if table == "[[port]]" && key == "uplink" {
        own[1] = ("driver", "\"stream\"");
        own.push(("socket", "\"vm.sock\""));
    }
    let of_vlan = ["link", "id", "protocol"].contains(&key);
    if table == "[[port]]" && of_vlan && (key == "protocol" || value.is_some()) {
        own[1] = ("driver", "\"vlan\"");
        own.extend([("link", "\"p0\""), ("id", "5")]);
    }
    let mut text = format!("{before}\n");
    for (name, value) in own.iter().filter(|(name, _)| *name != key) {
        text += &format!("{name} = {value}\n");
    }
    if let Some(value) = value {
        text += &format!("{key} = {value}\n");
    }
    text + after
}

fn read(text: &str) -> Result<Config, String> {
    parse("x.toml", text).map_err(|ConfigError { problems, .. }| match &problems[..] {
        [one] => one.text.clone(),
        _ => panic!("one error, not {problems:?}, in\n{text}"),
    })
}

/// A file for each key that may be left out: with its default where that can be written down.
pub(super) fn valid_files() -> Vec<String> {
    let mut files = Vec::new();
    for Section { table, entries } in reference() {
        for entry in entries.iter().filter(|entry| !entry.required) {
            let file = file_with(&table, &entry.key, entry.default.as_deref());
            if entry.key != "limit" || table != "tbf" {
                files.push(file);
            }
        }
    }
    files
}

#[test]
fn defaults_and_errors_are_those_of_the_parser() {
    for Section { table, entries } in reference() {
        for Entry {
            key,
            required,
            default,
            error: (wrong, problem),
        } in entries
        {
            let place = format!("{table}, {key}");
            let without = read(&file_with(&table, &key, None));
            if required {
                let said = without.expect_err(&place);
                assert!(said.starts_with("is missing"), "{place}: {said}");
            } else if let Some(default) = default {
                let with = read(&file_with(&table, &key, Some(&default)));
                assert_eq!(without.expect(&place), with.expect(&place), "{place}");
            } else {
                without.expect(&place);
            }
            let said = read(&file_with(&table, &key, Some(&wrong))).expect_err(&place);
            assert!(said.starts_with(&problem), "{place}: {said}");
        }
    }
}

#[test]
fn every_key_of_the_parser_is_there() {
    let sections = reference();
    for Section { table, entries } in &sections {
        let written: BTreeSet<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(written.len(), entries.len(), "{table} has a key twice");
        let everywhere = match table.as_str() {
            "qdisc" => qdisc::EVERYWHERE,
            "filter" => filter::EVERYWHERE,
            _ => &[],
        };
        if !everywhere.is_empty() {
            assert_eq!(written, everywhere.iter().copied().collect());
            continue;
        }
        let said = read(&file_with(table, "no_such_key", Some("1"))).expect_err(table);
        let known = ["known here: ", "its options are "]
            .iter()
            .find_map(|words| said.split_once(words))
            .map_or("", |(_, known)| known);
        let known: BTreeSet<&str> = known.split(", ").filter(|key| !key.is_empty()).collect();
        assert_eq!(written, known, "{table}: {said}");
    }
    // The tables themselves.
    let said = read("no_such_table = 1\n").expect_err("a table");
    let (_, known) = said.split_once("known here: ").expect("a list");
    // One is no table, but a list of files.
    for table in known.split(", ").filter(|table| *table != "include") {
        let named = |section: &Section| section.table.trim_matches(['[', ']']) == table;
        assert!(sections.iter().any(named), "{table} is not there");
    }
    // The kinds of qdiscs and filters; the one without options is told of where they are listed.
    for of in ["qdisc", "filter"] {
        let said = read(&file_with(of, "kind", Some("\"no_such_kind\""))).expect_err("a kind");
        let (_, kinds) = said.split_once("use ").expect("a list");
        for kind in kinds.replace(" or ", ", ").split(", ") {
            let named = |section: &Section| section.table == kind;
            assert!(
                kind == "matchall" || sections.iter().any(named),
                "{kind} is not there"
            );
        }
    }
}

/// An entry in lines of at most 100 columns. `table` is that of the heading.
fn entry_lines(
    table: &str,
    name: &str,
    about: &str,
    unset: Unset,
    wrong: &str,
    default: impl FnOnce() -> toml::Value,
) -> String {
    let unset = match unset {
        Unset::Value => format!("**Default** `{}`", default()),
        Unset::Words(text) if text.starts_with('`') => format!("**Default** {text}"),
        Unset::Words(text) => format!("**Default**: {text}"),
        Unset::Required(..) => "**Required**".to_owned(),
    };
    let said = read(&file_with(table, name, Some(wrong))).expect_err(name);
    let about = about.trim();
    let entry = format!("- `{name}`: {about}. {unset}. **Error** `{wrong}`: {said}");
    let mut lines = vec![String::new()];
    for word in entry.split_whitespace() {
        let line = lines.last_mut().expect("a line");
        if line.chars().count() + word.chars().count() >= 100 {
            lines.push(format!("  {word}"));
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n") + "\n"
}

/// The entries of a table's keys. A key of a driver alone has its default in one of `defaults`.
fn keys<T>(table: &str, keys: &[Key<T>], defaults: &[T]) -> String {
    let lines = |key: &Key<T>| {
        let default = || {
            let field = key.field.expect(key.name);
            let value = defaults.iter().find_map(|default| field.write(default));
            value.expect(key.name)
        };
        entry_lines(table, key.name, key.about, key.unset, key.wrong, default)
    };
    keys.iter().map(lines).collect()
}

/// The entries of a kind's options, or a class's.
fn options<S>(table: &str, options: &[SpecOption<S>], mut default: S) -> String {
    let lines = |option: &SpecOption<S>| {
        let value = || {
            let field = (option.field)(&mut default).expect(option.name);
            write_tree::value(option.form, &field).expect(option.name)
        };
        let wrong = match (option.wrong, option.form) {
            ("", Form::Size) => "\"10p\"",
            ("", Form::Rate) => "\"50%\"",
            ("", Form::Time | Form::Mask(_) | Form::Percent) => "\"x\"",
            ("", Form::Flag) => "1",
            ("", _) => "-1",
            (wrong, _) => wrong,
        };
        let SpecOption {
            name, about, unset, ..
        } = *option;
        entry_lines(table, name, about, unset, wrong, value)
    };
    options.iter().map(lines).collect()
}

/// All generated parts, by what their first line calls them.
fn generated() -> Vec<(String, String)> {
    let drivers = [
        "null",
        "tap",
        "vhost_user",
        "stream",
        "af_packet",
        "af_xdp",
        "pcap",
        "vlan",
    ]
    .map(|name| device::blank(name).expect(name));
    let link = |table| keys(table, link::LINK, &[Default::default()]);
    let vlans = |table| keys(table, vlans::VLANS, &[]);
    let mirred = |table| keys(table, egress::MIRRED, &[MirredDir::Egress]);
    let of_port = [
        keys("[[port]]", port::PORT, &drivers),
        link("[[port]]"),
        keys("[[port]]", member::MEMBER, &[Default::default()]),
        vlans("[[port]]"),
    ];
    let of_bridge = [
        keys("[[bridge]]", bridge::BRIDGE, &[Default::default()]),
        link("[[bridge]]"),
        vlans("[[bridge]]"),
    ];
    let tables = [
        (
            "[engine]",
            keys("[engine]", engine::ENGINE, &[Config::default()]),
        ),
        ("[[port]]", of_port.concat()),
        ("storm", keys("storm", port::STORM, &[])),
        ("[[block]]", keys("[[block]]", block::BLOCK, &[])),
        ("mirror", mirred("mirror")),
        ("redirect", mirred("redirect")),
        (
            "[[rate_group]]",
            keys("[[rate_group]]", rate_group::RATE_GROUP, &[]),
        ),
        ("[[bridge]]", of_bridge.concat()),
        ("[[fdb]]", keys("[[fdb]]", fdb::FDB, &[fdb::BLANK])),
        ("[[expect]]", keys("[[expect]]", expect::EXPECT, &[])),
    ];
    let tables = tables.map(|(table, text)| (format!("keys of {table}"), text));
    let kinds = QDISC_KINDS.iter().filter(|kind| !kind.options.is_empty());
    let kinds = kinds.map(|kind| {
        let default = (kind.default)(&LinkDefaults::default());
        (kind.name, options(kind.name, kind.options, default))
    });
    let class = ClassSpec::Htb(HtbClassSpec::new(0));
    let class = ("class", options("class", HtbClassSpec::OPTIONS, class));
    let of = |table, kind: QdiscSpec| {
        let classes = kind.added_classes().expect(table);
        let default = (classes.default)(&LinkDefaults::default());
        (table, options(table, classes.options, default))
    };
    let classes = [
        class,
        of("class of drr", QdiscSpec::Drr),
        of("class of qfq", QdiscSpec::Qfq),
        of("class of hfsc", QdiscSpec::Hfsc(HfscSpec::default())),
    ];
    let kinds = kinds.chain(classes);
    let kinds = kinds.map(|(table, text)| (format!("options of {table}"), text));
    let (required, never) = (Unset::Required("", ""), || unreachable!("it is required"));
    let about = "one of the kinds below";
    let kind = entry_lines("qdisc", "kind", about, required, "\"choke\"", never);
    let kind = [("kind of qdisc".to_owned(), kind)];
    tables.into_iter().chain(kind).chain(kinds).collect()
}

/// With `SOFTNET_WRITE_REFERENCE` in the environment it writes them.
#[test]
fn keys_and_options_are_generated() {
    let before = std::fs::read_to_string(PATH).expect("configuration.md");
    let mut text = before.clone();
    for (what, entries) in generated() {
        let head = format!("<!-- generated: {what} -->\n");
        let start = text.find(&head).expect(&head) + head.len();
        let len = text[start..].find("<!-- end -->").expect("an end");
        text.replace_range(start..start + len, &entries);
    }
    if text != before && std::env::var_os("SOFTNET_WRITE_REFERENCE").is_some() {
        std::fs::write(PATH, &text).expect("configuration.md");
    } else {
        assert!(
            text == before,
            "see CONTRIBUTING.md, \"Documents are checked\""
        );
    }
}
