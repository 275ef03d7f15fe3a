//! `--expect`: bounds that the results are held against.
//!
//! ```text
//! EXPECTATION = SUBJECT FIGURE BOUND
//! SUBJECT     = `root`, a class as 1:20, the name of a flow (name=), or of the port
//! FIGURE      = rate | loss | drops | marks | fair | (sojourn | rtt) [mean | p50 | p90 | p99 |
//! p999 | max] BOUND       = (< | <= | > | >= | =) VALUE, or VALUE..VALUE, both included
//! ```
//!
//! Rates and times have tc's units; loss is a share (`0.01`) or in percent (`1%`); `fair` is Jain's
//! index, from 0 to 1. Flows of one name count together: their rates add up, of times the longest
//! counts. Without a word for it, of times 99 of 100 are held against the bound.
//!
//! A bound that does not hold for the whole is held against each window of 100 ms, too, so that
//! the result says when it was first broken.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};
use softnet::time::Time;
use softnet_tc::sim::{ClassReport, FlowReport, Report, Sojourn, Window, jain};

use crate::config::units;

/// A figure of a subject.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
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
enum Rank {
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
    text: String,
    subject: String,
    figure: Figure,
    /// Least and most; `false`: the end itself is out of bounds.
    least: (f64, bool),
    most: (f64, bool),
}

/// Result of an expectation.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    expected: &'a Expectation,
    /// None: the figure does not exist.
    measured: Option<f64>,
    why: Option<String>,
    /// None: no window alone broke the bound.
    broken: Option<Broken>,
}

/// The first window in which a bound was broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Broken {
    from: Time,
    until: Time,
    measured: f64,
}

/// The least part of a second over which a rate is told, ns: half of a window.
const LEAST_WINDOW: u64 = WINDOW / 2;
/// Window in which bounds are held against results, ns.
pub(super) const WINDOW: u64 = 100_000_000;

const FIGURES: &str = "rate, loss, drops, marks, fair, sojourn or rtt";

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Expectation, String> {
        let mut words = words(text).into_iter();
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
                    format!("column {column}: {range:?} is no bound; use < <= > >= = or A..B")
                })?;
                let high_value = value(&(column, high.to_owned()))?;
                // 45..50mbit: the unit is that of both.
                let unit: String = high
                    .chars()
                    .skip_while(|c| !c.is_alphabetic() && *c != '%')
                    .collect();
                let low = match low.contains(|c: char| c.is_alphabetic() || c == '%') {
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
        Ok(Expectation {
            text: text.to_owned(),
            subject,
            figure,
            least,
            most,
        })
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

    fn of(self, times: &Sojourn) -> u64 {
        match self {
            Rank::Mean => times.mean,
            Rank::P50 => times.p50,
            Rank::P90 => times.p90,
            Rank::P99 => times.p99,
            Rank::P999 => times.p999,
            Rank::Max => times.max,
        }
    }
}

impl Figure {
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
            Figure::Rate => {
                let rate = units::rate(text).map_err(|error| error.to_string())?;
                Ok(8.0 * rate as f64)
            }
            Figure::Sojourn(_) | Figure::Rtt(_) => {
                let time = units::time(text).map_err(|error| error.to_string())?;
                Ok(time as f64)
            }
            Figure::Loss => match text.strip_suffix('%') {
                Some(percent) => Ok(number(percent)? / 100.0),
                None => number(text),
            },
            Figure::Drops | Figure::Marks | Figure::Fair => number(text),
        }
    }

    /// A value as people read it.
    fn text(self, value: f64) -> String {
        match self {
            Figure::Rate => super::output::rate(value as u64),
            Figure::Sojourn(_) | Figure::Rtt(_) => super::output::time(value as u64),
            Figure::Loss => format!("{:.4} %", 100.0 * value),
            Figure::Fair => format!("{value:.4}"),
            Figure::Drops | Figure::Marks => format!("{value:.0}"),
        }
    }
}

impl Expectation {
    /// Holds the results against the bound. `port` is another name of the root, and `broken` the
    /// first window that broke the bound.
    pub(crate) fn check(
        &self,
        report: &Report,
        flows: &[FlowReport],
        port: Option<&str>,
        broken: Option<Broken>,
    ) -> Outcome<'_> {
        let measured = self.measure(&report.classes, flows, port);
        Outcome {
            expected: self,
            measured: measured.as_ref().ok().copied(),
            why: measured.err(),
            broken,
        }
    }

    /// The figure, or why there is none.
    fn measure(
        &self,
        classes: &[ClassReport],
        flows: &[FlowReport],
        port: Option<&str>,
    ) -> Result<f64, String> {
        let named: Vec<&FlowReport> = flows
            .iter()
            .filter(|flow| flow.name == self.subject)
            .collect();
        let class = match self.subject.as_str() {
            name if name == "root" || Some(name) == port => classes.first(),
            name => {
                let handle = name.parse().ok();
                let mut classes = classes.iter();
                classes.find(|class| {
                    Some(class.class) == handle
                        || (class.qdisc != softnet_tc::Handle::NONE && Some(class.qdisc) == handle)
                })
            }
        };
        match (named.as_slice(), class) {
            ([], None) => Err(format!(
                "there is no class and no flow {:?}; flows have names by name=",
                self.subject
            )),
            ([], Some(class)) => of_class(self.figure, class),
            (named, _) => of_flows(self.figure, named),
        }
    }

    /// A window that breaks the bound. `count` is what figures that are counts have come to in
    /// the windows before.
    pub(super) fn broken_in(
        &self,
        window: &Window,
        port: Option<&str>,
        count: &mut f64,
    ) -> Option<Broken> {
        let is_rate = matches!(self.figure, Figure::Rate | Figure::Fair);
        let sends = |flow: &&FlowReport| !is_rate || flow.nanos >= LEAST_WINDOW;
        let flows: Vec<FlowReport> = window.flows.iter().filter(sends).cloned().collect();
        let is_flow = (window.flows.iter()).any(|flow| flow.name == self.subject);
        let is_short = window.until.since(window.from).as_nanos() < LEAST_WINDOW.into();
        if is_rate && (is_short || (is_flow && flows.is_empty())) {
            return None;
        }
        let mut measured = self.measure(&window.classes, &flows, port).ok()?;
        let holds = match self.figure {
            Figure::Drops | Figure::Marks => {
                *count += measured;
                measured = *count;
                // There may be more of them yet.
                *count < self.least.0 || self.holds(*count)
            }
            // Nothing left.
            Figure::Sojourn(_) | Figure::Rtt(_) if measured == 0.0 => true,
            _ => self.holds(measured),
        };
        (!holds).then_some(Broken {
            from: window.from,
            until: window.until,
            measured,
        })
    }

    fn holds(&self, value: f64) -> bool {
        let (least, at_least) = self.least;
        let (most, at_most) = self.most;
        (value > least || (at_least && value == least))
            && (value < most || (at_most && value == most))
    }
}

fn of_class(figure: Figure, class: &ClassReport) -> Result<f64, String> {
    let dropped: u64 = class.drops.iter().map(|&(_, n)| n).sum();
    Ok(match figure {
        Figure::Rate => class.rate as f64,
        Figure::Drops => dropped as f64,
        Figure::Loss => dropped as f64 / (dropped + class.stats.packets).max(1) as f64,
        Figure::Fair => class.fair,
        Figure::Sojourn(rank) => rank.of(&class.sojourn) as f64,
        Figure::Marks => class.marked as f64,
        Figure::Rtt(_) => return Err("a class has no round-trip time; name a flow".to_owned()),
    })
}

fn of_flows(figure: Figure, flows: &[&FlowReport]) -> Result<f64, String> {
    let sum = |of: fn(&FlowReport) -> u64| flows.iter().map(|flow| of(flow)).sum::<u64>() as f64;
    let longest = |of: &dyn Fn(&FlowReport) -> u64| {
        let longest = flows.iter().map(|flow| of(flow)).max();
        longest.unwrap_or(0) as f64
    };
    Ok(match figure {
        Figure::Rate => sum(|flow| flow.rate),
        Figure::Drops => sum(|flow| flow.dropped),
        Figure::Loss => sum(|flow| flow.dropped) / sum(|flow| flow.sent).max(1.0),
        Figure::Marks => sum(|flow| flow.marked),
        Figure::Fair => jain(flows.iter().map(|flow| flow.rate)),
        Figure::Sojourn(rank) => longest(&|flow| rank.of(&flow.sojourn)),
        Figure::Rtt(rank) => {
            if flows.iter().all(|flow| flow.rtt.frames == 0) {
                return Err("a flow that does not react has no round-trip time".to_owned());
            }
            longest(&|flow| rank.of(&flow.rtt))
        }
    })
}

impl Outcome<'_> {
    pub(crate) fn holds(&self) -> bool {
        self.measured
            .is_some_and(|value| self.expected.holds(value))
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "expectation": self.expected.text,
            "holds": self.holds(),
            "measured": self.measured,
            "why": self.why,
            "first_broken": self.broken.filter(|_| !self.holds()).map(|broken| json!({
                "from_ns": broken.from.0,
                "until_ns": broken.until.0,
                "measured": broken.measured,
            })),
        })
    }

    /// A test case of JUnit's format.
    pub(crate) fn junit(&self) -> String {
        let name = escaped(&self.expected.text);
        match self.holds() {
            true => format!("  <testcase name=\"{name}\"/>\n"),
            false => {
                let text = escaped(&self.to_string());
                format!("  <testcase name=\"{name}\"><failure message=\"{text}\"/></testcase>\n")
            }
        }
    }
}

/// All outcomes in JUnit's format.
pub(crate) fn junit(outcomes: &[Outcome<'_>]) -> String {
    let failed = outcomes.iter().filter(|outcome| !outcome.holds()).count();
    let cases: String = outcomes.iter().map(Outcome::junit).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuite name=\"softnet sim\" tests=\"{}\" failures=\"{failed}\">\n\
         {cases}</testsuite>\n",
        outcomes.len(),
    )
}

pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// `ok: root rate > 1mbit (9.990 Mbit/s)`, or `failed: …` with by how much.
impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expectation {
            text,
            figure,
            least,
            most,
            ..
        } = self.expected;
        let Some(value) = self.measured else {
            let why = self.why.as_deref().unwrap_or_default();
            return write!(f, "failed: {text}: {why}");
        };
        let measured = figure.text(value);
        if self.holds() {
            return write!(f, "ok: {text} ({measured})");
        }
        let off = if value <= least.0 {
            least.0 - value
        } else {
            value - most.0
        };
        write!(
            f,
            "failed: {text}: it is {measured}, off by {}; ",
            figure.text(off)
        )?;
        match self.broken {
            Some(broken) => write!(
                f,
                "first broken from {} to {} ({})",
                super::output::time(broken.from.0),
                super::output::time(broken.until.0),
                figure.text(broken.measured)
            ),
            None => write!(f, "no window of 100 ms breaks it alone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Expectation {
        text.parse().expect(text)
    }

    #[test]
    fn expectations_in_words() {
        let rate = read("root rate 45..50mbit");
        assert_eq!((rate.least, rate.most), ((45e6, true), (50e6, true)));
        let time = read("1:20 sojourn p50<10ms");
        assert_eq!(
            (time.figure, time.most),
            (Figure::Sojourn(Rank::P50), (1e7, false))
        );
        assert_eq!(
            read("1:20 sojourn < 10ms").figure,
            Figure::Sojourn(Rank::P99)
        );
        assert_eq!(read("voip loss <= 1%").most, (0.01, true));
        assert_eq!(read("voip loss = 0").least, (0.0, true));
        assert_eq!(read("bulk fair > 0.95").least, (0.95, false));
        assert_eq!(read("a rtt max 1ms..2s").most, (2e9, true));
    }

    #[test]
    fn mistakes_are_told_with_their_column() {
        for (text, part) in [
            ("", "column 1: a subject"),
            ("root", "column 5: rate, loss"),
            ("root speed > 1mbit", "column 6: \"speed\" is no figure"),
            ("root rate", "column 10: a bound"),
            ("root rate >", "column 12: a value is missing"),
            (
                "root rate > fast",
                "column 13: \"fast\" is no bound of rate",
            ),
            ("root rate ~ 1", "column 11: \"~\" is no bound"),
            ("root rate 2mbit..1mbit", "column 11: the range is empty"),
            ("root fair > -1", "column 13: \"-1\" is no bound of fair"),
            (
                "root rate > 1mbit more",
                "column 19: \"more\" is one word too many",
            ),
        ] {
            let error = text.parse::<Expectation>().expect_err(text);
            assert!(error.starts_with(part), "{text}: {error}");
        }
    }

    #[test]
    fn ends_belong_to_ranges_and_not_to_less() {
        let below = read("root drops < 3");
        assert!(below.holds(2.0) && !below.holds(3.0));
        let range = read("root drops 1..3");
        assert!(range.holds(1.0) && range.holds(3.0) && !range.holds(3.1));
    }
}
