//! Text for people: lines on standard output, counters as a table, drops by reason.

use std::io::{self, Write};

use softnet::stats::{Counts, DropReason, SAMPLE};
use softnet_engine::{ActionStats, Conservation, DeviceDrops, EngineStats, PortStats};

use crate::bars::bars;

/// Writes to standard output. A reader that has gone away (`softnet demo | head`) is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Lines to standard error, each with the program's name. Nothing can be done if that fails.
pub(crate) fn note(text: impl std::fmt::Display) {
    let text = text.to_string().replace('\n', "\nsoftnet: ");
    let _ = writeln!(io::stderr().lock(), "softnet: {text}");
}

/// With control characters but ends of lines escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() && c != '\n' {
            true => printable.extend(c.escape_default()),
            false => printable.push(c),
        }
    }
    printable
}

/// `12 (qdisc_limit 10, runt 2)`, or `0`.
pub(crate) fn drops(drops: &[(DropReason, u64)]) -> String {
    let total: u64 = drops.iter().map(|&(_, n)| n).sum();
    if total == 0 {
        return "0".to_owned();
    }
    let reasons: Vec<String> = drops
        .iter()
        .map(|(reason, n)| format!("{reason} {n}"))
        .collect();
    format!("{total} ({})", reasons.join(", "))
}

/// Losses of a port's device itself: `0`, or `lost 12 in, 3 out`.
fn device_drops(drops: &DeviceDrops) -> String {
    match (drops.rx, drops.tx) {
        (0, 0) => "0".to_owned(),
        (rx, 0) => format!("lost {rx} in"),
        (0, tx) => format!("lost {tx} out"),
        (rx, tx) => format!("lost {rx} in, {tx} out"),
    }
}

/// `received 10 = sent 7 + dropped 2 + queued 1`.
pub(crate) fn conservation(c: &Conservation) -> String {
    let copied = if c.copied == 0 {
        String::new()
    } else {
        format!(" + copied {}", c.copied)
    };
    let sign = if c.holds() { "=" } else { "IS NOT" };
    format!(
        "received {}{copied} {sign} sent {} + dropped {} + queued {}",
        c.rx, c.tx, c.dropped, c.queued
    )
}

/// A table, heads first: two spaces between columns; numbers end in line, and the columns named in
/// `left` start in line.
pub(crate) fn table<R: AsRef<[String]>>(rows: &[R], left: &[usize]) -> String {
    let rows = || rows.iter().map(AsRef::<[String]>::as_ref);
    let mut widths = Vec::new();
    for row in rows() {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows() {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            line += &if left.contains(&i) {
                format!("{gap}{cell:<width$}")
            } else {
                format!("{gap}{cell:>width$}")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The ports' counters, a line each, and the sum that must come out even.
pub(crate) fn ports(stats: &EngineStats) -> String {
    port_table(stats) + &conservation(&stats.conservation()) + "\n"
}

/// The ports' counters, a line each.
pub(crate) fn port_table(stats: &EngineStats) -> String {
    let head = [
        "port",
        "rx packets",
        "rx bytes",
        "tx packets",
        "tx bytes",
        "queued",
        "in device",
        "dropped",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for port in &stats.ports {
        let d = &port.device;
        rows.push([
            port.name.clone(),
            d.rx_packets.to_string(),
            d.rx_bytes.to_string(),
            d.tx_packets.to_string(),
            d.tx_bytes.to_string(),
            d.queued.to_string(),
            device_drops(&port.device_drops),
            drops(&d.drops),
        ]);
    }
    table(&rows, &[0, 6, 7])
}

/// `p50 191, p99 383, max 511 (3 measured, one in 128)`. Bounds are those of buckets.
fn summary(counts: &Counts) -> String {
    let at = |fraction| counts.percentile(fraction).unwrap_or(0.0);
    format!(
        "p50 {:.0}, p99 {:.0}, max {} ({} measured, one in {SAMPLE})",
        at(0.5),
        at(0.99),
        counts.max().unwrap_or(0),
        counts.total()
    )
}

/// Events at the ports' egress: actions, restarts, and how long things took, as bar charts. Nothing
/// for a port whose egress measured nothing.
pub(crate) fn egress(stats: &EngineStats) -> String {
    let mut text = String::new();
    for port in &stats.ports {
        for line in events(port) {
            text += &format!("\n{line}");
        }
        for (what, counts) in measured(port) {
            let (summary, bars) = (summary(counts), bars(counts));
            text += &format!("\n{}: {what}: {summary}\n{bars}", port.name);
        }
    }
    text
}

/// The same, a line each.
pub(crate) fn distributions(stats: &EngineStats) -> String {
    let mut text = String::new();
    for port in &stats.ports {
        text.extend(events(port));
        for (what, counts) in measured(port) {
            text += &format!("{}: {what}: {}\n", port.name, summary(counts));
        }
    }
    text
}

/// Lines about who is connected, actions and restarts.
fn events(port: &PortStats) -> Vec<String> {
    let (name, device) = (&port.name, &port.device);
    let line = |action: &ActionStats| {
        let ActionStats {
            action,
            packets,
            overlimits,
        } = action;
        format!("{name}: {action}: {packets} packets, overlimits {overlimits}\n")
    };
    let status = port.status.iter();
    let status = status.map(|status| format!("{name}: {status}\n"));
    let mut lines: Vec<String> = status.chain(port.actions.iter().map(line)).collect();
    if device.tx_timeouts > 0 {
        lines.push(format!(
            "{name}: driver restarted {} times\n",
            device.tx_timeouts
        ));
    }
    lines
}

fn measured(port: &PortStats) -> impl Iterator<Item = (&'static str, &Counts)> {
    let distributions = &port.device.distributions;
    let all = [
        (
            "nanoseconds that a transmit call took",
            &distributions.call_ns,
        ),
        (
            "nanoseconds that a packet spent in the queue",
            &distributions.sojourn_ns,
        ),
        ("packets handed to the driver at once", &distributions.batch),
    ];
    all.into_iter().filter(|(_, counts)| !counts.is_empty())
}

#[cfg(test)]
mod tests {
    use softnet::tx::{DeviceStats, Distributions};
    use softnet_engine::LinkState;

    use super::*;

    #[test]
    fn a_table_of_ports() {
        let port = |name: &str, rx_packets, tx_packets, drops| PortStats {
            is_virtual: false,
            name: name.into(),
            device: DeviceStats {
                rx_packets,
                tx_packets,
                drops,
                ..DeviceStats::default()
            },
            actions: Vec::new(),
            device_drops: DeviceDrops::default(),
            link: LinkState::default(),
            status: None,
            classes: Vec::new(),
            filters: Vec::new(),
        };
        let mut stats = EngineStats {
            ports: vec![
                port(
                    "web",
                    10,
                    2,
                    vec![(DropReason::Runt, 1), (DropReason::QdiscLimit, 2)],
                ),
                port("a", 0, 6, vec![]),
            ],
            copied: 1,
            ..EngineStats::default()
        };
        stats.ports[0].device_drops = DeviceDrops { rx: 12, tx: 3 };
        assert_eq!(
            ports(&stats),
            "port  rx packets  rx bytes  tx packets  tx bytes  queued  in device          dropped\n\
             web           10         0           2         0       0  lost 12 in, 3 out  3 (runt \
             1, qdisc_limit 2)\n\
             a              0         0           6         0       0  0                  0\n\
             received 10 + copied 1 = sent 8 + dropped 3 + queued 0\n"
        );
        stats.copied = 0;
        assert!(ports(&stats).ends_with("received 10 IS NOT sent 8 + dropped 3 + queued 0\n"));
    }

    #[test]
    fn bar_charts_of_what_was_measured() {
        let mut counts = Counts::default();
        [130, 140, 300].into_iter().for_each(|n| counts.record(n));
        let action = ActionStats {
            action: "mirred egress mirror dev mon".into(),
            packets: 7,
            overlimits: 1,
        };
        let device = DeviceStats {
            distributions: Distributions {
                call_ns: counts,
                ..Distributions::default()
            },
            tx_timeouts: 2,
            ..DeviceStats::default()
        };
        let status = Some("connected".into());
        let stats = EngineStats {
            ports: vec![
                PortStats {
                    name: "web".into(),
                    device,
                    actions: vec![action],
                    status,
                    ..PortStats::default()
                },
                PortStats::default(),
            ],
            ..EngineStats::default()
        };
        let bar = |n| format!("|{:<52}|", "@".repeat(n));
        let expected = format!(
            "\nweb: connected\n\
             \nweb: mirred egress mirror dev mon: 7 packets, overlimits 1\n\
             \nweb: driver restarted 2 times\n\
             \nweb: nanoseconds that a transmit call took: p50 192, p99 384, max 511 (3 measured, \
             one in 128)\n\
             [128, 256)             2 {}\n\
             [256, 512)             1 {}\n",
            bar(52),
            bar(26)
        );
        assert_eq!(egress(&stats), expected);
    }
}
