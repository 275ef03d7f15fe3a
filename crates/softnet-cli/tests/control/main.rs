//! The unmodified tc, ip and bridge get from Softnet what they got from Linux 7.2.
//!
//! The commands are `tests/golden/control.commands`. Beside them is what Linux answered, for some
//! versions of iproute2. Where Softnet differs, and why, is in `control.differences`.

#[path = "../common/mod.rs"]
mod common;

mod answers;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::{Command, Output};

use answers::{Answer, parse};
use common::{Running, Scratch, has_program, skip, softnet, text, wait_for};
use rustix::process::Signal;

const COMMANDS: &str = include_str!("../../../../tests/golden/control.commands");
const DIFFERENCES: &str = include_str!("../../../../tests/golden/control.differences");
/// First line of a recording, with the version of iproute2 at its end.
const RECORDINGS: [&str; 2] = [
    include_str!("../../../../tests/golden/control.iproute2-6.1.txt"),
    include_str!("../../../../tests/golden/control.iproute2-7.3.txt"),
];

/// Runs a command between marks.
const RUN: &str = r#"run() {
  echo "$ $1"
  eval "$1" >"$OUT" 2>&1
  code=$?
  cat "$OUT"
  [ -z "$(tail -c 1 "$OUT")" ] || echo
  echo "= $code"
}
"#;

/// A shell script that runs the commands.
fn script(commands: &str) -> String {
    let mut script = RUN.to_owned();
    for line in commands.lines() {
        let quoted = format!("'{}'", line.replace('\'', r"'\''"));
        let verb = if line.starts_with("== ") {
            "echo"
        } else {
            "run"
        };
        writeln!(script, "{verb} {quoted}").expect("a string");
    }
    script
}

/// Softnet's answers.
fn softnets(scratch: &Scratch) -> Vec<Answer> {
    let socket = scratch.path("socket");
    let config = scratch.file("run.toml", "[[port]]\nname = \"p0\"\ndriver = \"null\"\n");
    let mut daemon = Running::start(
        softnet()
            .arg("run")
            .arg("--socket")
            .arg(&socket)
            .arg(config),
    );
    let exec = || {
        let mut command = softnet();
        command.args(["exec", "--socket"]).arg(&socket).arg("--");
        command
    };
    wait_for("the daemon's port", || {
        daemon.assert_running();
        let output = exec().args(["ip", "link", "show", "p0"]).output();
        output.expect("softnet").status.success()
    });
    let script = scratch.file("softnet.sh", &script(COMMANDS));
    let mut command = exec();
    command.arg("sh").arg(script);
    let answers = run(&mut command, scratch);
    daemon.signal(Signal::TERM);
    assert!(daemon.finish().status.success());
    answers
}

fn run(command: &mut Command, scratch: &Scratch) -> Vec<Answer> {
    let output: Output = command
        .env("OUT", scratch.path("out"))
        .output()
        .expect("sh");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answers = parse(&text(&output.stdout));
    assert!(answers.len() > 300);
    answers
}

/// A section, and a command or `*`.
fn differences() -> Vec<(&'static str, &'static str)> {
    let lines = DIFFERENCES.lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(" | ").expect("SECTION | COMMAND"))
        .collect()
}

/// Where they differ without a reason, and which differences there were.
fn compare(linux: &[Answer], ours: &[Answer]) -> (String, BTreeSet<usize>) {
    let (mut wrong, mut seen) = (String::new(), BTreeSet::new());
    for (linux, ours) in linux.iter().zip(ours) {
        let at = (&linux.section, &linux.command);
        assert_eq!(at, (&ours.section, &ours.command));
        if linux.agrees(ours) {
            continue;
        }
        let known = differences().iter().position(|(section, command)| {
            linux.section == *section && (*command == "*" || linux.command == *command)
        });
        if let Some(known) = known {
            seen.insert(known);
            continue;
        }
        let Answer { code, said, .. } = ours;
        let (section, command) = at;
        writeln!(
            wrong,
            "{section} | {command}\n  Linux   {} {:#?}\n  Softnet {code} {said:#?}",
            linux.code, linux.said
        )
        .expect("a string");
    }
    (wrong, seen)
}

fn has_programs() -> bool {
    ["tc", "ip", "bridge"].into_iter().all(has_program)
}

#[test]
fn softnet_answers_as_linux_7_2_did() {
    if !has_programs() {
        return;
    }
    let output = Command::new("tc").arg("-V").output().expect("tc");
    let version = text(&output.stdout);
    let version = version.split(['-', ',']).nth(2).unwrap_or_default();
    let version = version.trim();
    let recording = RECORDINGS.into_iter().find(|recording| {
        let first = recording.lines().next().expect("a line");
        first.ends_with(&format!("iproute2 {version}"))
    });
    let Some(recording) = recording else {
        return skip(&format!("needs iproute2 6.1.0 or 7.3.0, has {version}"));
    };
    let linux = parse(recording);
    let commands = COMMANDS.lines().filter(|line| !line.starts_with("== "));
    assert!(
        commands.eq(linux.iter().map(|answer| answer.command.as_str())),
        "the recording is of other commands: run tests/golden/record_control.py"
    );
    let ours = softnets(&Scratch::new("control"));
    assert_eq!(linux.len(), ours.len());
    let (wrong, seen) = compare(&linux, &ours);
    assert_eq!(wrong, "");
    let mut known = differences();
    let mut number = 0..;
    known.retain(|_| !number.next().is_some_and(|number| seen.contains(&number)));
    assert!(known.is_empty(), "no difference now: {known:#?}");
}
