//! Files that this process was started with (sd_listen_fds(3)).

#![allow(unsafe_code, reason = "files that are known by number become owned")]

use std::env;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Number of the first file (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;
/// More than a service manager passes on.
const MOST: i32 = 65_536;

/// Numbers and names of the files.
fn inherited() -> Vec<(i32, String)> {
    let number = |name: &str| env::var(name).ok()?.parse::<i32>().ok();
    if number("LISTEN_PID") != i32::try_from(std::process::id()).ok() {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, MOST);
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').map(str::to_owned);
    (FIRST..FIRST + count).zip(names).collect()
}

/// Number of the first file of this name.
pub(crate) fn inherited_number(name: &str) -> Option<i32> {
    let mut files = inherited().into_iter();
    files.find_map(|(number, known)| (known == name).then_some(number))
}

/// Takes the files whose names begin so, with the rest of their names; others stay open. No program
/// that this process starts gets any of them. To be called once, before the process opens files or
/// starts threads.
pub fn inherited_files(prefix: &str) -> Vec<(String, OwnedFd)> {
    let ours = inherited().into_iter().filter_map(|(number, name)| {
        // SAFETY: it is borrowed for this call, which says whether the file is there.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let flags = fcntl_getfd(file).ok()?;
        fcntl_setfd(file, flags | FdFlags::CLOEXEC).ok()?;
        let name = name.strip_prefix(prefix)?;
        // SAFETY: the file is open, and nobody else in this process has it: it has opened none yet,
        // and numbers are taken once.
        Some((name.to_owned(), unsafe { OwnedFd::from_raw_fd(number) }))
    });
    ours.collect()
}
