//! Keeps the state's file up to date, on a thread of its own: neither the daemon's loop nor clients
//! that change nothing wait for the disk. One write answers all changes that came before it.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use softnet_rtnl::Keep;
use softnet_rtnl::nl::Settled;

use crate::daemon::lock;
use crate::log::{Level, log_at};

/// Time after which a write that failed is tried again, unless a change comes before.
const RETRY: Duration = Duration::from_secs(1);

/// The thread.
#[derive(Debug)]
pub(crate) struct Saver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    progress: Mutex<Progress>,
    wake: Condvar,
    /// Held while the file is written, and while it is not to be.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Changes so far.
    changes: u64,
    /// Changes that the last write had, and the note if it failed.
    settled: Settled,
    stop: bool,
    /// The file is another daemon's.
    abandoned: bool,
}

impl Progress {
    fn is_idle(&mut self) -> bool {
        !self.stop && self.changes == self.settled.upto
    }
}

/// Tells the saver of changes by clients, who are answered when these are settled.
#[derive(Debug)]
pub(crate) struct Clients(Arc<Shared>);

impl Keep for Clients {
    fn changed(&mut self) -> Option<u64> {
        Some(self.0.changed())
    }

    fn settled(&self) -> Settled {
        lock(&self.0.progress).settled.clone()
    }
}

impl Shared {
    fn changed(&self) -> u64 {
        let mut progress = lock(&self.progress);
        progress.changes += 1;
        self.wake.notify_one();
        progress.changes
    }
}

impl Saver {
    /// Has `write` write the state after changes, and `settled` called after each write. An error
    /// of `write` is a sentence.
    pub(crate) fn start(
        write: impl FnMut() -> Result<(), String> + Send + 'static,
        settled: impl Fn() + Send + 'static,
    ) -> io::Result<Saver> {
        let shared = Arc::new(Shared::default());
        let builder = std::thread::Builder::new().name("saver".into());
        let thread = builder.spawn({
            let shared = shared.clone();
            move || run(&shared, write, settled)
        })?;
        Ok(Saver {
            shared,
            thread: Some(thread),
        })
    }

    /// For changes of clients.
    pub(crate) fn clients(&self) -> Clients {
        Clients(self.shared.clone())
    }

    /// Something has changed.
    pub(crate) fn changed(&self) {
        self.shared.changed();
    }

    /// Nothing is written while the guard is there.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.shared.turn)
    }

    /// Has nothing be written any more: another daemon does so now.
    pub(crate) fn abandon(&self) {
        lock(&self.shared.progress).abandoned = true;
    }

    /// True if the thread has ended by itself.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Saver {
    /// Writes once more.
    fn drop(&mut self) {
        lock(&self.shared.progress).stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, mut write: impl FnMut() -> Result<(), String>, settled: impl Fn()) {
    let mut failed: Option<String> = None;
    loop {
        let progress = lock(&shared.progress);
        let retry = match failed {
            None => Duration::MAX,
            Some(_) => RETRY,
        };
        let waited = shared
            .wake
            .wait_timeout_while(progress, retry, Progress::is_idle);
        let progress = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        // What comes from now on is for the next write.
        let (upto, stop) = (progress.changes, progress.stop);
        drop(progress);
        let turn = lock(&shared.turn);
        if lock(&shared.progress).abandoned {
            return;
        }
        let error = write().err();
        drop(turn);
        match &error {
            Some(error) if failed.as_ref() != Some(error) => {
                log_at(Level::Error, format_args!("state: not written: {error}"));
            }
            None if failed.is_some() => log_at(Level::Notice, "state: written again"),
            _ => {}
        }
        let note = error.as_ref().map(|error| {
            format!(
                "it is in effect, but a restart may forget it: the state is not written: {error}"
            )
        });
        lock(&shared.progress).settled = Settled { upto, note };
        failed = error;
        settled();
        if stop {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    type Bench = (
        Saver,
        Sender<Result<(), String>>,
        Receiver<()>,
        Receiver<()>,
    );

    /// A saver whose writes wait for their results, and what tells of each write and its end.
    fn saver() -> Bench {
        let (results, result) = channel();
        let (begins, began) = channel();
        let (ends, ended) = channel();
        let write = move || {
            let _ = begins.send(());
            // Dropping the other end has all succeed.
            result.recv().unwrap_or(Ok(()))
        };
        let saver = Saver::start(write, move || _ = ends.send(()));
        (saver.expect("a thread"), results, began, ended)
    }

    #[test]
    fn one_write_answers_all_that_came_before_it() {
        let (saver, results, began, ended) = saver();
        let mut clients = saver.clients();
        assert_eq!(clients.changed(), Some(1));
        began.recv().expect("a write");
        // The write that is under way may lack these.
        assert_eq!((clients.changed(), clients.changed()), (Some(2), Some(3)));
        assert_eq!(clients.settled().upto, 0);
        results.send(Ok(())).expect("it waits");
        ended.recv().expect("the end");
        assert_eq!(clients.settled().upto, 1);
        results.send(Ok(())).expect("it waits");
        ended.recv().expect("the end");
        let settled = Settled {
            upto: 3,
            note: None,
        };
        assert_eq!(clients.settled(), settled);
        drop(results);
        drop(saver);
        assert_eq!(began.iter().count(), 2, "and once at the end");
    }

    #[test]
    fn what_is_abandoned_is_not_written() {
        let (saver, _results, began, _ended) = saver();
        let turn = saver.hold();
        saver.changed();
        saver.abandon();
        drop(turn);
        drop(saver);
        assert_eq!(began.iter().count(), 0);
    }

    #[test]
    fn a_write_that_failed_is_told_and_tried_again() {
        let (saver, results, began, ended) = saver();
        let mut clients = saver.clients();
        clients.changed();
        results.send(Err("no space".to_owned())).expect("it waits");
        ended.recv().expect("the end");
        let settled = clients.settled();
        assert_eq!(settled.upto, 1);
        assert!(
            settled
                .note
                .is_some_and(|note| note.ends_with(": no space"))
        );
        results.send(Ok(())).expect("it waits");
        ended.recv().expect("it is tried again without a change");
        assert_eq!(clients.settled().note, None);
        drop((results, saver));
        assert_eq!(began.iter().count(), 3);
    }
}
