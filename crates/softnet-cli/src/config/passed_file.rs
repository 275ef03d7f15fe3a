//! A file that Softnet was started with: its number, or the name that systemd gave it.

use serde_json::{Value as Json, json};
use softnet_io::TapFile;
use toml::Value;

use super::form::{Form, Number, int};
use super::table::Item;

/// Numbers beyond those of the standard input, output and error.
const NUMBER: Number = Number(3, i32::MAX as i64);
/// Start of the names that files have in systemd's descriptor store.
pub(crate) const STORED: &str = "port-";
/// Longest name (sd_pid_notify_with_fds(3)).
const LONGEST: usize = 255;

pub(super) struct PassedFile;

impl Form<TapFile> for PassedFile {
    fn schema(&self) -> Json {
        json!({ "anyOf": [Form::<i32>::schema(&NUMBER), { "type": "string" }] })
    }

    fn read(&self, item: Item<'_>) -> Option<TapFile> {
        let Some(name) = item.as_text() else {
            return NUMBER.read(item).map(TapFile::Number);
        };
        let is_known = |byte: u8| matches!(byte, b' '..=b'~') && byte != b':';
        if !(1..=LONGEST).contains(&name.len()) || !name.bytes().all(is_known) {
            return item.problem(format!(
                "{name:?} cannot be the name of a file that systemd passes; use 1 to {LONGEST} \
                 printable characters of ASCII without a colon"
            ));
        }
        if name.starts_with(STORED) {
            return item.problem(format!(
                "{name:?} is a name of what Softnet stores with systemd itself; use one that does \
                 not begin with {STORED:?}"
            ));
        }
        Some(TapFile::Name(name.to_owned()))
    }

    fn write(&self, value: &TapFile) -> Option<Value> {
        Some(match value {
            TapFile::Number(number) => int(*number),
            TapFile::Name(name) => name.as_str().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use softnet_io::{DeviceSpec, TapSpec};

    use super::super::{parse, write};
    use super::*;

    fn file(value: &str) -> String {
        format!("[[port]]\nname = \"t\"\ndriver = \"tap\"\nfd = {value}\n")
    }

    #[test]
    fn a_number_or_a_name() {
        for (value, file_is) in [
            ("7", TapFile::Number(7)),
            ("\"wan\"", TapFile::Name("wan".into())),
            ("\"7\"", TapFile::Name("7".into())),
        ] {
            let config = parse("x.toml", &file(value)).expect(value);
            match &config.links.ports[0].options.device {
                DeviceSpec::Tap(TapSpec { file, .. }) => assert_eq!(*file, Some(file_is)),
                other => panic!("{other:?}"),
            }
            let written = write(&config);
            assert!(written.contains(&format!("fd = {value}\n")), "{written}");
        }
    }

    #[test]
    fn names_that_nothing_has() {
        for (value, said) in [
            ("\"\"", "\"\" cannot be the name of a file"),
            ("\"a:b\"", "\"a:b\" cannot be the name of a file"),
            ("\"ü\"", "\"ü\" cannot be the name of a file"),
            ("\"port-t\"", "\"port-t\" is a name of what Softnet stores"),
            ("2", "2 is out of range"),
            ("true", "is true; use a whole number"),
        ] {
            let error = parse("x.toml", &file(value)).expect_err(value);
            let line = format!("x.toml:4:6: key `port.fd`: {said}");
            assert!(error.to_string().starts_with(&line), "{error}");
        }
    }
}
