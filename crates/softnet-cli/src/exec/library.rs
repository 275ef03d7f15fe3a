//! Puts the preload library where the dynamic loader of the program, and of all that it starts,
//! finds it.
//!
//! A file with a name: programs close the descriptors that they do not know, so that a memfd would
//! be gone for the programs that they start. It stays: nobody knows when the last of them ends.
//! The name has a checksum of the content, so that each version of Softnet has one file.
//!
//! Only the user may write there. The others may read, for programs that give up root.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, StatVfsMountFlags, fstatvfs};
use rustix::process::geteuid;

use crate::failure::{Exit, Failure};

/// Installs the library, unless it is there, and returns its path.
pub(super) fn install() -> Result<PathBuf, Failure> {
    let library = softnet_shim::LIBRARY.map_err(|why| {
        let text = format!("this softnet was built without the preload library: {why}");
        Failure::new(Exit::ExecFailed, text)
    })?;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = [Some(std::env::temp_dir()), runtime];
    let mut reasons = Vec::new();
    for place in places.iter().flatten() {
        let directory = place.join(format!("softnet-{}", geteuid().as_raw()));
        match install_in(place, &directory, library) {
            Ok(path) => return Ok(path),
            Err(why) => reasons.push(format!("{}: {why}", directory.display())),
        }
    }
    let text = format!("cannot install the preload library: {}", reasons.join("; "));
    Err(Failure::new(Exit::ExecFailed, text))
}

fn install_in(place: &Path, directory: &Path, library: &[u8]) -> io::Result<PathBuf> {
    // Separators of LD_PRELOAD, and what the loader replaces.
    let unfit = |byte: &u8| b" :;$".contains(byte) || byte.is_ascii_whitespace();
    if !place.is_absolute() || place.as_os_str().as_bytes().iter().any(unfit) {
        return Err(io::Error::other("the path cannot be in LD_PRELOAD"));
    }
    // Who can rename entries here could put another directory in its place.
    let found = fs::metadata(place)?;
    let ours = geteuid().as_raw();
    let sticky_or_private = found.mode() & 0o1000 != 0 || found.mode() & 0o022 == 0;
    if !sticky_or_private || found.uid() != ours && found.uid() != 0 {
        return Err(io::Error::other(
            "other users can change the directory above",
        ));
    }
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed())
        .open(directory)?;
    let found = opened.metadata()?;
    if found.uid() != ours || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("another user made it, or can write there"));
    }
    if fstatvfs(&opened)?
        .f_flag
        .contains(StatVfsMountFlags::NOEXEC)
    {
        return Err(io::Error::other("it is mounted without leave to execute"));
    }
    let path = directory.join(format!("preload-{:016x}.so", checksum(library)));
    if !holds(&path, library) {
        write(&path, library)?;
    }
    Ok(path)
}

/// Whether the file is there, whole and readable for all.
fn holds(path: &Path, library: &[u8]) -> bool {
    let mut content = Vec::new();
    let opened = File::open(path);
    opened.is_ok_and(|file| {
        let mode = file.metadata().map(|found| found.mode() & 0o777);
        let most = library.len() as u64 + 1;
        let read = file.take(most).read_to_end(&mut content);
        mode.is_ok_and(|mode| mode == MODE) && read.is_ok() && content == library
    })
}

const MODE: u32 = 0o555;

/// Writes it under another name, then renames it: a loader sees the whole file or none.
fn write(path: &Path, library: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    // Left by a process of the same number that was killed.
    let _ = fs::remove_file(&temporary);
    let result = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(library)?;
            file.set_permissions(fs::Permissions::from_mode(MODE))?;
            fs::rename(&temporary, path)
        });
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
