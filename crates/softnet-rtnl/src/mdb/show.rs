//! Groups and routers as `bridge mdb` reads them (`br_mdb_fill_info`, `br_rports_fill_info`).

use std::time::Duration;

use softnet_engine::{Devices, Engine, MdbEntry, MdbRouter};

use super::attributes::{bytes, eattr, flags, mdba, put_group, router};
use super::{RTM_DELMDB, RTM_GETMDB, RTM_NEWMDB, RTNLGRP_MDB};
use crate::link::{refusal, ticks};
use crate::nl::headers::{BrMdbEntry, BrPortMsg};
use crate::nl::{
    Chunk, Errno, Error, Message, NLA_F_NESTED, Position, Progress, Replies, Request,
};

/// Entries in one message: a nest holds 64 KiB, and an entry names 32 sources at most.
const PAGE: usize = 32;
/// `RTPROT_KERNEL`, `RTPROT_STATIC`.
const KERNEL: u8 = 2;
const STATIC: u8 = 4;

fn header(bridge: u32) -> BrPortMsg {
    BrPortMsg {
        family: libc::AF_BRIDGE as u8,
        ifindex: bridge,
        ..BrPortMsg::default()
    }
}

fn put(message: &mut Message<'_>, entry: &MdbEntry) {
    let mut flags = 0;
    for (is_set, flag) in [
        (entry.fastleave, flags::FAST_LEAVE),
        (entry.star_exclude, flags::STAR_EXCL),
        (entry.blocked, flags::BLOCKED),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    let mut front = BrMdbEntry {
        ifindex: entry.port,
        state: entry.permanent.into(),
        flags,
        vid: entry.vlan.unwrap_or(0),
        ..BrMdbEntry::default()
    };
    put_group(&mut front, entry.group);
    message.nest_with(mdba::MDB_ENTRY_INFO, &front, |message| {
        message.put_u32(eattr::TIMER, ticks(entry.left));
        if let Some(source) = entry.source {
            message.put_bytes(eattr::SOURCE, &bytes(source));
        }
        message.put_u8(eattr::RTPROT, if entry.permanent { STATIC } else { KERNEL });
        if entry.has_sources {
            // `MCAST_EXCLUDE`, `MCAST_INCLUDE`.
            message.put_u8(eattr::GROUP_MODE, (!entry.exclude).into());
            message.nest_unless_empty(eattr::SRC_LIST | NLA_F_NESTED, |message| {
                for &(source, left) in &entry.sources {
                    message.nest(eattr::SRCLIST_ENTRY | NLA_F_NESTED, |message| {
                        message.put_bytes(eattr::SRC_ADDRESS, &bytes(source));
                        message.put_u32(eattr::SRC_TIMER, ticks(left));
                    });
                }
            });
        }
    });
}

fn put_entries(message: &mut Message<'_>, entries: &[MdbEntry]) {
    message.nest(mdba::MDB, |message| {
        for entry in entries {
            message.nest(mdba::MDB_ENTRY, |message| put(message, entry));
        }
    });
}

fn put_router<D: Devices>(control: &Engine<D>, message: &mut Message<'_>, of: &MdbRouter) {
    let known = control.bridge_port(of.port);
    let kind = known.map_or(1, |port| port.options.multicast.router as u8);
    let [ipv4, ipv6] = [of.ipv4, of.ipv6].map(|left| left.map(ticks));
    message.nest_with(mdba::ROUTER_PORT, &of.port, |message| {
        let most = of.ipv4.into_iter().chain(of.ipv6).max();
        message.put_u32(router::TIMER, ticks(most.unwrap_or(Duration::ZERO)));
        message.put_u8(router::TYPE, kind);
        ipv4.into_iter()
            .for_each(|left| message.put_u32(router::INET_TIMER, left));
        ipv6.into_iter()
            .for_each(|left| message.put_u32(router::INET6_TIMER, left));
    });
}

/// Tells of an entry.
pub(crate) fn publish(bridge: u32, entry: &MdbEntry, gone: bool, replies: &mut Replies) {
    let kind = if gone { RTM_DELMDB } else { RTM_NEWMDB };
    replies.publish(RTNLGRP_MDB, kind, 0, &header(bridge), |message| {
        put_entries(message, std::slice::from_ref(entry));
    });
}

/// Tells of a router (`nlmsg_populate_rtr_fill`).
pub(crate) fn publish_router(bridge: u32, port: u32, gone: bool, replies: &mut Replies) {
    let kind = if gone { RTM_DELMDB } else { RTM_NEWMDB };
    replies.publish(RTNLGRP_MDB, kind, 0, &header(bridge), |message| {
        message.nest(mdba::ROUTER, |message| {
            message.put_u32(mdba::ROUTER_PORT, port);
        });
    });
}

/// Dumps the groups of bridges, bridge by bridge, each with its routers last.
pub(crate) fn dump<D: Devices>(
    control: &Engine<D>,
    request: &Request<'_>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    let asked: BrPortMsg = request.header()?;
    if asked.ifindex != 0 && control.link(asked.ifindex).is_err() {
        return Err(Errno::ENODEV.into());
    }
    for (&bridge, link) in control.links().range(position.link..) {
        if !link.is_bridge() || asked.ifindex != 0 && asked.ifindex != bridge {
            continue;
        }
        if position.link != bridge {
            (position.link, position.key) = (bridge, 0);
        }
        let (entries, routers) = control.mdb(bridge).map_err(refusal)?;
        loop {
            let from = usize::try_from(position.key)
                .unwrap_or(usize::MAX)
                .min(entries.len());
            let rest = &entries[from..];
            let page = &rest[..rest.len().min(PAGE)];
            let last = page.len() == rest.len();
            let put = chunk.message(RTM_GETMDB, 0, &header(bridge), |message| {
                put_entries(message, page);
                if last {
                    message.nest_unless_empty(mdba::ROUTER, |message| {
                        for router in &routers {
                            put_router(control, message, router);
                        }
                    });
                }
            });
            if put.is_err() {
                return Ok(Progress::More);
            }
            if last {
                break;
            }
            position.key += PAGE as u64;
        }
        (position.link, position.key) = (bridge + 1, 0);
    }
    Ok(Progress::Done)
}
