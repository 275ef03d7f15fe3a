//! The running state that no key of the configuration expresses, as the commands that make it:
//! comments of `softnet dump-config`.

use softnet_engine::MdbEntry;

use crate::setup::Engine;

/// Comments, a line each.
pub(crate) fn comments(engine: &Engine) -> String {
    let links = engine.links();
    let bridges = links.values().filter(|link| link.is_bridge());
    let groups = bridges.flat_map(|bridge| {
        let entries = engine.mdb(bridge.index).map(|(entries, _)| entries);
        let permanent = entries.unwrap_or_default().into_iter();
        let permanent = permanent.filter(|entry| entry.permanent);
        let line = |entry: MdbEntry| {
            let port = &links.get(&entry.port)?.settings.name;
            let source = entry.source.map(|source| format!(" src {source}"));
            let vlan = entry.vlan.map(|vlan| format!(" vid {vlan}"));
            let (source, vlan) = (source.unwrap_or_default(), vlan.unwrap_or_default());
            let (bridge, group) = (&bridge.settings.name, entry.group);
            let command = format!(
                "bridge mdb add dev {bridge} port {port} grp {group}{source} permanent{vlan}"
            );
            Some(format!("# left out: {}\n", command.escape_debug()))
        };
        permanent.filter_map(line).collect::<Vec<_>>()
    });
    groups.collect()
}
