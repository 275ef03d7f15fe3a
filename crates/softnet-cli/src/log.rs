//! The daemon's log on its standard error: one line an event. In the journal, each line has the
//! event's priority (sd-daemon(3)).

use std::env;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;

/// Importance of an event, by the number that syslog(3) has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// Something does not work.
    Error = 3,
    /// Something is likely wrong.
    Warning = 4,
    /// Who changed what.
    Notice = 5,
    /// All else.
    Info = 6,
}

impl Level {
    pub(crate) const ALL: [Level; 4] = [Level::Error, Level::Warning, Level::Notice, Level::Info];

    /// The least important events that are logged.
    pub(crate) fn current() -> Level {
        let number = LEVEL.load(Ordering::Relaxed);
        let known = Level::ALL.into_iter().find(|level| *level as u8 == number);
        known.unwrap_or(Level::Info)
    }

    /// Has events up to this level be logged.
    pub(crate) fn set(self) {
        LEVEL.store(self as u8, Ordering::Relaxed);
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Notice => "notice",
            Level::Info => "info",
        })
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        let known = Level::ALL
            .into_iter()
            .find(|level| level.to_string() == text);
        known.ok_or_else(|| {
            format!("{text:?} is no level; use error, warning, notice or info, which logs all")
        })
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// True if the standard error is the journal, which `$JOURNAL_STREAM` then names by device and
/// inode (systemd.exec(5)).
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stream = env::var("JOURNAL_STREAM").ok();
    let own = fstat(io::stderr()).ok();
    let own = own.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    stream.is_some() && stream == own
});

/// Logs an event of the level `info`.
pub(crate) fn log(text: impl Display) {
    log_at(Level::Info, text);
}

/// Logs an event: a line. What would block, since nobody reads the other end, is lost, and said to
/// be as soon as possible.
pub(crate) fn log_at(level: Level, text: impl Display) {
    /// Bytes that a writable pipe takes at once (`PIPE_BUF`).
    const MOST: usize = 4096;
    static LOST: AtomicU64 = AtomicU64::new(0);
    if level > Level::current() {
        return;
    }
    let mut err = io::stderr().lock();
    let ready = poll(
        &mut [PollFd::new(&err, PollFlags::OUT)],
        Some(&Timespec::default()),
    );
    if ready != Ok(1) {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let is_journal = *IS_JOURNAL;
    let mut lines = match LOST.swap(0, Ordering::Relaxed) {
        0 => String::new(),
        lost => {
            line(
                Level::Warning,
                &format!("{lost} messages were lost"),
                is_journal,
            ) + "\n"
        }
    };
    lines += &line(level, &text.to_string(), is_journal);
    lines.truncate(lines.floor_char_boundary(MOST - 1));
    lines.push('\n');
    let _ = err.write_all(lines.as_bytes());
}

/// A line without its end. Control characters, of names and of what clients sent, are escaped: no
/// event looks like two.
fn line(level: Level, text: &str, is_journal: bool) -> String {
    let mut line = match is_journal {
        true => format!("<{}>softnet: ", level as u8),
        false => "softnet: ".to_owned(),
    };
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let forged = "user 1: port set a alias=x\nsoftnet: user 0: port del b\r\u{85}";
        assert_eq!(
            line(Level::Notice, forged, false),
            "softnet: user 1: port set a alias=x\\nsoftnet: user 0: port del b\\r\\u{85}"
        );
        assert_eq!(line(Level::Error, "it", true), "<3>softnet: it");
    }

    #[test]
    fn levels_have_names() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert!("debug".parse::<Level>().is_err());
    }
}
