//! Everything that `softnet run` has counted when it ends: as text for people, as one object for
//! programs.

use serde_json::{Map, Value, json};
use softnet::mem::PoolStats;
use softnet::stats::Counts;
use softnet_engine::{EngineStats, PortStats};

use crate::{classes, filters, report, workers};

/// All at the end: tables with a line between them, and what was measured as bar charts.
pub(crate) fn text(stats: &EngineStats) -> String {
    tables(stats, report::egress(stats))
}

/// All while packets move: what was measured is a line each.
pub(crate) fn live(stats: &EngineStats) -> String {
    tables(stats, report::distributions(stats) + &pools(stats))
}

/// The counters of a selection: without sums and without those of no port.
pub(crate) fn selected(stats: &EngineStats) -> String {
    joined(&[
        report::port_table(stats),
        classes::table(stats),
        filters::table(stats),
        report::distributions(stats),
    ])
}

fn tables(stats: &EngineStats, egress: String) -> String {
    joined(&[
        report::ports(stats),
        classes::table(stats),
        filters::table(stats),
        workers::table(stats),
        egress,
    ])
}

/// With a line between them.
fn joined(parts: &[String]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .map(|part| part.trim_start_matches('\n'))
        .filter(|part| !part.is_empty())
        .collect();
    report::printable(&parts.join("\n"))
}

/// One object.
pub(crate) fn json(stats: &EngineStats) -> Value {
    let c = stats.conservation();
    let pools = std::iter::once(&stats.pool).chain(&stats.port_pools);
    json!({
        "ports": stats.ports.iter().map(port).collect::<Value>(),
        "workers": workers::json(stats),
        "pools": pools.map(pool).collect::<Value>(),
        "conservation": {
            "rx": c.rx, "copied": c.copied, "tx": c.tx, "dropped": c.dropped, "queued": c.queued,
        },
    })
}

/// One object with what is left of a selection.
pub(crate) fn selected_json(stats: &EngineStats) -> Value {
    json!({ "ports": stats.ports.iter().map(port).collect::<Value>() })
}

fn port(port: &PortStats) -> Value {
    let device = &port.device;
    let drops: Map<String, Value> = device
        .drops
        .iter()
        .map(|&(reason, n)| (reason.name().to_owned(), n.into()))
        .collect();
    json!({
        "name": port.name,
        "rx_packets": device.rx_packets,
        "rx_bytes": device.rx_bytes,
        "tx_packets": device.tx_packets,
        "tx_bytes": device.tx_bytes,
        "queued": device.queued,
        "drops": drops,
        "device_drops": { "rx": port.device_drops.rx, "tx": port.device_drops.tx },
        "call_ns": distribution(&device.distributions.call_ns),
        "sojourn_ns": distribution(&device.distributions.sojourn_ns),
        "batch": distribution(&device.distributions.batch),
        "link": { "up": port.link.up, "mtu": port.link.mtu, "status": port.status },
        "classes": classes::json(port),
        "filters": filters::json(port),
    })
}

/// The measured values; bounds are those of buckets.
fn distribution(counts: &Counts) -> Value {
    json!({
        "measured": counts.total(),
        "p50": counts.percentile(0.5),
        "p99": counts.percentile(0.99),
        "max": counts.max(),
    })
}

/// A line for each pool.
fn pools(stats: &EngineStats) -> String {
    let pools = std::iter::once(&stats.pool).chain(&stats.port_pools);
    let line = |pool: &PoolStats| {
        format!(
            "pool: {} buffers, {} free, {} allocated, exhausted {}\n",
            pool.buffers, pool.free, pool.allocated, pool.exhausted
        )
    };
    pools.map(line).collect()
}

/// The first is that of small packets, which everything needs; the others belong to ports.
fn pool(pool: &PoolStats) -> Value {
    json!({
        "buffers": pool.buffers,
        "free": pool.free,
        "allocated": pool.allocated,
        "exhausted": pool.exhausted,
        "remote_freed": pool.remote_freed,
        "bypassed": pool.bypassed,
        "kicks": pool.kicks,
        "stolen": pool.stolen,
    })
}
