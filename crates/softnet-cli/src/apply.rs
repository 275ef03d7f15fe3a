//! Makes an engine what a configuration says, by as few changes as it takes: at the start, from
//! nothing; at a reload, from what is there.

use softnet_engine::control::{ControlError, LinkKind, NewPort, PortOptions, Settings};
use softnet_engine::forward::{BridgePortOptions, MirredDir, MirredMode};
use softnet_io::DeviceSpec;
use softnet_tc::{QdiscSpec, TreeSpec};

use crate::config::{
    ActionConfig, BridgeConfig, Config, Driver, LinkConfig, PortConfig, RateGroupConfig,
};
use crate::failure::{Exit, Failure};
use crate::setup::Control;

/// Adds, changes and removes ports and bridges. What is as the configuration says keeps all it
/// has. New devices are opened first, since that is what can fail. After a failure some of it may
/// be done.
pub(crate) fn apply(config: &Config, control: &mut Control) -> Result<(), Failure> {
    remove(control, |name, is_port| {
        // The name is to be that of the other kind.
        let ports = config.ports.iter().any(|port| port.name == name);
        let bridges = config.bridges.iter().any(|bridge| bridge.name == name);
        if is_port { bridges } else { ports }
    })?;
    for group in &config.rate_groups {
        set_rate_group(config, control, group)?;
    }
    for bridge in &config.bridges {
        let failed = |error| {
            let what = format!("{}: bridge {:?} cannot be made", config.file, bridge.name);
            Failure::because(Exit::Config, what, &error)
        };
        match control.link_named(&bridge.name) {
            Ok(link) => {
                let index = link.index;
                let settings = bridge_settings(bridge, link.settings.clone());
                control.change(index, &settings).map_err(failed)?;
            }
            Err(_) => {
                let settings = bridge_settings(bridge, Settings::new(&bridge.name));
                control.add_bridge(settings).map_err(failed)?;
            }
        }
    }
    let is_there = |port: &&PortConfig| control.link_named(&port.name).is_ok();
    let (there, new): (Vec<_>, Vec<_>) = config.ports.iter().partition(is_there);
    add(config, control, &new)?;
    let same = |port: &&PortConfig| is_same_device(control, port);
    let (kept, replaced): (Vec<_>, Vec<_>) = there.into_iter().partition(same);
    // Two devices of one name cannot be there together.
    remove(control, |name, _| {
        replaced.iter().any(|port| port.name == name)
    })?;
    add(config, control, &replaced)?;
    for port in kept {
        change(config, control, port).map_err(|error| failed(config, port, "changed", error))?;
    }
    for port in &config.ports {
        set_actions(config, control, port)
            .map_err(|error| failed(config, port, "changed", error))?;
    }
    remove(control, |name, is_port| {
        if is_port {
            config.ports.iter().all(|port| port.name != name)
        } else {
            config.bridges.iter().all(|bridge| bridge.name != name)
        }
    })?;
    delete_rate_groups(config, control)
}

fn set_rate_group(
    config: &Config,
    control: &mut Control,
    group: &RateGroupConfig,
) -> Result<(), Failure> {
    let set = control.set_rate_group(&group.name, group.spec);
    set.map_err(|error| {
        let what = format!("{}: rate group {:?} cannot be set", config.file, group.name);
        Failure::because(Exit::Config, what, &error)
    })
}

/// Removes groups that the file does not name. Their ports have left them.
fn delete_rate_groups(config: &Config, control: &mut Control) -> Result<(), Failure> {
    let known = control.rate_groups().map(|(name, _)| name.to_owned());
    let is_gone = |name: &String| config.rate_groups.iter().all(|group| group.name != *name);
    let gone: Vec<String> = known.filter(is_gone).collect();
    for name in gone {
        control.delete_rate_group(&name).map_err(|error| {
            let what = format!("rate group {name:?} cannot be removed");
            Failure::because(Exit::Failure, what, &error)
        })?;
    }
    Ok(())
}

/// What could not be done with a port, and where it is in the file.
fn failed(config: &Config, port: &PortConfig, what: &str, error: ControlError) -> Failure {
    let what = format!(
        "{}:{}:{}: port {:?} cannot be {what}",
        config.file, port.place.line, port.place.column, port.name
    );
    // What the device says is enough.
    match error {
        ControlError::Device { source, .. } => Failure::because(Exit::Config, what, &*source),
        error => Failure::because(Exit::Config, what, &error),
    }
}

/// Removes the links that `f` is true for, by name and whether they are ports.
fn remove(control: &mut Control, f: impl Fn(&str, bool) -> bool) -> Result<(), Failure> {
    let gone = control.links().values();
    let gone = gone.filter(|link| f(&link.settings.name, link.port().is_some()));
    let gone: Vec<u32> = gone.map(|link| link.index).collect();
    for index in gone {
        let deleted = control.delete(index);
        deleted.map_err(|error| {
            Failure::because(Exit::Failure, format!("cannot remove link {index}"), &error)
        })?;
    }
    Ok(())
}

/// The number of the bridge that a port is to be part of.
fn master(config: &Config, control: &Control, port: &PortConfig) -> Option<u32> {
    let is_member = |bridge: &&BridgeConfig| {
        let mut members = bridge
            .ports
            .iter()
            .filter_map(|&port| config.ports.get(port));
        members.any(|member| member.name == port.name)
    };
    let bridge = config.bridges.iter().find(is_member)?;
    Some(control.link_named(&bridge.name).ok()?.index)
}

/// Adds ports, all or none.
fn add(config: &Config, control: &mut Control, ports: &[&PortConfig]) -> Result<(), Failure> {
    let new = ports.iter().map(|port| NewPort {
        settings: settings(port, Settings::new(&port.name)),
        spec: device(port),
        queues: port.queues,
        qdisc: (port.qdisc != QdiscSpec::Default).then(|| port.qdisc.clone()),
        master: master(config, control, port),
        member: member(port, BridgePortOptions::default()),
        options: options(port),
        actions: actions(config, port),
    });
    let new = new.collect();
    let added = control.add_ports(new).map(drop);
    added.map_err(|(place, error)| failed(config, ports[place], "opened", error))
}

/// Whether the device that a port has is the one that it is to have.
fn is_same_device(control: &Control, port: &PortConfig) -> bool {
    let Ok(link) = control.link_named(&port.name) else {
        return false;
    };
    let LinkKind::Port { spec, options, .. } = &link.kind else {
        return false;
    };
    let same = match (spec, &device(port)) {
        (
            DeviceSpec::Tap {
                netns, addresses, ..
            },
            DeviceSpec::Tap {
                netns: own_netns,
                addresses: own_addresses,
                ..
            },
        ) => (netns, addresses) == (own_netns, own_addresses),
        (is, is_to_be) => is == is_to_be,
    };
    same && link.queues == port.queues && options.policy == port.policy
}

/// Changes a port that is there. What does not differ is not touched.
fn change(config: &Config, control: &mut Control, port: &PortConfig) -> Result<(), ControlError> {
    let link = control.link_named(&port.name)?;
    let index = link.index;
    let settings = settings(port, link.settings.clone());
    control.change(index, &settings)?;
    control.set_options(index, &options(port))?;
    control.set_tree(index, &TreeSpec::from(port.qdisc.clone()))?;
    let master = master(config, control, port);
    control.set_master_as(index, master, member(port, BridgePortOptions::default()))?;
    if master.is_none() {
        return Ok(());
    }
    let known = control.bridge_port(index)?.options;
    let options = member(port, known);
    if options == known {
        return Ok(());
    }
    control.set_bridge_port(index, options)
}

fn set_actions(
    config: &Config,
    control: &mut Control,
    port: &PortConfig,
) -> Result<(), ControlError> {
    let index = control.link_named(&port.name)?.index;
    control.set_named_actions(index, &actions(config, port))
}

/// What is done with what leaves a port, with the targets' names.
fn actions(config: &Config, port: &PortConfig) -> Vec<(MirredMode, MirredDir, String)> {
    let action = |action: &ActionConfig| {
        let to = config.ports[action.to].name.clone();
        (action.mode, action.dir, to)
    };
    port.actions.iter().map(action).collect()
}

/// What a bridge does at a port that had other options before.
fn member(port: &PortConfig, before: BridgePortOptions) -> BridgePortOptions {
    BridgePortOptions {
        isolated: port.isolated,
        locked: port.locked,
        ..before
    }
}

fn options(port: &PortConfig) -> PortOptions {
    PortOptions {
        policy: port.policy.clone(),
        map: port.map.clone(),
        steering: port.steering.clone(),
        security: port.security.clone(),
        parallel: port.parallel,
        rate_group: port.rate_group.clone(),
    }
}

fn device(port: &PortConfig) -> DeviceSpec {
    match &port.driver {
        Driver::Tap {
            netns, addresses, ..
        } => DeviceSpec::Tap {
            interface: port.name.clone(),
            netns: netns.clone(),
            addresses: addresses.clone(),
        },
        Driver::VhostUser(socket) => DeviceSpec::VhostUser(socket.clone()),
        Driver::Null => DeviceSpec::Null,
    }
}

/// A port's settings, with the Ethernet address that it has if the file gives none: the device
/// keeps it when it is made again, so that its neighbours' tables stay right.
fn settings(port: &PortConfig, before: Settings) -> Settings {
    let address = match &port.driver {
        Driver::Tap { mac, .. } => mac.unwrap_or(before.address),
        Driver::VhostUser(_) | Driver::Null => before.address,
    };
    Settings {
        address,
        mtu: port.mtu,
        ..link_settings(&port.link, before)
    }
}

fn bridge_settings(bridge: &BridgeConfig, before: Settings) -> Settings {
    Settings {
        address: bridge.mac.unwrap_or(before.address),
        mtu: bridge.mtu,
        ..link_settings(&bridge.link, before)
    }
}

fn link_settings(link: &LinkConfig, before: Settings) -> Settings {
    Settings {
        tx_queue_len: link.tx_queue_len,
        group: link.group,
        alias: link.alias.clone(),
        up: link.up,
        ..before
    }
}
