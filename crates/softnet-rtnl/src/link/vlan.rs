//! `RTM_*VLAN`: what `bridge -d vlan show` asks for (`net/bridge/br_vlan.c`).

use softnet_engine::{Devices, Engine};

use super::bridge_link::{VlanInfo, info_flags};
use super::refusal;
use super::show::Shown;
use crate::nl::headers::BrVlanMsg;
use crate::nl::{
    Chunk, Errno, Error, NLA_F_NESTED, Policy, Position, Progress, Request, Rule, Validation,
};

pub(crate) const RTM_NEWVLAN: u16 = 112;
pub(crate) const RTM_GETVLAN: u16 = 114;

/// `BRIDGE_VLANDB_DUMP_FLAGS`, and its flag for options of VLANs themselves.
const DUMP_FLAGS: u16 = 1;
const DUMPF_GLOBAL: u32 = 2;
/// `BRIDGE_VLANDB_ENTRY`, and what is in it.
const ENTRY: u16 = 1;
const INFO: u16 = 1;
const RANGE: u16 = 2;
const STATE: u16 = 3;
const MCAST_ROUTER: u16 = 6;
const NEIGH_SUPPRESS: u16 = 9;

static POLICY: Policy = Policy::new(DUMP_FLAGS, &[(DUMP_FLAGS, Rule::U32)]);

/// Dumps the VLANs of ports and bridges, by link.
pub(crate) fn dump<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    position: &mut Position,
    chunk: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    let header: BrVlanMsg = request.header()?;
    let attrs = request.attrs::<BrVlanMsg>(&POLICY, Validation::Strict)?;
    if attrs
        .u32(DUMP_FLAGS)?
        .is_some_and(|flags| flags & DUMPF_GLOBAL != 0)
    {
        let help = "VLANs have no options apart from those at ports";
        return Err(Error::new(Errno::EOPNOTSUPP).help(help));
    }
    let only = header.ifindex;
    if only != 0 {
        let link = engine.link(only).ok().ok_or(Errno::ENODEV)?;
        if link.master.is_none() && !link.is_bridge() {
            return Err(Errno::EINVAL.into());
        }
    }
    for (&index, link) in engine.links().range(position.link..) {
        if only != 0 && only != index {
            continue;
        }
        let shown = Shown::new(engine, link).map_err(refusal)?;
        let Some(vlans) = shown.vlans().filter(|vlans| vlans.iter().next().is_some()) else {
            continue;
        };
        let header = BrVlanMsg {
            family: libc::AF_BRIDGE as u8,
            ifindex: index,
            ..BrVlanMsg::default()
        };
        let state = shown.member.as_ref().map_or(3, |member| member.state());
        let put = chunk.message(RTM_NEWVLAN, 0, &header, |message| {
            for (range, flags) in vlans.ranges() {
                message.nest(ENTRY | NLA_F_NESTED, |message| {
                    let (flags, vid) = (info_flags(flags), *range.start());
                    message.put(INFO, &VlanInfo { flags, vid });
                    if range.start() != range.end() {
                        message.put_u16(RANGE, *range.end());
                    }
                    message.put_u8(STATE, state);
                    // The kernel's defaults.
                    message.put_u8(MCAST_ROUTER, 1);
                    message.put_u8(NEIGH_SUPPRESS, 0);
                });
            }
        });
        if put.is_err() {
            position.link = index;
            return Ok(Progress::More);
        }
    }
    Ok(Progress::Done)
}
