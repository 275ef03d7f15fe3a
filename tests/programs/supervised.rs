//! Programs that make their system calls by themselves, below the supervisor of `softnet exec`:
//! busybox's static `ip` and `tc`, and a Go program on vishvananda/netlink.

use std::path::Path;
use std::process::Command;

use super::common::{has_program, skip, text};
use super::{Daemon, succeeded};

#[test]
fn static_busybox_shows_and_changes_links() {
    if !has_program("busybox") || !has_program("ip") {
        return;
    }
    let daemon = Daemon::with_port("busybox");
    let busybox = |arguments: &[&str]| {
        let output = daemon.exec("busybox").args(arguments).output();
        succeeded(&output.expect("softnet"), &arguments)
    };
    assert!(busybox(&["ip", "-o", "link", "show", "p0"]).contains("p0: <BROADCAST"));
    busybox(&["ip", "link", "set", "p0", "mtu", "1400"]);
    busybox(&["ip", "link", "set", "p0", "down"]);
    let shown = busybox(&["ip", "-o", "link", "show", "p0"]);
    assert!(
        shown.contains("mtu 1400") && !shown.contains("UP"),
        "{shown}"
    );
    busybox(&["ip", "link", "add", "v0", "type", "dummy"]);
    assert!(busybox(&["ip", "-o", "link"]).contains("v0:"));
    busybox(&["ip", "link", "del", "v0"]);
    // A shell below it, and what that starts: a dynamic program.
    let shown = busybox(&["sh", "-c", "ip -o link show p0; busybox ip -o link show p0"]);
    assert_eq!(shown.matches("p0:").count(), 2, "{shown}");
    let output = daemon
        .exec("busybox")
        .args(["ifconfig", "p0", "10.0.0.1"])
        .output();
    let output = output.expect("softnet");
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("SIOCSIFADDR"),
        "it is refused by name"
    );
    daemon.stop();
}

/// The calls of the bandwidth plugin of CNI.
#[test]
fn a_go_program_limits_both_directions() {
    if !has_program("go") || !has_program("tc") || !has_program("ip") {
        return;
    }
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/programs/bandwidth"
    );
    let program = Path::new(env!("CARGO_BIN_EXE_softnet"));
    let program = program.with_file_name("bandwidth");
    let mut build = Command::new("go");
    build
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(source);
    if !build.output().is_ok_and(|output| output.status.success()) {
        skip("needs vishvananda/netlink from the Go module proxy");
        return;
    }
    let daemon = Daemon::start(
        "bandwidth",
        "[[port]]\nname = \"host0\"\ndriver = \"null\"\n",
    );
    let mut command = daemon.exec(program.to_str().expect("a path"));
    let said = succeeded(&command.output().expect("softnet"), &"bandwidth");
    assert_eq!(
        said.lines().take(3).collect::<Vec<_>>(),
        ["tbf 1", "ingress 65535", "1 filter"]
    );
    let shown = daemon.done("qdisc show dev bwp0");
    assert!(shown.contains("qdisc tbf 1: root"), "{shown}");
    let shown = daemon.done("filter show dev host0 parent ffff:");
    assert!(shown.contains("Egress Redirect to device bwp0"), "{shown}");
    daemon.stop();
}
