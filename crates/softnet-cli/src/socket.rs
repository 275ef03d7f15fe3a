//! Where the daemon listens for requests.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The variable that `softnet exec` hands on, and that every command looks at.
pub(crate) use softnet_shim::SOCKET_VARIABLE as VARIABLE;

/// True if the environment names one.
pub(crate) fn is_chosen() -> bool {
    env::var_os(VARIABLE).is_some_and(|path| !path.is_empty())
}

/// Refuses a directory that somebody else made, or can write in: they could put a socket of their
/// own in the place of the daemon's, and answer its clients.
pub(crate) fn check_directory(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if is_ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::other(
        "another user made its directory, or can write there",
    ))
}

/// True if `softnet` in a directory is ours, or could be, or is that of a daemon with a user of its
/// own. Root of a user namespace finds the system's `/run`, where it may write nothing.
fn may_have_directory(directory: &Path) -> bool {
    let may_write = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let own = directory.join("softnet");
    match fs::symlink_metadata(&own) {
        Ok(found) if found.uid() == rustix::process::geteuid().as_raw() => true,
        Ok(found) => found.is_dir() && may_write(&own),
        Err(_) => may_write(directory),
    }
}

/// The socket if neither the command line nor the configuration names one: for root a system-wide
/// one, for others, also root of a user namespace, one of their own.
pub(crate) fn default_path() -> PathBuf {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return PathBuf::from(path);
    }
    if rustix::process::geteuid().is_root() && may_have_directory(Path::new("/run")) {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_is_not_chosen() {
        let base = env::temp_dir().join(format!("softnet-made-{}", std::process::id()));
        // Of a run that was killed, and had the number of this process.
        let _ = fs::remove_dir_all(&base);
        fs::create_dir(&base).expect("it is new");
        assert!(may_have_directory(&base), "it can be made");
        fs::create_dir(base.join("softnet")).expect("it is new");
        assert!(may_have_directory(&base), "it is ours");
        if std::os::unix::fs::chown(base.join("softnet"), Some(65_534), None).is_ok() {
            assert!(may_have_directory(&base), "a daemon's, and root may write");
        }
        fs::remove_dir_all(&base).expect("it is ours");
        assert!(!may_have_directory(&base));
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let base = env::temp_dir().join(format!("softnet-directory-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir(&base).expect("it is new");
        let (own, open, link) = (base.join("own"), base.join("open"), base.join("link"));
        for (path, mode) in [(&own, 0o755), (&open, 0o777)] {
            fs::create_dir(path).expect("it is new");
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        symlink(&own, &link).expect("it is new");
        let refused = |path: &Path| check_directory(path).is_err();
        assert_eq!(
            [&own, &open, &link].map(|path| refused(path)),
            [false, true, true]
        );
        fs::remove_dir_all(&base).expect("it is ours");
    }
}
