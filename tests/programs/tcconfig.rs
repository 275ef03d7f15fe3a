//! tcconfig (PyPI): `tcset`, `tcshow` and `tcdel`, which make `htb` classes, `netem` leaves and u32
//! filters by `tc`, and read them back.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::{has_program, skip, text};
use super::{Daemon, succeeded};

const PACKAGE: &str = "tcconfig==0.30.1";

/// The folder with its programs, installed once below `target`.
fn installed() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_softnet"));
    let folder = program.parent()?.join("tcconfig");
    let bin = folder.join("bin");
    if bin.join("tcset").exists() {
        return Some(bin);
    }
    let python = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let place = folder.to_str()?;
    let made = python(Path::new("python3"), &["-m", "venv", place])
        && python(&bin.join("pip"), &["install", "-q", PACKAGE]);
    if !made {
        skip("needs python3 with venv, and tcconfig from PyPI");
    }
    made.then_some(bin)
}

#[test]
fn tcset_shapes_and_tcshow_reads_it_back() {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let Some(bin) = installed() else {
        return;
    };
    let daemon = Daemon::with_port("tcconfig");
    // It asks whether the kernel's module is loaded.
    let stub = daemon
        .scratch
        .file("lsmod", "#!/bin/sh\necho sch_netem 1 0\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&stub, mode).expect("its mode");
    let folder = stub.parent().expect("a folder").display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let run = |program: &str, arguments: &[&str]| {
        let program = bin.join(program);
        let mut command = daemon.exec(program.to_str().expect("a path"));
        let output = command.args(arguments).env("PATH", &path).output();
        succeeded(&output.expect("softnet"), &arguments)
    };
    let set = ["p0", "--delay", "50ms", "--loss", "1%", "--rate", "10Mbps"];
    run("tcset", &set);
    let qdiscs = daemon.done("qdisc show dev p0");
    assert!(
        qdiscs.contains("qdisc htb") && qdiscs.contains("qdisc netem"),
        "{qdiscs}"
    );
    assert!(
        qdiscs.contains("delay 50ms") && qdiscs.contains("loss 1%"),
        "{qdiscs}"
    );
    let classes = daemon.done("class show dev p0");
    assert!(classes.contains("rate 10Mbit"), "{classes}");
    let shown = run("tcshow", &["p0"]);
    for part in [
        "\"delay\": \"50ms\"",
        "\"loss\": \"1%\"",
        "\"rate\": \"10Mbps\"",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    // A second network, with another delay.
    let more = ["p0", "--delay", "100ms", "--network", "10.0.0.0/8", "--add"];
    run("tcset", &more);
    let shown = run("tcshow", &["p0"]);
    assert!(
        shown.contains("\"100ms\"") && shown.contains("10.0.0.0/8"),
        "{shown}"
    );
    run("tcdel", &["p0", "--all"]);
    let left = daemon.tc("qdisc show dev p0");
    assert!(
        !text(&left.stdout).contains("netem"),
        "{}",
        text(&left.stdout)
    );
    daemon.stop();
}
