//! `mirred` (`TCA_MIRRED_*`).
//!
//! Source: `net/sched/act_mirred.c`.

use softnet_tc::{ActionKind, Mirred, MirredTo};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Generic, Parsed, Read, control, missing};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const TM: u16 = 1;
const PARMS: u16 = 2;
const BLOCKID: u16 = 4;

const POLICY: Policy = Policy::new(
    4,
    &[
        (PARMS, Rule::Min(size_of::<Parms>())),
        (BLOCKID, Rule::U32Range(1, u32::MAX)),
    ],
);

/// `struct tc_mirred`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Parms {
    generic: Generic,
    eaction: i32,
    ifindex: u32,
}

/// `TCA_EGRESS_REDIR` and so on, from 1 on: whether it is to ingress, and whether it redirects.
const MODES: [(bool, bool); 4] = [(false, true), (false, false), (true, true), (true, false)];

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let none = || Error::invalid("act_mirred: Mirred requires attributes to be passed");
    let attrs = options.ok_or_else(none)?.nested(&POLICY)?;
    let parms = attrs.fixed::<Parms>(PARMS)?;
    let parms = parms.ok_or_else(|| missing("mirred"))?;
    let block = attrs.u32(BLOCKID)?;
    let mut parsed = Parsed::new(parms.generic.index, || {
        let mode = usize::try_from(parms.eaction - 1).ok();
        let mode = mode.and_then(|mode| MODES.get(mode));
        let none = || Error::invalid("act_mirred: Unknown mirred option");
        let &(ingress, redirects) = mode.ok_or_else(none)?;
        let to = match (block, parms.ifindex) {
            (Some(_), 1..) => {
                let text = "act_mirred: Cannot specify Block ID and dev simultaneously";
                return Err(Error::invalid(text));
            }
            (Some(block), 0) => MirredTo::Block(block),
            // Its name comes when the link is looked up.
            (None, _) => MirredTo::Dev(String::new()),
        };
        let mirred = Mirred {
            redirects,
            ingress,
            to,
        };
        let control = control(parms.generic.action, read)?;
        Ok((ActionKind::Mirred(mirred), control))
    });
    parsed.link = Some(parms.ifindex).filter(|_| block.is_none());
    Ok(parsed)
}

pub(super) fn dump(
    mirred: &Mirred,
    link: Option<u32>,
    parms: &Generic,
    out: &mut Message<'_>,
) -> u16 {
    let mode = (mirred.ingress, mirred.redirects);
    let at = MODES.iter().position(|of| *of == mode).unwrap_or_default();
    let parms = Parms {
        generic: *parms,
        eaction: at as i32 + 1,
        ifindex: link.unwrap_or_default(),
    };
    out.put(PARMS, &parms);
    if let MirredTo::Block(block) = mirred.to {
        out.put_u32(BLOCKID, block);
    }
    TM
}

/// Refusal of a link that is not there.
pub(super) fn no_link(index: u32) -> Error {
    match index {
        0 => Error::invalid("act_mirred: Must specify device or block"),
        _ => Errno::ENODEV.into(),
    }
}
