//! The text of the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use softnet::stats::Counts;
use softnet::tx::QueueStats;
use softnet_engine::{EngineStats, PortStats};
use softnet_tc::ClassStats;
use softnet_tc::rate::GroupSpec;

use super::Format;
use super::columns::{CLASS, Column, GROUP, GROUP_USE, POOL, PORT, QUEUE, Type, Use, WORKER};

/// Bounds of buckets, as powers of two in nanoseconds: 1 us to 4.3 s. They are the same at each
/// port and at all times: who sums series by `le` has to find all of each.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=32;

/// Everything that one scrape shows.
#[derive(Debug)]
pub(crate) struct Sample {
    /// Counters, with classes.
    pub stats: EngineStats,
    /// Groups that share rates, with the names of their ports.
    pub groups: BTreeMap<String, (GroupSpec, Vec<String>)>,
    /// Classes of a port with metrics of their own: those that sent most.
    pub classes: usize,
    /// Release of the program.
    pub version: &'static str,
}

/// Bytes of a line beside its labels, about.
const LINE: usize = 48;

/// Text in the making. There may be tens of thousands of lines: nothing but the value is formatted
/// anew for each.
struct Text {
    text: String,
    format: Format,
    /// Name of the metric that was started last.
    name: String,
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
        self.name.clear();
        let _ = write!(self.name, "softnetd_{name}");
    }

    /// A line of the metric with a number, most of which are whole.
    fn number(&mut self, labels: &str, value: f64) {
        let whole = value as u64;
        if whole as f64 == value {
            self.line(labels, whole);
        } else {
            self.start("", labels, "");
            let _ = writeln!(self.text, "{value}");
        }
    }

    /// A line of the metric; labels are written by [`labels`].
    fn line(&mut self, labels: &str, value: u64) {
        self.start("", labels, "");
        self.end(value);
    }

    /// The start of a line, with an end of the metric's name and of the labels.
    fn start(&mut self, suffix: &str, labels: &str, more: &str) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        if !labels.is_empty() {
            self.text.push('{');
            self.text.push_str(labels);
            self.text.push_str(more);
            self.text.push('}');
        }
        self.text.push(' ');
    }

    /// The value of a line that was started: digits by hand, as they are all that is computed.
    fn end(&mut self, mut value: u64) {
        // 2^64 has 20 digits.
        let mut line = [b'\n'; 21];
        let mut at = line.len() - 1;
        loop {
            at -= 1;
            line[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        let line = std::str::from_utf8(&line[at..]);
        self.text.push_str(line.expect("digits"));
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

/// The lines of a table: of each column all rows, as the format wants it.
fn table<'a, T: 'a>(text: &mut Text, columns: &[Column<T>], rows: &[(String, &'a T)]) {
    let lines: usize = rows.iter().map(|(labels, _)| LINE + labels.len()).sum();
    text.text.reserve(columns.len() * lines);
    for (name, of, help, value) in columns {
        text.metric(name, *of, help);
        for (labels, row) in rows {
            text.number(labels, value(row));
        }
    }
}

/// The whole text.
pub(crate) fn render(sample: &Sample, format: Format) -> String {
    let Sample {
        stats,
        groups,
        classes: most,
        version,
    } = sample;
    let mut text = Text {
        text: String::new(),
        format,
        name: String::new(),
    };
    text.metric("build_info", Type::Gauge, "Release of the program.");
    text.line(&labels(&[("version", version)]), 1);
    text.metric(
        "copied_packets_total",
        Type::Counter,
        "Wire packets added by copying.",
    );
    text.line("", stats.copied);
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
    table(&mut text, QUEUE, &queues(ports));
    class_sums(&mut text, ports);
    table(&mut text, CLASS, &classes(ports, *most));
    let numbered = |name, index: usize| labels(&[(name, &index.to_string())]);
    let workers = stats.workers.iter().enumerate();
    let workers: Vec<_> = workers.map(|(i, w)| (numbered("worker", i), w)).collect();
    table(&mut text, WORKER, &workers);
    let pools = std::iter::once(&stats.pool)
        .chain(&stats.port_pools)
        .enumerate();
    let pools: Vec<_> = pools.map(|(i, p)| (numbered("pool", i), p)).collect();
    table(&mut text, POOL, &pools);
    let specs = groups.iter();
    let specs: Vec<_> = specs
        .map(|(name, (spec, _))| (labels(&[("group", name)]), spec))
        .collect();
    table(&mut text, GROUP, &specs);
    let uses = uses(ports, groups);
    let uses: Vec<_> = uses
        .iter()
        .map(|(labels, of)| (labels.clone(), of))
        .collect();
    table(&mut text, GROUP_USE, &uses);
    if format == Format::OpenMetrics {
        text.text.push_str("# EOF\n");
    }
    text.text
}

fn drops(text: &mut Text, ports: &[PortStats]) {
    text.metric(
        "port_drops_total",
        Type::Counter,
        "Wire packets dropped, by reason.",
    );
    for port in ports {
        for &(reason, n) in &port.device.drops {
            text.line(
                &labels(&[("port", &port.name), ("reason", reason.name())]),
                n,
            );
        }
    }
    text.metric(
        "port_device_drops_total",
        Type::Counter,
        "Packets that the device behind a port dropped.",
    );
    for port in ports {
        for (direction, n) in [("rx", port.device_drops.rx), ("tx", port.device_drops.tx)] {
            text.line(
                &labels(&[("port", &port.name), ("direction", direction)]),
                n,
            );
        }
    }
}

/// The transmit queues of all ports.
fn queues(ports: &[PortStats]) -> Vec<(String, &QueueStats)> {
    let rows = ports.iter().flat_map(|port| {
        let queues = port.device.queues.iter().enumerate();
        queues.map(|(queue, stats)| {
            let pairs = [("port", port.name.as_str()), ("queue", &queue.to_string())];
            (labels(&pairs), stats)
        })
    });
    rows.collect()
}

/// Use of groups by their ports, each way.
fn uses(
    ports: &[PortStats],
    groups: &BTreeMap<String, (GroupSpec, Vec<String>)>,
) -> Vec<(String, Use)> {
    let known = ports.iter().map(|port| (port.name.as_str(), port));
    let known: BTreeMap<&str, &PortStats> = known.collect();
    let mut rows = Vec::new();
    for (name, (_, members)) in groups {
        let (mut to, mut from) = (Use::default(), Use::default());
        for port in members.iter().filter_map(|name| known.get(name.as_str())) {
            to.bytes += port.device.tx_bytes;
            to.packets += port.device.tx_packets;
            from.bytes += port.device.rx_bytes;
            from.packets += port.device.rx_packets;
        }
        for (direction, of) in [("to", to), ("from", from)] {
            rows.push((labels(&[("group", name), ("direction", direction)]), of));
        }
    }
    rows
}

/// Sums over the classes of each port that no class is below, whichever have metrics of their own.
fn class_sums(text: &mut Text, ports: &[PortStats]) {
    let ports = ports.iter().filter(|port| !port.classes.is_empty());
    let sums = ports.map(|port| {
        let parents: BTreeSet<_> = port.classes.iter().map(|class| class.parent).collect();
        let (mut leaves, mut sums) = (0, [0.0_f64; CLASS.len()]);
        for class in &port.classes {
            if !parents.contains(&class.class) {
                leaves += 1;
                for (sum, (.., value)) in sums.iter_mut().zip(CLASS) {
                    *sum += value(class);
                }
            }
        }
        (labels(&[("port", &port.name)]), leaves, sums)
    });
    let sums: Vec<_> = sums.collect();
    text.metric(
        "port_leaf_classes",
        Type::Gauge,
        "Classes without others below.",
    );
    for (labels, leaves, _) in &sums {
        text.line(labels, *leaves);
    }
    for (at, (name, of, help, _)) in CLASS.iter().enumerate() {
        let name = format!("port_leaf_{name}");
        text.metric(&name, *of, &format!("All leaf classes of a port: {help}"));
        for (labels, _, sums) in &sums {
            text.number(labels, sums[at]);
        }
    }
}

/// The classes of all ports, of each the busiest.
fn classes(ports: &[PortStats], most: usize) -> Vec<(String, &ClassStats)> {
    let mut rows = Vec::new();
    for port in ports {
        let mut busiest: Vec<&ClassStats> = port.classes.iter().collect();
        if busiest.len() > most {
            busiest.select_nth_unstable_by_key(most, |c| std::cmp::Reverse(c.stats.bytes));
            busiest.truncate(most);
        }
        let of_port = labels(&[("port", &port.name)]);
        rows.extend(busiest.into_iter().map(|class| {
            let (name, kind) = (class.class, class.kind);
            let mut labels = String::with_capacity(of_port.len() + LINE);
            let _ = write!(labels, "{of_port},class=\"{name}\",kind=\"{kind}\"");
            (labels, class)
        }));
    }
    rows
}

/// A distribution of times. The sum takes each value for the middle of its bucket.
fn histogram(
    text: &mut Text,
    ports: &[(String, &PortStats)],
    name: &str,
    help: &str,
    of: fn(&PortStats) -> &Counts,
) {
    text.metric(name, Type::Histogram, help);
    let bounds = BOUNDS.map(|power| (1_u64 << power) - 1);
    let bounds = bounds.map(|bound| (bound, format!(",le=\"{}\"", bound as f64 / 1e9)));
    let bounds: Vec<_> = bounds.collect();
    for (labels, port) in ports {
        let counts = of(port);
        let (mut below, mut sum) = (0, 0.0);
        let mut rows = counts.rows().peekable();
        for (bound, label) in &bounds {
            while let Some((.., count)) = rows.next_if(|(from, ..)| from <= bound) {
                below += count;
            }
            text.start("_bucket", labels, label);
            text.end(below);
        }
        for (from, width, count) in counts.rows() {
            sum += count as f64 * (from as f64 + (width - 1) as f64 / 2.0);
        }
        let all = counts.total();
        text.start("_bucket", labels, ",le=\"+Inf\"");
        text.end(all);
        text.start("_sum", labels, "");
        let _ = writeln!(text.text, "{}", sum / 1e9);
        text.start("_count", labels, "");
        text.end(all);
    }
}

#[cfg(test)]
mod tests {
    use softnet::stats::DropReason;
    use softnet_engine::rx::WorkerStats;

    use super::*;

    fn sample() -> Sample {
        let mut port = PortStats {
            name: "we\"b".to_owned(),
            ..PortStats::default()
        };
        port.device.tx_packets = 7;
        port.device.queues = vec![QueueStats {
            tx_bytes: 9,
            ..QueueStats::default()
        }];
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
                copied: u64::MAX,
                ..EngineStats::default()
            },
            groups: BTreeMap::from([(
                "g".to_owned(),
                (
                    GroupSpec {
                        bytes: None,
                        packets: None,
                    },
                    vec!["we\"b".to_owned(), "gone".to_owned()],
                ),
            )]),
            classes: 10_000,
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
            "softnetd_port_sojourn_seconds_sum{port=\"we\\\"b\"} 0.0000063345",
            "softnetd_copied_packets_total 18446744073709551615",
            "softnetd_port_sojourn_seconds_count{port=\"we\\\"b\"} 3",
            "softnetd_class_bytes_total{port=\"we\\\"b\",class=\"1:2711\",kind=\"fq\"} 10001",
            "softnetd_port_sojourn_seconds_bucket{port=\"we\\\"b\",le=\"0.000001023\"} 2",
            "softnetd_port_sojourn_seconds_bucket{port=\"we\\\"b\",le=\"0.000004095\"} 2",
            "softnetd_port_sojourn_seconds_bucket{port=\"we\\\"b\",le=\"0.000008191\"} 3",
            "softnetd_port_call_seconds_bucket{port=\"we\\\"b\",le=\"4.294967295\"} 0",
            "softnetd_port_leaf_classes{port=\"we\\\"b\"} 10001",
            "softnetd_port_leaf_class_bytes_total{port=\"we\\\"b\"} 50015001",
            "softnetd_rate_group_packets_total{group=\"g\",direction=\"to\"} 7",
            "softnetd_queue_bytes_total{port=\"we\\\"b\",queue=\"0\"} 9",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}");
        }
        let classes = text.matches("softnetd_class_bytes_total{").count();
        assert_eq!(classes, 10_000, "the one that sent least is left out");
        assert!(!text.contains("class=\"1:1\""));
        let open = render(&sample(), Format::OpenMetrics);
        assert!(open.contains("# TYPE softnetd_port_transmit_packets counter\n"));
    }
}
