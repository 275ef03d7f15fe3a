//! Static tracepoints (USDT) of the program: its ELF notes, what docs/tracing.md says of them, and
//! the scripts of packaging/bpftrace.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{skip, text};
use softnet::stats::DropReason;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Numbers of arguments of the documented probes, by name.
fn documented() -> BTreeMap<String, usize> {
    let page = fs::read_to_string(root().join("docs/tracing.md")).expect("the page");
    let mut probes = BTreeMap::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [name, arguments, _] = cells[..] else {
            panic!("not three cells: {row}");
        };
        let count = match arguments {
            "none" => 0,
            some => some.split(", ").count(),
        };
        let name = name.trim_end_matches('`').to_owned();
        assert!(probes.insert(name, count).is_none(), "twice: {row}");
    }
    probes
}

#[test]
fn the_program_has_the_probes_that_are_documented() {
    let mut readelf = Command::new("readelf");
    readelf.args(["--notes", "--wide", env!("CARGO_BIN_EXE_softnet")]);
    let Ok(output) = readelf.output() else {
        return skip("needs readelf");
    };
    let said = text(&output.stdout);
    let mut probes = BTreeMap::new();
    for note in said.split("Provider: ").skip(1) {
        let mut lines = note.lines().map(str::trim);
        if lines.next() != Some("softnet") {
            continue;
        }
        let mut next = |key: &str| lines.next().and_then(|line| line.strip_prefix(key));
        let name = next("Name: ").expect("a name").to_owned();
        let place = next("Location: ").expect("a place");
        assert!(!place.starts_with("0x0000000000000000"), "{note}");
        let arguments = next("Arguments:").expect("arguments");
        let count = arguments.split_whitespace().count();
        // Where it is inlined at several places, each is one.
        assert_eq!(*probes.entry(name).or_insert(count), count, "{note}");
    }
    assert_eq!(probes, documented());
}

#[test]
fn scripts_attach_to_probes_that_are_there() {
    let (probes, mut scripts) = (documented(), 0);
    for entry in fs::read_dir(root().join("packaging/bpftrace")).expect("the scripts") {
        let path = entry.expect("a script").path();
        let script = fs::read_to_string(&path).expect("a text");
        scripts += 1;
        for part in script.split("usdt:/usr/bin/softnet:softnet:").skip(1) {
            let (name, body) = part.split_once(' ').expect("a body");
            let count = probes.get(name).unwrap_or_else(|| panic!("no {name}"));
            let body = body.split("\n}").next().expect("its first part");
            for number in *count..10 {
                let argument = format!("arg{number}");
                assert!(!body.contains(&argument), "{}: {part}", path.display());
            }
        }
    }
    assert_eq!(scripts, 4);
}

#[test]
fn a_script_knows_all_drop_reasons() {
    let script = fs::read_to_string(root().join("packaging/bpftrace/drops.bt")).expect("ours");
    let known: Vec<&str> = script
        .lines()
        .filter(|line| line.contains("@name["))
        .collect();
    let reasons = DropReason::ALL.iter().enumerate();
    let all = reasons.map(|(n, reason)| format!("  @name[{n}] = \"{reason}\";"));
    let used = "  @dropped[@name[arg0]] = sum(arg1);".to_owned();
    assert_eq!(known, all.chain([used]).collect::<Vec<_>>());
}
