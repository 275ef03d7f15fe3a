//! `vlan` (`TCA_VLAN_*`).
//!
//! Source: `net/sched/act_vlan.c`.

use softnet_tc::{ActionKind, Tag, Vlan};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Generic, Parsed, Read, control};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const TM: u16 = 1;
const PARMS: u16 = 2;
const ID: u16 = 3;
const PROTOCOL: u16 = 4;
const PRIORITY: u16 = 6;
const ETH_DST: u16 = 7;
const ETH_SRC: u16 = 8;

const POLICY: Policy = Policy::new(
    8,
    &[
        (PARMS, Rule::Min(size_of::<Parms>())),
        (ID, Rule::U16),
        (PROTOCOL, Rule::U16),
        (PRIORITY, Rule::U8),
        (ETH_DST, Rule::Min(6)),
        (ETH_SRC, Rule::Min(6)),
    ],
);

/// `struct tc_vlan`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Parms {
    generic: Generic,
    verb: i32,
}

/// `TCA_VLAN_ACT_*`
const POP: i32 = 1;
const PUSH: i32 = 2;
const MODIFY: i32 = 3;
const POP_ETH: i32 = 4;
const PUSH_ETH: i32 = 5;

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let attrs = options.ok_or(Errno::EINVAL)?.nested(&POLICY)?;
    let parms = attrs.fixed::<Parms>(PARMS)?.ok_or(Errno::EINVAL)?;
    let tag = || -> Result<Tag, Error> {
        let id = attrs.u16(ID)?.ok_or(Errno::EINVAL)?;
        if id >= 0xfff {
            return Err(Errno::ERANGE.into());
        }
        let protocol = attrs.get(PROTOCOL).map(|attr| attr.be16()).transpose()?;
        let protocol = protocol.unwrap_or(0x8100);
        if !matches!(protocol, 0x8100 | 0x88a8) {
            return Err(Errno::EPROTONOSUPPORT.into());
        }
        Ok(Tag {
            id,
            protocol,
            // The tag has three bits for it.
            priority: attrs.u8(PRIORITY)?.map(|priority| priority & 7),
        })
    };
    let mac = |kind: u16| -> Result<[u8; 6], Error> {
        let attr = attrs.get(kind).ok_or(Errno::EINVAL)?;
        attr.mac()
    };
    Ok(Parsed::new(parms.generic.index, || {
        let vlan = match parms.verb {
            POP => Vlan::Pop,
            PUSH => Vlan::Push(tag()?),
            MODIFY => Vlan::Modify(tag()?),
            POP_ETH => Vlan::PopEth,
            PUSH_ETH => Vlan::PushEth {
                destination: mac(ETH_DST)?,
                source: mac(ETH_SRC)?,
            },
            _ => return Err(Errno::EINVAL.into()),
        };
        Ok((ActionKind::Vlan(vlan), control(parms.generic.action, read)?))
    }))
}

pub(super) fn dump(vlan: &Vlan, parms: &Generic, out: &mut Message<'_>) -> u16 {
    let parms = Parms {
        generic: *parms,
        verb: match vlan {
            Vlan::Pop => POP,
            Vlan::Push(_) => PUSH,
            Vlan::Modify(_) => MODIFY,
            Vlan::PopEth => POP_ETH,
            Vlan::PushEth { .. } => PUSH_ETH,
        },
    };
    out.put(PARMS, &parms);
    match vlan {
        Vlan::Push(tag) | Vlan::Modify(tag) => {
            out.put_u16(ID, tag.id);
            out.put_be16(PROTOCOL, tag.protocol);
            let new = matches!(vlan, Vlan::Push(_)).then_some(0);
            if let Some(priority) = tag.priority.or(new) {
                out.put_u8(PRIORITY, priority);
            }
        }
        Vlan::PushEth {
            destination,
            source,
        } => {
            out.put_bytes(ETH_DST, destination);
            out.put_bytes(ETH_SRC, source);
        }
        Vlan::Pop | Vlan::PopEth => {}
    }
    TM
}
