//! `[[fdb]]`: stations behind ports, as `bridge fdb` sets them.

use std::collections::{HashMap, HashSet};

use softnet::wire::EthernetAddress;
use softnet_engine::BridgeSpec;
use softnet_engine::FdbSpec;
use softnet_engine::forward::FdbState;
use softnet_tc::Unset::{Required, Value, Words};

use super::address::MAC;
use super::form::{Flag, Maybe, Word};
use super::key::{self, Key, keys, names};
use super::link::Named;
use super::port::Port;
use super::table::Table;
use super::vlans::VLAN;
use super::write::Writer;

pub(super) static FDB: &[Key<FdbSpec>] = keys! { FdbSpec =>
    /// its Ethernet address, of which a bridge has one entry in each VLAN
    "address": Required("it", "\"02:00:00:00:00:07\""), "\"x\"" => MAC, |f| Some(&mut f.address);
    /// the port that it is behind, a member of a bridge
    "port": Required("it", "\"p\""), "\"x\"";
    /// its VLAN, in a bridge with `vlan_filtering`; other bridges use only entries without one
    "vlan": Words("no VLAN"), "2" => Maybe(VLAN), |f| Some(&mut f.vlan);
    /// `"static"`; or `"permanent"`: the address is the bridge's own, and what is sent there is
    /// dropped
    "state": Value, "\"dynamic\""
        => Word(&[("static", FdbState::Static), ("permanent", FdbState::Permanent)], |other| {
            format!("there is no state {other:?}; use static or permanent")
        }),
        |f| Some(&mut f.state);
    /// whether the entry stays at its port when frames come from elsewhere
    "sticky": Value, "1" => Flag, |f| Some(&mut f.sticky);
};

pub(super) const BLANK: FdbSpec = FdbSpec {
    address: EthernetAddress([0; 6]),
    vlan: None,
    state: FdbState::Static,
    sticky: false,
};

/// Adds the stations to the ports that they are behind. `all` says that all members of bridges
/// could be read.
pub(super) fn read(
    tables: &[Table<'_>],
    ports: &mut [Port],
    index: &Named<'_>,
    bridges: &[BridgeSpec],
    all: bool,
) {
    let bridges: HashMap<&str, &BridgeSpec> = bridges
        .iter()
        .map(|bridge| (bridge.settings.name.as_str(), bridge))
        .collect();
    let mut seen = HashSet::new();
    for table in tables {
        let before = table.source.errors();
        table.known(&names(FDB).collect::<Vec<_>>(), |_| "");
        let mut station = BLANK;
        key::read(FDB, table, &mut station, None);
        if station.sticky && station.state == FdbState::Permanent {
            let text = "a permanent entry cannot be sticky; remove one of both";
            table.problem::<()>("sticky", text);
        }
        let name = table.find("port");
        let Some(name) = name.and_then(|item| item.port(&|name| index.contains_key(name))) else {
            continue;
        };
        let port = &mut ports[index[name]];
        let Some(bridge) = port
            .master
            .as_deref()
            .and_then(|master| bridges.get(master))
        else {
            if all {
                let text =
                    format!("port {name:?} is in no bridge; list it in one, or remove this");
                table.problem::<()>("port", text);
            }
            continue;
        };
        if let Some(vlan) = station.vlan {
            let has = match &port.member.vlans {
                Some(vlans) => vlans.contains(vlan),
                None => bridge.options.default_pvid == Some(vlan),
            };
            if !has {
                let text = format!("port {name:?} is not in VLAN {vlan}; add it to its vlans");
                table.problem::<()>("vlan", text);
            }
        }
        if table.source.errors() > before {
            continue;
        }
        if !seen.insert((&bridge.settings.name, station.address, station.vlan)) {
            let text = "is there already; a station is at one port of a bridge";
            table.problem::<()>("address", text);
        }
        port.member.stations.push(station);
    }
    for port in ports {
        let stations = &mut port.member.stations;
        stations.sort_unstable_by_key(|station| (station.vlan, station.address));
    }
}

pub(super) fn write(w: &mut Writer, port: &Port) {
    for station in &port.member.stations {
        w.table("[[fdb]]");
        w.put("address", station.address.to_string());
        w.put("port", port.settings.name.as_str());
        let default = FdbSpec {
            address: station.address,
            ..BLANK
        };
        key::write(w, FDB, station, Some(&default));
    }
}
