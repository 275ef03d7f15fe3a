//! tcconfig (PyPI): `tcset`, `tcshow` and `tcdel`, which make `htb` classes, `netem` leaves and u32
//! filters by `tc`, and read them back.

use super::common::{has_program, text};
use super::{Daemon, succeeded, venv};

const PACKAGE: &str = "tcconfig==0.30.1";

#[test]
fn tcset_shapes_and_tcshow_reads_it_back() {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let Some(bin) = venv("tcconfig", PACKAGE) else {
        return;
    };
    let daemon = Daemon::with_port("tcconfig");
    // It asks whether the kernel's module is loaded.
    let script = "#!/bin/sh\necho sch_netem 1 0\n";
    let stub = daemon.scratch.program("lsmod", script);
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
