//! Ports: added, given other options, and removed, while packets flow.

use std::sync::Arc;

use super::devices::{DeviceOf, Devices, Opened};
use super::error::EngineError;
use super::exchange::speed_of;
use super::info::LinkKind;
use super::life::{Engine, check_caller};
use super::links::random_address;
use super::losses::{Losses, sum};
use super::spec::{PortOptions, PortSpec};
use super::state::{Port, State};
use super::stats::passed_on;
use crate::capture::Captures;
use crate::forward::{Bridge, Guard, MAX_HOPS, Member, Role, Virtual};
use crate::link::LinkCell;
use crate::rx::{Command, SteeringSpec};
use softnet::tx::{DeviceConfig, DeviceStats, Features};
use softnet_tc::units::NOMINAL_SPEED;
use softnet_tc::{DeviceTree, QdiscEnv, QdiscSpec, TreeSpec, check_queue_map};

/// A port to add, and its device if that is open.
pub type OpenPort<D> = (PortSpec<<D as Devices>::Spec>, Option<DeviceOf<D>>);

impl<D: Devices> Engine<D> {
    /// Opens devices, and adds their ports, all or none. They receive when all of them are in their
    /// bridges, so that what hosts send first finds its way. Waits for the workers' rounds.
    ///
    /// # Errors
    /// The first port that cannot be added, by its place in the list, and why: its name is not
    /// valid or is taken, its device cannot be opened, the qdisc's parameters are wrong, a map does
    /// not fit its queues, there are none or too many of them, or a worker cannot watch one.
    /// Nothing is changed then.
    pub fn add_ports(
        &self,
        ports: Vec<PortSpec<D::Spec>>,
    ) -> Result<Vec<u32>, (usize, EngineError)> {
        check_caller().map_err(|error| (0, error))?;
        let mut opened = Vec::with_capacity(ports.len());
        for (place, mut port) in ports.into_iter().enumerate() {
            let address = &mut port.settings.address;
            address.get_or_insert_with(random_address);
            let checked = self.check_new(&self.state(), &port);
            let device = checked.and_then(|_| self.open(&port));
            match device {
                Ok(device) => opened.push((port, Some(device))),
                Err(error) => {
                    self.discard(opened.into_iter().filter_map(|(_, device)| device));
                    return Err((place, error));
                }
            }
        }
        self.add_opened(opened)
    }

    /// As [`add_ports`](Engine::add_ports), with devices that are [open](Engine::open). A port
    /// without one is down until it is [opened](Engine::reopen_device), and what is sent there is
    /// dropped.
    ///
    /// # Errors
    /// As there. The queues are closed then.
    pub fn add_opened(&self, ports: Vec<OpenPort<D>>) -> Result<Vec<u32>, (usize, EngineError)> {
        check_caller().map_err(|error| (0, error))?;
        self.at_once(|engine| {
            let (mut added, mut receivers) = (Vec::new(), Vec::new());
            let result = engine.try_add(ports, &mut added, &mut receivers);
            if result.is_err() {
                // They are there: nobody else changes links.
                let _ = engine.delete_all(&added);
            }
            result.map(|()| added)
        })
    }

    /// As [`add_ports`](Engine::add_ports), for one.
    ///
    /// # Errors
    /// As there.
    pub fn add_port(&self, port: PortSpec<D::Spec>) -> Result<u32, EngineError> {
        let added = self.add_ports(vec![port]).map_err(|(_, error)| error)?;
        added.first().copied().ok_or(EngineError::NoLink(0))
    }

    /// As [`add_opened`](Engine::add_opened), for one.
    ///
    /// # Errors
    /// As there.
    pub fn add_port_with(
        &self,
        port: PortSpec<D::Spec>,
        device: DeviceOf<D>,
    ) -> Result<u32, EngineError> {
        let added = self.add_opened(vec![(port, Some(device))]);
        let added = added.map_err(|(_, error)| error)?;
        added.first().copied().ok_or(EngineError::NoLink(0))
    }

    /// Closes devices of ports that are not added after all.
    pub(super) fn discard(&self, devices: impl Iterator<Item = DeviceOf<D>>) {
        // First their receive queues, so that none of these is the last of its device.
        let rings = devices.flat_map(|Opened { rx, tx, .. }| {
            drop(rx);
            tx
        });
        self.devices.close(rings.collect());
    }

    fn try_add(
        &self,
        ports: Vec<OpenPort<D>>,
        added: &mut Vec<u32>,
        receivers: &mut Vec<Vec<D::Rx>>,
    ) -> Result<(), (usize, EngineError)> {
        let mut actions = Vec::with_capacity(ports.len());
        for (place, (mut port, device)) in ports.into_iter().enumerate() {
            actions.push(std::mem::take(&mut port.actions));
            let prepared = self.prepare(port, device, added);
            receivers.push(prepared.map_err(|error| (place, error))?);
        }
        // Before one of them receives, every worker knows them all: hosts' first frames find their
        // way.
        let mut state = self.control().map_err(|error| (0, error))?;
        state.resolve_actions();
        if state.held.stale && receivers.iter().any(|rx| !rx.is_empty()) {
            state.publish_and_sync();
        }
        drop(state);
        for (place, (&index, actions)) in added.iter().zip(&actions).enumerate() {
            let set = self.set_action_specs(index, actions);
            set.map_err(|error| (place, error))?;
        }
        let mut state = self.control().map_err(|error| (0, error))?;
        let rx = receivers.iter_mut().map(std::mem::take);
        let number = |(place, (&index, rx)): (usize, (&u32, _))| {
            let number = state.number(index).map_err(|error| (place, error))?;
            Ok((number, rx))
        };
        let ports = added.iter().zip(rx).enumerate().map(number);
        let ports: Vec<_> = ports.collect::<Result<_, _>>()?;
        let numbers: Vec<u16> = ports.iter().map(|&(number, _)| number).collect();
        state.open_all(ports).map_err(|(refused, error)| {
            let place = numbers.iter().position(|&number| number == refused);
            (place.unwrap_or_default(), error)
        })
    }

    /// Adds a port without receive queues, which are returned. Its number is in `added` as soon as
    /// it is there.
    fn prepare(
        &self,
        new: PortSpec<D::Spec>,
        device: Option<DeviceOf<D>>,
        added: &mut Vec<u32>,
    ) -> Result<Vec<D::Rx>, EngineError> {
        let mut guard = self.control()?;
        let master = self.check_new(&guard, &new)?;
        let (index, rx) = guard.add(&self.devices, &new, device)?;
        added.push(index);
        if new.qdisc != QdiscSpec::Default {
            guard.changes.note_tree(index, TreeSpec::new());
        }
        drop(guard);
        self.set_master_as(index, master, new.member.options)?;
        self.set_member(index, &new.member, &[])?;
        Ok(rx)
    }

    /// Checks what a new port is to be, before its device is opened. Returns its bridge.
    fn check_new(
        &self,
        state: &State<D>,
        new: &PortSpec<D::Spec>,
    ) -> Result<Option<u32>, EngineError> {
        self.check(state, &new.settings, None, Some(&new.options.device))?;
        let Some(name) = &new.master else {
            return Ok(None);
        };
        let master = state.names.get(name).copied();
        let master = master.ok_or_else(|| EngineError::NoLinkNamed(name.clone()))?;
        state.bridge(master).map(|_| Some(master))
    }

    /// Changes options of a port, all or none: the way to share out its transmit queues and what it
    /// receives, the group whose rates it shares, what it may send into a bridge, and whether its
    /// tree runs at all of its queues or at one. When this returns, every worker knows. Device,
    /// queues and policy stay as they are: they are [exchanged](Engine::exchange_device) together.
    ///
    /// Packets of a flow stay in order when they are steered in another way. What is over a group's
    /// rates waits: in the port's qdiscs, whichever they are, and where its driver has what it
    /// received. Limits of rates, and of source addresses at a time, start anew when one changes.
    ///
    /// `f` runs under the engine's lock: it must not call the engine, and other calls wait for it.
    ///
    /// # Errors
    /// If there is no such port, a map does not fit it, or there is no such worker or group.
    pub fn set_options(
        &self,
        index: u32,
        f: impl FnOnce(&mut PortOptions<D::Spec>),
    ) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let number = state.number(index)?;
        let link = state.link(index)?.clone();
        let Some(before) = link.options() else {
            return Ok(());
        };
        let mut after = before.clone();
        f(&mut after);
        let PortOptions {
            device,
            queues,
            policy,
            map,
            steering,
            rate_group,
            security,
            parallel,
        } = &mut after;
        device.clone_from(&before.device);
        *queues = before.queues;
        policy.clone_from(&before.policy);
        // Before anything is changed: what may fail.
        state.limits(rate_group.as_deref())?;
        state.check_steering(steering)?;
        if before.map != *map {
            let device = &state.slot(number).device;
            check_queue_map(map, device.queues().len())?;
            device.set_queue_map(map);
        }
        let clock = state.clock.clone();
        let port = state.slot_mut(number);
        if before.parallel != *parallel {
            let mut tree = port.tree.on((&*port.device, &clock));
            tree.set_parallel(*parallel);
        }
        let guarded = before.security != *security;
        if guarded {
            port.guard = Guard::new(security).map(Arc::new);
        }
        let steered = (before.steering != *steering).then(|| steering.clone());
        let regrouped = before.rate_group != *rate_group;
        if let Some(options) = state.known_mut(index).options_mut() {
            *options = after;
        }
        if guarded {
            state.publish_soon();
        }
        if let Some(steering) = steered {
            // Every worker that packets may be steered to must know the port first.
            state.sync();
            state.tell_napis(number, |napi| Command::Steer(napi, steering.clone()));
        }
        if regrouped {
            state.limit(number);
        }
        Ok(())
    }
}

impl<D: Devices> State<D> {
    /// Adds a port without receive queues, which are returned, and its link.
    fn add(
        &mut self,
        devices: &D,
        new: &PortSpec<D::Spec>,
        device: Option<DeviceOf<D>>,
    ) -> Result<(u32, Vec<D::Rx>), EngineError> {
        let PortSpec {
            settings, options, ..
        } = new;
        let is_open = device.is_some();
        let device = device.unwrap_or_else(|| Opened {
            rx: Vec::new(),
            tx: Vec::new(),
            features: Features {
                mtu: settings.mtu,
                ..Features::default()
            },
        });
        let Opened { rx, tx, features } = device;
        let queues = if is_open { tx.len() } else { options.queues };
        if queues == 0 {
            return Err(EngineError::NoQueue(settings.name.clone()));
        }
        let role = self.role(devices.virtual_link(&options.device))?;
        self.check_steering(&options.steering)?;
        check_queue_map(&options.map, queues)?;
        let limits = self.limits(options.rate_group.as_deref())?;
        let length = QdiscSpec::PfifoFast {
            limit: settings.tx_queue_len,
        };
        length.check()?;
        let env = QdiscEnv {
            mtu: features.mtu,
            speed: match is_open {
                true => speed_of(&rx),
                // Until it is open.
                false => Some(NOMINAL_SPEED),
            },
            txqueuelen: settings.tx_queue_len,
            default_qdisc: self.default_qdisc,
            no_queue: devices.no_queue(&options.device),
            parallel: options.parallel,
            group: limits.map(|limits| limits.to.clone()),
            hook_copies: self.workers.len(),
            ..QdiscEnv::new(&self.pool)
        };
        let (tree, qdiscs) = DeviceTree::new(self.adopt_in(&new.qdisc), queues, &env)?;
        let config = DeviceConfig {
            name: settings.name.clone(),
            features,
            policy: options.policy.clone(),
        };
        let (number, first) = (self.free_number()?, self.next_worker);
        let (events, files) = self.attach(&config.name, &tx, first, queues)?;
        let device = self.make_device(config, tx, qdiscs, &events, (number, role));
        device.set_queue_map(&options.map);
        if !is_open || !settings.up {
            device.deactivate()?;
        }
        let place = usize::from(number);
        if place == self.ports.len() {
            self.ports.push(None);
        }
        let kind = LinkKind::Port {
            options: Box::new(options.clone()),
            actions: Vec::new(),
        };
        let index = self.insert(settings.clone(), kind, (number, queues), is_open);
        self.set_outlet(&device, index);
        self.ports[place] = Some(Port {
            index,
            device: device.clone(),
            first,
            events: events.clone(),
            files,
            napis: Vec::new(),
            opened: self.next_serial(),
            pools: Vec::new(),
            member: Member::default(),
            link: Arc::new(LinkCell::new()),
            fresh: devices.is_of_host(&new.options.device),
            guard: Guard::new(&new.options.security).map(Arc::new),
            features,
            tree,
            role,
            hooks: None,
            actions: Arc::default(),
            captures: Captures::default(),
            losses: Losses::default(),
            before: DeviceStats::default(),
        });
        self.follow_hook(number);
        self.next_worker = (first + queues.max(rx.len())) % self.workers.len();
        self.serve(number, &device, &events);
        self.publish_soon();
        Ok((index, rx))
    }

    /// Removes ports and their links. Returns what each counted.
    pub(super) fn remove_ports(
        &mut self,
        numbers: &[u16],
        devices: &D,
    ) -> Result<Vec<DeviceStats>, EngineError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let opened: Vec<u32> = numbers.iter().map(|&n| self.slot(n).opened).collect();
        self.close(&opened);
        let mut bridges: Vec<Arc<Bridge>> = Vec::new();
        let mut counted = Vec::with_capacity(numbers.len());
        let mut gone = Vec::with_capacity(numbers.len());
        let mut roles = Vec::with_capacity(numbers.len());
        for &number in numbers {
            let left = self.unlist(number);
            let is_known = |left: &Arc<Bridge>| bridges.iter().any(|b| Arc::ptr_eq(b, left));
            bridges.extend(left.filter(|left| !is_known(left)));
            let removed = self.ports[usize::from(number)].take();
            let removed = removed.expect("the port of a number in use");
            self.strike(removed.index);
            self.unwatch_rings(removed.files);
            roles.push(removed.role);
            counted.push(removed.before);
            gone.push((removed.device, removed.events));
        }
        self.publish();
        let (retired, rings) = self.retire(gone)?;
        devices.close(rings);
        for bridge in bridges {
            bridge.fdb().forget_ports(numbers);
        }
        let virtuals = roles.iter().map(|&role| role != Role::Device);
        for ((counted, last), is_virtual) in counted.iter_mut().zip(&retired).zip(virtuals) {
            sum(counted, last);
            match is_virtual {
                true => sum(&mut self.removed, &passed_on(counted)),
                false => sum(&mut self.removed, counted),
            }
        }
        self.hold_numbers(numbers);
        self.forget_blocks();
        self.publish();
        Ok(counted)
    }

    /// The part that a new port has in forwarding.
    pub(super) fn role(&self, link: Option<Virtual>) -> Result<Role, EngineError> {
        Ok(match link {
            None => Role::Device,
            Some(Virtual::Ifb) => Role::Ifb,
            Some(Virtual::Loopback) => Role::Loopback,
            Some(Virtual::Vlan { parent, tag }) => {
                let index = self.names.get(&parent).copied();
                let index = index.ok_or(EngineError::NoLinkNamed(parent))?;
                let number = self.number(index)?;
                let role = Role::Vlan(number, tag);
                if self.slot(number).role == Role::Loopback {
                    return Err(EngineError::NoVlans);
                }
                if self.ports.iter().flatten().any(|port| port.role == role) {
                    return Err(EngineError::VlanExists);
                }
                if self.depth(number) >= usize::from(MAX_HOPS) {
                    return Err(EngineError::TooDeep);
                }
                role
            }
        })
    }

    /// VLAN links from a port down, itself included.
    fn depth(&self, number: u16) -> usize {
        let below = |&number: &u16| match self.slot(number).role {
            Role::Vlan(parent, _) => Some(parent),
            _ => None,
        };
        std::iter::successors(below(&number), below).count()
    }

    /// The links that go with these: the VLANs of their ports, and so on.
    pub(super) fn with_vlans(&self, indices: &[u32]) -> Vec<u32> {
        let mut all = indices.to_vec();
        let mut at = 0;
        while let Some(&index) = all.get(at) {
            at += 1;
            let Ok(number) = self.number(index) else {
                continue;
            };
            let above = self.ports.iter().flatten();
            let above = above
                .filter(|port| matches!(port.role, Role::Vlan(parent, _) if parent == number));
            let new: Vec<u32> = above.map(|port| port.index).collect();
            all.extend(new.into_iter().filter(|index| !indices.contains(index)));
        }
        all
    }

    /// Keeps numbers of removed ports from new ones for as long as an `ifb` may give back packets
    /// that were redirected by the old ones.
    fn hold_numbers(&mut self, numbers: &[u16]) {
        match self
            .ports
            .iter()
            .flatten()
            .any(|port| port.role == Role::Ifb)
        {
            true => self.held_numbers.extend(numbers),
            false => self.held_numbers.clear(),
        }
    }

    /// Checks that the workers are there to which packets are to be steered.
    fn check_steering(&self, spec: &SteeringSpec) -> Result<(), EngineError> {
        let workers = self.workers.len();
        match spec.rps.iter().find(|&&worker| worker >= workers) {
            Some(&worker) => Err(EngineError::NoSuchWorker { worker, workers }),
            None => Ok(()),
        }
    }
}
