//! Softnet's answers to commands.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::common::{Running, Scratch, softnet, text, wait_for};

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
fn script<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut script = RUN.to_owned();
    for line in lines {
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

/// A daemon with a port `p0`.
pub(crate) struct Daemon<'a> {
    pub(crate) running: Running,
    pub(crate) socket: PathBuf,
    scratch: &'a Scratch,
}

impl Daemon<'_> {
    pub(crate) fn start<'a>(scratch: &'a Scratch, config: &str) -> Daemon<'a> {
        let socket = scratch.path("socket");
        let config = scratch.file("run.toml", config);
        let mut command = softnet();
        command.arg("run").arg("--socket").arg(&socket).arg(config);
        let mut daemon = Daemon {
            running: Running::start(&mut command),
            socket,
            scratch,
        };
        wait_for("the daemon's port", || {
            daemon.running.assert_running();
            let output = daemon.exec().args(["ip", "link", "show", "p0"]).output();
            output.expect("softnet").status.success()
        });
        daemon
    }

    fn exec(&self) -> Command {
        let mut command = softnet();
        command.args(["exec", "--socket"]).arg(&self.socket);
        command.arg("--");
        command
    }

    /// Answers to each command, between marks; lines with `== ` are names of sections.
    pub(crate) fn answers<'a>(&self, lines: impl Iterator<Item = &'a str>) -> String {
        let script = self.scratch.file("softnet.sh", &script(lines));
        let mut command = self.exec();
        command.arg("sh").arg(script);
        let output = command.env("OUT", self.scratch.path("out")).output();
        let output = output.expect("sh");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn stop(self) {
        self.running.signal(Signal::TERM);
        assert!(self.running.finish().status.success());
    }
}
