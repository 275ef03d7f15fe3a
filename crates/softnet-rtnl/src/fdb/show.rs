//! Entries as `bridge fdb` reads them (`fdb_fill_info`).

use softnet::wire::EthernetAddress;
use softnet_engine::{Devices, Engine, FdbEntry};

use super::attributes::{POLICY, nda, ntf, state_bits};
use super::{RTM_DELNEIGH, RTM_NEWNEIGH, RTNLGRP_NEIGH, by_master, vlan};
use crate::link::{refusal, ticks};
use crate::nl::headers::{IfInfoMsg, NdMsg};
use crate::nl::{
    Attr, Chunk, Client, Errno, Error, Message, Policy, Position, Progress, Replies, Request,
    Rule, Validation,
};

/// Entries that are read at once.
const PAGE: usize = 512;

fn header(port: u32, entry: &FdbEntry) -> NdMsg {
    NdMsg {
        family: libc::AF_BRIDGE as u8,
        ifindex: port.cast_signed(),
        state: state_bits(entry.state),
        flags: if entry.sticky { ntf::STICKY } else { 0 },
        ..NdMsg::default()
    }
}

fn put(message: &mut Message<'_>, bridge: u32, entry: &FdbEntry) {
    message.put_bytes(nda::LLADDR, &entry.address.0);
    message.put_u32(nda::MASTER, bridge);
    message.put_u32(nda::FLAGS_EXT, 0);
    // `struct nda_cacheinfo`: confirmed, used, updated, references.
    let times = [0, ticks(entry.used), ticks(entry.updated), 0];
    message.put(nda::CACHEINFO, &times);
    if let Some(vlan) = entry.vlan {
        message.put_u16(nda::VLAN, vlan);
    }
}

/// Tells of an entry.
pub(crate) fn publish(
    bridge: u32,
    port: u32,
    entry: &FdbEntry,
    gone: bool,
    replies: &mut Replies,
) {
    let kind = if gone { RTM_DELNEIGH } else { RTM_NEWNEIGH };
    let header = header(port, entry);
    replies.publish(RTNLGRP_NEIGH, kind, 0, &header, |message| {
        put(message, bridge, entry);
    });
}

/// Looks one entry up (`rtnl_fdb_get`).
pub(super) fn get<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let asked: NdMsg = request.header()?;
    if (asked.pad1, asked.pad2, asked.state, asked.kind) != (0, 0, 0, 0) {
        return Err(Error::invalid(
            "Invalid values in header for fdb get request",
        ));
    }
    if asked.flags & !(ntf::MASTER | ntf::SELF) != 0 {
        return Err(Error::invalid(
            "Invalid flags in header for fdb get request",
        ));
    }
    let attrs = request.attrs::<NdMsg>(&POLICY, Validation::KnownOnly)?;
    let mut address = None;
    for attr in attrs.iter() {
        match attr.kind() {
            nda::LLADDR => {
                let station = <[u8; 6]>::try_from(attr.data);
                let bad = Error::invalid("Invalid address in fdb get request");
                address = Some(EthernetAddress(station.map_err(|_| bad.at(&attr))?));
            }
            nda::MASTER | nda::VLAN => {}
            _ => {
                let text = "Unsupported attribute in fdb get request";
                return Err(Error::invalid(text).at(&attr));
            }
        }
    }
    let vlan = vlan(&attrs)?;
    let missing = "Missing lookup address for fdb get request";
    let address = address.ok_or_else(|| Error::invalid(missing))?;
    let link = match asked.ifindex {
        0 => None,
        index => {
            let index = u32::try_from(index).ok();
            let link = index.and_then(|index| engine.link(index).ok());
            let unknown = Error::new(Errno::ENODEV).text("Unknown device ifindex");
            Some(link.ok_or(unknown)?)
        }
    };
    let bridge = match (link, attrs.u32(nda::MASTER)?) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid("Master and device are mutually exclusive"));
        }
        (None, None) => return Err(Error::invalid("No device specified")),
        (None, Some(master)) => engine.link(master).ok(),
        (Some(link), None) if by_master(asked.flags) => {
            let bridge = link.master.and_then(|master| engine.link(master).ok());
            Some(bridge.ok_or(Error::invalid("Device is not a bridge port"))?)
        }
        (Some(link), None) => Some(link),
    };
    let bridge = bridge.ok_or(Error::invalid("Invalid master ifindex"))?;
    if !bridge.is_bridge() {
        let text = "Fdb get operation not supported by device";
        return Err(Error::new(Errno::EOPNOTSUPP).text(text));
    }
    let entry = engine.fdb_entry(bridge.index, address, vlan);
    let entry = entry.map_err(refusal)?;
    let none = Error::new(Errno::ENOENT).text("Fdb entry not found");
    let entry = entry.ok_or(none)?;
    replies.message(RTM_NEWNEIGH, 0, &header(entry.port, &entry), |message| {
        put(message, bridge.index, &entry);
    })
}

/// The filter of a dump: entries that it leaves out.
#[derive(Clone, Copy, Debug, Default)]
struct Filter {
    bridge: Option<u32>,
    port: Option<u32>,
}

impl Filter {
    /// `valid_fdb_dump_strict`, `valid_fdb_dump_legacy`.
    fn read(request: &Request<'_>, client: &Client) -> Result<Filter, Error> {
        /// `IFLA_MASTER`, which older clients send behind another header.
        const IFLA_MASTER: u16 = 10;
        static LEGACY: Policy = Policy::new(IFLA_MASTER, &[(IFLA_MASTER, Rule::U32)]);
        let some = |index: i32| u32::try_from(index).ok().filter(|&index| index != 0);
        let length = request.payload().len();
        let with_attribute = size_of::<NdMsg>() + 8;
        let mut filter = Filter::default();
        if !client.strict && length != size_of::<NdMsg>() && length != with_attribute {
            if length < size_of::<IfInfoMsg>() {
                return Ok(filter);
            }
            let header: IfInfoMsg = request.header()?;
            let attrs = request.attrs::<IfInfoMsg>(&LEGACY, Validation::Liberal)?;
            filter.port = some(header.index);
            filter.bridge = attrs.u32(IFLA_MASTER)?;
            return Ok(filter);
        }
        let header: NdMsg = request.header()?;
        let NdMsg {
            pad1,
            pad2,
            state,
            flags,
            kind,
            ..
        } = header;
        if client.strict && (pad1, pad2, state, flags, kind) != (0, 0, 0, 0, 0) {
            return Err(Error::invalid(
                "Invalid values in header for fdb dump request",
            ));
        }
        filter.port = some(header.ifindex);
        let attrs = request.attrs::<NdMsg>(&POLICY, Validation::Liberal)?;
        let mut take = |attr: Attr<'_>| {
            match attr.kind() {
                nda::IFINDEX => filter.port = Some(attr.u32()?),
                nda::MASTER => filter.bridge = Some(attr.u32()?),
                _ if client.strict => {
                    let text = "Unsupported attribute in fdb dump request";
                    return Err(Error::invalid(text).at(&attr));
                }
                _ => {}
            }
            Ok(())
        };
        attrs.iter().try_for_each(&mut take)?;
        Ok(filter)
    }
}

/// Dumps the entries of bridges, bridge by bridge.
pub(crate) fn dump<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    client: &Client,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    let filter = Filter::read(request, client)?;
    for index in [filter.bridge, filter.port].into_iter().flatten() {
        engine.link(index).map_err(refusal)?;
    }
    let wanted = |port: u32| filter.port.is_none_or(|only| only == port);
    for (&bridge, link) in engine.links().range(position.link..) {
        let passes = filter.bridge.is_none_or(|only| only == bridge);
        if !link.is_bridge() || !passes {
            continue;
        }
        let from = match position.link == bridge {
            true => usize::try_from(position.key).unwrap_or(usize::MAX),
            false => 0,
        };
        position.link = bridge;
        if let Some(place) = dump_bridge(engine, bridge, from, wanted, chunk)? {
            position.key = place as u64;
            return Ok(Progress::More);
        }
        position.key = 0;
    }
    Ok(Progress::Done)
}

/// Dumps the entries of a bridge from a place on. The place where to go on, if they do not fit.
fn dump_bridge<D: Devices>(
    engine: &Engine<D>,
    bridge: u32,
    from: usize,
    wanted: impl Fn(u32) -> bool,
    chunk: &mut Chunk<'_>,
) -> Result<Option<usize>, Error> {
    let links = engine.links();
    let is_member = |port| {
        links
            .get(&port)
            .is_some_and(|link| link.master == Some(bridge))
    };
    let mut next = Some(from);
    while let Some(mut place) = next {
        let page = engine.fdb_entries(bridge, place, PAGE);
        let (entries, after) = page.map_err(refusal)?;
        for (done, entry) in entries.iter().enumerate() {
            if !(is_member(entry.port) && wanted(entry.port)) {
                continue;
            }
            let header = header(entry.port, entry);
            let put = |message: &mut Message<'_>| put(message, bridge, entry);
            if chunk.message(RTM_NEWNEIGH, 0, &header, put).is_err() {
                // Where a page of those that fit ends.
                if done > 0 {
                    let (_, end) = engine.fdb_entries(bridge, place, done).map_err(refusal)?;
                    place = end.unwrap_or(usize::MAX);
                }
                return Ok(Some(place));
            }
        }
        next = after;
    }
    Ok(None)
}
