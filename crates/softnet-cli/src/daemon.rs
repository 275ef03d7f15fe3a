//! `softnet run`: an engine from a configuration, kept up until a signal.
//!
//! A port's device can go away while the engine runs: somebody deletes it. Packets for it are then
//! dropped with a reason, and the device is made again as soon as the system lets us.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use softnet::wire::EthernetAddress;
use softnet_engine::{MirredSpec, PortEvent, PortId};
use softnet_io::Buffers;

use crate::config::{ActionConfig, Config, Driver, PortConfig};
use crate::counters;
use crate::failure::{Exit, Failure, chain};
use crate::report;
use crate::setup::{self, Engine};
use crate::signals::Stop;

/// How often ports are looked after.
const LOOK: Duration = Duration::from_millis(250);
/// How long queued packets may still leave when the daemon stops.
const DRAIN: Duration = Duration::from_secs(1);

/// A configured port in the engine.
struct Port {
    /// With an Ethernet address, chosen here if the file gives none: the device keeps it when it
    /// is made again, so that its neighbours' tables stay right.
    config: PortConfig,
    id: PortId,
    state: State,
}

/// Whether a port's device is there.
enum State {
    Open,
    /// Noticed in this round. It is opened in the next: by then the workers have let go of the old
    /// device's queues, so that none of them can report the new device gone.
    Gone,
    /// It could not be opened again, for the reason last reported.
    Missing(String),
}

/// Runs until SIGINT or SIGTERM, then prints the counters, as one JSON object if `json`.
pub(crate) fn run(config: &Config, json: bool) -> Result<(), Failure> {
    let cannot = |what: &'static str| {
        move |error: std::io::Error| Failure::because(Exit::Failure, what, &error)
    };
    let stop = Stop::on_signals().map_err(cannot("cannot catch signals"))?;
    let (engine, buffers) = setup::start(
        config.workers,
        &config.cpus,
        config.buffers,
        config.settings,
    )
    .map_err(|error| Failure::because(Exit::Failure, &config.file, &error))?;
    let mut ports = build(config, &engine, &buffers)?;
    report::note(format_args!("running: {}; Ctrl-C stops", config.summary()));
    while !stop.wait(LOOK) {
        for port in engine.watchdog() {
            report::note(format_args!(
                "port {port:?}: its driver took nothing for 5 s; restarted"
            ));
        }
        look_after(&engine, &buffers, &mut ports);
    }
    let stats = engine.stop(DRAIN);
    let text = if json {
        format!("{:#}\n", counters::json(&stats))
    } else {
        counters::text(&stats)
    };
    report::print(&text).map_err(cannot("cannot print the counters"))?;
    if stats.conservation().holds() {
        Ok(())
    } else {
        Err(Failure::new(
            Exit::Failure,
            "packets are unaccounted for; this is a bug in softnet",
        ))
    }
}

/// Opens all ports, then joins them. On failure the engine is dropped by the caller, and all
/// devices with it.
fn build(config: &Config, engine: &Engine, buffers: &Buffers) -> Result<Vec<Port>, Failure> {
    let mut ports = Vec::with_capacity(config.ports.len());
    let mut receivers = Vec::new();
    for port in &config.ports {
        let mut port = port.clone();
        if let Driver::Tap { mac, .. } = &mut port.driver {
            mac.get_or_insert_with(random_address);
        }
        let what = format!(
            "{}:{}:{}: port {:?} cannot be opened",
            config.file, port.place.line, port.place.column, port.name
        );
        let mut opened = setup::open(&port, buffers)
            .map_err(|error| Failure::because(Exit::Config, &what, &error))?;
        let rx = std::mem::take(&mut opened.rx);
        let id = engine
            .add_port(opened.setup(&port.name, port.qdisc.clone(), port.policy.clone()))
            .map_err(|error| Failure::because(Exit::Config, &what, &error))?;
        engine
            .set_queue_map(id, &port.map)
            .map_err(|error| Failure::because(Exit::Config, &what, &error))?;
        engine
            .set_steering(id, &port.steering)
            .map_err(|error| Failure::because(Exit::Config, &what, &error))?;
        receivers.push((id, rx, what));
        ports.push(Port {
            config: port,
            id,
            state: State::Open,
        });
    }
    for port in &ports {
        let action = |action: &ActionConfig| MirredSpec {
            mode: action.mode,
            dir: action.dir,
            to: ports[action.to].id,
        };
        let actions: Vec<_> = port.config.actions.iter().map(action).collect();
        engine.set_actions(port.id, &actions).map_err(|error| {
            let what = format!("{}: port {:?}", config.file, port.config.name);
            Failure::because(Exit::Config, what, &error)
        })?;
    }
    for bridge in &config.bridges {
        let members: Vec<PortId> = bridge.ports.iter().map(|&index| ports[index].id).collect();
        engine.add_bridge(&bridge.name, &members).map_err(|error| {
            let what = format!("{}: bridge {:?} cannot be made", config.file, bridge.name);
            Failure::because(Exit::Config, what, &error)
        })?;
    }
    // Last: what hosts have sent since their interfaces are there waits for the bridges.
    for (id, rx, what) in receivers {
        engine
            .receive(id, rx)
            .map_err(|error| Failure::because(Exit::Config, &what, &error))?;
    }
    Ok(ports)
}

/// Notices devices that are gone, and opens them again; tells of links that change.
fn look_after(engine: &Engine, buffers: &Buffers, ports: &mut [Port]) {
    for port in ports
        .iter_mut()
        .filter(|port| !matches!(port.state, State::Open))
    {
        reopen(engine, buffers, port);
    }
    for event in engine.take_events() {
        let (PortEvent::Gone(id) | PortEvent::Link(id, _)) = event;
        let Some(port) = ports.iter_mut().find(|port| port.id == id) else {
            continue;
        };
        if let PortEvent::Link(_, link) = event {
            let name = &port.config.name;
            let up = if link.up { "up" } else { "down" };
            match link.mtu {
                Some(mtu) => report::note(format_args!("port {name:?}: link {up}, MTU {mtu}")),
                None => report::note(format_args!("port {name:?}: link {up}")),
            }
            continue;
        }
        if matches!(port.state, State::Open) {
            report::note(format_args!(
                "port {:?}: its device is gone",
                port.config.name
            ));
            port.state = State::Gone;
            if let Err(error) = engine.replace(port.id, Vec::new(), Vec::new()) {
                report::note(format_args!(
                    "port {:?}: {}",
                    port.config.name,
                    chain(&error)
                ));
            }
        }
    }
}

fn reopen(engine: &Engine, buffers: &Buffers, port: &mut Port) {
    let name = &port.config.name;
    let opened = setup::open(&port.config, buffers).map_err(|error| chain(&error));
    let replaced = opened.and_then(|opened| {
        let replaced = engine.replace(port.id, opened.rx, opened.tx);
        replaced.map_err(|error| chain(&error))
    });
    match replaced {
        Ok(()) => {
            report::note(format_args!("port {name:?}: open again"));
            port.state = State::Open;
        }
        Err(why) => {
            if !matches!(&port.state, State::Missing(reported) if *reported == why) {
                report::note(format_args!("port {name:?}: cannot be opened yet: {why}"));
                port.state = State::Missing(why);
            }
        }
    }
}

/// A random unicast address of the locally administered kind, as the kernel would choose.
fn random_address() -> EthernetAddress {
    // The standard library's hash keys are random for each process and differ for each state.
    let random = RandomState::new().hash_one(());
    let [a, b, c, d, e, f, ..] = random.to_ne_bytes();
    EthernetAddress([(a & 0xfc) | 0x02, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_addresses_are_local_unicast_and_differ() {
        let (one, other) = (random_address(), random_address());
        assert_eq!(one.0[0] & 0x03, 0x02);
        assert_ne!(one, other);
    }
}
