//! `softnet run`: an engine from a configuration, kept up until a signal.
//!
//! A port's device can go away while the engine runs: somebody deletes it. Packets for it are then
//! dropped with a reason, and the device is made again as soon as the system lets us.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::DirBuilder;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::Duration;

use softnet::wire::EthernetAddress;
use softnet_engine::{EngineStats, PortEvent, PortSpec, Virtual};
use softnet_io::{Allowed, HandOff, LOOPBACK_MTU, PortDevices, Scheduling, VirtualSpec, rights};
use softnet_rtnl::nl::{Client, Errno, Error, Operation};
use softnet_rtnl::server::{self, Listen, Server, Sockets, Waker, group_id};
use softnet_rtnl::{First, Rtnl};

use crate::capture;
use crate::change::Change;
use crate::config::{self, ControlConfig};
use crate::counters;
use crate::failure::{Exit, Failure, chain};
use crate::left_out;
use crate::log::{Level, log, log_at};
use crate::metrics::{self, Sample, render};
use crate::notify::Notify;
use crate::privileges::{self, Separation};
use crate::reload::{Loaded, reason};
use crate::replace::{Parts, Predecessor, Successor};
use crate::report;
use crate::saver::Saver;
use crate::selection::Selection;
use crate::setup::{self, Engine};
use crate::signals::{self, Stop};
use crate::socket;
use crate::store::Store;

/// Interval at which ports are looked after.
const LOOK: Duration = Duration::from_millis(250);
/// The same while a successor gets ready.
const LOOK_SUCCESSOR: Duration = Duration::from_millis(10);
/// Looks at whether a daemon that died is gone: all of its threads must have got a CPU for that.
const DYING_LOOKS: usize = 1000;
/// Origin of the state that a successor starts with.
const BEFORE: &str = "the daemon before this one";
/// Time in which queued packets may still leave when the daemon stops.
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

/// The class that workers may have, and a sentence about it and what better ones lack.
fn choose_scheduling(wanted: Option<Scheduling>) -> (Allowed, String) {
    let (allowed, refused) = Scheduling::best(wanted);
    let lacking = refused.iter().map(|(class, error)| {
        let (name, needs) = (class.name(), class.needs());
        format!("; {name} is not allowed ({error}): it needs {needs}")
    });
    let lacking: String = lacking.collect();
    let kept = match allowed.keeps_nice() {
        true => ", for which they keep CAP_SYS_NICE",
        false => "",
    };
    let class = allowed.class().name();
    (
        allowed,
        format!("workers: scheduling class {class}{kept}{lacking}"),
    )
}

/// Ways in which the daemon starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// A port that cannot be opened ends it; else it is opened as soon as that is possible.
    pub strict: bool,
    /// It takes over from the daemon that runs, if there is one.
    pub replace: bool,
    pub separation: Separation,
}

/// Runs until SIGINT or SIGTERM, or another takes over; then prints the counters: all on a
/// terminal, as one JSON object if `json`, else their sum.
pub(crate) fn run(mut loaded: Loaded, json: bool, how: &Start) -> Result<(), Failure> {
    let (mut store, mut stored) = Store::open();
    let path = control_socket(&loaded.config.control)?;
    let mut predecessor = match how.replace {
        true => Predecessor::ask(&path)?,
        false => None,
    };
    match &predecessor {
        // It is refused before anything stops; what counts is the state at the end.
        Some(before) => drop((loaded.saved(BEFORE, &before.state)?, stored.drain(..))),
        None => loaded.restore()?.iter().for_each(log),
    }
    let warn = |warning| log_at(Level::Warning, warning);
    loaded.warnings.iter().for_each(warn);
    let config = &loaded.config;
    let cannot = |what: &'static str| {
        move |error: std::io::Error| Failure::because(Exit::Failure, what, &error)
    };
    let mut notify = Notify::connect();
    let stop = Stop::on_signals().map_err(cannot("cannot catch signals"))?;
    let hangup = signals::on_hangup().map_err(cannot("cannot catch signals"))?;
    let (scheduling, said) = choose_scheduling(config.scheduling);
    let metrics = config.metrics.as_ref().map(|place| {
        let what = format!(
            "cannot offer metrics at {}",
            place.text().unwrap_or_default()
        );
        match metrics::Server::bind(place) {
            // The daemon before this one listens there.
            Err(error) if predecessor.is_some() && is_in_use(&error) => Ok(None),
            server => server
                .map(Some)
                .map_err(|error| Failure::because(Exit::Config, what, &error)),
        }
    });
    let mut metrics = metrics.transpose()?;
    let classes = config.metrics_classes;
    // Ends after everything that it looks after.
    let helper = privileges::give_up(loaded.path(), scheduling, &how.separation)?;
    let engine = setup::start(
        config.workers,
        &config.cpus,
        scheduling,
        config.buffers,
        config.settings,
    )
    .map_err(|error| Failure::because(Exit::Failure, &config.file, &error))?;
    rights::forgo_rest();
    let mut sockets = Sockets::default();
    if let Some(before) = &predecessor {
        let mut taken = before.take()?;
        let state = taken.state.take();
        let saved = loaded.saved(BEFORE, state.as_ref().unwrap_or(&before.state))?;
        if saved.config.control.monitor == loaded.config.control.monitor {
            sockets.monitor = taken.control.monitor;
        }
        sockets.listener = taken.control.listener;
        if let (Some(place), Some(None)) = (&loaded.config.metrics, &metrics) {
            let socket = taken.metrics.take();
            let socket = socket.filter(|_| saved.config.metrics.as_ref() == Some(place));
            metrics = Some(socket.map(|socket| metrics::Server::take(place, socket)));
        }
        let lines = loaded.become_saved(saved, BEFORE);
        lines.iter().for_each(log);
        give(&engine, &loaded, taken.devices);
    } else {
        give(&engine, &loaded, stored);
    }
    if let Some(None) = metrics {
        let text = "cannot offer metrics: another program does so there";
        return Err(Failure::new(Exit::Config, text));
    }
    let config = &loaded.config;
    // One that has died before it gave its socket may still be closing it.
    let is_dying = predecessor.is_some() && sockets.listener.is_none();
    let mut listening = listen(&config.control, &path, sockets);
    for _ in 0..DYING_LOOKS {
        if !is_dying || listening.is_ok() {
            break;
        }
        std::thread::sleep(LOOK_SUCCESSOR);
        listening = listen(&config.control, &path, Sockets::default());
    }
    let server = listening?;
    let mut missing = Missing::new();
    for (index, why) in loaded.start(&engine, how.strict)? {
        let why = reason(why);
        if let Ok(link) = engine.link(index) {
            let name = &link.settings.name;
            let what = format_args!("port {name:?}: cannot be opened yet: {why}");
            log_at(Level::Warning, what);
        }
        missing.insert(index, Gone::Because(why));
    }
    add_loopback(&engine)?;
    let summary = loaded.config.summary();
    let engine = Arc::new(Mutex::new(engine));
    let loaded = Arc::new(Mutex::new(loaded));
    let teller = notify.without_watchdog();
    let (released, successors) = mpsc::channel();
    let rtnl = Rtnl::new(engine.clone())
        .on_operation(operations(&engine, &loaded, teller))
        .on_capture(captures(&engine))
        .audit(|client, what| audit(client, what, None))
        .on_release(move |socket| _ = released.send(socket));
    let first = rtnl.first();
    let saver = saver(&loaded, rtnl.first(), server.waker())?;
    // Until the daemon before this one ends, the file is its own: clients' changes wait for that.
    let saves = saver.as_ref().filter(|_| predecessor.is_some());
    let turn = saves.map(Saver::hold);
    let rtnl = match &saver {
        Some(saver) => rtnl.keep(saver.clients()),
        None => rtnl,
    };
    let mut metrics_socket = None;
    if let Some(metrics) = metrics.flatten() {
        metrics_socket = metrics.socket().ok();
        let engine = Arc::downgrade(&engine);
        let text = move |format| {
            sample(&engine, classes).map_or_else(String::new, |s| render(&s, format))
        };
        metrics
            .start(text)
            .map_err(cannot("cannot start a thread"))?;
    }
    let server = server
        .start(rtnl)
        .map_err(cannot("cannot start the control thread"))?;
    if let Some(before) = &predecessor {
        if let Err(failure) = before.running() {
            saver.iter().for_each(Saver::abandon);
            return Err(failure);
        }
        server.own().map_err(|error| cannot_listen(&path, &error))?;
    }
    drop(turn);
    first.lock().devices().own();
    let is_successor = predecessor.take().is_some();
    log(said);
    log(format_args!("control socket: {}", path.display()));
    log(format_args!("running: {summary}; Ctrl-C stops"));
    notify.ready(&summary);
    let stores = lock(&loaded).config.state.is_some();
    if let Some(saver) = saver.as_ref().filter(|_| is_successor) {
        saver.changed();
    }
    let mut wait = LOOK;
    let mut successor: Option<Successor> = None;
    let mut is_replaced = false;
    // A terminal that closes sends SIGHUP, too.
    let from_terminal = io::stdin().is_terminal() || io::stderr().is_terminal();
    // `stop` below says why it has ended.
    while !stop.wait(wait) && !server.is_finished() && !has_ended(saver.as_ref()) {
        notify.alive();
        if hangup.swap(false, Ordering::Relaxed) {
            if from_terminal {
                let what = "SIGHUP of a terminal: not reloaded; `softnet reload` does";
                log_at(Level::Warning, what);
            } else if let Err(failure) = reload(&loaded, &engine, &notify) {
                for line in failure.to_string().lines() {
                    log_at(Level::Error, format_args!("not reloaded: {line}"));
                }
            } else if let Some(saver) = &saver {
                saver.changed();
            }
        }
        let engine = first.lock();
        for port in engine.watchdog() {
            let what = format_args!("port {port:?}: its driver took nothing for 5 s; restarted");
            log_at(Level::Warning, what);
        }
        for worker in engine.hung_workers() {
            let what = format_args!(
                "worker {worker}: in one call of a driver for 1 s; its scheduling class is normal \
                 until it sleeps"
            );
            log_at(Level::Warning, what);
        }
        look_after(&engine, &mut missing);
        helper.look();
        if stores {
            store.follow(&engine, &notify);
        }
        let due = engine.sample_rates();
        wait = due.map_or(LOOK, |due| due.min(LOOK));
        if engine.has_changes() {
            server.waker().wake();
        }
        drop(engine);
        if let Some(socket) = successors.try_iter().last() {
            successor = Successor::new(socket).ok();
        }
        if successor.is_some() {
            wait = wait.min(LOOK_SUCCESSOR);
        }
        if let Some(next) = successor.take_if(|next| next.is_due()) {
            let parts = Parts {
                first: &first,
                loaded: &loaded,
                server: &server,
                metrics: metrics_socket.as_ref(),
            };
            // The file is the successor's from then on.
            let held = saver.as_ref().map(Saver::hold);
            match next.replace(&parts, &mut notify) {
                Ok(()) => {
                    is_replaced = true;
                    if let Some(saver) = &saver {
                        saver.abandon();
                    }
                    break;
                }
                Err(failure) => {
                    log_at(Level::Error, format_args!("not replaced: {failure}"));
                }
            }
            drop(held);
        }
    }
    if is_replaced {
        log("replaced by another daemon");
    } else {
        notify.stopping();
    }
    let stopped = server.stop();
    stopped.map_err(cannot("the control thread failed"))?;
    let is_lost = !is_replaced && has_ended(saver.as_ref());
    // The server was the other one that had the engine. The saver writes once more.
    drop((first, saver));
    if is_lost {
        return Err(Failure::new(
            Exit::Failure,
            "the thread of the state failed",
        ));
    }
    let Some(engine) = last_of(engine) else {
        return Err(Failure::new(Exit::Failure, "the control thread failed"));
    };
    let stats = engine.stop(DRAIN);
    let text = if json {
        format!("{:#}\n", counters::json(&stats))
    } else if io::stdout().is_terminal() {
        counters::text(&stats)
    } else {
        // Of thousands of classes, all would flood the journal.
        report::conservation(&stats.conservation()) + "\n"
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

/// The engine of the last one who has it. A scrape of metrics may have it for a moment, which is
/// long where it gets no CPU: half a minute is waited for.
fn last_of(mut engine: Arc<Mutex<Engine>>) -> Option<Engine> {
    for _ in 0..30_000 {
        match Arc::try_unwrap(engine) {
            Ok(mutex) => return mutex.into_inner().ok(),
            Err(shared) => engine = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Counters for metrics as they are now; none when the daemon ends.
fn sample(engine: &Weak<Mutex<Engine>>, classes: usize) -> Option<Sample> {
    let engine = engine.upgrade()?;
    let engine = lock(&engine);
    let groups = engine.rate_groups().into_iter();
    let groups = groups.map(|(name, spec)| (name, (spec, Vec::new())));
    let mut groups: BTreeMap<_, _> = groups.collect();
    for link in engine.links().values() {
        let group = link
            .options()
            .and_then(|options| options.rate_group.as_ref());
        if let Some((_, ports)) = group.and_then(|group| groups.get_mut(group)) {
            ports.push(link.settings.name.clone());
        }
    }
    let mut stats = engine.stats();
    // Filters, of which there may be as many, have no metrics.
    for port in &mut stats.ports {
        if let Ok(link) = engine.link_named(&port.name) {
            port.classes = engine.classes(link.index);
        }
    }
    Some(Sample {
        stats,
        groups,
        classes,
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// True if there was a saver that ended by itself: nobody is answered any more.
fn has_ended(saver: Option<&Saver>) -> bool {
    saver.is_some_and(Saver::is_finished)
}

/// Starts what keeps the state's file up to date, if the configuration names one.
fn saver(
    loaded: &Arc<Mutex<Loaded>>,
    first: First<PortDevices>,
    waker: Waker,
) -> Result<Option<Saver>, Failure> {
    if lock(loaded).config.state.is_none() {
        return Ok(None);
    }
    let loaded = loaded.clone();
    let write = move || {
        let state = {
            let loaded = lock(&loaded);
            loaded.state(&first.lock())
        };
        let state = state.map_err(|failure| failure.to_string())?;
        state.write().map_err(|error| chain(&error))
    };
    let saver = Saver::start(write, move || waker.wake());
    saver
        .map(Some)
        .map_err(|error| Failure::because(Exit::Failure, "cannot start a thread", &error))
}

/// Adds `lo`, for what is told to name it.
fn add_loopback(engine: &Engine) -> Result<(), Failure> {
    const NAME: &str = "lo";
    if engine.link_named(NAME).is_ok() {
        return Ok(());
    }
    let mut lo = PortSpec::new(NAME);
    lo.settings.address = Some(EthernetAddress::default());
    lo.settings.mtu = LOOPBACK_MTU;
    lo.options.device = VirtualSpec(Virtual::Loopback).into();
    let added = engine.add_port(lo);
    added
        .map(drop)
        .map_err(|error| Failure::because(Exit::Failure, "cannot add lo", &error))
}

/// Answers to the requests of `softnet stats`, `softnet dump-config` and `softnet reload` ask for.
fn operations(
    engine: &Arc<Mutex<Engine>>,
    loaded: &Arc<Mutex<Loaded>>,
    notify: Notify,
) -> impl FnMut(Operation, &[u8], &Client) -> Result<String, Error> + Send + use<> {
    let (engine, loaded) = (engine.clone(), loaded.clone());
    let refused = |failure: Failure| {
        let errno = match failure.exit {
            Exit::Config => Errno::EINVAL,
            _ => Errno::EIO,
        };
        Error::new(errno).text(failure.to_string())
    };
    let invalid = |text: String| Error::new(Errno::EINVAL).text(text);
    move |operation, argument: &[u8], client: &Client| match operation {
        Operation::Stats => {
            let selection: Selection = words(argument).parse().map_err(invalid)?;
            let mut stats = live_stats(&lock(&engine), &selection);
            selection.apply(&mut stats).map_err(invalid)?;
            Ok(match (selection.text, selection.is_whole()) {
                (false, true) => counters::json(&stats).to_string(),
                (false, false) => counters::selected_json(&stats).to_string(),
                (true, true) => counters::live(&stats),
                (true, false) => counters::selected(&stats),
            })
        }
        Operation::DumpConfig => {
            let (loaded, engine) = (lock(&loaded), lock(&engine));
            let running = loaded.running(&engine).map_err(refused)?;
            Ok(left_out::comments(&engine) + &config::write(&running))
        }
        Operation::Reload => {
            let done = reload(&loaded, &engine, &notify);
            audit(client, "reload", done.as_ref().err());
            done.map_err(refused)
        }
        Operation::Change => {
            let change: Change = serde_json::from_str(&words(argument))
                .map_err(|error| invalid(error.to_string()))?;
            let notes = lock(&loaded).change(&lock(&engine), &change, client.own);
            audit(client, change.to_string(), notes.as_ref().err());
            notes.map_err(refused)
        }
        Operation::Show => {
            let (loaded, engine) = (lock(&loaded), lock(&engine));
            let shown = loaded.show(&engine, &words(argument)).map_err(refused)?;
            Ok(shown.to_string())
        }
        Operation::DryRun => {
            let (loaded, engine) = (lock(&loaded), lock(&engine));
            loaded.difference(&engine).map_err(refused)
        }
        Operation::Log => {
            let level = words(argument);
            if !level.is_empty() {
                let level: Level = level.parse().map_err(invalid)?;
                // Also told if the new level hides it.
                audit(client, format_args!("log {level}"), None);
                level.set();
            }
            Ok(format!("{}\n", Level::current()))
        }
        // It gets all files.
        Operation::Replace if !client.own => {
            let text = "only root and the daemon's own user may replace it";
            Err(Error::new(Errno::EPERM).text(text))
        }
        Operation::Replace => {
            audit(client, "replace by another daemon", None);
            let (loaded, engine) = (lock(&loaded), lock(&engine));
            let state = loaded.state(&engine).map_err(refused)?;
            let failed = |error| Failure::because(Exit::Failure, "state", &error);
            state.text().map_err(|error| refused(failed(error)))
        }
        Operation::Capture => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Starts the captures that clients ask for.
fn captures(
    engine: &Arc<Mutex<Engine>>,
) -> impl FnMut(&[u8], &Client) -> Result<(String, OwnedFd), Error> + Send + use<> {
    let engine = engine.clone();
    move |argument, client| capture::serve::start(&engine, &words(argument), client)
}

/// Logs who changed what, and why it was refused.
fn audit(client: &Client, what: impl Display, refused: Option<&Failure>) {
    let uid = client.uid;
    let refused = refused.map(|failure| format!(": refused: {failure}"));
    let refused = refused.unwrap_or_default();
    log_at(Level::Notice, format_args!("user {uid}: {what}{refused}"));
}

/// The argument of an operation. Messages are padded.
fn words(argument: &[u8]) -> String {
    let words = String::from_utf8_lossy(argument);
    words.trim_end_matches('\0').to_owned()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies the file anew. What is to be warned of in it is logged, and returned as lines.
fn reload(
    loaded: &Mutex<Loaded>,
    engine: &Mutex<Engine>,
    notify: &Notify,
) -> Result<String, Failure> {
    let mut loaded = lock(loaded);
    notify.reloading();
    let reloaded = loaded.reload(&lock(engine));
    let summary = loaded.config.summary();
    notify.ready(&summary);
    let warnings = loaded.warnings.iter().map(ToString::to_string);
    let mut lines = String::new();
    for line in warnings.chain(reloaded?) {
        log_at(Level::Warning, &line);
        lines += &format!("{line}\n");
    }
    log(format_args!("reloaded: {summary}"));
    Ok(lines)
}

/// All counters, with those of qdiscs, classes and filters where they are selected. Takes no queue
/// from its owner.
fn live_stats(engine: &Engine, selection: &Selection) -> EngineStats {
    let mut stats = engine.stats();
    for port in &mut stats.ports {
        if selection.has_classes(&port.name)
            && let Ok(link) = engine.link_named(&port.name)
        {
            port.classes = engine.classes(link.index);
            port.filters = engine.filters(link.index);
        }
    }
    stats
}

/// Where the daemon listens for requests; its directory is there.
fn control_socket(config: &ControlConfig) -> Result<PathBuf, Failure> {
    let path = config.socket.clone().unwrap_or_else(socket::default_path);
    if config.socket.is_none()
        && let Some(directory) = path.parent()
    {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory);
        made.map_err(|error| cannot_listen(&path, &error))?;
        if !socket::is_chosen() {
            socket::check_directory(directory).map_err(|error| cannot_listen(&path, &error))?;
        }
    }
    Ok(path)
}

fn cannot_listen(path: &Path, error: &dyn std::error::Error) -> Failure {
    let what = format!(
        "cannot listen for tc, ip and bridge at {}; choose another place with --socket",
        path.display()
    );
    Failure::because(Exit::Config, what, error)
}

/// Listens for requests; they are answered when the ports are there.
fn listen(config: &ControlConfig, path: &Path, had: Sockets) -> Result<Server, Failure> {
    let cannot = |error: &dyn std::error::Error| cannot_listen(path, error);
    let group = config.group.as_deref().map(group_id).transpose();
    let group = group.map_err(|error| cannot(&error))?;
    let monitor_group = config.monitor_group.as_deref().map(group_id).transpose();
    let monitor_group = monitor_group.map_err(|error| cannot(&error))?;
    let config = server::Config {
        listen: Listen {
            path: path.to_owned(),
            mode: config.mode,
            group,
        },
        monitor: config.monitor.clone().map(|path| Listen {
            path,
            mode: if monitor_group.is_some() {
                0o660
            } else {
                0o666
            },
            group: monitor_group,
        }),
        clients: server::Config::CLIENTS,
    };
    Server::take(&config, had).map_err(|error| cannot(&error))
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Has ports be opened from what the daemon before this one had of them.
fn give(engine: &Engine, loaded: &Loaded, devices: Vec<(String, HandOff)>) {
    for (name, handed) in devices {
        let mut before = loaded.before.iter();
        // Of another device it is of no use.
        if let Some(port) = before.find(|port| port.settings.name == name) {
            engine.devices().give(port.options.device.clone(), handed);
        }
    }
}

/// Notices devices that are gone, and opens them again; tells of links that change.
fn look_after(engine: &Engine, missing: &mut Missing) {
    let links = engine.links();
    let closed = links
        .values()
        .filter(|link| !link.open)
        .map(|link| link.index);
    let closed: Vec<u32> = closed.collect();
    // A reload may have given a port a device, or have failed to give it back.
    missing.retain(|index, _| closed.contains(index));
    missing.retain(|&index, gone| !reopen(engine, index, gone));
    for index in closed {
        missing.entry(index).or_insert(Gone::Now);
    }
    for event in engine.take_events() {
        let index = event.link();
        let (name, is_up) = match engine.link(index) {
            Ok(link) => (link.settings.name.clone(), link.settings.up),
            Err(_) => continue,
        };
        match event {
            // Nobody waits for what an administrator took down.
            PortEvent::Link(..) if !is_up => {}
            PortEvent::Link(_, link) => {
                let up = if link.up { "up" } else { "down" };
                let mtu = link.mtu.map(|mtu| format!(", MTU {mtu}"));
                let stats = engine.port_stats(index).ok();
                let status = stats.and_then(|stats| stats.status);
                let status = status.map(|status| format!(": {status}"));
                let (mtu, status) = (mtu.unwrap_or_default(), status.unwrap_or_default());
                log(format_args!("port {name:?}: link {up}{mtu}{status}"));
            }
            PortEvent::Gone(_) if missing.contains_key(&index) => {}
            PortEvent::Gone(_) => {
                log_at(
                    Level::Warning,
                    format_args!("port {name:?}: its device is gone"),
                );
                missing.insert(index, Gone::Now);
                if let Err(error) = engine.close_device(index) {
                    let what = format_args!("port {name:?}: {}", chain(&error));
                    log_at(Level::Warning, what);
                }
            }
        }
    }
}

/// Opens a device again. False if it cannot be opened yet.
fn reopen(engine: &Engine, index: u32, gone: &mut Gone) -> bool {
    let Ok(link) = engine.link(index) else {
        // Deleted meanwhile.
        return true;
    };
    let name = link.settings.name.clone();
    let error = match engine.reopen_device(index) {
        Ok(()) => {
            log(format_args!("port {name:?}: open again"));
            return true;
        }
        Err(error) => reason(error),
    };
    if !matches!(gone, Gone::Because(reported) if *reported == error) {
        let what = format_args!("port {name:?}: cannot be opened yet: {error}");
        log_at(Level::Warning, what);
        *gone = Gone::Because(error);
    }
    false
}
