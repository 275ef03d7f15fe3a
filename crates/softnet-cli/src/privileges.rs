//! The daemon without rights: a helper process has them, which it starts, or which is a service of
//! its own.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::lchown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use softnet_io::rights::{self, Serve, Subject};
use softnet_io::{
    Allowed, Descriptors, Listen, Listener, SocketKind, become_root_in_userns, inherited_files,
    user_id,
};

use crate::config::{self, Allow, Watch};
use crate::failure::{Exit, Failure, chain};
use crate::log::{Level, log, log_at};
use crate::signals::Stop;

/// Name of the command that the helper is.
pub(crate) const COMMAND: &str = "helper";

/// Daemons that wait to be served by a helper of its own.
const BACKLOG: i32 = 16;

/// Options of the command line about rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Separation {
    /// Socket of a helper that is a service of its own.
    pub(crate) helper: Option<PathBuf>,
    /// The daemon does by itself what its user may do.
    pub(crate) no_helper: bool,
    /// Devices are made in a user namespace of the daemon's own.
    pub(crate) userns: bool,
}

/// The helper, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Helper {
    reported: AtomicBool,
}

impl Helper {
    /// Reports once if it has ended.
    pub(crate) fn look(&self) {
        if let Some(ended) = rights::helper_is_gone()
            && !self.reported.swap(true, Ordering::Relaxed)
        {
            log_at(
                Level::Error,
                format_args!(
                    "the privileged helper has ended ({ended}): packets flow on, but no device, \
                 namespace or socket can be opened; restart the daemon"
                ),
            );
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may have ended since the last look.
        self.look();
        rights::stop_helper();
    }
}

/// A helper's command.
fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("softnet-helper").arg(COMMAND);
    command
}

/// Starts the helper, or connects to one, and gives up the rights of this process. There must be no
/// threads yet.
pub(crate) fn give_up(
    config: &Path,
    scheduling: Allowed,
    how: &Separation,
) -> Result<Helper, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new(Exit::Failure, chain(error));
    for error in rights::raise_limits() {
        log(chain(&error));
    }
    // Those that have tried scheduling classes have ended.
    rights::wait_for_threads().map_err(|error| failed(&error))?;
    if let Some(path) = &how.helper {
        rights::connect_helper(path).map_err(|error| failed(&error))?;
        rights::make_devices_here().map_err(|error| failed(&error))?;
    } else if !how.no_helper {
        let mut command = command();
        command.arg("--config").arg(config);
        rights::start_helper(command).map_err(|error| failed(&error))?;
    }
    let helper = Helper {
        reported: AtomicBool::new(false),
    };
    if how.userns {
        become_root_in_userns()
            .map_err(|error| Failure::because(Exit::Config, "--userns", &error))?;
        rights::make_devices_here().map_err(|error| failed(&error))?;
    }
    match rights::confine(scheduling) {
        // What this system has not is no reason to forward nothing.
        Err(error @ rights::RightsError::Seccomp(_)) => log(chain(&error)),
        confined => confined.map_err(|error| failed(&error))?,
    }
    Ok(helper)
}

/// The helper: serves the daemon, which is at the other end of the standard input. It opens of
/// others what the daemon's configuration file has, and has metrics be offered where that says.
pub(crate) fn serve(enter: bool, config: Option<&Path>) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::because(Exit::Failure, "privileged helper", &error);
    // It ends with the daemon, not before it.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, ignored.clone()).map_err(cannot)?;
    }
    let _ = rustix::thread::set_name(c"softnet-helper");
    // Whoever has this user's rights elsewhere does not get those of this process by a debugger.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(cannot)?;
    let serve = Serve {
        enter,
        again: command,
    };
    let mut known = Known::default();
    known.read(config);
    rights::serve(socket, serve, &mut |subject| {
        // It may have been changed, and be applied at this moment. A new file of an `include` is
        // seen by what it has.
        if !known.watch.holds() || !known.has(subject) {
            known.read(config);
        }
        known.has(subject)
    })
    .map_err(cannot)
}

/// The helper as a service of its own: has each daemon of a user that connects served by a process
/// ([`serve`]), until SIGINT or SIGTERM. It listens on the socket that it was started with, else on
/// one of this path.
pub(crate) fn attend(
    user: &str,
    listen: Option<&Path>,
    config: Option<&Path>,
) -> Result<(), Failure> {
    let passed = inherited_files("").into_iter().next();
    let cannot = |error: io::Error| Failure::because(Exit::Failure, "privileged helper", &error);
    let user = user_number(user)?;
    let stop = Stop::on_signals().map_err(cannot)?;
    for error in rights::raise_limits() {
        log(chain(&error));
    }
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Its file goes with it.
    let made = match (&passed, listen) {
        (None, Some(path)) => Some(listener(path, user)?),
        _ => None,
    };
    let passed = passed.as_ref().map(|(_, file)| file.as_fd());
    let Some(socket) = passed.or_else(|| made.as_ref().map(AsFd::as_fd)) else {
        let text = "no socket was passed (systemd: softnet-helper.socket); name one by --listen";
        return Err(Failure::new(Exit::Config, text));
    };
    let process = || {
        let mut command = command();
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        command
    };
    log(format_args!("privileged helper: serves user {user}"));
    rights::attend(socket, user, stop.file(), &process).map_err(cannot)
}

/// A socket to which one user can connect.
fn listener(path: &Path, user: u32) -> Result<Listener, Failure> {
    let cannot = |error: &dyn std::error::Error| {
        let what = format!("cannot listen for daemons at {}", path.display());
        Failure::because(Exit::Config, what, error)
    };
    let listen = Listen {
        path: path.to_owned(),
        mode: 0o600,
        group: None,
    };
    let kind = SocketKind::SeqPacket;
    let made = Listener::bind(&listen, kind, BACKLOG, Descriptors::Passed);
    let made = made.map_err(|error| cannot(&error))?;
    lchown(path, Some(user), None).map_err(|error| cannot(&error))?;
    Ok(made)
}

/// Everything that a configuration file opens of others, or allows to be opened.
#[derive(Debug, Default)]
struct Known {
    subjects: Vec<Subject>,
    allow: Vec<Allow>,
    watch: Watch,
}

impl Known {
    /// Reads the file. One that cannot be read says nothing: what the last one said holds, so that
    /// the running state is written while the file is edited. The daemon says why.
    fn read(&mut self, path: Option<&Path>) {
        let loaded = path.and_then(|path| config::load_watched(path).ok());
        let Some((config, watch)) = loaded else {
            return;
        };
        let ports = config.links.ports.iter();
        let devices = ports.flat_map(|port| port.options.device.subjects());
        let files = config.state.map(Subject::File).into_iter();
        let own = files.chain(config.metrics.map(Subject::Metrics));
        let subjects = devices.chain(own);
        *self = Known {
            subjects: subjects.collect(),
            allow: config.allow,
            watch,
        };
    }

    fn has(&self, subject: &Subject) -> bool {
        self.subjects.contains(subject) || self.allow.iter().any(|allow| allow.has(subject))
    }
}

/// The number of a user: a number, or a name in `/etc/passwd`.
fn user_number(name: &str) -> Result<u32, Failure> {
    user_id(name).ok_or_else(|| {
        let text = format!("there is no user {name:?} in /etc/passwd");
        Failure::new(Exit::Config, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_by_name_and_number() {
        assert_eq!(user_number("root").ok(), Some(0));
        assert_eq!(user_number("4711").ok(), Some(4711));
        let refused = user_number("no such user").expect_err("nobody has it");
        assert_eq!(refused.exit, Exit::Config);
    }
}
