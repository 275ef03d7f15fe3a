//! `gact` (`TCA_GACT_*`).
//!
//! Source: `net/sched/act_gact.c`.

use softnet_tc::{ActionKind, Control, Gact, Random};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Generic, Parsed, Read, control, fallback, missing};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const TM: u16 = 1;
const PARMS: u16 = 2;
const PROB: u16 = 3;

const POLICY: Policy = Policy::new(
    4,
    &[
        (PARMS, Rule::Exact(size_of::<Generic>())),
        (PROB, Rule::Exact(size_of::<Prob>())),
    ],
);

/// `struct tc_gact_p`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Prob {
    kind: u16,
    every: u16,
    action: i32,
}

/// `PGACT_NETRAND`, `PGACT_DETERM`
const BY_CHANCE: u16 = 1;
const IN_TURN: u16 = 2;

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let none = || Error::invalid("Gact requires attributes to be passed");
    let attrs = options.ok_or_else(none)?.nested(&POLICY)?;
    let parms = attrs.fixed::<Generic>(PARMS)?;
    let parms = parms.ok_or_else(|| missing("gact"))?;
    let random = attrs.fixed::<Prob>(PROB)?;
    Ok(Parsed::new(parms.index, || {
        let random = match random {
            None => None,
            Some(prob) if prob.kind > IN_TURN => return Err(Errno::EINVAL.into()),
            Some(Prob { kind: 0, .. }) => None,
            Some(prob) => Some(Random {
                by_chance: prob.kind == BY_CHANCE,
                control: fallback(prob.action)?,
                every: prob.every.max(1),
            }),
        };
        let kind = ActionKind::Gact(Gact { random });
        Ok((kind, control(parms.action, read)?))
    }))
}

pub(super) fn dump(gact: &Gact, parms: &Generic, out: &mut Message<'_>) -> u16 {
    out.put(PARMS, parms);
    if let Some(random) = gact.random {
        let prob = Prob {
            kind: if random.by_chance { BY_CHANCE } else { IN_TURN },
            every: random.every,
            action: Control::raw(random.control),
        };
        out.put(PROB, &prob);
    }
    TM
}
