//! Puts the rooms together: workers on threads, ports, bridges, and the control path that changes them while packets flow.
//!
//! The engine is generic over the drivers' types, so that no call on a packet's way is indirect. Control calls may block for
//! the length of a worker's round; packets go on flowing meanwhile.

mod classes;
mod receive;
mod stats;
mod steering;

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use stats::{Conservation, EngineStats, PortStats};

use crate::forward::{AGEING, Actions, Bridge, Forwarder, Mirred, MirredDir, MirredMode, Tables};
use crate::pool::Pool;
use crate::qdisc::{AnyQdisc, QdiscSpec, SpecError};
use crate::rx::{
    Backlog, Command, Doorbell, FlowTable, MAX_BACKLOG, Peers, RxQueue, Sleep, SteeringSpec,
    Worker, WorkerParts, WorkerShared,
};
use crate::stats::Dropped;
use crate::sync::PerCpu;
use crate::time::{Clock, Time};
use crate::tx::{
    Device, DeviceConfig, Egress, Features, Ingress, QueueMap, QueueMapError, TxPolicy, TxRing,
    set_sender_cpu,
};

/// Bells of a worker: one for commands, the others for transmit queues.
const BELLS: usize = 1024;
/// Addresses a bridge remembers.
const FDB_SIZE: usize = 8192;

/// Settings of an engine as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Packets that may wait in a worker's backlog, 1 to [`BACKLOG_LIMIT`](crate::rx::BACKLOG_LIMIT) (the kernel's `net.core.netdev_max_backlog`).
    pub max_backlog: usize,
    /// How long an idle worker may look around before it sleeps, while that pays off. Zero: it sleeps at once.
    pub busy_poll: Duration,
    /// Flows whose consumers are remembered (the kernel's `net.core.rps_sock_flow_entries`); rounded up to a power of two.
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
    /// Discipline of each transmit queue.
    pub qdisc: QdiscSpec,
}

/// Number of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId(u16);

/// An action on a port's way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirredSpec {
    /// The packet itself, or a copy.
    pub mode: MirredMode,
    /// The side of the target.
    pub dir: MirredDir,
    /// The target.
    pub to: PortId,
}

/// Why a control call was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The queueing discipline's parameters are wrong.
    #[error(transparent)]
    Qdisc(#[from] SpecError),
    /// Queues are shared out as they cannot be.
    #[error(transparent)]
    QueueMap(#[from] QueueMapError),
    /// The name is taken.
    #[error("there is already a port named `{0}`")]
    DuplicatePort(String),
    /// The port is part of another bridge.
    #[error("port `{0}` is already part of a bridge")]
    InBridge(String),
    /// All bells are in use.
    #[error(
        "the engine serves at most {0} transmit queues; use fewer ports or queues, or more workers"
    )]
    TooManyQueues(usize),
    /// Packets cannot be steered to a worker that does not exist.
    #[error("there is no worker {worker}; the engine has {workers}, numbered from 0")]
    NoSuchWorker {
        /// The number asked for.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// A worker thread could not be started.
    #[error("cannot start a worker thread")]
    Thread(#[source] io::Error),
    /// An engine without workers forwards nothing.
    #[error("an engine needs at least one worker")]
    NoWorker,
}

struct WorkerHandle<Q, R> {
    shared: Arc<WorkerShared>,
    commands: Sender<Command<Q, R>>,
    thread: Option<JoinHandle<()>>,
    /// Transmit queues served.
    queues: usize,
}

/// Port and bridge tables under construction, as the control path knows them.
struct State<Q, R> {
    workers: Vec<WorkerHandle<Q, R>>,
    devices: Vec<Option<Arc<Device<R>>>>,
    bridges: Vec<(Arc<Bridge>, Vec<u16>)>,
    bridge_of: Vec<Option<usize>>,
    /// Receive queues by port.
    napis: Peers<Q, R>,
    /// How each port's packets are shared out, by port.
    steering: Vec<SteeringSpec>,
    /// The pools that each port's receive queues take buffers from, by port.
    pools: Vec<Vec<Pool>>,
    /// Worker of the next receive queue.
    next_worker: usize,
}

/// Workers on threads, ports, bridges, and the control path that changes them while packets flow. Dropping it stops the workers without draining; see [`stop`](Engine::stop).
pub struct Engine<Q, R> {
    state: Mutex<State<Q, R>>,
    gone: Mutex<Receiver<u16>>,
    pool: Pool,
    clock: Clock,
    copied: Arc<PerCpu<1>>,
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
    /// Starts one worker thread for each of `sleepers`. `pool` provides buffers for copies and segments.
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
        if sleepers.is_empty() {
            return Err(EngineError::NoWorker);
        }
        let flows = Arc::new(FlowTable::new(config.flow_entries, sleepers.len()));
        let (gone_sender, gone) = channel();
        let (mut shared, mut backlogs) = (Vec::new(), Vec::new());
        for sleeper in &sleepers {
            let (backlog, owner) = Backlog::new(config.max_backlog);
            let doorbell = Arc::new(Doorbell::new(BELLS, sleeper.waker()));
            shared.push(Arc::new(WorkerShared::new(doorbell, backlog)));
            backlogs.push(owner);
        }
        let shared: Arc<[_]> = shared.into();
        let pools: Arc<[Pool]> = Arc::new([pool.clone()]);
        let mut workers = Vec::new();
        for (index, (sleeper, backlog)) in sleepers.into_iter().zip(backlogs).enumerate() {
            let (commands, receiver) = channel();
            let worker = Worker::new(WorkerParts {
                index,
                workers: shared.clone(),
                backlog,
                commands: receiver,
                gone: gone_sender.clone(),
                sleeper,
                clock: clock.clone(),
                pools: pools.clone(),
                busy_poll: config.busy_poll,
            });
            let thread = std::thread::Builder::new()
                .name(format!("softnet/{index}"))
                .spawn(move || {
                    set_sender_cpu(index);
                    worker.run();
                })
                .map_err(EngineError::Thread)?;
            workers.push(WorkerHandle {
                shared: shared[index].clone(),
                commands,
                thread: Some(thread),
                queues: 0,
            });
        }
        Ok(Engine {
            state: Mutex::new(State {
                workers,
                devices: Vec::new(),
                bridges: Vec::new(),
                bridge_of: Vec::new(),
                napis: Vec::new(),
                steering: Vec::new(),
                pools: Vec::new(),
                next_worker: 0,
            }),
            gone: Mutex::new(gone),
            pool,
            clock,
            copied: Arc::new(PerCpu::new()),
            flows,
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State<Q, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a port and starts polling it. Its queues are spread over the workers. Until it is part of a bridge,
    /// what it receives is dropped.
    ///
    /// # Errors
    /// If the name is taken, the discipline's parameters are wrong, or there are too many queues.
    pub fn add_port(&self, setup: PortSetup<Q, R>) -> Result<PortId, EngineError> {
        let mut state = self.state();
        if state
            .devices
            .iter()
            .flatten()
            .any(|d| d.name() == setup.name)
        {
            return Err(EngineError::DuplicatePort(setup.name));
        }
        let port = state.devices.len() as u16;
        let first = state.next_worker;
        let mut homes = Vec::new();
        let mut served = Vec::new();
        for queue in 0..setup.tx.len() {
            let index = (first + queue) % state.workers.len();
            let worker = &mut state.workers[index];
            worker.queues += 1;
            if worker.queues >= worker.shared.doorbell.bells() {
                return Err(EngineError::TooManyQueues(
                    state.workers.len() * (BELLS - 1),
                ));
            }
            homes.push((worker.shared.doorbell.clone(), worker.queues));
            served.push((index, worker.queues));
        }
        let config = DeviceConfig {
            name: setup.name,
            features: setup.features,
            qdisc: setup.qdisc,
            policy: TxPolicy::default(),
        };
        let device = Arc::new(Device::new(config, setup.tx, &self.pool, &homes)?);
        let receiver = &state.workers[first].shared;
        device.set_ingress(Ingress {
            port,
            backlog: receiver.backlog.clone(),
            doorbell: receiver.doorbell.clone(),
        });
        device.measure(self.clock.clone());
        state.next_worker = (first + setup.rx.len().max(1)) % state.workers.len();
        state.devices.push(Some(device.clone()));
        state.bridge_of.push(None);
        state.napis.push(Vec::new());
        state.steering.push(SteeringSpec::default());
        state.pools.push(Vec::new());
        for (queue, (worker, token)) in served.into_iter().enumerate() {
            state.workers[worker].tell(Command::AddTx(token, (device.clone(), queue)));
        }
        self.publish(&state);
        self.poll(&mut state, setup.rx, &device, port, first);
        Ok(PortId(port))
    }

    /// Joins ports by a learning switch. When this returns, every worker forwards by it.
    ///
    /// # Errors
    /// If one of them is part of a bridge already.
    pub fn add_bridge(&self, name: impl Into<String>, ports: &[PortId]) -> Result<(), EngineError> {
        let mut state = self.state();
        for port in ports {
            if state.bridge_of[usize::from(port.0)].is_some() {
                let name = state.devices[usize::from(port.0)]
                    .as_ref()
                    .map_or("", |d| d.name());
                return Err(EngineError::InBridge(name.to_owned()));
            }
        }
        let index = state.bridges.len();
        let bridge = Arc::new(Bridge::new(name, FDB_SIZE, AGEING));
        state
            .bridges
            .push((bridge, ports.iter().map(|p| p.0).collect()));
        for port in ports {
            state.bridge_of[usize::from(port.0)] = Some(index);
        }
        self.publish(&state);
        drop(state);
        self.sync();
        Ok(())
    }

    /// Hands the current tables to the workers.
    fn publish(&self, state: &State<Q, R>) {
        let tables = Arc::new(Tables {
            devices: state.devices.clone(),
            bridges: state.bridges.clone(),
            bridge_of: state.bridge_of.clone(),
            pool: self.pool.clone(),
            copied: self.copied.clone(),
        });
        for worker in &state.workers {
            worker.tell(Command::Forward(Forwarder::from(tables.clone())));
        }
    }

    /// Replaces a port's discipline while packets flow. What is queued moves to the new one, in order; what does not fit
    /// is dropped and counted.
    ///
    /// # Errors
    /// If the parameters are wrong; nothing is changed then.
    pub fn set_qdisc(&self, port: PortId, qdisc: &QdiscSpec) -> Result<(), EngineError> {
        let device = self.state().devices[usize::from(port.0)].clone();
        match device {
            Some(device) => Ok(device.set_qdisc(qdisc, self.clock.now())?),
            None => Ok(()),
        }
    }

    /// Gives a port's discipline other parameters of its kind while packets flow; see [`Device::change_qdisc`].
    ///
    /// # Errors
    /// If the parameters are wrong or of another kind; nothing is changed then.
    pub fn change_qdisc(&self, port: PortId, qdisc: &QdiscSpec) -> Result<(), EngineError> {
        let device = self.state().devices[usize::from(port.0)].clone();
        match device {
            Some(device) => Ok(device.change_qdisc(qdisc, self.clock.now())?),
            None => Ok(()),
        }
    }

    /// Does something with the discipline of one of a port's transmit queues, at the time that it is given; see [`Device::with_qdisc`]. `None` if there is no such
    /// port or queue.
    pub fn with_qdisc<T>(
        &self,
        port: PortId,
        queue: usize,
        f: impl FnOnce(&mut AnyQdisc, Time, &mut Dropped) -> T,
    ) -> Option<T> {
        let device = self.state().devices.get(usize::from(port.0))?.clone()?;
        let now = self.clock.now();
        device.with_qdisc(queue, |qdisc, dropped| f(qdisc, now, dropped))
    }

    /// Shares a port's transmit queues out among traffic classes, workers and receive queues, while packets flow.
    ///
    /// # Errors
    /// If the map does not fit the port; nothing is changed then.
    pub fn set_queue_map(&self, port: PortId, map: &QueueMap) -> Result<(), EngineError> {
        let device = self.state().devices[usize::from(port.0)].clone();
        match device {
            Some(device) => Ok(device.set_queue_map(map)?),
            None => Ok(()),
        }
    }

    /// Puts actions on a port's way out, in the place of those it has, in this order.
    pub fn set_actions(&self, port: PortId, actions: &[MirredSpec]) {
        let state = self.state();
        let device = |port: PortId| state.devices[usize::from(port.0)].as_ref();
        let actions: Vec<_> = actions
            .iter()
            .filter_map(|a| Some(Mirred::new(a.mode, a.dir, device(a.to)?)))
            .collect();
        if let Some(device) = device(port) {
            let egress = (!actions.is_empty())
                .then(|| Box::new(Actions::new(actions)) as Box<dyn Egress<R>>);
            device.set_egress(egress);
        }
    }

    /// Restarts drivers that have taken nothing for 5 s although packets wait (see [`Device::watchdog`]), and returns the names of their ports. To be
    /// called every second or so.
    pub fn watchdog(&self) -> Vec<String> {
        let devices: Vec<_> = self.state().devices.iter().flatten().cloned().collect();
        let now = self.clock.now();
        devices
            .iter()
            .filter(|device| device.watchdog(now) > 0)
            .map(|device| device.name().to_owned())
            .collect()
    }

    /// Ports whose device has gone since the last call. Packets for them are dropped until [`replace`](Engine::replace).
    pub fn take_gone(&self) -> Vec<PortId> {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ports: Vec<u16> = gone.try_iter().collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().map(PortId).collect()
    }

    /// Gives a port new queues, in the place of those of a device that is gone. Statistics, discipline and bridge stay.
    /// `tx` must have as many queues as the port had. When this returns, no packet of the old device is in any backlog (INV-RX-8).
    pub fn replace(&self, port: PortId, rx: Vec<Q>, tx: Vec<R>) {
        let state = self.state();
        let Some(Some(device)) = state.devices.get(usize::from(port.0)).cloned() else {
            return;
        };
        for worker in &state.workers {
            worker.tell(Command::RemoveRx(port.0));
        }
        device.replace_rings(tx);
        drop(state);
        self.sync();
        self.sync();
        let mut state = self.state();
        let first = state.next_worker;
        self.poll(&mut state, rx, &device, port.0, first);
        drop(state);
        self.sync();
    }

    /// Everything's numbers. Stops nobody.
    pub fn stats(&self) -> EngineStats {
        let state = self.state();
        let now = self.clock.now();
        EngineStats {
            ports: state
                .devices
                .iter()
                .flatten()
                .map(|d| PortStats {
                    name: d.name().to_owned(),
                    device: d.stats(),
                    classes: Vec::new(),
                })
                .collect(),
            workers: state.workers.iter().map(|w| w.shared.stats(now)).collect(),
            pool: self.pool.stats(),
            port_pools: self.pools(&state)[1..].iter().map(Pool::stats).collect(),
            copied: self.copied.sum(0)
                + state
                    .devices
                    .iter()
                    .flatten()
                    .map(|d| d.copied())
                    .sum::<u64>(),
        }
    }

    /// Stops receiving, lets the transmit queues run dry for at most `drain`, drops (and counts) what is left, ends the workers and closes
    /// the ports. Returns the final numbers: nothing is queued then.
    pub fn stop(self, drain: Duration) -> EngineStats {
        let devices: Vec<_> = self.state().devices.iter().flatten().cloned().collect();
        for port in 0..devices.len() {
            let state = self.state();
            state
                .workers
                .iter()
                .for_each(|w| w.tell(Command::RemoveRx(port as u16)));
        }
        // Twice: when nobody receives any more, what was handed over last is still to be worked off.
        self.sync();
        self.sync();
        let end = self.clock.now() + drain;
        while self.clock.now() < end && !devices.iter().all(|d| d.is_empty()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        devices.iter().for_each(|device| device.deactivate());
        // What actions left in backlogs dies at a device that is down. Twice, as above.
        self.sync();
        self.sync();
        let mut stats = self.stats();
        for (port, device) in stats.ports.iter_mut().zip(&devices) {
            port.classes = classes::classes(device);
        }
        stats
    }

    /// Waits until every worker has carried out what it was told.
    fn sync(&self) {
        let (done, wait) = channel();
        let workers = {
            let state = self.state();
            state
                .workers
                .iter()
                .for_each(|w| w.tell(Command::Sync(done.clone())));
            state.workers.len()
        };
        drop(done);
        // Ends early if a worker has died, which its thread reports when joined.
        let _ = wait.iter().take(workers).count();
    }
}

impl<Q, R> WorkerHandle<Q, R> {
    fn tell(&self, command: Command<Q, R>) {
        // Fails only if the worker has ended, and then there is nothing to tell it.
        if self.commands.send(command).is_ok() {
            self.shared.doorbell.ring(crate::rx::COMMANDS);
        }
    }
}

impl<Q, R> Drop for Engine<Q, R> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.workers.iter().for_each(|w| w.tell(Command::Stop));
        for thread in state.workers.iter_mut().filter_map(|w| w.thread.take()) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[cfg(test)]
mod pools_tests;
#[cfg(test)]
mod steering_tests;
#[cfg(test)]
mod tests;
