//! `softnet import DEV`: the policy that the kernel runs at an interface, as a configuration.
//!
//! The kernel's own dumps of qdiscs, classes and filters are asked of the rtnetlink service again,
//! as requests: what it takes is what this version has.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
    socket_with,
};
use softnet_engine::{PortSpec, Settings};
use softnet_io::{DeviceSpec, NullSpec, Scheduling};
use softnet_rtnl::Rtnl;
use softnet_rtnl::nl::headers::TcMsg;
use softnet_rtnl::nl::{
    Client, Error, Head, Messages, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, Replies, Request,
    Requests, Service,
};

use crate::config;
use crate::failure::{Exit, Failure};
use crate::report;
use crate::setup::{self, Engine};

/// Types of messages.
const NEWQDISC: u16 = 36;
const GETQDISC: u16 = 38;
const NEWCLASS: u16 = 40;
const GETCLASS: u16 = 42;
const NEWFILTER: u16 = 44;
const GETFILTER: u16 = 46;
/// `NLM_F_DUMP`, `NLM_F_CREATE`, `NLM_F_REPLACE`.
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const REPLACE: u16 = 0x100;
/// Attributes of a dump that a request may have: kind, options, size table, chain, blocks.
const ASKED: [u16; 6] = [1, 2, 8, 11, 13, 14];
const KIND: u16 = 1;
/// The longest datagram of the kernel.
const DATAGRAM: usize = 1 << 20;

/// An object as the kernel dumps it.
#[derive(Clone, Debug)]
struct Object {
    message: u16,
    header: TcMsg,
    kind: String,
    attributes: Vec<(u16, Vec<u8>)>,
}

/// Options of the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Interface of the kernel
    dev: String,
    /// End with exit code 3 if something is left out
    #[arg(long)]
    strict: bool,
}

/// Prints the configuration; what this version lacks is a comment.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let dev = &options.dev;
    let cannot =
        |error: io::Error| Failure::because(Exit::Failure, format!("cannot read {dev:?}"), &error);
    let objects = objects(dev).map_err(cannot)?;
    let (text, left_out) = translated(dev, objects)?;
    let comments: String = left_out
        .iter()
        .map(|line| format!("# left out: {line}\n"))
        .collect();
    report::print(&report::printable(&(comments + &text)))
        .map_err(|error| Failure::because(Exit::Failure, "cannot print", &error))?;
    match left_out.len() {
        n if n > 0 && options.strict => Err(Failure::new(
            Exit::Warnings,
            format!("{n} objects are left out"),
        )),
        _ => Ok(()),
    }
}

/// Qdiscs, classes and filters of an interface.
fn objects(dev: &str) -> io::Result<Vec<Object>> {
    let flags = SocketFlags::CLOEXEC;
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let by_name = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let index = netdevice::name_to_index(&by_name, dev)?;
    let ifindex = i32::try_from(index).map_err(io::Error::other)?;
    let dump = |kind: u16, parent: u32| -> io::Result<Vec<Object>> {
        let header = TcMsg {
            ifindex,
            parent,
            ..TcMsg::default()
        };
        let mut request = Messages::new();
        let head = Head {
            kind,
            flags: NLM_F_REQUEST | DUMP,
            seq: 1,
            pid: 0,
        };
        let _ = request.message(head, &header, |_| {});
        retry_on_intr(|| send(&socket, request.as_bytes(), SendFlags::empty()))?;
        let mut found = Vec::new();
        let mut buffer = vec![0; DATAGRAM];
        loop {
            let (_, length) =
                retry_on_intr(|| recv(&socket, buffer.as_mut_slice(), RecvFlags::empty()))?;
            for message in Requests::new(buffer.get(..length).unwrap_or_default()) {
                match message.kind {
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => {
                        let errno = message.payload().first_chunk().copied();
                        let errno = i32::from_ne_bytes(errno.unwrap_or_default());
                        return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
                    }
                    _ => found.extend(object(&message).filter(|o| o.header.ifindex == ifindex)),
                }
            }
        }
    };
    let qdiscs = dump(GETQDISC, 0)?;
    let classes = dump(GETCLASS, 0)?;
    let mut filters = Vec::new();
    for parent in qdiscs.iter().map(|qdisc| qdisc.header) {
        let hooks = [parent.handle, 0xffff_fff2, 0xffff_fff3];
        // clsact has two lists of filters, ingress one.
        let hooks = match parent.handle {
            0 => continue,
            0xffff_0000 => &hooks[..],
            _ => &hooks[..1],
        };
        for &parent in hooks {
            filters.extend(dump(GETFILTER, parent)?);
        }
    }
    // What nobody gave a handle is what is there anyway.
    let named = qdiscs.into_iter().filter(|qdisc| qdisc.header.handle != 0);
    Ok(named.chain(classes).chain(filters).collect())
}

fn object(message: &Request<'_>) -> Option<Object> {
    let attributes = message.attr_iter::<TcMsg>().ok()?;
    let mut object = Object {
        message: message.kind,
        header: message.header().ok()?,
        kind: String::new(),
        attributes: Vec::new(),
    };
    for attribute in attributes {
        let kind = attribute.kind();
        if kind == KIND {
            object.kind = attribute.str().ok()?.to_owned();
        }
        if ASKED.contains(&kind) {
            object.attributes.push((kind, attribute.data.to_vec()));
        }
    }
    Some(object)
}

/// The configuration, and what is not in it.
fn translated(dev: &str, mut objects: Vec<Object>) -> Result<(String, Vec<String>), Failure> {
    let cannot = |error: &dyn std::error::Error| {
        Failure::because(Exit::Failure, "cannot make the tree", error)
    };
    let (scheduling, _) = Scheduling::best(Some(Scheduling::Normal));
    let engine = setup::start(1, &[], scheduling, 1024, Default::default());
    let engine = engine.map_err(|error| cannot(&error))?;
    let mut port = PortSpec {
        settings: Settings::new(dev),
        ..PortSpec::default()
    };
    port.options.device = DeviceSpec::Null(NullSpec);
    let index = engine.add_port(port).map_err(|error| cannot(&error))?;
    let engine = Arc::new(Mutex::new(engine));
    let mut rtnl = Rtnl::new(engine.clone());
    // Parents come before children, in whatever order they were dumped: what is refused is tried
    // again as long as anything else is taken.
    let mut refused: Vec<(Object, Error)> = Vec::new();
    loop {
        let before = objects.len();
        for object in objects.drain(..) {
            if let Err(error) = ask(&mut rtnl, index, &object) {
                refused.push((object, error));
            }
        }
        if refused.is_empty() || refused.len() == before {
            break;
        }
        objects.extend(refused.drain(..).map(|(object, _)| object));
    }
    let left_out = refused.iter().map(|(object, error)| {
        let Object { header, kind, .. } = object;
        let what = match object.message {
            NEWQDISC => "qdisc",
            NEWCLASS => "class",
            NEWFILTER => "filter",
            _ => "object",
        };
        let handle = softnet_tc::Handle::from_raw(header.handle);
        let parent = softnet_tc::Handle::from_raw(header.parent);
        let why = error
            .text
            .as_deref()
            .map_or_else(String::new, |text| format!(": {text}"));
        format!("{what} {kind} {handle} at {parent}{why}")
    });
    let left_out = left_out.collect();
    let engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((
        text(&engine, dev).map_err(|error| cannot(&error))?,
        left_out,
    ))
}

/// Asks the service for an object.
fn ask(
    rtnl: &mut Rtnl<softnet_io::PortDevices>,
    index: u32,
    object: &Object,
) -> Result<(), Error> {
    let client = Client {
        port: 1,
        may_change: true,
        own: true,
        uid: 0,
        strict: false,
    };
    let mut header = object.header;
    header.ifindex = index as i32;
    if object.message != NEWFILTER {
        // Of qdiscs this is a count, which requests have not.
        header.info = 0;
    }
    let mut message = Messages::new();
    let head = Head {
        kind: object.message,
        flags: NLM_F_REQUEST | CREATE | REPLACE,
        seq: 1,
        pid: 0,
    };
    let _ = message.message(head, &header, |message| {
        for (kind, bytes) in &object.attributes {
            message.put(*kind, bytes.as_slice());
        }
    });
    let Some(request) = Request::read(message.as_bytes()) else {
        return Err(Error::new(softnet_rtnl::nl::Errno::EMSGSIZE));
    };
    let mut replies = Replies::new(&request, &client);
    rtnl.request(&request, &client, &mut replies)
}

/// The port as a table of the configuration, on the interface itself.
fn text(engine: &Engine, dev: &str) -> Result<String, softnet_engine::EngineError> {
    let spec = engine.spec()?;
    let ports = spec.ports.iter().filter(|port| port.settings.name == dev);
    let text: String = ports
        .map(|port| {
            let mut port = port.clone();
            port.settings.address = None;
            config::write_port(&port)
        })
        .collect();
    let driver = format!(
        "driver = \"af_packet\"\ninterface = {}",
        toml::Value::from(dev)
    );
    Ok(text.replacen("driver = \"null\"", &driver, 1))
}
