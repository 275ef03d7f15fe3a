//! Two policies side by side.

use softnet_tc::sim::{ClassReport, FlowReport, Sojourn};

use super::{Simulated, shown};
use crate::report;

/// The figures of a class or flow, as they are printed.
type Figures = (String, [String; 4]);

const FIGURES: [&str; 4] = ["rate", "sojourn p50", "sojourn p99", "drops"];

/// A line for each figure of the root, of each class and of the flows of a name.
pub(super) fn table(names: [&str; 2], first: &Simulated, other: &Simulated) -> String {
    let head = ["", "", names[0], names[1]].map(str::to_owned);
    let (first, other) = (figures(first), figures(other));
    let beside = other
        .iter()
        .filter(|(name, _)| find(&first, name).is_none());
    let subjects = first.iter().chain(beside).map(|(name, _)| name);
    let mut rows = vec![head];
    for subject in subjects {
        for (place, figure) in FIGURES.into_iter().enumerate() {
            let value = |all: &[Figures]| {
                find(all, subject).map_or_else(|| "-".to_owned(), |of| of[place].clone())
            };
            let label = if place == 0 { subject.as_str() } else { "" };
            rows.push([
                label.to_owned(),
                figure.to_owned(),
                value(&first),
                value(&other),
            ]);
        }
    }
    format!("\nside by side\n{}", report::table(&rows, &[0, 1]))
}

fn find<'a>(all: &'a [Figures], name: &str) -> Option<&'a [String; 4]> {
    let found = all.iter().find(|(of, _)| of == name);
    found.map(|(_, figures)| figures)
}

fn figures((report, flows, _): &Simulated) -> Vec<Figures> {
    let class = |(place, class): (usize, &ClassReport)| {
        let name = match place {
            0 => "root".to_owned(),
            _ => class.class.to_string(),
        };
        let drops = class.drops.iter().map(|&(_, n)| n).sum();
        (name, printed(class.rate, &[&class.sojourn], drops))
    };
    let mut all: Vec<Figures> = report.classes.iter().enumerate().map(class).collect();
    for flow in flows.iter().filter(|flow| !flow.name.is_empty()) {
        if find(&all, &flow.name).is_some() {
            continue;
        }
        let alike: Vec<&FlowReport> = flows.iter().filter(|of| of.name == flow.name).collect();
        let sum = |of: fn(&FlowReport) -> u64| {
            let all = alike.iter().map(|flow| of(flow));
            all.fold(0, u64::saturating_add)
        };
        let sojourns: Vec<&Sojourn> = alike.iter().map(|flow| &flow.sojourn).collect();
        let drops = sum(|flow| flow.sent.saturating_sub(flow.delivered));
        let figures = printed(sum(|flow| flow.rate), &sojourns, drops);
        all.push((flow.name.clone(), figures));
    }
    all
}

/// Figures in words; of several sojourn times the longest, as expectations have it.
fn printed(rate: u64, sojourns: &[&Sojourn], drops: u64) -> [String; 4] {
    let longest = |of: fn(&Sojourn) -> u64| {
        let waited = sojourns.iter().filter(|sojourn| sojourn.frames > 0);
        let longest = waited.map(|sojourn| of(sojourn)).max();
        longest.map_or_else(|| "-".to_owned(), shown::time)
    };
    [
        shown::rate(rate),
        longest(|sojourn| sojourn.p50),
        longest(|sojourn| sojourn.p99),
        drops.to_string(),
    ]
}
