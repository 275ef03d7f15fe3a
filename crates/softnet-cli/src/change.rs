//! `softnet port` and `softnet rate-group`: what a running daemon has is added, changed, removed
//! and shown by the keys of the configuration file.
//!
//! A change is made in the text of the running state (`dump-config`), which is then read and
//! checked as a file is: keys, bounds and messages are the same.

use std::fmt;

use serde::{Deserialize, Serialize};
use softnet_tc::{QdiscSpec, TreeSpec};
use toml::{Table, Value};

use crate::config::{self, Config};

/// A change, as the client words it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub object: Object,
    pub verb: Verb,
    /// Name of the object.
    pub name: String,
    /// Keys with values; an empty value removes a key.
    pub keys: Vec<(String, String)>,
}

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Object {
    Port,
    RateGroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verb {
    Add,
    Set,
    Del,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Add => "add",
            Verb::Set => "set",
            Verb::Del => "del",
        })
    }
}

/// The words of the command. A value that is not plain is quoted.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change {
            object,
            verb,
            name,
            keys,
        } = self;
        write!(f, "{} {verb} {name}", object.words())?;
        for (key, value) in keys {
            match value.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"') {
                true => write!(f, " {key}={value:?}")?,
                false => write!(f, " {key}={value}")?,
            }
        }
        Ok(())
    }
}

impl Object {
    /// The list of tables that describes such objects.
    fn table(self) -> &'static str {
        match self {
            Object::Port => "port",
            Object::RateGroup => "rate_group",
        }
    }

    /// Words for messages.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Object::Port => "port",
            Object::RateGroup => "rate group",
        }
    }
}

/// Key of a port that the file has in the bridge's table.
const BRIDGE: &str = "bridge";

/// `running` with the change made, checked. The error is for people, a line for each problem.
pub(crate) fn changed(running: &Config, change: &Change) -> Result<Config, String> {
    let Change { object, name, .. } = change;
    let mut document: Table = config::write(running)
        .parse()
        .map_err(|error| format!("the running state cannot be written: {error}"))?;
    edit(&mut document, change)?;
    let what = format!("{} {name:?}", object.words());
    match config::checked(&what, &document.to_string(), Some(running.workers)) {
        Ok((config, _)) => Ok(config),
        Err(error) => Err(error.without_places().to_string()),
    }
}

/// Makes the change in the text.
fn edit(document: &mut Table, change: &Change) -> Result<(), String> {
    let Change {
        object,
        verb,
        name,
        keys,
    } = change;
    let what = object.words();
    let list = object.table();
    let tables = document
        .entry(list)
        .or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(tables) = tables else {
        return Err(format!("{list} is no list of tables"));
    };
    let is_named = |table: &Value| table.get("name").and_then(Value::as_str) == Some(name);
    let place = tables.iter().position(is_named);
    let table = match (verb, place) {
        (Verb::Add, Some(_)) => {
            return Err(format!(
                "there is a {what} {name:?} already; `set` changes it"
            ));
        }
        (Verb::Add, None) => {
            tables.push(Value::Table(Table::from_iter([(
                "name".to_owned(),
                Value::from(name.as_str()),
            )])));
            tables.last_mut()
        }
        (Verb::Set, Some(place)) => tables.get_mut(place),
        (Verb::Del, Some(place)) => {
            tables.remove(place);
            return Ok(());
        }
        (_, None) => return Err(format!("there is no {what} {name:?}")),
    };
    let Some(Value::Table(table)) = table else {
        return Err(format!("{list} is no list of tables"));
    };
    let mut bridge = None;
    for (key, text) in keys {
        match key.as_str() {
            "name" => {
                return Err(format!(
                    "the name stays; `softnet ip link set {name} name NEW` gives another"
                ));
            }
            BRIDGE if *object == Object::Port => bridge = Some(text.as_str()),
            _ => put(table, key, text)?,
        }
    }
    match bridge {
        Some(bridge) => join(document, name, bridge),
        None => Ok(()),
    }
}

/// Puts a value at a key; `a.b` is the key `b` of the table `a`, or of the only table in a list.
fn put(table: &mut Table, key: &str, text: &str) -> Result<(), String> {
    let (first, rest) = match key.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (key, None),
    };
    if first.is_empty() {
        return Err(format!("{key:?} is no key"));
    }
    let Some(rest) = rest else {
        if text.is_empty() {
            table.remove(first);
        } else {
            table.insert(first.to_owned(), value(first, text));
        }
        return Ok(());
    };
    let inner = table
        .entry(first)
        .or_insert_with(|| Value::Table(Table::new()));
    let inner = match inner {
        Value::Array(list) if list.len() == 1 => list.first_mut().and_then(Value::as_table_mut),
        other => other.as_table_mut(),
    };
    match inner {
        Some(inner) => put(inner, rest, text),
        None => Err(format!(
            "key `{first}` is no single table here; give it whole, or use `softnet tc`"
        )),
    }
}

/// The value that a text stands for: what TOML takes it for, else a string. Keys that have lists
/// get one, of the parts between commas.
fn value(key: &str, text: &str) -> Value {
    let read = |text: &str| {
        let line = format!("value = {text}").parse::<Table>();
        let value = line.ok().filter(|table| table.len() == 1);
        match value.and_then(|mut table| table.remove("value")) {
            // A part of an address can look like a time.
            None | Some(Value::Datetime(_)) => Value::from(text),
            Some(value) => value,
        }
    };
    match read(text) {
        value @ (Value::Array(_) | Value::Table(_)) => value,
        _ if config::has_list(key) => Value::Array(text.split(',').map(read).collect()),
        value => value,
    }
}

/// Moves a port into a bridge; without a name, out of every one.
fn join(document: &mut Table, port: &str, bridge: &str) -> Result<(), String> {
    let mut found = bridge.is_empty();
    let bridges = document.get_mut("bridge").and_then(Value::as_array_mut);
    for table in bridges
        .into_iter()
        .flatten()
        .filter_map(Value::as_table_mut)
    {
        if let Some(Value::Array(ports)) = table.get_mut("ports") {
            ports.retain(|member| member.as_str() != Some(port));
        }
        if !bridge.is_empty() && table.get("name").and_then(Value::as_str) == Some(bridge) {
            found = true;
            let ports = table
                .entry("ports")
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(ports) = ports {
                ports.push(port.into());
            }
        }
    }
    match found {
        true => Ok(()),
        false => Err(format!("there is no bridge {bridge:?}")),
    }
}

/// Lines that say what differs between two configurations, object by object: `+` for what is
/// new, `-` for what goes, and each key that changes with both values.
pub(crate) fn difference(before: &Config, after: &Config) -> String {
    let document = |config: &Config| {
        let mut config = config.clone();
        for port in &mut config.links.ports {
            let qdisc = &mut port.qdisc;
            // A running one is a tree with a handle, one of a file perhaps not.
            if *qdisc != QdiscSpec::Default {
                *qdisc = QdiscSpec::Tree(TreeSpec::from(qdisc.clone()));
            }
        }
        config::write(&config).parse::<Table>().unwrap_or_default()
    };
    let (before, after) = (document(before), document(after));
    let mut lines = String::new();
    for list in ["port", "block", "rate_group", "bridge", "fdb"] {
        let tables = |document: &Table| -> Vec<Table> {
            let list = document.get(list).and_then(Value::as_array);
            let tables = list.into_iter().flatten().filter_map(Value::as_table);
            tables.cloned().collect()
        };
        let (old, new) = (tables(&before), tables(&after));
        let key = match list {
            "fdb" => "address",
            "block" => "index",
            _ => "name",
        };
        // Entries of a table of stations have no name; they are equal or not.
        let same = |a: &Table, b: &Table| match list {
            "fdb" => a == b,
            _ => a.get(key) == b.get(key),
        };
        let title = |table: &Table| {
            let name = table.get(key).map_or_else(String::new, Value::to_string);
            format!("{list} {name}")
        };
        for gone in &old {
            match new.iter().find(|table| same(gone, table)) {
                None => lines += &format!("- {}\n", title(gone)),
                Some(table) => keys(&title(gone), gone, table, &mut lines),
            }
        }
        let added = new
            .iter()
            .filter(|table| !old.iter().any(|old| same(old, table)));
        lines.extend(added.map(|table| format!("+ {}\n", title(table))));
    }
    lines
}

/// Keys of two tables that differ.
fn keys(title: &str, old: &Table, new: &Table, lines: &mut String) {
    let added = new.keys().filter(|key| !old.contains_key(*key));
    for key in old.keys().chain(added) {
        let (before, after) = (old.get(key), new.get(key));
        // Without a key a port keeps the address that it has.
        let kept = key == "mac" && after.is_none();
        if before != after && !kept {
            let shown = |value: Option<&Value>| match value {
                Some(value) => value.to_string(),
                None => "(default)".to_owned(),
            };
            *lines += &format!("~ {title}: {key}: {} -> {}\n", shown(before), shown(after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: &str = "[engine]\nworkers = 1\nbuffers = 256\n\
        [[port]]\nname = \"a\"\ndriver = \"null\"\n\
        qdisc = { kind = \"tbf\", rate = \"1mbit\", burst = \"10k\", latency = \"50ms\" }\n\
        [[port]]\nname = \"b\"\ndriver = \"null\"\n[[rate_group]]\nname = \"g\"\nrate = \"1gbit\"\n\
        [[bridge]]\nname = \"br0\"\nports = [\"a\"]\n[[bridge]]\nname = \"br1\"\n";

    fn running() -> Config {
        config::checked("running", RUNNING, None).expect("valid").0
    }

    fn change(object: Object, verb: Verb, name: &str, keys: &[&str]) -> Change {
        let pair = |word: &&str| {
            let (key, value) = word.split_once('=').expect("key=value");
            (key.to_owned(), value.to_owned())
        };
        Change {
            object,
            verb,
            name: name.to_owned(),
            keys: keys.iter().map(pair).collect(),
        }
    }

    #[test]
    fn changes_are_worded_as_the_file_is() {
        let before = running();
        let lines = |verb, name: &str, keys: &[&str]| {
            let after = changed(&before, &change(Object::Port, verb, name, keys));
            difference(&before, &after.expect("valid"))
        };
        let add = [
            "driver=null",
            "queues=2",
            "bridge=br1",
            "allowed_macs=02:00:00:00:00:01,02:00:00:00:00:02",
            "storm.broadcast=7",
            "rate_group=g",
        ];
        assert_eq!(
            lines(Verb::Add, "c", &add),
            "+ port \"c\"\n~ bridge \"br1\": ports: [] -> [\"c\"]\n"
        );
        assert_eq!(
            lines(Verb::Set, "a", &["bridge=br1", "mtu=1400"]),
            "~ port \"a\": mtu: (default) -> 1400\n\
             ~ bridge \"br0\": ports: [\"a\"] -> []\n\
             ~ bridge \"br1\": ports: [] -> [\"a\"]\n"
        );
        let rate = lines(Verb::Set, "a", &["qdisc.rate=2mbit"]);
        assert!(rate.starts_with("~ port \"a\": qdisc: "), "{rate}");
        assert_eq!(rate.lines().count(), 1, "{rate}");
        let none = lines(Verb::Set, "a", &["qdisc="]);
        assert!(none.ends_with("-> (default)\n"), "{none}");
        let block = |flowid: &str| {
            let text = RUNNING.replace("[[bridge]]\nname = \"br1\"\n", "")
                + "[[port]]\nname = \"f\"\ndriver = \"null\"\n\
                   qdisc = { kind = \"clsact\", ingress_block = 7 }\n\
                   [[block]]\nindex = 7\n\
                   [[block.filter]]\nkind = \"matchall\"\naction = \""
                + flowid
                + "\"\n";
            config::checked("running", &text, None).expect("valid").0
        };
        let shared = difference(&block("drop"), &block("pass"));
        assert!(shared.starts_with("~ block 7: filter: "), "{shared}");
        assert_eq!(shared.lines().count(), 1, "{shared}");
        let group = change(Object::RateGroup, Verb::Set, "g", &["rate=2gbit"]);
        let after = changed(&before, &group).expect("valid");
        assert!(difference(&before, &after).starts_with("~ rate_group \"g\": rate: "));
    }

    /// Keys of a table are written in the order of their names: classes before qdiscs.
    #[test]
    fn trees_of_classes_stay_as_they_are() {
        let tree = "[[port]]\nname = \"t\"\ndriver = \"null\"\n\
            [[port.qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\n\
            [[port.class]]\nclassid = \"1:1\"\nrate = \"9mbit\"\n\
            [[port.class]]\nparent = \"1:1\"\nclassid = \"1:20\"\nrate = \"1mbit\"\n\
            [[port.qdisc]]\nparent = \"1:20\"\nhandle = \"2:\"\nkind = \"drr\"\n\
            [[port.class]]\nclassid = \"2:7\"\n\
            [[port.qdisc]]\nparent = \"2:7\"\nkind = \"fq_codel\"\n\
            [[port.filter]]\nparent = \"2:\"\nkind = \"matchall\"\nflowid = \"2:7\"\n";
        let text = RUNNING.to_owned() + tree;
        let before = config::checked("running", &text, None).expect("valid").0;
        for name in ["b", "t"] {
            let set = change(Object::Port, Verb::Set, name, &["mtu=1400"]);
            let after = changed(&before, &set).expect("valid");
            let line = format!("~ port \"{name}\": mtu: (default) -> 1400\n");
            assert_eq!(difference(&before, &after), line);
        }
    }

    #[test]
    fn a_qdisc_differs_not_for_the_handle_that_it_got() {
        let file = running();
        let list = "[[port.qdisc]]\nparent = \"root\"\nhandle = \"8001:\"\nkind = \"tbf\"\n\
            rate = \"1mbit\"\nburst = \"10k\"\nlatency = \"50ms\"\n";
        let one = "qdisc = { kind = \"tbf\", rate = \"1mbit\", burst = \"10k\", \
            latency = \"50ms\" }\n";
        let difference = |list: &str| {
            let text = RUNNING.replace(one, list);
            let running = config::checked("running", &text, None).expect("valid").0;
            super::difference(&running, &file)
        };
        assert_eq!(difference(list), "");
        let other = difference(&list.replace("8001:", "5:"));
        assert!(other.starts_with("~ port \"a\": qdisc: "), "{other}");
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_without_a_place() {
        let before = running();
        let refused = |object, verb, name: &str, keys: &[&str]| {
            changed(&before, &change(object, verb, name, keys)).expect_err("refused")
        };
        let port = |verb, name: &str, keys: &[&str]| refused(Object::Port, verb, name, keys);
        let add = Verb::Add;
        for (error, text) in [
            (
                port(add, "a", &["driver=null"]),
                "there is a port \"a\" already",
            ),
            (port(add, "c", &[]), "driver"),
            (port(add, "c", &["driver=nul"]), "there is no driver"),
            (port(add, "c", &["driver=null", "queue=2"]), "queue"),
            (
                port(add, "c", &["driver=null", "bridge=x"]),
                "there is no bridge \"x\"",
            ),
            (
                port(Verb::Set, "x", &["mtu=1500"]),
                "there is no port \"x\"",
            ),
            (port(Verb::Set, "a", &["mtu=-1"]), "mtu"),
            (port(Verb::Set, "a", &["name=z"]), "the name stays"),
            (port(Verb::Set, "a", &["mtu.x=1"]), "is a table"),
            (
                refused(Object::RateGroup, add, "h", &["burst=1k"]),
                "limits nothing",
            ),
        ] {
            assert!(error.contains(text), "{error}");
            assert!(!error.contains(":1:"), "no place: {error}");
        }
    }
}
