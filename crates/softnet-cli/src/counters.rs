//! Everything that `softnet run` has counted when it ends: as text for people, as one object for
//! programs.

use serde_json::{Map, Value, json};
use softnet::mem::PoolStats;
use softnet_engine::{EngineStats, PortStats};

use crate::{classes, filters, report, workers};

/// Tables with a line between them.
pub(crate) fn text(stats: &EngineStats) -> String {
    let parts = [
        report::ports(stats),
        classes::table(stats),
        filters::table(stats),
        workers::table(stats),
        report::ways_out(stats),
    ];
    let parts: Vec<&str> = parts
        .iter()
        .map(|part| part.trim_start_matches('\n'))
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("\n")
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
        "link": { "up": port.link.up, "mtu": port.link.mtu },
        "classes": classes::json(port),
        "filters": filters::json(port),
    })
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
