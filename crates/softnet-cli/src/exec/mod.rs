//! `softnet exec`: runs a program whose NETLINK_ROUTE sockets reach the daemon, not the kernel.
//!
//! It becomes the program, with the preload library before its other libraries. So it first makes
//! sure of what the program could not report: that a daemon listens, and that the dynamic loader
//! will take the library. A program without it would change the host.

mod elf;
mod library;
mod program;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::client;
use crate::failure::{Exit, Failure};

pub(crate) const HELP: &str = "\
All that the program starts goes to the daemon, too. A program that cannot be preloaded (statically
linked, written in Go, set-user-ID) is refused here; one that the program starts reaches the kernel.

Exit codes: the program's, or
  2    the command line is wrong
  125  no daemon listens, or the preload library cannot be installed
  126  the program cannot be run, or cannot be preloaded
  127  the program was not found";

/// What the command line asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Socket on which the daemon listens, if not the default one
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Becomes the program; returns only if that fails.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let Some((name, arguments)) = options.command.split_first() else {
        return Err(Failure::new(Exit::NotFound, "no program is given"));
    };
    let file = program::find(name)?;
    program::check(&file)?;
    let path = options.socket.clone();
    let path = path.unwrap_or_else(crate::socket::default_path);
    // From the root: the program may change its directory.
    let socket = std::path::absolute(&path)
        .and_then(|path| client::reach(&path).map(|_| path))
        .map_err(|why| Failure::because(Exit::ExecFailed, client::no_daemon(&path), &why))?;
    let library = library::install()?;
    let error = Command::new(&file)
        .arg0(name)
        .args(arguments)
        .env("LD_PRELOAD", preloaded(&library, env::var_os("LD_PRELOAD")))
        .env(softnet_shim::SOCKET_VARIABLE, socket)
        .exec();
    Err(Failure::because(
        Exit::CannotExecute,
        format_args!("cannot run {}", file.display()),
        &error,
    ))
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
