//! `softnet stats`: what a running daemon counts, at once or every second with rates.

use std::cmp::Reverse;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use serde_json::Value;
use softnet_rtnl::nl::Operation;

use crate::client::{self, Daemon};
use crate::failure::{Exit, Failure};
use crate::report;
use crate::selection::{Part, Selection};
use crate::signals::Stop;

/// Interval at which `--watch` shows the counters.
const PERIOD: Duration = Duration::from_secs(1);
/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The options of the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Show only this port, or this class or qdisc of it: `web`, `web:1:10`
    #[arg(value_name = "PORT[:CLASS]")]
    of: Option<Part>,
    /// Show only the N ports that moved the most bytes, and the N busiest classes and filters of
    /// each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Show the counters every second until Ctrl-C, with packets and bits per second; with --json
    /// an object a line
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    pub(crate) daemon: client::Reach,
}

/// Prints the counters.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let cannot =
        |what: &'static str| move |error: io::Error| Failure::because(Exit::Failure, what, &error);
    let daemon = Daemon::connect(&options.daemon)?;
    let selection = Selection {
        text: !options.json,
        of: options.of.clone(),
        top: options.top,
        ..Selection::default()
    };
    let argument = selection.to_string();
    let counters = || daemon.ask(Operation::Stats, &argument);
    let print = |text: &str| report::print(text).map_err(cannot("cannot print the counters"));
    if !options.watch {
        let text = counters()?;
        return print(text.trim_end()).and_then(|()| print("\n"));
    }
    let stop = Stop::on_signals().map_err(cannot("cannot catch signals"))?;
    let start = if io::stdout().is_terminal() {
        CLEAR
    } else {
        ""
    };
    let mut before: Option<Sample> = None;
    loop {
        let text = if options.json {
            counters()? + "\n"
        } else {
            let now = Sample::of(&daemon, options.of.clone())?;
            let rates = before.as_ref().map(|before| now.since(before, options.top));
            before = Some(now);
            format!("{start}{}{}\n", rates.unwrap_or_default(), counters()?)
        };
        print(&text)?;
        if stop.wait(PERIOD) {
            return Ok(());
        }
    }
}

/// The counters at one moment.
struct Sample {
    at: Instant,
    counters: Value,
}

impl Sample {
    fn of(daemon: &Daemon, of: Option<Part>) -> Result<Sample, Failure> {
        let selection = Selection {
            of,
            ..Selection::default()
        };
        let text = daemon.ask(Operation::Stats, &selection.to_string())?;
        let counters = serde_json::from_str(&text).map_err(|error| {
            Failure::because(
                Exit::Failure,
                "the daemon's answer is not understood",
                &error,
            )
        })?;
        Ok(Sample {
            at: Instant::now(),
            counters,
        })
    }

    /// Rates of each port in a second, as a table; of the busiest alone if `top` says so.
    fn since(&self, before: &Sample, top: Option<u32>) -> String {
        rates(&before.counters, &self.counters, self.at - before.at, top)
    }
}

fn rates(before: &Value, now: &Value, time: Duration, top: Option<u32>) -> String {
    let head = [
        "port",
        "rx packets/s",
        "rx bit/s",
        "tx packets/s",
        "tx bit/s",
        "drops/s",
    ];
    let mut rows = Vec::new();
    let ports = |counters: &Value| counters["ports"].as_array().cloned().unwrap_or_default();
    let old = ports(before);
    for port in ports(now) {
        let same = old.iter().find(|old| old["name"] == port["name"]);
        let rate = |count: &dyn Fn(&Value) -> u64, scale: f64| {
            // A port that was replaced counts from 0.
            let more = count(&port).saturating_sub(same.map_or(0, count));
            format!("{:.0}", scale * more as f64 / time.as_secs_f64().max(1e-3))
        };
        let key = |key: &'static str| move |port: &Value| port[key].as_u64().unwrap_or(0);
        let dropped = |port: &Value| {
            let reasons = port["drops"].as_object();
            let reasons = reasons.map(|reasons| reasons.values().filter_map(Value::as_u64).sum());
            reasons.unwrap_or(0)
        };
        let bytes = |port: &Value| key("rx_bytes")(port) + key("tx_bytes")(port);
        let moved = bytes(&port).saturating_sub(same.map_or(0, bytes));
        let row = [
            port["name"].as_str().unwrap_or_default().to_owned(),
            rate(&key("rx_packets"), 1.0),
            rate(&key("rx_bytes"), 8.0),
            rate(&key("tx_packets"), 1.0),
            rate(&key("tx_bytes"), 8.0),
            rate(&dropped, 1.0),
        ];
        rows.push((moved, row));
    }
    if let Some(top) = top {
        rows.sort_by_key(|&(moved, _)| Reverse(moved));
        rows.truncate(top as usize);
    }
    let rows = rows.into_iter().map(|(_, row)| row);
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned))
        .chain(rows)
        .collect();
    report::table(&rows, &[0]) + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_of_ports_that_come_and_go() {
        let port = |name: &str, n: u64| {
            json!({
                "name": name, "rx_packets": n, "rx_bytes": 100 * n, "tx_packets": 2 * n,
                "tx_bytes": 50 * n, "drops": { "runt": n, "qdisc_limit": 2 * n },
            })
        };
        let before = json!({ "ports": [port("a", 10), port("gone", 1), port("again", 9)] });
        let now = json!({ "ports": [port("a", 14), port("again", 3), port("new", 2)] });
        let second = |top| rates(&before, &now, Duration::from_secs(2), top);
        let head = "port   rx packets/s  rx bit/s  tx packets/s  tx bit/s  drops/s\n";
        let a = "a                 2      1600             4       800        6\n";
        let again = "again             0         0             0         0        0\n";
        let new = "new               1       800             2       400        3\n";
        assert_eq!(second(None), format!("{head}{a}{again}{new}\n"));
        let names = |text: String| -> Vec<String> {
            let names = text.lines().filter_map(|line| line.split(' ').next());
            names
                .skip(1)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(names(second(Some(2))), ["a", "new"]);
    }
}
