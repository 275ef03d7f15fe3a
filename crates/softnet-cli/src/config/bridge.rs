//! `[[bridge]]`: a learning switch, and its members.

use std::time::Duration;

use softnet_engine::{BRIDGE_MTUS, BridgeSpec, FDB_SIZES};
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
const AGEING_MAX: Duration = Duration::from_millis(u32::MAX as u64 * 10);

pub(super) static BRIDGE: &[Key<BridgeSpec>] = keys! { BridgeSpec =>
    /// its name, as of a port
    "name": Required("it", "\"br0\""), "\"p\"";
    /// its Ethernet address
    "mac": Words("random"), "\"01:00:5e:00:00:01\""
        => Maybe(MAC), |b| Some(&mut b.settings.address);
    /// longest IP packet in bytes, 68 to 65535
    "mtu": Value, "67"
        => Number(BRIDGE_MTUS.0 as i64, BRIDGE_MTUS.1 as i64), |b| Some(&mut b.settings.mtu);
    /// list of ports; a port is in one bridge at most
    "ports": Words("`[]`"), "[\"x\"]";
    /// whether frames pass only between ports of their VLAN
    "vlan_filtering": Value, "1"
        => Flag, |b| Some(&mut b.options.vlan_filtering);
    /// the VLAN of ports, and of the bridge, that are told nothing of VLANs; 0: none
    "vlan_default_pvid": Value, "4095"
        => ZeroIsNone(Number(0, 4094)), |b| Some(&mut b.options.default_pvid);
    /// how long an address is known from which no frame comes
    "ageing_time": Value, "\"60000000s\""
        => Time(AGEING_MAX, "0s to 42949672.95s"), |b| Some(&mut b.options.ageing_time);
    /// whether frames to a group go only to its members and to multicast routers, as long as
    /// somebody queries (ip-link(8), as the following)
    "mcast_snooping": Value, "0"
        => Flag, |b| Some(&mut b.options.multicast.snooping);
    /// whether the bridge queries, while no other querier is heard
    "mcast_querier": Value, "0"
        => Flag, |b| Some(&mut b.options.multicast.querier);
    /// how many groups the bridge can know
    "mcast_hash_max": Value, "-1"
        => Number(0, u32::MAX as i64), |b| Some(&mut b.options.multicast.hash_max);
    /// version of IGMP, 2 or 3; from 3 on, sources count
    "mcast_igmp_version": Value, "4"
        => Number(2, 3), |b| Some(&mut b.options.multicast.igmp_version);
    /// version of MLD, 1 or 2; from 2 on, sources count
    "mcast_mld_version": Value, "3"
        => Number(1, 2), |b| Some(&mut b.options.multicast.mld_version);
    /// queries for a group that somebody has left
    "mcast_last_member_count": Value, "-1"
        => Number(0, u32::MAX as i64), |b| Some(&mut b.options.multicast.last_member_count);
    /// first queries, `mcast_startup_query_interval` apart
    "mcast_startup_query_count": Value, "-1"
        => Number(0, u32::MAX as i64), |b| Some(&mut b.options.multicast.startup_query_count);
    /// time between queries for a group that somebody has left, from 0.1 s on
    "mcast_last_member_interval": Value, "\"60000000s\""
        => LONG, |b| Some(&mut b.options.multicast.last_member_interval);
    /// time for which a report counts
    "mcast_membership_interval": Value, "\"60000000s\""
        => LONG, |b| Some(&mut b.options.multicast.membership_interval);
    /// time for which another querier, or a router, counts after it was heard
    "mcast_querier_interval": Value, "\"60000000s\""
        => LONG, |b| Some(&mut b.options.multicast.querier_interval);
    /// time between two queries, from 1 s on
    "mcast_query_interval": Value, "\"60000000s\""
        => LONG, |b| Some(&mut b.options.multicast.query_interval);
    /// time in which hosts answer
    "mcast_query_response_interval": Value, "\"60000000s\""
        => LONG, |b| Some(&mut b.options.multicast.query_response_interval);
    /// time between the first queries of a querier, from 1 s on
    "mcast_startup_query_interval": Value, "\"60000000s\""
        => LONG, |b| Some(&mut b.options.multicast.startup_query_interval);
    /// about how many addresses it can learn; its table takes 64 to 128 bytes for each
    "fdb_max_learned": Value, "0"
        => Number(*FDB_SIZES.start() as _, *FDB_SIZES.end() as _),
        |b| Some(&mut b.options.fdb_max_learned);
};

const LONG: Time = Time(AGEING_MAX, "0s to 42949672.95s");

/// A VLAN, or 0 for none.
struct ZeroIsNone(Number);

impl Form<Option<u16>> for ZeroIsNone {
    fn schema(&self) -> serde_json::Value {
        Form::<u16>::schema(&self.0)
    }

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
