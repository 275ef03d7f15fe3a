//! `[[bridge]]`: a learning switch, and its members.

use std::time::Duration;

use softnet_engine::BridgeSpec;
use softnet_tc::Unset::{Required, Value, Words};

use super::address::MAC;
use super::form::{Flag, Form, Maybe, Number, Time};
use super::key::{self, Key, keys, names};
use super::link::{self, LINK, Named, Names};
use super::port::Port;
use super::table::{Item, Table};
use super::vlans::{self, VLANS};
use super::write::Writer;

/// `ip` gives it in hundredths of a second, in 32 bits.
const AGEING_MAX: Duration = Duration::from_secs(u32::MAX as u64 / 100);

pub(super) static BRIDGE: &[Key<BridgeSpec>] = keys! { BridgeSpec =>
    /// its name, as of a port
    "name": Required("it", "\"br0\""), "\"p\"";
    /// its Ethernet address
    "mac": Words("random"), "\"01:00:5e:00:00:01\""
        => Maybe(MAC), |b| Some(&mut b.settings.address);
    /// list of ports; a port is in one bridge at most
    "ports": Words("`[]`"), "[\"x\"]";
    /// whether frames pass only between ports of their VLAN
    "vlan_filtering": Value, "1"
        => Flag, |b| Some(&mut b.options.vlan_filtering);
    /// the VLAN of ports, and of the bridge, that are told nothing of VLANs; 0: none
    "vlan_default_pvid": Value, "4095"
        => ZeroIsNone(Number(0, 4094)), |b| Some(&mut b.options.default_pvid);
    /// how long an address is known that no frame comes from
    "ageing_time": Value, "\"60000000s\""
        => Time(AGEING_MAX, "0s to 42949672s"), |b| Some(&mut b.options.ageing_time);
};

/// A VLAN, or 0 for none.
struct ZeroIsNone(Number);

impl Form<Option<u16>> for ZeroIsNone {
    fn read(&self, item: Item<'_>) -> Option<Option<u16>> {
        self.0.read(item).map(|vlan| (vlan != 0).then_some(vlan))
    }

    fn write(&self, value: &Option<u16>) -> Option<toml::Value> {
        self.0.write(&value.unwrap_or(0))
    }
}

/// All keys of the table.
pub(super) fn key_names() -> Vec<&'static str> {
    let own = names(BRIDGE).chain(names(LINK));
    own.chain(names(VLANS)).collect()
}

/// Reads a bridge. Its ports get to know it.
pub(super) fn read<'a>(
    table: &'a Table<'_>,
    names: &mut Names<'a>,
    index: &Named<'_>,
    ports: &mut [Port],
) -> BridgeSpec {
    table.known(&key_names(), |_| "");
    let mut bridge = BridgeSpec::default();
    key::read(BRIDGE, table, &mut bridge, None);
    link::read(table, "bridge", names, &mut bridge.settings);
    bridge.vlans = vlans::read(table);
    let members = table.find("ports").and_then(|item| item.list());
    for item in members.into_iter().flatten() {
        let Some(name) = item.port(&|name| index.contains_key(name)) else {
            continue;
        };
        let own = &bridge.settings.name;
        if let Some(other) = ports[index[name]].master.replace(own.clone()) {
            let text = match other == *own {
                true => format!("port {name:?} is listed twice; remove one"),
                false => format!(
                    "port {name:?} is in bridge {other:?} already; a port can be in one bridge"
                ),
            };
            item.problem::<()>(text);
        }
    }
    bridge
}

pub(super) fn write(w: &mut Writer, bridge: &BridgeSpec, ports: &[Port]) {
    let BridgeSpec {
        settings,
        options: _,
        vlans,
    } = bridge;
    let name = settings.name.as_str();
    w.table("[[bridge]]");
    w.put("name", name);
    let default = BridgeSpec::default();
    key::write(w, BRIDGE, bridge, Some(&default));
    key::write(w, LINK, settings, Some(&default.settings));
    vlans::write(w, vlans.as_ref());
    let members = ports
        .iter()
        .filter(|port| port.master.as_deref() == Some(name));
    let names = members.map(|port| port.settings.name.clone());
    w.put("ports", names.collect::<Vec<_>>());
}
