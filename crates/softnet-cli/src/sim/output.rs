//! The results of a simulation, as a table and as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use softnet::stats::DropReason;
use softnet_tc::Handle;
use softnet_tc::sim::{FlowReport, Report, Sojourn};

use super::outside::Outside;
use super::shown::{rate, time};
use crate::{classes, report};

/// Frames that never reached the tree, with the reasons of those that did.
fn all_drops(report: &Report, outside: Outside) -> Vec<(DropReason, u64)> {
    let mut drops = report.drops.clone();
    for (reason, n) in [
        (DropReason::TooLong, outside.too_long),
        (DropReason::NoBuffer, outside.no_buffer),
    ] {
        match drops.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, count)) => *count += n,
            None if n > 0 => drops.push((reason, n)),
            None => {}
        }
    }
    drops
}

fn arrived(report: &Report, outside: Outside) -> u64 {
    report.offered.0 + outside.too_long + outside.no_buffer
}

/// A table with a line for each class, and another one of the reverse direction.
pub(super) fn table(report: &Report, flows: &[FlowReport], outside: Outside) -> String {
    let head = [
        "class",
        "qdisc",
        "packets",
        "bytes",
        "rate",
        "queued",
        "sojourn p50",
        "sojourn p99",
        "sojourn max",
        "overlimits",
        "dropped",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for class in &report.classes {
        let s = &class.sojourn;
        let stay = |nanos| {
            if s.frames == 0 {
                "-".to_owned()
            } else {
                time(nanos)
            }
        };
        rows.push([
            class.class.to_string(),
            classes::name(class.kind, class.qdisc),
            class.stats.packets.to_string(),
            class.stats.bytes.to_string(),
            rate(class.rate),
            class.stats.queued.to_string(),
            stay(s.p50),
            stay(s.p99),
            stay(s.max),
            class.stats.overlimits.to_string(),
            report::drops(&class.drops),
        ]);
    }
    let place = |class: Handle| class.qdisc().to_string();
    let htb = report.classes.iter();
    let htb = htb.map(|class| (place(class.class), class.class, class.htb));
    let mut text = report::table(&rows, &[0, 1, 10]) + &classes::htb_table("qdisc", htb);
    for class in &report.classes {
        let qdisc = classes::name(class.kind, class.qdisc);
        let name = format!("{} {qdisc}", class.class);
        text += &classes::xstats(&name, class.xstats.iter().copied());
    }
    text += &flow_table(flows);
    let root = report.root();
    let drops = all_drops(report, outside);
    text += &format!(
        "{} simulated: arrived {} = sent {} + dropped {} + queued {}\n",
        time(report.span),
        arrived(report, outside),
        root.packets,
        report::drops(&drops),
        root.queued,
    );
    if let Some(reverse) = &report.reverse {
        text += "\nthe reverse direction\n";
        text += &table(reverse, &[], outside.in_reverse());
    }
    text
}

/// A line for each flow that has a name.
fn flow_table(flows: &[FlowReport]) -> String {
    let head = [
        "flow",
        "sent",
        "delivered",
        "rate",
        "marked",
        "retransmitted",
        "sojourn p50",
        "sojourn p99",
        "rtt p50",
        "rtt p99",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for flow in flows.iter().filter(|flow| !flow.name.is_empty()) {
        let of = |times: &Sojourn, nanos: u64| match times.frames {
            0 => "-".to_owned(),
            _ => time(nanos),
        };
        rows.push([
            flow.name.clone(),
            flow.sent.to_string(),
            flow.delivered.to_string(),
            rate(flow.rate),
            flow.marked.to_string(),
            flow.again.to_string(),
            of(&flow.sojourn, flow.sojourn.p50),
            of(&flow.sojourn, flow.sojourn.p99),
            of(&flow.rtt, flow.rtt.p50),
            of(&flow.rtt, flow.rtt.p99),
        ]);
    }
    match rows.len() {
        1 => String::new(),
        _ => report::table(&rows, &[0]),
    }
}

/// A distribution. That of no frames has no figures.
fn times(s: &Sojourn) -> Value {
    let of = |nanos: u64| (s.frames > 0).then_some(nanos);
    json!({
        "frames": s.frames, "mean": of(s.mean), "p50": of(s.p50), "p90": of(s.p90),
        "p99": of(s.p99), "p999": of(s.p999), "max": of(s.max),
    })
}

fn reasons(drops: &[(DropReason, u64)]) -> Value {
    drops
        .iter()
        .map(|&(reason, n)| (reason.name().to_owned(), Value::from(n)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// One JSON object.
pub(super) fn json(report: &Report, flows: &[FlowReport], outside: Outside) -> Value {
    let mut object = tree_json(report, outside);
    object["flows"] = flows.iter().map(flow_json).collect();
    if let Some(reverse) = &report.reverse {
        object["reverse"] = tree_json(reverse, outside.in_reverse());
    }
    object
}

fn flow_json(flow: &FlowReport) -> Value {
    json!({
        "name": flow.name,
        "sent": flow.sent,
        "delivered": flow.delivered,
        "dropped": flow.dropped,
        "bytes": flow.bytes,
        "rate_bps": flow.rate,
        "marked": flow.marked,
        "sent_again": flow.again,
        "sojourn_ns": times(&flow.sojourn),
        "rtt_ns": times(&flow.rtt),
    })
}

/// Report on a tree.
fn tree_json(report: &Report, outside: Outside) -> Value {
    let classes: Vec<Value> = report
        .classes
        .iter()
        .map(|class| {
            let class_json = json!({
                "class": class.class.to_string(),
                "qdisc": (class.qdisc != Handle::NONE).then(|| class.qdisc.to_string()),
                "kind": class.kind,
                "rate_bps": class.rate,
                "htb": classes::htb_json(class.htb),
                "drop_reasons": reasons(&class.drops),
                "xstats": class.xstats.iter().copied().collect::<BTreeMap<_, _>>(),
                "fair": class.fair,
                "marked": class.marked,
                "sojourn_ns": times(&class.sojourn),
            });
            classes::with_stats(class_json, &class.stats)
        })
        .collect();
    let root = report.root();
    json!({
        "span_ns": report.span,
        "arrived": arrived(report, outside),
        "sent": root.packets,
        "queued": root.queued,
        "dropped": reasons(&all_drops(report, outside)),
        "classes": classes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frames_have_no_times() {
        let none = times(&Sojourn::of(&[]));
        assert_eq!((&none["frames"], &none["p99"]), (&0.into(), &Value::Null));
        let at_once = times(&Sojourn::of(&[0]));
        assert_eq!(
            (&at_once["frames"], &at_once["p99"]),
            (&1.into(), &0.into())
        );
    }

    #[test]
    fn numbers_with_units() {
        assert_eq!(rate(999), "999 bit/s");
        assert_eq!(rate(1_234_567), "1.235 Mbit/s");
        assert_eq!(rate(2_000_000_000), "2.000 Gbit/s");
        assert_eq!(
            (time(999), time(1_500), time(2_000_000), time(3_000_000_000)),
            (
                "999 ns".into(),
                "1.500 µs".into(),
                "2.000 ms".into(),
                "3.000 s".into()
            )
        );
    }
}
