//! Things that must not be left behind, whatever ends the program: processes, network namespaces,
//! directories.
//!
//! Everything of the kind is made inside [`make`], which writes it into one list. A [`Guard`]
//! removes it when dropped; a signal or a panic (which aborts a release build) removes whatever
//! the list holds, the newest first.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A thing to remove.
#[derive(Debug, Clone)]
pub enum Leftover {
    /// A child process that leads a process group, not yet waited for: its number cannot have been
    /// given to another process or group.
    Process(Pid),
    /// A namespace made with `ip netns add`.
    Netns(String),
    /// A directory with all that is in it.
    Directory(PathBuf),
    /// So much of something that was taken from the system, and how it is given back.
    Taken(u64, fn(u64) -> io::Result<()>),
}

impl Leftover {
    fn remove(&self) {
        // Each may be gone already, and there is nobody to tell: best effort.
        match self {
            Leftover::Process(pid) => {
                let _ = rustix::process::kill_process_group(*pid, Signal::KILL);
            }
            Leftover::Netns(name) => {
                let _ = std::process::Command::new("ip")
                    .args(["netns", "del", name])
                    .output();
            }
            Leftover::Directory(path) => {
                let _ = std::fs::remove_dir_all(path);
            }
            Leftover::Taken(amount, give_back) => {
                let _ = give_back(*amount);
            }
        }
    }
}

#[derive(Debug)]
struct List {
    /// The program is ending: nothing may be made any more.
    closed: bool,
    next: u64,
    entries: Vec<(u64, Leftover)>,
}

static LIST: Mutex<List> = Mutex::new(List {
    closed: false,
    next: 0,
    entries: Vec::new(),
});

fn list() -> MutexGuard<'static, List> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes one thing when dropped.
#[derive(Debug)]
pub struct Guard(u64);

impl Guard {
    /// Takes the thing off the list without removing it.
    pub fn disarm(&self) {
        list().entries.retain(|(id, _)| *id != self.0);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut list = list();
        if let Some(at) = list.entries.iter().position(|(id, _)| *id == self.0) {
            let (_, leftover) = list.entries.remove(at);
            drop(list);
            leftover.remove();
        }
    }
}

/// Makes a thing and puts it on the list, as one step as far as signals are concerned. Does not
/// return if the program is ending.
pub fn make<T, E>(make: impl FnOnce() -> Result<(T, Leftover), E>) -> Result<(T, Guard), E> {
    let mut list = list();
    while list.closed {
        drop(list);
        std::thread::park();
        list = self::list();
    }
    let (made, leftover) = make()?;
    let id = list.next;
    list.next += 1;
    list.entries.push((id, leftover));
    Ok((made, Guard(id)))
}

fn remove_all(list: &mut List) {
    list.closed = true;
    for (_, leftover) in list.entries.drain(..).rev() {
        leftover.remove();
    }
}

/// Does not return if the program is ending by a signal: what fails then fails because its things
/// were removed, and the thread that removes them ends the program with the signal's exit code.
pub fn wait_if_ending() {
    while list().closed {
        std::thread::park();
    }
}

/// From now on SIGINT, SIGTERM, SIGHUP and panics clean up before the program ends.
pub fn on_signals_and_panics() -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                remove_all(&mut list());
                std::process::exit(128 + signal);
            }
        })?;
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        // In a release build a panic ends the program. The panicking thread may hold the list.
        if cfg!(panic = "abort")
            && let Ok(mut list) = LIST.try_lock()
        {
            remove_all(&mut list);
        }
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_removes_and_a_disarmed_one_does_not() {
        let base =
            std::env::temp_dir().join(format!("softnet-bench-guard-{}", std::process::id()));
        for (name, disarm) in [("kept", true), ("gone", false)] {
            let path = base.join(name);
            let made = make(|| {
                std::fs::create_dir_all(&path)?;
                Ok::<_, io::Error>(((), Leftover::Directory(path.clone())))
            });
            let ((), guard) = made.expect("the temporary directory is writable");
            if disarm {
                guard.disarm();
            }
            drop(guard);
            assert_eq!(path.exists(), disarm);
        }
        std::fs::remove_dir_all(&base).expect("it was made above");
    }
}
