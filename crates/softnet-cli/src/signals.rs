//! SIGHUP as a request to reload. SIGINT and SIGTERM as a request to stop: a second one ends the
//! process at once; the kernel then removes its devices and unnamed namespaces.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::failure::Exit;

/// Set by the first signal.
#[derive(Debug)]
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    /// Readable once a signal came.
    wake: UnixStream,
}

/// Catches SIGHUP from now on: it sets the flag.
pub(crate) fn on_hangup() -> io::Result<Arc<AtomicBool>> {
    let hangup = Arc::new(AtomicBool::new(false));
    flag::register(SIGHUP, hangup.clone())?;
    Ok(hangup)
}

impl Stop {
    /// Catches the signals from now on. Starts no thread.
    pub(crate) fn on_signals() -> io::Result<Stop> {
        let stop = Arc::new(AtomicBool::new(false));
        let (wake, write) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset, so only the second one shuts
            // down.
            flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, stop.clone())?;
            flag::register(signal, stop.clone())?;
            low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Stop { flag: stop, wake })
    }

    /// The flag, for threads that look now and then.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }

    /// A file that is readable once a signal came.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// True if a signal came.
    pub(crate) fn requested(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Waits for a signal, at most for `timeout`; whether one came.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // Interrupted or failed: the flag tells all the same.
        let _ = poll(
            &mut [PollFd::new(&self.wake, PollFlags::IN)],
            Some(&timeout),
        );
        self.requested()
    }
}
