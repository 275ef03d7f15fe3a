//! Golden runs: what Linux did with known packets (`tests/golden`, which says how it was recorded),
//! done again in virtual time. Order, drops, classes and counters are the same, and so are the
//! handles and priorities of filters and the texts of errors.

#![cfg(not(miri))]

mod chance;
#[allow(dead_code, reason = "the program uses the rest")]
#[path = "../../../softnet-cli/src/config/ematch.rs"]
mod ematch;
mod kinds;
mod netem;
mod tc;
mod traffic_classes;
#[path = "../../../softnet-cli/src/config/words.rs"]
mod words;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::{Cx, Next, Qdisc, Verdict};
use softnet::stats::{DropCounters, DropReason};
use softnet::testing::{config, pool};
use softnet::time::Time;
use softnet::wire::{keyed_hash, traffic_class};
use softnet_tc::{
    AnyQdisc, DeviceTree, FilterSelector, FilterSpec, Handle, QdiscEnv, QdiscSpec, TreeSpec,
};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use tc::{Command, command, ethertype, filter_handle};

/// A line of a recording, and its number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

/// A recording, line by line.
struct Recording<'a> {
    name: &'a str,
    lines: std::iter::Peekable<Box<dyn Iterator<Item = Line<'a>> + 'a>>,
}

impl<'a> Recording<'a> {
    fn new(name: &'a str, text: &'a str) -> Recording<'a> {
        let lines = (1..)
            .zip(text.lines())
            .map(|(number, text)| Line { number, text });
        let lines: Box<dyn Iterator<Item = Line<'a>>> = Box::new(lines.skip(1));
        Recording {
            name,
            lines: lines.peekable(),
        }
    }

    /// The next line, if it starts so.
    fn accept(&mut self, start: &str) -> Option<&'a str> {
        let line = self.lines.next_if(|line| line.text.starts_with(start))?;
        Some(&line.text[start.len()..])
    }
}

/// Marks from this on name the transmit queue that a packet takes, by a filter of the recorder.
const QUEUE_MARKS: u32 = 2000;

/// A frame of the recording, the rest of which is zeros and the number.
fn packet(pool: &Pool, text: &str, number: u16) -> Packet {
    let mut words = text.split_whitespace();
    let mut next = || words.next().expect("four words");
    let mut decimal = || next().parse::<u32>().expect("a number");
    let (priority, mark, len) = (decimal(), decimal(), decimal() as usize);
    let start = next();
    let byte = |at| u8::from_str_radix(&start[at..at + 2], 16).expect("hexadecimal");
    let mut frame: Vec<u8> = (0..start.len()).step_by(2).map(byte).collect();
    frame.resize(len - 2, 0);
    frame.extend(number.to_be_bytes());
    let mut packet = pool.alloc().expect("a buffer");
    assert!(packet.append(&frame));
    packet.set_priority(priority);
    packet.set_mark(mark);
    packet.set_queue(mark.checked_sub(QUEUE_MARKS).map(|queue| queue as u16));
    // That of the headers has a random key, with which flows meet in one run of 30; in the recorded
    // runs they did not.
    if let (Ok(headers), Some(ends)) = (packet.parse(), frame.get(26..38)) {
        let mut hasher = DefaultHasher::new();
        (headers.protocol, ends).hash(&mut hasher);
        packet.set_flow_hash(hasher.finish() as u32);
    }
    packet
}

fn number(packet: &Packet) -> u16 {
    let last = packet.data().last_chunk().expect("two bytes");
    u16::from_be_bytes(*last)
}

/// A packet's number, with a star if it is marked.
fn told(packet: &Packet) -> String {
    let is_marked = traffic_class(packet.data()).is_some_and(|class| class & 3 == 3);
    format!("{}{}", number(packet), if is_marked { "*" } else { "" })
}

/// One device.
struct Replay {
    pool: Pool,
    tree: DeviceTree,
    root: AnyQdisc,
    cx: Cx,
    now: Time,
    sent: u16,
    /// When more may leave.
    next: Option<Time>,
    left: Vec<(String, Time)>,
    /// Nanoseconds between two packets.
    spacing: u64,
    /// Drops of which the kind under test does not tell the sender (`NET_XMIT_CN`).
    untold: &'static [DropReason],
    /// A frame had a tag, which the kernel keeps beside it and does not count.
    tagged: bool,
}

impl Replay {
    fn new(txqueuelen: u32, queues: usize) -> Replay {
        let pool = pool(4096);
        let env = QdiscEnv {
            txqueuelen,
            seed: 1,
            ..QdiscEnv::new(&pool)
        };
        let (tree, mut roots) = DeviceTree::new(TreeSpec::new(), queues, &env).expect("a tree");
        Replay {
            tree,
            root: roots.instances.pop().expect("one at least"),
            cx: Cx::new(&pool),
            pool,
            now: Time::ZERO,
            sent: 0,
            next: None,
            left: Vec::new(),
            spacing: 1_000_000,
            untold: &[],
            tagged: false,
        }
    }

    /// A packet arrives, and what may leave does. Returns whether the sender is told of a drop. In
    /// the kernel it is not told of what filters drop, or of what leads to no class.
    fn send(&mut self, text: &str) -> bool {
        self.advance(self.spacing);
        let packet = packet(&self.pool, text, self.sent);
        let tpid = packet.data().get(12..14);
        self.tagged |= matches!(tpid, Some([0x81, 0] | [0x88, 0xa8]));
        self.sent += 1;
        let cx = self.cx.at(self.now);
        let verdict = self.root.enqueue(&mut packet.into(), cx);
        let mut again = cx.reinject.take();
        self.root.enqueue(&mut again, cx);
        self.next = self.run();
        let dropped = DropCounters::new();
        self.cx.dropped.settle(&dropped);
        let by_filter = |reason: &(DropReason, u64)| {
            matches!(
                reason.0,
                DropReason::FilterDrop | DropReason::ReclassifyLoop | DropReason::NoClass
            ) || self.untold.contains(&reason.0)
        };
        verdict == Verdict::Dropped && !dropped.nonzero().iter().any(by_filter)
    }

    /// Packets leave that may leave now. Returns when more may.
    fn run(&mut self) -> Option<Time> {
        loop {
            let mut out = PacketList::new();
            let next = self.root.dequeue(64, &mut out, self.cx.at(self.now));
            let now = self.now;
            self.left
                .extend(out.iter().map(|packet| (told(packet), now)));
            match next {
                Next::At(time) => return Some(time),
                Next::Ready if !out.is_empty() => {}
                _ => return None,
            }
        }
    }

    /// Time passes, and what may leave in it does.
    fn advance(&mut self, nanos: u64) {
        let end = self.now.plus_nanos(nanos);
        while let Some(time) = self.next.filter(|&time| time <= end) {
            self.now = self.now.max(time);
            self.next = self.run();
        }
        self.now = end;
    }

    /// Several packets. Returns a letter for each: `x` if the sender is told of a drop.
    fn burst(&mut self, text: &str) -> String {
        let (count, text) = text.split_once(' ').expect("a number");
        let count = 0..count.parse().expect("a number");
        let fate = |dropped| if dropped { 'x' } else { '.' };
        count.map(|_: u32| fate(self.send(text))).collect()
    }

    /// All that leaves until nothing does for 300 ms, as the recorder waits.
    fn wait(&mut self) {
        let is_soon = |now: Time, time: Time| time.since(now).as_millis() < 300;
        while let Some(time) = self.next.filter(|&time| is_soon(self.now, time)) {
            self.now = time;
            self.next = self.run();
        }
    }

    fn tc(&mut self, line: &str) -> Result<(), String> {
        let mut live = self.tree.on((&mut self.root, self.cx.at(self.now)));
        let done = match command(line) {
            Command::AddQdisc(parent, handle, mut spec) => {
                // The kernel counts the packet that the bucket has looked at there, too.
                match &mut spec {
                    QdiscSpec::Codel(codel) => codel.limit -= 1,
                    QdiscSpec::FqCodel(fq_codel) => fq_codel.limit -= 1,
                    QdiscSpec::FqPie(fq_pie) => fq_pie.limit -= 1,
                    QdiscSpec::Sfq(sfq) => sfq.limit = sfq.limit.map(|limit| limit - 1),
                    _ => {}
                }
                match &spec {
                    QdiscSpec::Red(_) => self.untold = &[DropReason::QdiscCongested],
                    QdiscSpec::FqPie(_) => {
                        self.untold = &[DropReason::QdiscCongested, DropReason::QdiscLimit];
                    }
                    _ => {}
                }
                live.replace(parent, handle, spec).map(drop)
            }
            Command::ChangeQdisc(handle, spec) => {
                // Long enough for flows to count as idle.
                if !matches!(spec, QdiscSpec::Pie(_) | QdiscSpec::FqPie(_)) {
                    self.now = self.now.plus_nanos(1_000_000_000);
                }
                live.change(handle, &spec)
            }
            Command::DeleteFilters(parent, key, protocol) => {
                let which = FilterSelector {
                    key,
                    protocol,
                    kind: None,
                };
                live.delete_filters(parent, which)
            }
            Command::AddClass(parent, class, spec) => live.add_class(parent, class, spec),
            Command::ChangeClass(class, spec) => live.change_class(class, &spec),
            Command::DeleteClass(class) => live.delete_class(class),
            Command::Filter(op, filter) => live.put_filter(op, filter).map(drop),
        };
        done.map_err(|error| error.to_string())
    }

    /// Packets that left, and when, until nothing does for 300 ms.
    fn take_left(&mut self) -> Vec<(String, Time)> {
        self.wait();
        std::mem::take(&mut self.left)
    }

    /// A line of `tc -s qdisc` or `tc -s class`.
    fn check_statistics(&self, text: &str, place: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [what, kind, name, counters @ ..] = &words[..] else {
            panic!("{place}")
        };
        if *kind == "clsact" {
            return;
        }
        let name: Handle = name.parse().expect(place);
        let classes = self.tree.classes(&[*self.root.stats()]);
        let mut classes = classes.iter();
        let stats = match *what {
            "qdisc" => classes.find(|c| c.qdisc == name && c.kind == *kind),
            _ => classes.find(|c| c.class == name),
        };
        let stats = stats
            .unwrap_or_else(|| panic!("no such {what} {place}"))
            .stats;
        for pair in counters.chunks_exact(2) {
            let expected: u64 = pair[1].parse().expect(place);
            let xstats = || {
                let of = self.tree.xstats(name).expect(place);
                let found = of.iter().find(|(name, _)| *name == pair[0]);
                found.unwrap_or_else(|| panic!("no {} {place}", pair[0])).1
            };
            let found = match pair[0] {
                // The kernel's child has counted as sent what the bucket above has looked at, and
                // keeps its flow listed.
                "packets" | "bytes" | "new_flows_len" if stats.qlen > 0 => continue,
                "bytes" | "backlog" if self.tagged => continue,
                // The kernel's has none of its own.
                "backlog" if *what == "qdisc" && *kind == "multiq" => continue,
                "packets" => stats.packets,
                "bytes" => stats.bytes,
                "drops" => stats.drops,
                "overlimits" => stats.overlimits,
                "backlog" => stats.backlog,
                "qlen" => stats.qlen,
                tin if tin.starts_with("tin") => {
                    let (number, stat) = tin[3..].split_once('.').expect(place);
                    let of = self.tree.xstats(name).expect(place);
                    let part = &of.parts()[number.parse::<usize>().expect(place)];
                    part.iter().find(|(own, _)| *own == stat).expect(place).1
                }
                _ => xstats(),
            };
            assert_eq!(found, expected, "{} of {text} {place}", pair[0]);
        }
    }

    /// A line of `tc filter show`.
    fn has_filter(&self, text: &str) -> bool {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [
            "filter",
            "protocol",
            protocol,
            "prio",
            prio,
            kind,
            "chain",
            chain,
            "handle",
            handle,
        ] = words[..]
        else {
            panic!("{text}")
        };
        let same = |filter: &FilterSpec| {
            filter.protocol == ethertype(protocol)
                && filter.prio.to_string() == prio
                && filter.kind.name() == kind
                && filter.chain.to_string() == chain
                && filter.handle == filter_handle(handle)
        };
        self.tree.spec().filters().filter(|f| same(f)).count() == 1
    }
}

fn read(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
    std::fs::read_to_string(format!("{folder}/{name}.txt")).expect("a recording")
}

/// The recorder's machine is emulated: it is late by so many milliseconds at most. It is early by
/// what the times of arrival are rounded and off.
const LATE: f64 = 100.0;
const EARLY: f64 = 5.0;

/// Checks that the same packets left, each at about its recorded time in milliseconds.
fn check_times<'a>(
    left: &[(String, Time)],
    start: Time,
    recorded: impl Iterator<Item = (&'a str, &'a str)>,
    place: &str,
) {
    let mut recorded: Vec<_> = recorded.collect();
    assert_eq!(left.len(), recorded.len(), "{place}");
    for (number, time) in left {
        let at = recorded.iter().position(|(other, _)| other == number);
        let (_, expected) = recorded.swap_remove(at.expect(place));
        let expected: f64 = expected.parse().expect("milliseconds");
        let found = time.since(start).as_secs_f64() * 1e3;
        let is_near = (-EARLY..LATE).contains(&(expected - found));
        assert!(
            is_near,
            "{number} left after {found} ms, not {expected} ms, {place}"
        );
    }
}

/// Does what was recorded, and compares.
fn replay(name: &str) {
    let text = read(name);
    let mut recording = Recording::new(name, &text);
    let txqueuelen = recording.accept("txqueuelen ").expect("the queue's length");
    let queues = if name == "multiq" { 4 } else { 1 };
    let mut replay = Replay::new(txqueuelen.parse().expect("a number"), queues);
    let mut start = None;
    let mut filters = 0;
    while let Some(line) = recording.lines.next() {
        let place = format!("in line {} of {}", line.number, recording.name);
        if let Some(text) = line.text.strip_prefix("send ") {
            let dropped = recording.accept("dropped").is_some();
            assert_eq!(replay.send(text), dropped, "{place}");
        } else if let Some(text) = line.text.strip_prefix("burst ") {
            let outcomes = recording.accept("outcomes ").expect("what became of them");
            assert_eq!(replay.burst(text), outcomes, "{place}");
        } else if let Some(millis) = line.text.strip_prefix("at ") {
            let start = *start.get_or_insert(replay.now);
            let millis: f64 = millis.parse().expect("milliseconds");
            let time = start.plus_nanos((millis * 1e6) as u64);
            replay.advance(time.nanos().saturating_sub(replay.now.nanos()));
            replay.spacing = 20_000;
        } else if let Some(seconds) = line.text.strip_prefix("sleep ") {
            let seconds: u64 = seconds.parse().expect("seconds");
            replay.advance(seconds * 1_000_000_000);
        } else if let Some(command) = line.text.strip_prefix("tc ") {
            let error = recording.accept("Error: ");
            let failed = recording.accept("failed").is_some();
            let result = replay.tc(command);
            assert_eq!(result.is_err(), failed, "{result:?} {place}");
            if let (Some(text), Err(said)) = (error, result) {
                // The kernel's text, without the full stop and the module's name.
                let text = text.trim_end_matches('.').trim_start_matches("cls_u32: ");
                assert!(said.contains(text), "{said:?} is not {text:?} {place}");
            }
        } else if let Some(order) = line.text.strip_prefix("out") {
            let left = replay.take_left();
            if let Some(times) = recording.accept("times ") {
                let recorded = order.split_whitespace().zip(times.split(' '));
                check_times(&left, start.expect("arrivals"), recorded, &place);
                continue;
            }
            let left: Vec<String> = left.into_iter().map(|(number, _)| number).collect();
            assert_eq!(left.join(" "), order.trim(), "{place}");
        } else if line.text.starts_with("filter ") {
            filters += 1;
            assert!(replay.has_filter(line.text), "{} {place}", line.text);
        } else {
            replay.check_statistics(line.text, &place);
        }
    }
    if filters > 0 {
        assert_eq!(replay.tree.spec().filters().count(), filters);
    }
}

macro_rules! golden {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*
    };
}

golden! {
    prio flower vlan u32 basic actions restarts handles htb_filters codel fq_codel fq drr ets qfq
    hfsc cake cake_acks netem netem_child
    sfq sfq_headdrop sfq_red sfq_red_ecn sfq_red_head sfq_red_hard
    red red_ecn red_nodrop red_hard multiq pie fq_pie
    hfsc_rt hfsc_ul cake_srchost cake_dsthost cake_hosts
}

/// Hosts that meet in a place of cake's table share a load, in Linux as here: where they do with
/// the random key of this run, which is one of ten, there is nothing to compare.
#[test]
fn cake_hosts_and_flows() {
    // The hosts of the recordings, as the table hashes them.
    let hosts = [1, 2, 3, 4, 5, 99, 20, 21, 22, 23, 24, 25, 30, 98];
    let place = |host: u64| keyed_hash(0x0a00_0000 | host) % 1024;
    let places: HashSet<u32> = hosts.into_iter().map(place).chain([0]).collect();
    if places.len() <= hosts.len() {
        println!("skipped: two hosts meet in cake's table");
        return;
    }
    for name in ["cake_dualsrc", "cake_dualdst", "cake_tripleiso"] {
        replay(name);
    }
}
