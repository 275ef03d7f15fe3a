//! Files that are replaced whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::{AskError, Ledger, Performed, Privileged, Subject, ask};
use crate::NetnsSpec;

/// Longest content, in bytes.
const LONGEST: u64 = 256 << 20;

/// Replaces a file by the content of the one that comes along.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    path: PathBuf,
}

impl Privileged for WriteFile {
    type Answer = ();
    type Error = io::Error;
    const OF_NETWORK: bool = false;

    fn subject(&self, _: Option<&NetnsSpec>) -> Option<Subject> {
        Some(Subject::File(self.path.clone()))
    }

    fn perform(self, files: Vec<OwnedFd>, _: &Ledger) -> Performed<(), io::Error> {
        let content = files.into_iter().next();
        let content = content.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut content = fs::File::from(content);
        let found = content.metadata()?;
        if !found.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // A part of it is not what was asked for.
        if found.len() > LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        content.rewind()?;
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        // What is left of one that was interrupted.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        let written = io::copy(&mut content.take(LONGEST), &mut file)
            .and_then(|_| file.flush())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written?;
        // The new name lasts once its directory does.
        let directory = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        fs::File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
        Ok(((), Vec::new()))
    }
}

/// Replaces a file by one with this content, which only this user may read: the old one or the new
/// one is there, also after a crash. The helper does so for files that the configuration names.
///
/// # Errors
/// If it cannot be written; the old one is there then.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), AskError<io::Error>> {
    let write = || -> io::Result<fs::File> {
        let mut file = fs::File::from(memfd_create("softnet", MemfdFlags::CLOEXEC)?);
        file.write_all(content)?;
        Ok(file)
    };
    let file = write().map_err(AskError::Channel)?;
    let path = path.to_owned();
    ask(None, WriteFile { path }, &[file.as_fd()]).map(drop)
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_written_in_part() {
        let path = std::env::temp_dir().join(format!("softnet-write-{}", std::process::id()));
        fs::write(&path, "before").expect("ours");
        let write = |length: u64| {
            let content = memfd_create("softnet", MemfdFlags::CLOEXEC).expect("memory");
            let content = fs::File::from(content);
            content.set_len(length).expect("it has holes");
            let path = path.clone();
            WriteFile { path }.perform(vec![content.into()], &Ledger::default())
        };
        let refused = write(LONGEST + 1).expect_err("it is too long");
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::read(&path).expect("it is there"), b"before");
        write(3).expect("a directory of ours");
        assert_eq!(fs::read(&path).expect("it is there"), [0; 3]);
        fs::remove_file(path).expect("ours");
    }
}
