//! Forms of values: how the text of a key is read, and written.

use std::time::Duration;

use serde_json::{Value as Json, json};
use toml::Value;

use super::table::Item;
use super::units;

/// The form of a value `V`. What cannot be read is reported.
pub(super) trait Form<V>: Sync {
    fn read(&self, item: Item<'_>) -> Option<V>;

    /// The value; `None`: it is what holds without the key, or no text.
    fn write(&self, value: &V) -> Option<Value>;

    /// The value's JSON schema: a text, unless the form says another type.
    fn schema(&self) -> Json {
        json!({ "type": "string" })
    }
}

/// `true` or `false`.
pub(super) struct Flag;

impl Form<bool> for Flag {
    fn schema(&self) -> Json {
        json!({ "type": "boolean" })
    }

    fn read(&self, item: Item<'_>) -> Option<bool> {
        item.flag()
    }

    fn write(&self, value: &bool) -> Option<Value> {
        Some((*value).into())
    }
}

/// A whole number, and its bounds.
pub(super) struct Number(pub(super) i64, pub(super) i64);

impl<V: TryFrom<i64> + TryInto<i64> + Copy> Form<V> for Number {
    fn schema(&self) -> Json {
        json!({ "type": "integer", "minimum": self.0, "maximum": self.1 })
    }

    fn read(&self, item: Item<'_>) -> Option<V> {
        item.number(self.0, self.1)
    }

    fn write(&self, value: &V) -> Option<Value> {
        Some(int(*value))
    }
}

/// A number. TOML has none above 2^63.
pub(super) fn int(number: impl TryInto<i64>) -> Value {
    Value::Integer(number.try_into().unwrap_or(i64::MAX))
}

pub(super) fn ints<T: Copy + TryInto<i64>>(values: &[T]) -> Value {
    Value::Array(values.iter().map(|&value| int(value)).collect())
}

/// A value that may be absent.
pub(super) struct Maybe<F>(pub(super) F);

impl<V, F: Form<V>> Form<Option<V>> for Maybe<F> {
    fn schema(&self) -> Json {
        self.0.schema()
    }

    fn read(&self, item: Item<'_>) -> Option<Option<V>> {
        self.0.read(item).map(Some)
    }

    fn write(&self, value: &Option<V>) -> Option<Value> {
        value.as_ref().and_then(|value| self.0.write(value))
    }
}

/// A list; an empty one says nothing.
pub(super) struct List<F>(pub(super) F);

impl<V, F: Form<V>> Form<Vec<V>> for List<F> {
    fn schema(&self) -> Json {
        json!({ "type": "array", "items": Form::<V>::schema(&self.0) })
    }

    fn read(&self, item: Item<'_>) -> Option<Vec<V>> {
        let values = item.list()?;
        // All of them, for all errors.
        let values: Vec<Option<V>> = values.into_iter().map(|v| self.0.read(v)).collect();
        values.into_iter().collect()
    }

    fn write(&self, values: &Vec<V>) -> Option<Value> {
        let values: Vec<Value> = values.iter().filter_map(|v| self.0.write(v)).collect();
        (!values.is_empty()).then_some(Value::Array(values))
    }
}

/// A list that must not be empty.
pub(super) struct NotEmpty<F>(pub(super) F);

impl<V, F: Form<V>> Form<Vec<V>> for NotEmpty<F> {
    fn schema(&self) -> Json {
        json!({ "type": "array", "minItems": 1, "items": Form::<V>::schema(&self.0) })
    }

    fn read(&self, item: Item<'_>) -> Option<Vec<V>> {
        if item.is_empty_list() {
            return item
                .problem("is empty, so that nothing could be sent; remove it to allow all");
        }
        List(&self.0).read(item)
    }

    fn write(&self, values: &Vec<V>) -> Option<Value> {
        List(&self.0).write(values)
    }
}

impl<V, F: Form<V>> Form<V> for &F {
    fn schema(&self) -> Json {
        (**self).schema()
    }

    fn read(&self, item: Item<'_>) -> Option<V> {
        (**self).read(item)
    }

    fn write(&self, value: &V) -> Option<Value> {
        (**self).write(value)
    }
}

/// A text: its reader, whose error follows the place, and its writer.
pub(super) struct Text<V>(
    pub(super) fn(&str) -> Result<V, String>,
    pub(super) fn(&V) -> Option<String>,
);

impl<V> Form<V> for Text<V> {
    fn read(&self, item: Item<'_>) -> Option<V> {
        match self.0(item.text()?) {
            Ok(value) => Some(value),
            Err(text) => item.problem(text),
        }
    }

    fn write(&self, value: &V) -> Option<Value> {
        self.1(value).map(Value::String)
    }
}

/// One of some words; the error for others, after the word that is given.
pub(super) struct Word<V: 'static>(
    pub(super) &'static [(&'static str, V)],
    pub(super) fn(&str) -> String,
);

impl<V: Clone + PartialEq + Sync> Form<V> for Word<V> {
    fn schema(&self) -> Json {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        json!({ "enum": words })
    }

    fn read(&self, item: Item<'_>) -> Option<V> {
        let text = item.text()?;
        match self.0.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Some(value.clone()),
            None => item.problem(self.1(text)),
        }
    }

    fn write(&self, value: &V) -> Option<Value> {
        let mut words = self.0.iter();
        let word = words.find(|(_, meaning)| meaning == value);
        word.map(|(word, _)| (*word).into())
    }
}

/// A time, at most this long; the error says the bounds.
pub(super) struct Time(pub(super) Duration, pub(super) &'static str);

impl Form<Duration> for Time {
    fn read(&self, item: Item<'_>) -> Option<Duration> {
        let text = item.text()?;
        match units::time(text).map(Duration::from_nanos) {
            Ok(time) if time <= self.0 => Some(time),
            Ok(_) => item.problem(format!("{text:?} is out of range; use {}", self.1)),
            Err(error) => item.problem(error.to_string()),
        }
    }

    fn write(&self, value: &Duration) -> Option<Value> {
        Some(time(*value))
    }
}

/// A time in the longest unit in which it is a whole number.
pub(super) fn time(time: Duration) -> Value {
    let nanos = time.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    let whole = units
        .into_iter()
        .find(|(_, unit)| nanos.is_multiple_of(*unit));
    let (unit, length) = whole.unwrap_or(("ns", 1));
    format!("{}{unit}", nanos / length).into()
}

/// A size in bytes within bounds, which the error says.
pub(super) struct Size(pub(super) u64, pub(super) u64, pub(super) &'static str);

impl Form<u64> for Size {
    fn read(&self, item: Item<'_>) -> Option<u64> {
        match units::size(item.text()?) {
            Ok(size) if (self.0..=self.1).contains(&size) => Some(size),
            Ok(_) => item.problem(format!(
                "{} is out of range; use {}",
                item.written(),
                self.2
            )),
            Err(error) => item.problem(error.to_string()),
        }
    }

    fn write(&self, value: &u64) -> Option<Value> {
        let units = [("g", 30), ("m", 20), ("k", 10)];
        let whole = units
            .into_iter()
            .find(|(_, log)| value.is_multiple_of(1 << log));
        let (unit, log) = whole.unwrap_or(("", 0));
        Some(format!("{}{unit}", value >> log).into())
    }
}
