//! One configuration error: where, which key, what is wrong and what to do, in one line.

use std::fmt;
use std::ops::Range;

/// A place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl Place {
    /// The place of byte `offset` of `source`; an offset past the end is the end.
    pub(crate) fn at(source: &str, offset: usize) -> Place {
        let mut end = offset.min(source.len());
        while !source.is_char_boundary(end) {
            end -= 1;
        }
        let before = &source[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// What is wrong with a configuration. Prints as `FILE:LINE:COL: key `x`: what is wrong; what to
/// do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    pub(super) file: String,
    pub(super) place: Option<Place>,
    pub(super) key: Option<String>,
    pub(super) problem: String,
}

impl ConfigError {
    /// The file could not be read at all.
    pub(super) fn unreadable(file: &str, why: &std::io::Error) -> ConfigError {
        let problem = format!("cannot be read: {why}; check the path");
        ConfigError {
            file: file.to_owned(),
            place: None,
            key: None,
            problem,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(Place { line, column }) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        f.write_str(": ")?;
        if let Some(key) = &self.key {
            write!(f, "key `")?;
            one_line(f, key)?;
            write!(f, "`: ")?;
        }
        one_line(f, &self.problem)
    }
}

/// Writes one line, whatever a parser's message or a name from the file contains.
pub(super) fn one_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for character in text.chars() {
        match character {
            '\n' => f.write_str(", ")?,
            c if c.is_control() => write!(f, "{}", c.escape_default())?,
            c => write!(f, "{c}")?,
        }
    }
    Ok(())
}

impl std::error::Error for ConfigError {}

/// A problem found at a place that is still a byte range; [`super::Source`] makes a
/// [`ConfigError`] of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) span: Range<usize>,
    pub(super) key: String,
    pub(super) text: String,
}

impl Problem {
    pub(super) fn new(
        span: Range<usize>,
        key: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Problem {
            span,
            key: key.into(),
            text: text.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let source = "a = 1\nnäme = \"ü\" x";
        assert_eq!(Place::at(source, 0), Place { line: 1, column: 1 });
        let x = source.find('x').unwrap();
        assert_eq!(
            Place::at(source, x),
            Place {
                line: 2,
                column: 12
            }
        );
        assert_eq!(
            Place::at(source, 8),
            Place { line: 2, column: 2 },
            "inside a character: its start"
        );
        assert_eq!(
            Place::at(source, 9999),
            Place {
                line: 2,
                column: 13
            }
        );
    }

    #[test]
    fn prints_one_line() {
        let error = ConfigError {
            file: "x.toml".into(),
            place: Some(Place { line: 3, column: 7 }),
            key: Some("port.\u{1b}[2J".into()),
            problem: "bad\nworse\u{1b}[0m".into(),
        };
        assert_eq!(
            error.to_string(),
            "x.toml:3:7: key `port.\\u{1b}[2J`: bad, worse\\u{1b}[0m"
        );
    }
}
