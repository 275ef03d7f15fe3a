//! `softnet run`: an engine from a configuration, kept up until a signal.
//!
//! A port's device can go away while the engine runs: somebody deletes it. Packets for it are then
//! dropped with a reason, and the device is made again as soon as the system lets us.

mod counts;
mod missing;
mod offer;
mod operations;
mod sockets;

use std::io::{self, IsTerminal};
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use softnet::wire::EthernetAddress;
use softnet_engine::{PortSpec, Virtual};
use softnet_io::{Allowed, HandOff, LOOPBACK_MTU, PortDevices, Scheduling, VirtualSpec, rights};
use softnet_rtnl::server::{Sockets, Waker};
use softnet_rtnl::{First, Rtnl};

use self::missing::{Gone, Missing, look_after, open_all};
use self::offer::Offer;
use self::operations::{audit, captures, operations, reload};
use self::sockets::{cannot_listen, control_socket, listen};
use crate::counters;
use crate::failure::{Exit, Failure, chain};
use crate::log::{Level, log, log_at};
use crate::metrics::render;
use crate::notify::Notify;
use crate::privileges::{self, Separation};
use crate::reload::{Loaded, reason};
use crate::replace::{Before, DYING, Parts, Predecessor, Successor, try_again};
use crate::report;
use crate::saver::Saver;
use crate::setup::{self, Engine};
use crate::signals::{self, Stop};
use crate::store::Store;

/// Interval at which ports are looked after.
const LOOK: Duration = Duration::from_millis(250);
/// The same while a successor gets ready.
const LOOK_SUCCESSOR: Duration = Duration::from_millis(10);
/// Origin of the state that a successor starts with.
const BEFORE: &str = "the daemon before this one";
/// Time in which queued packets may still leave when the daemon stops.
const DRAIN: Duration = Duration::from_secs(1);

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
    let before = match how.replace {
        true => Predecessor::ask(&path)?,
        false => Before::Nobody,
    };
    // One that has died may still be closing what it has not given.
    let (mut predecessor, mut is_dying) = match before {
        Before::Nobody => (None, false),
        Before::Dead => (None, true),
        Before::Runs(before) => (Some(before), false),
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
    let offer = config.metrics.as_ref();
    let offer = offer.map(|place| Offer::new(place, how.replace));
    let mut offer = offer.transpose()?;
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
        let taken = before.take()?;
        is_dying = taken.has_died;
        let saved = match &taken.state {
            Some(state) => loaded.saved(BEFORE, state)?,
            None => loaded.left(BEFORE, &before.state)?,
        };
        if saved.config.control.monitor == loaded.config.control.monitor {
            sockets.monitor = taken.control.monitor;
        }
        sockets.listener = taken.control.listener;
        if let (Some(offer), Some(socket)) = (&mut offer, taken.metrics)
            && saved.config.metrics == loaded.config.metrics
        {
            offer.take(socket);
        }
        let lines = loaded.become_saved(saved, BEFORE);
        lines.iter().for_each(log);
        give(&engine, &loaded, taken.devices);
    } else {
        give(&engine, &loaded, stored);
    }
    let is_gone = is_dying || predecessor.is_none();
    let metrics = offer.map(|offer| offer.settle(is_gone)).transpose()?;
    let config = &loaded.config;
    // What came is taken by the first try.
    let attempt = || listen(&config.control, &path, mem::take(&mut sockets));
    let server = try_again(DYING, attempt, |tried| is_dying && tried.is_err())?;
    let mut missing = Missing::new();
    for (index, why) in loaded.start(&engine, how.strict && !is_dying)? {
        let why = reason(why);
        if let Ok(link) = engine.link(index) {
            let name = &link.settings.name;
            let what = format_args!("port {name:?}: cannot be opened yet: {why}");
            log_at(Level::Warning, what);
        }
        missing.insert(index, Gone::Because(why));
    }
    if how.strict && is_dying {
        open_all(&engine, &mut missing)?;
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
    let rtnl = match &saver {
        Some(saver) => rtnl.keep(saver.clients()),
        None => rtnl,
    };
    let mut metrics_socket = None;
    if let Some(metrics) = metrics {
        metrics_socket = metrics.socket().ok();
        let engine = Arc::downgrade(&engine);
        let text = move |format| {
            counts::sample(&engine, classes).map_or_else(String::new, |s| render(&s, format))
        };
        metrics
            .start(text)
            .map_err(cannot("cannot start a thread"))?;
    }
    if predecessor.is_some() {
        // Until the daemon before this one ends, it may go on, and would know of no change that is
        // made here; the state's file is its own.
        server.hold();
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
        server.go_on();
    }
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
        for socket in successors.try_iter() {
            let next = Successor::new(socket).ok();
            if let Some(before) = mem::replace(&mut successor, next) {
                before.turn_away();
            }
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
