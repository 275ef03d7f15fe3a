//! Which fields the tables show, and the tables: a line for each set of parameters, a column for
//! each variant, without exception.

use std::fmt::Write as _;

use super::interval::Estimate;
use super::results::{Params, Results, Row, param};
use crate::numbers::{median, significant};
use crate::report::{AGAIN, OURS};

/// A field, how the table calls it, and its unit's size.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: f64,
}

const fn field(name: &'static str, title: &'static str, unit: f64) -> Field {
    Field { name, title, unit }
}

/// In this order; fields of the rows that are not here are in the JSON alone.
#[rustfmt::skip] // A table.
pub(super) const FIELDS: &[Field] = &[
    field("mpps", "Million packets per second", 1.0),
    field("ns_per_packet", "Nanoseconds per packet", 1.0),
    field("tps", "Thousand transactions per second", 1e3),
    field("rps", "Requests per second", 1.0),
    field("tcp_gbps", "TCP, Gb/s", 1.0),
    field("gbps", "Gb/s", 1.0),
    field("rate_error_percent", "Error of the rate over 1 s, %", 1.0),
    field("rate_error_beyond_frame_percent", "The same but for one frame, %", 1.0),
    field("skew_percent", "Rate with all traffic on one queue, % of the full one", 1.0),
    field("rate_percent", "Rate with senders on and off, % of the full one", 1.0),
    field("fairness_percent", "Flow furthest from its share over 1 s, %", 1.0),
    field("udp_pps", "Thousand datagrams per second", 1e3),
    field("udp_offered_pps", "Offered, thousand datagrams per second", 1e3),
    field("offered_mpps", "Offered, million packets per second", 1.0),
    field("latency_p50_ns", "Latency from the time a packet was due, 50 %, µs", 1e3),
    field("latency_p99_ns", "Latency from the time a packet was due, 99 %, µs", 1e3),
    field("latency_p999_ns", "Latency from the time a packet was due, 99.9 %, µs", 1e3),
    field("sojourn_p50_ns", "Sojourn from the push to the driver, 50 %, µs", 1e3),
    field("sojourn_p99_ns", "Sojourn from the push to the driver, 99 %, µs", 1e3),
    field("sojourn_p999_ns", "Sojourn from the push to the driver, 99.9 %, µs", 1e3),
    field("p50_ns", "The call or transaction, 50 %, µs", 1e3),
    field("p99_ns", "The call or transaction, 99 %, µs", 1e3),
    field("p999_ns", "The call or transaction, 99.9 %, µs", 1e3),
    field("p90_us", "90 % within, µs", 1.0),
    field("p99_us", "99 % within, µs", 1.0),
    field("ping_mean_us", "Ping, mean, µs", 1.0),
    field("ping_p50_us", "Ping, 50 %, µs", 1.0),
    field("ping_p90_us", "Ping, 90 %, µs", 1.0),
    field("ping_p99_us", "Ping, 99 %, µs", 1.0),
    field("ping_lost", "Pings lost", 1.0),
    field("measured_mbps", "Measured rate, Mb/s", 1.0),
    field("sim_mbps", "Simulated rate, the middle one, Mb/s", 1.0),
    field("sim_error_percent", "Measured rate from the nearest simulated one, %", 1.0),
    field("sim_sojourn_p50_ns", "Simulated sojourn, 50 %, the middle one, µs", 1e3),
    field("sojourn_p50_apart", "Distance from the nearest one, 50 %, of what is allowed", 1.0),
    field("wake_p50_ns", "Delay of a timer meanwhile, 50 %, µs", 1e3),
    field("sim_sojourn_p99_ns", "Simulated sojourn, 99 %, the middle one, µs", 1e3),
    field("sojourn_p99_apart", "Distance from the nearest one, 99 %, of what is allowed", 1.0),
    field("wake_p99_ns", "Delay of a timer meanwhile, 99 %, µs", 1e3),
    field("start_ms", "From start to the first answer, ms", 1.0),
    field("retransmits", "TCP segments sent again", 1.0),
    field("connections_per_s", "Finished connections per second", 1.0),
    field("failed", "Failed connections", 1.0),
    field("errors", "Failed requests", 1.0),
    field("drops", "Packets dropped", 1.0),
    field("lost", "Packets that ports and qdiscs dropped", 1.0),
    field("dumps_per_s", "Dumps a second", 1.0),
    field("changes_per_s", "Changes a second", 1.0),
    field("clients_cpu", "CPU time of the clients, of one CPU", 1.0),
    field("memory_mb", "Memory, MB", 1.0),
    field("batch_ms", "`tc -batch`, ms", 1.0),
    field("show_ms", "`tc -s class show`, ms", 1.0),
    field("qdisc_ms", "`tc -s qdisc show`, ms", 1.0),
    field("device_drops", "Packets lost inside the devices between hosts and switch", 1.0),
    field("wait_ms", "Time that senders waited for locks in a turn, all together, ms", 1.0),
    field("wakes_per_ktrans", "Wake-ups sent per thousand transactions", 1.0),
    field("sleeps_per_ktrans", "Sleeps per thousand transactions", 1.0),
    field("wakes_per_packet", "Wake-ups per packet", 1.0),
    field("depot_ops_per_packet", "Exchanges with the depot per packet", 1.0),
    field("deferred_per_packet", "Buffers sent to their owner, per packet", 1.0),
    field("bypassed_per_packet", "Buffers that went to the depot instead, per packet", 1.0),
    field("remote_freed_per_packet", "Buffers that returned to their owner, per packet", 1.0),
    field("cpu_s_per_mpkt", "CPU time per packet, µs", 1.0),
    field("cpu_us_per_transaction", "CPU time per transaction, µs", 1.0),
    field("worker_us_per_transaction", "Of these of Softnet's workers, µs", 1.0),
    field("cpu_us_per_request", "CPU time per request, µs", 1.0),
    field("cpu_s_per_gbit", "CPU time per gigabit, s", 1.0),
    field("daemon_us_per_packet", "Of these of the switch's processes, µs", 1.0),
    field("daemon_s_per_gbit", "Of these of the switch's processes, s", 1.0),
    field("idle_cpu_share", "CPU time of an idle switch, of one CPU", 1.0),
    field("switch_cpu_share", "CPU time of the switch, of one CPU", 1.0),
    field("running_seconds", "From start until all hosts are up, s", 1.0),
    field("memory_per_port_kb", "Memory by port, KB", 1.0),
    field("cpu_share", "CPU time, of all CPUs", 1.0),
];

/// Marks figures that were measured longer.
pub(super) const LONGER: &str = " †";

/// Rounded for people.
pub(super) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    significant(value, 3).to_string()
}

/// The parameters as one text.
pub(super) fn cell_name(params: &Params) -> String {
    let pairs: Vec<_> = params.iter().map(|(n, v)| format!("{n} {v}")).collect();
    if pairs.is_empty() {
        "all".to_owned()
    } else {
        pairs.join(", ")
    }
}

/// The table of a field, if any row has it.
pub(super) fn table(results: &Results, field: &Field) -> Option<String> {
    let has = |row: &&Row| row.samples.contains_key(field.name);
    // Skipped rows of the parameters that others have figures for stand in the table, too.
    let variants: Vec<&str> = results.each(|row| has(&row).then_some(row.variant.as_str()));
    let lines: Vec<&Params> = results.each(|row| has(&row).then_some(&row.params));
    if lines.is_empty() {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in lines.iter().flat_map(|params| params.iter()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    // Results of before windows were written down have none.
    let known = results
        .rows
        .iter()
        .any(|row| has(&row) && row.window.is_some());
    let windows: &[&str] = if known { &["window, s"] } else { &[] };
    let heads = [&names[..], windows, &variants[..]].concat();
    let mut text = format!("| {} |", heads.join(" | "));
    text.push('\n');
    text.push_str(&"|---".repeat(names.len() + windows.len() + variants.len()));
    text.push_str("|\n");
    for params in lines {
        text.push('|');
        for name in &names {
            let _ = write!(text, " {} |", param(params, name));
        }
        if known {
            let row = results
                .rows
                .iter()
                .find(|row| has(row) && row.params == *params);
            let window = row.and_then(|row| row.window).map(figure);
            let _ = write!(text, " {} |", window.unwrap_or_default());
        }
        for variant in &variants {
            let shown = match results.samples(variant, params, field.name) {
                Some(samples) => {
                    let longer = results.longer == Some(samples.len());
                    spread(samples, field.unit) + if longer { LONGER } else { "" }
                }
                None if results.skipped(variant, params).is_some() => "skipped".to_owned(),
                None => String::new(),
            };
            let _ = write!(text, " {shown} |");
        }
        text.push('\n');
    }
    Some(text)
}

/// The median and, of several, the interval.
fn spread(samples: &[f64], unit: f64) -> String {
    match Estimate::of(samples) {
        Some(it) if samples.len() > 1 => {
            let [median, low, high] = [it.median, it.low, it.high].map(|v| figure(v / unit));
            format!("{median} ({low}–{high})")
        }
        _ => figure(median(samples) / unit),
    }
}

/// Distance between the two measurements of the same variant, as factors of at least 1: the median
/// and the greatest over all rows.
pub(super) fn noise(results: &Results, field: &Field) -> Option<(f64, f64)> {
    let again = results.rows.iter().filter(|row| row.variant == AGAIN);
    let apart: Vec<f64> = again
        .filter_map(|row| {
            let twice = median(row.samples.get(field.name)?);
            let once = results.median(OURS, &row.params, field.name)?;
            Some((once / twice).max(twice / once))
        })
        .filter(|apart| apart.is_finite())
        .collect();
    let most = apart.iter().copied().reduce(f64::max)?;
    Some((median(&apart), most))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::Collector;

    #[test]
    fn every_row_and_variant_is_in_the_table() {
        let mut results = Collector::default();
        results.add(OURS, &[("threads", json!(2))], &[("mpps", 2.0)]);
        results.add(
            OURS,
            &[("threads", json!(2)), ("load", json!("50%"))],
            &[("mpps", 0.123456)],
        );
        results.add(
            "mutex",
            &[("threads", json!(2))],
            &[("mpps", 1.0), ("drops", 0.0)],
        );
        results.add(
            "mutex",
            &[("threads", json!(2))],
            &[("mpps", 3.0), ("drops", 0.0)],
        );
        results.skip("dpdk", &[], "not installed");
        results.add("dpdk", &[("threads", json!(8))], &[("mpps", 4.0)]);
        let read = Results::parse(&results.report("x")).expect("it is a report");
        let text = table(&read, &FIELDS[0]).unwrap_or_default();
        let expected = "\
| threads | load | softnet | mutex | dpdk |
|---|---|---|---|---|
| 2 | - | 2 | 2 (1–3) | skipped |
| 2 | 50% | 0.123 |  | skipped |
| 8 | - |  |  | 4 |
";
        assert_eq!(text, expected);
        assert_eq!(table(&read, &FIELDS[1]), None);
    }

    #[test]
    fn noise_is_the_distance_of_the_repeated_variant() {
        let mut results = Collector::default();
        for (threads, once, twice) in [(1, 10.0, 10.0), (2, 10.0, 11.0), (8, 12.0, 6.0)] {
            let params = [("threads", json!(threads))];
            results.add(OURS, &params, &[("mpps", once)]);
            results.add(AGAIN, &params, &[("mpps", twice)]);
        }
        let read = Results::parse(&results.report("x")).expect("it is a report");
        assert_eq!(noise(&read, &FIELDS[0]), Some((1.1, 2.0)));
    }
}
