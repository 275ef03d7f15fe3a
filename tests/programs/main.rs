//! Programs that people run, or the commands that those make, against the daemon.
//!
//! A program is a module here. A test whose program is missing is skipped with the reason.

#[path = "../../crates/softnet-cli/tests/common/mod.rs"]
mod common;

mod autorate;
mod fireqos;
mod libreqos;
mod mininet;
mod sqm;
mod supervised;
mod tcconfig;

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::{Running, Scratch, softnet, text, wait_for};
use rustix::process::Signal;

/// A running daemon.
#[derive(Debug)]
struct Daemon {
    running: Running,
    socket: PathBuf,
    scratch: Scratch,
}

impl Daemon {
    /// With this configuration, which has a port of this name.
    fn start(tag: &str, config: &str, port: &str) -> Daemon {
        let scratch = Scratch::new(tag);
        let socket = scratch.path("socket");
        let config = scratch.file("run.toml", config);
        let mut command = softnet();
        command.arg("run").arg("--socket").arg(&socket).arg(config);
        let running = Running::start(&mut command);
        let mut daemon = Daemon {
            running,
            socket,
            scratch,
        };
        wait_for("the daemon's port", || {
            daemon.running.assert_running();
            let output = daemon.exec("ip").args(["link", "show", port]).output();
            output.expect("softnet").status.success()
        });
        daemon
    }

    /// With a port `p0` that takes everything.
    fn with_port(tag: &str) -> Daemon {
        Daemon::start(tag, "[[port]]\nname = \"p0\"\ndriver = \"null\"\n", "p0")
    }

    /// A program that sees the daemon's links.
    fn exec(&self, program: &str) -> Command {
        let mut command = softnet();
        command.arg("exec").arg("--socket").arg(&self.socket);
        command.arg("--").arg(program);
        command
    }

    /// Runs `tc`.
    fn tc(&self, arguments: &str) -> Output {
        let output = self.exec("tc").args(arguments.split_whitespace()).output();
        output.expect("softnet")
    }

    /// Runs `tc`, which must succeed. Returns what it says.
    fn done(&self, arguments: &str) -> String {
        succeeded(&self.tc(arguments), &arguments)
    }

    fn stop(self) {
        self.running.signal(Signal::TERM);
        let output = self.running.finish();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

/// Standard output of what must have succeeded.
fn succeeded(output: &Output, what: &impl Debug) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what:?}: {out}{err}");
    out
}
