//! Finds the program that a user names, and tells whether it can be preloaded.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{getgid, getuid};

use super::elf::{self, Elf};
use crate::failure::{Exit, Failure};

/// As deep as the kernel follows interpreters of interpreters.
const DEPTH: u32 = 5;

/// The file that execvp(3) would run.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let mut forbidden = None;
    for file in candidates(name) {
        match fs::metadata(&file) {
            Ok(found) if found.is_file() && access(&file, Access::EXEC_OK).is_ok() => {
                return Ok(file);
            }
            Ok(_) => forbidden = Some(file),
            Err(_) => {}
        }
    }
    Err(match forbidden {
        Some(file) => {
            let text = format!("{} cannot be executed", file.display());
            Failure::new(Exit::CannotExecute, text)
        }
        None => {
            let text = format!("program {} was not found", name.display());
            Failure::new(Exit::NotFound, text)
        }
    })
}

fn candidates(name: &OsStr) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let directories = std::env::split_paths(&path);
    // An empty entry is the current directory.
    directories
        .map(|directory| Path::new(".").join(directory).join(name))
        .collect()
}

/// The way in which a program reaches the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The preload library makes its calls.
    Preloaded,
    /// A supervisor answers its system calls.
    Supervised,
}

/// The way for a program.
///
/// # Errors
/// If there is none.
pub(super) fn way(file: &Path) -> Result<Way, Failure> {
    let own = Path::new("/proc/self/exe");
    let own = File::open(own)
        .and_then(|file| Elf::read(&file))
        .map_err(|error| unreadable(own, &error))?;
    let mut file = file.to_owned();
    for _ in 0..DEPTH {
        let failed = |error: io::Error| unreadable(&file, &error);
        let (opened, start) = open(&file).map_err(failed)?;
        let status = opened.metadata().map_err(failed)?;
        if start.starts_with(elf::MAGIC) {
            let elf = Elf::read(&opened).map_err(failed)?;
            let why = match obstacle(&elf, &own) {
                Some(Obstacle::Machine) => "it is made for another machine than softnet".into(),
                obstacle => match privilege(&opened, &status) {
                    Some(why) => why,
                    None if obstacle.is_none() => return Ok(Way::Preloaded),
                    None => return Ok(Way::Supervised),
                },
            };
            return Err(Failure::new(
                Exit::CannotExecute,
                format!("{} cannot be preloaded: {why}", file.display()),
            ));
        }
        match interpreter(&start) {
            Some(next) => file = next,
            // execvp(3) gives what is no program to the shell.
            None => file = PathBuf::from("/bin/sh"),
        }
    }
    let text = format!("{}: too many interpreters", file.display());
    Err(Failure::new(Exit::CannotExecute, text))
}

fn unreadable(file: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot examine {}", file.display());
    Failure::because(Exit::CannotExecute, what, error)
}

/// The file and its first bytes.
fn open(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(256).read_to_end(&mut start)?;
    Ok((file, start))
}

/// The interpreter that a script's first line names.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    Some(OsString::from_vec(words.next()?.to_vec()).into())
}

/// Reason for which a program cannot load the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// It is made for another machine.
    Machine,
    /// System calls are not the C library's: a Go program, one that is statically linked, or
    /// with another C library.
    OwnCalls,
}

/// Why a program of this kind cannot load the library; `own` is Softnet's own program, for whose
/// machine and C library it is made.
fn obstacle(elf: &Elf, own: &Elf) -> Option<Obstacle> {
    let name = |loader: &str| loader.rsplit('/').next().map(str::to_owned);
    if elf.machine != own.machine {
        return Some(Obstacle::Machine);
    }
    let loaders = (&elf.loader, &own.loader);
    let same = matches!(loaders, (Some(one), Some(own)) if name(one) == name(own));
    (elf.is_go || !same).then_some(Obstacle::OwnCalls)
}

/// Why the loader would ignore libraries that the environment names: the program gains privileges.
fn privilege(file: &File, status: &Metadata) -> Option<String> {
    const SET_USER: u32 = 0o4000;
    /// Without the group's execute bit it means something else.
    const SET_GROUP: u32 = 0o2010;
    let (user, group) = (getuid(), getgid());
    let mode = status.mode();
    let gains = if mode & SET_USER != 0 && status.uid() != user.as_raw() {
        "set-user-ID"
    } else if mode & SET_GROUP == SET_GROUP && status.gid() != group.as_raw() {
        "set-group-ID"
    } else if !user.is_root()
        && rustix::fs::fgetxattr(file, "security.capability", &mut [0_u8; 64]).is_ok()
    {
        "has file capabilities"
    } else {
        return None;
    };
    Some(format!(
        "it gains privileges ({gains}); run softnet as that user instead"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_interpreter() {
        for (start, expected) in [
            ("#!/bin/sh\necho", Some("/bin/sh")),
            ("#! /usr/bin/env python3", Some("/usr/bin/env")),
            ("#!\n/bin/sh", None),
            ("echo", None),
            ("", None),
        ] {
            let found = interpreter(start.as_bytes());
            assert_eq!(found.as_deref(), expected.map(Path::new), "{start:?}");
        }
    }

    #[test]
    fn programs_without_the_c_library_have_an_obstacle() {
        let own = Elf::read(&File::open("/proc/self/exe").expect("ourselves")).expect("an ELF");
        assert_eq!(obstacle(&own, &own), None);
        let elf = |change: &dyn Fn(&mut Elf)| {
            let mut elf = own.clone();
            change(&mut elf);
            obstacle(&elf, &own).expect("refused")
        };
        assert_eq!(elf(&|elf| elf.loader = None), Obstacle::OwnCalls);
        assert_eq!(elf(&|elf| elf.is_go = true), Obstacle::OwnCalls);
        let musl = "/lib/ld-musl-x86_64.so.1";
        let other = elf(&|elf| elf.loader = Some(musl.to_owned()));
        assert_eq!(other, Obstacle::OwnCalls);
        // The same loader elsewhere.
        let mut moved = own.clone();
        moved.loader = own
            .loader
            .as_ref()
            .map(|loader| format!("/nix/store{loader}"));
        assert_eq!(obstacle(&moved, &own), None);
    }
}
