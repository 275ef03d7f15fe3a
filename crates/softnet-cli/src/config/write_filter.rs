//! Filters as tables.

use std::ops::RangeInclusive;

use softnet_tc::{
    Action, Compare, ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, Ematch, FilterKind, FilterList, FilterSpec,
    Flower, Handle, Key, Layer, MetaId, Side, Test, TreeSpec, Width,
};
use toml::Value;

use super::form::int;
use super::write::Writer;

/// All filters of a tree, in an order in which they are tried again as they are.
pub(super) fn filters(w: &mut Writer, prefix: &str, tree: &TreeSpec) {
    all(w, prefix, tree.filters().collect());
}

/// All filters of a block.
pub(super) fn of_block(w: &mut Writer, list: &FilterList) {
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
    // A table of u32 is the next one for each priority.
    priorities.sort_by_key(|priority| match priority[0].kind {
        FilterKind::U32(_) => priority[0].handle >> 20,
        _ => 0,
    });
    for filter in priorities.into_iter().flatten() {
        w.table(&format!("[[{prefix}filter]]"));
        self::filter(w, filter);
    }
}

fn filter(w: &mut Writer, filter: &FilterSpec) {
    match filter.parent {
        parent if parent == Handle::NONE => {}
        parent if parent == Side::Ingress.parent() => w.put("parent", "ingress"),
        parent if parent == Side::Egress.parent() => w.put("parent", "egress"),
        parent => w.put("parent", parent.to_string()),
    }
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
        FilterKind::U32(u32) => {
            // The table is the priority's, and not chosen by a filter.
            w.put("handle", format!("::{:x}", handle & 0xfff));
            if !u32.keys.is_empty() {
                w.put("match", u32.keys.iter().map(key).collect::<Vec<_>>());
            }
            if let Some(mark) = u32.mark {
                w.put("mark", masked(mark));
            }
        }
        FilterKind::Basic(ematches) => {
            w.put("handle", int(handle));
            if !ematches.is_empty() {
                w.put("match", self::ematches(ematches));
            }
        }
        FilterKind::Matchall => w.put("handle", int(handle)),
        FilterKind::Fw { mask } => w.put("handle", masked((handle, *mask))),
    }
    let own = filter
        .class
        .filter(|class| class.qdisc() == filter.parent.qdisc());
    match own {
        Some(class) => w.put("flowid", class.to_string()),
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
    format!("u32 {:#x} {:#x} at {}", key.value, key.mask, key.at)
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
