//! Files with several errors: each is found, at its place, and none follows from another.

use super::{checked_tree, parse};

/// `LINE:COLUMN key: start of the text`, of each error.
#[track_caller]
fn assert_errors(text: &str, expected: &[&str]) {
    let error = parse("x.toml", text).expect_err(text);
    let lines = error.to_string();
    let found: Vec<&str> = lines.lines().collect();
    assert_eq!(found.len(), expected.len(), "{lines}");
    for (line, expected) in found.iter().zip(expected) {
        let (place, text) = expected.split_once(' ').expect("a place");
        let (key, text) = text.split_once(": ").expect("a key");
        let start = format!("x.toml:{place}: key `{key}`: {text}");
        assert!(line.starts_with(&start), "{line}\nnot {start}");
    }
}

const PORT: &str = "[[port]]\nname = \"p\"\ndriver = \"null\"\n";

#[test]
fn every_table_tells_its_errors() {
    let text = "[engine]\nworker = 2\nbuffers = 0x10\ncpus = [1, \"two\"]\n\
                [[port]]\nname = \"web\"\ndrivr = \"tap\"\nmtu = 9_000_000\nup = \"yes\"\n\
                [[bridge]]\nname = \"br0\"\nports = [\"web\", \"wab\", 7]\nmac = \"x\"\n\
                [[rate_group]]\nname = \"\"\nrate = \"fast\"\n\
                [[fdb]]\nport = \"nowhere\"\nsticky = 1\n";
    assert_errors(
        text,
        &[
            "2:1 engine.worker: is unknown; did you mean `workers`?",
            "3:11 engine.buffers: 0x10 is out of range",
            "4:12 engine.cpus: is the string \"two\"; use a whole number",
            "7:1 port.drivr: is unknown; did you mean `driver`?",
            "8:7 port.mtu: 9_000_000 is out of range; use 68 to 65521",
            "9:6 port.up: is the string \"yes\"; use true or false",
            "12:17 bridge.ports: there is no port \"wab\"",
            "12:24 bridge.ports: is the number 7; use a string in quotes",
            "13:7 bridge.mac: \"x\" is not an Ethernet address",
            "15:8 rate_group.name: a group needs a name",
            "16:8 rate_group.rate: \"fast\" is not a number with a unit",
            "17:1 fdb.address: is missing; add it",
            "18:8 fdb.port: there is no port \"nowhere\"",
            "19:10 fdb.sticky: is the number 1; use true or false",
        ],
    );
}

#[test]
fn places_are_exact_whatever_stands_before_them() {
    let alias = "alias = \"größe 日本\"";
    let inline = format!("storm = {{ broadcast = 1, multicast = \"ü\", unknwn = 1 }}\n{alias}");
    assert_errors(
        &format!("{PORT}{inline}\n").replace('\n', "\r\n"),
        &[
            "4:38 port.storm.multicast: is the string \"ü\"; use a whole number",
            "4:43 port.storm.unknwn: is unknown; known here: broadcast",
        ],
    );
    assert_errors(
        &format!("{PORT}alias = \"é\" \nqdisc.\"kind\" = \"pfifo\"\nqdisc.limt = 1\n"),
        &["6:7 port.qdisc.limt: is not an option of pfifo; did you mean `limit`?"],
    );
    assert_errors(
        "port = [{ name = \"ö\", driver = \"nul\" }, { name = \"ö\", driver = 1 }]\n",
        &[
            "1:32 port.driver: there is no driver \"nul\"",
            "1:50 port.name: \"ö\" is the name of the port in line 1 already",
            "1:64 port.driver: is the number 1; use a string in quotes",
        ],
    );
    assert_errors(
        "engine = 3\n[port]\nname = 1\n",
        &[
            "1:10 engine: is the number 3; use a table",
            "2:1 port: is a table; use a list of tables: [[port]]",
        ],
    );
}

#[test]
fn errors_of_a_tree_do_not_follow_from_each_other() {
    let tree = "[[port.qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\nr2q = 0\n\
                [[port.class]]\nclassid = \"1:10\"\nrate = \"10mbt\"\n\
                [[port.class]]\nclassid = \"1:20\"\nrate = \"10mbit\"\nprio = -1\n\
                [[port.qdisc]]\nparent = \"1:10\"\nkind = \"fq_codle\"\n\
                [[port.qdisc]]\nparent = \"1:20\"\nhandle = \"7:\"\nkind = \"prio\"\n\
                [[port.filter]]\nflowid = \"1:10\"\ndst_port = \"http\"\n";
    assert_errors(
        &format!("{PORT}{tree}"),
        &[
            "7:7 port.qdisc.r2q: \"0\" is not a number from 1 on",
            "10:8 port.class.rate: \"mbt\" is not a unit of a rate",
            "14:8 port.class.prio: \"-1\" is not a number from 0 on",
            "17:8 port.qdisc.kind: \"fq_codle\" is not a qdisc of this version",
            "24:12 port.filter.dst_port: \"http\" is not a port",
        ],
    );
    // A thing that is wrong in itself is told as well, if it refers to what is right.
    let tree = tree
        .replace("r2q = 0", "r2q = 1")
        .replace("10mbt", "10mbit");
    let tree = tree.replace("parent = \"1:20\"", "parent = \"2:1\"");
    let error = parse("x.toml", &format!("{PORT}{tree}")).expect_err("wrong");
    let said = error.to_string();
    assert!(!said.contains("no class 1:"), "{said}");
}

#[test]
fn a_broken_file_tells_its_broken_lines() {
    let error = |text: &str| parse("x.toml", text).expect_err(text).to_string();
    let said = error("a = = 1\nb = 2\nb = 3\n[engine\nworkers = 2\n");
    let places: Vec<&str> = said.lines().map(|line| &line[..11]).collect();
    assert_eq!(
        places,
        ["x.toml:1:5:", "x.toml:3:1:", "x.toml:4:8:"],
        "{said}"
    );
    // All that follows is in the list that was not closed.
    let said = error(&format!("[engine]\ncpus = [1, 2\n{PORT}{PORT}"));
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_hundred_thousand_errors_are_bounded() {
    let unknown: String = (0..100_000).map(|n| format!("k{n} = {n}\n")).collect();
    let names: String = (0..100_000).map(|n| format!("\"p{n}\", ")).collect();
    let broken = "= = =\n".repeat(100_000);
    for text in [
        format!("[engine]\n{unknown}"),
        format!("{PORT}[[bridge]]\nname = \"b\"\nports = [{names}]\n"),
        format!("{PORT}qdisc = [{}]\n", "{ kind = 1 }, ".repeat(100_000)),
        broken,
        PORT.repeat(100_000),
    ] {
        let said = parse("x.toml", &text).expect_err("wrong").to_string();
        assert_eq!(said.lines().count(), 21, "{said}");
        assert!(said.ends_with(" errors more"), "{said}");
        assert!(said.len() < 30_000);
        checked_tree("x.toml", &text).expect_err("wrong");
    }
}

#[test]
fn errors_that_are_not_shown_are_counted_once() {
    // Neither a rate nor a name: two errors of one value.
    let text = "[[rate_group]]\nname = \"\"\n".repeat(30);
    let said = parse("x.toml", &text).expect_err("wrong").to_string();
    assert_eq!(said.lines().count(), 21, "{said}");
    assert!(said.ends_with("x.toml: and 10 errors more"), "{said}");
    // And what was found wrong is not wrong for another reason as well.
    let port = |n| format!("[[port]]\nname = \"p{n}\"\ndriver = \"null\"\nisolated = 1\n");
    let text: String = (0..30).map(port).collect();
    let said = parse("x.toml", &text).expect_err("wrong").to_string();
    assert!(said.ends_with("x.toml: and 10 errors more"), "{said}");
}

#[test]
fn a_wrong_rate_does_not_hide_a_wrong_burst() {
    assert_errors(
        "[[rate_group]]\nname = \"a\"\nrate = \"9%\"\nburst = \"1k\"\n\
         [[rate_group]]\nname = \"b\"\nrate = 1\nburst = \"x\"\n",
        &[
            "3:8 rate_group.rate: a percentage is of the device's link speed",
            "4:9 rate_group.burst: \"1k\" is out of range",
            "7:8 rate_group.rate: is the number 1; use a string",
            "8:9 rate_group.burst: \"x\" is not a number with a unit",
        ],
    );
}

#[test]
fn a_list_without_qdiscs_is_refused() {
    assert_errors(
        &format!("{PORT}qdisc = []\n"),
        &["4:9 port.qdisc: is an empty list; give a table like { kind = \"pfifo\" }"],
    );
    let said = checked_tree("x.toml", "qdisc = []\n").expect_err("wrong");
    assert!(said.to_string().contains("is an empty list"), "{said}");
}

#[test]
fn classes_and_filters_without_a_qdisc_are_looked_into() {
    let tree = "[[port.class]]\nclassid = \"1:10\"\nrate = \"10mbt\"\n\
                [[port.class]]\nclassid = \"1:20\"\nrate = \"10mbit\"\nparent = \"1:30\"\n\
                [[port.filter]]\nflowid = \"1:10\"\ndst_port = \"http\"\n";
    assert_errors(
        &format!("{PORT}{tree}"),
        &[
            "4:1 port.class: there is no qdisc that it could belong to",
            "6:8 port.class.rate: \"mbt\" is not a unit of a rate",
            "11:1 port.filter: there is no qdisc that it could belong to",
            "13:12 port.filter.dst_port: \"http\" is not a port",
        ],
    );
}

#[test]
fn an_empty_list_of_addresses_asks_for_nothing() {
    let empty = format!("{PORT}address = []\n");
    parse("x.toml", &empty).expect("valid");
    let vm = PORT.replace("\"null\"", "\"vhost_user\"\nsocket = \"vm.sock\"");
    parse("x.toml", &format!("{vm}address = []\n")).expect("valid");
    assert_errors(
        &format!("{PORT}address = [\"10.0.0.1/24\"]\n"),
        &["4:11 port.address: driver \"null\" makes no network device that could have it"],
    );
}

#[test]
fn columns_of_a_long_line_are_exact() {
    // Characters of two bytes, so that blocks of the text end within one.
    for before in [0, 1, 500, 511, 512, 1023, 1024, 5000] {
        let text = format!(
            "engine = {{ socket = \"{}\", workers = 0 }}\n",
            "ü".repeat(before)
        );
        let said = parse("x.toml", &text).expect_err("wrong").to_string();
        let column = "engine = { socket = \"\", workers = ".len() + before + 1;
        let place = format!("x.toml:1:{column}: key `engine.workers`");
        assert!(said.contains(&place), "{place}\n{said}");
    }
}
