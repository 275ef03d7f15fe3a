//! The options of one table whose keys depend on its kind: texts with units, numbers, and errors
//! that name the key.

use std::ops::Range;

use softnet_tc::{Handle, LinkCost, LinkLayer};
use toml::{Spanned, Value};

use super::error::Problem;
use super::file::OptionTable;
use super::units::UnitError;

/// Where an option's quantity is measured in, and how its text is read.
pub(super) type Read = fn(&str) -> Result<u64, UnitError>;

/// Keys of every kind of qdisc.
pub(super) const EVERYWHERE: &[&str] = &["kind", "parent", "handle", "stab", "estimator"];

const HANDLE: &str = "a handle; write a qdisc's like \"1:\" and a class's like \"1:2\"";

/// The options of one table.
pub(super) struct Options<'a> {
    pub(super) table: &'a OptionTable,
    /// The whole table.
    pub(super) span: Range<usize>,
    /// Path of the table's key, for messages.
    pub(super) path: &'a str,
}

impl<'a> Options<'a> {
    pub(super) fn of(table: &'a Spanned<OptionTable>, path: &'a str) -> Options<'a> {
        Options {
            table: table.get_ref(),
            span: table.span(),
            path,
        }
    }

    pub(super) fn find(&self, key: &str) -> Option<(&Spanned<String>, &Spanned<Value>)> {
        self.table.iter().find(|(name, _)| name.get_ref() == key)
    }

    pub(super) fn span_of(&self, key: &str) -> Range<usize> {
        self.find(key)
            .map_or_else(|| self.span.clone(), |(_, value)| value.span())
    }

    pub(super) fn problem(
        &self,
        key: &str,
        span: Range<usize>,
        text: impl Into<String>,
    ) -> Problem {
        Problem::new(span, format!("{}.{key}", self.path), text)
    }

    /// Refuses options that this kind of qdisc does not have.
    pub(super) fn only(&self, kind: &str, allowed: &[&str]) -> Result<(), Problem> {
        self.only_besides(EVERYWHERE, kind, allowed)
    }

    /// As [`only`](Self::only), of a table that may have `besides`, too.
    pub(super) fn only_besides(
        &self,
        besides: &[&str],
        kind: &str,
        allowed: &[&str],
    ) -> Result<(), Problem> {
        let unknown = self
            .table
            .keys()
            .filter(|key| !besides.contains(&key.get_ref().as_str()))
            .filter(|key| !allowed.contains(&key.get_ref().as_str()))
            .min_by_key(|key| key.span().start);
        let Some(key) = unknown else { return Ok(()) };
        let text = if allowed.is_empty() {
            format!("{kind} has no options; remove it")
        } else {
            format!(
                "is not an option of {kind}; its options are {}",
                allowed.join(", ")
            )
        };
        Err(self.problem(key.get_ref(), key.span(), text))
    }

    /// A text with a unit, or a bare number.
    pub(super) fn quantity(&self, key: &str, read: Read) -> Result<Option<u64>, Problem> {
        let Some((_, value)) = self.find(key) else {
            return Ok(None);
        };
        let text = match value.get_ref() {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            other => {
                let text = format!(
                    "is {}, not a quantity; write a number or a text with a unit",
                    other.type_str()
                );
                return Err(self.problem(key, value.span(), text));
            }
        };
        match read(&text) {
            Ok(number) => Ok(Some(number)),
            Err(error) => Err(self.problem(key, value.span(), error.to_string())),
        }
    }

    /// As [`quantity`](Self::quantity), and must be there.
    pub(super) fn required(&self, key: &str, read: Read, what: &str) -> Result<u64, Problem> {
        self.quantity(key, read)?
            .ok_or_else(|| self.missing(key, what))
    }

    /// For a key that must be there; `what` is to be added.
    pub(super) fn missing(&self, key: &str, what: &str) -> Problem {
        self.problem(key, self.span.clone(), format!("is missing; add {what}"))
    }

    /// As [`quantity`](Self::quantity), at most 32 bits.
    pub(super) fn small(&self, key: &str, read: Read) -> Result<Option<u32>, Problem> {
        let Some(number) = self.quantity(key, read)? else {
            return Ok(None);
        };
        let small = u32::try_from(number).map_err(|_| {
            let text = format!("{number} is too large; at most {}", u32::MAX);
            self.problem(key, self.span_of(key), text)
        })?;
        Ok(Some(small))
    }

    /// tc-stab(8)'s words as tbf has them: `overhead`, `mpu` and `linklayer`.
    pub(super) fn link_cost(&self) -> Result<LinkCost, Problem> {
        let bytes =
            |key| self.parsed(key, "a number of bytes from 0 to 65535", |t| t.parse().ok());
        Ok(LinkCost {
            overhead: bytes("overhead")?.unwrap_or_default(),
            mpu: bytes("mpu")?.unwrap_or_default(),
            linklayer: self.linklayer()?.unwrap_or_default(),
        })
    }

    /// The link layer, in tc-stab(8)'s words.
    pub(super) fn linklayer(&self) -> Result<Option<LinkLayer>, Problem> {
        let what = "a link layer; use ethernet, atm or adsl";
        self.parsed("linklayer", what, |text| match text {
            "ethernet" => Some(LinkLayer::Ethernet),
            "atm" | "adsl" => Some(LinkLayer::Atm),
            _ => None,
        })
    }

    /// The handle at a key.
    pub(super) fn handle(&self, key: &str) -> Result<Option<Handle>, Problem> {
        self.parsed(key, HANDLE, |text| text.parse().ok())
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Problem> {
        match self
            .find(key)
            .map(|(_, value)| (value.get_ref(), value.span()))
        {
            None => Ok(None),
            Some((Value::Boolean(flag), _)) => Ok(Some(*flag)),
            Some((other, span)) => {
                let text = format!("is {}; write true or false", other.type_str());
                Err(self.problem(key, span, text))
            }
        }
    }

    /// A text or number that can be read as `T`; `what` says what it should be.
    pub(super) fn parsed<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some((_, value)) = self.find(key) else {
            return Ok(None);
        };
        let text = match value.get_ref() {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            other => {
                let text = format!("is {}; give {what}", other.type_str());
                return Err(self.problem(key, value.span(), text));
            }
        };
        match read(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(self.problem(key, value.span(), format!("{text:?} is not {what}"))),
        }
    }
}
