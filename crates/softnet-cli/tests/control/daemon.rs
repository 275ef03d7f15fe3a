//! Softnet's answers to commands.

use std::fmt::Write;

use super::Iproute;
use super::common::{Daemon, Scratch, text};

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
fn script<'a>(iproute: &Iproute, lines: impl Iterator<Item = &'a str>) -> String {
    let mut script = iproute.functions.clone() + RUN;
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

impl Daemon {
    /// Answers to each command, between marks; lines with `== ` are names of sections.
    pub(crate) fn answers<'a>(
        &self,
        scratch: &Scratch,
        iproute: &Iproute,
        lines: impl Iterator<Item = &'a str>,
    ) -> String {
        let script = scratch.file("softnet.sh", &script(iproute, lines));
        let mut command = self.exec();
        command.arg("sh").arg(script);
        let output = command.env("OUT", scratch.path("out")).output();
        let output = output.expect("sh");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }
}
