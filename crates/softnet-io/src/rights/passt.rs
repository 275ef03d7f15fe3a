//! passt as a port's uplink: user-mode networking (`passt(1)`), started for the port by the one
//! who may start programs.
//!
//! It speaks the frames of a stream port over a connected socket, its standard input, and ends when
//! the other end is closed. Started by root it becomes `nobody`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::ledger::Program;
use super::{AskError, Ledger, Performed, Privileged, ask, tell};

/// MTUs that passt can be told.
const MTUS: std::ops::RangeInclusive<u32> = 68..=65_520;
/// Bytes of its last words that are looked at.
const WORDS: usize = 4096;
/// Bytes that a pipe holds: `pipe(7)`.
const PIPE: usize = 65_536;

/// Pauses before another one is started.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Why passt is not there.
#[derive(Debug, thiserror::Error)]
pub enum PasstError {
    /// Not installed, or it may not be run.
    #[error("cannot start passt; install the package passt")]
    Start(#[source] io::Error),
    /// Sockets and pipes.
    #[error("cannot start passt")]
    System(#[from] io::Error),
    /// A bound of this process.
    #[error("too many programs run for ports")]
    TooMany,
}

/// Starts passt.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    mtu: u32,
}

/// Asks how a program ended. One that runs is ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    program: u64,
}

impl Privileged for Start {
    type Answer = u64;
    type Error = PasstError;
    const OF_NETWORK: bool = false;

    fn perform(self, _: Vec<OwnedFd>, ledger: &Ledger) -> Performed<u64, PasstError> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mtu = self.mtu.clamp(*MTUS.start(), *MTUS.end()).to_string();
        let mut child = Command::new("passt")
            .args(["--foreground", "--fd", "0", "--mtu", &mtu])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(PasstError::Start)?;
        let words = child.stderr.take().map(OwnedFd::from);
        let number = ledger.note_program(Program(child));
        let number = number.ok_or(PasstError::TooMany)?;
        let files = [Some(OwnedFd::from(ours)), words];
        Ok((number, files.into_iter().flatten().collect()))
    }
}

impl Privileged for End {
    type Answer = String;
    type Error = PasstError;
    const OF_NETWORK: bool = false;

    fn perform(self, _: Vec<OwnedFd>, ledger: &Ledger) -> Performed<String, PasstError> {
        let ended = match ledger.forget_program(self.program) {
            Some(program) => program.end()?.to_string(),
            None => "ended".to_owned(),
        };
        Ok((ended, Vec::new()))
    }
}

/// A passt that runs for a port.
#[derive(Debug)]
pub struct Passt {
    /// Number, for the one who started it.
    program: Option<u64>,
    /// Standard error of the program: reasons. None at its end.
    words: Option<OwnedFd>,
    /// Last of what it said.
    said: Vec<u8>,
    started: Instant,
}

impl Passt {
    /// Starts it. The socket is its end of the port: four bytes of length, and a frame; it does not
    /// block.
    ///
    /// # Errors
    /// If it is not installed, or not allowed.
    pub fn start(mtu: u32) -> Result<(Passt, OwnedFd), AskError<PasstError>> {
        let (program, files) = ask(None, Start { mtu }, &[])?;
        let mut files = files.into_iter();
        let missing = || AskError::Channel(io::ErrorKind::InvalidData.into());
        let socket = files.next().ok_or_else(missing)?;
        let passt = Passt {
            program: Some(program),
            words: files.next(),
            said: Vec::new(),
            started: Instant::now(),
        };
        Ok((passt, socket))
    }

    /// Readable when it says something, or ends. It stands still if nobody [listens](Passt::listen)
    /// and the pipe is full.
    pub(crate) fn words(&self) -> Option<&OwnedFd> {
        self.words.as_ref()
    }

    /// Reads what it says, and keeps the last of it. Blocks until it says something, or ends.
    pub(crate) fn listen(&mut self) {
        let mut some = [0; WORDS];
        let read = self
            .words
            .as_ref()
            .map(|file| rustix::io::read(file, &mut some));
        match read {
            Some(Err(rustix::io::Errno::INTR)) => {}
            Some(Ok(length)) if length > 0 => {
                self.said.extend_from_slice(&some[..length]);
                self.said.drain(..self.said.len().saturating_sub(WORDS));
            }
            _ => self.words = None,
        }
    }

    /// Why it ended, in a line. Call it once the socket is at its end, or closed: passt ends then.
    pub fn ended(mut self) -> String {
        let ended = self.program.take().map(|program| {
            let asked = ask(None, End { program }, &[]);
            asked.map_or_else(|error| error.to_string(), |(how, _)| how)
        });
        let how = ended.unwrap_or_default();
        // It has ended: what it wrote is there, and the end of it; a pipe does not hold more.
        for _ in 0..PIPE / WORDS {
            self.listen();
        }
        let words = String::from_utf8_lossy(&self.said);
        let last = last_words(&words);
        match last.is_empty() {
            true => format!("passt: {how}"),
            false => format!("passt: {how}: {last}"),
        }
    }

    /// Time until the next one is started, after the last time was `pause`: short after one that
    /// worked for a while, else twice the last, at most a minute.
    pub fn pause(&self, pause: Duration) -> Duration {
        match self.started.elapsed() > LONGEST {
            true => FIRST,
            false => Passt::longer(pause),
        }
    }

    /// Twice the last pause, within bounds.
    pub(crate) fn longer(pause: Duration) -> Duration {
        (pause * 2).clamp(FIRST, LONGEST)
    }
}

impl Drop for Passt {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            tell(End { program });
        }
    }
}

/// Last line that is not about the log of the system itself, which older versions complain of.
fn last_words(text: &str) -> &str {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.ends_with("to syslog"));
    lines.next_back().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_may_say_more_than_a_pipe_holds() {
        let (ours, theirs) = rustix::pipe::pipe().expect("a pipe");
        let mut passt = Passt {
            program: None,
            words: Some(ours),
            said: Vec::new(),
            started: Instant::now(),
        };
        let speaker = std::thread::spawn(move || {
            use std::io::Write as _;
            let mut file = std::fs::File::from(theirs);
            for line in 0..8000 {
                writeln!(file, "line {line} of many").expect("somebody listens");
            }
        });
        while passt.words().is_some() {
            passt.listen();
        }
        speaker.join().expect("it said all");
        assert!(passt.said.len() <= WORDS);
        assert_eq!(passt.ended(), "passt: : line 7999 of many");
    }

    #[test]
    fn the_reason_is_the_last_thing_said() {
        let text = "Template interface: v0\nFailed to send 5 bytes to syslog\nNo routes\n\n\
                    Failed to send 9 bytes to syslog\n";
        assert_eq!(last_words(text), "No routes");
        assert_eq!(last_words(""), "");
    }
}
