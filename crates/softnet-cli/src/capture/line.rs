//! Captured packets as text: a line each.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use softnet::wire::{L4, dissect};
use softnet_engine::capture::{Direction, Record};
use softnet_tc::Handle;

/// Writes lines of one port.
pub(super) struct Line {
    port: String,
}

impl Line {
    pub(super) fn new(port: &str) -> Line {
        let port = port.to_owned();
        Line { port }
    }

    /// The line of a packet that was captured `time` nanoseconds after 1970.
    pub(super) fn of(&self, time: u64, record: &Record, frame: &[u8]) -> String {
        let direction = match record.direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let mut line = format!(
            "{} {direction} {} {}, length {}",
            clock(time),
            self.port,
            packet(record, frame),
            record.len,
        );
        let facts = facts(record, |waited| {
            format!("{:?}", Duration::from_nanos(waited))
        });
        if !facts.is_empty() {
            line += ", ";
            line += &facts;
        }
        line + "\n"
    }
}

/// The time of day of a moment in nanoseconds after 1970.
pub(super) fn clock(time: u64) -> String {
    let (seconds, nanos) = (time / 1_000_000_000 % 86_400, time % 1_000_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{nanos:09}")
}

/// Facts about a packet beside its bytes; `time` words the nanoseconds for which it waited.
pub(super) fn facts(record: &Record, time: impl Fn(u64) -> String) -> String {
    let mut facts = Vec::new();
    facts.extend(record.queue.map(|queue| format!("queue {queue}")));
    let class = Handle::from_raw(record.class);
    facts.extend((class != Handle::NONE).then(|| format!("class {class}")));
    facts.extend(record.waited.map(|nanos| format!("waited {}", time(nanos))));
    facts.extend(record.reason.map(|reason| format!("dropped: {reason}")));
    facts.join(", ")
}

/// Addresses and protocol.
pub(crate) fn packet(record: &Record, frame: &[u8]) -> String {
    let len = (record.len as usize).max(frame.len());
    let Ok(headers) = dissect(frame, len) else {
        return "no Ethernet frame".to_owned();
    };
    let mut text = String::new();
    for tag in 0..usize::from(headers.vlan_tags) {
        let bytes = frame.get(14 + 4 * tag..).and_then(<[u8]>::first_chunk);
        let vlan = bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes) & 0x0fff);
        // It cannot fail: it is memory.
        let _ = write!(text, "vlan {vlan} ");
    }
    let Some((from, to)) = headers.addresses(frame) else {
        let protocol = match headers.ethertype {
            0x0806 => "arp".to_owned(),
            ethertype => format!("ethertype {ethertype:#06x}"),
        };
        let _ = write!(
            text,
            "{} > {} {protocol}",
            headers.source, headers.destination
        );
        return text;
    };
    let (protocol, ports) = match headers.transport {
        L4::Tcp {
            source,
            destination,
        } => ("tcp".to_owned(), Some((source, destination))),
        L4::Udp {
            source,
            destination,
        } => ("udp".to_owned(), Some((source, destination))),
        L4::Icmp => ("icmp".to_owned(), None),
        L4::Fragment => ("fragment".to_owned(), None),
        L4::Other | L4::None => (format!("proto {}", headers.protocol), None),
    };
    let _ = match ports {
        Some((source, destination)) => {
            let [from, to] = [(from, source), (to, destination)].map(SocketAddr::from);
            write!(text, "{from} > {to} {protocol}")
        }
        None => write!(text, "{from} > {to} {protocol}"),
    };
    text
}
