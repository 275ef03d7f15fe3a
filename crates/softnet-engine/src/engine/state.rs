//! State of the control path: workers, and links with what is behind them.
//!
//! A link's description is in one place, [`LinkInfo`]; a port and a bridge have here what workers
//! use of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::change::Changes;
use super::devices::Devices;
use super::error::{EngineError, MAX_PORTS};
use super::hang::Seen;
use super::info::{LinkInfo, Links};
use super::losses::Losses;
use super::publish::Held;
use super::spec::BridgeOptions;
use crate::Device;
use crate::capture::Captures;
use crate::forward::{Actions, Bridge, Guard, Hooks, LinkTable, Member, PortVlans, Role};
use crate::link::LinkCell;
use crate::rx::{COMMANDS, Command, Event, FlowTable, Napi, WorkerShared};
use softnet::mem::Pool;
use softnet::qdisc::QdiscStats;
use softnet::stats::DropCounters;
use softnet::sync::PerCpu;
use softnet::time::{Clock, Time};
use softnet::tx::{ControlError, DeviceStats, Features, RingFile, TxRing};
use softnet_tc::rate::{GroupSpec, RateGroup};
use softnet_tc::{
    ActionTable, Block, ClassStats, DefaultQdisc, DeviceTree, FilterSpec, FilterStats, IndevTable,
};

/// Events of a worker: one for commands, the others for transmit queues.
pub(super) const EVENTS: usize = 1024;
/// A worker as the control path knows it.
pub(super) struct WorkerHandle<Q, R> {
    pub(super) shared: Arc<WorkerShared>,
    pub(super) commands: Sender<Command<Q, R>>,
    pub(super) thread: Option<JoinHandle<()>>,
    /// By event: whether it stands for a transmit queue (or for commands).
    pub(super) events: Vec<bool>,
    /// Gives its thread the normal scheduling class.
    pub(super) lower: Box<dyn Fn() + Send + Sync>,
    pub(super) seen: Seen,
}

impl<Q, R> WorkerHandle<Q, R> {
    pub(super) fn tell(&self, command: Command<Q, R>) {
        // Fails only if the worker has ended, and then there is nothing to tell it.
        if self.commands.send(command).is_ok() {
            self.shared.notifier.notify(COMMANDS);
        }
    }
}

/// A transmit queue's worker, and the event by which the worker knows the queue.
pub(super) type TxEvent = (usize, usize);

/// Parts of a port that workers use.
pub(super) struct Port<Q, R> {
    /// Number of its link.
    pub(super) index: u32,
    pub(super) device: Arc<Device<R>>,
    /// Worker of its first queue; those of the others follow.
    pub(super) first: usize,
    /// By transmit queue.
    pub(super) events: Vec<TxEvent>,
    /// Files of its transmit rings.
    pub(super) files: Vec<Watched>,
    /// Receive queues.
    pub(super) napis: Vec<Arc<Napi<Q, R>>>,
    /// Tells these receive queues from those that the port had before.
    pub(super) opened: u32,
    /// The pools that its receive queues take buffers from.
    pub(super) pools: Vec<Pool>,
    /// Options and VLANs in its bridge, if it is part of one.
    pub(super) member: Member,
    pub(super) link: Arc<LinkCell>,
    /// Hosts behind it come up with it: its device is made, not taken as it is.
    pub(super) fresh: bool,
    /// The check of what it received, if there is one.
    pub(super) guard: Option<Arc<Guard>>,
    /// Features that another device of the port is made with.
    pub(super) features: Features,
    pub(super) tree: DeviceTree,
    /// Part in forwarding.
    pub(super) role: Role,
    /// Hooks, if they have a qdisc.
    pub(super) hooks: Option<Arc<Hooks<R>>>,
    /// Actions of its own on what leaves it.
    pub(super) actions: Arc<Actions<R>>,
    pub(super) captures: Captures,
    /// Drops by its driver.
    pub(super) losses: Losses,
    /// Counted by the devices that it had before.
    pub(super) before: DeviceStats,
}

impl<Q, R: TxRing> Port<Q, R> {
    /// Other features, for what is sent and for the qdiscs that are made from now on.
    pub(super) fn set_features(&mut self, features: Features) -> Result<(), ControlError> {
        self.device.set_features(features)?;
        self.features = features;
        self.tree.set_mtu(features.mtu);
        self.losses.set_mtu(features.mtu);
        Ok(())
    }

    /// The statistics of the transmit queues.
    pub(super) fn queue_stats(&self) -> Vec<QdiscStats> {
        let queues = self.device.queues().iter();
        queues.map(|queue| queue.stats().qdisc).collect()
    }

    /// See [`Engine::classes`](super::Engine::classes).
    pub(super) fn classes(&self) -> Vec<ClassStats> {
        self.tree.classes(&self.queue_stats())
    }

    /// See [`Engine::filters`](super::Engine::filters).
    pub(super) fn filters(&self) -> Vec<(FilterSpec, FilterStats)> {
        let filters = self.tree.filters();
        filters.map(|(spec, stats)| (spec.clone(), stats)).collect()
    }
}

/// Parts of a bridge that workers use.
pub(super) struct BridgeState {
    pub(super) bridge: Arc<Bridge>,
    /// Numbers of its ports, in the order in which they joined.
    pub(super) ports: Vec<u16>,
    pub(super) options: BridgeOptions,
    /// VLANs of its own.
    pub(super) vlans: PortVlans,
    /// There is, or was, a permanent entry.
    pub(super) local_addresses: bool,
}

/// The limits of a group of ports, one each way.
#[derive(Clone, Debug)]
pub(super) struct RateLimits {
    /// Limit of what is sent to the ports.
    pub(super) to: Arc<RateGroup>,
    /// Limit of what is received from them.
    pub(super) from: Arc<RateGroup>,
}

/// The groups, by name: what they let pass, and the limits that their ports have.
pub(super) type RateGroups = BTreeMap<String, (GroupSpec, RateLimits)>;

/// A file, and the worker that watches it.
pub(super) type Watched = (usize, Arc<RingFile>);

/// A port with the queues of these devices.
pub(super) type PortOf<D> = Port<<D as Devices>::Rx, <D as Devices>::Tx>;

/// All that the control path knows. Changed by one control call at a time.
pub(super) struct State<D: Devices> {
    pub(super) workers: Vec<WorkerHandle<D::Rx, D::Tx>>,
    pub(super) links: Links<D::Spec>,
    /// Numbers of all links, by name.
    pub(super) names: HashMap<String, u32>,
    /// By the number that packets and forwarding databases carry.
    pub(super) ports: Vec<Option<PortOf<D>>>,
    /// By link.
    pub(super) bridges: BTreeMap<u32, BridgeState>,
    pub(super) rate_groups: RateGroups,
    /// Filters that links share, by the blocks' numbers.
    pub(super) filter_blocks: BTreeMap<u32, Block>,
    /// The links that actions send to.
    pub(super) targets: Arc<LinkTable<D::Tx>>,
    /// Actions of filters.
    pub(super) actions: ActionTable,
    /// Links that filters look for.
    pub(super) indevs: IndevTable,
    /// The number of the last link.
    pub(super) last: u32,
    /// The last handle that was chosen for a qdisc.
    pub(super) chosen: u16,
    /// The last seed, if seeds follow from one.
    pub(super) seed: Option<u64>,
    /// Kind of the qdisc at a transmit queue to which none is attached.
    pub(super) default_qdisc: DefaultQdisc,
    pub(super) generation: u64,
    pub(super) changes: Changes,
    /// Worker of the next port's first queue.
    pub(super) next_worker: usize,
    /// Serial number of the last opening of a port.
    serial: u32,
    /// Reports of the workers.
    pub(super) reports: Receiver<Event>,
    /// The time at which links are asked for their speeds without a report.
    pub(super) speeds_due: Time,
    /// Numbers of ports that were removed while an `ifb` may have held packets of theirs.
    pub(super) held_numbers: BTreeSet<u16>,
    /// Counted by ports that were removed.
    pub(super) removed: DeviceStats,
    pub(super) held: Held,
    pub(super) pool: Pool,
    pub(super) clock: Clock,
    pub(super) copied: Arc<PerCpu<1>>,
    /// Drops for want of a port that was removed meanwhile.
    pub(super) orphans: Arc<DropCounters>,
    pub(super) flows: Arc<FlowTable>,
}

impl<D: Devices> State<D> {
    pub(super) fn new(
        reports: Receiver<Event>,
        pool: Pool,
        clock: Clock,
        flows: Arc<FlowTable>,
    ) -> State<D> {
        State {
            workers: Vec::new(),
            links: Links::default(),
            names: HashMap::new(),
            ports: Vec::new(),
            bridges: BTreeMap::new(),
            actions: ActionTable::default(),
            indevs: IndevTable::default(),
            rate_groups: RateGroups::default(),
            filter_blocks: BTreeMap::new(),
            targets: Arc::new(LinkTable::new()),
            last: 0,
            chosen: 0x8000,
            seed: None,
            default_qdisc: DefaultQdisc::default(),
            generation: 0,
            changes: Changes::default(),
            next_worker: 0,
            serial: 0,
            reports,
            speeds_due: Time::ZERO,
            held_numbers: BTreeSet::new(),
            removed: DeviceStats::default(),
            held: Held::default(),
            pool,
            clock,
            copied: Arc::new(PerCpu::new()),
            orphans: Arc::new(DropCounters::new()),
            flows,
        }
    }

    pub(super) fn link(&self, index: u32) -> Result<&Arc<LinkInfo<D::Spec>>, EngineError> {
        self.links.get(&index).ok_or(EngineError::NoLink(index))
    }

    /// The link of a port or bridge, which is there.
    pub(super) fn known_mut(&mut self, index: u32) -> &mut LinkInfo<D::Spec> {
        let link = Arc::make_mut(&mut self.links).get_mut(&index);
        Arc::make_mut(link.expect("the link of what is there"))
    }

    /// The number of a port by its link.
    pub(super) fn number(&self, index: u32) -> Result<u16, EngineError> {
        let link = self.link(index)?;
        match link.is_bridge() {
            true => Err(EngineError::NoPort(link.settings.name.clone())),
            false => Ok(link.number),
        }
    }

    /// A port by its link.
    pub(super) fn port(&self, index: u32) -> Result<&PortOf<D>, EngineError> {
        Ok(self.slot(self.number(index)?))
    }

    /// A port by its link.
    pub(super) fn port_mut(&mut self, index: u32) -> Result<&mut PortOf<D>, EngineError> {
        Ok(self.slot_mut(self.number(index)?))
    }

    /// The port of a number, which is there.
    pub(super) fn slot(&self, number: u16) -> &PortOf<D> {
        let port = self.ports[usize::from(number)].as_ref();
        port.expect("the port of a number in use")
    }

    /// The port of a number, which is there.
    pub(super) fn slot_mut(&mut self, number: u16) -> &mut PortOf<D> {
        let port = self.ports[usize::from(number)].as_mut();
        port.expect("the port of a number in use")
    }

    /// The link of the port of a number, if there is one.
    pub(super) fn link_at(&self, number: u16) -> Option<&Arc<LinkInfo<D::Spec>>> {
        let port = self.ports.get(usize::from(number))?.as_ref()?;
        self.links.get(&port.index)
    }

    /// A bridge by its link.
    pub(super) fn bridge(&self, index: u32) -> Result<&BridgeState, EngineError> {
        let named = |link: &Arc<LinkInfo<_>>| EngineError::NoBridge(link.settings.name.clone());
        let bridge = self.bridges.get(&index);
        bridge.ok_or_else(|| self.link(index).map_or_else(|error| error, named))
    }

    /// A bridge by its link.
    pub(super) fn bridge_mut(&mut self, index: u32) -> Result<&mut BridgeState, EngineError> {
        self.bridge(index)?;
        self.bridges
            .get_mut(&index)
            .ok_or(EngineError::NoLink(index))
    }

    /// The number of a port that is part of a bridge, the bridge's link, and the bridge.
    pub(super) fn member(&self, index: u32) -> Result<(u16, u32, &BridgeState), EngineError> {
        let (number, link) = (self.number(index)?, self.link(index)?);
        let named = || EngineError::NotInBridge(link.settings.name.clone());
        let master = link.master.ok_or_else(named)?;
        Ok((number, master, self.bridge(master)?))
    }

    pub(super) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    pub(super) fn tell_all(&self, command: impl Fn() -> Command<D::Rx, D::Tx>) {
        self.workers.iter().for_each(|w| w.tell(command()));
    }

    /// Waits until every worker has carried out what it was told, and processed what its backlog
    /// held.
    pub(super) fn sync(&self) {
        let (done, wait) = channel();
        self.tell_all(|| Command::Sync(done.clone()));
        drop(done);
        // Ends early if a worker has died, which its thread reports when joined.
        let _ = wait.iter().take(self.workers.len()).count();
    }

    /// The number of the next port: the first that is free.
    pub(super) fn free_number(&self) -> Result<u16, EngineError> {
        let mut ports = self.ports.iter().zip(0..);
        let free = |&(port, number): &(&Option<_>, u16)| {
            Option::is_none(port) && !self.held_numbers.contains(&number)
        };
        let free = ports.find(free).map(|(_, number)| usize::from(number));
        check_number(free.unwrap_or(self.ports.len()))
    }

    /// Takes an event for each of `queues` transmit queues, from worker `first` on: all or none.
    pub(super) fn take_events(
        &mut self,
        first: usize,
        queues: usize,
    ) -> Result<Vec<TxEvent>, EngineError> {
        let count = self.workers.len();
        let mut taken = Vec::new();
        for queue in 0..queues {
            let worker = (first + queue) % count;
            let events = &mut self.workers[worker].events;
            let Some(event) = events.iter().position(|used| !used) else {
                self.free_events(&taken);
                return Err(EngineError::TooManyQueues(count * (EVENTS - 1)));
            };
            events[event] = true;
            taken.push((worker, event));
        }
        Ok(taken)
    }

    pub(super) fn free_events(&mut self, events: &[TxEvent]) {
        for &(worker, event) in events {
            self.workers[worker].events[event] = false;
        }
    }
}

/// A port's number, if there is such a number.
pub(super) fn check_number(number: usize) -> Result<u16, EngineError> {
    let checked = u16::try_from(number).ok();
    checked
        .filter(|_| number < MAX_PORTS)
        .ok_or(EngineError::TooManyPorts)
}
