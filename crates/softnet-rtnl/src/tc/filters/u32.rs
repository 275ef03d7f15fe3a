//! `u32` (`TCA_U32_*`).

use softnet_tc::{BucketKey, FilterKind, FilterList, FilterSpec, FilterStats, Key, Offset, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::action::{self, Effect};
use super::kinds::{check_flags, put_flags};
use super::{Which, indev};
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};
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
        (INDEV, Rule::Str { max: 16 }),
        (MARK, Rule::Min(size_of::<Mark>())),
        (FLAGS, Rule::U32),
    ],
);

/// Only a selector with this flag decides.
const TC_U32_TERMINAL: u8 = 1;
const TC_U32_OFFSET: u8 = 2;
const TC_U32_VAROFFSET: u8 = 4;
const TC_U32_EAT: u8 = 8;
/// The part of a handle that names a table; with all bits, that of the priority.
const ROOT: u32 = 0xfff0_0000;
const TABLE_SHIFT: u32 = 20;
/// The part of a handle that names a table and a bucket, and the one that names a filter there.
const BUCKET: u32 = 0xffff_f000;
const BUCKET_SHIFT: u32 = 12;
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
    offmask: u32,
}

impl Word {
    pub(super) fn key(&self) -> Key {
        Key {
            value: u32::from_be_bytes(self.value),
            mask: u32::from_be_bytes(self.mask),
            at: self.off,
            next: self.offmask,
        }
    }
}

impl From<&Key> for Word {
    fn from(key: &Key) -> Word {
        Word {
            mask: key.mask.to_be_bytes(),
            value: key.value.to_be_bytes(),
            off: key.at,
            offmask: key.next,
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

/// `u32_change`: handle, keys and effect, or a hash table. One that is changed keeps its keys and
/// its link if there are no others.
pub(super) fn parse(
    options: &Attr<'_>,
    which: &Which<'_>,
    before: Option<&FilterSpec>,
    list: &FilterList,
) -> Result<(u32, FilterKind, Effect), Error> {
    let attrs = options.nested(&POLICY)?;
    let flags = check_flags(&attrs, FLAGS)?;
    let handle = which.key.handle;
    let itself = before.filter(|before| handle != 0 && before.handle == handle);
    if let Some(divisor) = attrs.u32(DIVISOR)?
        && itself.is_none()
    {
        return Ok((handle, table(divisor, handle)?, Effect::default()));
    }
    let effect = Effect::parse(&attrs, CLASSID, (ACT, Some(POLICE)), flags)?;
    let mut keys = match itself.map(|itself| &itself.kind) {
        Some(FilterKind::U32(before)) => before.clone(),
        Some(_) => return Err(Error::invalid("cls_u32: Key node id cannot be zero")),
        None => U32::default(),
    };
    let handle = match itself {
        Some(_) => handle,
        None => full_handle(&attrs, which, list)?,
    };
    match (attrs.get(SEL), itself) {
        (Some(selector), _) => parse_selector(&selector, &mut keys)?,
        (None, Some(_)) => {}
        (None, None) => return Err(Error::invalid("cls_u32: Selector not specified")),
    }
    if let Some(link) = attrs.u32(LINK)? {
        if link & !ROOT != 0 {
            let text = "cls_u32: u32 Link handle must be a hash table";
            return Err(Error::invalid(text));
        }
        keys.link = (link != 0).then_some(link);
    }
    if let Some(indev) = indev::parse(&attrs, INDEV)? {
        keys.indev = Some(indev);
    }
    if let Some(mark) = attrs.fixed::<Mark>(MARK)? {
        keys.mark = Some((mark.value, mark.mask));
    }
    Ok((handle, FilterKind::U32(keys), effect))
}

fn table(divisor: u32, handle: u32) -> Result<FilterKind, Error> {
    if !divisor.is_power_of_two() {
        return Err(Error::invalid("cls_u32: Divisor is not a power of 2"));
    }
    let buckets = u16::try_from(divisor).ok().filter(|&n| n <= 256);
    let Some(buckets) = buckets else {
        return Err(Error::invalid("cls_u32: Exceeded maximum 256 hash buckets"));
    };
    if handle & !ROOT != 0 {
        let text = "cls_u32: Divisor can only be used on a hash table";
        return Err(Error::invalid(text));
    }
    Ok(FilterKind::U32Table { buckets })
}

/// The handle that `TCA_U32_HASH` and the header's name together. Its table is 0 for the one of
/// the priority; its node is 0 if it is to be chosen.
fn full_handle(attrs: &Attrs<'_>, which: &Which<'_>, list: &FilterList) -> Result<u32, Error> {
    let (chain, prio, handle) = (which.key.chain, which.key.prio, which.key.handle);
    let root = list.u32_root(chain, prio).unwrap_or_default();
    let hash = attrs.u32(HASH)?.filter(|&hash| hash != 0);
    let hash = match hash {
        Some(hash) if hash & ROOT != ROOT => hash,
        _ => root << TABLE_SHIFT,
    };
    let number = hash >> TABLE_SHIFT;
    let Some(buckets) = list.u32_buckets(chain, prio, number) else {
        return Err(Error::invalid("cls_u32: Specified hash table not found"));
    };
    if hash >> BUCKET_SHIFT & 0xff >= buckets.into() {
        let text = "cls_u32: Specified hash table buckets exceed configured value";
        return Err(Error::invalid(text));
    }
    if handle & ROOT != 0 && (handle ^ hash) & ROOT != 0 {
        return Err(Error::invalid(
            "cls_u32: Handle specified hash table address mismatch",
        ));
    }
    let table = if number == root { 0 } else { hash & ROOT };
    Ok(table | hash & BUCKET & !ROOT | handle & NODE)
}

fn parse_selector(attr: &Attr<'_>, of: &mut U32) -> Result<(), Error> {
    let selector: Selector = attr.fixed()?;
    let flag = |flag| selector.flags & flag != 0;
    let all = usize::from(selector.nkeys) * size_of::<Word>();
    let words = attr.data.get(size_of::<Selector>()..);
    let words = words.and_then(|words| words.get(..all));
    let words = words.ok_or_else(|| Error::new(Errno::EINVAL).at(attr))?;
    let words = words.chunks_exact(size_of::<Word>());
    let words = words.filter_map(|bytes| Word::read_from_bytes(bytes).ok());
    of.keys = words.map(|word| word.key()).collect();
    of.leads = !flag(TC_U32_TERMINAL);
    of.bucket = BucketKey {
        at: selector.hoff,
        mask: u32::from_be(selector.hmask),
    };
    of.offset = Offset {
        is_on: flag(TC_U32_OFFSET),
        plus: selector.off,
        is_variable: flag(TC_U32_VAROFFSET),
        at: selector.offoff,
        mask: u16::from_be(selector.offmask),
        shift: selector.offshift,
        eat: flag(TC_U32_EAT),
    };
    Ok(())
}

impl From<&U32> for Selector {
    fn from(of: &U32) -> Selector {
        let flags = [
            (!of.leads, TC_U32_TERMINAL),
            (of.offset.is_on, TC_U32_OFFSET),
            (of.offset.is_variable, TC_U32_VAROFFSET),
            (of.offset.eat, TC_U32_EAT),
        ];
        let flags = flags.into_iter().filter(|(is_on, _)| *is_on);
        Selector {
            flags: flags.map(|(_, flag)| flag).sum(),
            offshift: of.offset.shift,
            // The kernel takes no more.
            nkeys: of.keys.len().min(u8::MAX.into()) as u8,
            pad: 0,
            offmask: of.offset.mask.to_be(),
            off: of.offset.plus,
            offoff: of.offset.at,
            hoff: of.bucket.at,
            hmask: of.bucket.mask.to_be(),
        }
    }
}

/// A hash table (`u32_dump` of a `tc_u_hnode`).
pub(super) fn dump_table(buckets: u16, out: &mut Message<'_>) {
    out.nest(TCA_OPTIONS, |out| out.put_u32(DIVISOR, buckets.into()));
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
        let selector = Selector::from(keys);
        let words = &keys.keys[..selector.nkeys.into()];
        let mut bytes = selector.as_bytes().to_vec();
        for key in words {
            bytes.extend(Word::from(key).as_bytes());
        }
        out.put_bytes(SEL, &bytes);
        out.put_u32(HASH, spec.handle & BUCKET);
        if let Some(class) = spec.class {
            out.put_u32(CLASSID, class.raw());
        }
        if let Some(link) = keys.link {
            out.put_u32(LINK, link);
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
        indev::dump(INDEV, keys.indev.as_ref(), out);
        // `struct tc_u32_pcnt`
        let mut counts = vec![stats.tried, stats.matched];
        counts.extend((1..=words.len()).map(held));
        out.put(PCNT, &counts[..]);
    });
}
