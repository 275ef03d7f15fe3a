//! `softnet capture --story`: the way of each packet of a flow in words, a line each.
//!
//! The daemon captures what one port or two receive and send, and what is dropped there.
//! [`Stories`] puts together what happened to one packet: at all ports it has the same bytes. A
//! packet that is changed on its way is two to it. Among packets that are the same to the byte it
//! takes the one that was received closest to when the other came to its queue.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softnet_engine::capture::{Direction, Record};
use softnet_tc::Handle;

use super::source::{Received, Source};
use super::{LAST, LOOK, Options, PART, failed, line, note_unseen};
use crate::failure::{Exit, Failure};
use crate::report;
use crate::selection::Part;
use crate::signals::Stop;

/// Ports of a story: each takes two captures, of the four that a daemon makes.
const PORTS: usize = 2;
/// Time for which the rest of a packet's way is waited for.
const REST: Duration = Duration::from_secs(1);
/// Packets whose rest is waited for at a time.
const HELD: usize = 8192;
/// Nanoseconds by which a worker's look at the clock may be older than another's: each takes the
/// time for a number of packets at once.
const SKEW: u64 = 10_000_000;

/// Tells until it is told to end.
pub(super) fn run(options: &Options, flow: &str) -> Result<(), Failure> {
    let mut parts = vec![options.of.clone()];
    for word in &options.filter {
        let part = word.parse::<Part>();
        parts.push(part.map_err(|why| Failure::new(Exit::Config, why))?);
    }
    if parts.len() > PORTS {
        let what = "a story is of two ports at most; quote the flow: --story 'udp and port 53'";
        return Err(Failure::new(Exit::Config, what));
    }
    let stop = Stop::on_signals().map_err(failed("cannot catch signals"))?;
    let mut sources = Vec::new();
    for part in &parts {
        for dropped in [false, true] {
            sources.push(Source::start(&options.daemon, part, dropped, flow)?);
        }
    }
    let mut stories = Stories {
        base: sources.first().map_or(0, |source| source.base),
        left: options.count,
        ..Stories::default()
    };
    let ended = stories
        .follow(&mut sources, &stop)
        .and_then(|()| stories.end(&mut sources));
    match ended {
        // Whoever read it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.map_err(failed("the capture ended"))?,
    }
    let missed: u64 = sources.iter().map(|source| source.stats.missed).sum();
    let printed = stories.printed;
    report::note(format_args!("packets told: {printed}, missed: {missed}"));
    note_unseen(sources.iter().map(|source| source.stats.unseen).sum());
    Ok(())
}

/// Sources of which something can be read; waits for one.
fn ready(sources: &[Source]) -> Vec<bool> {
    let files = sources.iter().map(|source| &source.socket);
    let mut files: Vec<PollFd<'_>> = files.map(|file| PollFd::new(file, PollFlags::IN)).collect();
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.subsec_nanos().into(),
    };
    // Interrupted: none.
    let _ = poll(&mut files, Some(&time));
    let files = files.iter();
    files.map(|file| !file.revents().is_empty()).collect()
}

/// Something that happened to a packet at a port.
#[derive(Debug)]
struct Event {
    port: Arc<str>,
    record: Record,
    /// When it was read.
    seen: Instant,
}

impl Event {
    fn is_received(&self) -> bool {
        self.record.direction == Direction::In && self.record.reason.is_none()
    }

    /// Nanoseconds of the daemon's clock at which the packet came here.
    fn came(&self) -> u64 {
        let waited = self.record.waited.unwrap_or(0);
        self.record.time.nanos().saturating_sub(waited)
    }

    /// True if the packet of `first`, which was received, may have ended so.
    fn may_end(&self, first: &Event) -> bool {
        let latest = self.record.time.plus_nanos(SKEW);
        first.is_received() && !self.is_received() && first.record.time <= latest
    }
}

/// Ways of packets, as far as they are known.
#[derive(Debug, Default)]
struct Stories {
    /// Nanoseconds since 1970 at which times of records start.
    base: u64,
    /// Parts of ways whose rest is waited for, by the packet's bytes.
    held: HashMap<Vec<u8>, Vec<Event>>,
    /// Number of them.
    waiting: usize,
    /// Lines to be printed.
    told: Vec<String>,
    /// Lines until the end, if there is one.
    left: Option<u64>,
    printed: u64,
}

impl Stories {
    /// Something happened to the packet `frame`.
    fn take(&mut self, event: Event, frame: &[u8]) {
        if self.waiting >= HELD {
            self.settle(event.seen, Duration::ZERO);
        }
        let held = self.held.entry(frame.to_vec()).or_default();
        let others = held.iter().enumerate();
        let nearest = others
            .filter(|(_, other)| event.may_end(other) || other.may_end(&event))
            .min_by_key(|(_, other)| other.came().abs_diff(event.came()))
            .map(|(place, _)| place);
        let Some(place) = nearest else {
            held.push(event);
            self.waiting += 1;
            return;
        };
        let other = held.remove(place);
        self.waiting -= 1;
        if held.is_empty() {
            self.held.remove(frame);
        }
        let (first, end) = match event.is_received() {
            true => (event, other),
            false => (other, event),
        };
        self.told.push(way(self.base, &first, Some(&end), frame));
    }

    /// Tells of the parts whose rest has not come for so long.
    fn settle(&mut self, now: Instant, wait: Duration) {
        let base = self.base;
        let mut late = Vec::new();
        self.held.retain(|frame, events| {
            let all = std::mem::take(events).into_iter();
            let (gone, stay): (Vec<_>, Vec<_>) =
                all.partition(|event| now.duration_since(event.seen) >= wait);
            for event in gone {
                late.push((event.record.time, way(base, &event, None, frame)));
            }
            *events = stay;
            !events.is_empty()
        });
        self.waiting -= late.len();
        late.sort();
        self.told.extend(late.into_iter().map(|(_, line)| line));
    }

    /// Takes what has come. False: there is no more.
    fn read(&mut self, source: &mut Source, part: &mut [u8]) -> io::Result<bool> {
        let (port, seen) = (source.port.clone(), Instant::now());
        let received = source.receive(part, |_, record, frame| {
            let port = port.clone();
            self.take(Event { port, record, seen }, frame);
            Ok(())
        })?;
        Ok(matches!(received, Received::Some | Received::Interrupted))
    }

    /// Prints what is told, as long as it is wanted.
    fn print(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for line in self.told.drain(..) {
            if self.left == Some(0) {
                break;
            }
            out.write_all(line.as_bytes())?;
            self.printed += 1;
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        Ok(())
    }

    /// Tells until that was enough, the daemon or a port is gone, or a signal comes.
    fn follow(&mut self, sources: &mut [Source], stop: &Stop) -> io::Result<()> {
        let mut part = vec![0; PART];
        let mut due = Instant::now();
        while !stop.requested() && self.left != Some(0) {
            let ready = ready(sources);
            for (source, _) in sources.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                if !self.read(source, &mut part)? {
                    return Ok(());
                }
            }
            let now = Instant::now();
            if now >= due {
                self.settle(now, REST);
                due = now + LOOK;
            }
            self.print()?;
        }
        Ok(())
    }

    /// Has the daemon stop, and tells what is left.
    fn end(&mut self, sources: &mut [Source]) -> io::Result<()> {
        let mut part = vec![0; PART];
        for source in sources.iter() {
            // It may not be there any more.
            let _ = source.socket.shutdown(Shutdown::Write);
        }
        for source in sources {
            source.socket.set_read_timeout(Some(LAST))?;
            while self.read(source, &mut part)? {}
        }
        self.settle(Instant::now(), Duration::ZERO);
        self.print()
    }
}

/// The line of a packet: the first that is known of it, and how it ended if it was received first.
fn way(base: u64, first: &Event, end: Option<&Event>, frame: &[u8]) -> String {
    let Event { record, .. } = first;
    let time = line::clock(base.saturating_add(record.time.nanos()));
    let packet = line::packet(record, frame);
    let what = match (first.is_received(), end) {
        (false, _) => ended(first),
        (true, None) => format!("received at {}; not seen again", place(first)),
        (true, Some(end)) => format!("received at {}; {}", place(first), ended(end)),
    };
    format!("{time} {packet}, length {}: {what}\n", record.len)
}

/// The end of a packet's way: sent or dropped.
fn ended(event: &Event) -> String {
    let mut place = place(event);
    if event.record.direction == Direction::In {
        place += ", on its way in";
    }
    let waited = match event.record.waited.map(Duration::from_nanos) {
        Some(waited) => format!("waited {waited:?} at {place}"),
        None => format!("at {place}"),
    };
    match event.record.reason {
        Some(reason) => format!("{waited}; dropped: {reason}. {}", reason.meaning()),
        None => format!("{waited}; sent"),
    }
}

/// Port, queue and class.
fn place(event: &Event) -> String {
    let Record { queue, class, .. } = event.record;
    let mut place = event.port.to_string();
    if let Some(queue) = queue {
        place += &format!(", queue {queue}");
    }
    let class = Handle::from_raw(class);
    if class != Handle::NONE {
        place += &format!(", class {class}");
    }
    place
}

#[cfg(test)]
mod tests {
    use softnet::stats::DropReason;
    use softnet::time::Time;

    use super::*;

    const FRAME: [u8; 60] = [2; 60];
    const START: &str = "02:02:02:02:02:02 > 02:02:02:02:02:02 ethertype 0x0202, length 60: ";

    fn event(port: &str, time: u64, seen: Instant) -> Event {
        Event {
            port: port.into(),
            record: Record {
                time: Time(time),
                waited: None,
                len: 60,
                class: 0,
                queue: Some(0),
                direction: Direction::In,
                reason: None,
            },
            seen,
        }
    }

    /// At port `b`.
    fn end(time: u64, waited: u64, reason: Option<DropReason>, seen: Instant) -> Event {
        let mut event = event("b", time, seen);
        event.record.direction = Direction::Out;
        event.record.class = 0x0001_0020;
        event.record.waited = Some(waited);
        event.record.reason = reason;
        event
    }

    /// Times of day and ways of what was told.
    fn told(stories: &mut Stories) -> Vec<(String, String)> {
        let lines = stories.told.drain(..);
        let parts = lines.map(|line| {
            let (time, rest) = line.split_once(' ').expect("a time");
            let way = rest.strip_prefix(START).expect("the packet");
            (time.to_owned(), way.trim_end().to_owned())
        });
        parts.collect()
    }

    #[test]
    fn a_way_is_put_together_from_what_comes_in_any_order() {
        let now = Instant::now();
        let way = "received at a, queue 0; waited 7µs at b, queue 0, class 1:20; sent";
        let expected = [("00:00:00.000001000".to_owned(), way.to_owned())];
        let mut stories = Stories::default();
        stories.take(event("a", 1000, now), &FRAME);
        stories.take(end(9000, 7000, None, now), &FRAME);
        assert_eq!(told(&mut stories), expected);
        stories.take(end(9000, 7000, None, now), &FRAME);
        stories.take(event("a", 1000, now), &FRAME);
        assert_eq!(told(&mut stories), expected);
        assert!(stories.held.is_empty(), "what is told takes no memory");
        stories.settle(now, Duration::ZERO);
        assert!(stories.told.is_empty());
        // Who sent it looked at the clock before who received it.
        stories.take(event("a", 9500, now), &FRAME);
        stories.take(end(9000, 0, None, now), &FRAME);
        let way = "received at a, queue 0; waited 0ns at b, queue 0, class 1:20; sent".to_owned();
        assert_eq!(told(&mut stories), [("00:00:00.000009500".to_owned(), way)]);
        // It cannot have been sent long before it came.
        stories.take(end(9000, 7000, None, now), &FRAME);
        stories.take(event("a", 9001 + SKEW, now), &FRAME);
        assert!(stories.told.is_empty());
    }

    #[test]
    fn drops_say_why() {
        let now = Instant::now();
        let mut stories = Stories::default();
        stories.take(event("a", 1000, now), &FRAME);
        stories.take(end(2000, 500, Some(DropReason::QdiscLimit), now), &FRAME);
        let mut refused = event("a", 3000, now);
        refused.record.queue = None;
        refused.record.reason = Some(DropReason::Sameport);
        stories.take(refused, &FRAME);
        stories.settle(now, Duration::ZERO);
        let ways: Vec<String> = told(&mut stories).into_iter().map(|(_, way)| way).collect();
        assert_eq!(
            ways,
            [
                "received at a, queue 0; waited 500ns at b, queue 0, class 1:20; dropped: \
                 qdisc_limit. The qdisc's limit was reached.",
                "at a, on its way in; dropped: same_port. The switch found the destination behind \
                 the port of arrival.",
            ]
        );
    }

    #[test]
    fn equal_packets_are_told_apart_by_their_times() {
        let now = Instant::now();
        let mut stories = Stories::default();
        for time in [1000, 5000, 9000] {
            stories.take(event("a", time, now), &FRAME);
        }
        stories.take(end(5300, 200, Some(DropReason::QdiscLimit), now), &FRAME);
        stories.take(end(90_000, 88_900, None, now), &FRAME);
        let times: Vec<String> = told(&mut stories)
            .into_iter()
            .map(|(time, _)| time)
            .collect();
        assert_eq!(times, ["00:00:00.000005000", "00:00:00.000001000"]);
        assert_eq!(stories.waiting, 1);
    }

    #[test]
    fn the_rest_is_waited_for_and_not_for_ever() {
        let now = Instant::now();
        let mut stories = Stories::default();
        stories.take(event("a", 1000, now), &FRAME);
        stories.settle(now + REST / 2, REST);
        assert!(stories.told.is_empty());
        stories.settle(now + REST, REST);
        let way = "received at a, queue 0; not seen again".to_owned();
        assert_eq!(told(&mut stories), [("00:00:00.000001000".to_owned(), way)]);
        assert_eq!(stories.waiting, 0);
        for time in 0..=HELD as u64 {
            stories.take(event("a", time, now), &time.to_le_bytes());
        }
        assert_eq!((stories.told.len(), stories.waiting), (HELD, 1));
    }
}
