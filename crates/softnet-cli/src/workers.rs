//! The workers' numbers, for people and for programs: the columns of `/proc/net/softnet_stat`,
//! wake-ups, and where the time went.

use serde_json::{Value, json};
use softnet_engine::EngineStats;
use softnet_engine::rx::WorkerStats;

use crate::report;

/// A line for each worker.
pub(crate) fn table(stats: &EngineStats) -> String {
    let head = [
        "worker",
        "processed",
        "dropped",
        "time_squeeze",
        "received_rps",
        "flow_limit",
        "backlog",
        "woken",
        "wakes sent",
        "busy",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for (index, w) in stats.workers.iter().enumerate() {
        rows.push([
            index.to_string(),
            w.processed.to_string(),
            w.dropped.to_string(),
            w.time_squeeze.to_string(),
            w.received_rps.to_string(),
            w.flow_limit.to_string(),
            w.backlog().to_string(),
            w.wakes.to_string(),
            w.wakes_sent.to_string(),
            format!("{:.1} %", 100.0 * w.busy()),
        ]);
    }
    report::table(&rows, &[])
}

/// The same as an array, with more.
pub(crate) fn json(stats: &EngineStats) -> Value {
    let worker = |w: &WorkerStats| {
        json!({
            "processed": w.processed,
            "dropped": w.dropped,
            "time_squeeze": w.time_squeeze,
            "received_rps": w.received_rps,
            "flow_limit": w.flow_limit,
            "input_qlen": w.input_qlen,
            "process_qlen": w.process_qlen,
            "handed_over": w.handed_over,
            "taken_over": w.taken_over,
            "rounds": w.rounds,
            "sleeps": w.sleeps,
            "wakes": w.wakes,
            "wakes_sent": w.wakes_sent,
            "looked_ahead": w.looked_ahead,
            "busy_s": (w.uptime.saturating_sub(w.asleep + w.polling)).as_secs_f64(),
            "polling_s": w.polling.as_secs_f64(),
            "asleep_s": w.asleep.as_secs_f64(),
        })
    };
    stats.workers.iter().map(worker).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_and_an_object_for_each_worker() {
        let worker = WorkerStats {
            processed: 1234,
            received_rps: 5,
            input_qlen: 2,
            process_qlen: 1,
            wakes: 7,
            asleep: Duration::from_secs(6),
            polling: Duration::from_secs(2),
            uptime: Duration::from_secs(10),
            ..WorkerStats::default()
        };
        let stats = EngineStats {
            workers: vec![worker],
            ..EngineStats::default()
        };
        assert_eq!(
            table(&stats),
            "worker  processed  dropped  time_squeeze  received_rps  flow_limit  backlog  woken  \
             wakes sent    busy\n\
             \u{20}    0       1234        0             0             5           0        3  \
             \u{20}   7           0  20.0 %\n"
        );
        let json = json(&stats);
        assert_eq!(json[0]["busy_s"], 2.0);
        assert_eq!(json[0]["process_qlen"], 1);
    }
}
