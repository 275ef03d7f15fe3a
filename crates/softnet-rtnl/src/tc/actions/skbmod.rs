//! `skbmod` (`TCA_SKBMOD_*`).
//!
//! Source: `net/sched/act_skbmod.c`.

use softnet_tc::{ActionKind, Skbmod};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Generic, Parsed, Read, control};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const TM: u16 = 1;
const PARMS: u16 = 2;
const DMAC: u16 = 3;
const SMAC: u16 = 4;
const ETYPE: u16 = 5;

const POLICY: Policy = Policy::new(
    6,
    &[
        (PARMS, Rule::Min(size_of::<Parms>())),
        (DMAC, Rule::Min(6)),
        (SMAC, Rule::Min(6)),
        (ETYPE, Rule::U16),
    ],
);

/// `struct tc_skbmod`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Parms {
    generic: Generic,
    pad: u32,
    flags: u64,
}

/// `SKBMOD_F_*`
const F_DMAC: u64 = 1;
const F_SMAC: u64 = 2;
const F_ETYPE: u64 = 4;
const F_SWAPMAC: u64 = 8;
const F_ECN: u64 = 0x10;

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let attrs = options.ok_or(Errno::EINVAL)?.nested(&POLICY)?;
    let parms = attrs.fixed::<Parms>(PARMS)?.ok_or(Errno::EINVAL)?;
    let mac = |kind: u16| attrs.get(kind).map(|attr| attr.mac()).transpose();
    let mut skbmod = Skbmod {
        dmac: mac(DMAC)?,
        smac: mac(SMAC)?,
        etype: attrs.u16(ETYPE)?,
        ..Skbmod::default()
    };
    if parms.flags & F_SWAPMAC != 0 {
        skbmod = Skbmod {
            swap: true,
            ..Skbmod::default()
        };
    }
    if parms.flags & F_ECN != 0 {
        skbmod = Skbmod {
            ecn: true,
            ..Skbmod::default()
        };
    }
    Ok(Parsed::new(parms.generic.index, || {
        let control = control(parms.generic.action, read)?;
        match skbmod == Skbmod::default() {
            true => Err(Errno::EINVAL.into()),
            false => Ok((ActionKind::Skbmod(skbmod), control)),
        }
    }))
}

pub(super) fn dump(skbmod: &Skbmod, parms: &Generic, out: &mut Message<'_>) -> u16 {
    let flag = |is: bool, flag: u64| if is { flag } else { 0 };
    let parms = Parms {
        generic: *parms,
        pad: 0,
        flags: flag(skbmod.dmac.is_some(), F_DMAC)
            | flag(skbmod.smac.is_some(), F_SMAC)
            | flag(skbmod.etype.is_some(), F_ETYPE)
            | flag(skbmod.swap, F_SWAPMAC)
            | flag(skbmod.ecn, F_ECN),
    };
    out.put(PARMS, &parms);
    if let Some(mac) = skbmod.dmac {
        out.put_bytes(DMAC, &mac);
    }
    if let Some(mac) = skbmod.smac {
        out.put_bytes(SMAC, &mac);
    }
    if let Some(etype) = skbmod.etype {
        out.put_u16(ETYPE, etype);
    }
    TM
}
