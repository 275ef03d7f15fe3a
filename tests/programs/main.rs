//! Programs that people run, or the commands that those make, against the daemon.
//!
//! A program is a module here. A test whose program is missing is skipped with the reason.

#[path = "../../crates/softnet-cli/tests/common/mod.rs"]
mod common;

mod autorate;
mod fireqos;
mod libreqos;
mod mininet;
mod pyroute2;
mod rrul;
mod sqm;
mod supervised;
mod tcconfig;
mod tdc;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Scratch, text};

/// A running daemon.
#[derive(Debug)]
struct Daemon {
    daemon: common::Daemon,
    scratch: Scratch,
}

impl Daemon {
    /// With this configuration.
    fn start(tag: &str, config: &str) -> Daemon {
        let scratch = Scratch::new(tag);
        let daemon = common::Daemon::start(&scratch, config);
        Daemon { daemon, scratch }
    }

    /// With a port `p0` that takes everything.
    fn with_port(tag: &str) -> Daemon {
        Daemon::start(tag, "[[port]]\nname = \"p0\"\ndriver = \"null\"\n")
    }

    /// A program that sees the daemon's links.
    fn exec(&self, program: &str) -> Command {
        let mut command = self.daemon.exec();
        command.arg(program);
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
        self.daemon.stop();
    }
}

/// Standard output of what must have succeeded.
fn succeeded(output: &Output, what: &impl Debug) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what:?}: {out}{err}");
    out
}

/// The folder of programs of a virtual environment of Python with a package from PyPI, installed
/// once below `target`.
fn venv(name: &str, package: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_softnet"));
    let folder = program.parent()?.join(name);
    let (bin, done) = (folder.join("bin"), folder.join("installed"));
    if done.exists() {
        return Some(bin);
    }
    let run = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let place = folder.to_str()?;
    let made = run(Path::new("python3"), &["-m", "venv", place])
        && run(&bin.join("pip"), &["install", "-q", package])
        && std::fs::write(done, "").is_ok();
    if !made {
        common::skip(&format!("needs python3 with venv, and {package} from PyPI"));
    }
    made.then_some(bin)
}
