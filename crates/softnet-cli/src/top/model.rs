//! Rows of `softnet top`: rates of ports, or of the classes of one port, from two samples; rows of
//! flows are made in [`flows`](super::flows).

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Value, json};

/// The daemon's counters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub at: Instant,
    pub counters: Value,
}

/// An order of rows; the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// Bits per second sent.
    #[default]
    Rate,
    /// Packets dropped per second.
    Drops,
    /// Time of packets; among classes that measure none, bytes that wait.
    Delay,
    /// Name.
    Name,
}

impl Sort {
    pub(crate) fn next(self) -> Sort {
        match self {
            Sort::Rate => Sort::Drops,
            Sort::Drops => Sort::Delay,
            Sort::Delay => Sort::Name,
            Sort::Name => Sort::Rate,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Drops => "drops",
            Sort::Delay => "delay",
            Sort::Name => "name",
        }
    }
}

/// A port, a class or a flow. Rates are per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub name: String,
    /// Driver's link state, kind of the qdisc, or direction of the flow.
    pub what: String,
    pub rx_bits: f64,
    pub rx_packets: f64,
    pub tx_bits: f64,
    pub tx_packets: f64,
    pub drops: f64,
    /// Packets that wait.
    pub queued: u64,
    /// Bytes that wait, of a class.
    pub backlog: Option<u64>,
    /// Nanoseconds: of a port, time that 99 of 100 packets did not exceed since the start; of a
    /// class, what its qdisc has measured, if it measures; of a flow, the mean.
    pub delay: Option<f64>,
}

impl Row {
    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "what": self.what,
            "rx_bits_per_second": self.rx_bits,
            "rx_packets_per_second": self.rx_packets,
            "tx_bits_per_second": self.tx_bits,
            "tx_packets_per_second": self.tx_packets,
            "drops_per_second": self.drops,
            "queued_packets": self.queued,
            "backlog_bytes": self.backlog,
            "delay_ns": self.delay,
        })
    }

    fn weight(&self, sort: Sort) -> f64 {
        match sort {
            Sort::Rate => self.tx_bits + self.rx_bits,
            Sort::Drops => self.drops,
            Sort::Delay => self.delay.unwrap_or(0.0),
            Sort::Name => 0.0,
        }
    }
}

/// The rows of all ports, or of the classes of one, whose names contain `filter`.
pub(crate) fn rows(
    before: &Sample,
    now: &Sample,
    port: Option<&str>,
    sort: Sort,
    filter: &str,
) -> Vec<Row> {
    let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
    let (list, name): (_, fn(&Value) -> &str) = match port {
        None => ("ports", |port| port["name"].as_str().unwrap_or_default()),
        Some(_) => ("classes", |class| {
            class["class"].as_str().unwrap_or_default()
        }),
    };
    let objects = |sample: &'_ Value| -> Vec<Value> {
        let ports = sample["ports"].as_array().map_or(&[][..], Vec::as_slice);
        match port {
            None => ports.to_vec(),
            Some(port) => {
                let found = ports.iter().find(|other| other["name"] == port);
                let classes = found.and_then(|port| port[list].as_array());
                classes.cloned().unwrap_or_default()
            }
        }
    };
    let old = objects(&before.counters);
    let old: HashMap<&str, &Value> = old.iter().map(|object| (name(object), object)).collect();
    let new = objects(&now.counters);
    let mut rows: Vec<Row> = new
        .iter()
        .filter(|object| name(object).contains(filter))
        .map(|object| {
            let rate = |count: &dyn Fn(&Value) -> u64| {
                let before = old.get(name(object)).map_or(0, |old| count(old));
                // What was made anew counts from 0.
                count(object).saturating_sub(before) as f64 / seconds
            };
            let of = |key: &'static str| move |object: &Value| object[key].as_u64().unwrap_or(0);
            match port {
                None => Row {
                    name: name(object).to_owned(),
                    what: match object["link"]["up"].as_bool() {
                        Some(true) => "up".to_owned(),
                        _ => "down".to_owned(),
                    },
                    rx_bits: 8.0 * rate(&of("rx_bytes")),
                    rx_packets: rate(&of("rx_packets")),
                    tx_bits: 8.0 * rate(&of("tx_bytes")),
                    tx_packets: rate(&of("tx_packets")),
                    drops: rate(&|object| {
                        let reasons = object["drops"].as_object();
                        let counts = reasons.into_iter().flat_map(|reasons| reasons.values());
                        counts.filter_map(Value::as_u64).sum()
                    }),
                    queued: object["queued"].as_u64().unwrap_or(0),
                    backlog: None,
                    delay: object["sojourn_ns"]["p99"].as_f64(),
                },
                Some(_) => Row {
                    name: name(object).to_owned(),
                    what: object["kind"].as_str().unwrap_or_default().to_owned(),
                    tx_bits: 8.0 * rate(&of("bytes")),
                    tx_packets: rate(&of("packets")),
                    drops: rate(&of("drops")),
                    queued: object["qlen"].as_u64().unwrap_or(0),
                    backlog: object["backlog"].as_u64(),
                    delay: delay(&object["xstats"]),
                    ..Row::default()
                },
            }
        })
        .collect();
    sort_rows(&mut rows, sort);
    rows
}

/// Puts rows in order, the most first.
pub(crate) fn sort_rows(rows: &mut [Row], sort: Sort) {
    rows.sort_by(|a, b| {
        let weights = b.weight(sort).total_cmp(&a.weight(sort));
        let backlog = match sort {
            Sort::Delay => b.backlog.cmp(&a.backlog),
            _ => Ordering::Equal,
        };
        let names = || Reverse(&b.name).cmp(&Reverse(&a.name));
        let order = weights.then(backlog).then_with(names);
        // A flow's two directions have one name.
        order.then_with(|| a.what.cmp(&b.what))
    });
}

/// The time of packets in a qdisc that measures it, in nanoseconds, by what its kind calls it.
fn delay(xstats: &Value) -> Option<f64> {
    const NAMES: [&str; 5] = ["avg_delay", "delay", "ldelay", "delay_c", "delay_l"];
    let delays = NAMES.iter().filter_map(|name| xstats[name].as_f64());
    delays.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn samples() -> (Sample, Sample) {
        let counters = |n: u64| {
            json!({ "ports": [
                { "name": "a", "rx_bytes": n, "rx_packets": n, "tx_bytes": 3 * n, "tx_packets": n,
                  "queued": 2, "drops": { "runt": n }, "link": { "up": true },
                  "sojourn_ns": { "p99": 5000.0 },
                  "classes": [
                    { "class": "1:1", "kind": "fq", "bytes": n, "packets": n, "drops": 0,
                      "qlen": 1, "backlog": 9, "xstats": {} },
                    { "class": "1:2", "kind": "fq", "bytes": 2 * n, "packets": n, "drops": n,
                      "qlen": 1, "backlog": 8, "xstats": {} },
                    { "class": "1:3", "kind": "codel", "bytes": 0, "packets": 0, "drops": 0,
                      "qlen": 0, "backlog": 0, "xstats": { "ldelay": 7000, "count": 9 } },
                  ] },
                { "name": "b", "rx_bytes": 9 * n, "rx_packets": n, "tx_bytes": 0, "tx_packets": 0,
                  "queued": 0, "drops": {}, "link": { "up": false }, "sojourn_ns": { "p99": null },
                  "classes": [] },
            ] })
        };
        let at = Instant::now();
        let before = Sample {
            at,
            counters: counters(100),
        };
        let at = at + Duration::from_secs(2);
        (
            before,
            Sample {
                at,
                counters: counters(300),
            },
        )
    }

    #[test]
    fn rates_are_of_the_interval() {
        let (before, now) = samples();
        let ports = rows(&before, &now, None, Sort::Rate, "");
        assert_eq!(ports[0].name, "b");
        assert_eq!(
            (ports[1].rx_bits, ports[1].tx_bits, ports[1].drops),
            (800.0, 2400.0, 100.0)
        );
        assert_eq!((ports[1].queued, ports[1].delay), (2, Some(5000.0)));
        let first = |sort| rows(&before, &now, None, sort, "")[0].name.clone();
        assert_eq!(
            [Sort::Drops, Sort::Delay, Sort::Name].map(first),
            ["a", "a", "a"]
        );
        assert_eq!(rows(&before, &now, None, Sort::Rate, "a").len(), 1);
        let classes = rows(&before, &now, Some("a"), Sort::Rate, "");
        let names: Vec<&str> = classes.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["1:2", "1:1", "1:3"]);
        let by_delay = rows(&before, &now, Some("a"), Sort::Delay, "");
        let names: Vec<&str> = by_delay.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            (names, by_delay[0].delay),
            (vec!["1:3", "1:1", "1:2"], Some(7000.0))
        );
        let first = rows(&now, &now, None, Sort::Rate, "");
        assert!(
            first.iter().all(|row| row.rx_bits == 0.0),
            "one sample has no rate"
        );
        assert!(rows(&before, &now, Some("none"), Sort::Rate, "").is_empty());
    }
}
