//! Workers on threads, ports, bridges, and the control path that changes them while packets flow.
//!
//! The engine is generic over the drivers' types, so that no call on a packet's way is indirect.
//! Control calls may block for the length of a worker's round; packets go on flowing meanwhile.

mod classes;
mod error;
mod receive;
mod replace;
mod stats;
mod steering;

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use error::EngineError;
use stats::Losses;
pub use stats::{Conservation, EngineStats, PortStats};

use crate::Device;
use crate::forward::{AGEING, Actions, Bridge, Forwarder, Mirred, MirredDir, MirredMode, Tables};
use crate::rx::{
    Backlog, Command, FlowTable, Gone, MAX_BACKLOG, Peers, RxQueue, Sleep, SteeringSpec, Worker,
    WorkerParts, WorkerShared,
};
use softnet::mem::{PacketList, Pool};
use softnet::qdisc::Cx;
use softnet::sync::PerCpu;
use softnet::time::Clock;
use softnet::tx::{
    DeviceConfig, Egress, Features, Ingress, Notifier, QueueMap, TxPolicy, TxRing, set_sender_cpu,
};
use softnet_tc::{AnyQdisc, QdiscSpec, SetQdisc};

/// Bells of a worker: one for commands, the others for transmit queues.
const BELLS: usize = 1024;
/// Addresses a bridge remembers.
const FDB_SIZE: usize = 8192;
/// Ports of an engine at most: their numbers, plus 1, are 16 bits wide in the forwarding database.
const MAX_PORTS: usize = u16::MAX as usize;

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
    /// Who runs the transmit queues, and what they take at once.
    pub policy: TxPolicy,
}

/// A port of one engine. Another engine refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId {
    engine: u32,
    index: u16,
}

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

/// Takes packets that arrive at a port by an action to the backlog of the worker that receives there.
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
    /// The rest, by port.
    ports: Vec<Port>,
    /// Worker of the next port's first queue.
    next_worker: usize,
}

/// What the control path alone knows of a port.
#[derive(Default)]
struct Port {
    /// Worker of its first queue; those of the others follow.
    first: usize,
    /// How what it receives is shared out.
    steering: SteeringSpec,
    /// The pools that its receive queues take buffers from.
    pools: Vec<Pool>,
    /// How often it was given other queues.
    generation: u32,
    /// What its devices dropped by themselves.
    losses: Losses,
}

/// Workers on threads, ports, bridges, and the control path that changes them while packets flow. Dropping it stops the workers without draining; see [`stop`](Engine::stop).
pub struct Engine<Q, R> {
    /// What its ports' identifiers carry.
    id: u32,
    state: Mutex<State<Q, R>>,
    gone: Mutex<Receiver<Gone>>,
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
        let flows = Arc::new(FlowTable::new(config.flow_entries, sleepers.len()));
        let (gone_sender, gone) = channel();
        let (mut shared, mut backlogs) = (Vec::new(), Vec::new());
        for sleeper in &sleepers {
            let (backlog, owner) = Backlog::new(config.max_backlog);
            let notifier = Arc::new(Notifier::new(BELLS, sleeper.waker()));
            shared.push(Arc::new(WorkerShared::new(notifier, backlog)));
            backlogs.push(owner);
        }
        let shared: Arc<[_]> = shared.into();
        let pools: Arc<[Pool]> = Arc::new([pool.clone()]);
        // Dropped if a thread cannot be started: it then stops those that were.
        let engine = Engine {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(State {
                workers: Vec::new(),
                devices: Vec::new(),
                bridges: Vec::new(),
                bridge_of: Vec::new(),
                napis: Vec::new(),
                ports: Vec::new(),
                next_worker: 0,
            }),
            gone: Mutex::new(gone),
            pool,
            clock,
            copied: Arc::new(PerCpu::new()),
            flows,
        };
        for (index, (sleeper, backlog)) in sleepers.into_iter().zip(backlogs).enumerate() {
            let (commands, receiver) = channel();
            let worker = Worker::new(WorkerParts {
                index,
                workers: shared.clone(),
                backlog,
                commands: receiver,
                gone: gone_sender.clone(),
                sleeper,
                clock: engine.clock.clone(),
                pools: pools.clone(),
                busy_poll: config.busy_poll,
            });
            let work = Box::new(move || {
                set_sender_cpu(index);
                worker.run();
            });
            let thread = spawn(index, work).map_err(EngineError::Thread)?;
            engine.state().workers.push(WorkerHandle {
                shared: shared[index].clone(),
                commands,
                thread: Some(thread),
                queues: 0,
            });
        }
        Ok(engine)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State<Q, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of a port.
    fn index(&self, port: PortId) -> Result<usize, EngineError> {
        if port.engine == self.id {
            Ok(usize::from(port.index))
        } else {
            Err(EngineError::NoSuchPort)
        }
    }

    fn port_id(&self, index: u16) -> PortId {
        PortId {
            engine: self.id,
            index,
        }
    }

    fn device(&self, port: PortId) -> Result<Arc<Device<R>>, EngineError> {
        let index = self.index(port)?;
        let device = self.state().devices.get(index).cloned().flatten();
        device.ok_or(EngineError::NoSuchPort)
    }

    /// Adds a port and starts polling it. Its queues are spread over the workers. Until it is part of a bridge,
    /// what it receives is dropped. Waits for the workers' rounds.
    ///
    /// # Errors
    /// If the name is taken, the discipline's parameters are wrong, there are no or too many
    /// queues, or a worker cannot wait for one of them. Nothing is changed then, and the queues
    /// are closed.
    pub fn add_port(&self, setup: PortSetup<Q, R>) -> Result<PortId, EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut names = state.devices.iter().flatten().map(|d| d.name());
        if names.any(|name| name == setup.name) {
            return Err(EngineError::DuplicatePort(setup.name));
        }
        if setup.tx.is_empty() {
            return Err(EngineError::NoQueue(setup.name));
        }
        let port = next_port(state.devices.len())?;
        let first = state.next_worker;
        // By worker; what they become if nothing goes wrong.
        let mut queues: Vec<usize> = state.workers.iter().map(|w| w.queues).collect();
        let mut homes = Vec::new();
        let mut served = Vec::new();
        for queue in 0..setup.tx.len() {
            let index = (first + queue) % state.workers.len();
            let notifier = &state.workers[index].shared.notifier;
            queues[index] += 1;
            if queues[index] >= notifier.events() {
                return Err(EngineError::TooManyQueues(
                    state.workers.len() * (BELLS - 1),
                ));
            }
            homes.push((notifier.clone(), queues[index]));
            served.push((index, queues[index]));
        }
        let config = DeviceConfig {
            name: setup.name,
            features: setup.features,
            policy: setup.policy,
        };
        let qdiscs = setup.qdisc.instances(setup.tx.len(), &self.pool)?;
        let device = Arc::new(Device::new(config, setup.tx, qdiscs, &self.pool, &homes));
        let receiver = &state.workers[first].shared;
        device.set_ingress(Box::new(ToBacklog {
            port,
            backlog: receiver.backlog.clone(),
            notifier: receiver.notifier.clone(),
        }));
        device.measure(self.clock.clone());
        let wide = setup.rx.len().max(homes.len());
        state.devices.push(Some(device.clone()));
        state.bridge_of.push(None);
        state.napis.push(Vec::new());
        state.ports.push(Port {
            first,
            ..Port::default()
        });
        self.publish(state);
        if let Err(source) = self.poll(state, setup.rx, &device, port) {
            state.devices.pop();
            state.bridge_of.pop();
            state.napis.pop();
            state.ports.pop();
            self.publish(state);
            let port = device.name().to_owned();
            return Err(EngineError::Watch { port, source });
        }
        state.next_worker = (first + wide) % state.workers.len();
        for (worker, queues) in state.workers.iter_mut().zip(queues) {
            worker.queues = queues;
        }
        for (queue, (worker, token)) in served.into_iter().enumerate() {
            state.workers[worker].tell(Command::AddTx(token, (device.clone(), queue)));
        }
        Ok(self.port_id(port))
    }

    /// Joins ports by a learning switch. When this returns, every worker forwards by it.
    ///
    /// # Errors
    /// If one of them is part of a bridge already, or is named twice. Nothing is changed then.
    pub fn add_bridge(&self, name: impl Into<String>, ports: &[PortId]) -> Result<(), EngineError> {
        let mut state = self.state();
        let index = state.bridges.len();
        let mut bridge_of = state.bridge_of.clone();
        for &port in ports {
            let at = self.index(port)?;
            let bridge = bridge_of.get_mut(at).ok_or(EngineError::NoSuchPort)?;
            if bridge.replace(index).is_some() {
                let name = state.devices[at].as_ref().map_or("", |d| d.name());
                return Err(EngineError::InBridge(name.to_owned()));
            }
        }
        state.bridge_of = bridge_of;
        let bridge = Arc::new(Bridge::new(name, FDB_SIZE, AGEING));
        let ports = ports.iter().map(|port| port.index).collect();
        state.bridges.push((bridge, ports));
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
    /// If there is no such port or the parameters are wrong; nothing is changed then.
    pub fn set_qdisc(&self, port: PortId, qdisc: &QdiscSpec) -> Result<(), EngineError> {
        Ok(self.device(port)?.set_qdisc(qdisc, self.clock.now())?)
    }

    /// Gives a port's discipline other parameters of its kind while packets flow; see [`Device::change_qdisc`].
    ///
    /// # Errors
    /// If there is no such port, or the parameters are wrong or of another kind; nothing is
    /// changed then.
    pub fn change_qdisc(&self, port: PortId, qdisc: &QdiscSpec) -> Result<(), EngineError> {
        Ok(self.device(port)?.change_qdisc(qdisc, self.clock.now())?)
    }

    /// Does something with the qdisc of one of a port's transmit queues; see
    /// [`Device::with_qdisc`]. `None` if there is no such port or queue.
    pub fn with_qdisc<T>(
        &self,
        port: PortId,
        queue: usize,
        f: impl FnOnce(&mut AnyQdisc, &mut Cx) -> T,
    ) -> Option<T> {
        let device = self.device(port).ok()?;
        device.with_qdisc(queue, self.clock.now(), f)
    }

    /// Shares a port's transmit queues out among traffic classes, workers and receive queues, while packets flow.
    ///
    /// # Errors
    /// If there is no such port or the map does not fit it; nothing is changed then.
    pub fn set_queue_map(&self, port: PortId, map: &QueueMap) -> Result<(), EngineError> {
        Ok(self.device(port)?.set_queue_map(map)?)
    }

    /// Puts actions on a port's way out, in the place of those it has, in this order.
    ///
    /// # Errors
    /// If the port or the target of an action is none of this engine; nothing is changed then.
    pub fn set_actions(&self, port: PortId, actions: &[MirredSpec]) -> Result<(), EngineError> {
        let device = self.device(port)?;
        let actions = actions
            .iter()
            .map(|a| Ok(Mirred::new(a.mode, a.dir, &self.device(a.to)?)))
            .collect::<Result<Vec<_>, EngineError>>()?;
        let egress = (!actions.is_empty())
            .then(|| Box::new(Actions::new(actions)) as Box<dyn Egress<R, AnyQdisc>>);
        device.set_egress(egress);
        Ok(())
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

    /// Everything's numbers. Stops nobody.
    pub fn stats(&self) -> EngineStats {
        let state = self.state();
        let now = self.clock.now();
        EngineStats {
            ports: state
                .devices
                .iter()
                .zip(&state.ports)
                .filter_map(|(device, port)| Some((device.as_ref()?, port)))
                .map(|(d, port)| PortStats {
                    name: d.name().to_owned(),
                    device: d.stats(),
                    device_drops: port.losses.total(),
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

/// The number of a port, after `ports` others.
fn next_port(ports: usize) -> Result<u16, EngineError> {
    let port = u16::try_from(ports).ok();
    port.filter(|_| ports < MAX_PORTS)
        .ok_or(EngineError::TooManyPorts)
}

/// Starts a worker's thread.
fn spawn(index: usize, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("softnet/{index}"))
        .spawn(work)
}

impl<Q, R> WorkerHandle<Q, R> {
    fn tell(&self, command: Command<Q, R>) {
        // Fails only if the worker has ended, and then there is nothing to tell it.
        if self.commands.send(command).is_ok() {
            self.shared.notifier.notify(crate::rx::COMMANDS);
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

#[cfg(all(test, not(miri)))]
mod pools_tests;
#[cfg(all(test, not(miri)))]
mod replace_tests;
#[cfg(all(test, not(miri)))]
mod steering_tests;
#[cfg(all(test, not(miri)))]
mod tests;
