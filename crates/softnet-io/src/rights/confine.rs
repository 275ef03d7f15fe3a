//! Giving up the rights of this process.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_no_new_privs,
};

use super::seccomp::{Threads, filter_thread, filter_threads};
use crate::Allowed;

/// Something that a process could not give up, or be given.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// Threads that run keep their rights.
    #[error("rights must be given up before the process starts threads, and {0} are running")]
    Threads(usize),
    /// The system has no such flag.
    #[error("cannot set no_new_privs")]
    NoNewPrivs(#[source] io::Error),
    /// The system does not filter system calls.
    #[error("cannot filter system calls (seccomp)")]
    Seccomp(#[from] seccompiler::Error),
    /// Capabilities are left.
    #[error("cannot give up capabilities")]
    Capabilities(#[source] io::Error),
    /// A limit.
    #[error("cannot raise the limit of {what}")]
    Limit {
        /// Thing that is limited.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Raises the limits that are raised while there are rights: open files (a port has up to 9 for
/// each pair of queues, and the usual soft limit is 1024) to what this user may have, locked
/// memory (for what drivers share with the kernel) to any, if the process may. Returns what could
/// not be raised. Without a change a limit stays what it is.
pub fn raise_limits() -> Vec<RightsError> {
    let files = getrlimit(Resource::Nofile);
    let files = Rlimit {
        current: files.maximum,
        ..files
    };
    let mut failed = Vec::new();
    if let Err(source) = setrlimit(Resource::Nofile, files) {
        failed.push(RightsError::Limit {
            what: "open files",
            source: source.into(),
        });
    }
    let locked = getrlimit(Resource::Memlock);
    let all = Rlimit {
        current: None,
        maximum: None,
    };
    let most = Rlimit {
        current: locked.maximum,
        ..locked
    };
    // As much as it may; few need it.
    let _ = setrlimit(Resource::Memlock, all).or_else(|_| setrlimit(Resource::Memlock, most));
    failed
}

/// Waits for threads that have been joined to be gone: the system still counts them until they have
/// got a CPU once more, which takes a second where realtime threads want all of it.
///
/// # Errors
/// [`RightsError::Threads`] if some run.
pub fn wait_for_threads() -> Result<(), RightsError> {
    const TIMES: usize = 3000;
    let mut threads = 0;
    for _ in 0..TIMES {
        threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        if threads <= 1 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(RightsError::Threads(threads))
}

/// Gives up what this process needs no more, before it starts threads.
///
/// - `no_new_privs`: no program that it starts has more rights than it.
/// - Workers give themselves a list of system calls when they start.
/// - With a helper, so do threads of drivers, and all threads have a list. All capabilities are
///   given up but for the one that workers may need for their `scheduling` class; [`forgo_rest`]
///   gives up that one, too.
///
/// # Errors
/// [`RightsError`]; what came before the error is given up.
pub fn confine(scheduling: Allowed) -> Result<(), RightsError> {
    wait_for_threads()?;
    set_no_new_privs(true).map_err(|e| RightsError::NoNewPrivs(e.into()))?;
    filter_threads();
    if super::client::helper().is_none() {
        return Ok(());
    }
    let failed = |e: rustix::io::Errno| RightsError::Capabilities(e.into());
    let held = capabilities(None).map_err(failed)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all() {
            // Those that this kernel does not know.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    // Older kernels have none.
    let _ = clear_ambient_capability_set();
    scheduling.drop_capabilities();
    let left = capabilities(None).map_err(failed)?.permitted;
    if !(left - scheduling.kept()).is_empty() {
        return Err(RightsError::Capabilities(io::Error::from(
            io::ErrorKind::PermissionDenied,
        )));
    }
    filter_thread(Threads::All)?;
    Ok(())
}

/// Gives up the capability that was kept for workers, once they have started.
pub fn forgo_rest() {
    if super::client::helper().is_some() {
        Allowed::NORMAL.drop_capabilities();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_files_becomes_the_highest_allowed() {
        let before = getrlimit(Resource::Nofile);
        let low = Rlimit {
            current: Some(512),
            ..before
        };
        setrlimit(Resource::Nofile, low).expect("a lower limit");
        assert!(raise_limits().is_empty());
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }

    #[test]
    fn rights_are_given_up_before_threads() {
        let refused = std::thread::spawn(|| confine(Allowed::NORMAL)).join();
        let refused = refused.expect("it does not panic");
        assert!(
            matches!(refused, Err(RightsError::Threads(2..))),
            "{refused:?}"
        );
    }
}
