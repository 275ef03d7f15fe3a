//! Scheduling classes of the daemon's workers, by the rights that it has.

use std::fs;
use std::process::Command;

use crate::common::{Daemon, Running, Scratch, has_program, softnet, wait_for};

/// A class as `/proc` tells it: policy (0 `SCHED_OTHER`, 2 `SCHED_RR`), realtime priority, nice
/// level.
type Class = (i64, i64, i64);

const REALTIME: Class = (2, 1, 0);
const NICE: Class = (0, 0, -20);
const NORMAL: Class = (0, 0, 0);

/// proc_pid_stat(5): nice is field 19, rt_priority 40, policy 41; the third follows the name.
fn class(stat: &str) -> Class {
    let fields = stat.rsplit_once(") ").expect("a name").1;
    let fields: Vec<&str> = fields.split(' ').collect();
    let field = |n: usize| fields[n - 3].parse().expect("a number");
    (field(41), field(40), field(19))
}

/// Classes of the worker and of the main thread.
fn classes(running: &Running) -> Option<(Class, Class)> {
    let (mut worker, mut main) = (None, None);
    for task in fs::read_dir(running.proc().join("task")).ok()? {
        let task = task.ok()?.path();
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        if stat.contains("(softnet/0)") {
            worker = Some(class(&stat));
        } else if task.file_name() == running.proc().file_name() {
            main = Some(class(&stat));
        }
    }
    worker.zip(main)
}

/// The daemon, started by `command`, has an idle worker of this class, says all of `texts`, and
/// its other threads are as they were.
fn assert_class(command: Command, scheduling: &str, expected: Class, texts: &[&str]) {
    let thread = std::thread::current();
    let test = thread.name().and_then(|name| name.rsplit("::").next());
    let scratch = Scratch::new(test.expect("tests have names"));
    let toml = format!("[engine]\nworkers = 1\nscheduling = {scheduling:?}\n");
    let config = scratch.file("scheduling.toml", &toml);
    let running = Daemon::by(command, config, scratch.path("socket")).running;
    wait_for("the worker's class", || {
        classes(&running) == Some((expected, NORMAL))
    });
    running.signal(rustix::process::Signal::TERM);
    let output = running.finish();
    let log = crate::common::text(&output.stderr);
    for text in texts {
        assert!(log.contains(text), "{text:?} is missing:\n{log}");
    }
}

/// True if this test may give threads realtime classes; if not, it is reported as skipped.
fn may_raise() -> bool {
    if !has_program("prlimit") || !has_program("setpriv") || !has_program("chrt") {
        return false;
    }
    let output = Command::new("chrt").args(["-r", "1", "true"]).output();
    let may = output.is_ok_and(|output| output.status.success());
    if !may {
        softnet_tests::skip("needs the right to realtime classes");
    }
    may
}

#[test]
fn each_class_where_the_right_is_there() {
    if !may_raise() {
        return;
    }
    for (name, expected) in [("realtime", REALTIME), ("nice", NICE), ("normal", NORMAL)] {
        let said = format!("workers: scheduling class {name}");
        assert_class(softnet(), name, expected, &[&said]);
    }
}

/// A daemon without the capabilities, and with these limits.
fn limited(rtprio: u32, nice: u32) -> Command {
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--rtprio={rtprio}:{rtprio}"))
        .arg(format!("--nice={nice}:{nice}"))
        .args(["setpriv", "--inh-caps=-sys_resource,-sys_nice"])
        .arg("--bounding-set=-sys_resource,-sys_nice")
        .arg(softnet().get_program());
    command
}

#[test]
fn a_missing_right_is_said_and_the_next_class_taken() {
    if !may_raise() {
        return;
    }
    const RTPRIO: &str = "it needs RLIMIT_RTPRIO of 1";
    const LEVEL: &str = "it needs RLIMIT_NICE of 40";
    const NOT: &str = "scheduling class normal; realtime is not allowed";
    for wanted in ["auto", "realtime"] {
        assert_class(limited(0, 0), wanted, NORMAL, &[NOT, RTPRIO, LEVEL]);
    }
    // Not every root may raise a limit.
    let limits = ["--rtprio=1:1", "--nice=40:40", "true"];
    let raised = Command::new("prlimit").args(limits).output();
    if raised.is_ok_and(|output| output.status.success()) {
        let said = ["scheduling class nice; realtime is not allowed", RTPRIO];
        assert_class(limited(0, 40), "auto", NICE, &said);
        assert_class(limited(1, 0), "auto", REALTIME, &["class realtime\n"]);
        assert_class(limited(1, 40), "nice", NICE, &["class nice\n"]);
    }
}
