//! Devices of ports: opened, replaced, exchanged and given up, while packets flow.
//!
//! A port's device is given up in this order, so that every packet is sent, or dropped and
//! counted, and none of its number is left anywhere when the number is used again:
//! 1. Its receive queues are closed, and every worker processes its backlog, twice: what was
//!    steered last is then processed by tables that still know the port (INV-RX-8).
//! 2. Tables without the device are published. After a sync no worker forwards to it, and nothing
//!    is learnt behind the port.
//! 3. The device is taken down, which drops what it holds, and its rings are closed.
//! 4. Actions of other ports reach the device through a weak reference. When the control path
//!    holds the only strong one, that is given up, and the backlogs are processed once more.

use std::sync::Arc;

use super::change::Change;
use super::devices::{DeviceOf, Devices, Opened};
use super::error::EngineError;
use super::life::Engine;
use super::losses::sum;
use super::spec::{PortOptions, PortSpec, Settings};
use super::state::{State, TxEvent, WorkerHandle};
use crate::Device;
use crate::forward::{GiveBack, OfQueues, Role};
use crate::rx::{Backlog, Command, RxQueue, TxPort};
use softnet::mem::{PacketList, Turn};
use softnet::tx::{
    DeviceConfig, DeviceStats, Ingress, Notifier, Outlet, Qdiscs, QueueMap, TxPolicy, TxRing,
};
use softnet_tc::{
    AnyQdisc, DeviceTree, QdiscEnv, QdiscSpec, SpecError, TreeSpec, check_queue_map,
};

/// Speed of an open device's link in bytes per second, if it is known.
pub(super) fn speed_of<Q: RxQueue>(rx: &[Q]) -> Option<u64> {
    rx.iter().find_map(Q::link)?.speed()
}

/// Checks that rates of a tree that are shares of the link's speed are known at a device.
fn check_speed<Q: RxQueue>(tree: &TreeSpec, rx: &[Q]) -> Result<(), SpecError> {
    match tree.has_shares() {
        true => tree.at_speed(speed_of(rx)).map(drop),
        false => Ok(()),
    }
}

/// A device in place of another, with what goes by its queues.
struct Exchange<D: Devices> {
    device: DeviceOf<D>,
    qdisc: TreeSpec,
    policy: TxPolicy,
    map: QueueMap,
    /// The default qdisc is `noqueue`.
    no_queue: bool,
    role: Role,
}

/// A device, and the events of its transmit queues.
type Served<R> = (Arc<Device<R>>, Vec<TxEvent>);

/// Last counters of devices, and their rings.
type Retired<R> = (Vec<DeviceStats>, Vec<R>);

/// Takes packets that arrive at a port by an action to the backlog of the worker that receives
/// there.
#[derive(Debug)]
pub(crate) struct ToBacklog {
    /// Number of the port.
    pub(crate) port: u16,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) notifier: Arc<Notifier>,
}

impl Ingress for ToBacklog {
    fn receive_later(&self, packets: &mut PacketList) {
        packets.for_each_mut(|packet| {
            packet.set_port(self.port);
            packet.set_turn(Turn::None);
        });
        *packets = self.backlog.push(packets.take());
        self.notifier.wake();
    }
}

impl<D: Devices> Engine<D> {
    /// Opens a device for a port to [add](Engine::add_opened), or for one that is to have
    /// [another](Engine::exchange_device). May block for the kernel to make an interface.
    ///
    /// # Errors
    /// If it cannot be opened, or has no speed that rates of the port are shares of.
    pub fn open(&self, port: &PortSpec<D::Spec>) -> Result<DeviceOf<D>, EngineError> {
        let device = self.open_with(&port.settings, &port.options)?;
        if let QdiscSpec::Tree(tree) = &port.qdisc {
            check_speed(tree, &device.rx)?;
        }
        Ok(device)
    }

    fn open_with(
        &self,
        settings: &Settings,
        options: &PortOptions<D::Spec>,
    ) -> Result<DeviceOf<D>, EngineError> {
        let opened = self.devices.open(&options.device, settings, options.queues);
        opened.map_err(|source| EngineError::device(settings, source))
    }

    /// Closes a port's device, which is gone: the port is down until it is opened again.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn close_device(&self, index: u32) -> Result<(), EngineError> {
        self.replace(index, Vec::new(), Vec::new())
    }

    /// Opens a port's device again, with the settings that the link has.
    ///
    /// # Errors
    /// If there is no such port, the device cannot be opened, or it has no speed that rates of the
    /// port are shares of.
    pub fn reopen_device(&self, index: u32) -> Result<(), EngineError> {
        let link = self.link(index)?;
        let named = || EngineError::NoPort(link.settings.name.clone());
        let options = link.options().ok_or_else(named)?;
        let Opened { rx, tx, features } = self.open_with(&link.settings, options)?;
        self.read_tree(index, |tree, _| check_speed(tree.spec(), &rx))??;
        self.replace(index, rx, tx)?;
        let mut guard = self.control()?;
        guard.port_mut(index)?.set_features(features)?;
        guard.follow_speed(index);
        guard.changes.note(Change::Link(index));
        Ok(())
    }

    /// Gives a port other queues in place of those it has, which are closed. Without transmit
    /// queues the port is down until it is given some, and what is sent there is dropped.
    /// Counters, qdisc and bridge stay; the bridge forgets what it learnt behind the port. When
    /// this returns, no packet of the old queues is in any backlog (INV-RX-8).
    ///
    /// With as many transmit queues as before, queued packets stay. With more or fewer, the qdisc
    /// is built anew, its packets are dropped, and actions that send to the port count from zero.
    ///
    /// # Errors
    /// If there is no such port, its qdisc or its queue map does not fit so many queues, there are
    /// too many, or a worker cannot watch a receive queue. Nothing is changed then, and the new
    /// queues are closed.
    pub fn replace(
        &self,
        index: u32,
        rx: Vec<D::Rx>,
        mut tx: Vec<D::Tx>,
    ) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let number = state.number(index)?;
        let known = state.slot(number);
        if !tx.is_empty() && tx.len() != known.events.len() {
            return state.resize(number, rx, tx);
        }
        let (device, old) = (known.device.clone(), known.opened);
        let mut files = state.watch_rings(&device.name(), &tx, &known.events)?;
        if let Err(error) = state.open(number, None, rx) {
            state.unwatch_rings(files);
            return Err(error);
        }
        let down = tx.is_empty();
        let known = state.slot(number);
        state.connect(&mut tx, &known.events, (number, known.role));
        std::mem::swap(&mut state.slot_mut(number).files, &mut files);
        let link = state.known_mut(index);
        link.open = !down;
        let up = link.settings.up;
        state.unwatch_rings(files);
        // First: the last file of the old device is then closed here, not by a worker, whose other
        // ports would wait until the kernel has unregistered the interface.
        state.close(&[old]);
        if down {
            device.deactivate()?;
        }
        device.replace_rings(tx)?;
        if !down && up {
            device.activate()?;
        }
        state.forget_learnt(number);
        Ok(())
    }

    /// Gives a port a device that is [open](Engine::open), of another kind or with other
    /// parameters, in place of the one that it has, which is closed, with what goes by its queues:
    /// their number, the tree, the map and the policy of `to`. What is queued is dropped, qdiscs
    /// and actions that send to the port count from zero; what the port counted stays, and so do
    /// its name, its bridge with options, VLANs and fixed entries, its group, its actions and its
    /// limits. MTU and address are those of `to`, if the device is an interface that was there.
    ///
    /// # Errors
    /// If there is no such port, the qdisc or the map does not fit the queues, there are none or
    /// too many, or a worker cannot watch one of them. Nothing is changed then, and the new queues
    /// are closed.
    pub fn exchange_device(
        &self,
        index: u32,
        to: &PortSpec<D::Spec>,
        device: DeviceOf<D>,
    ) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let number = state.number(index)?;
        let port = state.slot(number);
        if device.tx.is_empty() {
            return Err(EngineError::NoQueue(port.device.name().to_string()));
        }
        let before = port.tree.spec().clone();
        let settings = self.foreign_settings(state, index, to)?;
        let qdisc = state.adopt_actions(&TreeSpec::from(to.qdisc.clone()));
        let loses_root = !before.is_empty() && qdisc.is_empty();
        let exchange = Exchange {
            device,
            qdisc,
            policy: to.options.policy.clone(),
            map: to.options.map.clone(),
            no_queue: self.devices.no_queue(&to.options.device),
            role: state.role(self.devices.virtual_link(&to.options.device))?,
        };
        state.exchange(number, exchange)?;
        state.resolve_actions();
        let link = state.known_mut(index);
        if loses_root {
            link.has_default = link.settings.up;
        }
        if let Some(settings) = settings {
            link.settings = settings;
        }
        if let Some(options) = link.options_mut() {
            options.device = to.options.device.clone();
            options.queues = to.options.queues;
            options.policy = to.options.policy.clone();
            options.map = to.options.map.clone();
        }
        state.changes.note(Change::Link(index));
        state.changes.note_tree(index, before);
        Ok(())
    }

    /// The settings of a link whose device is to be an interface that was there: nobody changes
    /// its MTU and address later.
    fn foreign_settings(
        &self,
        state: &State<D>,
        index: u32,
        to: &PortSpec<D::Spec>,
    ) -> Result<Option<Settings>, EngineError> {
        let device = &to.options.device;
        if !self.devices.is_foreign(device) {
            return Ok(None);
        }
        let before = &state.link(index)?.settings;
        let after = Settings {
            mtu: to.settings.mtu,
            address: to.settings.address.or(before.address),
            ..before.clone()
        };
        self.check(state, &after, Some(before), Some(device))?;
        Ok(Some(after))
    }
}

impl<D: Devices> State<D> {
    /// Gives a port as many queues as there are, in place of those that it has.
    fn resize(&mut self, number: u16, rx: Vec<D::Rx>, tx: Vec<D::Tx>) -> Result<(), EngineError> {
        let port = self.slot(number);
        let to = Exchange {
            device: Opened {
                rx,
                tx,
                features: port.features,
            },
            qdisc: port.tree.spec().clone(),
            policy: self.policy(number),
            map: port.device.queue_map(),
            no_queue: port.tree.env().no_queue,
            role: port.role,
        };
        self.exchange(number, to)
    }

    fn policy(&self, number: u16) -> TxPolicy {
        let options = self.link_at(number).and_then(|link| link.options());
        options.map_or_else(TxPolicy::default, |options| options.policy.clone())
    }

    fn exchange(&mut self, number: u16, to: Exchange<D>) -> Result<(), EngineError> {
        let port = self.slot(number);
        let (index, first, old, before) =
            (port.index, port.first, port.opened, port.device.clone());
        let Exchange {
            device: Opened { rx, tx, features },
            qdisc,
            policy,
            map,
            no_queue,
            role,
        } = to;
        let config = DeviceConfig {
            name: before.name().to_string(),
            features,
            policy,
        };
        let env = QdiscEnv {
            mtu: features.mtu,
            speed: speed_of(&rx),
            no_queue,
            ..port.tree.env().clone()
        };
        let (tree, qdiscs) = DeviceTree::new(qdisc, tx.len(), &env)?;
        check_queue_map(&map, tx.len())?;
        let (events, mut files) = self.attach(&config.name, &tx, first, tx.len())?;
        let device = self.make_device(config, tx, qdiscs, &events, (number, role));
        device.set_queue_map(&map);
        self.set_outlet(&device, index);
        device.set_tap(before.drops().tap().as_ref())?;
        if let Err(error) = self.open(number, Some(&device), rx) {
            self.detach(&events, files);
            return Err(error);
        }
        self.serve(number, &device, &events);
        let link = self.known_mut(index);
        (link.open, link.queues) = (true, events.len());
        if !link.settings.up {
            device.deactivate()?;
        }
        let port = self.slot_mut(number);
        port.device = device;
        port.role = role;
        port.tree = tree;
        port.features = features;
        let served = std::mem::replace(&mut port.events, events);
        std::mem::swap(&mut port.files, &mut files);
        self.unwatch_rings(files);
        self.slot_mut(number).hooks = None;
        self.follow_hook(number);
        self.apply_actions(number);
        self.close(&[old]);
        self.publish();
        let (counted, rings) = self.retire(vec![(before, served)])?;
        drop(rings);
        self.forget_learnt(number);
        for counted in &counted {
            sum(&mut self.slot_mut(number).before, counted);
        }
        Ok(())
    }

    pub(super) fn make_device(
        &self,
        config: DeviceConfig,
        mut rings: Vec<D::Tx>,
        qdiscs: Qdiscs<AnyQdisc>,
        events: &[TxEvent],
        (port, role): (u16, Role),
    ) -> Arc<Device<D::Tx>> {
        let notifier = |&(worker, event): &TxEvent| {
            let notifier: &Arc<_> = &self.workers[worker].shared.notifier;
            (notifier.clone(), event)
        };
        let workers: Vec<_> = events.iter().map(notifier).collect();
        self.connect(&mut rings, events, (port, role));
        let device = Device::new(config, rings, qdiscs, &self.pool, &workers);
        let receiver = &self.workers[events[0].0].shared;
        device.set_ingress(Box::new(ToBacklog {
            port,
            backlog: receiver.backlog.clone(),
            notifier: receiver.notifier.clone(),
        }));
        device.measure(self.clock.clone());
        Arc::new(device)
    }

    /// Has what actions of a device's qdiscs send to other links go there.
    pub(super) fn set_outlet(&self, device: &Arc<Device<D::Tx>>, index: u32) {
        let outlet: Arc<dyn Outlet> = Arc::new(OfQueues {
            device: Arc::downgrade(device),
            index,
            links: self.targets.clone(),
        });
        device.set_outlet(&outlet);
    }

    /// Has the rings of a link without a device give back what they send.
    fn connect(&self, rings: &mut [D::Tx], events: &[TxEvent], (port, role): (u16, Role)) {
        if role == Role::Device {
            return;
        }
        for (ring, &(worker, _)) in rings.iter_mut().zip(events) {
            let shared = &self.workers[worker].shared;
            ring.connect(Arc::new(GiveBack {
                role,
                port,
                backlog: shared.backlog.clone(),
                notifier: shared.notifier.clone(),
            }));
        }
    }

    /// Has the workers serve a device's transmit queues.
    pub(super) fn serve(&self, port: u16, device: &Arc<Device<D::Tx>>, events: &[TxEvent]) {
        for (queue, &(worker, event)) in events.iter().enumerate() {
            let device = device.clone();
            let served = TxPort {
                device,
                queue,
                port,
            };
            self.workers[worker].tell(Command::SetTx(event, Some(served)));
        }
    }

    /// Gives up devices that are in no published table any more, and their transmit queues' events.
    /// Returns what each counted, which is final, and the rings, which are to be closed.
    ///
    /// Waits for workers that hold a device because an action sends there: each holds it for one
    /// call of the device, which is down, so it ends at once. Nobody else has a strong reference.
    pub(super) fn retire(
        &mut self,
        gone: Vec<Served<D::Tx>>,
    ) -> Result<Retired<D::Tx>, EngineError> {
        for &(worker, event) in gone.iter().flat_map(|(_, events)| events) {
            self.workers[worker].tell(Command::SetTx(event, None));
        }
        self.sync();
        let mut rings = Vec::new();
        for (device, events) in &gone {
            self.free_events(events);
            device.deactivate()?;
            rings.extend(device.replace_rings(Vec::new())?);
        }
        let alone = gone.into_iter().map(|(device, _)| self.wait_for(device));
        let alone: Vec<_> = alone.collect();
        self.sync();
        let stats = |device: Result<Device<_>, Arc<Device<_>>>| match device {
            Ok(device) => device.stats(),
            Err(shared) => shared.stats(),
        };
        Ok((alone.into_iter().map(stats).collect(), rings))
    }

    /// Waits until nobody else has a device. Not if a worker has died: it may have had it.
    fn wait_for(
        &self,
        mut device: Arc<Device<D::Tx>>,
    ) -> Result<Device<D::Tx>, Arc<Device<D::Tx>>> {
        // Whoever sends there by an action is in the middle of a round.
        let died = |w: &WorkerHandle<D::Rx, D::Tx>| {
            w.thread.as_ref().is_none_or(|thread| thread.is_finished())
        };
        loop {
            match Arc::try_unwrap(device) {
                Ok(device) => return Ok(device),
                Err(shared) if self.workers.iter().any(died) => return Err(shared),
                Err(shared) => device = shared,
            }
            std::thread::yield_now();
        }
    }
}
