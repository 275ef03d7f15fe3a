//! A daemon under test, and commands to it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Running, Scratch, softnet, text, wait_for};

/// A running daemon, its file and its socket.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) running: Running,
    pub(crate) config: PathBuf,
    pub(crate) socket: PathBuf,
}

impl Daemon {
    /// Runs this configuration, in a folder of its own, until it answers.
    pub(crate) fn start(scratch: &Scratch, config: &str) -> Daemon {
        Daemon::on(scratch.file("config.toml", config), scratch.path("socket"))
    }

    /// As [`Daemon::start`], with a file and a socket of these names.
    pub(crate) fn on(config: PathBuf, socket: PathBuf) -> Daemon {
        Daemon::by(softnet(), config, socket)
    }

    /// As [`Daemon::on`], by a command that becomes the program.
    pub(crate) fn by(mut command: Command, config: PathBuf, socket: PathBuf) -> Daemon {
        command.arg("run").arg(&config).arg("--socket").arg(&socket);
        let mut daemon = Daemon {
            running: Running::start(&mut command),
            config,
            socket,
        };
        wait_for("the daemon", || {
            daemon.running.assert_running();
            daemon.ask("dump-config").status.success()
        });
        daemon
    }

    /// The end of a command to it.
    pub(crate) fn ask(&self, command: &str) -> Output {
        let mut softnet = softnet();
        softnet.arg("--socket").arg(&self.socket);
        softnet.args(command.split(' ')).output().expect("softnet")
    }

    /// Output of a command, which succeeds.
    pub(crate) fn say(&self, command: &str) -> String {
        let output = self.ask(command);
        assert!(
            output.status.success(),
            "{command}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Statistics, as an object.
    pub(crate) fn stats(&self) -> Value {
        serde_json::from_str(&self.say("stats --json")).expect("an object")
    }

    /// Another text in its file.
    pub(crate) fn write(&self, config: &str) {
        fs::write(&self.config, config).expect("the file");
    }

    /// A command that runs the program that is added to it on the daemon's links.
    pub(crate) fn exec(&self) -> Command {
        let mut command = softnet();
        command.args(["exec", "--socket"]).arg(&self.socket);
        command.arg("--");
        command
    }

    /// Output of a program on its links, which succeeds.
    pub(crate) fn run(&self, program: &str) -> String {
        let output = self.exec().args(program.split_whitespace()).output();
        let output = output.expect("softnet");
        assert!(
            output.status.success(),
            "{program}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Stops it; it must have been well. Returns what it noted.
    pub(crate) fn stop(self) -> String {
        self.running.stop()
    }
}
