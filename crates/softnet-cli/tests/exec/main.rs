//! `softnet exec`: the unmodified tc and ip, and scripts with raw sockets, reach the daemon; what
//! cannot be preloaded is refused. The daemon is a stand-in, but for one test.

mod as_the_kernel;
#[path = "../common/mod.rs"]
mod common;
mod confined;
mod daemon;
mod filters;
mod parallel;
mod real;
mod tc;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{Scratch, has_program, softnet, text};
use daemon::{Asked, Daemon, INDEX, INTERFACE};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exec/client.py");

/// A stand-in daemon, and `softnet exec` with it.
struct Bench {
    scratch: Scratch,
    daemon: Daemon,
}

impl Bench {
    fn new(tag: &str) -> Bench {
        let scratch = Scratch::new(tag);
        let daemon = Daemon::start(scratch.path("socket"));
        Bench { scratch, daemon }
    }

    /// The directory of its files.
    fn root(&self) -> &Path {
        self.daemon.socket.parent().expect("a directory")
    }

    fn exec(&self, program: &[&str]) -> Command {
        exec(&self.daemon.socket, program)
    }

    /// Runs a program that must succeed; returns what it printed.
    fn run(&self, program: &[&str]) -> String {
        let output = self.exec(program).output().expect("softnet");
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{program:?}: {stderr}");
        assert_eq!(stderr, "", "{program:?}");
        text(&output.stdout)
    }

    /// Runs a case of `client.py`.
    fn client(&self, case: &[&str]) {
        self.run(&[&["python3", CLIENT], case].concat());
    }
}

fn exec(socket: &Path, program: &[&str]) -> Command {
    let mut command = softnet();
    command.args(["exec", "--socket"]).arg(socket).arg("--");
    command.args(program);
    command
}

/// That `output` is a refusal with this exit code and one line that has `why`.
fn assert_refused(output: &Output, code: i32, why: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.matches('\n').count(), 1, "one line: {stderr}");
    assert!(stderr.contains(why), "{why}: {stderr}");
}

#[test]
fn tc_and_ip_show_the_daemons_interface() {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let bench = Bench::new("tc-ip");
    let shown = bench.run(&["ip", "link", "show"]);
    let start = format!("{INDEX}: {INTERFACE}: <");
    assert!(shown.starts_with(&start), "{shown}");
    assert_eq!(shown.matches("mtu").count(), 1, "{shown}");
    let shown = bench.run(&["tc", "qdisc", "show"]);
    let qdisc = format!("qdisc pfifo 8001: dev {INTERFACE} root refcnt 2 limit 123p");
    assert_eq!(shown.trim(), qdisc);
    // By name: the daemon's, and one that only the host has.
    let shown = bench.run(&["tc", "qdisc", "show", "dev", INTERFACE]);
    assert_eq!(shown.trim(), "qdisc pfifo 8001: root refcnt 2 limit 123p");
    let shown = bench.exec(&["tc", "qdisc", "show", "dev", "lo"]).output();
    let shown = shown.expect("tc");
    assert!(!shown.status.success());
    assert_eq!(text(&shown.stderr), "Cannot find device \"lo\"\n");
    // A shell that runs them one after the other, in another directory.
    let script = format!("cd /; ip link show >&2; tc qdisc show; tc qdisc show dev {INTERFACE}");
    let output = bench.exec(&["sh", "-c", &script]).output().expect("sh");
    assert_eq!(text(&output.stdout).matches("limit 123p").count(), 2);
    assert_eq!(text(&output.stderr).matches("mtu").count(), 1);
}

#[test]
fn a_script_uses_netlink_sockets_as_with_the_kernel() {
    if !has_program("python3") {
        return;
    }
    let bench = Bench::new("client");
    for case in [
        "names",
        "messages",
        "many",
        "processes",
        "nonblocking",
        "loop",
        "end",
    ] {
        bench.client(&[case]);
    }
    // Over the loopback interface, too.
    let mut others = softnet();
    others.args(["exec", "--host-network", "--socket"]);
    others
        .arg(&bench.daemon.socket)
        .args(["--", "python3", CLIENT, "others"]);
    assert!(others.status().expect("softnet").success());
    bench.client(&["interfaces", INTERFACE, &INDEX.to_string()]);
}

#[test]
fn options_reach_the_daemon() {
    if !has_program("python3") {
        return;
    }
    let bench = Bench::new("options");
    bench.client(&["options"]);
    let options = vec![
        (5001, 11, 1),
        (5001, 1, 1),
        (5001, 1, 3),
        (5001, 10, 1),
        (5001, 11, 0),
        (5001, 1, 33),
        (5001, 13, 1),
    ];
    let requests = Default::default();
    assert_eq!(bench.daemon.asked(), Asked { requests, options });
}

#[test]
fn the_host_is_never_reached_instead() {
    if !has_program("python3") {
        return;
    }
    let bench = Bench::new("gone");
    let script = format!(
        "rm {}; exec python3 {CLIENT} unreachable",
        bench.daemon.socket.display()
    );
    bench.run(&["sh", "-c", &script]);
    let bench = Bench::new("untold");
    bench.run(&["env", "-u", "SOFTNET_SOCKET", "python3", CLIENT, "untold"]);
}

#[test]
fn it_becomes_the_program() {
    let bench = Bench::new("becomes");
    let shown = bench.run(&["sh", "-c", "echo $0 $1 --json", "zero", "-x"]);
    assert_eq!(shown, "zero -x --json\n");
    let status = bench.exec(&["sh", "-c", "exit 42"]).status();
    assert_eq!(status.expect("sh").code(), Some(42));
    // What was preloaded before is, still.
    let mut command = bench.exec(&["sh", "-c", "echo $LD_PRELOAD; echo $SOFTNET_SOCKET"]);
    command.env("LD_PRELOAD", "libdl.so.2");
    let output = command.output().expect("sh");
    let shown = text(&output.stdout);
    let mut lines = shown.lines();
    let (ours, others) = lines
        .next()
        .and_then(|line| line.split_once(':'))
        .expect("a list");
    assert_eq!(others, "libdl.so.2");
    assert_eq!(lines.next(), bench.daemon.socket.to_str());
    // The library is seen by the program alone, which cannot change it.
    assert!(!Path::new(ours).exists(), "{ours}");
    let script = format!("stat -c %a {ours}; rm -f {ours}");
    let output = bench.exec(&["sh", "-c", &script]).output().expect("sh");
    assert_eq!(text(&output.stdout), "555\n");
    assert!(text(&output.stderr).contains("Read-only file system"));
    // A relative path means the directory of the start.
    let mut command = exec(Path::new("socket"), &["sh", "-c", "echo $SOFTNET_SOCKET"]);
    let output = command.current_dir(bench.root()).output();
    let output = output.expect("sh");
    assert_eq!(
        text(&output.stdout).trim_end(),
        bench.daemon.socket.to_str().expect("UTF-8")
    );
}

#[test]
fn what_cannot_be_run_is_said() {
    let bench = Bench::new("refused");
    let refused = |program: &Path, code, why: &str| {
        let program = program.to_str().expect("UTF-8");
        let output = bench.exec(&[program]).output().expect("softnet");
        assert_refused(&output, code, why);
    };
    refused(
        Path::new("no-such-program"),
        127,
        "program no-such-program was not found",
    );
    refused(Path::new("./no-such-program"), 127, "was not found");
    let plain = bench.scratch.file("plain", "#!/bin/sh\n");
    refused(&plain, 126, "cannot be executed");
    // An interpreter that is not there, and one that is itself.
    let executable = |name: &str, content: &[u8]| {
        let path = bench.root().join(name);
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
        path
    };
    refused(
        &executable("lost", b"#!/no/such/shell\n"),
        126,
        "cannot examine /no/such/shell",
    );
    let itself = bench.root().join("itself");
    let line = format!("#!{}\n", itself.display());
    refused(
        &executable("itself", line.as_bytes()),
        126,
        "too many interpreters",
    );
    // Programs of another machine.
    let own = fs::read(env!("CARGO_BIN_EXE_softnet")).expect("softnet");
    let mut other = own[..64].to_vec();
    other[18] ^= 1;
    other[56..58].fill(0);
    refused(
        &executable("other", &other),
        126,
        "made for another machine",
    );
    refused(&executable("cut", &own[..63]), 126, "cannot examine");
    // Privileges that it gains keep the library out.
    if rustix::process::geteuid().is_root() {
        let program = executable("privileged", &own);
        std::os::unix::fs::chown(&program, Some(65_534), None).expect("its owner");
        let mode = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(&program, mode).expect("its mode");
        refused(&program, 126, "it gains privileges (set-user-ID)");
    }
    // A script without a first line is the shell's.
    let bare = bench.scratch.program("bare", "exit 7\n");
    let status = bench.exec(&[bare.to_str().expect("UTF-8")]).status();
    assert_eq!(status.expect("sh").code(), Some(7));
}

#[test]
fn a_daemon_must_listen() {
    let scratch = Scratch::new("no-daemon");
    let socket = scratch.path("socket");
    let output = exec(&socket, &["true"]).output().expect("softnet");
    let why = format!(
        "no daemon can be reached at {}: No such file",
        socket.display()
    );
    assert_refused(&output, 125, &why);
    let long = scratch.path(&"long".repeat(30));
    let output = exec(&long, &["true"]).output().expect("softnet");
    assert_refused(&output, 125, "no daemon can be reached");
}
