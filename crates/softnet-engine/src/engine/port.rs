//! The life of a port: added, renamed, given other queues, removed, while packets flow.
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

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::state::{Port, State, TxEvent};
use super::stats::{Losses, sum};
use super::{Engine, EngineError, PortId, PortSetup, ToBacklog};
use crate::Device;
use crate::link::LinkCell;
use crate::rx::{Command, Napi, RxQueue, TxPort};
use softnet::mem::Pool;
use softnet::tx::{DeviceConfig, DeviceStats, Features, QueueMap, TxPolicy, TxRing};
use softnet_tc::rate::RateGroup;
use softnet_tc::{DeviceTree, QdiscEnv, TreeSpec};

/// Another device of a port, for [`Engine::exchange`].
#[derive(Debug)]
pub struct Exchange<Q, R> {
    /// Receive queues.
    pub rx: Vec<Q>,
    /// Transmit queues.
    pub tx: Vec<R>,
    /// What the driver does by itself.
    pub features: Features,
    /// The port's tree from now on.
    pub qdisc: TreeSpec,
    /// Who runs the transmit queues, and what they take at once.
    pub policy: TxPolicy,
    /// The port's own way to share the queues out.
    pub map: QueueMap,
    /// Whether the default qdisc is `noqueue`.
    pub no_queue: bool,
}

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
    /// Adds a port and starts polling it. Its queues are spread over the workers. Until it is part
    /// of a bridge, what it receives is dropped. Waits for the workers' rounds.
    ///
    /// # Errors
    /// If the name is taken, the qdisc's parameters are wrong, there are no or too many queues, or
    /// a worker cannot watch one of them. Nothing is changed then, and the queues are closed.
    pub fn add_port(&self, setup: PortSetup<Q, R>) -> Result<PortId, EngineError> {
        let queues = setup.tx.len();
        self.add(setup, queues)
    }

    /// Adds a port of so many transmit queues whose device is not there: `setup` has no queues. It
    /// is down until it is [given some](Engine::replace), and what is sent there is dropped.
    ///
    /// # Errors
    /// As [`add_port`](Engine::add_port).
    pub fn add_closed_port(
        &self,
        setup: PortSetup<Q, R>,
        queues: usize,
    ) -> Result<PortId, EngineError> {
        let port = self.add(setup, queues)?;
        self.replace(port, Vec::new(), Vec::new())?;
        Ok(port)
    }

    fn add(&self, setup: PortSetup<Q, R>, tx_queues: usize) -> Result<PortId, EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        state.check_name(&setup.name)?;
        if tx_queues == 0 {
            return Err(EngineError::NoQueue(setup.name));
        }
        let number = state.free_number()?;
        let first = state.next_worker;
        let queues = setup.rx.len().max(tx_queues);
        let config = DeviceConfig {
            name: setup.name,
            features: setup.features,
            policy: setup.policy.clone(),
        };
        let env = self.qdisc_env(setup.features);
        let (tree, qdiscs) = DeviceTree::new(setup.qdisc, tx_queues, &env)?;
        let (events, files) = state.attach(&config.name, &setup.tx, first, tx_queues)?;
        let device = self.make_device(state, config, setup.tx, qdiscs, &events, number);
        let (serial, opened) = (state.next_serial(), state.next_serial());
        let index = usize::from(number);
        if index == state.ports.len() {
            state.ports.push(None);
        }
        state.ports[index] = Some(Port {
            serial,
            device: device.clone(),
            first,
            events: events.clone(),
            files,
            napis: Vec::new(),
            opened,
            steering: Default::default(),
            group: None,
            pools: Vec::new(),
            bridge: None,
            link: Arc::new(LinkCell::new()),
            guard: None,
            actions: Vec::new(),
            up: true,
            open: true,
            features: setup.features,
            tree,
            policy: setup.policy,
            losses: Losses::default(),
            before: DeviceStats::default(),
        });
        if let Err(error) = self.open(state, number, &device, setup.rx) {
            let refused = state.ports[index].take();
            let files = refused.map_or_else(Vec::new, |port| port.files);
            state.detach(&events, files);
            self.publish(state);
            return Err(error);
        }
        state.next_worker = (first + queues) % state.workers.len();
        state.serve(number, &device, &events);
        Ok(self.port_id(number, serial))
    }

    /// Removes a port while packets flow. Its name and number are free when this returns, its
    /// queues are closed, its bridge has forgotten the addresses behind it, and what it counted is
    /// part of [`EngineStats::removed`](super::EngineStats). Returns what it counted. Packets that
    /// it holds are dropped, and so is what actions of other ports send there from now on.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn remove_port(&self, port: PortId) -> Result<DeviceStats, EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let opened = self.port(state, port)?.opened;
        state.close(opened);
        let bridge = state.unlist(port.index);
        let removed = state.ports[usize::from(port.index)].take();
        self.publish(state);
        let Some(removed) = removed else {
            return Err(EngineError::NoSuchPort);
        };
        state.unwatch_rings(removed.files);
        let mut counted = removed.before;
        drop(removed.napis);
        sum(&mut counted, &state.retire(removed.device, &removed.events));
        if let Some(bridge) = bridge {
            bridge.fdb().forget_port(port.index);
        }
        sum(&mut state.removed, &counted);
        self.publish(state);
        Ok(counted)
    }

    /// Gives a port another name.
    ///
    /// # Errors
    /// If there is no such port, or the name is taken.
    pub fn rename_port(&self, port: PortId, name: impl Into<String>) -> Result<(), EngineError> {
        let state = self.state();
        let device = &self.port(&state, port)?.device;
        let name = name.into();
        if *device.name() != name {
            state.check_name(&name)?;
            device.rename(name);
        }
        Ok(())
    }

    /// Gives a port that was added without receive queues some: when the bridge that it belongs to
    /// is there, so that what hosts send first is not dropped for want of one (an address
    /// resolution, which is repeated after a second). Waits for the workers' rounds.
    ///
    /// # Errors
    /// If there is no such port, it has receive queues, or a worker cannot watch one of these.
    /// Nothing is changed then, and the queues are closed.
    pub fn receive(&self, port: PortId, rx: Vec<Q>) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let known = self.port(state, port)?;
        let device = &known.device.clone();
        if !known.napis.is_empty() {
            return Err(EngineError::Receives(device.name().to_string()));
        }
        self.open(state, port.index, device, rx)
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
    pub fn replace(&self, port: PortId, rx: Vec<Q>, tx: Vec<R>) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let known = self.port(state, port)?;
        if !tx.is_empty() && tx.len() != known.events.len() {
            return self.resize(state, port.index, rx, tx);
        }
        let (device, old, up) = (known.device.clone(), known.opened, known.up);
        let mut files = state.watch_rings(&device.name(), &tx, &known.events)?;
        if let Err(error) = self.open(state, port.index, &device, rx) {
            state.unwatch_rings(files);
            return Err(error);
        }
        let down = tx.is_empty();
        if let Some(known) = &mut state.ports[usize::from(port.index)] {
            std::mem::swap(&mut known.files, &mut files);
            known.open = !down;
        }
        state.unwatch_rings(files);
        // First: the last file of the old device is then closed here, not by a worker, whose other
        // ports would wait until the kernel has unregistered the interface.
        state.close(old);
        if down {
            device.deactivate().expect(super::state::OUTSIDE);
        }
        device.replace_rings(tx).expect(super::state::OUTSIDE);
        if !down && up {
            device.activate().expect(super::state::OUTSIDE);
        }
        state.forget_learnt(port.index);
        Ok(())
    }

    /// What qdiscs of a port are made for.
    fn qdisc_env(&self, features: Features) -> QdiscEnv {
        QdiscEnv {
            mtu: features.mtu,
            ..QdiscEnv::new(&self.pool)
        }
    }

    /// Gives a port a device of another kind, or with other parameters, in place of the one that it
    /// has, which is closed. What is queued is dropped, qdiscs and actions that send to the port
    /// count from zero; what the port counted stays, and so do its name, its bridge with options,
    /// VLANs and fixed entries, its group, its actions and its limits.
    ///
    /// # Errors
    /// If there is no such port, the qdisc or the map does not fit the queues, there are none or
    /// too many, or a worker cannot watch one of them. Nothing is changed then, and the new queues
    /// are closed.
    pub fn exchange(&self, port: PortId, to: Exchange<Q, R>) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let known = self.port(state, port)?;
        if to.tx.is_empty() {
            return Err(EngineError::NoQueue(known.device.name().to_string()));
        }
        self.exchange_in(state, port.index, to)
    }

    /// Gives a port another device, with other queues.
    fn resize(
        &self,
        state: &mut State<Q, R>,
        number: u16,
        rx: Vec<Q>,
        tx: Vec<R>,
    ) -> Result<(), EngineError> {
        let Some(port) = &state.ports[usize::from(number)] else {
            return Err(EngineError::NoSuchPort);
        };
        let to = Exchange {
            rx,
            tx,
            features: port.features,
            qdisc: port.tree.spec().clone(),
            policy: port.policy.clone(),
            map: port.device.queue_map(),
            no_queue: port.tree.env().no_queue,
        };
        self.exchange_in(state, number, to)
    }

    fn exchange_in(
        &self,
        state: &mut State<Q, R>,
        number: u16,
        to: Exchange<Q, R>,
    ) -> Result<(), EngineError> {
        let index = usize::from(number);
        let Some(port) = &state.ports[index] else {
            return Err(EngineError::NoSuchPort);
        };
        let (first, old, before) = (port.first, port.opened, port.device.clone());
        let Exchange {
            rx,
            tx,
            features,
            qdisc,
            policy,
            map,
            no_queue,
        } = to;
        let config = DeviceConfig {
            name: before.name().to_string(),
            features,
            policy: policy.clone(),
        };
        let env = QdiscEnv {
            mtu: features.mtu,
            no_queue,
            ..port.tree.env().clone()
        };
        let (tree, qdiscs) = DeviceTree::new(qdisc, tx.len(), &env)?;
        map.check(tx.len())?;
        let (events, mut files) = state.attach(&config.name, &tx, first, tx.len())?;
        let device = self.make_device(state, config, tx, qdiscs, &events, number);
        device.set_queue_map(&map)?;
        if let Err(error) = self.open(state, number, &device, rx) {
            state.detach(&events, files);
            return Err(error);
        }
        state.serve(number, &device, &events);
        let Some(port) = &mut state.ports[index] else {
            return Err(EngineError::NoSuchPort);
        };
        if !port.up {
            device.deactivate().expect(super::state::OUTSIDE);
        }
        port.device = device;
        port.open = true;
        port.tree = tree;
        port.features = features;
        port.policy = policy;
        let served = std::mem::replace(&mut port.events, events);
        std::mem::swap(&mut port.files, &mut files);
        state.unwatch_rings(files);
        self.apply_actions(state, number);
        state.close(old);
        self.publish(state);
        let counted = state.retire(before, &served);
        state.forget_learnt(number);
        if let Some(port) = &mut state.ports[index] {
            sum(&mut port.before, &counted);
        }
        Ok(())
    }

    fn make_device(
        &self,
        state: &State<Q, R>,
        config: DeviceConfig,
        rings: Vec<R>,
        qdiscs: softnet::tx::Qdiscs<softnet_tc::AnyQdisc>,
        events: &[TxEvent],
        port: u16,
    ) -> Arc<Device<R>> {
        let notifier = |&(worker, event): &TxEvent| {
            let notifier: &Arc<_> = &state.workers[worker].shared.notifier;
            (notifier.clone(), event)
        };
        let workers: Vec<_> = events.iter().map(notifier).collect();
        let device = Device::new(config, rings, qdiscs, &self.pool, &workers);
        let receiver = &state.workers[events[0].0].shared;
        device.set_ingress(Box::new(ToBacklog {
            port,
            backlog: receiver.backlog.clone(),
            notifier: receiver.notifier.clone(),
        }));
        device.measure(self.clock.clone());
        Arc::new(device)
    }

    /// Spreads receive queues over the workers, from the port's first one on, in place of those
    /// that the port has; who calls this closes those. Waits for the workers' rounds. If a worker
    /// cannot watch one of them, all are closed, and the port has those that it had.
    fn open(
        &self,
        state: &mut State<Q, R>,
        port: u16,
        device: &Arc<Device<R>>,
        rx: Vec<Q>,
    ) -> Result<(), EngineError> {
        let opened = state.next_serial();
        let Some(known) = &mut state.ports[usize::from(port)] else {
            return Err(EngineError::NoSuchPort);
        };
        // Workers need not know of a port that neither receives nor did.
        let is_quiet = rx.is_empty() && known.napis.is_empty();
        let link = rx.iter().find_map(Q::link);
        let mut pools: Vec<Pool> = rx.iter().flat_map(Q::pools).cloned().collect();
        let mut cell = Arc::new(LinkCell::new());
        let mut napis = Vec::new();
        for (number, queue) in rx.into_iter().enumerate() {
            let worker = (known.first + number) % state.workers.len();
            let notifier = state.workers[worker].shared.notifier.clone();
            let flows = self.flows.clone();
            let link = cell.clone();
            let napi = Napi::new(
                queue,
                device.clone(),
                (port, opened),
                (worker, notifier),
                link,
                flows,
            );
            napi.set_steering(&known.steering);
            napi.set_limit(known.group.as_ref().map(RateGroup::join));
            napis.push(Arc::new(napi));
        }
        let mut opened = opened;
        let mut exchange = |state: &mut State<Q, R>| {
            if let Some(known) = &mut state.ports[usize::from(port)] {
                std::mem::swap(&mut known.napis, &mut napis);
                std::mem::swap(&mut known.pools, &mut pools);
                std::mem::swap(&mut known.opened, &mut opened);
                std::mem::swap(&mut known.link, &mut cell);
            }
            if is_quiet && state.held.depth > 0 {
                state.held.stale = true;
            } else {
                self.publish(state);
            }
        };
        exchange(state);
        let result = state.watch(port);
        let Some(known) = &mut state.ports[usize::from(port)] else {
            return Err(EngineError::NoSuchPort);
        };
        match result {
            Ok(()) => {
                known.losses.open(link);
                Ok(())
            }
            Err(source) => {
                let (refused, port) = (known.opened, device.name().to_string());
                exchange(state);
                state.close(refused);
                Err(EngineError::Watch { port, source })
            }
        }
    }
}

impl<Q: RxQueue, R: TxRing> State<Q, R> {
    fn check_name(&self, name: &str) -> Result<(), EngineError> {
        let mut ports = self.ports.iter().flatten();
        if ports.any(|port| *port.device.name() == name) {
            return Err(EngineError::DuplicatePort(name.to_owned()));
        }
        Ok(())
    }

    /// Has the workers watch a port's receive queues.
    fn watch(&self, port: u16) -> io::Result<()> {
        let (watched, results) = channel();
        let known = self.ports[usize::from(port)].as_ref();
        for napi in known.iter().flat_map(|port| &port.napis) {
            let add = Command::AddRx(napi.clone(), watched.clone());
            self.workers[napi.worker()].tell(add);
        }
        drop(watched);
        // Ends early if a worker has died, which its thread reports when joined.
        results.iter().collect()
    }

    /// Closes receive queues. When this returns, nothing that they received is in any backlog.
    pub(super) fn close(&self, opened: u32) {
        self.tell_all(|| Command::RemoveRx(opened));
        // Twice: when nobody receives any more, what was steered last is still to be processed.
        self.sync();
        self.sync();
    }

    /// Has the workers serve a device's transmit queues.
    fn serve(&self, port: u16, device: &Arc<Device<R>>, events: &[TxEvent]) {
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

    /// Gives up a device that is in no published table any more, and its transmit queues' events.
    /// Returns what it counted, which is final.
    ///
    /// Waits for workers that hold the device because an action sends there: each holds it for one
    /// call of the device, which is down, so it ends at once. Nobody else has a strong reference.
    fn retire(&mut self, mut device: Arc<Device<R>>, events: &[TxEvent]) -> DeviceStats {
        for &(worker, event) in events {
            self.workers[worker].tell(Command::SetTx(event, None));
        }
        self.sync();
        self.free_events(events);
        device.deactivate().expect(super::state::OUTSIDE);
        device
            .replace_rings(Vec::new())
            .expect(super::state::OUTSIDE);
        // Whoever sends there by an action is in the middle of a round.
        let died = |w: &super::state::WorkerHandle<Q, R>| {
            w.thread.as_ref().is_none_or(|thread| thread.is_finished())
        };
        let device = loop {
            match Arc::try_unwrap(device) {
                Ok(device) => break device,
                Err(shared) if self.workers.iter().any(died) => return shared.stats(),
                Err(shared) => device = shared,
            }
            std::thread::yield_now();
        };
        self.sync();
        device.stats()
    }
}
