//! Links: what `ip link` asks for.
//!
//! A port is a link of the kind that its driver stands for, a bridge one of the kind `bridge`.
//!
//! Source: `net/core/rtnetlink.c`.

mod attributes;
mod bridge;
mod bridge_link;
mod bridge_port;
mod change;
mod fixed;
mod show;
pub(crate) mod vlan;
mod vlan_link;

use attributes::{INFO_POLICY, LINK_POLICY, ifla, info};
use show::Shown;
use softnet_engine::{Change, Devices, Engine};

pub(crate) use bridge::ticks;
pub(crate) use change::refusal;

use crate::nl::headers::{IfInfoMsg, RtGenMsg};
use crate::nl::{
    Attrs, Chunk, Client, Errno, Error, NLM_F_DUMP_FILTERED, Position, Progress, Replies, Request,
    Validation,
};
use crate::{fdb, mdb, tc};

/// Types of messages.
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_SETLINK: u16 = 19;
/// Who hears of links.
const RTNLGRP_LINK: u32 = 1;

/// Answers `RTM_*LINK`.
pub(crate) fn request<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    client: &Client,
    replies: &mut Replies,
) -> Result<(), Error> {
    let of_bridge = i32::from(request.family()) == libc::AF_BRIDGE;
    match request.kind {
        RTM_SETLINK | RTM_DELLINK if of_bridge => bridge_link::change(engine, request),
        RTM_NEWLINK => change::new(engine, request, client),
        RTM_SETLINK => change::set(engine, request),
        RTM_DELLINK => change::delete(engine, request),
        RTM_GETLINK => get(engine, request, replies),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// The number of the link that a request names.
fn find<D: Devices>(
    engine: &Engine<D>,
    header: &IfInfoMsg,
    attrs: &Attrs<'_>,
) -> Result<Option<u32>, Error> {
    if header.index != 0 {
        let index = u32::try_from(header.index).map_err(|_| Error::new(Errno::EINVAL))?;
        return Ok(engine.link(index).is_ok().then_some(index));
    }
    let name = attrs
        .get(ifla::IFNAME)
        .or_else(|| attrs.get(ifla::ALT_IFNAME));
    let Some(name) = name else {
        return Ok(None);
    };
    Ok(engine.link_named(name.str()?).ok().map(|link| link.index))
}

fn get<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    let header: IfInfoMsg = request.header()?;
    let attrs = request.attrs::<IfInfoMsg>(&LINK_POLICY, Validation::Liberal)?;
    let named = header.index > 0
        || attrs.get(ifla::IFNAME).is_some()
        || attrs.get(ifla::ALT_IFNAME).is_some();
    if !named {
        return Err(Errno::EINVAL.into());
    }
    let index = find(engine, &header, &attrs)?.ok_or(Errno::ENODEV)?;
    let link = engine.link(index).map_err(refusal)?;
    let shown = Shown::new(engine, &link).map_err(refusal)?;
    replies.message(RTM_NEWLINK, 0, &shown.header(0, 0), |message| {
        shown.put(message)
    })
}

/// `IFLA_MASTER` of a dump of links that have none (`link_master_filtered`); 0 filters nothing.
const NO_MASTER: u32 = u32::MAX;

/// The filter of a dump: links that it leaves out.
#[derive(Default)]
struct Filter {
    /// A master, or none.
    master: Option<Option<u32>>,
    kind: Option<String>,
}

impl Filter {
    fn read<D: Devices>(
        engine: &Engine<D>,
        request: &Request<'_>,
        client: &Client,
    ) -> Result<Filter, Error> {
        // Older clients send the family alone.
        if request.payload().len() < size_of::<IfInfoMsg>() {
            let _: RtGenMsg = request.header()?;
            return Ok(Filter::default());
        }
        // `nlmsg_parse_deprecated_strict`: `ip` does not flag nests.
        let validation = if client.strict {
            Validation::KnownOnly
        } else {
            Validation::Liberal
        };
        let header: IfInfoMsg = request.header()?;
        if client.strict && header.index != 0 {
            return Err(Error::invalid(
                "Filter by device index not supported for link dumps",
            ));
        }
        let attrs = request.attrs::<IfInfoMsg>(&LINK_POLICY, validation)?;
        let mut filter = Filter::default();
        if let Some(master) = attrs.get(ifla::MASTER) {
            filter.master = match master.u32()? {
                0 => None,
                NO_MASTER => Some(None),
                index => Some(Some(index)),
            };
        }
        if let Some(linkinfo) = attrs.get(ifla::LINKINFO) {
            let linkinfo = linkinfo.nested(&INFO_POLICY)?;
            let kind = linkinfo
                .get(info::KIND)
                .map(|kind| kind.str())
                .transpose()?;
            filter.kind = kind
                .filter(|kind| is_known(engine, kind))
                .map(str::to_owned);
        }
        Ok(filter)
    }

    fn passes<D: Devices>(&self, shown: &Shown<'_, D>) -> bool {
        self.master.is_none_or(|master| shown.link.master == master)
            && self
                .kind
                .as_deref()
                .is_none_or(|kind| shown.kind() == Some(kind))
    }
}

/// True if links can be of this kind. Dumps are not filtered by others (`rtnl_link_ops_get`).
fn is_known<D: Devices>(engine: &Engine<D>, kind: &str) -> bool {
    let spec = engine.devices().of_kind(kind, "");
    kind == "bridge"
        || kind == "vlan"
        || spec.and_then(|spec| engine.devices().kind(&spec)) == Some(kind)
}

/// Dumps links, by number.
pub(crate) fn dump<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    client: &Client,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    if i32::from(request.family()) == libc::AF_BRIDGE {
        return bridge_link::dump(engine, request, client, position, chunk);
    }
    let filter = Filter::read(engine, request, client)?;
    let flags = match filter.master.is_some() || filter.kind.is_some() {
        true => NLM_F_DUMP_FILTERED,
        false => 0,
    };
    for (&index, link) in engine.links().range(position.link..) {
        let shown = Shown::new(engine, link).map_err(refusal)?;
        if !filter.passes(&shown) {
            continue;
        }
        let header = shown.header(0, 0);
        if chunk
            .message(RTM_NEWLINK, flags, &header, |message| shown.put(message))
            .is_err()
        {
            position.link = index;
            return Ok(Progress::More);
        }
    }
    Ok(Progress::Done)
}

/// Tells of what has changed since the last call.
pub(crate) fn publish<D: Devices>(
    engine: &Engine<D>,
    change: &Change,
    replies: &mut Replies,
) -> Result<(), Error> {
    match change {
        Change::Link(index) => {
            // It may be gone by now, which is told next.
            let Ok(link) = engine.link(*index) else {
                return Ok(());
            };
            let shown = Shown::new(engine, &link).map_err(refusal)?;
            let header = shown.header(0, 0);
            replies.publish(RTNLGRP_LINK, RTM_NEWLINK, 0, &header, |message| {
                shown.put(message);
            });
        }
        Change::LinkGone(index, name) => {
            let header = IfInfoMsg {
                kind: attributes::ARPHRD_ETHER,
                index: index.cast_signed(),
                ..IfInfoMsg::default()
            };
            replies.publish(RTNLGRP_LINK, RTM_DELLINK, 0, &header, |message| {
                message.put_str(ifla::IFNAME, name);
            });
        }
        Change::Bridge(index) => {
            let Ok(link) = engine.link(*index) else {
                return Ok(());
            };
            let shown = Shown::new(engine, &link).map_err(refusal)?;
            let header = shown.bridge_header();
            replies.publish(RTNLGRP_LINK, RTM_NEWLINK, 0, &header, |message| {
                bridge_link::put(&shown, message, 0);
            });
        }
        Change::Left { port, name, bridge } => {
            let header = IfInfoMsg {
                family: libc::AF_BRIDGE as u8,
                kind: attributes::ARPHRD_ETHER,
                index: port.cast_signed(),
                ..IfInfoMsg::default()
            };
            replies.publish(RTNLGRP_LINK, RTM_DELLINK, 0, &header, |message| {
                message.put_str(ifla::IFNAME, name);
                message.put_u32(ifla::MASTER, *bridge);
            });
        }
        Change::Fdb {
            bridge,
            port,
            entry,
            gone,
        } => fdb::publish(*bridge, *port, entry, *gone, replies),
        Change::Mdb {
            bridge,
            entry,
            gone,
        } => mdb::publish(*bridge, entry, *gone, replies),
        Change::McastRouter { bridge, port, gone } => {
            mdb::publish_router(*bridge, *port, *gone, replies);
        }
        Change::Tree { link, before } => tc::publish(engine, *link, before, replies),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
