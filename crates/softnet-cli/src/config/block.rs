//! Filters that hooks of ports share: `[[block]]`.

use std::collections::BTreeMap;

use softnet_engine::Spec;
use softnet_io::DeviceSpec;
use softnet_tc::Unset::{Required, Words};
use softnet_tc::{FilterList, FilterOp, QdiscSpec, Side};

use super::filter;
use super::form::int;
use super::key::{Key, keys, names};
use super::port::Port;
use super::table::Table;
use super::write::Writer;
use super::write_filter;

pub(super) static BLOCK: &[Key<FilterList>] = keys! { FilterList =>
    /// its number, 1 to 4294967295, by which `clsact` and `ingress` name it
    "index": Required("it", "7"), "0";
    /// list of tables (`[[block.filter]]`): its filters, as [`[[port.filter]]`](#filter) without
    /// `parent`
    "filter": Words("`[]`"), "[{ kind = \"u33\" }]";
};

/// The blocks of a file, each of which a hook must have.
pub(super) fn read(tables: &[Table<'_>], links: &Spec<DeviceSpec>) -> BTreeMap<u32, FilterList> {
    let used = used(links);
    let mut blocks: BTreeMap<u32, FilterList> = used
        .iter()
        .map(|&index| (index, FilterList::default()))
        .collect();
    let mut known = Vec::new();
    for table in tables {
        table.known(&names(BLOCK).collect::<Vec<_>>(), |_| "");
        let mut list = FilterList::default();
        let filters = table.tables("filter");
        let mut links = Vec::new();
        for table in &filters {
            let later = filter::add_to_block(&mut list, table);
            links.extend(later.map(|filter| (table, filter)));
        }
        for (table, filter) in links {
            filter::link(table, list.put(FilterOp::Change, filter));
        }
        let Some(item) = table.find("index") else {
            table.missing::<()>("index", "the number of the block");
            continue;
        };
        let Some(index) = item.number::<u32>(1, i64::from(u32::MAX)) else {
            continue;
        };
        if known.contains(&index) {
            item.problem::<()>("is the number of another block; choose another");
        } else if !used.contains(&index) {
            item.problem::<()>("is the number of no hook's block; remove the block");
        }
        known.push(index);
        blocks.insert(index, list);
    }
    blocks
}

/// Numbers of the blocks that hooks have.
fn used(links: &Spec<DeviceSpec>) -> Vec<u32> {
    links.ports.iter().flat_map(of_port).collect()
}

/// Numbers of the blocks that the hooks of a port have.
pub(crate) fn of_port(port: &Port) -> Vec<u32> {
    let hook = match &port.qdisc {
        QdiscSpec::Tree(tree) => tree.hook(),
        _ => None,
    };
    let hook = hook.into_iter();
    let blocks = hook.flat_map(|hook| Side::ALL.map(|side| hook.side(side).block));
    blocks.filter(|&block| block != 0).collect()
}

pub(super) fn write(w: &mut Writer, index: u32, list: &FilterList) {
    if list.is_empty() {
        return;
    }
    w.table("[[block]]");
    w.put("index", int(index));
    write_filter::of_block(w, list);
}
