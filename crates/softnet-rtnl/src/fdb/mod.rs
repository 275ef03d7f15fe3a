//! Forwarding databases of bridges: what `bridge fdb` asks for, `RTM_*NEIGH` of the family
//! `AF_BRIDGE`.
//!
//! Source: `net/core/rtnetlink.c`, `net/bridge/br_fdb.c`.

mod attributes;
mod change;
mod flush;
mod show;

use softnet_engine::{Devices, Engine};

use attributes::{nda, ntf};
pub(crate) use show::{dump, publish};

use crate::nl::headers::NdMsg;
use crate::nl::{Attrs, Errno, Error, NLM_F_BULK, Replies, Request};

/// Types of messages.
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_GETNEIGH: u16 = 30;
/// Who hears of entries.
const RTNLGRP_NEIGH: u32 = 3;

/// Answers `RTM_*NEIGH`.
pub(crate) fn request<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    replies: &mut Replies,
) -> Result<(), Error> {
    match request.kind {
        RTM_NEWNEIGH => change::add(engine, request),
        RTM_DELNEIGH if request.has(NLM_F_BULK) => flush::flush(engine, request),
        RTM_DELNEIGH => change::delete(engine, request),
        RTM_GETNEIGH => show::get(engine, request, replies),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// The link that a header names.
fn device<D: Devices>(engine: &Engine<D>, header: &NdMsg) -> Result<u32, Error> {
    if header.ifindex == 0 {
        return Err(Error::invalid("invalid ifindex"));
    }
    let index = u32::try_from(header.ifindex).ok();
    let link = index.and_then(|index| engine.link(index).ok());
    let unknown = Error::new(Errno::ENODEV).text("unknown ifindex");
    link.map(|link| link.index).ok_or(unknown)
}

/// The VLAN that a request names (`fdb_vid_parse`).
fn vlan(attrs: &Attrs<'_>) -> Result<Option<u16>, Error> {
    let Some(attr) = attrs.get(nda::VLAN) else {
        return Ok(None);
    };
    if attr.data.len() != 2 {
        return Err(Error::invalid("invalid vlan attribute size").at(&attr));
    }
    match attr.u16()? {
        vlan @ 1..=4094 => Ok(Some(vlan)),
        _ => Err(Error::invalid("invalid vlan id").at(&attr)),
    }
}

/// True if the entry is one of the bridge that the link is a port of, and not one of the link.
fn by_master(flags: u8) -> bool {
    flags == 0 || flags & ntf::MASTER != 0
}
