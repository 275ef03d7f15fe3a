//! Files that are replaced whole.
//!
//! A helper may outlive its daemon, in a write that takes long, and the next daemon's helper writes
//! the same file. What is new has a name that nobody else uses, and who makes it first removes all
//! others: a write that began before can no longer take the file's name afterwards. One that begins
//! later finds its daemon gone.

use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
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

    fn perform(self, files: Vec<OwnedFd>, ledger: &Ledger) -> Performed<(), io::Error> {
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
        let mut new = New::make(&self.path)?;
        // Not before: the next daemon's helper removes this one, or wrote while there was none.
        if ledger.asker_is_gone() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        io::copy(&mut content.take(LONGEST), &mut new.file)?;
        new.take_name(&self.path)?;
        Ok(((), Vec::new()))
    }
}

/// A file that is to have the name of another. One that does not get it is removed.
struct New {
    path: PathBuf,
    file: fs::File,
}

impl New {
    /// Makes one beside `old`, and removes those that others have made there.
    fn make(old: &Path) -> io::Result<New> {
        let name = old.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut name = name.to_owned();
        name.push(".new");
        for found in fs::read_dir(directory(old))? {
            let found = found?;
            let rest = found.file_name();
            let rest = rest.as_bytes().strip_prefix(name.as_bytes());
            if rest.is_some_and(is_mark) {
                // One that cannot be removed is another user's, and no helper's of this one.
                let _ = fs::remove_file(found.path());
            }
        }
        name.push(format!("-{:016x}", RandomState::new().hash_one(())));
        let path = old.with_file_name(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let file = file.open(&path)?;
        Ok(New { path, file })
    }

    /// Replaces `old`, on the disk when this returns.
    fn take_name(self, old: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, old)?;
        // The new name lasts once its directory does.
        fs::File::open(directory(old))?.sync_all()
    }
}

impl Drop for New {
    fn drop(&mut self) {
        // Its name is free if it has the other.
        let _ = fs::remove_file(&self.path);
    }
}

fn directory(path: &Path) -> &Path {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    directory.unwrap_or_else(|| Path::new("."))
}

/// The end of the name of a [`New`]; those of before had none.
fn is_mark(end: &[u8]) -> bool {
    let digits = end.strip_prefix(b"-");
    end.is_empty() || digits.is_some_and(|d| d.len() == 16 && d.iter().all(u8::is_ascii_hexdigit))
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
    use crate::rights::Channel;

    /// A directory with a file of this content.
    fn file(tag: &str) -> PathBuf {
        let directory = format!("softnet-write-{tag}-{}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        // Of a run that was killed, and had the number of this process.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("it is new");
        let path = directory.join("state");
        fs::write(&path, "before").expect("ours");
        path
    }

    fn content(text: &str) -> Vec<OwnedFd> {
        let content = memfd_create("softnet", MemfdFlags::CLOEXEC).expect("memory");
        let mut content = fs::File::from(content);
        content.write_all(text.as_bytes()).expect("memory");
        vec![content.into()]
    }

    /// Names in the directory of a file, which is then removed.
    fn end(path: &Path) -> Vec<std::ffi::OsString> {
        let found = fs::read_dir(directory(path)).expect("ours");
        let names = found.map(|found| found.expect("ours").file_name());
        let names = names.collect();
        fs::remove_dir_all(directory(path)).expect("ours");
        names
    }

    /// A helper of a dead daemon is in the middle of a write when the next daemon's begins one.
    #[test]
    fn one_that_is_late_does_not_take_the_name() {
        let path = file("late");
        fs::write(path.with_file_name("state.new"), "left").expect("ours");
        fs::write(path.with_file_name("state.news"), "another's").expect("ours");
        let read = || fs::read_to_string(&path).expect("it is there");
        let mut late = New::make(&path).expect("a directory of ours");
        late.file.write_all(b"late").expect("ours");
        let mut next = New::make(&path).expect("a directory of ours");
        next.file.write_all(b"ne").expect("ours");
        let refused = late.take_name(&path).expect_err("it was removed");
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert_eq!(read(), "before");
        next.file.write_all(b"xt").expect("ours");
        next.take_name(&path).expect("a directory of ours");
        assert_eq!(read(), "next");
        let mut names = end(&path);
        names.sort();
        assert_eq!(names, ["state", "state.news"]);
    }

    /// The next daemon may have written by the time when a dead one's helper gets to it.
    #[test]
    fn nothing_is_written_for_who_is_gone() {
        let path = file("gone");
        let (ours, theirs) = Channel::pair().expect("a pair");
        let ledger = Ledger::default();
        ledger.set_asker(theirs);
        let write = |text: &str| {
            let path = path.clone();
            WriteFile { path }.perform(content(text), &ledger)
        };
        write("alive").expect("it waits");
        drop(ours);
        let refused = write("dead").expect_err("nobody waits");
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "alive");
        assert_eq!(end(&path), ["state"]);
    }

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
