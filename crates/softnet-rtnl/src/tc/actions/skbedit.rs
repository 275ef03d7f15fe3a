//! `skbedit` (`TCA_SKBEDIT_*`).
//!
//! Source: `net/sched/act_skbedit.c`.

use softnet_tc::{ActionKind, Skbedit};

use super::{Generic, Parsed, Read, control};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const TM: u16 = 1;
const PARMS: u16 = 2;
const PRIORITY: u16 = 3;
const QUEUE_MAPPING: u16 = 4;
const MARK: u16 = 5;
const PTYPE: u16 = 7;
const MASK: u16 = 8;
const FLAGS: u16 = 9;
const QUEUE_MAPPING_MAX: u16 = 10;

const POLICY: Policy = Policy::new(
    10,
    &[
        (PARMS, Rule::Min(size_of::<Generic>())),
        (PRIORITY, Rule::U32),
        (QUEUE_MAPPING, Rule::U16),
        (MARK, Rule::U32),
        (PTYPE, Rule::U16),
        (MASK, Rule::U32),
        (FLAGS, Rule::U64),
        (QUEUE_MAPPING_MAX, Rule::U16),
    ],
);

/// `SKBEDIT_F_*`
const INHERITDSFIELD: u64 = 0x20;
const TXQ_SKBHASH: u64 = 0x40;
/// `PACKET_OTHERHOST`
const LAST_TYPE: u16 = 3;

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let attrs = options.ok_or(Errno::EINVAL)?.nested(&POLICY)?;
    let parms = attrs.fixed::<Generic>(PARMS)?.ok_or(Errno::EINVAL)?;
    let flags = attrs.u64(FLAGS)?.unwrap_or(0);
    let edit = Skbedit {
        priority: attrs.u32(PRIORITY)?,
        mark: attrs.u32(MARK)?,
        mask: attrs.u32(MASK)?,
        queue: attrs.u16(QUEUE_MAPPING)?,
        queue_max: attrs
            .u16(QUEUE_MAPPING_MAX)?
            .filter(|_| flags & TXQ_SKBHASH != 0),
        ptype: attrs.u16(PTYPE)?,
        inheritdsfield: flags & INHERITDSFIELD != 0,
    };
    if edit.ptype.is_some_and(|ptype| ptype > LAST_TYPE) {
        return Err(Errno::EINVAL.into());
    }
    if flags & TXQ_SKBHASH != 0 {
        let (Some(first), Some(last)) = (edit.queue, edit.queue_max) else {
            return Err(Error::invalid("Missing required range of queue_mapping."));
        };
        if last < first {
            let text = "The range of queue_mapping is invalid, max < min.";
            return Err(Error::invalid(text));
        }
    }
    Ok(Parsed::new(parms.index, || {
        let control = control(parms.action, read)?;
        match edit == Skbedit::default() {
            true => Err(Errno::EINVAL.into()),
            false => Ok((ActionKind::Skbedit(edit), control)),
        }
    }))
}

pub(super) fn dump(edit: &Skbedit, parms: &Generic, out: &mut Message<'_>) -> u16 {
    out.put(PARMS, parms);
    if let Some(priority) = edit.priority {
        out.put_u32(PRIORITY, priority);
    }
    if let Some(queue) = edit.queue {
        out.put_u16(QUEUE_MAPPING, queue);
    }
    if let Some(mark) = edit.mark {
        out.put_u32(MARK, mark);
    }
    if let Some(ptype) = edit.ptype {
        out.put_u16(PTYPE, ptype);
    }
    if let Some(mask) = edit.mask {
        out.put_u32(MASK, mask);
    }
    let mut flags = if edit.inheritdsfield {
        INHERITDSFIELD
    } else {
        0
    };
    if let Some(last) = edit.queue_max {
        out.put_u16(QUEUE_MAPPING_MAX, last);
        flags |= TXQ_SKBHASH;
    }
    if flags != 0 {
        out.put_u64(FLAGS, flags);
    }
    TM
}
