//! Where the programs of peers come from: a folder with a newer system in it (`SOFTNET_PEERS=DIR`,
//! entered by chroot), or else what is installed here.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;

/// A system that has programs.
#[derive(Debug, Clone)]
pub struct Place {
    root: Option<PathBuf>,
}

impl Place {
    /// The folder that the environment names, or this system.
    pub fn of_peers() -> Place {
        let root = std::env::var_os("SOFTNET_PEERS").filter(|dir| !dir.is_empty());
        Place {
            root: root.map(PathBuf::from),
        }
    }

    /// Where `inside`, an absolute path of the place, is for us.
    pub fn outside(&self, inside: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(inside.strip_prefix("/").unwrap_or(inside)),
            None => inside.to_owned(),
        }
    }

    /// The path inside the place for our path `outside`.
    pub fn inside(&self, outside: &Path) -> PathBuf {
        let root = self.root.as_deref();
        match root.and_then(|root| outside.strip_prefix(root).ok()) {
            Some(rest) => Path::new("/").join(rest),
            None => outside.to_owned(),
        }
    }

    /// A folder that both we and the place's programs can reach: `ours`, or one of the place's
    /// own.
    pub fn shared(&self, ours: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join("tmp/softnet-bench"),
            None => ours.to_owned(),
        }
    }

    /// True if the place has this file.
    pub fn has(&self, inside: &Path) -> bool {
        self.outside(inside).is_file()
    }

    /// Where the place has a program.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        if self.root.is_none() {
            return process::find(name);
        }
        let folders = ["/usr/bin", "/usr/sbin"].map(Path::new);
        let programs = folders.map(|folder| folder.join(name));
        programs.into_iter().find(|program| self.has(program))
    }

    /// The program and its first arguments, to be run by `ip netns exec` or by itself.
    pub fn words<'a>(&'a self, program: &'a Path) -> Vec<&'a OsStr> {
        let mut words = Vec::new();
        if let Some(root) = &self.root {
            words.extend([OsStr::new("chroot"), root.as_os_str()]);
        }
        words.push(program.as_os_str());
        words
    }

    /// A command that runs `program`, an absolute path of the place.
    pub fn command(&self, program: &Path) -> Command {
        let words = self.words(program);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    }

    /// Why something cannot be done: a program that is missing.
    pub fn lacks(&self, what: &str, package: &str) -> String {
        match &self.root {
            Some(root) => format!("SOFTNET_PEERS={} has no {what}", root.display()),
            None => format!("{what} is not installed (package {package})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_translated_both_ways() {
        let place = |root: Option<&str>| Place {
            root: root.map(PathBuf::from),
        };
        let (folder, here) = (place(Some("/srv/peers")), place(None));
        let file = Path::new("/tmp/x/db.sock");
        let outside = Path::new("/srv/peers/tmp/x/db.sock");
        assert_eq!(folder.outside(file), outside);
        assert_eq!(folder.inside(outside), file);
        assert_eq!(here.outside(file), file);
        assert_eq!(here.inside(file), file);
        assert_eq!(
            folder.words(Path::new("/bin/ovs")),
            ["chroot", "/srv/peers", "/bin/ovs"]
        );
        assert_eq!(here.words(Path::new("/bin/ovs")), ["/bin/ovs"]);
    }
}
