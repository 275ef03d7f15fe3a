//! Actions in the words of tc, as configuration files have them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{ActionKind, ActionSpec, Control};
use crate::account::EstimatorSpec;
use crate::units;

/// Why words are no action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WordsError(pub(super) String);

impl WordsError {
    pub(super) fn new(text: impl Into<String>) -> WordsError {
        WordsError(text.into())
    }
}

/// The words that are left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    left: &'a str,
    /// A way on that a kind's own words had.
    said: Option<Control>,
}

impl<'a> Words<'a> {
    pub(super) fn peek(&self) -> Option<&'a str> {
        self.left.split_whitespace().next()
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        let rest = self.left.trim_start();
        self.left = rest.get(word.len()..).unwrap_or_default();
        Some(word)
    }

    /// The rest of a text in quotes, or one word.
    pub(super) fn quoted(&mut self) -> Option<&'a str> {
        let rest = self.left.trim_start();
        let Some(inner) = rest.strip_prefix('"') else {
            return self.next();
        };
        let (text, rest) = inner.split_once('"')?;
        self.left = rest;
        Some(text)
    }

    /// Notes a way on, which holds unless another one follows.
    pub(super) fn say(&mut self, control: Control) {
        self.said = Some(control);
    }

    pub(super) fn accept(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        if found {
            self.next();
        }
        found
    }

    /// The word behind `name`, read by `read`.
    pub(super) fn value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, WordsError> {
        let Some(word) = self.next() else {
            return Err(WordsError::new(format!("{name} lacks its value")));
        };
        read(word).ok_or_else(|| WordsError::new(format!("{word:?} is no value of {name}")))
    }

    pub(super) fn number<T: TryFrom<u64>>(&mut self, name: &str) -> Result<T, WordsError> {
        self.value(name, number)
    }

    /// A way on, if the next words are one.
    pub(super) fn control(&mut self) -> Result<Option<Control>, WordsError> {
        let Some(word) = self.peek() else {
            return Ok(None);
        };
        let control = match word {
            "goto" => {
                self.next();
                if !self.accept("chain") {
                    return Err(WordsError::new("write \"goto chain NUMBER\""));
                }
                Control::Goto(self.number("goto chain")?)
            }
            "jump" => {
                self.next();
                Control::Jump(self.number("jump")?)
            }
            word => match Control::from_word(word) {
                Some(control) => {
                    self.next();
                    return Ok(Some(control));
                }
                None => return Ok(None),
            },
        };
        match control {
            Control::Goto(n) | Control::Jump(n) if n > Control::MAX => Err(WordsError::new(
                format!("Specified chain index exceeds upper limit: {n}; use 0 to 268435455"),
            )),
            control => Ok(Some(control)),
        }
    }
}

/// A number as tc reads it: decimal, or hexadecimal with `0x`.
pub(super) fn number<T: TryFrom<u64>>(word: &str) -> Option<T> {
    let number = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    T::try_from(number.ok()?).ok()
}

/// Value and mask: `value/mask`.
pub(super) fn masked(word: &str) -> Option<(u32, Option<u32>)> {
    match word.split_once('/') {
        Some((value, mask)) => Some((number(value)?, Some(number(mask)?))),
        None => Some((number(word)?, None)),
    }
}

pub(super) fn mac(word: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = word.split(':');
    for byte in &mut mac {
        let part = parts.next()?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// A MAC address as it is written.
pub(super) struct Mac(pub(super) [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An EtherType by its name or number.
pub(super) fn protocol(word: &str) -> Option<u16> {
    Some(match word.to_ascii_lowercase().as_str() {
        "ip" | "ipv4" => 0x0800,
        "ipv6" => 0x86dd,
        "arp" => 0x0806,
        "802.1q" => 0x8100,
        "802.1ad" => 0x88a8,
        other => return number(other),
    })
}

impl FromStr for ActionSpec {
    type Err = WordsError;

    fn from_str(text: &str) -> Result<ActionSpec, WordsError> {
        let mut words = Words {
            left: text,
            said: None,
        };
        let first = words.peek();
        let kind = match first {
            // The word `gact` may be left out.
            Some("goto" | "jump") => "gact",
            Some(word) if Control::from_word(word).is_some() => "gact",
            Some(word) => {
                words.next();
                word
            }
            None => return Err(WordsError::new("is no action")),
        };
        let mut spec = ActionSpec::new(ActionKind::read(kind, &mut words)?);
        if let Some(control) = words.control()?.or(words.said) {
            spec.control = control;
        }
        // `gact` has what is random behind its control.
        spec.kind.read_behind(&mut words)?;
        while let Some(word) = words.next() {
            match word {
                "index" => spec.index = words.number("index")?,
                "cookie" => spec.cookie = words.value("cookie", hex)?,
                "skip_hw" => spec.skip_hw = true,
                "estimator" => spec.estimator = Some(estimator(&mut words)?),
                other => {
                    let name = spec.kind.name();
                    return Err(WordsError::new(format!("{name} has no option {other:?}")));
                }
            }
        }
        spec.check()?;
        Ok(spec)
    }
}

/// tc's two times: between samples, and of the average.
fn estimator(words: &mut Words<'_>) -> Result<EstimatorSpec, WordsError> {
    let mut time = || words.value("estimator", |word| units::time(word).ok());
    let [interval, average] = [time()?, time()?].map(Duration::from_nanos);
    let made = EstimatorSpec::from_times(interval, average);
    made.map_err(|error| WordsError::new(error.to_string()))
}

/// Up to 16 bytes in hexadecimal digits.
fn hex(word: &str) -> Option<Vec<u8>> {
    if !word.len().is_multiple_of(2) || word.is_empty() || word.len() > 32 || !word.is_ascii() {
        return None;
    }
    (0..word.len() / 2)
        .map(|n| u8::from_str_radix(&word[2 * n..2 * n + 2], 16).ok())
        .collect()
}

impl fmt::Display for ActionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.write(self.control, f)?;
        if self.index != 0 {
            write!(f, " index {}", self.index)?;
        }
        if self.skip_hw {
            f.write_str(" skip_hw")?;
        }
        if let Some(estimator) = self.estimator {
            write!(f, " estimator {estimator}")?;
        }
        if !self.cookie.is_empty() {
            f.write_str(" cookie ")?;
            self.cookie
                .iter()
                .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}
