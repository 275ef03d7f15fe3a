//! `softnet demo`: as root, unprivileged, and interrupted.

mod common;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{
    HostState, Running, Scratch, copy_program, has_program, may_make_networks, skip, softnet,
    text, wait_for,
};
use rustix::process::Signal;
use serde_json::Value;

/// The workers of a demo want all CPUs there are: one test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs demos of so many seconds, longer and longer, until one has measured everything: in a short
/// time a thread may get no CPU.
fn check_json(demo: impl Fn(&str) -> Output) {
    let measured = ["2", "4", "8"].into_iter().any(|seconds| {
        let missing = check_output(&demo(seconds), seconds == "2").err();
        println!("{seconds} s: {missing:?}");
        missing.is_none()
    });
    assert!(measured, "not everything is measured");
}

/// Checks the one object that `--json` promises. An error: a figure that was not measured, in a
/// `short` time also one that the bucket is most of.
fn check_output(output: &Output, short: bool) -> Result<(), String> {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr, "", "nothing but the object");
    assert_eq!(stdout.matches('\n').count(), 1, "{stdout}");
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    let count = |path: &str| {
        let value = json.pointer(path).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("no count {path} in {stdout}"))
    };
    let sum = |name: &str| count(&format!("/conservation/{name}"));
    assert!(sum("rx") > 0);
    assert_eq!(
        sum("rx") + sum("copied"),
        sum("tx") + sum("dropped") + sum("queued"),
        "{stdout}"
    );
    let reasons = json["drops"].as_object().expect("drops by reason");
    let by_reason: u64 = reasons.values().map(|n| n.as_u64().expect("a count")).sum();
    assert_eq!(by_reason, sum("dropped"), "{stdout}");
    assert_eq!(
        count("/udp_flat/reordered") + count("/udp_paced/reordered"),
        0,
        "{stdout}"
    );
    let number = |path: &str| {
        let value = json.pointer(path).and_then(Value::as_f64);
        let value = value.filter(|value| *value > 0.0);
        value.ok_or_else(|| format!("no number {path} in {stdout}"))
    };
    for path in ["/tcp_gbps", "/udp_pps", "/udp_paced/pps", "/start_ms"] {
        number(path)?;
    }
    assert_eq!(number("/bufferbloat/rate_mbps")?, 50.0);
    assert_eq!(number("/shaped/rate_mbps")?, 100.0);
    for ping in [
        "/ping_us",
        "/loaded_ping_us",
        "/shaped/loaded_ping_us",
        "/bufferbloat/pfifo",
        "/bufferbloat/fq_codel",
        "/bufferbloat/cake",
    ] {
        let (p50, p99) = (
            number(&format!("{ping}/p50"))?,
            number(&format!("{ping}/p99"))?,
        );
        assert!(p50 <= p99, "{ping}: {stdout}");
    }
    // A starved machine sends less. More than the rate and the bucket is a fault, with a margin
    // for packets that are sent and not yet counted when the measurement begins; but for a
    // measurement that began so late that the bucket is most of it.
    match number("/shaped/measured_mbps")? {
        measured if measured < 110.0 => Ok(()),
        measured if short => Err(format!("{measured} Mb/s: {stdout}")),
        measured => panic!("{measured} Mb/s: {stdout}"),
    }
}

#[test]
fn as_root() {
    if !may_make_networks() {
        return;
    }
    let _turn = turn();
    let before = HostState::now();
    check_json(|seconds| {
        Running::start(softnet().args(["demo", "--json", "--seconds", seconds])).finish()
    });
    assert_eq!(HostState::now(), before);
}

#[test]
fn the_table() {
    if !may_make_networks() {
        return;
    }
    let _turn = turn();
    let scratch = Scratch::new("plot");
    let file = scratch.path("bloat.svg");
    let mut command = softnet();
    command
        .args(["demo", "--seconds", "2", "--plot"])
        .arg(&file);
    let output = Running::start(&mut command).finish();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr, "", "no progress where no terminal is");
    for part in [
        "TCP",
        "UDP",
        "ping, idle",
        "p50",
        "p99",
        "asked 100.00 Mb/s",
        "pfifo limit 1000",
        "fq_codel  ",
        "cake  ",
        "█",
        "0.3 s",
        " = sent ",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert!(
        !stdout.contains('\u{1b}'),
        "no terminal control where no terminal is"
    );
    let picture = std::fs::read_to_string(&file).expect("the picture");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert_eq!(picture.matches("<polyline ").count(), 3, "{picture}");
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error_behind_the_results() {
    if !may_make_networks() {
        return;
    }
    let _turn = turn();
    let arguments = [
        "demo",
        "--seconds",
        "1",
        "--json",
        "--plot",
        "/nowhere/x.svg",
    ];
    let output = Running::start(softnet().args(arguments)).finish();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write /nowhere/x.svg: "), "{stderr}");
    assert_eq!(stdout.matches('\n').count(), 1, "{stdout}");
}

#[test]
fn interrupted() {
    if !may_make_networks() {
        return;
    }
    let _turn = turn();
    let before = HostState::now();
    for signal in [Signal::INT, Signal::TERM] {
        let mut running = Running::start(softnet().args(["demo", "--seconds", "3600"]));
        wait_for("the demo", || {
            running.assert_running();
            running.has_thread("softnet/0")
        });
        running.signal(signal);
        let output = running.finish();
        assert_eq!(output.status.code(), Some(130));
        assert_eq!(text(&output.stderr), "softnet: interrupted\n");
        assert_eq!(text(&output.stdout), "", "no results of half a run");
        assert_eq!(HostState::now(), before);
    }
}

/// The demo of so many seconds as the user nobody, who finds a /dev/net/tun of this mode.
fn as_nobody(scratch: &Scratch, mode: &str, seconds: &str) -> Output {
    let program = scratch.path("softnet");
    copy_program(&program);
    let script = "mount --make-rprivate / && mount -t tmpfs tmpfs /dev/net \
                  && mknod -m \"$1\" /dev/net/tun c 10 200 \
                  && exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
                  \"$2\" demo --json --seconds \"$3\"";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script, "sh", mode])
        .arg(program)
        .arg(seconds);
    Running::start(&mut command).finish()
}

/// True if this process can become `nobody` here, and a user namespace of it works.
fn can_play_nobody() -> bool {
    if !may_make_networks() || !has_program("unshare") || !has_program("setpriv") {
        return false;
    }
    if !Path::new("/dev/net").is_dir() {
        skip("needs a directory /dev/net");
        return false;
    }
    let status = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "unshare",
            "-Urn",
            "true",
        ])
        .output()
        .expect("setpriv");
    if !status.status.success() {
        skip("needs user namespaces for everyone");
        return false;
    }
    let mounts = Command::new("unshare")
        .args(["-m", "true"])
        .output()
        .expect("unshare");
    if !mounts.status.success() {
        skip("needs a mount namespace");
        return false;
    }
    true
}

#[test]
fn unprivileged() {
    if !can_play_nobody() {
        return;
    }
    let _turn = turn();
    let before = HostState::now();
    let scratch = Scratch::new("nobody");
    check_json(|seconds| as_nobody(&scratch, "666", seconds));
    assert_eq!(HostState::now(), before);
}

#[test]
fn unprivileged_where_the_device_is_closed() {
    if !can_play_nobody() {
        return;
    }
    let scratch = Scratch::new("closed");
    let output = as_nobody(&scratch, "600", "2");
    assert_eq!(output.status.code(), Some(1));
    let line = text(&output.stderr);
    assert!(
        line.contains("/dev/net/tun") && line.contains("chmod 0666 /dev/net/tun"),
        "{line}"
    );
    assert_eq!(line.matches('\n').count(), 1, "{line}");
}
