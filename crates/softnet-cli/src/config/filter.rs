//! `[[filter]]`: a filter of a qdisc, in the words of `tc filter add`.

use softnet_tc::{
    Action, ActionList, ActionSpec, BucketKey, ChainTemplate, ETH_P_ALL, FilterError, FilterKey,
    FilterKind, FilterList, FilterOp, FilterSpec, Handle, Hook, Key, Offset, Side, U32,
};

use super::table::{HANDLE, Item, Table};
use super::tree::Building;
use super::words::{hex, key, number};
use super::{ematch, flower};

/// Keys of every kind of filter.
pub(super) const EVERYWHERE: &[&str] = &[
    "kind", "parent", "chain", "prio", "protocol", "handle", "flowid", "classid", "action",
];
/// Adds a table's filter to a tree. Returns one that leads to a hash table which is not there yet:
/// it is to be changed when all are.
pub(super) fn add(building: &mut Building, table: &Table<'_>) -> Option<FilterSpec> {
    let before = table.source.errors();
    if is_chain(table) {
        let (parent, chain) = (parent_of(table), chain(table));
        let Some(parent) = parent else {
            table.missing::<()>("parent", "the qdisc whose chain it is, like \"1:\"");
            return None;
        };
        let template = template(table);
        if let Err(error) = building.tree.add_chain(parent, chain, template) {
            building.problem(table, "chain", &[parent], error.to_string());
        }
        return None;
    }
    let (class_key, filter) = read(table, None)?;
    if table.source.errors() > before {
        return None;
    }
    let is_at_hook = building.tree.hook_of(filter.parent).is_some();
    let (parent, class) = (filter.parent, filter.class);
    let names = [parent, class.unwrap_or(parent)];
    let put = |filter| building.tree.put_filter(op(&filter), filter);
    let (put, later) = put_or_later(put, filter);
    if let Err(error) = put {
        let key = match error {
            FilterError::NoLink(_) | FilterError::LinkToRoot => "link",
            FilterError::Divisor(_) => "divisor",
            FilterError::Chain(_) | FilterError::TemplateKind | FilterError::Template => "chain",
            FilterError::Handle { .. } | FilterError::Table(_) => "handle",
            FilterError::Offset(_) => "match",
            FilterError::NoParent(_)
            | FilterError::NotClassful(_)
            | FilterError::NoBlocks(_)
            | FilterError::NoClass(_)
            | FilterError::NoHook
            | FilterError::Shared
            | FilterError::NotOfClasses { .. } => match table.has("parent") {
                true => "parent",
                false => class_key,
            },
            _ => "prio",
        };
        building.problem(table, key, &names, error.to_string());
        return None;
    }
    // The kernel takes it, and never finds the class.
    if let Some(class) = class
        && !is_at_hook
        && (class.qdisc() != parent.qdisc() || class == Handle::ROOT)
    {
        let text = format!("{class} is not a class of {}", parent.qdisc());
        table.problem::<()>(class_key, text);
    }
    later
}

/// Adds a table's filter to a block, as [`add`] does.
pub(super) fn add_to_block(list: &mut FilterList, table: &Table<'_>) -> Option<FilterSpec> {
    let before = table.source.errors();
    if is_chain(table) {
        if let Err(error) = list.add_chain(chain(table), template(table)) {
            table.problem::<()>("chain", error.to_string());
        }
        return None;
    }
    let (_, filter) = read(table, Some(Handle::NONE))?;
    if table.source.errors() > before {
        return None;
    }
    let (put, later) = put_or_later(|filter| list.put(op(&filter), filter), filter);
    if let Err(error) = put {
        table.problem::<()>("prio", error.to_string());
        return None;
    }
    later
}

/// True if a table is a chain that stays without filters.
fn is_chain(table: &Table<'_>) -> bool {
    let kind = table.find("kind").and_then(|kind| kind.as_text());
    let is_chain = kind == Some("chain");
    if is_chain {
        match table.has("template") {
            true => table.only(
                &["kind", "parent", "chain", "template", "protocol"],
                "chain",
                flower::KEYS,
            ),
            false => table.only(&["kind", "parent", "chain"], "chain", &[]),
        }
    }
    is_chain
}

/// The template of a chain, if it has one.
fn template(table: &Table<'_>) -> Option<ChainTemplate> {
    let what = "a kind of filter that makes templates; use flower";
    table.parsed("template", what, |text| (text == "flower").then_some(()))?;
    Some(ChainTemplate {
        protocol: flower::protocol(table, "protocol").unwrap_or(ETH_P_ALL),
        flower: flower::fields(table)?,
    })
}

fn chain(table: &Table<'_>) -> u32 {
    let what = "a chain from 0 to 268435455";
    table.parsed("chain", what, number).unwrap_or_default()
}

/// Filters that were written down have handles, and may match the same.
fn op(filter: &FilterSpec) -> FilterOp {
    match filter.handle {
        0 => FilterOp::Add,
        _ => FilterOp::Restore,
    }
}

/// Adds a filter, without the hash table that it leads to if that is not there: then it is
/// returned with what it is called by.
fn put_or_later(
    mut put: impl FnMut(FilterSpec) -> Result<FilterKey, FilterError>,
    filter: FilterSpec,
) -> (Result<FilterKey, FilterError>, Option<FilterSpec>) {
    match put(filter.clone()) {
        Err(FilterError::NoLink(_)) => {}
        done => return (done, None),
    }
    let mut without = filter.clone();
    if let FilterKind::U32(of) = &mut without.kind {
        of.link = None;
    }
    let done = put(without);
    let later = done.as_ref().ok().map(|key| FilterSpec {
        prio: key.prio,
        handle: key.handle,
        ..filter
    });
    (done, later)
}

/// A filter was changed to lead to a hash table.
pub(super) fn link<T>(table: &Table<'_>, changed: Result<T, FilterError>) {
    if let Err(error) = changed {
        table.problem::<()>("link", error.to_string());
    }
}

/// The parent of a table's filter: a qdisc or class, or a hook.
fn parent_of(table: &Table<'_>) -> Option<Handle> {
    table.parsed("parent", HANDLE, |text| match text {
        "ingress" => Some(Side::Ingress.parent()),
        "egress" => Some(Side::Egress.parent()),
        handle => handle.parse().ok(),
    })
}

/// The filter, and the key that names its class. Its parent goes without saying where there is one.
fn read(table: &Table<'_>, of: Option<Handle>) -> Option<(&'static str, FilterSpec)> {
    let known = |text: &str| FilterKind::NAMES.into_iter().find(|kind| *kind == text);
    let what = "a kind of filter; use flower, u32, basic, matchall or fw";
    let kind = match table.has("kind") {
        true => table.parsed("kind", what, known)?,
        false => "flower",
    };
    let allowed = match kind {
        "flower" => flower::KEYS,
        "u32" => &[
            "match", "mark", "indev", "divisor", "link", "hashkey", "offset",
        ],
        "basic" => &["match"],
        "fw" => &["handle", "indev"],
        _ => &[],
    };
    table.only(EVERYWHERE, kind, allowed);
    let (actions, told) = actions(table);
    let leads = kind == "u32" && (table.has("link") || table.has("divisor"));
    let class_key = match (table.has("classid"), table.has("flowid")) {
        (true, false) => "classid",
        (true, true) => table
            .problem("classid", "is the same as flowid; remove one of them")
            .unwrap_or("flowid"),
        (false, _) => "flowid",
    };
    let class = table.handle(class_key);
    // The mark is the class.
    let has_own = ["handle", "indev", class_key]
        .iter()
        .any(|key| table.has(key));
    let by_mark = kind == "fw" && of.is_none() && !has_own && !told;
    let leads = leads || by_mark;
    let mut parent = of.or_else(|| parent_of(table));
    let has_class = table.has(class_key);
    let is_at_hook = parent.is_some_and(|parent| parent.qdisc() == Hook::HANDLE);
    if of.is_some() {
        if table.has("parent") {
            table.problem::<()>("parent", "goes without saying in a block; remove it");
        }
    } else if is_at_hook {
        // It decides, whatever the class.
    } else if !has_class && !told && !leads {
        table.missing::<()>("flowid", "the class that the packets are for, like \"1:2\"");
    } else if !has_class && !table.has("parent") {
        table.missing::<()>("parent", "the qdisc whose filter it is, like \"1:\"");
    } else if !table.has("parent") {
        // A filter that does not say so is one of the qdisc that the class belongs to.
        parent = class.map(Handle::qdisc);
    }
    let (of_kind, mask) = match by_mark {
        true => (None, 0),
        false => name(table, kind),
    };
    let what = "a priority from 1 to 65535";
    let prio = table.parsed("prio", what, |text| {
        text.parse().ok().filter(|&prio| prio > 0)
    });
    let protocol = flower::protocol(table, "protocol").unwrap_or(ETH_P_ALL);
    let chain = chain(table);
    let leads = leads && !has_class && !told;
    let kind = match by_mark {
        true => FilterKind::FwClass,
        false => matches(table, kind, mask, protocol, leads)?,
    };
    let filter = FilterSpec {
        chain,
        // One is chosen.
        prio: prio.unwrap_or_default(),
        protocol,
        handle: of_kind.unwrap_or_default(),
        actions,
        parent: parent?,
        class,
        ..FilterSpec::new(kind, Handle::NONE)
    };
    Some((class_key, filter))
}

/// The handle, in the form that its kind has, and the mask of `fw`.
fn name(table: &Table<'_>, kind: &str) -> (Option<u32>, u32) {
    let what = format!(
        "a handle of {kind}; write one like {}",
        match kind {
            "u32" => "\"800::801\"",
            "fw" => "\"7\" or \"0x10/0xf0\", a mark",
            _ => "\"1\"",
        }
    );
    let read = |text: &str| match kind {
        "u32" => Some((hash_handle(text)?, 0)),
        "fw" => flower::masked(text, u32::MAX),
        _ => Some((number(text)?, 0)),
    };
    if kind == "fw" && !table.has("handle") {
        table.missing::<()>("handle", "the mark that the packets have");
    }
    match table.parsed("handle", &what, read) {
        Some((handle, mask)) => (Some(handle), mask),
        None => (None, 0),
    }
}

/// `TABLE:BUCKET:NODE`, `TABLE::NODE`, `TABLE:`, all in hexadecimal.
fn hash_handle(text: &str) -> Option<u32> {
    let part = |text: &str, most| match text {
        "" => Some(0),
        text => hex(text).filter(|&n| n <= most),
    };
    let (table, rest) = text.split_once(':')?;
    let (bucket, node) = rest.split_once(':').unwrap_or((rest, ""));
    Some(part(table, 0xfff)? << 20 | part(bucket, 0xff)? << 12 | part(node, 0xfff)?)
}

/// The actions, and whether there was one.
fn actions(table: &Table<'_>) -> (ActionList, bool) {
    const FORM: &str = "an action in tc's words, like \"drop\" or \"skbedit mark 1\"";
    let Some(item) = table.find("action") else {
        return (ActionList::default(), false);
    };
    let read = |item: Item<'_>| {
        let Some(text) = item.as_text() else {
            return item.problem(format!("is {}; give {FORM}", item.is()));
        };
        match text.parse::<ActionSpec>() {
            Ok(spec) => Some(Action::new(spec)),
            Err(error) => item.problem(format!("{text:?} is not {FORM}: {error}")),
        }
    };
    let items = item.as_list().unwrap_or_else(|| vec![item]);
    if items.len() > ActionList::MAX {
        table.problem::<()>("action", "a filter has 32 actions at most");
    }
    (items.into_iter().filter_map(read).collect(), true)
}

fn matches(
    table: &Table<'_>,
    kind: &str,
    mask: u32,
    protocol: u16,
    leads: bool,
) -> Option<FilterKind> {
    Some(match kind {
        "matchall" => FilterKind::Matchall,
        "fw" => FilterKind::Fw {
            mask,
            indev: flower::indev(table),
        },
        "u32" if table.has("divisor") => FilterKind::U32Table {
            buckets: table.find("divisor")?.number(1, 256)?,
        },
        "u32" => FilterKind::U32(U32 {
            keys: keys(table),
            mark: flower::mark(table),
            indev: flower::indev(table),
            leads,
            link: table
                .parsed("link", "a hash table like \"42:\"", hash_handle)
                .filter(|&link| link != 0),
            bucket: table
                .parsed("hashkey", BUCKET_FORM, bucket_key)
                .unwrap_or_default(),
            offset: table
                .parsed("offset", OFFSET_FORM, offset)
                .unwrap_or_default(),
        }),
        "basic" => FilterKind::Basic(
            table
                .parsed("match", ematch::FORM, ematch::read)
                .unwrap_or_default(),
        ),
        _ => FilterKind::Flower(flower::read(table, protocol)?),
    })
}

const BUCKET_FORM: &str = "a key like \"mask 0x0000ff00 at 12\"";
const OFFSET_FORM: &str = "an offset like \"at 0 mask 0x0f00 shift 6\"";

/// tc's `hashkey`.
fn bucket_key(text: &str) -> Option<BucketKey> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mask, at) = match *words {
        ["mask", mask] => (mask, "0"),
        ["mask", mask, "at", at] => (mask, at),
        _ => return None,
    };
    Some(BucketKey {
        at: at.parse().ok()?,
        mask: hex(mask)?,
    })
}

/// tc's `offset`.
fn offset(text: &str) -> Option<Offset> {
    let mut offset = Offset::default();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "plus" => {
                offset.is_on = true;
                offset.plus = number(words.next()?)?.try_into().ok()?;
            }
            "at" => {
                offset.is_variable = true;
                offset.at = words.next()?.parse().ok()?;
            }
            "mask" => offset.mask = hex(words.next()?)?.try_into().ok()?,
            "shift" => offset.shift = number(words.next()?)?.try_into().ok()?,
            "eat" => offset.eat = true,
            _ => return None,
        }
    }
    Some(offset)
}

fn keys(table: &Table<'_>) -> Vec<Key> {
    const FORM: &str = "a key like \"u32 0x0a000000 0xff000000 at 12\"";
    let Some(item) = table.find("match") else {
        return Vec::new();
    };
    let read = |item: Item<'_>| {
        let Some(text) = item.as_text() else {
            return item.problem(format!("is {}; give {FORM}", item.is()));
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        key(&words, hex).or_else(|| item.problem(format!("{text:?} is not {FORM}")))
    };
    let items = item.as_list().unwrap_or_else(|| vec![item]);
    items.into_iter().filter_map(read).collect()
}

#[cfg(test)]
pub(super) mod tests;
