//! Errors of a configuration: for each where it is, which key, what is wrong and what to do, in one
//! line.

use std::fmt;

/// A place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
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
        ConfigError {
            file: file.to_owned(),
            problems: vec![problem],
            more: 0,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { place, key, text }) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", self.file)?;
            if let Some(Place { line, column }) = place {
                write!(f, ":{line}:{column}")?;
            }
            f.write_str(": ")?;
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
            place: Some(Place { line: 3, column: 7 }),
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
