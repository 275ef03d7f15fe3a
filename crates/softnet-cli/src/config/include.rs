//! `include`: a configuration of several files. They are read as one text, so that what one says
//! may name what another has; places are those of the files.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Place, Problem};

/// Files that a configuration may consist of.
const FILES: usize = 1024;
/// Bytes of all of them.
const BYTES: usize = 64 << 20;

/// The text of a configuration, and which part of it is of which file.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: String,
    /// Offsets at which files start, ascending, and their names.
    pub(super) parts: Vec<(usize, String)>,
    pub(super) watch: Watch,
}

/// Files that were read, each with device, inode, length, and the times of its last changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Vec<(PathBuf, [i64; 7])>);

impl Watch {
    /// True if each is still the file that was read.
    pub(crate) fn holds(&self) -> bool {
        let is_same = |(path, stamp): &(PathBuf, [i64; 7])| {
            fs::metadata(path).is_ok_and(|found| self::stamp(&found) == *stamp)
        };
        self.0.iter().all(is_same)
    }

    /// Reads a file, from now on watched.
    fn read(&mut self, path: &Path) -> io::Result<String> {
        let mut file = File::open(path)?;
        // Before it is read: a change after that is one.
        let stamp = stamp(&file.metadata()?);
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        self.0.push((path.to_owned(), stamp));
        Ok(text)
    }
}

fn stamp(file: &Metadata) -> [i64; 7] {
    [
        file.dev().cast_signed(),
        file.ino().cast_signed(),
        file.size().cast_signed(),
        file.mtime(),
        file.mtime_nsec(),
        file.ctime(),
        file.ctime_nsec(),
    ]
}

/// Reads a file and those that it includes. An included file includes none.
pub(super) fn gather(path: &Path) -> Result<Text, ConfigError> {
    let file = path.display().to_string();
    let mut watch = Watch::default();
    let text = watch.read(path);
    let text = text.map_err(|why| ConfigError::unreadable(&file, &why))?;
    let patterns = patterns(&text);
    let mut gathered = Text {
        text,
        parts: vec![(0, file.clone())],
        watch: Watch::default(),
    };
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    for (at, pattern) in patterns {
        let before = &gathered.text[..at];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let place = Place {
            file: file.as_str().into(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        };
        let problem = |text: String| {
            ConfigError::of(
                &file,
                Problem {
                    place: Some(place.clone()),
                    key: Some("include".to_owned()),
                    text,
                },
            )
        };
        for path in found(directory, &pattern).map_err(problem)? {
            let name = path.display().to_string();
            let text = watch.read(&path);
            let text = text.map_err(|why| ConfigError::unreadable(&name, &why))?;
            if gathered.parts.len() > FILES || gathered.text.len() + text.len() > BYTES {
                return Err(problem(format!(
                    "names more than {FILES} files, or more than {} MiB of them",
                    BYTES >> 20
                )));
            }
            if let Some(key) = first_key(&text) {
                return Err(ConfigError::of(
                    &name,
                    Problem {
                        place: None,
                        key: Some(key),
                        text: "an included file has tables alone: [[port]], [[bridge]], \
                           [[rate_group]], [[fdb]]"
                            .to_owned(),
                    },
                ));
            }
            if !gathered.text.ends_with('\n') {
                gathered.text.push('\n');
            }
            gathered.parts.push((gathered.text.len(), name));
            gathered.text += text.trim_start_matches('\u{feff}');
        }
    }
    gathered.watch = watch;
    Ok(gathered)
}

/// The patterns of a file and their places. What else they may be is for the reader to say.
fn patterns(text: &str) -> Vec<(usize, String)> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Vec::new();
    }
    let list = document.get_ref().get("include");
    let list = list.and_then(|value| value.get_ref().as_array());
    let items = list.into_iter().flat_map(|list| list.iter());
    let text = |item: &toml::Spanned<DeValue<'_>>| {
        Some((item.span().start, item.get_ref().as_str()?.to_owned()))
    };
    items.filter_map(text).collect()
}

/// Files that a pattern names, in the order of their names. One without wildcards must be there.
fn found(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let whole = glob::Pattern::escape(&directory.to_string_lossy());
    let whole = Path::new(&whole).join(pattern);
    let paths = glob::glob(&whole.to_string_lossy())
        .map_err(|error| format!("{pattern:?} is no pattern: {error}"))?;
    let paths: Vec<PathBuf> = paths
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{pattern:?}: {error}"))?;
    if paths.is_empty() && !pattern.contains(['*', '?', '[']) {
        return Err(format!("there is no file {pattern:?}"));
    }
    Ok(paths)
}

/// The first key of a text, if that comes before every table: it would be a key of the table that
/// another file ends with.
fn first_key(text: &str) -> Option<String> {
    let (document, _) = DeTable::parse_recoverable(text);
    let mut keys = document.get_ref().iter();
    let first = keys.find(|(_, value)| match value.get_ref() {
        DeValue::Table(_) => text
            .get(value.span().start..)
            .is_none_or(|at| !at.starts_with('[')),
        DeValue::Array(list) => {
            !list.iter().all(|item| {
                let at = text.get(item.span().start..).unwrap_or_default();
                at.starts_with('[') && item.get_ref().is_table()
            }) || list.is_empty()
        }
        _ => true,
    });
    first.map(|(key, _)| key.get_ref().to_string())
}

/// Hash of a configuration's text (FNV-1a, 64 bits): it tells an edited file, not an attacker's.
pub(super) fn hash(text: &str) -> String {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    fn scratch(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let base = std::env::temp_dir().join(format!("softnet-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        for (name, text) in files {
            let path = base.join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("it is new");
            fs::write(path, text).expect("it is ours");
        }
        base
    }

    #[test]
    fn a_configuration_is_of_several_files() {
        let main = "include = [\"conf.d/*.toml\"]\n[engine]\nworkers = 1\n\
                    [[bridge]]\nname = \"br0\"\nports = [\"a\", \"b\"]";
        let base = scratch(
            "include",
            &[
                ("main.toml", main),
                (
                    "conf.d/2.toml",
                    "# second\n[[port]]\nname = \"b\"\ndriver = \"null\"\n",
                ),
                (
                    "conf.d/1.toml",
                    "[[port]]\nname = \"a\"\ndriver = \"null\"\n",
                ),
                ("conf.d/1.txt", "not read"),
            ],
        );
        let (config, _) = load(&base.join("main.toml"), None).expect("valid");
        let names: Vec<_> = config
            .links
            .ports
            .iter()
            .map(|p| &p.settings.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
        let place = config.places[1].to_string();
        assert!(place.ends_with("conf.d/2.toml:3:8"), "{place}");
        fs::remove_dir_all(base).expect("it is ours");
    }

    #[test]
    fn errors_name_the_file_they_are_in() {
        let port = "[[port]]\nname = \"a\"\ndriver = \"null\"\n";
        let said = |main: &str, other: &str| {
            let base = scratch(
                "include-wrong",
                &[("main.toml", main), ("other.toml", other)],
            );
            let error = load(&base.join("main.toml"), None).expect_err("wrong");
            let text = error
                .to_string()
                .replace(&format!("{}/", base.display()), "");
            fs::remove_dir_all(base).expect("it is ours");
            text
        };
        let main = "include = [\"other.toml\"]\n";
        let wrong = said(main, &(port.to_owned() + "mtu = -1\n"));
        assert!(
            wrong.starts_with("other.toml:4:7: key `port.mtu`: "),
            "{wrong}"
        );
        let twice = said(&(main.to_owned() + port), port);
        assert!(twice.starts_with("other.toml:2:8: "), "{twice}");
        let key = said(main, "workers = 1\n");
        assert!(
            key.starts_with("other.toml: key `workers`: an included file"),
            "{key}"
        );
        let inline = said(main, "port = [{ name = \"a\", driver = \"null\" }]\n");
        assert!(
            inline.starts_with("other.toml: key `port`: an included file"),
            "{inline}"
        );
        let engine = said(
            "include = [\"other.toml\"]\n[engine]\nworkers = 1\n",
            "[engine]\n",
        );
        assert!(engine.starts_with("other.toml:1:"), "{engine}");
        let none = said("include = [\"no.toml\"]\n", "");
        assert_eq!(
            none,
            "main.toml:1:12: key `include`: there is no file \"no.toml\""
        );
        let wrong = said("include = \"other.toml\"\n", "");
        assert!(
            wrong.starts_with("main.toml:1:11: key `include`: "),
            "{wrong}"
        );
        let nested = said(main, "include = [\"x\"]\n");
        assert!(
            nested.starts_with("other.toml: key `include`: an included file"),
            "{nested}"
        );
    }

    #[test]
    fn hashes_tell_texts_apart() {
        assert_eq!(hash(""), "cbf29ce484222325");
        assert_eq!(hash("a"), "af63dc4c8601ec8c");
    }
}
