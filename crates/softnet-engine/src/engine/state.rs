//! What the control path knows: workers, ports and bridges by number.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::ring_files::Watched;
use super::stats::Losses;
use super::{BridgeOptions, EngineError, MirredSpec};
use crate::Device;
use crate::forward::{Bridge, Guard, Member, Members, PortVlans};
use crate::link::LinkCell;
use crate::rx::{COMMANDS, Command, Event, Napi, SteeringSpec, WorkerShared};
use softnet::mem::Pool;
use softnet::qdisc::QdiscStats;
use softnet::tx::{DeviceStats, Features, TxPolicy, TxRing};
use softnet_tc::rate::RateGroup;
use softnet_tc::{ClassStats, DeviceTree, FilterSpec, FilterStats};

/// Why a device takes what the engine tells it ([`softnet::tx::ControlError`]).
pub(super) const OUTSIDE: &str = "no driver, qdisc or action calls the engine";
/// Events of a worker: one for commands, the others for transmit queues.
pub(super) const EVENTS: usize = 1024;
/// Ports of an engine at most: their numbers, plus 1, are 15 bits wide in the forwarding database.
pub(super) const MAX_PORTS: usize = i16::MAX as usize;

/// A worker as the control path knows it.
pub(super) struct WorkerHandle<Q, R> {
    pub(super) shared: Arc<WorkerShared>,
    pub(super) commands: Sender<Command<Q, R>>,
    pub(super) thread: Option<JoinHandle<()>>,
    /// By event: whether it stands for a transmit queue (or for commands).
    pub(super) events: Vec<bool>,
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

/// A port.
pub(super) struct Port<Q, R> {
    /// Tells it from earlier ports of its number.
    pub(super) serial: u32,
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
    /// How what it receives is shared out.
    pub(super) steering: SteeringSpec,
    /// What limits what is received.
    pub(super) group: Option<Arc<RateGroup>>,
    /// The pools that its receive queues take buffers from.
    pub(super) pools: Vec<Pool>,
    pub(super) bridge: Option<Membership>,
    pub(super) link: Arc<LinkCell>,
    /// The check of what it received, if there is one.
    pub(super) guard: Option<Arc<Guard>>,
    pub(super) actions: Vec<MirredSpec>,
    /// Whether it is taken up.
    pub(super) up: bool,
    /// Whether it has transmit queues: without them its device is down, whatever `up` says.
    pub(super) open: bool,
    /// What another device of the port is made from.
    pub(super) features: Features,
    pub(super) tree: DeviceTree,
    pub(super) policy: TxPolicy,
    /// What its driver dropped.
    pub(super) losses: Losses,
    /// Counted by the devices that it had before.
    pub(super) before: DeviceStats,
}

impl<Q, R: TxRing> Port<Q, R> {
    /// Other features, for what is sent and for the qdiscs that are made from now on.
    pub(super) fn set_features(&mut self, features: Features) {
        self.features = features;
        self.device.set_features(features).expect(OUTSIDE);
        self.tree.set_mtu(features.mtu);
        self.losses.set_mtu(features.mtu);
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

/// A port's part in a bridge, which ends when it leaves.
pub(super) struct Membership {
    /// The bridge's number.
    pub(super) bridge: usize,
    pub(super) member: Member,
}

/// A bridge.
pub(super) struct BridgeState {
    /// Tells it from earlier bridges of its number.
    pub(super) serial: u32,
    pub(super) name: String,
    pub(super) bridge: Arc<Bridge>,
    pub(super) ports: Vec<u16>,
    /// Whether it is taken up.
    pub(super) up: bool,
    pub(super) options: BridgeOptions,
    /// Its own.
    pub(super) vlans: PortVlans,
    /// There is, or was, a permanent entry.
    pub(super) local_addresses: bool,
}

/// All that the control path knows. Changed by one control call at a time.
pub(super) struct State<Q, R> {
    pub(super) workers: Vec<WorkerHandle<Q, R>>,
    pub(super) ports: Vec<Option<Port<Q, R>>>,
    pub(super) bridges: Vec<Option<BridgeState>>,
    /// Worker of the next port's first queue.
    pub(super) next_worker: usize,
    /// What ports, bridges and openings are told apart by; of the last one.
    serial: u32,
    /// What the workers report.
    pub(super) reports: Receiver<Event>,
    /// Counted by ports that were removed.
    pub(super) removed: DeviceStats,
    pub(super) held: Held,
}

/// What [`Engine::hold`](super::Engine::hold) keeps back.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// How often it was called more than [`release`](super::Engine::release).
    pub(super) depth: u32,
    /// The workers do not forward by all that has changed.
    pub(super) stale: bool,
    /// Bridges that have yet to forget what was learnt in VLANs that ports no longer have: once
    /// no worker learns there any more.
    pub(super) lost_vlans: BTreeSet<usize>,
    /// How often workers were told.
    pub(super) published: u64,
}

impl<Q, R> State<Q, R> {
    pub(super) fn new(reports: Receiver<Event>) -> State<Q, R> {
        State {
            workers: Vec::new(),
            ports: Vec::new(),
            bridges: Vec::new(),
            next_worker: 0,
            serial: 0,
            reports,
            removed: DeviceStats::default(),
            held: Held::default(),
        }
    }

    pub(super) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    pub(super) fn tell_all(&self, command: impl Fn() -> Command<Q, R>) {
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
        let free = self.ports.iter().position(Option::is_none);
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

    /// What a bridge's ports forward by; none if it is down.
    pub(super) fn members(&self) -> Vec<Option<Arc<Members>>> {
        let member = |&number: &u16| {
            let port = self.ports.get(usize::from(number))?.as_ref()?;
            let membership = port.bridge.as_ref().filter(|_| port.up)?;
            Some((number, membership.member.clone()))
        };
        let members = |bridge: &BridgeState| {
            let up = bridge.up.then_some(&bridge.ports)?.iter();
            let (ports, members): (Vec<u16>, Vec<Member>) = up.filter_map(member).unzip();
            Some(Arc::new(Members::new(
                bridge.bridge.clone(),
                ports,
                members,
                bridge.options.vlan_filtering,
                bridge.local_addresses,
            )))
        };
        self.bridges
            .iter()
            .map(|bridge| bridge.as_ref().and_then(members))
            .collect()
    }
}

/// A port's number, if there is such a number.
pub(super) fn check_number(number: usize) -> Result<u16, EngineError> {
    let checked = u16::try_from(number).ok();
    checked
        .filter(|_| number < MAX_PORTS)
        .ok_or(EngineError::TooManyPorts)
}
