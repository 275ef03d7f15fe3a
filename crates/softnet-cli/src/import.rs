//! `softnet import DEV`: the policy that the kernel runs at an interface, as a configuration.
//!
//! The kernel's own dumps of qdiscs, classes and filters are asked of the rtnetlink service again,
//! as requests: what it takes is what this version has.

mod dump;

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
    Client, Errno, Error, Head, Messages, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, Replies,
    Request, Requests, Service,
};
use softnet_tc::Handle;

use self::dump::{Object, Policy};
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
/// The longest datagram of the kernel.
const DATAGRAM: usize = 1 << 20;

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
    let (index, name) = interface(dev).map_err(cannot)?;
    let policy = dump::policy(objects(index, &name).map_err(cannot)?);
    let (text, left_out) = translated(&name, policy)?;
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

/// An interface's index and its name, which its filters have; `dev` may be another one (`altname`).
fn interface(dev: &str) -> io::Result<(i32, String)> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let index = netdevice::name_to_index(&socket, dev)?;
    let name = netdevice::index_to_name(&socket, index)?;
    Ok((i32::try_from(index).map_err(io::Error::other)?, name))
}

/// Qdiscs, classes and filters of an interface.
fn objects(ifindex: i32, dev: &str) -> io::Result<Vec<Object>> {
    let flags = SocketFlags::CLOEXEC;
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
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
                    _ => {
                        let object = Object::read(&message, dev);
                        found.extend(object.filter(|of| of.header.ifindex == ifindex));
                    }
                }
            }
        }
    };
    let qdiscs = dump(GETQDISC, 0)?;
    let classes = dump(GETCLASS, 0)?;
    let mut filters = Vec::new();
    for object in qdiscs.iter().chain(&classes) {
        // clsact has two lists of filters, ingress one.
        let parents = match (object.header.handle, object.kind.as_str()) {
            (0, _) => &[][..],
            (_, "clsact") => &[0xffff_fff2, 0xffff_fff3],
            (handle, _) => &[handle],
        };
        for &parent in parents {
            filters.extend(dump(GETFILTER, parent)?);
        }
    }
    Ok(qdiscs.into_iter().chain(classes).chain(filters).collect())
}

/// The configuration, and what is not in it.
fn translated(dev: &str, policy: Policy) -> Result<(String, Vec<String>), Failure> {
    let mut objects = policy.objects;
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
    port.options.queues = policy.queues;
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
    refused.splice(0..0, policy.refused);
    let left_out = refused
        .iter()
        .map(|(object, error)| left_out(object, error));
    let left_out = left_out.collect();
    let engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((
        text(&engine, dev).map_err(|error| cannot(&error))?,
        left_out,
    ))
}

/// A line about an object that the service refused.
fn left_out(object: &Object, error: &Error) -> String {
    let Object { header, kind, .. } = object;
    let handle = Handle::from_raw(header.handle);
    let parent = Handle::from_raw(header.parent);
    let why = match &error.text {
        Some(text) => text.to_string(),
        None => format!("{:?}", error.errno),
    };
    match object.message {
        NEWQDISC => format!("qdisc {kind} {handle} at {parent}: {why}"),
        NEWCLASS => format!("class {kind} {handle} at {parent}: {why}"),
        _ => format!(
            "filter {kind} at {parent}, prio {}: {why}",
            header.info >> 16
        ),
    }
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
        return Err(Error::new(Errno::EMSGSIZE));
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
