//! The qdiscs and classes of every port, for people and for programs: the numbers of `tc -s
//! qdisc show` and `tc -s class show`.

use serde_json::{Value, json};
use softnet_engine::{EngineStats, PortStats};
use softnet_tc::{ClassStats, Handle};

use crate::report;

/// `tbf 1:`, or `pfifo` for one without a handle.
pub(crate) fn name(kind: &str, handle: Handle) -> String {
    if handle == Handle::NONE {
        kind.to_owned()
    } else {
        format!("{kind} {handle}")
    }
}

/// A line for each qdisc, at the class that it is for. Nothing if there is no port.
pub(crate) fn table(stats: &EngineStats) -> String {
    let head = [
        "port",
        "class",
        "qdisc",
        "sent packets",
        "sent bytes",
        "dropped",
        "overlimits",
        "requeues",
        "backlog",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for port in &stats.ports {
        rows.extend(port.classes.iter().map(|class| {
            let s = &class.stats;
            [
                port.name.clone(),
                class.class.to_string(),
                name(class.kind, class.qdisc),
                s.packets.to_string(),
                s.bytes.to_string(),
                s.drops.to_string(),
                s.overlimits.to_string(),
                s.requeues.to_string(),
                format!("{}b {}p", s.backlog, s.qlen),
            ]
        }));
    }
    if rows.len() == 1 {
        return String::new();
    }
    report::table(&rows, &[0, 1, 2])
}

/// The same for one port, as an array.
pub(crate) fn json(port: &PortStats) -> Value {
    let class = |class: &ClassStats| {
        let s = &class.stats;
        json!({
            "class": class.class.to_string(),
            "qdisc": (class.qdisc != Handle::NONE).then(|| class.qdisc.to_string()),
            "kind": class.kind,
            "packets": s.packets,
            "bytes": s.bytes,
            "drops": s.drops,
            "overlimits": s.overlimits,
            "requeues": s.requeues,
            "qlen": s.qlen,
            "backlog": s.backlog,
        })
    };
    port.classes.iter().map(class).collect()
}

#[cfg(test)]
mod tests {
    use softnet::qdisc::QdiscStats;

    use super::*;

    #[test]
    fn a_line_and_an_object_for_each_qdisc() {
        let class = |class, qdisc, kind, packets| ClassStats {
            class,
            parent: Handle::NONE,
            qdisc,
            kind,
            stats: QdiscStats {
                packets,
                bytes: 100 * packets,
                drops: 3,
                overlimits: 7,
                qlen: 2,
                backlog: 200,
                ..QdiscStats::default()
            },
            htb: None,
        };
        let root = Handle::new(1, 0);
        let stats = EngineStats {
            ports: vec![PortStats {
                name: "web".into(),
                classes: vec![
                    class(Handle::ROOT, root, "prio", 1234),
                    class(root.class(2), Handle::NONE, "pfifo", 5),
                ],
                ..PortStats::default()
            }],
            ..EngineStats::default()
        };
        assert_eq!(
            table(&stats),
            "port  class  qdisc    sent packets  sent \
             bytes  dropped  overlimits  requeues  backlog\n\
             web   root   prio 1:          1234      123400        3           7         0  200b \
             2p\n\
             web   1:2    pfifo               5         500        3           7         0  200b \
             2p\n"
        );
        assert_eq!(table(&EngineStats::default()), "");
        let json = json(&stats.ports[0]);
        assert_eq!(
            (&json[0]["class"], &json[0]["qdisc"]),
            (&"root".into(), &"1:".into())
        );
        assert_eq!(
            (&json[1]["qdisc"], &json[1]["packets"], &json[1]["backlog"]),
            (&Value::Null, &5.into(), &200.into())
        );
    }
}
