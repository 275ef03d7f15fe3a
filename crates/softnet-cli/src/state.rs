//! `[engine] state`: the running state in a file, so that a restart forgets nothing.
//!
//! The file is what `dump-config` prints, after a line with the hash of the configuration that it
//! grew from and the names of what was added at run time. It is replaced whole: a crash leaves the
//! old one or the new one. A copy that is cut off lacks the last line, and is none: many a text
//! without its end is valid, and has a port without its limit. One that another user could have
//! written is none either: it says what is opened, by the rights of this one.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use softnet_io::rights::write_file;

use crate::change;
use crate::config::{self, Config};
use crate::reload::Added;

/// Start of the first line.
const MARK: &str = "# softnet-state ";
/// The last line.
const END: &str = "# softnet-state ends";
/// Version of the first line.
const VERSION: u32 = 1;

/// First line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u32,
    /// Hash of the configuration's text.
    configuration: String,
    ports: BTreeSet<String>,
    rate_groups: BTreeSet<String>,
    /// There is a last line. Older states have none.
    #[serde(default)]
    ends: bool,
}

/// A state to be written.
#[derive(Debug)]
pub(crate) struct State {
    pub added: Added,
    pub running: Config,
}

/// A state that was read.
#[derive(Debug)]
pub(crate) struct Saved {
    pub config: Config,
    pub added: Added,
    /// True if the configuration is the one that it grew from.
    pub is_of: bool,
}

/// Problems with the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("{0}: cannot be read")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0}: {1}, so that a state there may be another user's, and is not taken")]
    Foreign(PathBuf, String),
    #[error("{0}: is no state of this version of softnet")]
    Head(PathBuf),
    #[error("{0}: is cut off")]
    End(PathBuf),
    #[error("{0}")]
    Config(#[from] config::ConfigError),
    #[error("{0}: cannot be written")]
    Write(PathBuf, #[source] io::Error),
}

/// Reads a state. `None`: there is none yet. `hash` is of the configuration as it is now.
pub(crate) fn read(path: &Path, hash: &str, workers: usize) -> Result<Option<Saved>, StateError> {
    match text(path) {
        Ok(text) => parse(path, &text, hash, workers).map(Some),
        Err(StateError::Read(_, why)) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of a state that nobody else could have written.
fn text(path: &Path) -> Result<String, StateError> {
    let failed = |why| StateError::Read(path.to_owned(), why);
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = parent.unwrap_or_else(|| Path::new("."));
    check_owner(directory, &fs::metadata(directory).map_err(failed)?)?;
    let mut file = fs::File::open(path).map_err(failed)?;
    check_owner(path, &file.metadata().map_err(failed)?)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Refuses a file, or its directory, that neither root nor this user has made, or that others can
/// write. In a directory with the sticky bit, as `/tmp`, each one's files are his own.
fn check_owner(path: &Path, found: &fs::Metadata) -> Result<(), StateError> {
    let refused = |why: String| Err(StateError::Foreign(path.to_owned(), why));
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return refused(format!("belongs to user {owner}"));
    }
    if mode & 0o022 != 0 && !(found.is_dir() && mode & 0o1000 != 0) {
        return refused(format!("can be written by others (mode {mode:o})"));
    }
    Ok(())
}

/// The state in a text, which is from `path`.
pub(crate) fn parse(
    path: &Path,
    text: &str,
    hash: &str,
    workers: usize,
) -> Result<Saved, StateError> {
    let head = text.lines().next().and_then(|line| line.strip_prefix(MARK));
    let head: Option<Head> = head.and_then(|head| serde_json::from_str(head).ok());
    let head = head.filter(|head| head.version == VERSION);
    let head = head.ok_or_else(|| StateError::Head(path.to_owned()))?;
    if head.ends && !text.trim_end().ends_with(END) {
        return Err(StateError::End(path.to_owned()));
    }
    let file = path.display().to_string();
    let (config, _) = config::checked(&file, text, Some(workers))?;
    Ok(Saved {
        config,
        added: Added {
            ports: head.ports,
            rate_groups: head.rate_groups,
        },
        is_of: head.configuration == hash,
    })
}

impl State {
    /// Text of the state.
    pub(crate) fn text(self) -> Result<String, serde_json::Error> {
        let State { added, running } = self;
        let head = Head {
            version: VERSION,
            configuration: running.hash.clone(),
            ports: added.ports,
            rate_groups: added.rate_groups,
            ends: true,
        };
        let head = serde_json::to_string(&head)?;
        Ok(format!("{MARK}{head}\n{}{END}\n", config::write(&running)))
    }

    /// Replaces the file that the configuration names, on the disk when this returns.
    pub(crate) fn write(self) -> Result<(), StateError> {
        let Some(path) = self.running.state.clone() else {
            return Ok(());
        };
        let failed = |why| StateError::Write(path.clone(), why);
        let text = self.text().map_err(|why| failed(why.into()))?;
        write_file(&path, text.as_bytes()).map_err(|why| failed(io::Error::other(why)))
    }
}

/// State to start with after the configuration was edited: the file's objects are as the
/// file says, what was added at run time stays. Lines say what differs from the state.
pub(crate) fn merge(file: &Config, saved: &Saved) -> (Config, Added, String) {
    let mut config = file.clone();
    let (added, notes) = crate::reload::keep_added(&mut config, &saved.config.links, &saved.added);
    let notes = notes.iter().map(|note| format!("{note}\n"));
    let lines = change::difference(&saved.config, &config) + &notes.collect::<String>();
    (config, added, lines)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    const FILE: &str = "[engine]\nworkers = 1\nbuffers = 256\n\
        [[port]]\nname = \"a\"\ndriver = \"null\"\n[[bridge]]\nname = \"br0\"\nports = [\"a\"]\n";

    fn config(text: &str) -> Config {
        config::checked("x.toml", text, None).expect("valid").0
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }

    /// A directory of ours alone.
    fn folder(tag: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("softnet-{tag}-{}", std::process::id()));
        // Of a run that was killed, and had the number of this process.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("it is new");
        mode(&path, 0o700);
        path
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let folder = folder("state");
        let path = folder.join("state");
        let none = read(&path, "1", 1).expect("no file is no error");
        assert!(none.is_none());
        let more = FILE.replace("[\"a\"]", "[\"a\", \"b\"]")
            + "[[port]]\nname = \"b\"\ndriver = \"null\"\n";
        let running = config(&more);
        let added = Added {
            ports: BTreeSet::from(["b".to_owned()]),
            rate_groups: BTreeSet::new(),
        };
        for hash in ["1", "2"] {
            let mut state = State {
                added: added.clone(),
                running: running.clone(),
            };
            (state.running.state, state.running.hash) = (Some(path.clone()), hash.to_owned());
            state.write().expect("a directory of ours");
            let saved = read(&path, "2", 1).expect("valid").expect("there");
            assert_eq!(
                (saved.config.links, saved.added),
                (running.links.clone(), added.clone())
            );
            assert_eq!(saved.is_of, hash == "2");
        }
        let whole = fs::read_to_string(&path).expect("it is there");
        for (end, _) in whole.trim_end().match_indices('\n') {
            let cut = parse(&path, &whole[..end], "2", 1);
            assert!(matches!(cut, Err(StateError::End(_))), "at {end}: {cut:?}");
        }
        for bad in ["", "[engine]\n", "# softnet-state {\"version\":2}\n"] {
            fs::write(&path, bad).expect("ours");
            assert!(
                matches!(read(&path, "1", 1), Err(StateError::Head(_))),
                "{bad}"
            );
        }
        let text = format!(
            "{MARK}{}\n[[port]]\n",
            r#"{"version":1,"configuration":"1","ports":[],"rate_groups":[]}"#
        );
        fs::write(&path, text).expect("ours");
        assert!(matches!(read(&path, "1", 1), Err(StateError::Config(_))));
        fs::remove_dir_all(folder).expect("ours");
    }

    /// Another user's ports, limits and devices are not this daemon's.
    #[test]
    fn a_state_that_others_could_have_written_is_not_taken() {
        let folder = folder("foreign");
        let path = folder.join("state");
        let mut state = State {
            added: Added::default(),
            running: config(FILE),
        };
        state.running.state = Some(path.clone());
        state.write().expect("a directory of ours");
        let is_refused = || match read(&path, "1", 1) {
            Ok(saved) => {
                assert!(saved.is_some());
                false
            }
            Err(error) => {
                assert!(matches!(error, StateError::Foreign(..)), "{error}");
                true
            }
        };
        assert!(!is_refused());
        for (of_file, of_folder, refused) in [
            (0o644, 0o755, false),
            (0o600, 0o1777, false),
            (0o660, 0o700, true),
            (0o602, 0o700, true),
            (0o600, 0o770, true),
            (0o600, 0o707, true),
        ] {
            mode(&path, of_file);
            mode(&folder, of_folder);
            assert_eq!(is_refused(), refused, "{of_file:o} {of_folder:o}");
        }
        mode(&folder, 0o700);
        // Root alone can.
        for theirs in [&path, &folder] {
            if chown(theirs, Some(65_534), None).is_ok() {
                assert!(is_refused(), "{theirs:?}");
                chown(theirs, Some(0), None).expect("it was ours");
            }
        }
        fs::remove_dir_all(&folder).expect("ours");
    }

    #[test]
    fn an_edited_file_wins_for_what_it_names() {
        let grown = FILE
            .replace("[\"a\"]", "[\"a\", \"b\"]")
            .replace("null\"\n", "null\"\nmtu = 1400\n")
            + "[[port]]\nname = \"b\"\ndriver = \"null\"\n\
               [[port]]\nname = \"c\"\ndriver = \"null\"\n";
        let saved = Saved {
            config: config(&grown),
            added: Added {
                ports: ["b", "c"].map(str::to_owned).into(),
                rate_groups: BTreeSet::new(),
            },
            is_of: false,
        };
        let file = FILE.to_owned() + "[[port]]\nname = \"c\"\ndriver = \"null\"\nmtu = 1300\n";
        let (config, added, lines) = merge(&config(&file), &saved);
        assert_eq!(added.ports, BTreeSet::from(["b".to_owned()]));
        let mtus: Vec<_> = config.links.ports.iter().map(|p| p.settings.mtu).collect();
        assert_eq!(mtus, [1500, 1300, 1500]);
        assert_eq!(config.links.ports[2].master.as_deref(), Some("br0"));
        assert_eq!(
            lines,
            "~ port \"a\": mtu: 1400 -> (default)\n~ port \"c\": mtu: (default) -> 1300\n"
        );
    }
}
