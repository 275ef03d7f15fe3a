//! The state of a running engine as a configuration: what `softnet dump-config` prints, and what a
//! reload that fails goes back to.

use std::collections::BTreeMap;

use softnet_engine::control::{Link, LinkKind};
use softnet_io::DeviceSpec;
use softnet_tc::rate::GroupSpec;
use softnet_tc::{QdiscSpec, TreeSpec};

use crate::config::{
    ActionConfig, BridgeConfig, Config, Driver, LinkConfig, Place, PortConfig, RateGroupConfig,
};
use crate::setup::Control;

/// What there is, in the order in which it was added. `config` is what the daemon was started
/// with: workers, buffers and sockets are as they were then.
pub(crate) fn config(config: &Config, control: &Control) -> Config {
    let ports = control
        .links()
        .values()
        .filter(|link| link.port().is_some());
    let places: BTreeMap<u32, usize> = ports.zip(0..).map(|(link, i)| (link.index, i)).collect();
    let mut running = Config {
        ports: Vec::new(),
        bridges: Vec::new(),
        rate_groups: control.rate_groups().map(rate_group).collect(),
        ..config.clone()
    };
    for link in control.links().values() {
        match &link.kind {
            LinkKind::Port { .. } => running.ports.extend(port(control, link, &places)),
            LinkKind::Bridge(_) => {
                let members = control.links().values();
                let members = members.filter(|member| member.master == Some(link.index));
                running.bridges.push(BridgeConfig {
                    name: link.settings.name.clone(),
                    ports: members
                        .filter_map(|m| places.get(&m.index).copied())
                        .collect(),
                    mac: Some(link.settings.address),
                    mtu: link.settings.mtu,
                    link: link_config(link),
                });
            }
        }
    }
    running
}

fn rate_group((name, spec): (&str, &GroupSpec)) -> RateGroupConfig {
    RateGroupConfig {
        name: name.to_owned(),
        spec: *spec,
    }
}

fn port(
    control: &Control,
    link: &Link<DeviceSpec>,
    places: &BTreeMap<u32, usize>,
) -> Option<PortConfig> {
    let LinkKind::Port {
        spec,
        options,
        actions,
        ..
    } = &link.kind
    else {
        return None;
    };
    let driver = match spec {
        DeviceSpec::Tap {
            netns, addresses, ..
        } => Driver::Tap {
            netns: netns.clone(),
            addresses: addresses.clone(),
            mac: Some(link.settings.address),
        },
        DeviceSpec::VhostUser(socket) => Driver::VhostUser(socket.clone()),
        DeviceSpec::Null => Driver::Null,
    };
    let actions = actions.iter().filter_map(|action| {
        Some(ActionConfig {
            mode: action.mode,
            dir: action.dir,
            to: *places.get(&action.to)?,
        })
    });
    let tree = control
        .read_tree(link.index, |tree, _| tree.spec().clone())
        .ok()?;
    let member = control.bridge_port(link.index).map(|member| member.options);
    let member = member.unwrap_or_default();
    Some(PortConfig {
        place: Place { line: 0, column: 0 },
        name: link.settings.name.clone(),
        driver,
        queues: link.queues,
        map: options.map.clone(),
        actions: actions.collect(),
        steering: options.steering.clone(),
        parallel: options.parallel,
        mtu: link.settings.mtu,
        link: link_config(link),
        qdisc: spec_of(tree),
        policy: options.policy.clone(),
        isolated: member.isolated,
        locked: member.locked,
        security: options.security.clone(),
        rate_group: options.rate_group.clone(),
    })
}

fn spec_of(tree: TreeSpec) -> QdiscSpec {
    if tree.is_empty() {
        QdiscSpec::Default
    } else {
        QdiscSpec::Tree(tree)
    }
}

fn link_config(link: &Link<DeviceSpec>) -> LinkConfig {
    let settings = &link.settings;
    LinkConfig {
        tx_queue_len: settings.tx_queue_len,
        alias: settings.alias.clone(),
        group: settings.group,
        up: settings.up,
    }
}
