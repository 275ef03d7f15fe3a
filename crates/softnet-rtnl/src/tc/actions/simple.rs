//! `simple` (`TCA_DEF_*`).
//!
//! Source: `net/sched/act_simple.c`.

use softnet_tc::{ActionKind, Simple};

use super::{Generic, Parsed, Read, control};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const TM: u16 = 1;
const PARMS: u16 = 2;
const DATA: u16 = 3;

const POLICY: Policy = Policy::new(
    4,
    &[
        (PARMS, Rule::Min(size_of::<Generic>())),
        (DATA, Rule::Str { max: 32 }),
    ],
);

/// `SIMP_MAX_DATA`, with a NUL.
const MOST: usize = 32;

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let attrs = options.ok_or(Errno::EINVAL)?.nested(&POLICY)?;
    let parms = attrs.fixed::<Generic>(PARMS)?.ok_or(Errno::EINVAL)?;
    let data = attrs.get(DATA);
    Ok(Parsed::new(parms.index, || {
        let bytes = data.ok_or(Errno::EINVAL)?.data;
        let len = bytes.iter().position(|byte| *byte == 0);
        let bytes = &bytes[..len.unwrap_or(bytes.len()).min(MOST - 1)];
        let text = String::from_utf8(bytes.to_vec()).map_err(|_| Errno::EINVAL)?;
        let kind = ActionKind::Simple(Simple { text });
        Ok((kind, control(parms.action, read)?))
    }))
}

pub(super) fn dump(simple: &Simple, parms: &Generic, out: &mut Message<'_>) -> u16 {
    out.put(PARMS, parms);
    out.put_str(DATA, &simple.text);
    TM
}
