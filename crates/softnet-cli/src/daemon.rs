//! `softnet run`: an engine from a configuration, kept up until a signal.
//!
//! A port's device can go away while the engine runs: somebody deletes it. Packets for it are then
//! dropped with a reason, and the device is made again as soon as the system lets us.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use softnet_engine::control::ControlError;
use softnet_engine::{EngineStats, PortEvent};
use softnet_io::PortDevices;
use softnet_rtnl::Rtnl;
use softnet_rtnl::nl::{Errno, Error, Operation};
use softnet_rtnl::server::{self, Listen, Server, group_id};

use crate::apply::apply;
use crate::config::{self, ControlConfig};
use crate::counters;
use crate::failure::{Exit, Failure, chain};
use crate::reload::Loaded;
use crate::report;
use crate::running;
use crate::setup::{self, Control};
use crate::signals::{self, Stop};
use crate::socket;
use crate::stats;

/// How often ports are looked after.
const LOOK: Duration = Duration::from_millis(250);
/// How long queued packets may still leave when the daemon stops.
const DRAIN: Duration = Duration::from_secs(1);

/// Why a port's device is not there, by the number of its link.
type Missing = BTreeMap<u32, Gone>;

/// A device that is not there.
enum Gone {
    /// Noticed in this round. It is opened in the next: by then the workers have let go of the old
    /// device's queues, so that none of them can report the new device gone.
    Now,
    /// It could not be opened again, for the reason last reported.
    Because(String),
}

/// Runs until SIGINT or SIGTERM, then prints the counters, as one JSON object if `json`.
pub(crate) fn run(loaded: Loaded, json: bool) -> Result<(), Failure> {
    let config = &loaded.config;
    let cannot = |what: &'static str| {
        move |error: std::io::Error| Failure::because(Exit::Failure, what, &error)
    };
    let stop = Stop::on_signals().map_err(cannot("cannot catch signals"))?;
    let hangup = signals::on_hangup().map_err(cannot("cannot catch signals"))?;
    let (engine, buffers) = setup::start(
        config.workers,
        &config.cpus,
        config.buffers,
        config.settings,
    )
    .map_err(|error| Failure::because(Exit::Failure, &config.file, &error))?;
    let (server, path) = listen(&config.control)?;
    let mut control = Control::new(engine, PortDevices { buffers });
    apply(config, &mut control)?;
    let summary = config.summary();
    let control = Arc::new(Mutex::new(control));
    let loaded = Arc::new(Mutex::new(loaded));
    let server = server
        .start(Rtnl::new(control.clone()).on_operation(operations(&control, &loaded)))
        .map_err(cannot("cannot start the control thread"))?;
    let mut missing = Missing::new();
    report::note(format_args!("control socket: {}", path.display()));
    report::note(format_args!("running: {summary}; Ctrl-C stops"));
    let mut wait = LOOK;
    while !stop.wait(wait) {
        if hangup.swap(false, Ordering::Relaxed)
            && let Err(failure) = reload(&loaded, &control)
        {
            report::note(format_args!("not reloaded: {failure}"));
        }
        let mut control = lock(&control);
        for port in control.engine().watchdog() {
            report::note(format_args!(
                "port {port:?}: its driver took nothing for 5 s; restarted"
            ));
        }
        look_after(&mut control, &mut missing);
        let due = control.engine().sample_rates();
        wait = due.map_or(LOOK, |due| due.min(LOOK));
        if control.has_changes() {
            server.waker().wake();
        }
    }
    let stopped = server.stop();
    stopped.map_err(cannot("the control socket failed"))?;
    // The server was the other one that had it.
    let control = Arc::into_inner(control).map(Mutex::into_inner);
    let Some(Ok(control)) = control else {
        return Err(Failure::new(Exit::Failure, "the control thread failed"));
    };
    let stats = control.into_engine().stop(DRAIN);
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

/// What `softnet stats`, `softnet dump-config` and `softnet reload` ask for.
fn operations(
    control: &Arc<Mutex<Control>>,
    loaded: &Arc<Mutex<Loaded>>,
) -> impl FnMut(Operation, &[u8]) -> Result<String, Error> + Send + use<> {
    let (control, loaded) = (control.clone(), loaded.clone());
    move |operation, argument: &[u8]| match operation {
        Operation::Stats => {
            let stats = live_stats(&lock(&control));
            if argument.is_empty() {
                Ok(counters::json(&stats).to_string())
            } else if argument == stats::TEXT.as_bytes() {
                Ok(counters::live(&stats))
            } else {
                Err(Error::invalid("statistics are for nothing, or `text`"))
            }
        }
        Operation::DumpConfig => {
            let running = running::config(&lock(&loaded).config, &lock(&control));
            Ok(config::write(&running))
        }
        Operation::Reload => match reload(&loaded, &control) {
            Ok(()) => Ok(String::new()),
            Err(failure) => {
                let errno = match failure.exit {
                    Exit::Config => Errno::EINVAL,
                    _ => Errno::EIO,
                };
                Err(Error::new(errno).text(failure.to_string()))
            }
        },
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies the file anew.
fn reload(loaded: &Mutex<Loaded>, control: &Mutex<Control>) -> Result<(), Failure> {
    let mut loaded = lock(loaded);
    loaded.reload(&mut lock(control))?;
    report::note(format_args!("reloaded: {}", loaded.config.summary()));
    Ok(())
}

/// All counters, with those of qdiscs, classes and filters. Takes no queue from its owner.
fn live_stats(control: &Control) -> EngineStats {
    let engine = control.engine();
    let mut stats = engine.stats();
    for link in control.links().values() {
        let mut ports = stats.ports.iter_mut();
        if let Some(id) = link.port()
            && let Some(port) = ports.find(|port| port.name == link.settings.name)
        {
            port.classes = engine.classes(id);
            port.filters = engine.filters(id);
        }
    }
    stats
}

/// Listens for requests, and says where; they are answered when the ports are there.
fn listen(config: &ControlConfig) -> Result<(Server, PathBuf), Failure> {
    let path = config.socket.clone().unwrap_or_else(socket::default_path);
    let cannot = |error: &dyn std::error::Error| {
        let what = format!(
            "cannot listen for tc, ip and bridge at {}; choose another place with --socket",
            path.display()
        );
        Failure::because(Exit::Config, what, error)
    };
    if config.socket.is_none()
        && let Some(directory) = path.parent()
    {
        // Whoever may make files in it could put another daemon's socket there.
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory);
        made.map_err(|error| cannot(&error))?;
    }
    let group = config.group.as_deref().map(group_id).transpose();
    let group = group.map_err(|error| cannot(&error))?;
    let server = Server::bind(&server::Config {
        listen: Listen {
            path: path.clone(),
            mode: config.mode,
            group,
        },
        monitor: config.monitor.clone().map(|path| Listen {
            path,
            mode: 0o666,
            group: None,
        }),
        clients: server::Config::CLIENTS,
    });
    let server = server.map_err(|error| cannot(&error))?;
    Ok((server, path))
}

/// Notices devices that are gone, and opens them again; tells of links that change.
fn look_after(control: &mut Control, missing: &mut Missing) {
    missing.retain(|&index, gone| !reopen(control, index, gone));
    for (index, event) in control.take_events() {
        let name = match control.link(index) {
            Ok(link) => link.settings.name.clone(),
            Err(_) => continue,
        };
        match event {
            PortEvent::Link(_, link) => {
                let up = if link.up { "up" } else { "down" };
                let mtu = link.mtu.map(|mtu| format!(", MTU {mtu}"));
                let stats = control.port(index).ok();
                let stats = stats.and_then(|id| control.engine().port_stats(id).ok());
                let status = stats.and_then(|stats| stats.status);
                let status = status.map(|status| format!(": {status}"));
                let (mtu, status) = (mtu.unwrap_or_default(), status.unwrap_or_default());
                report::note(format_args!("port {name:?}: link {up}{mtu}{status}"));
            }
            PortEvent::Gone(_) if missing.contains_key(&index) => {}
            PortEvent::Gone(_) => {
                report::note(format_args!("port {name:?}: its device is gone"));
                missing.insert(index, Gone::Now);
                if let Err(error) = control.close_device(index) {
                    report::note(format_args!("port {name:?}: {}", chain(&error)));
                }
            }
        }
    }
}

/// Opens a device again. False if it cannot be opened yet.
fn reopen(control: &mut Control, index: u32, gone: &mut Gone) -> bool {
    let Ok(link) = control.link(index) else {
        // Deleted meanwhile.
        return true;
    };
    let name = link.settings.name.clone();
    let error = match control.reopen_device(index) {
        Ok(()) => {
            report::note(format_args!("port {name:?}: open again"));
            return true;
        }
        Err(ControlError::Device { source, .. }) => chain(&*source),
        Err(error) => chain(&error),
    };
    if !matches!(gone, Gone::Because(reported) if *reported == error) {
        report::note(format_args!("port {name:?}: cannot be opened yet: {error}"));
        *gone = Gone::Because(error);
    }
    false
}
