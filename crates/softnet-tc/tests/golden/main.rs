//! Golden runs: what Linux did with known packets (`tests/golden`, which says how it was recorded),
//! done again in virtual time. Order, drops, classes and counters are the same, and so are the
//! handles and priorities of filters and the texts of errors.

#![cfg(not(miri))]

#[allow(dead_code, reason = "the program uses the rest")]
#[path = "../../../softnet-cli/src/config/ematch.rs"]
mod ematch;
mod netem;
mod tc;
#[path = "../../../softnet-cli/src/config/words.rs"]
mod words;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::{Cx, Next, Qdisc, Verdict};
use softnet::stats::{DropCounters, DropReason};
use softnet::testing::{Bench, config, pool};
use softnet::time::Time;
use softnet_tc::{FilterSelector, FilterSpec, Handle, QdiscEnv, QdiscSpec, Tree, TreeSpec};
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

/// One device.
struct Replay {
    pool: Pool,
    tree: Tree,
    cx: Cx,
    now: Time,
    sent: u16,
    /// When more may leave.
    next: Option<Time>,
    left: Vec<u16>,
    /// A frame had a tag, which the kernel keeps beside it and does not count.
    tagged: bool,
}

impl Replay {
    fn new(txqueuelen: u32) -> Replay {
        let pool = pool(512);
        let env = QdiscEnv {
            txqueuelen,
            seed: 1,
            ..QdiscEnv::new(&pool)
        };
        Replay {
            tree: Tree::build(TreeSpec::new(), &env).expect("a tree"),
            cx: Cx::new(&pool),
            pool,
            now: Time::ZERO,
            sent: 0,
            next: None,
            left: Vec::new(),
            tagged: false,
        }
    }

    /// A packet arrives, and what may leave does. Returns whether the sender is told of a drop. In
    /// the kernel it is not told of what filters drop, or of what leads to no class.
    fn send(&mut self, text: &str) -> bool {
        self.now = self.now.plus_nanos(1_000_000);
        let packet = packet(&self.pool, text, self.sent);
        let tpid = packet.data().get(12..14);
        self.tagged |= matches!(tpid, Some([0x81, 0] | [0x88, 0xa8]));
        self.sent += 1;
        let cx = self.cx.at(self.now);
        let verdict = self.tree.enqueue(&mut packet.into(), cx);
        let mut again = cx.reinject.take();
        self.tree.enqueue(&mut again, cx);
        self.next = self.run();
        let dropped = DropCounters::new();
        self.cx.dropped.settle(&dropped);
        let by_filter = |reason: &(DropReason, u64)| {
            matches!(
                reason.0,
                DropReason::FilterDrop | DropReason::ReclassifyLoop | DropReason::NoClass
            )
        };
        verdict == Verdict::Dropped && !dropped.nonzero().iter().any(by_filter)
    }

    /// Packets leave that may leave now. Returns when more may.
    fn run(&mut self) -> Option<Time> {
        loop {
            let mut out = PacketList::new();
            let next = self.tree.dequeue(64, &mut out, self.cx.at(self.now));
            self.left.extend(out.iter().map(number));
            match next {
                Next::At(time) => return Some(time),
                Next::Ready if !out.is_empty() => {}
                _ => return None,
            }
        }
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
        let mut live = self.tree.edit(self.cx.at(self.now));
        let done = match command(line) {
            Command::AddQdisc(parent, handle, mut spec) => {
                // The kernel counts the packet that the bucket has looked at there, too.
                match &mut spec {
                    QdiscSpec::Codel(codel) => codel.limit -= 1,
                    QdiscSpec::FqCodel(fq_codel) => fq_codel.limit -= 1,
                    _ => {}
                }
                live.replace(parent, handle, spec).map(drop)
            }
            Command::ChangeQdisc(handle, spec) => {
                // Long enough for flows to count as idle.
                self.now = self.now.plus_nanos(1_000_000_000);
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
        let classes = self.tree.classes();
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

/// Does what was recorded, and compares.
fn replay(name: &str) {
    let text = read(name);
    let mut recording = Recording::new(name, &text);
    let txqueuelen = recording.accept("txqueuelen ").expect("the queue's length");
    let mut replay = Replay::new(txqueuelen.parse().expect("a number"));
    let mut filters = 0;
    while let Some(line) = recording.lines.next() {
        let place = format!("in line {} of {}", line.number, recording.name);
        if let Some(text) = line.text.strip_prefix("send ") {
            let dropped = recording.accept("dropped").is_some();
            assert_eq!(replay.send(text), dropped, "{place}");
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
            replay.wait();
            let left: Vec<String> = replay.left.drain(..).map(|n| n.to_string()).collect();
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
}

/// Each priority's packets leave through the queues of its traffic class, where several share them
/// by their flow hash, which is another one in the kernel.
#[test]
fn mqprio() {
    let text = read("mqprio");
    let mut recording = Recording::new("mqprio", &text);
    recording.accept("txqueuelen ").expect("the queue's length");
    let Command::AddQdisc(_, _, spec) = command(recording.accept("tc ").expect("one")) else {
        panic!("another command")
    };
    let QdiscSpec::Mqprio(map) = &spec else {
        panic!("another kind")
    };
    let pool = pool(512);
    let qdiscs = spec.instances(4, &pool).expect("four queues");
    let bench = Bench::scripted(config("mqprio"), qdiscs, &pool);
    let mut number = 0;
    while let Some(text) = recording.accept("send ") {
        let packet = packet(&pool, text, number);
        bench.device.transmit(packet.into(), Time::ZERO);
        number += 1;
    }
    recording.accept("out").expect("the order");
    let sent = bench.sent();
    let mut queues = 0;
    for line in recording.lines {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let class: Handle = words[2].parse().expect("a class");
        let packets: usize = words[4].parse().expect("a number");
        // Traffic classes come after all queues.
        let found = match class.minor().checked_sub(0xffe0) {
            Some(class) => {
                let of = &map.classes[usize::from(class)];
                sent[of.offset.into()..][..of.count.into()].iter().sum()
            }
            None if class.minor() <= 2 => sent[usize::from(class.minor()) - 1],
            None => continue,
        };
        queues += 1;
        assert_eq!(found, packets, "{}", line.text);
    }
    assert_eq!(queues, 5);
}
