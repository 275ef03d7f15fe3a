//! Expectations of what `softnet sim` measures, as `--expect` and `[[expect]]` take them.
//!
//! ```text
//! EXPECTATION = SUBJECT FIGURE BOUND
//! SUBJECT     = `root`, a class as 1:20, the name of a flow (name=), or of the port;
//!               `reverse root` or `reverse 1:20` of the policy of the reverse direction
//! FIGURE      = rate | loss | drops | marks | fair
//!             | (sojourn | rtt) [mean | p50 | p90 | p99 | p999 | max]
//! BOUND       = (< | <= | > | >= | =) VALUE, or VALUE..VALUE, both included
//! ```
//!
//! Rates and times have tc's units, and are not without one; loss is a share (`0.01`) or in percent
//! (`1%`); `fair` is Jain's index, from 0 to 1. Without a word for it, of times 99 of 100 are held
//! against the bound. One that holds whatever is measured is refused.

use std::str::FromStr;

use super::units;

/// A figure of a subject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Figure {
    Rate,
    Loss,
    Drops,
    Marks,
    Fair,
    Sojourn(Rank),
    Rtt(Rank),
}

/// A part of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rank {
    Mean,
    P50,
    P90,
    P99,
    P999,
    Max,
}

/// An expectation in words, and what it means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    pub text: String,
    pub subject: String,
    /// The subject is one of the policy of the reverse direction.
    pub reverse: bool,
    pub figure: Figure,
    /// Least and most; `false`: the end itself is out of bounds.
    pub least: (f64, bool),
    pub most: (f64, bool),
}

const FIGURES: &str = "rate, loss, drops, marks, fair, sojourn or rtt";

fn is_figure(word: &str) -> bool {
    matches!(
        word,
        "rate" | "loss" | "drops" | "marks" | "fair" | "sojourn" | "rtt"
    )
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Expectation, String> {
        let mut words = words(text);
        // A flow may have that name, too.
        let reverse = matches!(
            &words[..],
            [(_, first), (_, second), ..] if first == "reverse" && !is_figure(second)
        );
        if reverse {
            words.remove(0);
        }
        let mut words = words.into_iter();
        let mut next = |what: &str| {
            let end = text.chars().count() + 1;
            words
                .next()
                .ok_or_else(|| format!("column {end}: {what} is missing"))
        };
        let (_, subject) = next("a subject (root, a class as 1:20, or a flow's name)")?;
        let (column, name) = next(FIGURES)?;
        let mut bound = next("a bound, as in < 10ms or 45..50mbit")?;
        let mut rank = Rank::P99;
        let ranked = matches!(name.as_str(), "sojourn" | "rtt");
        if ranked && let Some(found) = Rank::named(&bound.1) {
            rank = found;
            bound = next("a bound, as in < 10ms or 45..50mbit")?;
        }
        let figure = match name.as_str() {
            "rate" => Figure::Rate,
            "loss" => Figure::Loss,
            "drops" => Figure::Drops,
            "marks" => Figure::Marks,
            "fair" => Figure::Fair,
            "sojourn" => Figure::Sojourn(rank),
            "rtt" => Figure::Rtt(rank),
            _ => {
                return Err(format!(
                    "column {column}: {name:?} is no figure; use {FIGURES}"
                ));
            }
        };
        let value = |(column, word): &(usize, String)| {
            let value = figure.value(word);
            value.map_err(|why| format!("column {column}: {word:?} is no bound of {name}: {why}"))
        };
        let (least, most) = match bound.1.as_str() {
            "<" => (
                (f64::NEG_INFINITY, true),
                (value(&next("a value")?)?, false),
            ),
            "<=" => ((f64::NEG_INFINITY, true), (value(&next("a value")?)?, true)),
            ">" => ((value(&next("a value")?)?, false), (f64::INFINITY, true)),
            ">=" => ((value(&next("a value")?)?, true), (f64::INFINITY, true)),
            "=" => {
                let exact = value(&next("a value")?)?;
                ((exact, true), (exact, true))
            }
            range => {
                let (column, ends) = (bound.0, range.split_once(".."));
                let (low, high) = ends.ok_or_else(|| {
                    let ranks = match ranked && range.starts_with(char::is_alphabetic) {
                        true => "mean, p50, p90, p99, p999 or max, then ",
                        false => "",
                    };
                    format!(
                        "column {column}: {range:?} is no bound; use {ranks}< <= > >= = or A..B"
                    )
                })?;
                let high_value = value(&(column, high.to_owned()))?;
                // 45..50mbit: the unit is that of both.
                let is_unit = |c: char| c.is_alphabetic() || c == '%';
                let unit = &high[high.trim_end_matches(is_unit).len()..];
                let low = match low.ends_with(is_unit) {
                    true => low.to_owned(),
                    false => format!("{low}{unit}"),
                };
                ((value(&(column, low))?, true), (high_value, true))
            }
        };
        if least.0 > most.0 {
            return Err(format!("column {}: the range is empty", bound.0));
        }
        if let Some((column, more)) = words.next() {
            return Err(format!("column {column}: {more:?} is one word too many"));
        }
        let read = Expectation {
            text: text.to_owned(),
            subject,
            reverse,
            figure,
            least,
            most,
        };
        let (low, high) = figure.range();
        match read.holds(low) && read.holds(high) {
            true => Err(format!(
                "column {}: every value of {name} keeps this bound",
                bound.0
            )),
            false => Ok(read),
        }
    }
}

/// The words of a text with their columns, from 1; signs of comparison are words.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut before = ' ';
    for (at, c) in text.chars().enumerate() {
        let is_sign = |c: char| matches!(c, '<' | '>' | '=');
        let joins = !before.is_whitespace() && is_sign(before) == is_sign(c);
        match words.last_mut() {
            Some((_, word)) if joins && !c.is_whitespace() => word.push(c),
            _ if c.is_whitespace() => {}
            _ => words.push((at + 1, c.to_string())),
        }
        before = c;
    }
    words
}

impl Rank {
    fn named(word: &str) -> Option<Rank> {
        Some(match word {
            "mean" => Rank::Mean,
            "p50" => Rank::P50,
            "p90" => Rank::P90,
            "p99" => Rank::P99,
            "p999" => Rank::P999,
            "max" => Rank::Max,
            _ => return None,
        })
    }
}

impl Figure {
    /// The least and the most that it can be.
    fn range(self) -> (f64, f64) {
        match self {
            Figure::Loss | Figure::Fair => (0.0, 1.0),
            _ => (0.0, f64::INFINITY),
        }
    }

    /// A value in the figure's unit: bits per second, nanoseconds, a share or a number.
    fn value(self, text: &str) -> Result<f64, String> {
        let number = |text: &str| {
            let number = text
                .parse::<f64>()
                .ok()
                .filter(|n| n.is_finite() && *n >= 0.0);
            number.ok_or_else(|| "it is no number".to_owned())
        };
        match self {
            Figure::Rate => Ok(8.0 * rate(text)? as f64),
            Figure::Sojourn(_) | Figure::Rtt(_) => Ok(time(text)? as f64),
            Figure::Loss => match text.strip_suffix('%') {
                Some(percent) => Ok(number(percent)? / 100.0),
                None if number(text)? >= 1.0 => Err(format!(
                    "a share of 1 is all packets; write {text}% or less"
                )),
                None => number(text),
            },
            Figure::Drops | Figure::Marks | Figure::Fair => number(text),
        }
    }
}

/// An expected rate, in bytes per second. tc's is in bits per second without a unit: more
/// than 45 of them are what nobody asks for.
fn rate(text: &str) -> Result<u64, String> {
    let rate = units::rate(text).map_err(|error| error.to_string())?;
    has_unit(text, "kbit", "mbit").map(|()| rate)
}

/// A time of the command line, in nanoseconds. tc's is in microseconds without a unit: `for=10`
/// would be a run of one packet, whose results keep every bound.
pub(crate) fn time(text: &str) -> Result<u64, String> {
    let nanos = units::time(text).map_err(|error| error.to_string())?;
    has_unit(text, "ms", "s").map(|()| nanos)
}

/// Nothing at all needs no unit.
fn has_unit(text: &str, one: &str, other: &str) -> Result<(), String> {
    let text = text.trim();
    match text.ends_with(char::is_alphabetic) || text.parse::<f64>() == Ok(0.0) {
        true => Ok(()),
        false => Err(format!(
            "{text:?} has no unit; write it like {text}{one} or {text}{other}"
        )),
    }
}

impl Expectation {
    /// A value is within the bound.
    pub(crate) fn holds(&self, value: f64) -> bool {
        let (least, at_least) = self.least;
        let (most, at_most) = self.most;
        (value > least || (at_least && value == least))
            && (value < most || (at_most && value == most))
    }
}

#[cfg(test)]
// By its path: the fuzz targets have this file, too.
#[path = "expectation/tests.rs"]
mod tests;
