//! A program that is run for a bounded time, with all that it starts.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper,
    waitpid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Time for the end of what does not want to end.
const ENDING: Duration = Duration::from_secs(5);

/// The way in which a program ended.
pub(super) enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// It was not done in time.
    Late,
    /// This process was told to end.
    Interrupted,
}

/// Runs a program in a process group of its own for `patience` at most. Nothing that it started
/// lives on, whatever group or session it went to.
pub(super) fn run(command: &mut Command, patience: Duration) -> io::Result<Ended> {
    // A shell may have started some before it became this process.
    let others = children();
    // What loses its parent becomes a child of this process.
    set_child_subreaper(Some(getpid()))?;
    let signals = Signals::caught()?;
    let mut child = command.process_group(0).spawn()?;
    let began = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(Ended::Itself(status)),
            Ok(None) if signals.came.load(Ordering::Relaxed) => break Ok(Ended::Interrupted),
            Ok(None) if began.elapsed() < patience => {}
            Ok(None) => break Ok(Ended::Late),
            Err(error) => break Err(error),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    end(&mut child, &others);
    set_child_subreaper(None)?;
    ended
}

/// Ends a program, its group, and all that this process became the parent of; not the `others`.
fn end(child: &mut Child, others: &[Pid]) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
    let until = Instant::now() + ENDING;
    loop {
        let mut left = children();
        left.retain(|pid| !others.contains(pid));
        if left.is_empty() || Instant::now() > until {
            return;
        }
        for &pid in &left {
            let _ = kill_process(pid, Signal::KILL);
        }
        for pid in left {
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// The children of this process. The number of one is not used again before it is waited for.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name, in brackets, may contain any character; state and parent follow.
        let (_, behind) = stat.rsplit_once(')')?;
        let is_child = behind.split_ascii_whitespace().nth(1)? == own;
        Pid::from_raw(pid).filter(|_| is_child)
    });
    pids.collect()
}

/// Signals that end this process. While this exists they are noted, so that it can clean up.
#[derive(Clone)]
struct Signals {
    came: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Signals {
    fn caught() -> io::Result<Signals> {
        // Handlers stay for good, and one that is over would end the process beside a new one.
        static KEPT: Mutex<Option<Signals>> = Mutex::new(None);
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signals) = &*kept {
            signals.over.store(false, Ordering::Relaxed);
            return Ok(signals.clone());
        }
        let signals = Signals {
            came: Arc::default(),
            over: Arc::default(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register_conditional_default(signal, signals.over.clone())?;
            flag::register(signal, signals.came.clone())?;
        }
        Ok(kept.insert(signals).clone())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
