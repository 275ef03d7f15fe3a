//! `[[expect]]`: what `softnet sim` holds a port's policy against. The daemon reads it, and does
//! nothing with it.

use softnet_tc::Unset::Required;

use super::expectation::Expectation;
use super::key::{Key, keys, names};
use super::link::Named;
use super::table::Table;

/// An expectation of a port's policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expected {
    pub port: String,
    pub expectation: Expectation,
}

pub(super) static EXPECT: &[Key<Expected>] = keys! { Expected =>
    /// the port whose policy it is about
    "port": Required("it", "\"p\""), "\"x\"";
    /// a subject, a figure and a bound, as `softnet sim --expect` takes them: `"1:20 sojourn p99 <
    /// 10ms"` ([how](policy-ci.md))
    "expr": Required("it", "\"root rate > 1mbit\""), "\"root\"";
};

pub(super) fn read(tables: &[Table<'_>], index: &Named<'_>) -> Vec<Expected> {
    let read = |table: &Table<'_>| {
        table.known(&names(EXPECT).collect::<Vec<_>>(), |_| "");
        let port = match table.find("port") {
            Some(item) => item
                .port(&|name| index.contains_key(name))
                .map(str::to_owned),
            None => table.missing("port", "the port whose policy it is about"),
        };
        let expectation = match table.find("expr") {
            Some(item) => match item.text()?.parse() {
                Ok(expectation) => Some(expectation),
                Err(error) => item.problem(error),
            },
            None => table.missing("expr", "a bound, such as \"root rate > 1mbit\""),
        };
        Some(Expected {
            port: port?,
            expectation: expectation?,
        })
    };
    tables.iter().filter_map(read).collect()
}
