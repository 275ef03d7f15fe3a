//! `--expect`: bounds that the results are held against; [`Expectation`] has the words.
//!
//! Flows of one name count together: their rates add up, of times the longest counts. A bound that
//! does not hold for the whole is held against each window of 100 ms, too, so that the result says
//! when it was first broken.

use std::fmt;

use serde_json::{Value, json};
use softnet::time::Time;
use softnet_tc::sim::{ClassReport, FlowReport, Report, Sojourn, Window, jain};

use crate::config::{Expectation, Figure, Rank};

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
pub(super) const LEAST_WINDOW: u64 = WINDOW / 2;
/// Window in which bounds are held against results, ns.
pub(super) const WINDOW: u64 = 100_000_000;

/// The part of a distribution that is meant.
fn part(rank: Rank, times: &Sojourn) -> u64 {
    match rank {
        Rank::Mean => times.mean,
        Rank::P50 => times.p50,
        Rank::P90 => times.p90,
        Rank::P99 => times.p99,
        Rank::P999 => times.p999,
        Rank::Max => times.max,
    }
}

/// A value as people read it.
fn shown(figure: Figure, value: f64) -> String {
    match figure {
        Figure::Rate => super::shown::rate(value as u64),
        Figure::Sojourn(_) | Figure::Rtt(_) => super::shown::time(value as u64),
        Figure::Loss => format!("{:.4} %", 100.0 * value),
        Figure::Fair => format!("{value:.4}"),
        Figure::Drops | Figure::Marks => format!("{value:.0}"),
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
        let measured = match (self.reverse, &report.reverse) {
            (false, _) => self.measure(&report.classes, flows, port),
            (true, Some(reverse)) => self.measure(&reverse.classes, &[], None),
            (true, None) => Err("there is no policy for the reverse direction".to_owned()),
        };
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
        // Flows have no direction in expectations.
        let none: &[FlowReport] = &[];
        let (classes, all, port) = match self.reverse {
            true => (&window.reverse, none, None),
            false => (&window.classes, &window.flows[..], port),
        };
        let flows: Vec<FlowReport> = all.iter().filter(sends).cloned().collect();
        let is_flow = all.iter().any(|flow| flow.name == self.subject);
        let is_short = window.until.since(window.from).as_nanos() < LEAST_WINDOW.into();
        if is_rate && (is_short || (is_flow && flows.is_empty())) {
            return None;
        }
        let mut measured = self.measure(classes, &flows, port).ok()?;
        let holds = match self.figure {
            Figure::Drops | Figure::Marks => {
                *count += measured;
                measured = *count;
                // There may be more of them yet.
                *count < self.least.0 || self.holds(*count)
            }
            _ => self.holds(measured),
        };
        (!holds).then_some(Broken {
            from: window.from,
            until: window.until,
            measured,
        })
    }
}

/// The part of a distribution that is meant, if there is any.
fn of_times<'a>(rank: Rank, times: impl Iterator<Item = &'a Sojourn>) -> Result<f64, String> {
    let longest = times.filter(|times| times.frames > 0);
    let longest = longest.map(|times| part(rank, times)).max();
    let longest = longest.ok_or("no packet left, so none has a time")?;
    Ok(longest as f64)
}

/// The part of so many packets that was dropped, if there were any.
fn loss(dropped: f64, all: f64) -> Result<f64, String> {
    match all > 0.0 {
        true => Ok(dropped / all),
        false => Err("no packet came, so none was lost or kept".to_owned()),
    }
}

/// Why there is no index of shares.
const NO_SHARES: &str = "no packet left, so nothing was shared";

fn of_class(figure: Figure, class: &ClassReport) -> Result<f64, String> {
    let dropped = class.drops.iter().map(|&(_, n)| n).sum::<u64>() as f64;
    Ok(match figure {
        Figure::Rate => class.rate as f64,
        Figure::Drops => dropped,
        Figure::Loss => loss(dropped, dropped + class.stats.packets as f64)?,
        Figure::Fair if class.sojourn.frames == 0 => return Err(NO_SHARES.to_owned()),
        Figure::Fair => class.fair,
        Figure::Sojourn(rank) => of_times(rank, [&class.sojourn].into_iter())?,
        Figure::Marks => class.marked as f64,
        Figure::Rtt(_) => return Err("a class has no round-trip time".to_owned()),
    })
}

fn of_flows(figure: Figure, flows: &[&FlowReport]) -> Result<f64, String> {
    let sum = |of: fn(&FlowReport) -> u64| flows.iter().map(|flow| of(flow) as f64).sum::<f64>();
    Ok(match figure {
        Figure::Rate => sum(|flow| flow.rate),
        Figure::Drops => sum(|flow| flow.dropped),
        // In a window those are dropped, too, that were sent before it.
        Figure::Loss => {
            let dropped = sum(|flow| flow.dropped);
            loss(dropped, sum(|flow| flow.sent).max(dropped))?
        }
        Figure::Marks => sum(|flow| flow.marked),
        Figure::Fair if flows.iter().all(|flow| flow.rate == 0) => {
            return Err(NO_SHARES.to_owned());
        }
        Figure::Fair => jain(flows.iter().map(|flow| flow.rate)),
        Figure::Sojourn(rank) => of_times(rank, flows.iter().map(|flow| &flow.sojourn))?,
        Figure::Rtt(rank) => of_times(rank, flows.iter().map(|flow| &flow.rtt))?,
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
        let measured = shown(*figure, value);
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
            shown(*figure, off)
        )?;
        match self.broken {
            Some(broken) => write!(
                f,
                "first broken from {} to {} ({})",
                super::shown::time(broken.from.0),
                super::shown::time(broken.until.0),
                shown(*figure, broken.measured)
            ),
            None => write!(f, "no window of 100 ms breaks it alone"),
        }
    }
}
