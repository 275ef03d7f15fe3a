//! A table of the file, from which keys are taken by name, with type and place. What is wrong is
//! reported to the [`Source`], and reading goes on.

use std::cell::RefCell;
use std::ops::Range;

use softnet_tc::{Handle, LinkCost, LinkLayer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::Source;
use super::units::UnitError;

/// The reader of a quantity's text.
pub(super) type Read = fn(&str) -> Result<u64, UnitError>;

pub(super) const HANDLE: &str = "a handle; write a qdisc's like \"1:\" and a class's like \"1:2\"";

/// A table of the file.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) source: &'a Source<'a>,
    /// Path of its key; empty for the file itself.
    path: String,
    pub(super) span: Range<usize>,
    entries: &'a DeTable<'a>,
    /// Keys that unknown ones are likely slips of. They are not missing as well.
    slips: RefCell<Vec<String>>,
}

impl<'a> Table<'a> {
    /// The whole file.
    pub(super) fn root(source: &'a Source<'a>, document: &'a Spanned<DeTable<'a>>) -> Table<'a> {
        Table {
            source,
            path: String::new(),
            span: document.span(),
            entries: document.get_ref(),
            slips: RefCell::default(),
        }
    }

    pub(super) fn find<'t>(&'t self, key: &'t str) -> Option<Item<'t>> {
        let value = self.entries.get(key)?;
        Some(Item {
            table: self,
            key,
            value,
        })
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// All values.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.entries.iter().map(|(key, value)| Item {
            table: self,
            key: key.get_ref(),
            value,
        })
    }

    /// The tables of a list of tables, such as `[[port]]`.
    pub(super) fn tables<'t>(&'t self, key: &'t str) -> Vec<Table<'t>> {
        let items = self.find(key).and_then(|item| {
            if matches!(item.value.get_ref(), DeValue::Table(_)) {
                let text = format!("is a table; use a list of tables: [[{}]]", item.path());
                return item.problem(text);
            }
            item.list()
        });
        let items = items.into_iter().flatten();
        items.filter_map(|item| item.table("a table")).collect()
    }

    /// The place of a value, or of the table.
    pub(super) fn span_of(&self, key: &str) -> Range<usize> {
        self.find(key)
            .map_or_else(|| self.span.clone(), |item| item.span())
    }

    fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Reports an error at a key's value, or at the table without it.
    pub(super) fn problem<T>(&self, key: &str, text: impl Into<String>) -> Option<T> {
        self.problem_at(self.span_of(key), key, text)
    }

    /// Reports an error of a key at another place.
    pub(super) fn problem_at<T>(
        &self,
        at: Range<usize>,
        key: &str,
        text: impl Into<String>,
    ) -> Option<T> {
        let key = Some(self.path_of(key));
        self.source.report(at.start, key, text.into());
        None
    }

    /// Reports that a key is missing; `what` is to be added.
    pub(super) fn missing<T>(&self, key: &str, what: &str) -> Option<T> {
        if self.slips.borrow().iter().any(|slip| slip == key) {
            return None;
        }
        self.problem_at(self.span.clone(), key, format!("is missing; add {what}"))
    }

    /// Reports keys that are not among the known ones. `hint` adds to what is said.
    pub(super) fn known(&self, known: &[&str], hint: fn(&str) -> &'static str) {
        self.check_keys(known, |key, near| {
            let hint = hint(key);
            match known.len() {
                // The nearest one of so many says more than all of them.
                13.. if hint.is_empty() && !near.is_empty() => {
                    format!("is unknown; {}", near.trim_end())
                }
                _ => {
                    let near = if hint.is_empty() { near } else { "" };
                    format!("is unknown; {near}known here: {}{hint}", known.join(", "))
                }
            }
        });
    }

    /// Reports options that this `kind` does not have; `besides` any kind has.
    pub(super) fn only(&self, besides: &[&str], kind: &str, allowed: &[&str]) {
        let all = [besides, allowed].concat();
        self.check_keys(&all, |_, near| match allowed {
            [] => format!("{near}{kind} has no options; remove it"),
            _ => {
                let list = allowed.join(", ");
                format!("is not an option of {kind}; {near}its options are {list}")
            }
        });
    }

    fn check_keys(&self, known: &[&str], text: impl Fn(&str, &str) -> String) {
        for key in self.entries.keys() {
            let name = key.get_ref();
            if !known.contains(&name.as_ref()) {
                // Nobody reads what the others are likely slips of.
                let shown = self.source.would_show(key.span().start);
                let near = shown.then(|| nearest(name, known)).flatten();
                self.slips.borrow_mut().extend(near.map(str::to_owned));
                let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
                self.problem_at::<()>(key.span(), name, text(name, &near));
            }
        }
    }

    /// A text with a unit, or a bare number.
    pub(super) fn quantity(&self, key: &str, read: Read) -> Option<u64> {
        self.find(key)?.quantity(read)
    }

    /// A [`quantity`](Self::quantity) that must be there.
    pub(super) fn required(&self, key: &str, read: Read, what: &str) -> Option<u64> {
        match self.find(key) {
            None => self.missing(key, what),
            Some(item) => item.quantity(read),
        }
    }

    /// A [`quantity`](Self::quantity) of at most 32 bits.
    pub(super) fn small(&self, key: &str, read: Read) -> Option<u32> {
        let number = self.quantity(key, read)?;
        u32::try_from(number).ok().or_else(|| {
            let text = format!("{number} is too large; at most {}", u32::MAX);
            self.problem(key, text)
        })
    }

    /// tc-stab(8)'s words as tbf has them: `overhead`, `mpu` and `linklayer`.
    pub(super) fn link_cost(&self) -> LinkCost {
        let bytes =
            |key| self.parsed(key, "a number of bytes from 0 to 65535", |t| t.parse().ok());
        LinkCost {
            overhead: bytes("overhead").unwrap_or_default(),
            mpu: bytes("mpu").unwrap_or_default(),
            linklayer: self.linklayer().unwrap_or_default(),
        }
    }

    /// The link layer, in tc-stab(8)'s words.
    pub(super) fn linklayer(&self) -> Option<LinkLayer> {
        let what = "a link layer; use ethernet, atm or adsl";
        self.parsed("linklayer", what, |text| match text {
            "ethernet" => Some(LinkLayer::Ethernet),
            "atm" | "adsl" => Some(LinkLayer::Atm),
            _ => None,
        })
    }

    /// The handle at a key.
    pub(super) fn handle(&self, key: &str) -> Option<Handle> {
        self.parsed(key, HANDLE, |text| text.parse().ok())
    }

    /// A text or number that can be read as `T`; `what` says what it should be.
    pub(super) fn parsed<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let item = self.find(key)?;
        let text = match item.value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(_) => item.decimal(),
            _ => return item.problem(format!("is {}; give {what}", item.is())),
        };
        match read(&text) {
            Some(value) => Some(value),
            None => item.problem(format!("{text:?} is not {what}")),
        }
    }
}

/// A value with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    table: &'a Table<'a>,
    pub(super) key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Item<'a> {
    pub(super) fn span(&self) -> Range<usize> {
        self.value.span()
    }

    /// The line that it is in.
    pub(super) fn line(&self) -> usize {
        self.table.source.place(self.span().start).line
    }

    fn path(&self) -> String {
        self.table.path_of(self.key)
    }

    /// Reports an error of the value.
    pub(super) fn problem<T>(&self, text: impl Into<String>) -> Option<T> {
        self.table.problem_at(self.span(), self.key, text)
    }

    /// The value as it is written.
    pub(super) fn written(&self) -> &'a str {
        self.table.source.written(self.span())
    }

    /// The value in words, for errors of its type.
    pub(super) fn is(&self) -> String {
        match self.value.get_ref() {
            DeValue::String(text) => format!("the string {text:?}"),
            DeValue::Integer(_) | DeValue::Float(_) => format!("the number {}", self.written()),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(date) => format!("the date {date}"),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        }
    }

    /// Reports that another type is needed.
    pub(super) fn wrong_type<T>(&self, expected: &str) -> Option<T> {
        self.problem(format!("is {}; use {expected}", self.is()))
    }

    /// The text, if it is one.
    pub(super) fn as_text(&self) -> Option<&'a str> {
        self.value.get_ref().as_str()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.as_text()
            .or_else(|| self.wrong_type("a string in quotes"))
    }

    /// The name of a port that there is.
    pub(super) fn port(&self, is_port: &dyn Fn(&str) -> bool) -> Option<&'a str> {
        let name = self.text()?;
        if is_port(name) {
            return Some(name);
        }
        self.problem(format!(
            "there is no port {name:?}; add a [[port]] of that name or correct it"
        ))
    }

    /// The whole number, if it is one of 64 bits.
    pub(super) fn as_integer(&self) -> Option<i64> {
        let number = self.value.get_ref().as_integer()?;
        i64::from_str_radix(number.as_str(), number.radix()).ok()
    }

    /// The whole number in decimal.
    fn decimal(&self) -> String {
        let number = self.as_integer();
        number.map_or_else(|| self.written().to_owned(), |number| number.to_string())
    }

    pub(super) fn integer(&self) -> Option<i64> {
        self.number(i64::MIN, i64::MAX)
    }

    /// A whole number in a range.
    pub(super) fn number<T: TryFrom<i64>>(&self, least: i64, most: i64) -> Option<T> {
        if !self.value.get_ref().is_integer() {
            return self.wrong_type("a whole number");
        }
        let number = self.as_integer();
        let number = number.filter(|number| (least..=most).contains(number));
        number.and_then(|n| T::try_from(n).ok()).or_else(|| {
            let text = format!("{} is out of range; use {least} to {most}", self.written());
            self.problem(text)
        })
    }

    pub(super) fn flag(&self) -> Option<bool> {
        let flag = self.value.get_ref().as_bool();
        flag.or_else(|| self.wrong_type("true or false"))
    }

    /// A text with a unit, or a bare number.
    pub(super) fn quantity(&self, read: Read) -> Option<u64> {
        let text = match self.value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(_) => self.decimal(),
            DeValue::Float(number) => number.as_str().trim_start_matches('+').to_owned(),
            _ => {
                let text = "not a quantity; write a number or a text with a unit";
                return self.problem(format!("is {}, {text}", self.is()));
            }
        };
        match read(&text) {
            Ok(number) => Some(number),
            Err(error) => self.problem(error.to_string()),
        }
    }

    pub(super) fn list(&self) -> Option<Vec<Item<'a>>> {
        let items = self.as_list();
        items.or_else(|| self.wrong_type("a list: [...]"))
    }

    /// The values of a list, if it is one.
    pub(super) fn as_list(&self) -> Option<Vec<Item<'a>>> {
        let items = self.value.get_ref().as_array()?.iter();
        Some(items.map(|value| Item { value, ..*self }).collect())
    }

    pub(super) fn is_empty_list(&self) -> bool {
        let list = self.value.get_ref().as_array();
        list.is_some_and(|list| list.is_empty())
    }

    /// The table, if it is one.
    pub(super) fn as_table(&self) -> Option<Table<'a>> {
        let entries = self.value.get_ref().as_table()?;
        Some(Table {
            source: self.table.source,
            path: self.path(),
            span: self.span(),
            entries,
            slips: RefCell::default(),
        })
    }

    /// The table; `expected` says so in errors.
    pub(super) fn table(&self, expected: &str) -> Option<Table<'a>> {
        self.as_table().or_else(|| self.wrong_type(expected))
    }

    /// A table, or the tables of a list.
    pub(super) fn one_or_more(&self, expected: &str) -> Vec<Table<'a>> {
        match (self.as_table(), self.as_list()) {
            (Some(table), _) => vec![table],
            (_, Some(items)) => {
                let items = items.into_iter();
                items.filter_map(|item| item.table("a table")).collect()
            }
            _ => self.wrong_type(expected).into_iter().collect(),
        }
    }
}

/// The known name that an unknown one may be a slip of.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    /// No key is that long.
    const MOST: usize = 32;
    if name.len() > MOST {
        return None;
    }
    let lower = name.to_lowercase().replace('-', "_");
    let far = |known: &&str| strsim::osa_distance(&lower, known);
    let (distance, near) = known.iter().map(|known| (far(known), *known)).min()?;
    (distance <= name.chars().count().div_ceil(4)).then_some(near)
}
