//! The metrics, each described once, and their text.

use std::collections::BTreeMap;
use std::fmt::Write;

use softnet::stats::Counts;
use softnet_engine::rx::WorkerStats;
use softnet_engine::{EngineStats, PortStats};
use softnet_tc::ClassStats;
use softnet_tc::rate::GroupSpec;

use super::Format;

/// Classes of a port with metrics of their own: those that sent most. The port's own counters have
/// all.
const CLASSES: usize = 10_000;

/// Everything that one scrape shows.
#[derive(Debug)]
pub(crate) struct Sample {
    /// Counters, with classes.
    pub stats: EngineStats,
    /// Groups that share rates.
    pub groups: BTreeMap<String, GroupSpec>,
    /// Release of the program.
    pub version: &'static str,
}

/// A kind of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// Text in the making.
struct Text {
    text: String,
    format: Format,
}

impl Text {
    /// Starts a metric. Names of counters end in `_total`.
    fn metric(&mut self, name: &str, of: Type, help: &str) {
        let family = match (self.format, of) {
            (Format::OpenMetrics, Type::Counter) => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        let of = match of {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        // A String takes whatever is written.
        let _ = writeln!(self.text, "# HELP softnetd_{family} {help}");
        let _ = writeln!(self.text, "# TYPE softnetd_{family} {of}");
    }

    /// A line of a metric; labels are written by [`labels`].
    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = match labels {
            "" => writeln!(self.text, "softnetd_{name} {value}"),
            labels => writeln!(self.text, "softnetd_{name}{{{labels}}} {value}"),
        };
    }
}

/// Labels with their values.
fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    text
}

/// A number of each `T`.
type Column<T> = (&'static str, Type, &'static str, fn(&T) -> f64);

const PORT: &[Column<PortStats>] = &[
    ("port_up", Type::Gauge, "1 if the port's link is up.", |p| {
        f64::from(u8::from(p.link.up))
    }),
    (
        "port_receive_packets_total",
        Type::Counter,
        "Wire packets received.",
        |p| p.device.rx_packets as f64,
    ),
    (
        "port_receive_bytes_total",
        Type::Counter,
        "Bytes received.",
        |p| p.device.rx_bytes as f64,
    ),
    (
        "port_transmit_packets_total",
        Type::Counter,
        "Wire packets sent.",
        |p| p.device.tx_packets as f64,
    ),
    (
        "port_transmit_bytes_total",
        Type::Counter,
        "Bytes sent.",
        |p| p.device.tx_bytes as f64,
    ),
    (
        "port_queued_packets",
        Type::Gauge,
        "Wire packets that wait in transmit queues.",
        |p| p.device.queued as f64,
    ),
    (
        "port_transmit_timeouts_total",
        Type::Counter,
        "Queues restarted by the watchdog.",
        |p| p.device.tx_timeouts as f64,
    ),
];

const CLASS: &[Column<ClassStats>] = &[
    (
        "class_packets_total",
        Type::Counter,
        "Wire packets that left a class.",
        |c| c.stats.packets as f64,
    ),
    (
        "class_bytes_total",
        Type::Counter,
        "Bytes that left a class.",
        |c| c.stats.bytes as f64,
    ),
    (
        "class_drops_total",
        Type::Counter,
        "Frames that a class refused or dropped.",
        |c| c.stats.drops as f64,
    ),
    (
        "class_overlimits_total",
        Type::Counter,
        "Times that a class waited for its rate.",
        |c| c.stats.overlimits as f64,
    ),
    (
        "class_queued_packets",
        Type::Gauge,
        "Frames that wait in a class.",
        |c| c.stats.qlen as f64,
    ),
    (
        "class_queued_bytes",
        Type::Gauge,
        "Bytes that wait in a class.",
        |c| c.stats.backlog as f64,
    ),
];

const WORKER: &[Column<WorkerStats>] = &[
    (
        "worker_packets_total",
        Type::Counter,
        "Wire packets that a worker processed.",
        |w| w.processed as f64,
    ),
    (
        "worker_backlog_drops_total",
        Type::Counter,
        "Packets that found a backlog full.",
        |w| w.dropped as f64,
    ),
    (
        "worker_time_squeezes_total",
        Type::Counter,
        "Rounds that ended with work left.",
        |w| w.time_squeeze as f64,
    ),
    (
        "worker_backlog_packets",
        Type::Gauge,
        "Packets on a worker's backlog.",
        |w| w.backlog() as f64,
    ),
    (
        "worker_sleeps_total",
        Type::Counter,
        "Times that a worker slept.",
        |w| w.sleeps as f64,
    ),
    (
        "worker_wakes_total",
        Type::Counter,
        "Times that a worker was woken.",
        |w| w.wakes as f64,
    ),
    (
        "worker_wakes_sent_total",
        Type::Counter,
        "Wake-ups that a worker sent.",
        |w| w.wakes_sent as f64,
    ),
    (
        "worker_busy_seconds_total",
        Type::Counter,
        "Time in which a worker worked.",
        |w| w.uptime.saturating_sub(w.asleep + w.polling).as_secs_f64(),
    ),
    (
        "worker_polling_seconds_total",
        Type::Counter,
        "Time in which a worker polled.",
        |w| w.polling.as_secs_f64(),
    ),
    (
        "worker_asleep_seconds_total",
        Type::Counter,
        "Time in which a worker slept.",
        |w| w.asleep.as_secs_f64(),
    ),
];

const POOL: &[Column<softnet::mem::PoolStats>] = &[
    ("pool_buffers", Type::Gauge, "Buffers of a pool.", |p| {
        p.buffers as f64
    }),
    (
        "pool_free_buffers",
        Type::Gauge,
        "Buffers of a pool that are free.",
        |p| p.free as f64,
    ),
    (
        "pool_allocations_total",
        Type::Counter,
        "Buffers allocated.",
        |p| p.allocated as f64,
    ),
    (
        "pool_exhausted_total",
        Type::Counter,
        "Allocations refused: nothing was free.",
        |p| p.exhausted as f64,
    ),
    (
        "pool_remote_frees_total",
        Type::Counter,
        "Buffers sent back to their owner.",
        |p| p.remote_freed as f64,
    ),
];

const GROUP: &[Column<GroupSpec>] = &[
    (
        "rate_group_bytes_per_second",
        Type::Gauge,
        "Rate of a group; 0: none in bytes.",
        |g| g.bytes.map_or(0.0, |rate| rate.rate as f64),
    ),
    (
        "rate_group_packets_per_second",
        Type::Gauge,
        "Rate of a group; 0: none in packets.",
        |g| g.packets.map_or(0.0, |rate| rate.rate as f64),
    ),
];

/// The lines of a table: of each column all rows, as the format wants it.
fn table<'a, T: 'a>(text: &mut Text, columns: &[Column<T>], rows: &[(String, &'a T)]) {
    for (name, of, help, value) in columns {
        text.metric(name, *of, help);
        for (labels, row) in rows {
            text.line(name, labels, value(row));
        }
    }
}

/// The whole text.
pub(crate) fn render(sample: &Sample, format: Format) -> String {
    let Sample {
        stats,
        groups,
        version,
    } = sample;
    let mut text = Text {
        text: String::new(),
        format,
    };
    text.metric("build_info", Type::Gauge, "Release of the program.");
    text.line("build_info", &labels(&[("version", version)]), 1);
    text.metric(
        "copied_packets_total",
        Type::Counter,
        "Wire packets added by copying.",
    );
    text.line("copied_packets_total", "", stats.copied);
    let ports = &stats.ports;
    let of_port: Vec<_> = ports
        .iter()
        .map(|p| (labels(&[("port", &p.name)]), p))
        .collect();
    table(&mut text, PORT, &of_port);
    drops(&mut text, ports);
    histogram(
        &mut text,
        &of_port,
        "port_sojourn_seconds",
        "Time of packets in a port.",
        |p| &p.device.distributions.sojourn_ns,
    );
    histogram(
        &mut text,
        &of_port,
        "port_call_seconds",
        "Time of transmit calls.",
        |p| &p.device.distributions.call_ns,
    );
    queues(&mut text, ports);
    table(&mut text, CLASS, &classes(ports));
    let numbered = |name, index: usize| labels(&[(name, &index.to_string())]);
    let workers = stats.workers.iter().enumerate();
    let workers: Vec<_> = workers.map(|(i, w)| (numbered("worker", i), w)).collect();
    table(&mut text, WORKER, &workers);
    let pools = std::iter::once(&stats.pool)
        .chain(&stats.port_pools)
        .enumerate();
    let pools: Vec<_> = pools.map(|(i, p)| (numbered("pool", i), p)).collect();
    table(&mut text, POOL, &pools);
    let groups = groups.iter();
    let groups: Vec<_> = groups
        .map(|(name, g)| (labels(&[("group", name)]), g))
        .collect();
    table(&mut text, GROUP, &groups);
    if format == Format::OpenMetrics {
        text.text.push_str("# EOF\n");
    }
    text.text
}

fn drops(text: &mut Text, ports: &[PortStats]) {
    let name = "port_drops_total";
    text.metric(name, Type::Counter, "Wire packets dropped, by reason.");
    for port in ports {
        for (reason, n) in &port.device.drops {
            text.line(
                name,
                &labels(&[("port", &port.name), ("reason", reason.name())]),
                n,
            );
        }
    }
    let name = "port_device_drops_total";
    text.metric(
        name,
        Type::Counter,
        "Packets that the device behind a port dropped.",
    );
    for port in ports {
        for (direction, n) in [("rx", port.device_drops.rx), ("tx", port.device_drops.tx)] {
            text.line(
                name,
                &labels(&[("port", &port.name), ("direction", direction)]),
                n,
            );
        }
    }
}

fn queues(text: &mut Text, ports: &[PortStats]) {
    let name = "queue_packets_total";
    text.metric(
        name,
        Type::Counter,
        "Wire packets sent by a transmit queue.",
    );
    for port in ports {
        for (queue, stats) in port.device.queues.iter().enumerate() {
            let labels = labels(&[("port", &port.name), ("queue", &queue.to_string())]);
            text.line(name, &labels, stats.tx_packets);
        }
    }
}

/// The classes of all ports, of each the busiest.
fn classes(ports: &[PortStats]) -> Vec<(String, &ClassStats)> {
    let mut rows = Vec::new();
    for port in ports {
        let mut busiest: Vec<&ClassStats> = port.classes.iter().collect();
        if busiest.len() > CLASSES {
            busiest.select_nth_unstable_by_key(CLASSES, |c| std::cmp::Reverse(c.stats.bytes));
            busiest.truncate(CLASSES);
        }
        rows.extend(busiest.into_iter().map(|class| {
            let name = class.class.to_string();
            let labels = labels(&[("port", &port.name), ("class", &name), ("kind", class.kind)]);
            (labels, class)
        }));
    }
    rows
}

/// A distribution of times. Bounds are those of its buckets; the sum takes each value for the
/// middle of its bucket.
fn histogram(
    text: &mut Text,
    ports: &[(String, &PortStats)],
    name: &str,
    help: &str,
    of: fn(&PortStats) -> &Counts,
) {
    text.metric(name, Type::Histogram, help);
    for (labels, port) in ports {
        let counts = of(port);
        let (mut below, mut sum) = (0, 0.0);
        for (from, width, count) in counts.rows() {
            below += count;
            sum += count as f64 * (from as f64 + (width - 1) as f64 / 2.0);
            let bound = (from + (width - 1)) as f64 / 1e9;
            text.line(
                &format!("{name}_bucket"),
                &format!("{labels},le=\"{bound}\""),
                below,
            );
        }
        let all = counts.total();
        text.line(
            &format!("{name}_bucket"),
            &format!("{labels},le=\"+Inf\""),
            all,
        );
        text.line(&format!("{name}_sum"), labels, sum / 1e9);
        text.line(&format!("{name}_count"), labels, all);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use softnet::stats::DropReason;

    use super::*;

    fn sample() -> Sample {
        let mut port = PortStats {
            name: "we\"b".to_owned(),
            ..PortStats::default()
        };
        port.device.tx_packets = 7;
        port.device.drops = vec![(DropReason::QdiscLimit, 3)];
        for ns in [100, 100, 5000] {
            port.device.distributions.sojourn_ns.record(ns);
        }
        let class = |minor, bytes| ClassStats {
            class: softnet_tc::Handle::new(1, minor),
            parent: softnet_tc::Handle::ROOT,
            qdisc: softnet_tc::Handle::NONE,
            kind: "fq",
            stats: softnet::qdisc::QdiscStats {
                bytes,
                ..Default::default()
            },
            htb: None,
            own: None,
            xstats: None,
        };
        port.classes = (1..=10_001)
            .map(|minor| class(minor, u64::from(minor)))
            .collect();
        Sample {
            stats: EngineStats {
                ports: vec![port],
                workers: vec![WorkerStats::default()],
                ..EngineStats::default()
            },
            groups: BTreeMap::new(),
            version: "1.2.3",
        }
    }

    #[test]
    fn every_family_is_told_once_and_together() {
        for format in [Format::Text, Format::OpenMetrics] {
            let text = render(&sample(), format);
            let mut known = BTreeSet::new();
            let mut family = String::new();
            for line in text.lines().filter(|line| *line != "# EOF") {
                if let Some(rest) = line.strip_prefix("# HELP ") {
                    family = rest.split(' ').next().expect("a name").to_owned();
                    assert!(known.insert(family.clone()), "{family} twice");
                } else {
                    let name = line.trim_start_matches("# TYPE ");
                    assert!(name.starts_with(&family), "{line} in {family}");
                }
            }
            assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        }
    }

    #[test]
    fn values_are_those_that_are_counted() {
        let text = render(&sample(), Format::Text);
        for line in [
            "# TYPE softnetd_port_transmit_packets_total counter",
            "softnetd_build_info{version=\"1.2.3\"} 1",
            "softnetd_port_transmit_packets_total{port=\"we\\\"b\"} 7",
            "softnetd_port_drops_total{port=\"we\\\"b\",reason=\"qdisc_limit\"} 3",
            "softnetd_port_sojourn_seconds_bucket{port=\"we\\\"b\",le=\"+Inf\"} 3",
            "softnetd_port_sojourn_seconds_count{port=\"we\\\"b\"} 3",
            "softnetd_class_bytes_total{port=\"we\\\"b\",class=\"1:2711\",kind=\"fq\"} 10001",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}");
        }
        let classes = text.matches("softnetd_class_bytes_total{").count();
        assert_eq!(classes, CLASSES, "the one that sent least is left out");
        assert!(!text.contains("class=\"1:1\""));
        let open = render(&sample(), Format::OpenMetrics);
        assert!(open.contains("# TYPE softnetd_port_transmit_packets counter\n"));
    }
}
