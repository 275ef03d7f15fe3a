//! Programs that miss the preload library find an empty network, never the host's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::common::{copy_program, has_program, softnet, text};
use super::daemon::INTERFACE;
use super::{Bench, assert_refused, exec};

/// The names of interfaces in what `ip -o link` prints.
fn names(shown: &str) -> Vec<&str> {
    shown
        .lines()
        .filter_map(|line| line.split(": ").nth(1))
        .collect()
}

/// Where the system has `ip`, for those that have no PATH.
fn ip() -> Option<&'static str> {
    ["/sbin/ip", "/bin/ip", "/usr/sbin/ip", "/usr/bin/ip"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

#[test]
fn a_program_without_the_library_finds_no_device() {
    let Some(ip) = ip().filter(|_| has_program("ip")) else {
        return;
    };
    let bench = Bench::new("without");
    let shown = bench.run(&["env", "-i", ip, "-o", "link"]);
    assert_eq!(names(&shown), ["lo"], "{shown}");
    assert_eq!(bench.run(&["ls", "/sys/class/net"]), "lo\n");
    // A static program below a shell.
    if has_program("busybox") {
        let shown = bench.run(&["sh", "-c", "busybox ip -o link"]);
        assert_eq!(names(&shown), ["lo"], "{shown}");
    }
    // With the library the daemon's is there.
    let shown = bench.run(&["ip", "-o", "link"]);
    assert_eq!(names(&shown), [INTERFACE], "{shown}");
}

/// A program that makes its system calls by itself, and what it starts.
#[test]
fn a_static_program_is_supervised() {
    if !has_program("busybox") {
        return;
    }
    let bench = Bench::new("static");
    let shown = bench.run(&["busybox", "ip", "-o", "link"]);
    assert_eq!(names(&shown), [INTERFACE], "{shown}");
    let shown = bench.run(&["busybox", "sh", "-c", "busybox ip -o link"]);
    assert_eq!(names(&shown), [INTERFACE], "{shown}");
    assert_eq!(bench.run(&["busybox", "ls", "/sys/class/net"]), "lo\n");
}

#[test]
fn the_host_network_is_reached_where_asked_for() {
    if !has_program("ip") {
        return;
    }
    let bench = Bench::new("host-network");
    let here = fs::read_link("/proc/self/ns/net").expect("a namespace");
    let namespace = |option: &[&str]| {
        let mut command = softnet();
        command.arg("exec").args(option);
        command.arg("--socket").arg(&bench.daemon.socket);
        command.args(["--", "readlink", "/proc/self/ns/net"]);
        text(&command.output().expect("softnet").stdout)
    };
    let here = format!("{}\n", here.display());
    assert_eq!(namespace(&["--host-network"]), here);
    assert_ne!(namespace(&[]), here);
}

#[test]
fn requests_that_change_interfaces_are_refused_with_a_text() {
    if !has_program("ip") || !Path::new("/dev/net/tun").exists() {
        return;
    }
    let bench = Bench::new("refused-ioctl");
    let tap = ["ip", "tuntap", "add", "dev", "softnet-leak0", "mode", "tap"];
    let output = bench.exec(&tap).output().expect("ip");
    let stderr = text(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.starts_with("softnet exec: TUNSETIFF: "), "{stderr}");
    assert!(stderr.contains("Operation not supported"), "{stderr}");
    assert!(!Path::new("/sys/class/net/softnet-leak0").exists());
}

#[test]
fn kernel_modules_cannot_be_loaded() {
    let bench = Bench::new("modules");
    let status = bench.run(&["cat", "/proc/self/status"]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let line = status.lines().find(|line| line.starts_with(set));
        let bits = line.and_then(|line| line.split_whitespace().nth(1));
        let bits = u64::from_str_radix(bits.expect("a set"), 16).expect("bits");
        // CAP_SYS_MODULE
        assert_eq!(bits & 1 << 16, 0, "{set}");
    }
}

#[test]
fn another_user_than_root_is_confined_too() {
    let root = rustix::process::geteuid().is_root();
    let Some(ip) = ip().filter(|_| root && has_program("setpriv") && has_program("ip")) else {
        return;
    };
    let bench = Bench::new("nobody");
    let all = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(bench.root(), all(0o755)).expect("its mode");
    fs::set_permissions(&bench.daemon.socket, all(0o666)).expect("its mode");
    // A copy: the program's own folder may be closed to others.
    let program = bench.root().join("softnet");
    copy_program(&program);
    let run = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&program).arg("exec").arg("--socket");
        command.arg(&bench.daemon.socket).arg("--").args(arguments);
        let output = command.output().expect("setpriv");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        text(&output.stdout)
    };
    assert_eq!(names(&run(&["ip", "-o", "link"])), [INTERFACE]);
    assert_eq!(names(&run(&["env", "-i", ip, "-o", "link"])), ["lo"]);
    assert_eq!(run(&["ls", "/sys/class/net"]), "lo\n");
    assert_eq!(run(&["id", "-u"]), "65534\n");
}

#[test]
fn where_namespaces_are_forbidden_it_says_what_to_do() {
    let root = rustix::process::geteuid().is_root();
    if !root || !has_program("unshare") || !has_program("setpriv") {
        return;
    }
    let bench = Bench::new("forbidden");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c"]);
    command.arg(
        "echo 0 >/proc/sys/user/max_user_namespaces
         exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$@\"",
    );
    command.arg("sh");
    let wanted = exec(&bench.daemon.socket, &["true"]);
    command.arg(wanted.get_program()).args(wanted.get_args());
    let output = command.output().expect("unshare");
    assert_refused(&output, 125, "user.max_user_namespaces");
}

#[test]
fn short_forms_run_the_programs() {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let bench = Bench::new("short");
    let short = |words: &[&str]| {
        let mut command = softnet();
        command
            .arg("--socket")
            .arg(&bench.daemon.socket)
            .args(words);
        let output = command.output().expect("softnet");
        assert_eq!(text(&output.stderr), "", "{words:?}");
        text(&output.stdout)
    };
    assert_eq!(names(&short(&["ip", "-o", "link"])), [INTERFACE]);
    assert!(short(&["tc", "-s", "qdisc", "show"]).contains("limit 123p"));
    // Options are the program's.
    assert!(short(&["tc", "-V"]).starts_with("tc utility"));
}
