//! Flows of a port, counted from captures of it for as long as somebody looks.
//!
//! A thread a capture reads packets; [`Flows::take`] has what they counted since it was last
//! called. A capture makes nobody wait: what it misses is in no flow, and is said.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use softnet_engine::capture::{CaptureStats, Direction, Record};

use super::model::Row;
use crate::capture::source::{Received, Source};
use crate::capture::{PART, line};
use crate::client::Reach;
use crate::failure::{Exit, Failure};
use crate::selection::Part;

/// Flows that are counted apart at a time; all others are one.
const MOST: usize = 65_536;
/// Name of the others.
const OTHERS: &str = "others";

/// Direction, `in` or `out`, and name of a flow.
type Key = (&'static str, String);

/// Counts of a flow.
#[derive(Debug, Default)]
struct Flow {
    packets: u64,
    bytes: u64,
    drops: u64,
    /// Nanoseconds for which packets waited, and packets of which it is known.
    waited: u64,
    measured: u64,
}

/// Counts of all flows.
#[derive(Debug, Default)]
struct Counts {
    flows: HashMap<Key, Flow>,
    /// Packets that each capture missed until now.
    missed: [u64; 2],
    /// A capture has ended.
    ended: bool,
}

impl Counts {
    fn count(&mut self, record: &Record, frame: &[u8]) {
        let direction = match record.direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let mut key = (direction, line::packet(record, frame));
        if self.flows.len() >= MOST && !self.flows.contains_key(&key) {
            key.1 = OTHERS.to_owned();
        }
        let flow = self.flows.entry(key).or_default();
        match record.reason {
            Some(_) => flow.drops += 1,
            None => {
                flow.packets += 1;
                flow.bytes += u64::from(record.len);
            }
        }
        if let Some(waited) = record.waited {
            flow.waited = flow.waited.saturating_add(waited);
            flow.measured += 1;
        }
    }
}

/// The row of what was counted of a flow within `seconds`.
fn row((direction, name): Key, flow: &Flow, seconds: f64) -> Row {
    let bits = 8.0 * flow.bytes as f64 / seconds;
    let packets = flow.packets as f64 / seconds;
    let mut row = Row {
        name,
        what: direction.to_owned(),
        drops: flow.drops as f64 / seconds,
        delay: (flow.measured > 0).then(|| flow.waited as f64 / flow.measured as f64),
        ..Row::default()
    };
    match direction {
        "in" => (row.rx_bits, row.rx_packets) = (bits, packets),
        _ => (row.tx_bits, row.tx_packets) = (bits, packets),
    }
    row
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Captures of a port that are counted. They end with this.
pub(super) struct Flows {
    counts: Arc<Mutex<Counts>>,
    sockets: Vec<UnixStream>,
    since: Instant,
    /// Packets that were missed until the last call.
    missed: u64,
}

impl Drop for Flows {
    fn drop(&mut self) {
        for socket in &self.sockets {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Flows {
    /// Captures what a port, or a class of it, receives and sends, and what is dropped there.
    pub(super) fn start(daemon: &Reach, of: &Part) -> Result<Flows, Failure> {
        let cannot = |why: io::Error| Failure::because(Exit::Failure, "cannot count flows", &why);
        let mut flows = Flows {
            counts: Arc::default(),
            sockets: Vec::new(),
            since: Instant::now(),
            missed: 0,
        };
        for (place, dropped) in [false, true].into_iter().enumerate() {
            let mut source = Source::start(daemon, of, dropped, "")?;
            flows
                .sockets
                .push(source.socket.try_clone().map_err(cannot)?);
            let counts = flows.counts.clone();
            let read = move || {
                let mut part = vec![0; PART];
                let count = |_: &CaptureStats, record: Record, frame: &[u8]| {
                    lock(&counts).count(&record, frame);
                    Ok(())
                };
                while let Ok(Received::Some | Received::Interrupted) =
                    source.receive(&mut part, count)
                {
                    lock(&counts).missed[place] = source.stats.missed;
                }
                lock(&counts).ended = true;
            };
            let thread = thread::Builder::new().name("flows".into());
            thread.spawn(read).map_err(cannot)?;
        }
        Ok(flows)
    }

    /// Flows since the last call, and packets that were missed.
    pub(super) fn take(&mut self) -> Result<(Vec<Row>, u64), Failure> {
        let now = Instant::now();
        let seconds = (now - self.since).as_secs_f64().max(1e-3);
        self.since = now;
        let (flows, missed) = {
            let mut counts = lock(&self.counts);
            if counts.ended {
                let text = "the capture has ended: the port or the daemon is gone";
                return Err(Failure::new(Exit::Failure, text));
            }
            let missed: u64 = counts.missed.iter().sum();
            (std::mem::take(&mut counts.flows), missed)
        };
        let new = missed.saturating_sub(self.missed);
        self.missed = missed;
        let rows = flows
            .into_iter()
            .map(|(key, flow)| row(key, &flow, seconds));
        Ok((rows.collect(), new))
    }
}

#[cfg(test)]
mod tests {
    use softnet::stats::DropReason;
    use softnet::time::Time;

    use super::*;

    fn record(direction: Direction) -> Record {
        Record {
            time: Time(0),
            waited: None,
            len: 1000,
            class: 0,
            queue: Some(0),
            direction,
            reason: None,
        }
    }

    #[test]
    fn packets_are_counted_by_flow_and_direction() {
        let mut counts = Counts::default();
        for waited in [1000, 3000] {
            let mut sent = record(Direction::Out);
            sent.waited = Some(waited);
            counts.count(&sent, &[2; 60]);
        }
        let mut dropped = record(Direction::Out);
        dropped.reason = Some(DropReason::QdiscLimit);
        counts.count(&dropped, &[2; 60]);
        counts.count(&record(Direction::In), &[2; 60]);
        counts.count(&record(Direction::In), &[4; 60]);
        let flows = counts.flows.into_iter();
        let mut rows: Vec<Row> = flows.map(|(key, flow)| row(key, &flow, 2.0)).collect();
        rows.sort_by(|a, b| (&a.what, &a.name).cmp(&(&b.what, &b.name)));
        let ways: Vec<&str> = rows.iter().map(|row| row.what.as_str()).collect();
        assert_eq!(ways, ["in", "in", "out"]);
        assert!(rows[1].name.starts_with("04:04:"), "{}", rows[1].name);
        assert_eq!((rows[0].rx_bits, rows[0].tx_bits), (4000.0, 0.0));
        let sent = &rows[2];
        assert_eq!((sent.tx_bits, sent.tx_packets), (8000.0, 1.0));
        assert_eq!((sent.drops, sent.delay), (0.5, Some(2000.0)));
    }

    #[test]
    fn flows_are_bounded() {
        let mut counts = Counts::default();
        let mut frame = [2; 60];
        for n in 0..MOST + 10 {
            frame[..4].copy_from_slice(&(n as u32).to_le_bytes());
            counts.count(&record(Direction::In), &frame);
        }
        assert_eq!(counts.flows.len(), MOST + 1);
        let others = &counts.flows[&("in", OTHERS.to_owned())];
        assert_eq!(others.packets, 10);
    }
}
