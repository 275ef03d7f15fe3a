//! Root without privilege: a user namespace in which the process may make network namespaces and
//! TAP devices.
//!
//! It changes the whole process, for good, and must come before the first thread is started: the
//! kernel refuses a process that has several.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

/// Why the process could not become root in a namespace of its own. The text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum UsernsError {
    /// The TAP control device is missing or closed to this user; a user namespace does not change
    /// that.
    #[error("cannot use /dev/net/tun ({source}); {hint}")]
    Tun {
        /// The system's error.
        source: io::Error,
        /// The remedy.
        hint: &'static str,
    },
    /// Threads are running already.
    #[error(
        "a user namespace must be made before the process starts threads, and {0} are running"
    )]
    Threads(usize),
    /// The system does not let this user make a user namespace.
    #[error("the system refuses to make a user namespace ({source}); {hint}")]
    Refused {
        /// The system's error.
        source: io::Error,
        /// The setting that refuses it.
        hint: String,
    },
    /// The namespace was made, but the user could not be mapped to root in it.
    #[error(
        "the system refuses to make the user root in its namespace: cannot write {path} \
         ({source}); {hint}"
    )]
    Map {
        /// The file.
        path: &'static str,
        /// The system's error.
        source: io::Error,
        /// The setting that refuses it.
        hint: String,
    },
}

/// Gives the process a user namespace, in which it is root, and a fresh network namespace in there
/// (loopback down).
///
/// # Errors
/// [`UsernsError`], which says what the system refuses. After [`UsernsError::Map`] the process is
/// in the namespace but not root in it and should end; after every other error nothing has
/// changed.
pub fn become_root_in_userns() -> Result<(), UsernsError> {
    tun_is_usable()?;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    enter(UnshareFlags::NEWNET, (0, uid), (0, gid))
}

/// Gives the process a user namespace and `others`, which belong to it. The user and the group
/// are mapped as (number inside, number outside).
pub(crate) fn enter(
    others: UnshareFlags,
    user: (u32, u32),
    group: (u32, u32),
) -> Result<(), UsernsError> {
    unshare(UnshareFlags::NEWUSER | others)?.map_err(|e| UsernsError::Refused {
        source: e.into(),
        hint: why_refused(e),
    })?;
    // Groups can be mapped without privilege only once setgroups(2) is given up
    // (user_namespaces(7)).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{} {} 1", user.0, user.1))?;
    write("/proc/self/gid_map", &format!("{} {} 1", group.0, group.1))
}

/// Gives the process namespaces of its own: the inner result is the system's. `flags` are kinds of
/// namespaces.
#[allow(unsafe_code, reason = "unshare is an unsafe call in rustix")]
pub(crate) fn unshare(flags: UnshareFlags) -> Result<Result<(), Errno>, UsernsError> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(UsernsError::Threads(threads));
    }
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: what makes `unshare` unsafe is CLONE_FILES, by which threads would lose sight of
    // each other's file descriptors; it is not asked for, and this is the only thread.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) })
}

fn write(path: &'static str, text: &str) -> Result<(), UsernsError> {
    fs::write(path, text).map_err(|source| {
        let hint = why_refused(Errno::PERM);
        UsernsError::Map { path, source, hint }
    })
}

/// Tells by an error with a remedy if the TAP control device cannot be opened.
pub(crate) fn tun_is_usable() -> Result<(), UsernsError> {
    match OpenOptions::new().read(true).write(true).open(TUN) {
        Ok(_) => Ok(()),
        Err(source) => {
            let hint = tun_hint(&source);
            Err(UsernsError::Tun { source, hint })
        }
    }
}

/// The TAP control device.
pub(crate) const TUN: &str = "/dev/net/tun";

/// The remedy when [`TUN`] does not open.
pub(crate) fn tun_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "load the driver (`modprobe tun`), or in a container pass the device in \
             (`--device /dev/net/tun`)"
        }
        io::ErrorKind::PermissionDenied => {
            "its file mode or a device policy keeps this user out: run as root, or \
             `chmod 0666 /dev/net/tun`"
        }
        _ if error.raw_os_error() == Some(libc::ENODEV)
            || error.raw_os_error() == Some(libc::ENXIO) =>
        {
            "the kernel has no TUN/TAP driver: `modprobe tun`"
        }
        _ => "the device is there but does not open",
    }
}

/// The setting by which `unshare` failed. Each is looked at, so that only what really applies is
/// named.
fn why_refused(error: Errno) -> String {
    let sysctl = |path: &str| {
        fs::read_to_string(Path::new("/proc/sys").join(path))
            .ok()
            .map(|v| v.trim().to_owned())
    };
    let is = |path: &str, value: &str| sysctl(path).is_some_and(|v| v == value);
    if is("kernel/unprivileged_userns_clone", "0") {
        return "allow it with `sysctl kernel.unprivileged_userns_clone=1`, or run as root".into();
    }
    if is("user/max_user_namespaces", "0") {
        return "allow it with `sysctl user.max_user_namespaces=10000`, or run as root".into();
    }
    if is("user/max_net_namespaces", "0") {
        return "allow it with `sysctl user.max_net_namespaces=10000`, or run as root".into();
    }
    if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "AppArmor restricts it: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, \
                or run as root"
            .into();
    }
    match error {
        Errno::NOSPC | Errno::USERS => {
            "too many namespaces exist or are nested: see user.max_user_namespaces and \
             user.max_net_namespaces"
                .into()
        }
        Errno::INVAL => {
            "the kernel was built without user namespaces, or the process has threads".into()
        }
        _ => "a container's seccomp or security policy forbids it; run as root or outside the \
              container"
            .into(),
    }
}
