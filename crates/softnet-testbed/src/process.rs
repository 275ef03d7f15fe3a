//! Programs: run to the end and read, or kept running until dropped.
//!
//! A child is taken off the clean-up list before it is waited for, never after, so that a signal
//! cannot kill a stranger that got its number. Each child leads a process group, so that its own
//! children (nginx has some) end with it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::cleanup::{self, Guard, Leftover};
use crate::error::TestbedError;
use crate::files;

/// Time that a daemon gets to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(3);

/// A daemon, stopped (SIGTERM, then SIGKILL) when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Pid,
    name: String,
    guard: Guard,
}

impl Process {
    /// Starts a daemon. Its standard output goes nowhere, its standard error to ours.
    pub fn start(command: &mut Command) -> Result<Process, TestbedError> {
        Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))
    }

    /// Starts a daemon. What it writes to either output goes to a new file of this path.
    pub fn start_into(command: &mut Command, path: &Path) -> Result<Process, TestbedError> {
        let both = File::create(path).and_then(|file| Ok((file.try_clone()?, file)));
        let (file, said) =
            both.map_err(|e| TestbedError::io(format!("writing {}", path.display()), e))?;
        Process::spawn(command.stdin(Stdio::null()).stdout(file).stderr(said))
    }

    fn spawn(command: &mut Command) -> Result<Process, TestbedError> {
        let name = describe(command);
        command.process_group(0);
        let ((child, pid), guard) = cleanup::make(|| {
            let child = command.spawn().map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => {
                    TestbedError::Unavailable(format!("`{}` is not installed", program(command)))
                }
                _ => TestbedError::io(format!("starting `{name}`"), e),
            })?;
            let pid = Pid::from_child(&child);
            Ok::<_, TestbedError>(((child, pid), Leftover::Process(pid)))
        })?;
        Ok(Process {
            child,
            pid,
            name,
            guard,
        })
    }

    /// An error if the program has ended.
    pub fn check_running(&self) -> Result<(), TestbedError> {
        if self.ended() {
            return Err(TestbedError::command(&self.name, "ended by itself"));
        }
        Ok(())
    }

    /// CPU time that the program has used, s, to a hundredth as a rule.
    pub fn cpu_s(&self) -> Result<f64, TestbedError> {
        let path = format!("/proc/{}/stat", self.pid.as_raw_nonzero());
        let stat = files::read(&path)?;
        // proc_pid_stat(5): utime and stime are the 12th and 13th field behind the name.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let fields = fields.into_iter().flat_map(str::split_whitespace);
        let ticks: u64 = fields.skip(11).take(2).flat_map(str::parse::<u64>).sum();
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Bytes of memory that it has in use now, if it runs.
    pub fn resident(&self) -> Option<u64> {
        let status = format!("/proc/{}/status", self.pid.as_raw_nonzero());
        let status = std::fs::read_to_string(status).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// True if the program has ended; it stays to be waited for.
    fn ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(
            rustix::process::waitid(WaitId::Pid(self.pid), options),
            Ok(None)
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended, and then there is nothing to stop.
        let _ = rustix::process::kill_process(self.pid, Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while !self.ended() {
            if Instant::now() > deadline {
                let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.guard.disarm();
        let _ = self.child.wait();
    }
}

/// A daemon that is talked to: lines go to its standard input, text comes from its output. Killed
/// when dropped: a program that polls may take its time to end otherwise.
#[derive(Debug)]
pub struct Dialogue {
    process: Process,
    input: ChildStdin,
    output: ChildStdout,
}

impl Dialogue {
    /// Starts it.
    pub fn start(command: &mut Command) -> Result<Dialogue, TestbedError> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(piped.stderr(Stdio::piped()))?;
        let (input, output) = (process.child.stdin.take(), process.child.stdout.take());
        let Some((input, output)) = input.zip(output) else {
            return Err(TestbedError::command(process.name.as_str(), "has no pipes"));
        };
        Ok(Dialogue {
            process,
            input,
            output,
        })
    }

    /// Writes a line.
    pub fn say(&mut self, line: &str) -> Result<(), TestbedError> {
        writeln!(self.input, "{line}")
            .map_err(|e| TestbedError::io(format!("writing to `{}`", self.process.name), e))
    }

    /// Reads until `end` comes; returns what was read.
    ///
    /// # Errors
    /// [`TestbedError::Command`] with the last line that it said, if it ends before or takes longer
    /// than `patience`.
    pub fn hear(&mut self, end: &str, patience: Duration) -> Result<String, TestbedError> {
        let deadline = Instant::now() + patience;
        let mut heard = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&heard);
            if text.contains(end) {
                return Ok(text.into_owned());
            }
            if !self.readable(deadline)? {
                return Err(TestbedError::command(
                    self.process.name.as_str(),
                    "does not answer",
                ));
            }
            let mut bytes = [0; 4096];
            let read = self.output.read(&mut bytes);
            match read
                .map_err(|e| TestbedError::io(format!("reading `{}`", self.process.name), e))?
            {
                0 => {
                    let said = read_all(self.process.child.stderr.take());
                    let mut lines = text.lines().chain(said.lines());
                    let last = lines.rfind(|line| !line.trim().is_empty());
                    let why = format!("ended: {}", last.unwrap_or("it did not say why"));
                    return Err(TestbedError::command(self.process.name.as_str(), why));
                }
                n => heard.extend(&bytes[..n]),
            }
        }
    }

    /// Waits for output, or the end.
    fn readable(&self, deadline: Instant) -> Result<bool, TestbedError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
            match poll(&mut ready, Some(&left)) {
                Ok(n) => return Ok(n > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(TestbedError::io("waiting for a program", e)),
            }
        }
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = rustix::process::kill_process_group(self.process.pid, Signal::KILL);
    }
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// [`TestbedError::Unavailable`] if it is not installed; [`TestbedError::Command`] with what it
/// said if it failed.
pub fn output(command: &mut Command) -> Result<String, TestbedError> {
    let name = describe(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = Process::spawn(command)?;
    let (stdout, stderr) = (process.child.stdout.take(), process.child.stderr.take());
    let (printed, said) = std::thread::scope(|scope| {
        let said = scope.spawn(|| read_all(stderr));
        (read_all(stdout), said.join().unwrap_or_default())
    });
    // It may have closed its output before its end: wait, but leave the reaping to `wait` below.
    let _ = rustix::process::waitid(
        WaitId::Pid(process.pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    );
    process.guard.disarm();
    let status = process
        .child
        .wait()
        .map_err(|e| TestbedError::io(format!("waiting for `{name}`"), e))?;
    if status.success() {
        return Ok(printed);
    }
    // iperf3 -J reports errors on stdout.
    let said = if said.trim().is_empty() {
        printed
    } else {
        said
    };
    Err(TestbedError::command(
        name,
        format!("{status}: {}", said.trim()),
    ))
}

fn read_all(from: Option<impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // What was read before an error is still worth showing.
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn describe(command: &Command) -> String {
    let mut text = program(command);
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// The path of a program, if it is installed: as given, or in PATH, or where daemons are.
pub fn find(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(Into::into))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_program_is_returned() {
        let printed = output(Command::new("sh").args(["-c", "echo one; echo two >&2"]));
        assert_eq!(printed.ok().as_deref(), Some("one\n"));
    }

    #[test]
    fn a_failure_carries_the_program_s_words() {
        let error = output(Command::new("sh").args(["-c", "echo sorry >&2; exit 3"]));
        let text = error.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(text.contains("sorry") && text.contains('3'), "{text}");
    }

    #[test]
    fn a_program_that_is_missing_is_unavailable() {
        let error = output(&mut Command::new("softnet-no-such-program"));
        assert!(matches!(error, Err(TestbedError::Unavailable(_))));
    }

    #[test]
    fn a_dialogue_goes_both_ways() {
        let mut cat = Dialogue::start(&mut Command::new("cat")).expect("cat is everywhere");
        let patience = Duration::from_secs(10);
        for line in ["one", "two"] {
            cat.say(line).expect("it reads");
            assert_eq!(cat.hear("\n", patience).ok(), Some(format!("{line}\n")));
        }
        let mut end = Command::new("sh");
        end.args(["-c", "echo sorry >&2"]);
        let mut end = Dialogue::start(&mut end).expect("sh is everywhere");
        let error = end.hear("ready", patience).err().map(|e| e.to_string());
        assert!(error.is_some_and(|text| text.contains("ended: sorry")));
    }

    #[test]
    fn a_daemon_ends_with_its_handle() {
        let daemon =
            Process::start(Command::new("sleep").arg("1000")).expect("sleep is everywhere");
        assert!(daemon.check_running().is_ok());
        let pid = daemon.pid;
        drop(daemon);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn both_outputs_of_a_daemon_go_to_its_file() {
        let directory = crate::hosts::Directory::private().expect("a directory");
        let path = directory.path().join("said");
        let mut talk = Command::new("sh");
        talk.args(["-c", "echo one; echo two >&2"]);
        let daemon = Process::start_into(&mut talk, &path).expect("sh is everywhere");
        while !daemon.ended() {
            std::thread::yield_now();
        }
        let said = std::fs::read_to_string(&path);
        assert_eq!(said.ok().as_deref(), Some("one\ntwo\n"));
    }

    #[test]
    fn a_daemon_that_ended_is_noticed() {
        let daemon = Process::start(&mut Command::new("true")).expect("true is everywhere");
        while !daemon.ended() {
            std::thread::yield_now();
        }
        assert!(daemon.check_running().is_err());
    }
}
