//! FireQOS (Debian's `firehol-tools`): both directions of a link, by an `ifb`, `ingress`, `mirred`
//! and `htb` classes with `fq_codel`.

use std::fmt::Write;
use std::path::Path;

use super::common::{has_program, text};
use super::{Daemon, succeeded};

const CONFIG: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/programs/fireqos.conf"
);

#[test]
fn fireqos_shapes_both_directions() {
    if !["fireqos", "tc", "ip"].into_iter().all(has_program) {
        return;
    }
    let own = std::fs::read_to_string(CONFIG).expect("its example");
    shapes(&own, 6);
    // The class that all of an interface are below, and that of what no other takes.
    shapes(&many(), 102);
}

/// An interface each way with 100 classes.
fn many() -> String {
    let mut text = String::new();
    for (name, way) in [("world-in", "input"), ("world-out", "output")] {
        writeln!(text, "interface web {name} {way} rate 1000mbit").expect("a string");
        for class in 0..100 {
            let port = 1000 + class;
            writeln!(text, "   class c{class} commit 5mbit").expect("a string");
            writeln!(text, "      match udp port {port}").expect("a string");
        }
    }
    text
}

/// Starts and stops a configuration that has so many classes for what comes in.
fn shapes(config: &str, classes: usize) {
    let daemon = Daemon::start("fireqos", "[[port]]\nname = \"web\"\ndriver = \"null\"\n");
    // It loads modules of the kernel.
    let mut folder = None;
    for name in ["modprobe", "rmmod", "lsmod"] {
        let stub = daemon.scratch.program(name, "#!/bin/sh\nexit 0\n");
        folder = stub.parent().map(Path::to_owned);
    }
    let path = format!(
        "{}:{}",
        folder.expect("a folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let run = |arguments: &[&str]| {
        let output = daemon
            .exec("fireqos")
            .args(arguments)
            .env("PATH", &path)
            .output()
            .expect("softnet");
        succeeded(&output, &arguments);
        // It says everything on standard error.
        text(&output.stderr)
    };
    let config = daemon.scratch.file("fireqos.conf", config);
    let said = run(&[config.to_str().expect("a path"), "start"]);
    assert!(said.contains("All Done"), "{said}");
    let shown = daemon.done("qdisc show dev web");
    assert!(
        shown.contains("qdisc htb 1: root") && shown.contains("qdisc ingress ffff:"),
        "{shown}"
    );
    let shown = daemon.done("filter show dev web parent ffff:");
    assert!(
        shown.contains("Egress Redirect to device web-ifb"),
        "{shown}"
    );
    let shown = daemon.done("class show dev web-ifb");
    assert_eq!(shown.matches("class htb 1:").count(), classes, "{shown}");
    run(&["stop"]);
    let left = daemon.done("qdisc show");
    assert!(!left.contains("htb") && !left.contains("ingress"), "{left}");
    daemon.stop();
}
