//! Workers on threads, ports, bridges, and the control path that changes them while packets flow.
//!
//! The engine is generic over the drivers' types, so that no call on the packet path is indirect.
//! Control calls are carried out one at a time, block for some of the workers' rounds, and change
//! all or nothing; packets go on flowing meanwhile.

mod bridge;
mod bridge_vlans;
mod error;
mod fdb;
mod policy;
mod port;
mod ring_files;
mod state;
mod stats;

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use bridge::{BridgeInfo, BridgeOptions, BridgePort};
pub use bridge_vlans::VlanOwner;
pub use error::EngineError;
pub use fdb::{FdbEntry, FdbSpec};
pub use policy::RateLimits;
pub use port::Exchange;
pub use stats::{Conservation, EngineStats, PortStats};

use crate::forward::{Entry, Forwarder, MirredDir, MirredMode};
use crate::link::LinkState;
use crate::rx::{
    Backlog, Command, Event, FlowTable, MAX_BACKLOG, RxQueue, Sleep, View, Worker, WorkerParts,
    WorkerShared,
};
use softnet::mem::{PacketList, Pool};
use softnet::stats::DropCounters;
use softnet::sync::PerCpu;
use softnet::time::Clock;
use softnet::tx::{Features, Ingress, Notifier, TxPolicy, TxRing, set_worker};
use softnet_tc::QdiscSpec;
use state::{EVENTS, Port, State, WorkerHandle};

/// Settings of an engine as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Packets that may wait in a worker's backlog, 1 to
    /// [`BACKLOG_LIMIT`](crate::rx::BACKLOG_LIMIT) (the kernel's `net.core.netdev_max_backlog`).
    /// One counts once for each 8 KiB of buffers that it keeps.
    pub max_backlog: usize,
    /// How long an idle worker may busy-poll before it sleeps, while that pays off. Zero: it
    /// sleeps at once.
    pub busy_poll: Duration,
    /// Flows whose consumers are recorded (the kernel's `net.core.rps_sock_flow_entries`); rounded
    /// up to a power of two.
    pub flow_entries: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            max_backlog: MAX_BACKLOG,
            busy_poll: Duration::from_micros(50),
            flow_entries: 32_768,
        }
    }
}

/// A port to add.
#[derive(Debug)]
pub struct PortSetup<Q, R> {
    /// Name, unique in the engine.
    pub name: String,
    /// Receive queues.
    pub rx: Vec<Q>,
    /// Transmit queues.
    pub tx: Vec<R>,
    /// What the driver does by itself.
    pub features: Features,
    /// Qdisc of each transmit queue.
    pub qdisc: QdiscSpec,
    /// Who runs the transmit queues, and what they take at once.
    pub policy: TxPolicy,
}

/// A port of one engine. Another engine refuses it, and so does its own once the port is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId {
    engine: u32,
    index: u16,
    serial: u32,
}

/// A bridge of one engine. Another engine refuses it, and so does its own once it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BridgeId {
    engine: u32,
    index: usize,
    serial: u32,
}

/// Something that happened to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// Its device is gone. Packets for it are dropped until [`Engine::replace`].
    Gone(PortId),
    /// The state of its link changed.
    Link(PortId, LinkState),
}

/// An action on a port's egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirredSpec {
    /// The packet itself, or a copy.
    pub mode: MirredMode,
    /// The side of the target.
    pub dir: MirredDir,
    /// The target.
    pub to: PortId,
}

/// Takes packets that arrive at a port by an action to the backlog of the worker that receives
/// there.
#[derive(Debug)]
pub(crate) struct ToBacklog {
    /// The port's number.
    pub(crate) port: u16,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) notifier: Arc<Notifier>,
}

impl Ingress for ToBacklog {
    fn receive_later(&self, packets: &mut PacketList) {
        packets.for_each_mut(|packet| packet.set_port(self.port));
        *packets = self.backlog.push(packets.take());
        self.notifier.wake();
    }
}

/// Workers on threads, ports, bridges, and the control path that changes them while packets flow.
/// Dropping it stops the workers without draining; see [`stop`](Engine::stop).
pub struct Engine<Q, R> {
    /// What its ports' identifiers carry.
    id: u32,
    state: Mutex<State<Q, R>>,
    pool: Pool,
    clock: Clock,
    copied: Arc<PerCpu<1>>,
    /// What was dropped because its port was removed meanwhile.
    orphans: Arc<DropCounters>,
    flows: Arc<FlowTable>,
}

impl<Q, R> std::fmt::Debug for Engine<Q, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Starts one worker thread for each of `sleepers`. `pool` provides buffers for copies and
    /// segments.
    ///
    /// # Errors
    /// If there is no sleeper or a thread cannot be started.
    pub fn start<S: Sleep + 'static>(
        sleepers: Vec<S>,
        pool: Pool,
        clock: Clock,
    ) -> Result<Self, EngineError> {
        Engine::with_config(sleepers, pool, clock, EngineConfig::default())
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
    ) -> Result<Self, EngineError> {
        Engine::with_spawn(sleepers, pool, clock, config, spawn)
    }

    /// As [`with_config`](Engine::with_config); `spawn` starts the thread of the worker of a
    /// number.
    fn with_spawn<S: Sleep + 'static>(
        sleepers: Vec<S>,
        pool: Pool,
        clock: Clock,
        config: EngineConfig,
        spawn: impl Fn(usize, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> Result<Self, EngineError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
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
        // Dropped if a thread cannot be started: it then stops those that were.
        let engine = Engine {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(State::new(reports)),
            pool,
            clock,
            copied: Arc::new(PerCpu::new()),
            orphans: Arc::new(DropCounters::new()),
            flows: Arc::new(FlowTable::new(config.flow_entries, sleepers.len())),
        };
        let view = engine.view(&engine.state());
        for (index, (sleeper, backlog)) in sleepers.into_iter().zip(backlogs).enumerate() {
            let (commands, receiver) = channel();
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
            });
        }
        Ok(engine)
    }

    /// Waits until every worker has ended the round it was in, and published its counters.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn sync(&self) {
        self.state().sync();
    }

    fn state(&self) -> MutexGuard<'_, State<Q, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn port<'a>(
        &self,
        state: &'a State<Q, R>,
        port: PortId,
    ) -> Result<&'a Port<Q, R>, EngineError> {
        let known = state.ports.get(usize::from(port.index));
        let known = known.and_then(Option::as_ref);
        known
            .filter(|known| port.engine == self.id && known.serial == port.serial)
            .ok_or(EngineError::NoSuchPort)
    }

    fn port_mut<'a>(
        &self,
        state: &'a mut State<Q, R>,
        port: PortId,
    ) -> Result<&'a mut Port<Q, R>, EngineError> {
        self.port(state, port)?;
        let known = state.ports[usize::from(port.index)].as_mut();
        known.ok_or(EngineError::NoSuchPort)
    }

    fn port_id(&self, index: u16, serial: u32) -> PortId {
        PortId {
            engine: self.id,
            index,
            serial,
        }
    }

    /// What the workers forward by.
    fn view(&self, state: &State<Q, R>) -> Arc<View<Q, R>> {
        let bridges = state.members();
        let entry = |port: &Port<Q, R>| Entry {
            device: port.device.clone(),
            bridge: port
                .bridge
                .as_ref()
                .filter(|_| port.up)
                .and_then(|membership| bridges[membership.bridge].clone()),
            link: port.link.clone(),
            guard: port.guard.clone(),
        };
        let ports = state.ports.iter();
        Arc::new(View {
            forwarder: Forwarder {
                ports: ports.clone().map(|p| p.as_ref().map(entry)).collect(),
                pool: self.pool.clone(),
                copied: self.copied.clone(),
                orphans: self.orphans.clone(),
            },
            peers: ports
                .map(|p| p.as_ref().map_or_else(Vec::new, |p| p.napis.clone()))
                .collect(),
            pools: self.pools(state),
        })
    }

    /// Keeps back what workers need not know at once, until [`release`](Engine::release): many
    /// changes then cost one view of all ports, not one each. Calls nest.
    ///
    /// Kept back are changes that only have workers forward in another way: ports without receive
    /// queues, up, in a bridge, options, VLANs. What takes something away from workers, or gives
    /// them queues to receive from, waits for them and has them know all that was before.
    pub fn hold(&self) {
        self.state().held.depth += 1;
    }

    /// Has every worker forward by what was kept back.
    pub fn release(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.held.depth = state.held.depth.saturating_sub(1);
        if state.held.depth == 0 && state.held.stale {
            self.publish_and_sync(state);
        }
    }

    /// Has every worker forward by the state as it is, at once or when it is
    /// [released](Engine::release).
    fn publish_soon(&self, state: &mut State<Q, R>) {
        match state.held.depth {
            0 => self.publish_and_sync(state),
            _ => state.held.stale = true,
        }
    }

    /// As [`publish_soon`](Engine::publish_soon); then a bridge forgets what was learnt in VLANs
    /// that its ports no longer have.
    fn publish_vlans(&self, state: &mut State<Q, R>, bridge: usize) {
        state.held.lost_vlans.insert(bridge);
        self.publish_soon(state);
    }

    fn publish_and_sync(&self, state: &mut State<Q, R>) {
        self.publish(state);
        state.sync();
        for bridge in std::mem::take(&mut state.held.lost_vlans) {
            self.forget_lost_vlans(state, bridge);
        }
        state.held.stale = false;
    }

    /// How often the workers were told what they forward by.
    #[cfg(any(test, feature = "testing"))]
    pub fn published(&self) -> u64 {
        self.state().held.published
    }

    /// Hands the workers what they forward by, and each device its share of the buffers. What was
    /// kept back stays so until workers have it for sure.
    fn publish(&self, state: &mut State<Q, R>) {
        state.held.stale = !state.held.lost_vlans.is_empty();
        state.held.published += 1;
        let view = self.view(state);
        // All devices together get half of the smaller pool: the other half is for what waits to
        // be enqueued, and for what is in flight.
        let smaller = view.pools.iter().map(Pool::memory).min().unwrap_or(0);
        let devices = || state.ports.iter().flatten().map(|port| &port.device);
        let share = smaller / 2 / devices().count().max(1) as u64;
        devices().for_each(|device| device.set_buffer_quota(share));
        state.tell_all(|| Command::View(view.clone()));
    }

    /// The pools that packets come from, each once, the engine's first.
    fn pools(&self, state: &State<Q, R>) -> Vec<Pool> {
        let mut pools = vec![self.pool.clone()];
        for pool in state.ports.iter().flatten().flat_map(|port| &port.pools) {
            if !pools.iter().any(|known| known.is_same(pool)) {
                pools.push(pool.clone());
            }
        }
        pools
    }

    /// What happened to ports since the last call. To be called every now and then: it is here
    /// that a changed MTU, or other features, take effect, for what is sent and for what is queued.
    pub fn take_events(&self) -> Vec<PortEvent> {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut events = Vec::new();
        for event in state.reports.try_iter() {
            let (Event::Gone { port, .. } | Event::Link { port }) = event;
            let known = state.ports.get_mut(usize::from(port));
            let Some(known) = known.and_then(Option::as_mut) else {
                continue;
            };
            let id = self.port_id(port, known.serial);
            let event = match event {
                Event::Gone { opened, .. } if opened != known.opened => continue,
                Event::Gone { .. } => PortEvent::Gone(id),
                Event::Link { .. } => {
                    let link = known.link.get();
                    let features = Features {
                        mtu: link.mtu.unwrap_or(known.features.mtu),
                        ..link.features.unwrap_or(known.features)
                    };
                    if features != known.features {
                        known.set_features(features);
                    }
                    PortEvent::Link(id, link)
                }
            };
            if !events.contains(&event) {
                events.push(event);
            }
        }
        events
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
        let now = self.clock.now();
        let ports: Vec<_> = state.ports.iter().flatten().map(PortStats::of).collect();
        let mut removed = state.removed.clone();
        stats::sum_drops(&mut removed.drops, &self.orphans.nonzero());
        let by_actions: u64 = ports.iter().map(|p| p.device.copied).sum();
        EngineStats {
            ports,
            workers: state.workers.iter().map(|w| w.shared.stats(now)).collect(),
            pool: self.pool.stats(),
            port_pools: self.pools(&state)[1..].iter().map(Pool::stats).collect(),
            copied: self.copied.sum(0) + by_actions + removed.copied,
            removed,
        }
    }

    /// The counters of one port. Stops no worker.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn port_stats(&self, port: PortId) -> Result<PortStats, EngineError> {
        let state = self.state();
        Ok(PortStats::of(self.port(&state, port)?))
    }

    /// Stops receiving, lets the transmit queues run dry for at most `drain`, drops (and counts)
    /// what is left, ends the workers and closes the ports. Returns the final counters: nothing is
    /// queued then.
    pub fn stop(self, drain: Duration) -> EngineStats {
        let state = self.state();
        let ports: Vec<_> = state.ports.iter().flatten().collect();
        ports.iter().for_each(|port| state.close(port.opened));
        let end = self.clock.now() + drain;
        while self.clock.now() < end && !ports.iter().all(|port| port.device.is_empty()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for port in &ports {
            port.device.deactivate().expect(state::OUTSIDE);
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

/// Starts a worker's thread.
fn spawn(index: usize, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("softnet/{index}"))
        .spawn(work)
}

impl<Q, R> Drop for Engine<Q, R> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.tell_all(|| Command::Stop);
        for thread in state.workers.iter_mut().filter_map(|w| w.thread.take()) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
mod bridge_tests;
#[cfg(all(test, not(miri)))]
mod life_tests;
#[cfg(all(test, not(miri)))]
mod pools_tests;
#[cfg(all(test, not(miri)))]
mod rate_group_tests;
#[cfg(all(test, not(miri)))]
mod replace_tests;
#[cfg(all(test, not(miri)))]
mod steering_tests;
#[cfg(all(test, not(miri)))]
mod tests;
