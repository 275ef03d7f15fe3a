//! tc's command lines, as far as the recordings have them.

use std::time::Duration;

use softnet::tx::{QueueMap, TcQueues};
use softnet_tc::units::rate;
use softnet_tc::{
    AckFilter, AqmSpec, CakeSpec, ClassSpec, CodelSpec, Control, Diffserv, DrrClassSpec, EtsSpec,
    FilterKey, FilterKind, FilterOp, FilterSpec, Flower, FqCodelSpec, FqSpec, Handle,
    HfscClassSpec, HfscSpec, HtbClassSpec, HtbSpec, Isolation, LinkDefaults, Prefix, PrioSpec,
    QdiscSpec, QfqClassSpec, TbfSpec, U32,
};

use super::ematch;
use super::kinds;
use super::netem;
use super::words::{hex, key, number};

pub(crate) enum Command {
    AddQdisc(Handle, Handle, QdiscSpec),
    ChangeQdisc(Handle, QdiscSpec),
    Filter(FilterOp, FilterSpec),
    DeleteFilters(Handle, FilterKey, u16),
    AddClass(Handle, Handle, ClassSpec),
    ChangeClass(Handle, ClassSpec),
    DeleteClass(Handle),
}

/// The words that are left.
pub(crate) struct Words<'a>(pub(crate) &'a [&'a str]);

impl<'a> Words<'a> {
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The word behind a name.
    pub(crate) fn of(&mut self) -> &'a str {
        self.next().expect("a value")
    }

    fn handle(&mut self) -> Handle {
        match self.of() {
            minor if minor.starts_with(':') => format!("0{minor}").parse(),
            text => text.parse(),
        }
        .expect("a handle")
    }

    pub(crate) fn number(&mut self) -> u32 {
        number(self.of()).expect("a number")
    }

    fn map(&mut self) -> [u8; 16] {
        std::array::from_fn(|_| self.number() as u8)
    }

    pub(crate) fn accept(&mut self, word: &str) -> bool {
        let found = self.0.first() == Some(&word);
        if found {
            self.next();
        }
        found
    }
}

/// A command without its `tc`.
pub(crate) fn command(line: &str) -> Command {
    // Expressions are in quotes.
    let (line, quoted) = match line.split_once('\'') {
        Some((before, rest)) => {
            let (quoted, after) = rest.split_once('\'').expect("both quotes");
            (format!("{before} {after}"), quoted)
        }
        None => (line.to_owned(), ""),
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut words = Words(&words);
    match (words.of(), words.of()) {
        ("qdisc", verb) => qdisc(verb, &mut words),
        ("filter", verb) => filter(verb, &mut words, quoted),
        ("class", verb) => class(verb, &mut words),
        other => panic!("{other:?}"),
    }
}

fn qdisc(verb: &str, words: &mut Words<'_>) -> Command {
    let (mut parent, mut handle) = (Handle::ROOT, Handle::NONE);
    let spec = loop {
        match words.of() {
            "root" => {}
            "parent" => parent = words.handle(),
            "handle" => handle = words.handle(),
            kind => break spec(kind, words),
        }
    };
    assert!(words.0.is_empty(), "{:?}", words.0);
    match verb {
        "add" => Command::AddQdisc(parent, handle, spec),
        "change" => Command::ChangeQdisc(handle, spec),
        other => panic!("{other}"),
    }
}

fn class(verb: &str, words: &mut Words<'_>) -> Command {
    let (mut parent, mut class) = (Handle::NONE, Handle::NONE);
    let mut spec = ClassSpec::Htb(HtbClassSpec::new(125_000_000));
    while let Some(name) = words.next() {
        match (name, &mut spec) {
            ("parent", _) => parent = words.handle(),
            ("classid", _) => class = words.handle(),
            ("htb", _) => {}
            ("drr", _) => spec = ClassSpec::Drr(DrrClassSpec::default()),
            ("qfq", _) => spec = ClassSpec::Qfq(QfqClassSpec::default()),
            ("hfsc", _) => spec = ClassSpec::Hfsc(HfscClassSpec::default()),
            ("rate", ClassSpec::Htb(_)) => assert_eq!(words.of(), "1gbit"),
            ("quantum", ClassSpec::Htb(htb)) => htb.quantum = Some(words.number()),
            ("quantum", ClassSpec::Drr(drr)) => drr.quantum = words.number(),
            ("weight", ClassSpec::Qfq(qfq)) => qfq.weight = words.number(),
            ("maxpkt", ClassSpec::Qfq(qfq)) => qfq.maxpkt = words.number(),
            ("rt", ClassSpec::Hfsc(hfsc)) => hfsc.rt = Some(kinds::curve(words)),
            ("ls", ClassSpec::Hfsc(hfsc)) => hfsc.ls = Some(kinds::curve(words)),
            ("sc", ClassSpec::Hfsc(hfsc)) => {
                hfsc.rt = Some(kinds::curve(words));
                hfsc.ls = hfsc.rt;
            }
            ("ul", ClassSpec::Hfsc(hfsc)) => hfsc.ul = Some(kinds::curve(words)),
            other => panic!("{other:?}"),
        }
    }
    match verb {
        "add" => Command::AddClass(parent, class, spec),
        "change" => Command::ChangeClass(class, spec),
        "del" => Command::DeleteClass(class),
        other => panic!("{other}"),
    }
}

fn seconds(text: &str) -> Duration {
    let number = text.strip_suffix('s').and_then(|n| n.parse().ok());
    Duration::from_secs(number.expect("seconds"))
}

fn spec(kind: &str, words: &mut Words<'_>) -> QdiscSpec {
    match kind {
        "pfifo" => {
            assert!(words.accept("limit"));
            let limit = words.number();
            QdiscSpec::Pfifo { limit }
        }
        "tbf" => {
            let mut tbf = TbfSpec::default();
            while let Some(name) = words.next() {
                match (name, words.of()) {
                    ("rate", text) => tbf.rate = rate(text).expect("a rate"),
                    ("burst", "10mb") => tbf.burst = 10 << 20,
                    ("burst", bytes) => tbf.burst = bytes.parse().expect("bytes"),
                    ("limit", bytes) => tbf.limit = bytes.parse().expect("bytes"),
                    other => panic!("{other:?}"),
                }
            }
            QdiscSpec::Tbf(tbf)
        }
        "netem" => netem::spec(words),
        "sfq" => kinds::sfq(words),
        "red" => kinds::red(words),
        "pie" => kinds::pie(words),
        "fq_pie" => kinds::fq_pie(words),
        "dualpi2" => kinds::dualpi2(words),
        // The recorded devices have so many transmit queues.
        "multiq" => QdiscSpec::Multiq { bands: 4 },
        "prio" => {
            let mut prio = PrioSpec::default();
            while let Some(name) = words.next() {
                match name {
                    "bands" => prio.bands = words.number() as u16,
                    "priomap" => prio.priomap = words.map(),
                    other => panic!("{other}"),
                }
            }
            QdiscSpec::Prio(prio)
        }
        "drr" => QdiscSpec::Drr,
        "qfq" => QdiscSpec::Qfq,
        "hfsc" => {
            assert!(words.accept("default"));
            let default = hex(words.of()).expect("a minor number") as u16;
            QdiscSpec::Hfsc(HfscSpec { default })
        }
        "ets" => {
            let (mut ets, mut quanta) = (EtsSpec::default(), Vec::new());
            while let Some(name) = words.next() {
                match name {
                    "bands" => ets.bands = words.number() as u16,
                    "strict" => ets.strict = words.number() as u16,
                    "priomap" => ets.priomap = words.map(),
                    "quanta" => {
                        while let Some(quantum) = words.0.first().and_then(|word| number(word)) {
                            quanta.push(quantum);
                            words.next();
                        }
                    }
                    other => panic!("{other}"),
                }
            }
            QdiscSpec::Ets(ets.with_quanta(&quanta, &LinkDefaults::default()))
        }
        "cake" => {
            let mut cake = CakeSpec::default();
            while let Some(name) = words.next() {
                match name {
                    "diffserv4" => cake.diffserv = Diffserv::Diffserv4,
                    "besteffort" => cake.diffserv = Diffserv::Besteffort,
                    "flows" => cake.isolation = Isolation::Flows,
                    "srchost" => cake.isolation = Isolation::Srchost,
                    "dsthost" => cake.isolation = Isolation::Dsthost,
                    "hosts" => cake.isolation = Isolation::Hosts,
                    "dual-srchost" => cake.isolation = Isolation::DualSrchost,
                    "dual-dsthost" => cake.isolation = Isolation::DualDsthost,
                    "triple-isolate" => cake.isolation = Isolation::Triple,
                    "ack-filter" => cake.ack_filter = AckFilter::Filter,
                    "ack-filter-aggressive" => cake.ack_filter = AckFilter::Aggressive,
                    "rtt" => cake.rtt = seconds(words.of()),
                    "fwmark" => cake.fwmark = hex(&words.of()[2..]).expect("a mask"),
                    other => panic!("{other}"),
                }
            }
            QdiscSpec::Cake(cake)
        }
        "htb" => {
            assert!(words.accept("default"));
            let default = hex(words.of()).expect("a minor number") as u16;
            QdiscSpec::Htb(HtbSpec {
                default,
                ..HtbSpec::default()
            })
        }
        "mqprio" => {
            let mut map = QueueMap::default();
            while let Some(name) = words.next() {
                match name {
                    "map" => map.prio_tc_map = words.map(),
                    "queues" => {
                        while let Some((count, offset)) =
                            words.0.first().and_then(|queues| queues.split_once('@'))
                        {
                            let (count, offset) = (count.parse(), offset.parse());
                            map.classes.push(TcQueues {
                                count: count.expect("a number"),
                                offset: offset.expect("a number"),
                            });
                            words.next();
                        }
                    }
                    "num_tc" | "hw" => _ = words.number(),
                    other => panic!("{other}"),
                }
            }
            QdiscSpec::Mqprio(map)
        }
        "codel" => {
            let mut codel = CodelSpec::default();
            while let Some(name) = words.next() {
                match name {
                    "limit" => codel.limit = words.number(),
                    other => aqm(&mut codel.aqm, other, words),
                }
            }
            QdiscSpec::Codel(codel)
        }
        "fq_codel" => {
            let mut fq_codel = FqCodelSpec::default();
            while let Some(name) = words.next() {
                match name {
                    "limit" => fq_codel.limit = words.number(),
                    "flows" => fq_codel.flows = words.number(),
                    "quantum" => fq_codel.quantum = Some(words.number()),
                    "drop_batch" => fq_codel.drop_batch = words.number(),
                    other => aqm(&mut fq_codel.aqm, other, words),
                }
            }
            QdiscSpec::FqCodel(fq_codel)
        }
        "fq" => {
            let mut fq = FqSpec::default();
            while let Some(name) = words.next() {
                match name {
                    "limit" => fq.limit = words.number(),
                    "flow_limit" => fq.flow_limit = words.number(),
                    "quantum" => fq.quantum = Some(words.number()),
                    "initial_quantum" => fq.initial_quantum = Some(words.number()),
                    "nopacing" => fq.pacing = false,
                    other => panic!("{other}"),
                }
            }
            QdiscSpec::Fq(fq)
        }
        other => panic!("{other}"),
    }
}

fn aqm(aqm: &mut AqmSpec, name: &str, words: &mut Words<'_>) {
    match name {
        "target" => aqm.target = seconds(words.of()),
        "interval" => aqm.interval = seconds(words.of()),
        "noecn" => aqm.ecn = false,
        other => panic!("{other}"),
    }
}

/// The EtherType of a protocol.
pub(crate) fn ethertype(name: &str) -> u16 {
    match name.to_ascii_lowercase().as_str() {
        "all" => 3,
        "ip" => 0x0800,
        "ipv6" => 0x86dd,
        "arp" => 0x0806,
        "802.1q" => 0x8100,
        "802.1ad" => 0x88a8,
        other => panic!("{other}"),
    }
}

/// A `u32` handle like `800::801`; else a number.
pub(crate) fn filter_handle(text: &str) -> u32 {
    match text.split_once("::") {
        Some((table, node)) => {
            let table = if table.is_empty() {
                Some(0)
            } else {
                hex(table)
            };
            table.expect("a table") << 20 | hex(node).expect("a node")
        }
        None => number(text.split('/').next().expect("a text")).expect("a number"),
    }
}

fn masked(text: &str, ones: u32) -> (u32, u32) {
    let number = |text| number(text).expect("a number");
    match text.split_once('/') {
        Some((value, mask)) => (number(value), number(mask)),
        None => (number(text), ones),
    }
}

fn filter(verb: &str, words: &mut Words<'_>, quoted: &str) -> Command {
    let mut filter = FilterSpec {
        class: None,
        ..FilterSpec::new(FilterKind::Matchall, Handle::NONE)
    };
    let (mut handle, mut protocol) = ("0", 0);
    let kind = loop {
        match words.next().unwrap_or_default() {
            "parent" => filter.parent = words.handle(),
            "chain" => filter.chain = words.number(),
            "prio" => filter.prio = words.number() as u16,
            "protocol" => {
                protocol = ethertype(words.of());
                filter.protocol = protocol;
            }
            "handle" => handle = words.of(),
            kind => break kind,
        }
    };
    filter.handle = filter_handle(handle);
    if verb == "del" {
        return Command::DeleteFilters(filter.parent, filter.key(), protocol);
    }
    let (mut flower, mut u32) = (Flower::default(), U32::default());
    let mut expressions = Vec::new();
    while let Some(name) = words.next() {
        match name {
            "flowid" => filter.class = Some(words.handle()),
            "action" => {
                let control = match words.of() {
                    "pass" => Control::Pass,
                    "drop" => Control::Drop,
                    "continue" => Control::Continue,
                    "reclassify" => Control::Reclassify,
                    "goto" if words.accept("chain") => Control::Goto(words.number()),
                    other => panic!("{other}"),
                };
                filter.actions = control.into();
            }
            "match" if kind == "basic" => {
                expressions = ematch::read(quoted).expect("expressions");
            }
            "match" if words.accept("mark") => {
                u32.mark = Some((words.number(), hex(words.of()).expect("a mask")));
            }
            "match" => {
                let (key_words, rest) = words.0.split_at(5);
                u32.keys.push(key(key_words, hex).expect("a key"));
                words.0 = rest;
            }
            _ => field(&mut flower, name, words.of()),
        }
    }
    filter.kind = match kind {
        "flower" => flower.into(),
        "u32" => FilterKind::U32(u32),
        "basic" => FilterKind::Basic(expressions),
        "matchall" => FilterKind::Matchall,
        "fw" => FilterKind::fw(masked(handle, u32::MAX).1),
        other => panic!("{other}"),
    };
    let op = match verb {
        "add" => FilterOp::Add,
        "replace" => FilterOp::Replace,
        "change" => FilterOp::Change,
        other => panic!("{other}"),
    };
    Command::Filter(op, filter)
}

fn field(flower: &mut Flower, name: &str, value: &str) {
    let port = |text: &str| text.parse::<u16>().expect("a port");
    let ports = || match value.split_once('-') {
        Some((first, last)) => Some(port(first)..=port(last)),
        None => Some(port(value)..=port(value)),
    };
    let prefix = || {
        let (address, len) = value.split_once('/').unwrap_or((value, "32"));
        let address = address.parse().expect("an address");
        Prefix::new(address, len.parse().expect("a length"))
    };
    match name {
        "ip_proto" => {
            flower.ip_proto = Some(match value {
                "tcp" => 6,
                "udp" => 17,
                "icmp" => 1,
                other => panic!("{other}"),
            });
        }
        "ip_tos" => {
            let (tos, mask) = masked(value, 0xff);
            flower.ip_tos = Some((tos as u8, mask as u8));
        }
        "src_port" => flower.src_port = ports(),
        "dst_port" => flower.dst_port = ports(),
        "src_ip" => flower.src_ip = prefix(),
        "dst_ip" => flower.dst_ip = prefix(),
        "vlan_id" => flower.vlan_id = Some(port(value)),
        "vlan_prio" => flower.vlan_prio = Some(port(value) as u8),
        "vlan_ethtype" => flower.vlan_ethtype = Some(ethertype(value)),
        other => panic!("{other}"),
    }
}
