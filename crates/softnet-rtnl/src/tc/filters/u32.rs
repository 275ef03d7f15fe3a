//! `u32` (`TCA_U32_*`). There are no hash tables but each priority's own, and no offsets from the
//! next header.

use softnet_tc::{FilterKind, FilterSpec, FilterStats, Key, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::action::{self, Effect};
use super::kinds::{check_flags, put_flags, refusal, refuse};
use super::shown::table;
use crate::nl::{Attr, Attrs, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;
use crate::tc::actions::ShownAt;

const CLASSID: u16 = 1;
const HASH: u16 = 2;
const LINK: u16 = 3;
const DIVISOR: u16 = 4;
const SEL: u16 = 5;
const POLICE: u16 = 6;
const ACT: u16 = 7;
const INDEV: u16 = 8;
const PCNT: u16 = 9;
const MARK: u16 = 10;
const FLAGS: u16 = 11;

const POLICY: Policy = Policy::new(
    12,
    &[
        (CLASSID, Rule::U32),
        (HASH, Rule::U32),
        (LINK, Rule::U32),
        (DIVISOR, Rule::U32),
        (SEL, Rule::Min(size_of::<Selector>())),
        (MARK, Rule::Min(size_of::<Mark>())),
        (FLAGS, Rule::U32),
    ],
);

/// Only a selector with this flag decides.
const TC_U32_TERMINAL: u8 = 1;
/// The table of the priority.
const ROOT: u32 = 0xfff0_0000;
/// The part of a handle that names a table and a bucket, and the one that names a filter there.
const BUCKET: u32 = 0xffff_f000;
const NODE: u32 = 0xfff;

/// `struct tc_u32_sel`
#[derive(Default, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Selector {
    flags: u8,
    offshift: u8,
    nkeys: u8,
    pad: u8,
    offmask: u16,
    off: u16,
    offoff: i16,
    hoff: i16,
    hmask: u32,
}

/// `struct tc_u32_key`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct Word {
    mask: [u8; 4],
    value: [u8; 4],
    off: i32,
    offmask: i32,
}

impl Word {
    pub(super) fn key(&self) -> Result<Key, Error> {
        if self.offmask != 0 {
            return Err(refusal("offsets from the next header"));
        }
        Ok(Key {
            value: u32::from_be_bytes(self.value),
            mask: u32::from_be_bytes(self.mask),
            at: self.off,
        })
    }
}

impl From<&Key> for Word {
    fn from(key: &Key) -> Word {
        Word {
            mask: key.mask.to_be_bytes(),
            value: key.value.to_be_bytes(),
            off: key.at,
            offmask: 0,
        }
    }
}

/// `struct tc_u32_mark`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Mark {
    value: u32,
    mask: u32,
    success: u32,
}

/// `u32_change`: handle, keys and effect. One that is changed keeps its keys if there are no
/// others.
pub(super) fn parse(
    options: &Attr<'_>,
    handle: u32,
    before: Option<&FilterSpec>,
) -> Result<(u32, U32, Effect), Error> {
    let attrs = options.nested(&POLICY)?;
    let unsupported = [
        (DIVISOR, "hash tables"),
        (LINK, "links to hash tables"),
        (INDEV, "input device"),
    ];
    refuse(&attrs, &unsupported)?;
    let flags = check_flags(&attrs, FLAGS)?;
    let handle = full_handle(&attrs, handle, before)?;
    let effect = Effect::parse(&attrs, CLASSID, (ACT, Some(POLICE)), flags)?;
    let mut keys = U32::default();
    let itself = before.filter(|before| before.handle == handle);
    match (attrs.get(SEL), itself.map(|itself| &itself.kind)) {
        (Some(selector), _) => keys.keys = parse_keys(&selector)?,
        (None, Some(FilterKind::U32(before))) => keys = before.clone(),
        _ => return Err(Error::invalid("cls_u32: Selector not specified")),
    }
    if let Some(mark) = attrs.fixed::<Mark>(MARK)? {
        keys.mark = Some((mark.value, mark.mask));
    }
    Ok((handle, keys, effect))
}

/// The handle that `TCA_U32_HASH` and the header's name together.
fn full_handle(attrs: &Attrs<'_>, handle: u32, before: Option<&FilterSpec>) -> Result<u32, Error> {
    let Some(hash) = attrs.u32(HASH)? else {
        return Ok(handle);
    };
    if hash & ROOT == ROOT || hash == 0 {
        return Ok(handle);
    }
    if before.is_none_or(|before| table(before) != hash & ROOT) {
        return Err(Error::invalid("cls_u32: Specified hash table not found"));
    }
    if hash & BUCKET != hash & ROOT {
        let text = "cls_u32: Specified hash table buckets exceed configured value";
        return Err(Error::invalid(text));
    }
    if handle & ROOT != 0 && (handle ^ hash) & ROOT != 0 {
        return Err(Error::invalid(
            "cls_u32: Handle specified hash table address mismatch",
        ));
    }
    Ok(handle & NODE)
}

fn parse_keys(attr: &Attr<'_>) -> Result<Vec<Key>, Error> {
    let selector: Selector = attr.fixed()?;
    if selector.flags & !TC_U32_TERMINAL != 0 {
        return Err(refusal("variable offsets").at(attr));
    }
    if selector.flags & TC_U32_TERMINAL == 0 {
        return Err(refusal("u32 without a class or an action").at(attr));
    }
    if selector.hmask != 0 {
        return Err(refusal("hash tables").at(attr));
    }
    let all = usize::from(selector.nkeys) * size_of::<Word>();
    let words = attr.data.get(size_of::<Selector>()..);
    let words = words.and_then(|words| words.get(..all));
    let words = words.ok_or_else(|| Error::invalid("").at(attr))?;
    let words = words.chunks_exact(size_of::<Word>());
    let words = words.filter_map(|bytes| Word::read_from_bytes(bytes).ok());
    words.map(|word| word.key()).collect()
}

/// The table of a priority (`u32_dump` of a `tc_u_hnode`).
pub(super) fn dump_table(out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| out.put_u32(DIVISOR, 1));
}

/// `u32_dump`
pub(super) fn dump(
    keys: &U32,
    spec: &FilterSpec,
    stats: &FilterStats,
    at: &ShownAt,
    out: &mut Message<'_>,
) {
    out.nest(TCA_OPTIONS, |out| {
        // The kernel takes no more.
        let words = &keys.keys[..keys.keys.len().min(u8::MAX.into())];
        let selector = Selector {
            flags: TC_U32_TERMINAL,
            nkeys: words.len() as u8,
            ..Selector::default()
        };
        let mut bytes = selector.as_bytes().to_vec();
        for key in words {
            bytes.extend(Word::from(key).as_bytes());
        }
        out.put_bytes(SEL, &bytes);
        out.put_u32(HASH, spec.handle & BUCKET);
        if let Some(class) = spec.class {
            out.put_u32(CLASSID, class.raw());
        }
        put_flags(FLAGS, spec, out);
        let held = |n: usize| stats.held.get(n).copied().unwrap_or(0);
        if let Some((value, mask)) = keys.mark {
            let success = held(0) as u32;
            let mark = Mark {
                value,
                mask,
                success,
            };
            out.put(MARK, &mark);
        }
        action::dump((ACT, Some(POLICE)), spec, at, out);
        // `struct tc_u32_pcnt`
        let mut counts = vec![stats.tried, stats.matched];
        counts.extend((1..=words.len()).map(held));
        out.put(PCNT, &counts[..]);
    });
}
