//! Opening the files, by whoever may.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::{Deserialize, Serialize};

use crate::NetnsSpec;
use crate::rights::{self, AskError, Ledger, Performed, Privileged, Subject};

/// Opens a file of packets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenFile {
    path: PathBuf,
    write: bool,
}

impl Privileged for OpenFile {
    type Answer = ();
    type Error = io::Error;
    const OF_NETWORK: bool = false;

    fn subject(&self, _: Option<&NetnsSpec>) -> Option<Subject> {
        Some(Subject::File(self.path.clone()))
    }

    fn perform(self, _: Vec<OwnedFd>, _: &Ledger) -> Performed<(), io::Error> {
        let mut options = File::options();
        match self.write {
            true => options.write(true).create(true).truncate(true),
            false => options.read(true),
        };
        // A named pipe without another side is not waited for.
        let file = options.custom_flags(libc::O_NONBLOCK).open(&self.path)?;
        let flags = fcntl_getfl(&file)? - OFlags::NONBLOCK;
        fcntl_setfl(&file, flags)?;
        Ok(((), vec![file.into()]))
    }
}

/// Opens a file to read, or to write in the place of one that is there.
pub(super) fn open(path: &Path, write: bool) -> io::Result<File> {
    let path = path.to_owned();
    let asked = rights::ask(None, OpenFile { path, write }, &[]);
    let ((), files) = asked.map_err(|error| match error {
        AskError::Own(error) => error,
        error => io::Error::other(error),
    })?;
    let file = files.into_iter().next();
    let file = file.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(file.into())
}
