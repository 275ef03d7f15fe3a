//! Errors of a configuration: for each where it is, which key, what is wrong and what to do, in one
//! line.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value as Json, json};

/// A place in a file; prints as `FILE:LINE:COL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub file: Arc<str>,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl Place {
    /// As an object.
    pub(super) fn json(&self) -> Json {
        let Place { file, line, column } = self;
        json!({ "file": &**file, "line": line, "column": column })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line, column } = self;
        write!(f, "{file}:{line}:{column}")
    }
}

/// An error of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) place: Option<Place>,
    /// The path of the key.
    pub(super) key: Option<String>,
    pub(super) text: String,
}

/// Errors of a file, in its order. Prints a line for each, `FILE:LINE:COL: key `x`: what is wrong;
/// what to do`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    pub(super) file: String,
    /// The first ones.
    pub(super) problems: Vec<Problem>,
    /// The number of those that are left out.
    pub(super) more: usize,
}

impl ConfigError {
    /// A file that cannot be read at all.
    pub(super) fn unreadable(file: &str, why: &std::io::Error) -> ConfigError {
        let problem = Problem {
            place: None,
            key: None,
            text: format!("cannot be read: {why}; check the path"),
        };
        ConfigError::of(file, problem)
    }

    /// One problem of a file.
    pub(super) fn of(file: &str, problem: Problem) -> ConfigError {
        ConfigError {
            file: file.to_owned(),
            problems: vec![problem],
            more: 0,
        }
    }
}

impl ConfigError {
    /// The problems as objects: `file`, `line`, `column`, `key`, `text`.
    pub(crate) fn json(&self) -> Vec<Json> {
        let one = |Problem { place, key, text }: &Problem| {
            let mut object = match place {
                Some(place) => place.json(),
                None => json!({ "file": self.file }),
            };
            object["key"] = key.clone().into();
            object["text"] = text.clone().into();
            object
        };
        let left_out = (self.more > 0).then(
            || json!({ "file": self.file, "text": format!("and {} errors more", self.more) }),
        );
        self.problems.iter().map(one).chain(left_out).collect()
    }

    /// The same without places, for a text that nobody has written.
    pub(crate) fn without_places(mut self) -> ConfigError {
        for problem in &mut self.problems {
            problem.place = None;
        }
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { place, key, text }) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            match place {
                Some(place) => write!(f, "{newline}{place}: ")?,
                None => write!(f, "{newline}{}: ", self.file)?,
            }
            if let Some(key) = key {
                write!(f, "key `")?;
                one_line(f, key)?;
                write!(f, "`: ")?;
            }
            one_line(f, text)?;
        }
        match self.more {
            0 => Ok(()),
            1 => write!(f, "\n{}: and 1 error more", self.file),
            more => write!(f, "\n{}: and {more} errors more", self.file),
        }
    }
}

/// Writes one line of bounded length, whatever a parser's message or a name from the file contains.
pub(super) fn one_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    /// Characters; more than the longest list of keys.
    const MOST: usize = 1200;
    for (index, character) in text.chars().enumerate() {
        match character {
            _ if index == MOST => return f.write_str(" ..."),
            '\n' => f.write_str(", ")?,
            c if c.is_control() => write!(f, "{}", c.escape_default())?,
            c => write!(f, "{c}")?,
        }
    }
    Ok(())
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_bounded_line() {
        let problem = Problem {
            place: Some(Place {
                file: "x.toml".into(),
                line: 3,
                column: 7,
            }),
            key: Some("port.\u{1b}[2J".into()),
            text: "bad\nworse\u{1b}[0m".into(),
        };
        let mut error = ConfigError {
            file: "x.toml".into(),
            problems: vec![problem.clone()],
            more: 0,
        };
        let first = "x.toml:3:7: key `port.\\u{1b}[2J`: bad, worse\\u{1b}[0m";
        assert_eq!(error.to_string(), first);
        error.problems.push(Problem {
            text: "ü".repeat(100_000),
            ..problem
        });
        error.more = 7;
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("ü ...") && lines[1].len() < 3000);
        assert_eq!((lines[0], lines[2]), (first, "x.toml: and 7 errors more"));
    }
}
