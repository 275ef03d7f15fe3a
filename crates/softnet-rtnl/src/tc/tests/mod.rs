//! Requests about qdiscs, classes and filters, on an engine with devices in memory. What is
//! expected is what Linux 7.2 answers to the same.

mod actions;
mod classes;
mod filters;
mod hostile;
mod qdisc_changes;
mod qdiscs;
mod reloads;

use softnet_engine::testing::FedDevices;
use softnet_engine::{EngineConfig, Settings};
use softnet_tc::{Handle, QDISC_KINDS};

use super::*;
use crate::Rtnl;
use crate::nl::{Message, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, Requests, Service};
use crate::testing::{self, CLIENT, Shared, message, port};

const ADD: u16 = NLM_F_CREATE | NLM_F_EXCL;
const REPLACE: u16 = NLM_F_CREATE | NLM_F_REPLACE;
const LINK: u16 = NLM_F_REPLACE;
const CHANGE: u16 = 0;

/// A daemon's part that answers requests, with links.
struct World {
    rtnl: Rtnl<FedDevices>,
    engine: Shared,
    /// Messages to members of the group by the last request.
    told: Vec<String>,
    warning: Option<String>,
    /// Members were told that something is missing.
    overrun: bool,
}

/// Part of a request behind its header.
type Body<'a> = &'a dyn Fn(&mut Message<'_>);

impl World {
    /// With a link 1 that has a queue, 2 that has four, and 3 that has none of its own.
    fn new() -> World {
        World::with(EngineConfig::default(), FedDevices::default())
    }

    fn with(config: EngineConfig, devices: FedDevices) -> World {
        let (rtnl, engine) = testing::rtnl_with(config, devices, |engine| {
            for (name, spec, queues) in [("t0", "tun", 1), ("m0", "tun", 4), ("d0", "dummy", 1)] {
                engine.add_port(port(name, spec, queues, None)).unwrap();
            }
        });
        World {
            rtnl,
            engine,
            told: Vec::new(),
            warning: None,
            overrun: false,
        }
    }

    fn up(&mut self, link: u32, up: bool) {
        let engine = self.engine.lock().unwrap();
        let before = engine.link(link).unwrap().settings.clone();
        let after = Settings { up, ..before };
        engine.change(link, |link| link.clone_from(&after)).unwrap();
        engine.take_changes();
    }

    /// Sends a request, and returns what it is answered with besides the acknowledgment.
    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        header: TcMsg,
        body: Body<'_>,
    ) -> Result<Vec<String>, String> {
        let request = message(kind, flags, &header, body);
        let (answer, replies) = testing::ask(&mut self.rtnl, &CLIENT, &request);
        self.told.clear();
        for event in replies.events() {
            assert!(answer.is_ok(), "nothing is told of what is refused");
            assert_eq!(event.group, RTNLGRP_TC);
            self.told.extend(lines(event.message.as_bytes()));
        }
        self.warning.clone_from(&replies.warning);
        self.overrun = replies.overrun;
        match answer {
            Ok(()) => Ok(lines(replies.messages().as_bytes())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// `tc qdisc`. `at` is `root`, a class, or nothing; what follows `handle`.
    fn qdisc(
        &mut self,
        flags: u16,
        link: i32,
        (parent, handle): (&str, &str),
        kind: &str,
        options: Body<'_>,
    ) -> Result<(), String> {
        let body = |out: &mut Message<'_>| {
            if !kind.is_empty() {
                out.put_str(TCA_KIND, kind);
            }
            options(out);
        };
        let header = at(link, parent, handle);
        self.ask(RTM_NEWQDISC, flags, header, &body).map(drop)
    }

    /// `tc qdisc del`.
    fn del(&mut self, link: i32, parent: &str, handle: &str, kind: &str) -> Result<(), String> {
        let body = |out: &mut Message<'_>| {
            if !kind.is_empty() {
                out.put_str(TCA_KIND, kind);
            }
        };
        let header = at(link, parent, handle);
        self.ask(RTM_DELQDISC, 0, header, &body).map(drop)
    }

    /// `tc class`.
    fn class(
        &mut self,
        flags: u16,
        link: i32,
        parent: &str,
        class: &str,
        options: Body<'_>,
    ) -> Result<(), String> {
        let header = at(link, parent, class);
        self.ask(RTM_NEWTCLASS, flags, header, options).map(drop)
    }

    /// A dump with parts of at most so many bytes.
    fn dump(&mut self, kind: u16, header: TcMsg, body: Body<'_>) -> Vec<String> {
        let request = message(kind, NLM_F_DUMP, &header, body);
        let parts = testing::dump(&mut self.rtnl, &CLIENT, &request).unwrap();
        parts
            .iter()
            .flat_map(|part| lines(part.as_bytes()))
            .collect()
    }

    /// `tc qdisc show` of a link.
    fn show(&mut self, link: i32) -> Vec<String> {
        let all = self.dump(RTM_GETQDISC, TcMsg::default(), &|_| {});
        of(all, link)
    }

    /// `tc qdisc show invisible` of a link.
    fn show_invisible(&mut self, link: i32) -> Vec<String> {
        let body = |out: &mut Message<'_>| out.put_bytes(TCA_DUMP_INVISIBLE, &[]);
        let all = self.dump(RTM_GETQDISC, TcMsg::default(), &body);
        of(all, link)
    }

    /// `tc class show` of a link.
    fn classes(&mut self, link: i32, parent: &str) -> Vec<String> {
        let all = self.dump(RTM_GETTCLASS, at(link, parent, ""), &|_| {});
        of(all, link)
    }
}

/// Only lines of a link.
fn of(lines: Vec<String>, link: i32) -> Vec<String> {
    let start = format!("{link} ");
    let lines = lines.iter().filter_map(|line| line.strip_prefix(&start));
    lines.map(str::to_owned).collect()
}

fn handle(text: &str) -> u32 {
    let number = |text| u32::from_str_radix(text, 16).unwrap();
    match text.split_once(':') {
        _ if text == "root" => Handle::ROOT.raw(),
        _ if text.is_empty() => 0,
        Some((major, "")) => number(major) << 16,
        Some(("", minor)) => number(minor),
        Some((major, minor)) => number(major) << 16 | number(minor),
        None => panic!("{text}"),
    }
}

fn at(link: i32, parent: &str, name: &str) -> TcMsg {
    TcMsg {
        ifindex: link,
        parent: handle(parent),
        handle: handle(name),
        ..TcMsg::default()
    }
}

/// Messages as `tc` shows them, but options and statistics.
fn lines(bytes: &[u8]) -> Vec<String> {
    let messages = Requests::new(bytes);
    let line = |message: Request<'_>| {
        let header: TcMsg = message.header().unwrap();
        let attrs = message
            .attrs::<TcMsg>(&POLICY, Validation::Liberal)
            .unwrap();
        if message.kind >= RTM_NEWTFILTER {
            return filter_line(&message, &header, &attrs);
        }
        let kind = attrs.str(TCA_KIND).unwrap().unwrap();
        let name = Handle::from_raw(header.handle);
        // As tc writes a handle of 0.
        let name = if name == Handle::NONE {
            "0:".to_owned()
        } else {
            name.to_string()
        };
        let parent = Handle::from_raw(header.parent);
        let parent = if parent == Handle::ROOT {
            "root".to_owned()
        } else {
            format!("parent {parent}")
        };
        let is_class = message.kind >= RTM_NEWTCLASS;
        let info = match header.info {
            0 => String::new(),
            leaf if is_class => format!(" leaf {}", Handle::from_raw(leaf)),
            1 => String::new(),
            count => format!(" refcnt {count}"),
        };
        let what = match (message.kind, message.flags & NLM_F_REPLACE != 0) {
            (RTM_DELQDISC | RTM_DELTCLASS, _) => "deleted ",
            (_, true) => "replaced ",
            _ => "",
        };
        assert_eq!(attrs.has(TCA_HW_OFFLOAD), !is_class);
        assert!(attrs.has(TCA_STATS) && attrs.has(TCA_STATS2));
        format!("{} {what}{kind} {name} {parent}{info}", header.ifindex)
    };
    messages.map(line).collect()
}

/// A filter or chain: parent, protocol, priority, kind, chain and handle.
fn filter_line(message: &Request<'_>, header: &TcMsg, attrs: &Attrs<'_>) -> String {
    let deleted = matches!(message.kind, RTM_DELTFILTER | RTM_DELCHAIN);
    let chain = attrs.u32(TCA_CHAIN).unwrap().unwrap();
    assert_eq!(header.ifindex, 1);
    let parent = header.parent >> 16;
    let is_chain = matches!(message.kind, RTM_NEWCHAIN | RTM_DELCHAIN);
    let what = match attrs.str(TCA_KIND).unwrap() {
        Some(kind) if is_chain => {
            assert!(attrs.has(TCA_OPTIONS));
            format!("chain {parent:x}: chain {chain} {kind}")
        }
        Some(kind) => {
            let protocol = u16::from_be(header.info as u16);
            let handle = match header.handle {
                0 => "-".to_owned(),
                handle => format!("{handle:x}"),
            };
            assert_eq!(attrs.has(TCA_OPTIONS), header.handle != 0);
            let prio = header.info >> 16;
            format!("{parent:x}: {protocol:x} {prio} {kind} chain {chain} {handle}")
        }
        None => format!("chain {parent:x}: chain {chain}"),
    };
    match (deleted, what.starts_with("chain")) {
        (true, _) => format!("deleted {what}"),
        (false, true) => what,
        (false, false) => format!("filter {what}"),
    }
}

/// `limit` of a FIFO.
fn limit(limit: u32) -> impl Fn(&mut Message<'_>) {
    move |out| out.put_u32(TCA_OPTIONS, limit)
}

/// No options.
fn none(_: &mut Message<'_>) {}

/// Options of `prio`.
fn prio(bands: u8) -> impl Fn(&mut Message<'_>) {
    let mut bytes = [0; 20];
    bytes[0] = bands;
    move |out| out.put_bytes(TCA_OPTIONS, &bytes)
}

/// Options of `htb`.
fn htb(out: &mut Message<'_>) {
    let version = 3;
    out.nest(TCA_OPTIONS, |out| {
        out.put(2, &[version, 10, 0x20, 0, 0_u32])
    });
}

/// Options of a class of `htb`, with a rate in bytes per second.
fn rate(rate: u32) -> impl Fn(&mut Message<'_>) {
    let [a, b, c, d] = rate.to_ne_bytes();
    let spec = [0, 1, 0, 0, 0, 0, 0, 0, a, b, c, d];
    // Of 64 ns, for bursts of 1600 bytes.
    let ticks = (25_000_000_000 / u64::from(rate)) as u32;
    let ticks = ticks.to_ne_bytes();
    let mut parms = [spec, spec].concat();
    parms.extend([ticks, ticks, [0; 4], [0; 4], [0; 4]].as_flattened());
    move |out| out.nest(TCA_OPTIONS, |out| out.put_bytes(1, &parms))
}
