//! An engine's life: its workers' threads are started, told of changes, and stopped.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::change::Change;
use super::devices::Devices;
use super::error::EngineError;
use super::hang::Seen;
use super::losses::sum_drops;
use super::publish::Publish;
use super::state::{EVENTS, State, WorkerHandle};
use super::stats::{EngineStats, PortStats};
use crate::rx::{
    Backlog, Command, FlowTable, MAX_BACKLOG, Sleep, Worker, WorkerParts, WorkerShared,
};
use softnet::mem::Pool;
use softnet::time::Clock;
use softnet::tx::{ControlError, Notifier, set_worker};
use softnet_tc::DefaultQdisc;

/// Settings of an engine as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Packets that may wait in a worker's backlog, 1 to
    /// [`BACKLOG_LIMIT`](crate::rx::BACKLOG_LIMIT) (the kernel's `net.core.netdev_max_backlog`).
    /// One counts once for each 8 KiB of buffers that it keeps.
    pub max_backlog: usize,
    /// Time that an idle worker may busy-poll before it sleeps, while that pays off. Zero: it
    /// sleeps at once.
    pub busy_poll: Duration,
    /// Flows whose consumers are recorded (the kernel's `net.core.rps_sock_flow_entries`); rounded
    /// up to a power of two.
    pub flow_entries: usize,
    /// Kind of the qdisc at a transmit queue to which none is attached (the kernel's
    /// `net.core.default_qdisc`).
    pub default_qdisc: DefaultQdisc,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            max_backlog: MAX_BACKLOG,
            busy_poll: Duration::from_micros(50),
            flow_entries: 32_768,
            default_qdisc: DefaultQdisc::default(),
        }
    }
}

/// Workers on threads, ports, bridges, and the control path that changes them while packets flow.
/// Dropping it stops the workers without draining; see [`stop`](Engine::stop).
///
/// Links, which are ports and bridges, have numbers and names. Calls may come from several threads,
/// and are carried out one at a time; who needs several calls as one keeps the engine in a mutex.
///
/// Drivers, qdiscs and actions must not call it: a call may wait for the worker, or the owner of a
/// transmit queue, that they run on. Calls that change something refuse that
/// ([`EngineError::Control`], [`EngineError::CalledByWorker`]), and change nothing.
pub struct Engine<D: Devices> {
    pub(super) state: Mutex<State<D>>,
    pub(super) devices: D,
    pub(super) clock: Clock,
    flows: Arc<FlowTable>,
}

impl<D: Devices> std::fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

impl<D: Devices> Engine<D> {
    /// Starts one worker thread for each of `sleepers`. `pool` provides buffers for copies and
    /// segments, `devices` opens ports.
    ///
    /// # Errors
    /// If there is no sleeper or a thread cannot be started.
    pub fn start<S: Sleep + 'static>(
        sleepers: Vec<S>,
        pool: Pool,
        clock: Clock,
        devices: D,
    ) -> Result<Self, EngineError> {
        Engine::with_config(sleepers, pool, clock, EngineConfig::default(), devices)
    }

    /// As [`start`](Engine::start), with settings.
    ///
    /// # Errors
    /// As there.
    pub fn with_config<S: Sleep + 'static>(
        sleepers: Vec<S>,
        pool: Pool,
        clock: Clock,
        config: EngineConfig,
        devices: D,
    ) -> Result<Self, EngineError> {
        Engine::with_spawn(sleepers, pool, clock, config, devices, spawn)
    }

    /// As [`with_config`](Engine::with_config); `spawn` starts the thread of the worker of a
    /// number.
    pub(super) fn with_spawn<S: Sleep + 'static>(
        sleepers: Vec<S>,
        pool: Pool,
        clock: Clock,
        config: EngineConfig,
        devices: D,
        spawn: impl Fn(usize, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> Result<Self, EngineError> {
        if sleepers.is_empty() {
            return Err(EngineError::NoWorker);
        }
        let (report, reports) = channel();
        let (mut shared, mut backlogs) = (Vec::new(), Vec::new());
        for sleeper in &sleepers {
            let (backlog, owner) = Backlog::new(config.max_backlog);
            let notifier = Arc::new(Notifier::new(EVENTS, sleeper.waker()));
            shared.push(Arc::new(WorkerShared::new(notifier, backlog)));
            backlogs.push(owner);
        }
        let shared: Arc<[_]> = shared.into();
        let flows = Arc::new(FlowTable::new(config.flow_entries, sleepers.len()));
        // Dropped if a thread cannot be started: it then stops those that were.
        let engine = Engine {
            state: Mutex::new(State::new(reports, pool, clock.clone(), flows.clone())),
            devices,
            clock,
            flows,
        };
        engine.state().default_qdisc = config.default_qdisc;
        let view = engine.state().view();
        for (index, (sleeper, backlog)) in sleepers.into_iter().zip(backlogs).enumerate() {
            let (commands, receiver) = channel();
            let lower = sleeper.lower_from_elsewhere();
            let worker = Worker::new(WorkerParts {
                index,
                workers: shared.clone(),
                backlog,
                commands: receiver,
                reports: report.clone(),
                sleeper,
                clock: engine.clock.clone(),
                view: view.clone(),
                busy_poll: config.busy_poll,
            });
            let work = Box::new(move || {
                set_worker(index);
                IS_WORKER.set(true);
                worker.run();
            });
            let thread = spawn(index, work).map_err(EngineError::Thread)?;
            let mut events = vec![false; shared[index].notifier.events()];
            events[crate::rx::COMMANDS] = true;
            engine.state().workers.push(WorkerHandle {
                shared: shared[index].clone(),
                commands,
                thread: Some(thread),
                events,
                lower,
                seen: Seen::default(),
            });
        }
        Ok(engine)
    }

    /// Waits until every worker has ended the round it was in, and published its counters.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn sync(&self) {
        self.state().sync();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a call that may wait for workers and owners of queues.
    pub(super) fn control(&self) -> Result<MutexGuard<'_, State<D>>, EngineError> {
        check_caller()?;
        Ok(self.state())
    }

    /// Changes a link: looks it up, has workers forward by what `f` changed, and tells watchers.
    pub(super) fn update(
        &self,
        index: u32,
        change: impl FnOnce(u32) -> Change,
        f: impl FnOnce(&mut State<D>) -> Result<Publish, EngineError>,
    ) -> Result<(), EngineError> {
        let mut state = self.control()?;
        state.link(index)?;
        match f(&mut state)? {
            Publish::Nothing => {}
            Publish::Soon => state.publish_soon(),
            Publish::Vlans(bridge) => state.publish_vlans(bridge),
        }
        state.changes.note(change(index));
        Ok(())
    }

    /// The way to open devices.
    pub fn devices(&self) -> &D {
        &self.devices
    }

    /// The clock that everything in it goes by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Record of the consumers of flows, for ports that [follow](crate::rx::Rfs::Follow) them. A
    /// program whose own threads consume packets records here on which worker's CPU they run.
    pub fn flows(&self) -> &Arc<FlowTable> {
        &self.flows
    }

    /// Has the workers told of several changes at once, when `f` returns. See
    /// [`hold`](Engine::hold).
    pub fn at_once<T>(&self, f: impl FnOnce(&Self) -> T) -> T {
        self.hold();
        let result = f(self);
        self.release();
        result
    }

    /// Keeps back what workers need not know at once, until [`release`](Engine::release): many
    /// changes then cost one view of all ports, not one each. Calls nest.
    ///
    /// Kept back are changes that only have workers forward in another way: ports without receive
    /// queues, up, in a bridge, options, VLANs. What takes something away from workers, or gives
    /// them queues to receive from, waits for them and has them know all that was before.
    pub fn hold(&self) {
        // A driver's changes are refused, and there is nothing to keep back.
        if let Ok(mut state) = self.control() {
            state.held.depth += 1;
        }
    }

    /// Has every worker forward by what was kept back.
    pub fn release(&self) {
        let Ok(mut state) = self.control() else {
            return;
        };
        state.held.depth = state.held.depth.saturating_sub(1);
        if state.held.depth > 0 {
            return;
        }
        if state.held.stale {
            state.publish_and_sync();
        } else if std::mem::take(&mut state.held.unsynced) {
            state.sync();
        }
    }

    /// Times that the workers were told what they forward by.
    #[cfg(any(test, feature = "testing"))]
    pub fn published(&self) -> u64 {
        self.state().held.published
    }

    /// Restarts drivers that have taken nothing for 5 s although packets wait (see
    /// [`Device::watchdog`](softnet::tx::Device::watchdog)), and returns the names of their ports.
    /// To be called every second or so.
    pub fn watchdog(&self) -> Vec<String> {
        let devices = self.state();
        let devices = devices.ports.iter().flatten().map(|p| p.device.clone());
        let devices: Vec<_> = devices.collect();
        let now = self.clock.now();
        devices
            .iter()
            .filter(|device| device.watchdog(now) > 0)
            .map(|device| device.name().to_string())
            .collect()
    }

    /// All counters. Stops no worker.
    pub fn stats(&self) -> EngineStats {
        let state = self.state();
        let now = state.clock.now();
        let ports: Vec<_> = state.ports.iter().flatten().map(PortStats::of).collect();
        let mut removed = state.removed.clone();
        sum_drops(&mut removed.drops, &state.orphans.nonzero());
        let by_actions: u64 = ports.iter().map(|p| p.device.copied).sum();
        EngineStats {
            ports,
            workers: state.workers.iter().map(|w| w.shared.stats(now)).collect(),
            pool: state.pool.stats(),
            port_pools: state.pools()[1..].iter().map(Pool::stats).collect(),
            copied: state.copied.sum(0) + by_actions + removed.copied,
            removed,
        }
    }

    /// The counters of one port. Stops no worker.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn port_stats(&self, index: u32) -> Result<PortStats, EngineError> {
        Ok(PortStats::of(self.state().port(index)?))
    }

    /// Stops receiving, lets the transmit queues run dry for at most `drain`, drops (and counts)
    /// what is left, ends the workers and closes the ports. Returns the final counters: nothing is
    /// queued then.
    pub fn stop(self, drain: Duration) -> EngineStats {
        let state = self.state();
        let ports: Vec<_> = state.ports.iter().flatten().collect();
        let opened: Vec<u32> = ports.iter().map(|port| port.opened).collect();
        state.close(&opened);
        let end = self.clock.now() + drain;
        while self.clock.now() < end && !ports.iter().all(|port| port.device.is_empty()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for port in &ports {
            // Refused only where a driver does this, for which the workers' rounds wait already.
            let _ = port.device.deactivate();
        }
        // What actions left in backlogs dies at a device that is down. Twice: it may go through
        // two.
        state.sync();
        state.sync();
        let last: Vec<_> = ports.iter().map(|p| (p.classes(), p.filters())).collect();
        drop(state);
        let mut stats = self.stats();
        for (port, last) in stats.ports.iter_mut().zip(last) {
            (port.classes, port.filters) = last;
        }
        stats
    }
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Refuses drivers, qdiscs and actions: a control call might wait for their thread. To be asked
/// before the state is locked, since a call that has the lock may wait for that thread as well.
pub(super) fn check_caller() -> Result<(), EngineError> {
    ControlError::unless_owner()?;
    match IS_WORKER.get() {
        true => Err(EngineError::CalledByWorker),
        false => Ok(()),
    }
}

/// Starts a worker's thread.
pub(super) fn spawn(index: usize, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("softnet/{index}"))
        .spawn(work)
}

impl<D: Devices> Drop for Engine<D> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.tell_all(|| Command::Stop);
        for thread in state.workers.iter_mut().filter_map(|w| w.thread.take()) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        let ports = std::mem::take(&mut state.ports);
        let mut rings = Vec::new();
        for port in ports.into_iter().flatten() {
            port.napis.iter().for_each(|napi| drop(napi.close()));
            let before = port.device.replace_rings(Vec::new());
            rings.extend(before.into_iter().flatten());
        }
        self.devices.close(rings);
    }
}
