//! The qdiscs and classes of every port, for people and for programs: the numbers of `tc -s
//! qdisc show` and `tc -s class show`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use softnet::qdisc::QdiscStats;
use softnet_engine::{EngineStats, PortStats};
use softnet_tc::{ClassStats, Handle, HtbClassStats, Xstats};

use crate::report;

/// `tbf 1:`, or `pfifo` for one without a handle.
pub(crate) fn name(kind: &str, handle: Handle) -> String {
    if handle == Handle::NONE {
        kind.to_owned()
    } else {
        format!("{kind} {handle}")
    }
}

/// Statistics with a column of another name, or none. The others have one of their own.
const IN_COLUMNS: [&str; 9] = [
    "packets",
    "bytes",
    "drops",
    "overlimits",
    "requeues",
    "qlen",
    "backlog",
    "queued",
    "memory",
];

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
    let others = |stats: &QdiscStats| {
        let others = stats.iter().filter(|(name, _)| !IN_COLUMNS.contains(name));
        others.collect::<Vec<_>>()
    };
    let names = others(&QdiscStats::default());
    let head = head.into_iter().chain(names.iter().map(|(name, _)| *name));
    let mut rows = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    for port in &stats.ports {
        rows.extend(port.classes.iter().map(|class| {
            let s = &class.stats;
            let mut row = vec![
                port.name.clone(),
                class.class.to_string(),
                name(class.kind, class.qdisc),
                s.packets.to_string(),
                s.bytes.to_string(),
                s.drops.to_string(),
                s.overlimits.to_string(),
                s.requeues.to_string(),
                format!("{}b {}p", s.backlog, s.qlen),
            ];
            row.extend(others(s).iter().map(|(_, number)| number.to_string()));
            row
        }));
    }
    if rows.len() == 1 {
        return String::new();
    }
    let classes = stats.ports.iter().flat_map(|port| {
        let classes = port.classes.iter();
        classes.map(|class| (port.name.clone(), class.class, class.htb))
    });
    let mut text = report::table(&rows, &[0, 1, 2]) + &htb_table("port", classes);
    for port in &stats.ports {
        for class in &port.classes {
            let qdisc = name(class.kind, class.qdisc);
            let name = format!("{} {} {qdisc}", port.name, class.class);
            text += &xstats(&name, class.xstats.iter().flat_map(Xstats::iter));
        }
    }
    text
}

/// A line with what only qdiscs of one kind have, after where and which it is. None if there is
/// nothing.
pub(crate) fn xstats(qdisc: &str, values: impl Iterator<Item = (&'static str, u64)>) -> String {
    let values: Vec<String> = values.map(|(name, n)| format!("{name} {n}")).collect();
    if values.is_empty() {
        return String::new();
    }
    format!("{qdisc}: {}\n", values.join(" "))
}

/// A line for each class of `htb`; nothing if there is none. The first column says where it is.
pub(crate) fn htb_table(
    place: &str,
    classes: impl Iterator<Item = (String, Handle, Option<HtbClassStats>)>,
) -> String {
    let head = [
        place,
        "htb class",
        "lended",
        "borrowed",
        "overlimits",
        "tokens",
        "ctokens",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(classes.filter_map(|(place, class, htb)| {
        let htb = htb?;
        Some([
            place,
            class.to_string(),
            htb.lended.to_string(),
            htb.borrowed.to_string(),
            htb.overlimits.to_string(),
            htb.tokens.to_string(),
            htb.ctokens.to_string(),
        ])
    }));
    if rows.len() == 1 {
        return String::new();
    }
    report::table(&rows, &[0, 1])
}

/// Further counters of a class of `htb`; `null` for others.
pub(crate) fn htb_json(htb: Option<HtbClassStats>) -> Value {
    htb.map_or(Value::Null, |htb| {
        json!({
            "lended": htb.lended,
            "borrowed": htb.borrowed,
            "overlimits": htb.overlimits,
            "tokens": htb.tokens,
            "ctokens": htb.ctokens,
        })
    })
}

/// An object with all statistics of a qdisc added.
pub(crate) fn with_stats(mut object: Value, stats: &QdiscStats) -> Value {
    for (name, number) in stats.iter() {
        object[name] = number.into();
    }
    object
}

/// The same for one port, as an array.
pub(crate) fn json(port: &PortStats) -> Value {
    let class = |class: &ClassStats| {
        with_stats(
            json!({
                "class": class.class.to_string(),
                "qdisc": (class.qdisc != Handle::NONE).then(|| class.qdisc.to_string()),
                "kind": class.kind,
                "htb": htb_json(class.htb),
                "xstats": class.xstats.iter().flat_map(Xstats::iter).collect::<BTreeMap<_, _>>(),
            }),
            &class.stats,
        )
    };
    port.classes.iter().map(class).collect()
}

#[cfg(test)]
mod tests {
    use softnet::mem::{Pool, PoolConfig};
    use softnet_tc::{CodelSpec, DeviceTree, PrioSpec, QdiscEnv, QdiscSpec, TreeSpec};

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
            own: None,
            htb: (kind == "none").then_some(HtbClassStats {
                lended: 3,
                borrowed: 4,
                overlimits: 5,
                tokens: -6,
                ctokens: 7,
            }),
            xstats: None,
        };
        let root = Handle::new(1, 0);
        let stats = EngineStats {
            ports: vec![PortStats {
                name: "web".into(),
                classes: vec![
                    class(Handle::ROOT, root, "prio", 1234),
                    class(root.class(2), Handle::NONE, "pfifo", 5),
                    class(root.class(1), Handle::NONE, "none", 6),
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
             2p\n\
             web   1:1    none                6         600        3           7         0  200b \
             2p\n\
             port  htb class  lended  borrowed  overlimits  tokens  ctokens\n\
             web   1:1             3         4           5      -6        7\n"
        );
        assert_eq!(table(&EngineStats::default()), "");
        let json = json(&stats.ports[0]);
        assert_eq!(
            (&json[0]["class"], &json[0]["qdisc"]),
            (&"root".into(), &"1:".into())
        );
        assert_eq!(
            (&json[1]["htb"], &json[2]["htb"]["borrowed"]),
            (&Value::Null, &4.into())
        );
        assert_eq!(
            (&json[1]["qdisc"], &json[1]["packets"], &json[1]["backlog"]),
            (&Value::Null, &5.into(), &200.into())
        );
    }

    /// The line of what only one kind of qdisc has names the class, as the table does.
    #[test]
    fn statistics_of_a_kind_name_the_class() {
        let pool = Pool::new(PoolConfig::default()).expect("a pool");
        let root = Handle::new(1, 0);
        let mut spec = TreeSpec::new();
        let prio = QdiscSpec::Prio(PrioSpec::default());
        spec.add(Handle::ROOT, root, prio).expect("a root");
        for class in [1, 2] {
            let leaf = QdiscSpec::Codel(CodelSpec::default());
            spec.add(root.class(class), Handle::NONE, leaf)
                .expect("a leaf");
        }
        let (tree, _instances) = DeviceTree::new(spec, 1, &QdiscEnv::new(&pool)).expect("a tree");
        let mut classes = tree.classes(&[QdiscStats::default()]);
        for class in &mut classes {
            class.qdisc = Handle::NONE;
        }
        let stats = EngineStats {
            ports: vec![PortStats {
                name: "web".into(),
                classes,
                ..PortStats::default()
            }],
            ..EngineStats::default()
        };
        let text = table(&stats);
        for line in ["web 1:1 codel: ", "web 1:2 codel: "] {
            assert!(text.lines().any(|own| own.starts_with(line)), "{text}");
        }
    }
}
