//! `--explain N`: the story of a packet in words.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::{Value, json};
use softnet::wire::{self, L4};
use softnet_tc::Handle;
use softnet_tc::sim::{Fate, Look, Story};

use super::output::time;

fn class(class: Handle) -> String {
    match class == Handle::ROOT {
        true => "the root".to_owned(),
        false => class.to_string(),
    }
}

/// `10.0.0.1:7 > 10.0.0.2:53 udp, DSCP 46`.
fn headers(story: &Story) -> Option<String> {
    let headers = wire::dissect(&story.start, story.len).ok()?;
    let (source, destination) = headers.addresses(&story.start)?;
    let end = |address: IpAddr, port: u16| match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    };
    let (from, to, name) = match headers.transport {
        L4::Tcp {
            source: a,
            destination: b,
        } => (end(source, a), end(destination, b), "tcp".to_owned()),
        L4::Udp {
            source: a,
            destination: b,
        } => (end(source, a), end(destination, b), "udp".to_owned()),
        _ => (
            source.to_string(),
            destination.to_string(),
            format!("protocol {}", headers.protocol),
        ),
    };
    Some(format!("{from} > {to} {name}, DSCP {}", headers.dscp()))
}

fn look(look: &Look) -> String {
    let filter = &look.filter;
    let mut text = format!(
        "filter of {}: {} pref {} handle {:#x}: ",
        class(filter.parent),
        filter.kind.name(),
        filter.prio,
        filter.handle
    );
    if !look.matched {
        return text + "no";
    }
    text.push_str("matches");
    if let Some(class) = filter.class {
        let _ = write!(text, ", to {class}");
    }
    for action in filter.actions.as_slice() {
        let _ = write!(text, ", {}", action.spec());
    }
    text
}

/// The story of packet `number`; none: so many did not come.
pub(super) fn text(number: u64, story: Option<&Story>) -> String {
    let Some(story) = story else {
        return format!("packet {number} never came\n");
    };
    let mut text = format!(
        "packet {number} came at {}: {} bytes",
        time(story.arrived.0),
        story.len
    );
    if let Some(headers) = headers(story) {
        let _ = write!(text, ", {headers}");
    }
    text.push('\n');
    for one in &story.looks {
        let _ = writeln!(text, "  {}", look(one));
    }
    let (ahead, all) = story.ahead;
    let at = story.class.map(class);
    let end = match &story.fate {
        Fate::Dropped(end, reasons) => {
            let names: Vec<&str> = reasons.iter().map(|reason| reason.name()).collect();
            let at = at.as_ref().map_or(String::new(), |at| format!(" in {at}"));
            let waited = end.since(story.arrived).as_nanos() as u64;
            let after = match waited {
                0 => String::new(),
                waited => format!(" after {}", time(waited)),
            };
            let _ = writeln!(
                text,
                "  dropped{at}{after}: {}; {ahead} packets were there, {all} in the tree",
                names.join(" or ")
            );
            None
        }
        Fate::Left(end) => Some(*end),
        Fate::Waits => {
            text.push_str("  it was cut into segments, or sent to another link\n");
            None
        }
    };
    let Some(end) = end else {
        return text;
    };
    if let Some(at) = at {
        let _ = writeln!(
            text,
            "  queued in {at} behind {ahead} packets; {all} were in the tree"
        );
    }
    let waited = end.since(story.arrived).as_nanos() as u64;
    let _ = writeln!(text, "  left at {} after {}", time(end.0), time(waited));
    if waited > 0 {
        let _ = writeln!(
            text,
            "  of that {} while the link was sending, {} held back by the tree",
            time(story.link),
            time(story.held)
        );
    }
    for (&of, &(frames, bytes)) in &story.passed {
        let _ = writeln!(
            text,
            "  before it left {frames} packets of {} ({bytes} bytes)",
            class(of)
        );
    }
    text
}

/// The same as JSON.
pub(super) fn json(number: u64, story: Option<&Story>) -> Value {
    let Some(story) = story else {
        return json!({ "packet": number, "fate": "never_came" });
    };
    let looks: Vec<Value> = story
        .looks
        .iter()
        .map(|look| {
            json!({
                "parent": look.filter.parent.to_string(),
                "kind": look.filter.kind.name(),
                "pref": look.filter.prio,
                "handle": look.filter.handle,
                "matched": look.matched,
                "class": look.filter.class.map(|class| class.to_string()),
            })
        })
        .collect();
    let passed: Vec<Value> = story
        .passed
        .iter()
        .map(|(class, (packets, bytes))| {
            json!({ "class": class.to_string(), "packets": packets, "bytes": bytes })
        })
        .collect();
    let (fate, end, reasons) = match &story.fate {
        Fate::Left(end) => ("left", Some(end.0), Vec::new()),
        Fate::Dropped(end, reasons) => {
            let names = reasons.iter().map(|reason| reason.name());
            ("dropped", Some(end.0), names.collect())
        }
        Fate::Waits => ("changed", None, Vec::new()),
    };
    json!({
        "packet": number,
        "length": story.len,
        "headers": headers(story),
        "arrived_ns": story.arrived.0,
        "filters": looks,
        "class": story.class.map(|class| class.to_string()),
        "ahead": story.ahead.0,
        "ahead_in_tree": story.ahead.1,
        "passed": passed,
        "link_ns": story.link,
        "held_ns": story.held,
        "fate": fate,
        "end_ns": end,
        "reasons": reasons,
    })
}
