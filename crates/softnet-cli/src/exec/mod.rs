//! `softnet exec`: runs a program whose NETLINK_ROUTE sockets reach the daemon, not the kernel.
//!
//! It becomes the program, with the preload library before its other libraries. So it first makes
//! sure of what the program could not report: that a daemon listens, and that the dynamic loader
//! will take the library. A program that makes system calls by itself (a static one, Go) runs below
//! a supervisor instead. Whatever misses both (a static program that a dynamic one starts, one that
//! clears its environment) finds an empty network namespace, never the host's devices.

mod elf;
mod program;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use program::Way;

use crate::client;
use crate::failure::{Exit, Failure};

pub(crate) const HELP: &str = "\
All that the program starts goes to the daemon, too. It runs in an empty network namespace: what
does not reach the daemon finds no device of the host, not even in /sys. A program that cannot be
preloaded (statically linked, written in Go) runs under a supervisor, for which its system calls
wait (seccomp user notification); one that gains privileges (set-user-ID) is refused.

Exit codes: the program's, or
  2    the command line is wrong
  125  no daemon listens, or the system makes no namespaces for this user
  126  the program cannot be run, or cannot be preloaded
  127  the program was not found";

/// The options of the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Socket on which the daemon listens, if not the default one
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Stay in the host's network namespace: what does not reach the daemon changes the host
    #[arg(long)]
    host_network: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Options {
    /// For `softnet tc`, `ip` and `bridge`.
    pub(crate) fn of(program: &str, arguments: Vec<OsString>) -> Options {
        let mut command = vec![program.into()];
        command.extend(arguments);
        Options {
            socket: None,
            host_network: false,
            command,
        }
    }

    /// The socket `path`, unless another one is named.
    pub(crate) fn at(mut self, path: Option<PathBuf>) -> Options {
        self.socket = self.socket.or(path);
        self
    }
}

/// Becomes the program; returns only if that fails.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let Some((name, arguments)) = options.command.split_first() else {
        return Err(Failure::new(Exit::NotFound, "no program is given"));
    };
    let file = program::find(name)?;
    let way = program::way(&file)?;
    let path = options.socket.clone();
    let path = path.unwrap_or_else(crate::socket::default_path);
    // From the root: the program may change its directory.
    let socket = std::path::absolute(&path)
        .and_then(|path| client::reach(&path).map(|_| path))
        .map_err(|why| Failure::because(Exit::ExecFailed, client::no_daemon(&path), &why))?;
    let library = install(options.host_network)?;
    let mut command = Command::new(&file);
    command
        .arg0(name)
        .args(arguments)
        .env(softnet_shim::SOCKET_VARIABLE, &socket);
    if options.host_network {
        command.env(softnet_shim::HOST_NETWORK_VARIABLE, "1");
    } else {
        command.env_remove(softnet_shim::HOST_NETWORK_VARIABLE);
    }
    if way == Way::Preloaded {
        command.env("LD_PRELOAD", preloaded(&library, env::var_os("LD_PRELOAD")));
    } else {
        return supervised(command, &socket, options, &file);
    }
    let error = command.exec();
    Err(Failure::because(
        Exit::CannotExecute,
        format_args!("cannot run {}", file.display()),
        &error,
    ))
}

/// Runs the program below a supervisor, and ends as it ends.
fn supervised(
    command: Command,
    socket: &Path,
    options: &Options,
    file: &Path,
) -> Result<(), Failure> {
    // Those of the terminal are the program's.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        let ignored = signal_hook::flag::register(signal, Arc::default());
        ignored.map_err(|why| Failure::because(Exit::ExecFailed, "cannot take signals", &why))?;
    }
    let status = softnet_io::supervise(command, socket, options.host_network);
    let status = status.map_err(|why| {
        let what = format_args!("cannot run {}", file.display());
        Failure::because(Exit::CannotExecute, what, &why)
    })?;
    // As a shell says it.
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    std::process::exit(code.unwrap_or(1))
}

/// Confines this process and puts the library where what it becomes finds it.
fn install(host_network: bool) -> Result<PathBuf, Failure> {
    let library = softnet_shim::LIBRARY.map_err(|why| {
        let text = format!("this softnet was built without the preload library: {why}");
        Failure::new(Exit::ExecFailed, text)
    })?;
    softnet_io::confine(host_network, "libsoftnet_shim.so", library).map_err(|why| {
        let what = "cannot keep the program away from the host's network";
        Failure::because(Exit::ExecFailed, what, &why)
    })
}

/// The value of LD_PRELOAD: our library before those that were there.
fn preloaded(library: &Path, others: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_preloaded_libraries_stay() {
        let library = Path::new("/tmp/a.so");
        assert_eq!(preloaded(library, None), "/tmp/a.so");
        assert_eq!(preloaded(library, Some("".into())), "/tmp/a.so");
        assert_eq!(
            preloaded(library, Some("b.so c.so".into())),
            "/tmp/a.so:b.so c.so"
        );
    }
}
