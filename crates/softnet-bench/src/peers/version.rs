//! Which version of a peer was measured.

use std::collections::HashMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::{process, switches};

/// The crates in use, with their versions.
const LOCK: &str = include_str!("../../../../Cargo.lock");

/// Adds `version` to the rows of peers, skipped ones too, and `setting` to those of DPDK.
pub(crate) fn add_to(report: &mut Value) {
    let mut known: HashMap<String, Option<String>> = HashMap::new();
    let rows = report["rows"].as_array_mut();
    for row in rows.into_iter().flatten() {
        let Some(variant) = row["variant"].as_str().map(str::to_owned) else {
            continue;
        };
        if is_dpdk(&variant) && row.get("skipped").is_none() {
            // They choose no size of cache.
            row["setting"] = match variant.as_str() {
                "dpdk-vhost" | "testpmd-af-xdp" => json!(super::dpdk::pages()),
                _ => json!(format!(
                    "{}; for each figure the best size of cache",
                    super::dpdk::pages()
                )),
            };
        }
        let version = known.entry(variant).or_insert_with_key(|v| of(v));
        if let Some(version) = version {
            row["version"] = json!(version);
        }
    }
}

/// True of what is part of DPDK.
fn is_dpdk(variant: &str) -> bool {
    ["dpdk", "testpmd"].iter().any(|of| variant.starts_with(of))
}

/// The version behind a variant's name; none if it is not a peer, or not there.
fn of(variant: &str) -> Option<String> {
    match variant {
        "ovs" => switches::OpenVswitch::Stock.version(),
        "ovs-tso" => switches::OpenVswitch::SegmentationOffload.version(),
        "kernel" | "kernel-bridge" => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
            Some(release.trim().to_owned())
        }
        "malloc" => {
            let printed = process::output(Command::new("getconf").arg("GNU_LIBC_VERSION"));
            Some(printed.ok()?.trim().to_owned())
        }
        "mimalloc" => locked("libmimalloc-sys"),
        "jemalloc" => locked("tikv-jemalloc-sys"),
        "snmalloc" => locked("snmalloc-sys"),
        "crossbeam" => locked("crossbeam-channel"),
        _ if is_dpdk(variant) => super::dpdk::version(),
        _ => None,
    }
}

/// The version of a crate, with its name: those of allocators are not their libraries'.
fn locked(name: &str) -> Option<String> {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = LOCK.split_once(&entry)?;
    let (version, _) = rest.split_once('"')?;
    Some(format!("{name} {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_peers_say_their_version() {
        let mut report = json!({"rows": [
            {"variant": "softnet", "mpps": 1},
            {"variant": "mimalloc", "mpps": 1},
            {"variant": "kernel-bridge", "skipped": "no root"},
            {"variant": "testpmd-af-xdp", "udp_pps": 1},
        ]});
        add_to(&mut report);
        assert!(report["rows"][0].get("version").is_none());
        let setting = report["rows"][3]["setting"].as_str();
        assert!(setting.is_some_and(|text| text.starts_with("pages") && !text.contains("cache")));
        let version = |row: usize| report["rows"][row]["version"].as_str();
        assert!(version(1).is_some_and(|text| text.starts_with("libmimalloc-sys 0.")));
        assert_eq!(version(2), of("kernel").as_deref());
        assert!(version(2).is_some());
    }
}
