//! Things that a process with rights has made for one without: the other may change those, and
//! nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::client::is_closed;
use crate::Netns;

/// Interfaces that are remembered; the oldest are gone long ago.
const INTERFACES: usize = 65_536;
/// Sockets at a time.
const SOCKETS: usize = 16_384;

/// Programs at a time.
const PROGRAMS: usize = 256;

/// A program that runs for a port. It is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Program(pub(super) Child);

impl Program {
    /// Exit status of the program, which has been told to end: if it has not in a moment, it is
    /// killed.
    pub(super) fn end(mut self) -> io::Result<ExitStatus> {
        const MOMENT: Duration = Duration::from_millis(50);
        let end = Instant::now() + MOMENT;
        while Instant::now() < end {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(MOMENT / 50);
        }
        // It may have ended by now.
        let _ = self.0.kill();
        self.0.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, or does now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Interfaces and sockets made so far.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    /// Namespace (its inode) and index.
    interfaces: VecDeque<(u64, u32)>,
    sockets: BTreeMap<u64, SocketFile>,
    programs: BTreeMap<u64, Program>,
    next: u64,
    /// Where devices are made, if not in the helper's own namespace.
    home: Option<Netns>,
    /// The process that it is for, if that is another.
    asker: Option<Channel>,
}

/// The file of a socket, which is removed if it is still that one.
#[derive(Debug)]
pub(crate) struct SocketFile {
    /// Name.
    pub(crate) path: PathBuf,
    /// Device and inode.
    pub(crate) file: (u64, u64),
    /// The file. While this is open no other file gets the number of its inode, as the socket of
    /// the next server would on most file systems.
    pub(crate) held: OwnedFd,
}

impl SocketFile {
    /// Leaves the file where it is.
    pub(crate) fn keep(mut self) {
        // No file has it.
        self.file = (0, 0);
    }

    /// Removes the file. For who has the lock on it, for which a drop would wait.
    pub(crate) fn remove_locked(mut self) {
        let file = std::mem::take(&mut self.file);
        crate::listener::remove_own_locked(&self.path, file);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        crate::listener::remove_own(&self.path, self.file);
    }
}

impl Ledger {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where devices are made, if not in the helper's own namespace.
    pub(super) fn home(&self) -> Option<Netns> {
        self.made().home.clone()
    }

    pub(super) fn set_home(&self, home: Option<Netns>) {
        self.made().home = home;
    }

    /// Says over which connection it is asked.
    pub(super) fn set_asker(&self, asker: Channel) {
        self.made().asker = Some(asker);
    }

    /// True if nobody hears the answer: another process may have the place of who has asked.
    pub(super) fn asker_is_gone(&self) -> bool {
        self.made().asker.as_ref().is_some_and(is_closed)
    }

    /// Notes an interface that was made in, or taken from, a namespace.
    pub(crate) fn note_interface(&self, netns: u64, index: u32) {
        let mut made = self.made();
        if made.interfaces.len() >= INTERFACES {
            made.interfaces.pop_front();
        }
        made.interfaces.push_back((netns, index));
    }

    /// True if it was noted.
    pub(crate) fn has_interface(&self, netns: u64, index: u32) -> bool {
        // The one that is asked for is likely young.
        let made = self.made();
        made.interfaces
            .iter()
            .rev()
            .any(|&one| one == (netns, index))
    }

    /// Notes a socket's file, under a number. `None`: there are too many; the file is removed.
    pub(crate) fn note_socket(&self, file: SocketFile) -> Option<u64> {
        let mut made = self.made();
        if made.sockets.len() >= SOCKETS {
            return None;
        }
        made.next += 1;
        let number = made.next;
        made.sockets.insert(number, file);
        Some(number)
    }

    /// Notes a program, under a number. `None`: there are too many; it is ended.
    pub(super) fn note_program(&self, program: Program) -> Option<u64> {
        let mut made = self.made();
        if made.programs.len() >= PROGRAMS {
            return None;
        }
        made.next += 1;
        let number = made.next;
        made.programs.insert(number, program);
        Some(number)
    }

    /// The program of a number, which is no longer noted.
    pub(super) fn forget_program(&self, number: u64) -> Option<Program> {
        self.made().programs.remove(&number)
    }

    /// The socket of a number, which is no longer noted.
    pub(crate) fn forget_socket(&self, number: u64) -> Option<SocketFile> {
        self.made().sockets.remove(&number)
    }
}
