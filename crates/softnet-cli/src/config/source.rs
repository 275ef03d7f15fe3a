//! The text of a file, and the errors found in it so far.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use toml::de::{DeTable, DeValue, Error};

use super::error::{ConfigError, Place, Problem};
use super::table::Table;

/// Errors that are kept, and printed; of the others there is the number.
const SHOWN: usize = 20;
/// Bytes of text between two counts of characters.
const BLOCK: usize = 1024;

/// A file. Whoever reads it reports errors here and goes on.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    /// Files that the text is of: the line where each starts, from 0, and its name.
    parts: Vec<(usize, Arc<str>)>,
    text: &'a str,
    /// Where each line starts.
    lines: Vec<usize>,
    /// Characters before each block of the text: a line may be long, and have many places.
    characters: Vec<usize>,
    found: RefCell<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// Errors that are shown, by place: offset, key, text.
    first: Vec<(usize, Option<String>, String)>,
    /// Offsets and keys of all. One error of a value is enough.
    all: BTreeSet<(usize, Option<String>)>,
}

impl<'a> Source<'a> {
    /// Reads the text of a file called `file` with `read`, which gets its table.
    pub(super) fn read<T>(
        file: &'a str,
        text: &'a str,
        read: impl FnOnce(&Table<'_>) -> T,
    ) -> Result<T, ConfigError> {
        Source::read_parts(file, text, &[(0, file.to_owned())], read)
    }

    /// Reads a text of several files, of which each starts a line: their offsets and names.
    pub(super) fn read_parts<T>(
        file: &'a str,
        text: &'a str,
        parts: &[(usize, String)],
        read: impl FnOnce(&Table<'_>) -> T,
    ) -> Result<T, ConfigError> {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        let lines: Vec<usize> = std::iter::once(0).chain(ends).collect();
        let line = |start: usize| lines.partition_point(|&other| other < start);
        let named = parts
            .iter()
            .map(|(start, name)| (line(*start), name.as_str().into()));
        let source = Source {
            file,
            text,
            parts: named.collect(),
            lines,
            characters: characters(text),
            found: RefCell::default(),
        };
        let (document, errors) = DeTable::parse_recoverable(text);
        source.syntax(document.get_ref(), &errors);
        let is_toml = errors.is_empty();
        let value = is_toml.then(|| read(&Table::root(&source, &document)));
        source.finish(value)
    }

    /// Reports the parser's errors but those that follow from the one before: of its line, or in a
    /// list or table that was not closed.
    fn syntax(&self, document: &DeTable<'_>, errors: &[Error]) {
        let at = |error: &Error| error.span().map_or(self.text.len(), |span| span.start);
        let mut errors: Vec<(usize, &Error)> = errors.iter().map(|e| (at(e), e)).collect();
        errors.sort_by_key(|&(at, _)| at);
        let mut done = None;
        for (at, error) in errors {
            if done.is_none_or(|done| at > done) {
                let text = format!("not valid TOML: {}", error.message());
                self.report(at, None, text);
                let line = self.text.get(at..).and_then(|rest| rest.find('\n'));
                let line = line.map_or(self.text.len(), |len| at + len);
                let around = match self.errors() {
                    ..=SHOWN => end_around(document, at),
                    _ => 0,
                };
                done = Some(line.max(around));
            }
        }
    }

    /// The place of a byte; one past the end is the end.
    pub(super) fn place(&self, offset: usize) -> Place {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let line = self.lines.partition_point(|&start| start <= end);
        let start = self.lines[line - 1];
        let part = self.parts.partition_point(|&(first, _)| first < line);
        let (first, file) = &self.parts[part - 1];
        Place {
            file: file.clone(),
            line: line - first,
            column: self.characters_before(end) - self.characters_before(start) + 1,
        }
    }

    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        let rest = &self.text.as_bytes()[block * BLOCK..offset];
        self.characters[block] + starts(rest)
    }

    /// The text of a value.
    pub(super) fn written(&self, span: Range<usize>) -> &'a str {
        self.text.get(span).unwrap_or_default()
    }

    /// Reports an error at an offset.
    pub(super) fn report(&self, at: usize, key: Option<String>, text: String) {
        let mut found = self.found.borrow_mut();
        if !found.all.insert((at, key.clone())) {
            return;
        }
        let place = found.first.partition_point(|&(first, ..)| first <= at);
        if place < SHOWN {
            found.first.insert(place, (at, key, text));
            found.first.truncate(SHOWN);
        }
    }

    /// True if an error is known at a value.
    pub(super) fn is_wrong(&self, span: &Range<usize>) -> bool {
        let found = self.found.borrow();
        let mut within = found.all.range((span.start, None)..(span.end, None));
        within.next().is_some()
    }

    /// True if an error at an offset is among those that are shown, as far as others are known.
    pub(super) fn would_show(&self, at: usize) -> bool {
        let first = &self.found.borrow().first;
        first.len() < SHOWN || first.last().is_some_and(|&(last, ..)| at < last)
    }

    /// The number of errors so far.
    pub(super) fn errors(&self) -> usize {
        self.found.borrow().all.len()
    }

    /// The value read, if there was no error.
    fn finish<T>(&self, value: Option<T>) -> Result<T, ConfigError> {
        let Found { first, all } = self.found.take();
        if let (true, Some(value)) = (all.is_empty(), value) {
            return Ok(value);
        }
        let more = all.len() - first.len();
        let problem = |(at, key, text)| Problem {
            place: Some(self.place(at)),
            key,
            text,
        };
        Err(ConfigError {
            file: self.file.to_owned(),
            problems: first.into_iter().map(problem).collect(),
            more,
        })
    }
}

/// The number of characters that start in these bytes of a text.
fn starts(bytes: &[u8]) -> usize {
    let start = |&&byte: &&u8| byte & 0xc0 != 0x80;
    bytes.iter().filter(start).count()
}

/// Characters before each block of a text, and before a block at its end.
fn characters(text: &str) -> Vec<usize> {
    let blocks = text.as_bytes().chunks(BLOCK);
    let before = blocks.scan(0, |count, block| {
        *count += starts(block);
        Some(*count)
    });
    std::iter::once(0).chain(before).collect()
}

/// The end of the outermost list or inline table that has a place in it; 0 without one.
fn end_around(table: &DeTable<'_>, at: usize) -> usize {
    let value = |value: &toml::Spanned<DeValue<'_>>| match value.get_ref() {
        _ if value.span().contains(&at) => value.span().end,
        DeValue::Table(table) => end_around(table, at),
        DeValue::Array(list) => {
            let tables = list.iter().filter_map(|item| item.get_ref().as_table());
            tables.map(|table| end_around(table, at)).max().unwrap_or(0)
        }
        _ => 0,
    };
    table.values().map(value).max().unwrap_or(0)
}
