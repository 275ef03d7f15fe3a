//! Where the daemon listens for requests.

use std::env;
use std::path::PathBuf;

/// The variable that `softnet exec` hands on, and that every command looks at.
pub(crate) use softnet_shim::SOCKET_VARIABLE as VARIABLE;

/// The socket if neither the command line nor the configuration names one: for root a system-wide
/// one, for others one of their own.
pub(crate) fn default_path() -> PathBuf {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return PathBuf::from(path);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/softnet/rtnetlink.sock");
    }
    let directory = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let directory = directory.filter(|directory| directory.is_absolute());
    let user = rustix::process::geteuid().as_raw();
    let directory = directory.map_or_else(
        || env::temp_dir().join(format!("softnet-{user}")),
        |directory| directory.join("softnet"),
    );
    directory.join("rtnetlink.sock")
}
