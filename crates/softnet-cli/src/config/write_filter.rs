//! Filters as tables.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use softnet_tc::{
    Action, BucketKey, ChainTemplate, Compare, ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, Ematch,
    FilterKind, FilterList, FilterSpec, Flower, Handle, Indev, Key, Layer, MetaId, Offset, Side,
    Test, TreeSpec, Width,
};
use toml::Value;

use super::form::int;
use super::write::Writer;

/// All filters of a tree, in an order in which they are tried again as they are.
pub(super) fn filters(w: &mut Writer, prefix: &str, tree: &TreeSpec) {
    chains(w, prefix, tree.kept_chains());
    all(w, prefix, tree.filters().collect());
}

/// Chains that stay without filters, which come before filters that would make them.
fn chains<'a>(
    w: &mut Writer,
    prefix: &str,
    kept: impl Iterator<Item = (Handle, u32, Option<&'a ChainTemplate>)>,
) {
    for (of, chain, template) in kept {
        w.table(&format!("[[{prefix}filter]]"));
        parent(w, of);
        w.put("chain", int(chain));
        w.put("kind", "chain");
        if let Some(ChainTemplate {
            protocol: of,
            flower: bits,
        }) = template
        {
            w.put("template", "flower");
            w.put("protocol", protocol(*of));
            flower(w, bits);
        }
    }
}

fn parent(w: &mut Writer, parent: Handle) {
    match parent {
        parent if parent == Handle::NONE => {}
        parent if parent == Side::Ingress.parent() => w.put("parent", "ingress"),
        parent if parent == Side::Egress.parent() => w.put("parent", "egress"),
        parent => w.put("parent", parent.to_string()),
    }
}

/// All filters of a block.
pub(super) fn of_block(w: &mut Writer, list: &FilterList) {
    let kept = list.kept_chains();
    let kept = kept.map(|(chain, template)| (Handle::NONE, chain, template));
    chains(w, "block.", kept);
    all(w, "block.", list.iter().collect());
}

fn all(w: &mut Writer, prefix: &str, filters: Vec<&FilterSpec>) {
    let is_same = |a: &&FilterSpec, b: &&FilterSpec| {
        (a.parent, a.chain, a.prio) == (b.parent, b.chain, b.prio)
    };
    let mut priorities: Vec<Vec<&FilterSpec>> =
        filters.chunk_by(is_same).map(<[_]>::to_vec).collect();
    for priority in &mut priorities {
        // The one that was added last is tried first.
        if matches!(priority[0].kind, FilterKind::Basic(_)) {
            priority.reverse();
        }
    }
    let tables = priorities.iter().flatten();
    let tables = tables.filter(|filter| matches!(filter.kind, FilterKind::U32Table { .. }));
    let tables: BTreeSet<_> = tables
        .map(|table| (table.parent, table.handle >> 20))
        .collect();
    let is_added = |filter: &FilterSpec| tables.contains(&(filter.parent, filter.handle >> 20));
    // The table that u32 starts in is the next one for each priority.
    priorities.sort_by_key(|priority| {
        let mut roots = priority.iter().filter(|filter| !is_added(filter));
        roots.next().map_or(0, |first| match first.kind {
            FilterKind::U32(_) => first.handle >> 20,
            _ => 0,
        })
    });
    for mut filter in priorities.into_iter().flatten().cloned() {
        w.table(&format!("[[{prefix}filter]]"));
        if !is_added(&filter)
            && let FilterKind::U32(_) = filter.kind
        {
            // It is the priority's, and not chosen by a filter.
            filter.handle &= 0xfffff;
        }
        if let FilterKind::U32(of) = &mut filter.kind
            && let Some(link) = of.link
            && !tables.contains(&(filter.parent, link >> 20))
        {
            of.link = None;
        }
        self::filter(w, &filter);
    }
}

fn filter(w: &mut Writer, filter: &FilterSpec) {
    parent(w, filter.parent);
    if filter.chain != 0 {
        w.put("chain", int(filter.chain));
    }
    w.put("prio", int(filter.prio));
    w.put("protocol", protocol(filter.protocol));
    w.put("kind", filter.kind.name());
    let handle = filter.handle;
    match &filter.kind {
        FilterKind::Flower(flower) => {
            w.put("handle", int(handle));
            self::flower(w, flower);
        }
        FilterKind::U32Table { buckets } => {
            w.put("handle", hash_handle(handle));
            w.put("divisor", int(*buckets));
        }
        FilterKind::U32(u32) => {
            w.put("handle", hash_handle(handle));
            if !u32.keys.is_empty() {
                w.put("match", u32.keys.iter().map(key).collect::<Vec<_>>());
            }
            if let Some(mark) = u32.mark {
                w.put("mark", masked(mark));
            }
            indev(w, u32.indev.as_ref());
            if u32.link.is_some() || u32.leads {
                w.put("link", hash_handle(u32.link.unwrap_or(0)));
            }
            if u32.bucket != BucketKey::default() {
                let BucketKey { at, mask } = u32.bucket;
                w.put("hashkey", format!("mask {mask:#x} at {at}"));
            }
            if u32.offset != Offset::default() {
                w.put("offset", offset(&u32.offset));
            }
        }
        FilterKind::Basic(ematches) => {
            w.put("handle", int(handle));
            if !ematches.is_empty() {
                w.put("match", self::ematches(ematches));
            }
        }
        FilterKind::Matchall => w.put("handle", int(handle)),
        FilterKind::Fw { mask, indev } => {
            w.put("handle", masked((handle, *mask)));
            self::indev(w, indev.as_ref());
        }
        FilterKind::U32Root | FilterKind::FwClass => {}
    }
    let leads = match &filter.kind {
        FilterKind::U32(of) => of.leads,
        FilterKind::U32Table { .. } | FilterKind::U32Root | FilterKind::FwClass => true,
        _ => false,
    };
    let own = filter
        .class
        .filter(|class| class.qdisc() == filter.parent.qdisc());
    match own {
        Some(class) => w.put("flowid", class.to_string()),
        None if leads => {}
        // It leads nowhere, and so does the qdisc itself.
        None if filter.actions.is_empty() => {
            w.put("flowid", filter.parent.qdisc().to_string());
        }
        None => {}
    }
    let actions: Vec<String> = filter.actions.as_slice().iter().map(action).collect();
    match &actions[..] {
        [] => {}
        [one] => w.put("action", one.as_str()),
        _ => w.put("action", actions),
    }
}

/// One that several filters have needs its index.
fn action(action: &Action) -> String {
    let mut spec = action.spec().clone();
    if action.references() > 1 {
        spec.index = action.index();
    }
    spec.to_string()
}

fn protocol(protocol: u16) -> Value {
    match protocol {
        ETH_P_ALL => "all".into(),
        ETH_P_IP => "ip".into(),
        ETH_P_IPV6 => "ipv6".into(),
        other => format!("{other:#06x}").into(),
    }
}

/// `TABLE:BUCKET:NODE`, in hexadecimal, without what is 0.
fn hash_handle(handle: u32) -> String {
    let part = |n: u32| match n {
        0 => String::new(),
        n => format!("{n:x}"),
    };
    let (bucket, node) = (handle >> 12 & 0xff, handle & 0xfff);
    match (handle >> 20, bucket, node) {
        (table, 0, 0) => format!("{table:x}:"),
        (table, ..) => format!("{}:{}:{}", part(table), part(bucket), part(node)),
    }
}

fn offset(of: &Offset) -> String {
    let mut words = Vec::new();
    if of.is_on || of.plus != 0 {
        words.push(format!("plus {}", of.plus));
    }
    if of.is_variable {
        words.push(format!("at {}", of.at));
    }
    if of.mask != 0 {
        words.push(format!("mask {:#x}", of.mask));
    }
    if of.shift != 0 {
        words.push(format!("shift {}", of.shift));
    }
    if of.eat {
        words.push("eat".to_owned());
    }
    words.join(" ")
}

fn indev(w: &mut Writer, indev: Option<&Indev>) {
    if let Some(indev) = indev {
        w.put("indev", indev.name());
    }
}

fn masked((value, mask): (u32, u32)) -> String {
    format!("{value:#x}/{mask:#x}")
}

fn flower(w: &mut Writer, flower: &Flower) {
    let ports = |ports: &RangeInclusive<u16>| format!("{}-{}", ports.start(), ports.end());
    let keys = [
        ("vlan_id", flower.vlan_id.map(int)),
        ("vlan_prio", flower.vlan_prio.map(int)),
        ("vlan_ethtype", flower.vlan_ethtype.map(protocol)),
        (
            "src_ip",
            flower.src_ip.map(|prefix| prefix.to_string().into()),
        ),
        (
            "dst_ip",
            flower.dst_ip.map(|prefix| prefix.to_string().into()),
        ),
        ("ip_proto", flower.ip_proto.map(int)),
        (
            "ip_tos",
            flower
                .ip_tos
                .map(|(value, mask)| format!("{value:#x}/{mask:#x}").into()),
        ),
        (
            "src_port",
            flower.src_port.as_ref().map(|range| ports(range).into()),
        ),
        (
            "dst_port",
            flower.dst_port.as_ref().map(|range| ports(range).into()),
        ),
        ("mark", flower.mark.map(|mark| masked(mark).into())),
        ("indev", flower.indev.as_ref().map(|of| of.name().into())),
    ];
    for (key, value) in keys {
        if let Some(value) = value {
            w.put(key, value);
        }
    }
    for of in &flower.fields {
        w.put(of.field.name(), of.to_string());
    }
}

fn key(key: &Key) -> String {
    let next = if key.next == 0 { "" } else { "nexthdr+" };
    format!("u32 {:#x} {:#x} at {next}{}", key.value, key.mask, key.at)
}

fn ematches(list: &[Ematch]) -> String {
    let mut text = String::new();
    for (n, ematch) in list.iter().enumerate() {
        text.push_str(&self::ematch(ematch));
        if n + 1 < list.len() {
            text.push_str(if ematch.or { " or " } else { " and " });
        }
    }
    text
}

fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Link => "link",
        Layer::Network => "network",
        Layer::Transport => "transport",
    }
}

fn ematch(ematch: &Ematch) -> String {
    let not = if ematch.negated { "not " } else { "" };
    let test = match &ematch.test {
        Test::Cmp {
            width,
            at,
            layer,
            mask,
            compare,
            value,
            trans,
        } => {
            let width = match width {
                Width::One => "u8",
                Width::Two => "u16",
                Width::Four => "u32",
            };
            let layer = self::layer(*layer);
            let trans = if *trans { " trans" } else { "" };
            let mask = match mask {
                0 => String::new(),
                mask => format!(" mask {mask:#x}"),
            };
            format!(
                "cmp({width} at {at} layer {layer}{mask}{trans} {} {value})",
                word(*compare)
            )
        }
        Test::Bytes { at, layer, needle } => {
            let digits: String = needle.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("nbyte(0x{digits} at {at} layer {})", self::layer(*layer))
        }
        Test::Group(inner) => format!("({})", ematches(inner)),
        Test::Meta {
            id,
            shift,
            mask,
            compare,
            value,
        } => {
            let known = MetaId::ALL.iter().find(|(of, ..)| of == id);
            let name = known.map_or("", |(.., name)| name);
            let shift = match shift {
                0 => String::new(),
                shift => format!(" shift {shift}"),
            };
            let mask = match mask {
                0 => String::new(),
                mask => format!(" mask {mask:#x}"),
            };
            format!("meta({name}{shift}{mask} {} {value})", word(*compare))
        }
        Test::Word(word) => format!("u32({})", key(word)),
        Test::Priority(compare, value) => format!("meta(priority {} {value})", word(*compare)),
        Test::Mark {
            mask,
            compare,
            value,
        } => format!("meta(nf_mark mask {mask:#x} {} {value})", word(*compare)),
    };
    format!("{not}{test}")
}

fn word(compare: Compare) -> &'static str {
    match compare {
        Compare::Eq => "eq",
        Compare::Lt => "lt",
        Compare::Gt => "gt",
    }
}
