//! `csum` (`TCA_CSUM_*`).
//!
//! Source: `net/sched/act_csum.c`.

use softnet_tc::{ActionKind, Csum};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Generic, Parsed, Read, control};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const PARMS: u16 = 1;
const TM: u16 = 2;

const POLICY: Policy = Policy::new(3, &[(PARMS, Rule::Min(size_of::<Parms>()))]);

/// `struct tc_csum`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Parms {
    generic: Generic,
    flags: u32,
}

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let attrs = options.ok_or(Errno::EINVAL)?.nested(&POLICY)?;
    let parms = attrs.fixed::<Parms>(PARMS)?.ok_or(Errno::EINVAL)?;
    Ok(Parsed::new(parms.generic.index, || {
        // Those that there are.
        let flags = parms.flags & 0x7f;
        let kind = ActionKind::Csum(Csum { flags });
        Ok((kind, control(parms.generic.action, read)?))
    }))
}

pub(super) fn dump(csum: &Csum, parms: &Generic, out: &mut Message<'_>) -> u16 {
    let parms = Parms {
        generic: *parms,
        flags: csum.flags,
    };
    out.put(PARMS, &parms);
    TM
}
