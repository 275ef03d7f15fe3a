//! `pedit` (`TCA_PEDIT_*`).
//!
//! Source: `net/sched/act_pedit.c`.

use softnet_tc::{ActionKind, Pedit, PeditHeader, PeditKey};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Generic, Parsed, Read, control, missing};
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const TM: u16 = 1;
const PARMS: u16 = 2;
const PARMS_EX: u16 = 4;
const KEYS_EX: u16 = 5;
const KEY_EX: u16 = 6;
const HTYPE: u16 = 1;
const CMD: u16 = 2;

const POLICY: Policy = Policy::new(
    6,
    &[
        (PARMS, Rule::Min(size_of::<Selector>())),
        (PARMS_EX, Rule::Min(size_of::<Selector>())),
        (KEYS_EX, Rule::NestedAny),
    ],
);
const KEY_POLICY: Policy = Policy::new(2, &[(HTYPE, Rule::U16), (CMD, Rule::U16)]);

/// `struct tc_pedit_sel`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Selector {
    generic: Generic,
    nkeys: u8,
    flags: u8,
    pad: u16,
}

/// `struct tc_pedit_key`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Key {
    mask: [u8; 4],
    value: [u8; 4],
    offset: i32,
    at: i32,
    offmask: u32,
    shift: u32,
}

pub(super) fn parse(options: Option<Attr<'_>>, read: &Read) -> Result<Parsed, Error> {
    let none = || Error::invalid("act_pedit: Pedit requires attributes to be passed");
    let attrs = options.ok_or_else(none)?.nested(&POLICY)?;
    let parms = attrs.get(PARMS).or_else(|| attrs.get(PARMS_EX));
    let parms = parms.ok_or_else(|| missing("pedit"))?;
    let selector: Selector = parms.fixed()?;
    Ok(Parsed::new(selector.generic.index, || {
        let control = control(selector.generic.action, read)?;
        if selector.nkeys == 0 {
            let text = "act_pedit: Pedit requires keys to be passed";
            return Err(Error::invalid(text).at(&parms));
        }
        let all = usize::from(selector.nkeys) * size_of::<Key>();
        let keys = parms.data.get(size_of::<Selector>()..);
        let keys = keys.and_then(|keys| keys.get(..all)).ok_or_else(|| {
            let text = "act_pedit: Length of TCA_PEDIT_PARMS or TCA_PEDIT_PARMS_EX pedit \
                        attribute is invalid";
            Error::invalid(text).at(&parms)
        })?;
        let keys = keys.chunks_exact(size_of::<Key>());
        let keys = keys.filter_map(|bytes| Key::read_from_bytes(bytes).ok());
        let mut keys: Vec<PeditKey> = keys.map(PeditKey::from).collect();
        if keys.iter().any(|key| key.offset % 4 != 0) {
            return Err(Error::invalid(
                "act_pedit: Offsets must be on 32bit boundaries",
            ));
        }
        let extended = attrs.get(KEYS_EX);
        if let Some(list) = &extended {
            headers(list, &mut keys)?;
        }
        let pedit = Pedit {
            keys,
            extended: extended.is_some(),
        };
        Ok((ActionKind::Pedit(pedit), control))
    }))
}

/// `tcf_pedit_keys_ex_parse`: one for each key.
fn headers(list: &Attr<'_>, keys: &mut [PeditKey]) -> Result<(), Error> {
    let mut keys = keys.iter_mut();
    for attr in list.children() {
        let invalid = || Error::from(Errno::EINVAL).at(&attr);
        let key = keys.next().ok_or_else(invalid)?;
        if attr.kind() != KEY_EX {
            return Err(
                Error::invalid("act_pedit: Unknown attribute, expected extended key").at(&attr),
            );
        }
        let attrs = attr.nested(&KEY_POLICY)?;
        let header = attrs.u16(HTYPE)?.ok_or_else(invalid)?;
        let header = PeditHeader::ALL.get(usize::from(header));
        key.header = *header.ok_or_else(invalid)?;
        key.adds = match attrs.u16(CMD)?.ok_or_else(invalid)? {
            0 => false,
            1 => true,
            _ => return Err(invalid()),
        };
    }
    match keys.next() {
        Some(_) => {
            let text = "act_pedit: Not enough extended keys to parse";
            Err(Error::invalid(text).at(list))
        }
        None => Ok(()),
    }
}

impl From<Key> for PeditKey {
    fn from(key: Key) -> PeditKey {
        PeditKey {
            mask: u32::from_be_bytes(key.mask),
            value: u32::from_be_bytes(key.value),
            offset: key.offset,
            at: key.at,
            offmask: key.offmask,
            // As the kernel: what is more makes all bits vanish.
            shift: key.shift.min(31) as u8,
            ..PeditKey::default()
        }
    }
}

impl From<&PeditKey> for Key {
    fn from(key: &PeditKey) -> Key {
        Key {
            mask: key.mask.to_be_bytes(),
            value: key.value.to_be_bytes(),
            offset: key.offset,
            at: key.at,
            offmask: key.offmask,
            shift: key.shift.into(),
        }
    }
}

pub(super) fn dump(pedit: &Pedit, parms: &Generic, out: &mut Message<'_>) -> u16 {
    // The kernel takes no more.
    let keys = &pedit.keys[..pedit.keys.len().min(u8::MAX.into())];
    let selector = Selector {
        generic: *parms,
        nkeys: keys.len() as u8,
        flags: 0,
        pad: 0,
    };
    let mut bytes = selector.as_bytes().to_vec();
    for key in keys {
        bytes.extend(Key::from(key).as_bytes());
    }
    if !pedit.extended {
        out.put_bytes(PARMS, &bytes);
        return TM;
    }
    out.nest(KEYS_EX, |out| {
        for key in keys {
            out.nest(KEY_EX, |out| {
                out.put_u16(HTYPE, key.header as u16);
                out.put_u16(CMD, key.adds.into());
            });
        }
    });
    out.put_bytes(PARMS_EX, &bytes);
    TM
}
