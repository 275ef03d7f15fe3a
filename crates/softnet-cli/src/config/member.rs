//! A port as a member of a bridge: what the bridge does at it.

use softnet_engine::forward::{BridgePortOptions, McastRouter};
use softnet_tc::Unset::Value;

use super::form::{Flag, Form, Number, int};
use super::key::{Key, keys, names};
use super::port::Port;
use super::table::{Item, Table};
use super::vlans::VLANS;

pub(super) static MEMBER: &[Key<BridgePortOptions>] = keys! { BridgePortOptions =>
    /// no frame passes between this port and another isolated one of its bridge (bridge(8))
    "isolated": Value, "true" => Flag, |m| Some(&mut m.isolated);
    /// frames are taken only from stations that its bridge knows at this port, as from
    /// [`[[fdb]]`](#fdb) or `bridge fdb add ADDRESS dev PORT master static` (bridge(8))
    "locked": Value, "true" => Flag, |m| Some(&mut m.locked);
    /// whether the bridge learns source addresses at the port (bridge(8), as the following four)
    "learning": Value, "false" => Flag, |m| Some(&mut m.learning);
    /// whether frames to stations that the bridge does not know leave here
    "flood": Value, "false" => Flag, |m| Some(&mut m.flood);
    /// whether frames to groups leave here
    "mcast_flood": Value, "false" => Flag, |m| Some(&mut m.mcast_flood);
    /// whether broadcasts leave here
    "bcast_flood": Value, "false" => Flag, |m| Some(&mut m.bcast_flood);
    /// whether frames may leave where they came from
    "hairpin": Value, "true" => Flag, |m| Some(&mut m.hairpin);
    /// whether multicast routers are behind the port (bridge(8)): 0 never, 1 as long as one is
    /// heard, 2 always
    "mcast_router": Value, "3" => MCAST_ROUTER, |m| Some(&mut m.multicast.router);
    /// whether a host that leaves a group was the only member behind the port (bridge(8))
    "fastleave": Value, "true" => Flag, |m| Some(&mut m.multicast.fastleave);
    /// groups that the port may be a member of; further reports have no effect. With 0 it is an
    /// eighth of the bridge's `mcast_hash_max`, and a port that reports more gets all frames to
    /// groups
    "mcast_max_groups": Value, "-1"
        => Number(0, u32::MAX as i64), |m| Some(&mut m.multicast.max_groups);
};

/// A [`McastRouter`] that lasts.
struct McastRouterForm;

impl Form<McastRouter> for McastRouterForm {
    fn schema(&self) -> serde_json::Value {
        Form::<i64>::schema(&Number(0, 2))
    }

    fn read(&self, item: Item<'_>) -> Option<McastRouter> {
        McastRouter::of(Number(0, 2).read(item)?)
    }

    fn write(&self, value: &McastRouter) -> Option<toml::Value> {
        // What was heard once is learnt.
        let lasts = match value {
            McastRouter::Refresh => McastRouter::Learn,
            other => *other,
        };
        Some(int(lasts as u8))
    }
}

const MCAST_ROUTER: McastRouterForm = McastRouterForm;

/// Reports keys that say something of a member of a bridge alone.
pub(super) fn check_alone(table: &Table<'_>, port: &Port) {
    let default = BridgePortOptions::default();
    let options = &port.member.options;
    let changed = MEMBER.iter().filter(|key| {
        let value = |of| key.field.and_then(|field| field.write(of));
        value(options) != value(&default)
    });
    for key in changed.map(|key| key.name).chain(names(VLANS)) {
        if table.has(key) && !table.source.is_wrong(&table.span_of(key)) {
            let text = "the port is in no bridge; list it in one, or remove this";
            table.problem::<()>(key, text);
        }
    }
}
