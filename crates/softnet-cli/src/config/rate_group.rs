//! Rates that ports share: `[[rate_group]]`.

use std::collections::BTreeMap;

use softnet_tc::rate::{GroupSpec, RateSpec};
use toml::Spanned;

use super::error::Problem;
use super::file::{PortTable, RateGroupTable};
use super::range::number;
use super::units;

/// Bytes of the longest packet of a port as it comes, with a VLAN tag.
const FRAME: u64 = 1518;
/// By default a bucket holds what passes in a second, divided by this: 10 ms, two time slices of
/// a busy CPU.
const DEFAULT_BURST: u64 = 100;
/// Rates and buckets, of bytes or packets.
const MOST: i64 = 1_000_000_000_000;

/// The groups of a file.
pub(super) fn rate_groups(
    tables: &[RateGroupTable],
) -> Result<BTreeMap<String, GroupSpec>, Problem> {
    let mut groups = BTreeMap::new();
    for table in tables {
        let name = table.name.get_ref();
        if name.is_empty() || groups.contains_key(name) {
            let text = "a group needs a name that no other has";
            return Err(Problem::new(table.name.span(), "rate_group.name", text));
        }
        let group = GroupSpec {
            bytes: bytes(table)?,
            packets: packets(table)?,
        };
        groups.insert(name.clone(), group);
        if table.rate.is_none() && table.pps.is_none() {
            let text = "limits nothing; give it a rate, or pps";
            return Err(Problem::new(table.name.span(), "rate_group", text));
        }
    }
    Ok(groups)
}

/// Which group a port is in.
pub(super) fn of_port(
    table: &PortTable,
    groups: &BTreeMap<String, GroupSpec>,
) -> Result<Option<String>, Problem> {
    let Some(name) = &table.rate_group else {
        return Ok(None);
    };
    if !groups.contains_key(name.get_ref()) {
        let text = format!("there is no [[rate_group]] named {:?}", name.get_ref());
        return Err(Problem::new(name.span(), "port.rate_group", text));
    }
    Ok(Some(name.get_ref().clone()))
}

fn bytes(table: &RateGroupTable) -> Result<Option<RateSpec>, Problem> {
    let Some(rate) = &table.rate else {
        return alone("burst", &table.burst, "rate");
    };
    let key = "rate_group.rate";
    let bad = |error: units::UnitError| Problem::new(rate.span(), key, error.to_string());
    let per_second = units::rate(rate.get_ref()).map_err(bad)?;
    if !(1..=MOST as u64).contains(&per_second) {
        let text = "is out of range; use 8bit to 8tbit";
        return Err(Problem::new(rate.span(), key, text));
    }
    let burst = match &table.burst {
        None => (per_second / DEFAULT_BURST).max(10 * FRAME),
        Some(burst) => {
            let key = "rate_group.burst";
            let bad = |error: units::UnitError| Problem::new(burst.span(), key, error.to_string());
            let bytes = units::size(burst.get_ref()).map_err(bad)?;
            if !(FRAME..=1 << 40).contains(&bytes) {
                let text = format!("is out of range; use {FRAME} bytes, one packet, to 1 TiB");
                return Err(Problem::new(burst.span(), key, text));
            }
            bytes
        }
    };
    Ok(Some(RateSpec {
        rate: per_second,
        burst,
        unit: FRAME,
    }))
}

fn packets(table: &RateGroupTable) -> Result<Option<RateSpec>, Problem> {
    let Some(rate) = &table.pps else {
        return alone("pps_burst", &table.pps_burst, "pps");
    };
    let rate: u64 = number("rate_group.pps", rate, (1, MOST))?;
    let burst = match &table.pps_burst {
        None => (rate / DEFAULT_BURST).max(10),
        Some(burst) => number("rate_group.pps_burst", burst, (1, MOST))?,
    };
    Ok(Some(RateSpec {
        rate,
        burst,
        unit: 1,
    }))
}

/// A bucket without a rate.
fn alone<T>(
    key: &str,
    value: &Option<Spanned<T>>,
    rate: &str,
) -> Result<Option<RateSpec>, Problem> {
    match value {
        None => Ok(None),
        Some(value) => {
            let text = format!("has no effect without {rate}; remove it or add {rate}");
            Err(Problem::new(
                value.span(),
                format!("rate_group.{key}"),
                text,
            ))
        }
    }
}
