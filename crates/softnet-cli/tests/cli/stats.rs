//! `softnet stats` against a running daemon.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{Daemon, Scratch, softnet, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const CONFIG: &str = r#"
[engine]
workers = 1
buffers = 256
[[port]]
name = "a"
driver = "null"
[[port.qdisc]]
kind = "prio"
handle = "1:"
[[port.filter]]
kind = "matchall"
flowid = "1:2"
"#;

fn stats(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = softnet();
    command
        .arg("stats")
        .args(arguments)
        .arg("--socket")
        .arg(socket);
    command
}

#[test]
fn tables_and_an_object() {
    let scratch = Scratch::new("stats");
    let daemon = Daemon::start(&scratch, CONFIG);
    let socket = &daemon.socket;
    let output = stats(socket, &[]).output().expect("softnet");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in [
        "port  rx packets",
        "a     root   prio 1:",
        "matchall 0x1  1:2",
        "worker  processed",
        "pool: 256 buffers, 256 free",
    ] {
        assert!(shown.contains(part), "{part:?} in\n{shown}");
    }
    let output = stats(socket, &["--json"]).output().expect("softnet");
    let json: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let port = &json["ports"][0];
    assert_eq!(port["name"], "a");
    assert_eq!(port["classes"][0]["qdisc"], "1:");
    assert_eq!(port["filters"][0]["flowid"], "1:2");
    assert_eq!(port["sojourn_ns"]["measured"], 0);
    daemon.stop();
}

const TWO: &str = r#"
[[port]]
name = "b"
driver = "null"
[[bridge]]
name = "br0"
"#;

#[test]
fn a_port_or_a_class_alone() {
    let scratch = Scratch::new("stats-part");
    let daemon = Daemon::start(&scratch, &(CONFIG.to_owned() + TWO));
    let socket = &daemon.socket;
    let shown = |arguments: &[&str]| {
        let output = stats(socket, arguments).output().expect("softnet");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let classes = |arguments: &[&str]| -> Vec<String> {
        let json: Value = serde_json::from_str(&shown(arguments)).expect("one object");
        let ports = json["ports"].as_array().expect("ports").iter();
        ports
            .flat_map(|port| {
                let name = port["name"].as_str().expect("a name");
                let classes = port["classes"].as_array().expect("classes").iter();
                classes
                    .map(move |class| format!("{name} {}", class["class"].as_str().expect("it")))
            })
            .collect()
    };
    assert_eq!(
        classes(&["--json", "a"]),
        ["a root", "a 1:1", "a 1:2", "a 1:3"]
    );
    assert_eq!(classes(&["--json", "a:1:2"]), ["a 1:2"]);
    assert_eq!(classes(&["--json", "a:1:"]), ["a root"]);
    assert_eq!(classes(&["--json", "a", "--top", "2"]).len(), 2);
    assert_eq!(classes(&["--json", "--top", "1"]).len(), 1);
    let table = shown(&["a:1:2"]);
    assert!(
        table.contains("a     1:2") && !table.contains("1:3"),
        "{table}"
    );
    // Sums are of all ports, and not shown for some.
    assert!(
        !table.contains("received") && !table.contains("worker"),
        "{table}"
    );
    for (wrong, code, said) in [
        ("c", 2, "there is no port \"c\""),
        ("a:1:9", 2, "port \"a\" has no class 1:9"),
        ("a:x", 2, "\"x\" is not a class; write it like a:1:10"),
    ] {
        let output = stats(socket, &[wrong]).output().expect("softnet");
        assert_eq!(output.status.code(), Some(code));
        assert!(
            text(&output.stderr).contains(said),
            "{wrong}: {}",
            text(&output.stderr)
        );
    }
    daemon.stop();
}

#[test]
fn watch_ends_with_success_on_a_signal() {
    let scratch = Scratch::new("stats-watch");
    let daemon = Daemon::start(&scratch, CONFIG);
    let socket = &daemon.socket;
    let mut watch: Child = stats(socket, &["--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("softnet");
    let lines = BufReader::new(watch.stdout.take().expect("captured")).lines();
    // The first round has no rates, and no control characters come without a terminal.
    let mut seen = Vec::new();
    for line in lines {
        let line = line.expect("a line");
        assert!(!line.contains('\x1b'), "{line:?}");
        seen.push(line);
        if seen
            .iter()
            .any(|line| line.starts_with("port  rx packets/s"))
        {
            break;
        }
    }
    assert!(
        seen.iter().any(|line| line.starts_with("worker")),
        "{seen:?}"
    );
    kill_process(Pid::from_child(&watch), Signal::INT).expect("a signal");
    assert_eq!(watch.wait().expect("its end").code(), Some(0));
    daemon.stop();
}

#[test]
fn no_daemon_is_told() {
    let scratch = Scratch::new("stats-none");
    let socket = scratch.path("nobody");
    let output = stats(&socket, &["--watch"]).output().expect("softnet");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let expected = format!(
        "softnet: no daemon can be reached at {}: ",
        socket.display()
    );
    assert!(said.starts_with(&expected), "{said}");
}
