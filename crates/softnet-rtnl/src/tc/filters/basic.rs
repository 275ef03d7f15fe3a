//! `basic` (`TCA_BASIC_*`), and the expressions that it tests (`TCA_EMATCH_*`): `cmp`, `nbyte`,
//! `u32`, and `meta` of some numbers, in groups joined by `and` and `or`.
//!
//! Source: `net/sched/cls_basic.c`, `net/sched/ematch.c`, `net/sched/em_*.c`.

use softnet_tc::{Compare, Ematch, FilterSpec, FilterStats, Layer, MetaId, Test, Width};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::action::{self, Effect};
use super::kinds::refusal;
use super::u32::Word;
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};
use crate::tc::TCA_OPTIONS;
use crate::tc::actions::{FilterFlags, ShownAt};

const CLASSID: u16 = 1;
const EMATCHES: u16 = 2;
const ACT: u16 = 3;
const POLICE: u16 = 4;
const PCNT: u16 = 5;

const POLICY: Policy = Policy::new(6, &[(CLASSID, Rule::U32), (EMATCHES, Rule::NestedAny)]);

const TREE_HDR: u16 = 1;
const TREE_LIST: u16 = 2;

const TREE: Policy = Policy::new(
    2,
    &[
        (TREE_HDR, Rule::Min(size_of::<TreeHeader>())),
        (TREE_LIST, Rule::NestedAny),
    ],
);

/// `struct tcf_ematch_tree_hdr`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct TreeHeader {
    nmatches: u16,
    progid: u16,
}

/// `struct tcf_ematch_hdr`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Header {
    matchid: u16,
    kind: u16,
    flags: u16,
    pad: u16,
}

/// `TCF_EM_*`: kinds of expressions.
const CONTAINER: u16 = 0;
const CMP: u16 = 1;
const NBYTE: u16 = 2;
const U32: u16 = 3;
const META: u16 = 4;
/// Relation to the next: none, `and`, `or`.
const RELATION: u16 = 3;
const REL_END: u16 = 0;
const REL_AND: u16 = 1;
const REL_OR: u16 = 2;
const INVERT: u16 = 4;

/// `struct tcf_em_cmp`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Cmp {
    value: u32,
    mask: u32,
    off: u16,
    /// Width, and flags in the upper half.
    width: u8,
    /// Layer, and how it compares in the upper half.
    layer: u8,
}

const META_HDR: u16 = 1;
const META_LVALUE: u16 = 2;
const META_RVALUE: u16 = 3;

const META_POLICY: Policy = Policy::new(3, &[(META_HDR, Rule::Min(size_of::<Meta>()))]);

/// `struct tcf_meta_val`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct MetaValue {
    kind: u16,
    shift: u8,
    op: u8,
}

/// `struct tcf_meta_hdr`
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
struct Meta {
    left: MetaValue,
    right: MetaValue,
}

/// `TCF_META_TYPE_INT` with `TCF_META_ID_*`.
const META_VALUE: u16 = 1 << 12;
const META_PRIORITY: u16 = META_VALUE | 6;
const META_MARK: u16 = META_VALUE | 12;

/// `TCF_EM_OPND_*`
const COMPARES: [Compare; 3] = [Compare::Eq, Compare::Gt, Compare::Lt];
const LAYERS: [Layer; 3] = [Layer::Link, Layer::Network, Layer::Transport];
const WIDTHS: [(u8, Width); 3] = [(1, Width::One), (2, Width::Two), (4, Width::Four)];

fn compare(op: u8) -> Result<Compare, Error> {
    let found = COMPARES.get(usize::from(op));
    found.copied().ok_or_else(|| Errno::EINVAL.into())
}

fn op(compare: Compare) -> u8 {
    match compare {
        Compare::Eq => 0,
        Compare::Gt => 1,
        Compare::Lt => 2,
    }
}

/// `basic_change`
pub(super) fn parse(options: &Attr<'_>) -> Result<(Vec<Ematch>, Effect), Error> {
    let attrs = options.nested(&POLICY)?;
    let tree = attrs.get(EMATCHES);
    let ematches = tree.map_or(Ok(Vec::new()), |tree| parse_tree(&tree))?;
    Ok((
        ematches,
        Effect::parse(&attrs, CLASSID, (ACT, Some(POLICE)), FilterFlags::default())?,
    ))
}

/// `tcf_em_tree_validate`
fn parse_tree(tree: &Attr<'_>) -> Result<Vec<Ematch>, Error> {
    let attrs = tree.nested(&TREE)?;
    let invalid = || Error::from(Errno::EINVAL).at(tree);
    let header = attrs.fixed::<TreeHeader>(TREE_HDR)?.ok_or_else(invalid)?;
    let list = attrs.get(TREE_LIST).ok_or_else(invalid)?;
    let mut flat = Vec::new();
    for (n, attr) in (1_u16..).zip(list.children()) {
        // The list has as many as the header says, and they are numbered.
        if attr.kind() != n || n > header.nmatches {
            return Err(invalid());
        }
        let head: Header = attr.fixed()?;
        let data = attr.data.get(size_of::<Header>()..).unwrap_or_default();
        let test = match head.kind {
            CMP => parse_cmp(data).map(Part::Test),
            NBYTE => parse_nbyte(data).map(Part::Test),
            U32 => match Word::read_from_prefix(data) {
                Ok((word, _)) => Ok(Part::Test(Test::Word(word.key()))),
                Err(_) => Err(Errno::EINVAL.into()),
            },
            META => parse_meta(&attr).map(Part::Test),
            CONTAINER => match u32::read_from_prefix(data) {
                // A group is behind its name, so that none is in itself.
                Ok((first, _)) if first >= n.into() && first < header.nmatches.into() => {
                    Ok(Part::Group(first as usize))
                }
                _ => Err(Errno::EINVAL.into()),
            },
            _ => Err(refusal("expressions but cmp, nbyte, u32 and meta")),
        };
        flat.push((head.flags, test.map_err(|error| error.at(&attr))?));
    }
    if flat.len() != usize::from(header.nmatches) {
        return Err(invalid());
    }
    if flat.is_empty() {
        return Ok(Vec::new());
    }
    let mut left = MOST;
    group(&flat, 0, 0, &mut left).ok_or_else(invalid)
}

/// An expression of a list that names its groups by the number of their first.
enum Part {
    Test(Test),
    Group(usize),
}

/// Expressions of a tree at most: groups that are named many times make it large.
const MOST: usize = 4096;
/// `TCF_EM_STACK`
const DEEPEST: usize = 32;

/// The expressions from one on, up to the end of its group. `None`: it has no end, or there are
/// too many.
fn group(
    flat: &[(u16, Part)],
    from: usize,
    depth: usize,
    left: &mut usize,
) -> Option<Vec<Ematch>> {
    let mut found = Vec::new();
    if depth > DEEPEST {
        return None;
    }
    for (flags, part) in flat.get(from..)? {
        *left = left.checked_sub(1)?;
        let test = match part {
            Part::Test(test) => test.clone(),
            Part::Group(first) => Test::Group(group(flat, *first, depth + 1, left)?),
        };
        let relation = flags & RELATION;
        found.push(Ematch {
            negated: flags & INVERT != 0,
            or: relation == REL_OR,
            test,
        });
        match relation {
            REL_END => return Some(found),
            REL_AND | REL_OR => {}
            _ => return None,
        }
    }
    None
}

/// `em_nbyte.c`
fn parse_nbyte(data: &[u8]) -> Result<Test, Error> {
    let (head, rest) = <[u16; 2]>::read_from_prefix(data).map_err(|_| Errno::EINVAL)?;
    let [at, both] = head;
    let needle = rest.get(..usize::from(both & 0xfff)).ok_or(Errno::EINVAL)?;
    let layer = LAYERS.get(usize::from(both >> 12)).ok_or(Errno::EINVAL)?;
    Ok(Test::Bytes {
        at,
        layer: *layer,
        needle: needle.to_vec(),
    })
}

/// `em_cmp.c`
fn parse_cmp(data: &[u8]) -> Result<Test, Error> {
    let (cmp, _) = Cmp::read_from_prefix(data).map_err(|_| Errno::EINVAL)?;
    let width = WIDTHS.iter().find(|(width, _)| *width == cmp.width & 0xf);
    let (Some((_, width)), Some(layer)) = (width, LAYERS.get(usize::from(cmp.layer & 0xf))) else {
        return Err(Errno::EINVAL.into());
    };
    Ok(Test::Cmp {
        width: *width,
        at: cmp.off,
        layer: *layer,
        mask: cmp.mask,
        compare: compare(cmp.layer >> 4)?,
        value: cmp.value,
        trans: cmp.width >> 4 & 1 != 0,
    })
}

/// `em_meta.c`
fn parse_meta(attr: &Attr<'_>) -> Result<Test, Error> {
    let attrs = attr.nested_behind(size_of::<Header>(), &META_POLICY)?;
    let meta = attrs.fixed::<Meta>(META_HDR)?.ok_or(Errno::EINVAL)?;
    let compare = compare(meta.left.op)?;
    let mask = attrs.u32(META_LVALUE)?.filter(|&mask| mask != 0);
    if meta.right.kind != META_VALUE || meta.right.shift != 0 {
        return Err(refusal("meta but a field, a mask and a number"));
    }
    let value = attrs.u32(META_RVALUE)?.unwrap_or(0);
    let known = MetaId::ALL
        .iter()
        .find(|(_, id, _)| META_VALUE | id == meta.left.kind);
    if let Some(&(id, ..)) = known {
        return Ok(Test::Meta {
            id,
            shift: meta.left.shift,
            mask: mask.unwrap_or(0),
            compare,
            value,
        });
    }
    if meta.left.shift != 0 {
        return Err(refusal("shifts of meta's priority and nf_mark"));
    }
    match (meta.left.kind, mask) {
        (META_PRIORITY, None | Some(u32::MAX)) => Ok(Test::Priority(compare, value)),
        (META_PRIORITY, _) => Err(refusal("masks of meta's priority")),
        (META_MARK, mask) => Ok(Test::Mark {
            mask: mask.unwrap_or(u32::MAX),
            compare,
            value,
        }),
        _ => Err(refusal(
            "meta but priority, nf_mark, protocol, pkt_len, mac_len and vlan",
        )),
    }
}

/// `basic_dump`
pub(super) fn dump(
    ematches: &[Ematch],
    spec: &FilterSpec,
    stats: &FilterStats,
    at: &ShownAt,
    out: &mut Message<'_>,
) {
    out.nest(TCA_OPTIONS, |out| {
        if let Some(class) = spec.class {
            out.put_u32(CLASSID, class.raw());
        }
        // `struct tc_basic_pcnt`
        out.put(PCNT, &[stats.tried, stats.matched]);
        action::dump((ACT, Some(POLICE)), spec, at, out);
        if !ematches.is_empty() {
            out.nest(EMATCHES, |out| dump_tree(ematches, out));
        }
    });
}

/// `tcf_em_tree_dump`: groups are behind the list that names them.
fn dump_tree(ematches: &[Ematch], out: &mut Message<'_>) {
    let mut flat: Vec<(&Ematch, u16, u32)> = Vec::new();
    let mut lists = std::collections::VecDeque::from([(ematches, None)]);
    while let Some((list, named_by)) = lists.pop_front() {
        if let Some(at) = named_by {
            let first = flat.len() as u32;
            let (_, _, group): &mut (&Ematch, u16, u32) = &mut flat[at];
            *group = first;
        }
        for (n, ematch) in (1..).zip(list) {
            let relation = match (n == list.len(), ematch.or) {
                (true, _) => REL_END,
                (false, true) => REL_OR,
                (false, false) => REL_AND,
            };
            if let Test::Group(inner) = &ematch.test {
                lists.push_back((inner, Some(flat.len())));
            }
            flat.push((ematch, relation, 0));
        }
    }
    // A filter has no more than 4096.
    let header = TreeHeader {
        nmatches: flat.len() as u16,
        progid: 0,
    };
    out.put(TREE_HDR, &header);
    out.nest(TREE_LIST, |out| {
        for (n, (ematch, relation, group)) in (1..).zip(flat) {
            dump_ematch(n, ematch, relation, group, out);
        }
    });
}

fn dump_ematch(n: u16, ematch: &Ematch, relation: u16, group: u32, out: &mut Message<'_>) {
    let head = |kind| Header {
        matchid: 0,
        kind,
        flags: relation | if ematch.negated { INVERT } else { 0 },
        pad: 0,
    };
    let plain = |kind, data: &[u8]| [head(kind).as_bytes(), data].concat();
    match &ematch.test {
        &Test::Cmp {
            width,
            at,
            layer,
            mask,
            compare,
            value,
            trans,
        } => {
            let cmp = Cmp {
                value,
                mask,
                off: at,
                width: match width {
                    Width::One => 1,
                    Width::Two => 2,
                    Width::Four => 4,
                } | u8::from(trans) << 4,
                layer: op(compare) << 4 | layer_number(layer),
            };
            out.put_bytes(n, &plain(CMP, cmp.as_bytes()));
        }
        Test::Bytes { at, layer, needle } => {
            let len = needle.len().min(0xfff);
            let both = len as u16 | (layer_number(*layer) as u16) << 12;
            let mut data = [*at, both].as_bytes().to_vec();
            data.extend(&needle[..len]);
            out.put_bytes(n, &plain(NBYTE, &data));
        }
        Test::Group(_) => out.put_bytes(n, &plain(CONTAINER, group.as_bytes())),
        &Test::Meta {
            id,
            shift,
            mask,
            compare,
            value,
        } => {
            let known = MetaId::ALL.iter().find(|(of, ..)| *of == id);
            let kind = META_VALUE | known.map_or(0, |(_, number, _)| *number);
            let mask = if mask == 0 { u32::MAX } else { mask };
            out.nest_with(n, &head(META), |out| {
                dump_meta(kind, shift, compare, mask, value, out);
            });
        }
        Test::Word(key) => out.put_bytes(n, &plain(U32, Word::from(key).as_bytes())),
        &Test::Priority(compare, value) => {
            out.nest_with(n, &head(META), |out| {
                dump_meta(META_PRIORITY, 0, compare, u32::MAX, value, out);
            });
        }
        &Test::Mark {
            mask,
            compare,
            value,
        } => out.nest_with(n, &head(META), |out| {
            dump_meta(META_MARK, 0, compare, mask, value, out);
        }),
    }
}

fn layer_number(layer: Layer) -> u8 {
    match layer {
        Layer::Link => 0,
        Layer::Network => 1,
        Layer::Transport => 2,
    }
}

fn dump_meta(
    kind: u16,
    shift: u8,
    compare: Compare,
    mask: u32,
    value: u32,
    out: &mut Message<'_>,
) {
    let meta = Meta {
        left: MetaValue {
            kind,
            shift,
            op: op(compare),
        },
        right: MetaValue {
            kind: META_VALUE,
            shift: 0,
            op: 0,
        },
    };
    out.put(META_HDR, &meta);
    if mask != u32::MAX {
        out.put_u32(META_LVALUE, mask);
    }
    out.put_u32(META_RVALUE, value);
}
