//! Rates that ports share: `[[rate_group]]`.

use std::collections::BTreeMap;

use softnet_tc::Unset::{Required, Words};
use softnet_tc::rate::{GroupSpec, RateSpec};
use softnet_tc::units::MAX_RATE;

use super::form::{Form, Size, int};
use super::key::{self, Key, keys, names};
use super::table::Table;
use super::units;
use super::write::Writer;

/// Bytes of the longest packet of a port as it comes, with a VLAN tag.
const FRAME: u64 = 1518;
/// By default a bucket holds what passes in a second, divided by this: 10 ms, two time slices of
/// a busy CPU.
const DEFAULT_BURST: u64 = 100;
/// Rates and buckets, of bytes or packets.
const MOST: u64 = MAX_RATE;

pub(super) static RATE_GROUP: &[Key<GroupSpec>] = keys! { GroupSpec =>
    /// its name
    "name": Required("it", "\"a\""), "\"\"";
    /// a rate in wire bytes, Ethernet headers included
    "rate": Words("any"), "\"50%\"";
    /// a size; what may pass at once
    "burst": Words("what `rate` lets pass in 10 ms, at least 10 packets of 1518 bytes"), "\"1k\"";
    /// wire packets a second
    "pps": Words("any number"), "0";
    /// packets that may pass at once
    "pps_burst": Words("what `pps` lets pass in 10 ms, at least 10"), "0";
};

/// The groups of a file.
pub(super) fn read(tables: &[Table<'_>]) -> BTreeMap<String, GroupSpec> {
    let mut groups = BTreeMap::new();
    for table in tables {
        table.known(&names(RATE_GROUP).collect::<Vec<_>>(), |_| "");
        let mut group = GroupSpec {
            bytes: bytes(table),
            packets: packets(table),
        };
        key::read(RATE_GROUP, table, &mut group, None);
        if !table.has("rate") && !table.has("pps") {
            let text = "limits nothing; give it a rate, or pps";
            table.problem::<()>("name", text);
        }
        let name = table.find("name");
        let Some((item, name)) = name.and_then(|item| Some((item, item.text()?))) else {
            continue;
        };
        if name.is_empty() || groups.insert(name.to_owned(), group).is_some() {
            item.problem::<()>("a group needs a name that no other has");
        }
    }
    groups
}

fn bytes(table: &Table<'_>) -> Option<RateSpec> {
    let Some(item) = table.find("rate") else {
        return alone(table, "burst", "rate");
    };
    let rate = item.text().and_then(|text| match units::rate(text) {
        Ok(rate @ 1..=MOST) => Some(rate),
        Ok(_) => item.problem("is out of range; use 8bit to 8tbit"),
        Err(error) => item.problem(error.to_string()),
    });
    const BURST: Size = Size(FRAME, 1 << 40, "1518 bytes, one packet, to 1 TiB");
    let burst = match table.find("burst") {
        None => rate.map(|rate| (rate / DEFAULT_BURST).max(10 * FRAME)),
        Some(burst) => BURST.read(burst),
    };
    Some(RateSpec {
        rate: rate?,
        burst: burst?,
        unit: FRAME,
    })
}

fn packets(table: &Table<'_>) -> Option<RateSpec> {
    let Some(item) = table.find("pps") else {
        return alone(table, "pps_burst", "pps");
    };
    let rate: Option<u64> = item.number(1, MOST as i64);
    let burst = match table.find("pps_burst") {
        None => rate.map(|rate| (rate / DEFAULT_BURST).max(10)),
        Some(burst) => burst.number(1, MOST as i64),
    };
    Some(RateSpec {
        rate: rate?,
        burst: burst?,
        unit: 1,
    })
}

/// A bucket without a rate.
fn alone<T>(table: &Table<'_>, key: &str, rate: &str) -> Option<T> {
    let item = table.find(key)?;
    item.problem(format!(
        "has no effect without {rate}; remove it or add {rate}"
    ))
}

pub(super) fn write(w: &mut Writer, name: &str, group: &GroupSpec) {
    w.table("[[rate_group]]");
    w.put("name", name);
    if let Some(bytes) = &group.bytes {
        w.put("rate", format!("{}bit", bytes.rate.saturating_mul(8)));
        w.put("burst", format!("{}b", bytes.burst));
    }
    if let Some(packets) = &group.packets {
        w.put("pps", int(packets.rate));
        w.put("pps_burst", int(packets.burst));
    }
}
