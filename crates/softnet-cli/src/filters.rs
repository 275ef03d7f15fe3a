//! The filters of every port, for people and for programs: what they are called by and what
//! matched, as `tc -s filter show` has it.

use serde_json::{Value, json};
use softnet_engine::{EngineStats, PortStats};
use softnet_tc::{ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, FilterKind, FilterSpec};

use crate::report;

/// As tc writes it: of `u32` `800::801`, else a hexadecimal number.
fn handle(spec: &FilterSpec) -> String {
    match spec.kind {
        FilterKind::U32(_) => {
            let (table, bucket) = (spec.handle >> 20, spec.handle >> 12 & 0xff);
            let bucket = match bucket {
                0 => String::new(),
                bucket => format!("{bucket:x}"),
            };
            format!("{table:x}:{bucket}:{:x}", spec.handle & 0xfff)
        }
        _ => format!("{:#x}", spec.handle),
    }
}

fn protocol(spec: &FilterSpec) -> String {
    match spec.protocol {
        ETH_P_ALL => "all".into(),
        ETH_P_IP => "ip".into(),
        ETH_P_IPV6 => "ipv6".into(),
        0x0806 => "arp".into(),
        0x8100 => "802.1q".into(),
        0x88a8 => "802.1ad".into(),
        other => format!("{other:#06x}"),
    }
}

/// A line for each filter. Nothing if there is none.
pub(crate) fn table(stats: &EngineStats) -> String {
    let head = [
        "port", "parent", "chain", "prio", "protocol", "filter", "flowid", "packets", "bytes",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for port in &stats.ports {
        rows.extend(port.filters.iter().map(|(spec, stats)| {
            [
                port.name.clone(),
                spec.parent.to_string(),
                spec.chain.to_string(),
                spec.prio.to_string(),
                protocol(spec),
                format!("{} {}", spec.kind.name(), handle(spec)),
                spec.class
                    .map(|class| class.to_string())
                    .unwrap_or_default(),
                stats.packets.to_string(),
                stats.bytes.to_string(),
            ]
        }));
    }
    if rows.len() == 1 {
        return String::new();
    }
    report::table(&rows, &[0, 1, 4, 5, 6])
}

/// The same for one port, as an array.
pub(crate) fn json(port: &PortStats) -> Value {
    let filters = port.filters.iter().map(|(spec, stats)| {
        json!({
            "parent": spec.parent.to_string(),
            "chain": spec.chain,
            "prio": spec.prio,
            "protocol": protocol(spec),
            "kind": spec.kind.name(),
            "handle": handle(spec),
            "flowid": spec.class.map(|class| class.to_string()),
            "packets": stats.packets,
            "bytes": stats.bytes,
        })
    });
    filters.collect()
}

#[cfg(test)]
mod tests {
    use softnet_tc::{FilterStats, Flower, Handle, U32};

    use super::*;

    #[test]
    fn a_line_and_an_object_for_each_filter() {
        let root = Handle::new(1, 0);
        let counted = |packets| FilterStats {
            packets,
            bytes: 100 * packets,
            ..FilterStats::default()
        };
        let flower = FilterSpec {
            parent: root,
            prio: 5,
            protocol: ETH_P_IP,
            handle: 10,
            ..FilterSpec::new(Flower::default(), root.class(2))
        };
        let u32 = FilterSpec {
            parent: root.class(16),
            chain: 3,
            prio: 49152,
            handle: 0x8000_0801,
            class: None,
            ..FilterSpec::new(FilterKind::U32(U32::default()), root)
        };
        let port = PortStats {
            name: "web".into(),
            filters: vec![(flower, counted(12)), (u32, counted(0))],
            ..PortStats::default()
        };
        let first = json!({
            "parent": "1:", "chain": 0, "prio": 5, "protocol": "ip", "kind": "flower",
            "handle": "0xa", "flowid": "1:2", "packets": 12, "bytes": 1200,
        });
        let both = json(&port);
        assert_eq!(both[0], first);
        assert_eq!(both[1]["handle"], "800::801");
        assert_eq!(both[1]["flowid"], Value::Null);
        let stats = EngineStats {
            ports: vec![port],
            ..EngineStats::default()
        };
        assert_eq!(
            table(&stats),
            "port  parent  chain   prio  protocol  filter        flowid  packets  bytes\n\
             web   1:          0      5  ip        flower 0xa    1:2          12   1200\n\
             web   1:10        3  49152  all       u32 800::801                0      0\n"
        );
        assert_eq!(table(&EngineStats::default()), "");
    }
}
