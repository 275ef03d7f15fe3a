//! A program that finds none of the host's interfaces, and a file that it alone sees.
//!
//! It changes the whole process, for good, and what the process starts inherits it. It must come
//! before the first thread is started.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change, mount_remount};
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::userns::{self, UsernsError};

/// Why the process could not be confined. It may be in some of the namespaces then and should end.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The system makes no namespaces for this user.
    #[error(transparent)]
    Namespaces(#[from] UsernsError),
    /// The private file system could not be mounted.
    #[error("cannot mount {what} at {path}")]
    Mount {
        /// The file system, or what was to change.
        what: &'static str,
        /// The directory.
        path: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The private file could not be written.
    #[error("cannot write {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The right to load kernel modules could not be given up.
    #[error("cannot give up CAP_SYS_MODULE")]
    Capability(#[source] io::Error),
}

/// The directory that the private file system covers. Every `/proc` has it; `tmpfs` mounted
/// elsewhere would need a directory that nobody else removes, and that programs do not look at.
const PRIVATE: &str = "/proc/fs";

/// Confines the process, and writes a file that it and what it starts see, and nobody else.
///
/// - A mount namespace of its own, so that the file lies where no other user, no cleaning of
///   `/tmp` and no `noexec` reaches it. It is read-only.
/// - Unless `host_network`: an empty network namespace (loopback, down), and a `/sys` that shows
///   it. Unix sockets with a path are reached as before.
/// - A user namespace, in which the user is who it was, if the process may not make the others
///   without one (`user_namespaces(7)`): to programs outside of it, its credentials stay the same.
/// - Kernel modules can no longer be loaded (`CAP_SYS_MODULE`), as they would be the host's.
///
/// Returns the path of the file.
///
/// # Errors
/// [`ConfineError`], which says what the system refuses and what to do about it.
pub fn confine(host_network: bool, name: &str, content: &[u8]) -> Result<PathBuf, ConfineError> {
    let mut namespaces = UnshareFlags::NEWNS;
    if !host_network {
        namespaces |= UnshareFlags::NEWNET;
    }
    match userns::unshare(namespaces)? {
        Ok(()) => keep_mounts_private()?,
        // Mounts of a namespace that another user namespace owns reach no other (they are slaves).
        Err(_) => {
            let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
            userns::enter(namespaces, (uid, uid), (gid, gid))?;
        }
    }
    if !host_network {
        show_no_interface()?;
    }
    let path = private_file(name, content)?;
    forgo_modules().map_err(|errno| ConfineError::Capability(errno.into()))?;
    Ok(path)
}

/// Keeps mounts made from now on inside the mount namespace.
fn keep_mounts_private() -> Result<(), ConfineError> {
    let downstream = MountPropagationFlags::DOWNSTREAM;
    let Err(errno) = mount_change("/", downstream | MountPropagationFlags::REC) else {
        return Ok(());
    };
    if errno != Errno::INVAL {
        return Err(refused("a private tree", "/")(errno));
    }
    // The root directory is no mount point in a chroot: the ones that are covered are.
    for path in ["/proc", "/sys"] {
        mount_change(path, downstream).map_err(refused("a private tree", path))?;
    }
    Ok(())
}

/// Covers `/sys`, which shows the interfaces of the namespace in which it was mounted.
fn show_no_interface() -> Result<(), ConfineError> {
    const SYS: &str = "/sys";
    if !Path::new(SYS).is_dir() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // A container that sees a part of it only may not mount it anew; nothing is as good.
    mount("sysfs", SYS, "sysfs", flags, None)
        .or_else(|_| mount("tmpfs", SYS, "tmpfs", flags | MountFlags::RDONLY, None))
        .map_err(refused("an empty tree", SYS))
}

fn private_file(name: &str, content: &[u8]) -> Result<PathBuf, ConfineError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", PRIVATE, "tmpfs", flags, Some(c"mode=0755,size=4m"))
        .map_err(refused("a private file system", PRIVATE))?;
    let path = Path::new(PRIVATE).join(name);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o555)
        .open(&path)
        .and_then(|mut file| file.write_all(content))
        .map_err(|source| ConfineError::File {
            path: path.clone(),
            source,
        })?;
    mount_remount(PRIVATE, flags | MountFlags::RDONLY, c"")
        .map_err(refused("a read-only file system", PRIVATE))?;
    Ok(path)
}

fn refused(what: &'static str, path: &'static str) -> impl Fn(Errno) -> ConfineError {
    move |errno| ConfineError::Mount {
        what,
        path,
        source: errno.into(),
    }
}

fn forgo_modules() -> rustix::io::Result<()> {
    let module = CapabilitySet::SYS_MODULE;
    let held = capabilities(None)?;
    if held.permitted.contains(module) {
        remove_capability_from_bounding_set(module)?;
    }
    set_capabilities(
        None,
        CapabilitySets {
            effective: held.effective - module,
            permitted: held.permitted - module,
            inheritable: held.inheritable - module,
        },
    )
}
