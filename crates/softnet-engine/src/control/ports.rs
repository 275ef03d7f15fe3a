//! Ports: their devices, what is done with what leaves them, and what happens to them.

use softnet::tx::Features;
use softnet_tc::{QdiscSpec, TreeSpec};

use super::{
    Action, ActionSpec, Change, Control, ControlError, Devices, LinkKind, Opened, PortOptions,
    PortSpec, Settings,
};
use crate::PortEvent;
use crate::engine::{Exchange, MirredSpec, PortId, PortSetup};

/// The queues of an open device.
pub type DeviceOf<D> = Opened<<D as Devices>::Rx, <D as Devices>::Tx>;

/// A port to add, and its device if that is open.
pub type OpenPort<D> = (PortSpec<<D as Devices>::Spec>, Option<DeviceOf<D>>);

impl<D: Devices> Control<D> {
    /// Opens devices, and adds their ports to the engine, all or none. They receive when all of
    /// them are in their bridges, so that what hosts send first finds its way.
    ///
    /// # Errors
    /// The first port that cannot be added, by its place in the list, and why: its name is not
    /// valid or is taken, its device cannot be opened, or the engine refuses it. Nothing is
    /// changed then.
    pub fn add_ports(
        &mut self,
        ports: Vec<PortSpec<D::Spec>>,
    ) -> Result<Vec<u32>, (usize, ControlError)> {
        let mut opened = Vec::with_capacity(ports.len());
        for (place, mut port) in ports.into_iter().enumerate() {
            port.settings
                .address
                .get_or_insert_with(super::random_address);
            let device = self.check_new(&port).and_then(|()| self.open(&port));
            opened.push((port, Some(device.map_err(|error| (place, error))?)));
        }
        self.add_opened(opened)
    }

    /// As [`add_ports`](Control::add_ports), with devices that are [open](Control::open). A port
    /// without one is down until it is [opened](Control::reopen_device).
    ///
    /// # Errors
    /// As there.
    pub fn add_opened(
        &mut self,
        ports: Vec<OpenPort<D>>,
    ) -> Result<Vec<u32>, (usize, ControlError)> {
        let mut added = Vec::with_capacity(ports.len());
        let mut receivers = Vec::with_capacity(ports.len());
        let mut failed = None;
        let mut actions = Vec::with_capacity(ports.len());
        for (place, (mut port, device)) in ports.into_iter().enumerate() {
            actions.push(std::mem::take(&mut port.actions));
            match self.prepare(port, device) {
                Ok((index, id, rx)) => {
                    added.push(index);
                    receivers.push((id, rx));
                }
                Err(error) => {
                    failed = Some((place, error));
                    break;
                }
            }
        }
        if failed.is_none() {
            let mut set = added.iter().zip(&actions).enumerate();
            failed = set.find_map(|(place, (&index, actions))| {
                let set = self.set_action_specs(index, actions);
                set.err().map(|error| (place, error))
            });
        }
        if failed.is_none() {
            for (place, (id, rx)) in receivers.into_iter().enumerate() {
                if let Err(error) = self.engine.receive(id, rx) {
                    failed = Some((place, error.into()));
                    break;
                }
            }
        }
        match failed {
            None => Ok(added),
            Some(failed) => {
                for index in added {
                    // It is there: nobody else changes links.
                    let _ = self.delete(index);
                }
                Err(failed)
            }
        }
    }

    /// As [`add_ports`](Control::add_ports), for one.
    ///
    /// # Errors
    /// As there.
    pub fn add_port(&mut self, port: PortSpec<D::Spec>) -> Result<u32, ControlError> {
        let added = self.add_ports(vec![port]).map_err(|(_, error)| error)?;
        added.first().copied().ok_or(ControlError::NoLink(0))
    }

    /// Adds a port without receive queues, which are returned.
    fn prepare(
        &mut self,
        new: PortSpec<D::Spec>,
        device: Option<DeviceOf<D>>,
    ) -> Result<(u32, PortId, Vec<D::Rx>), ControlError> {
        self.check_new(&new)?;
        let PortSpec {
            settings,
            options,
            qdisc,
            master,
            member,
            actions: _,
        } = new;
        let master = self.named(master.as_deref())?;
        let is_open = device.is_some();
        let has_root = qdisc != QdiscSpec::Default;
        let device = device.unwrap_or_else(|| Opened {
            rx: Vec::new(),
            tx: Vec::new(),
            features: Features {
                mtu: settings.mtu,
                ..Features::default()
            },
        });
        let setup = PortSetup {
            name: settings.name.clone(),
            rx: Vec::new(),
            tx: device.tx,
            features: device.features,
            qdisc,
            policy: options.policy.clone(),
        };
        let id = match is_open {
            true => self.engine.add_port(setup)?,
            false => self.engine.add_closed_port(setup, options.queues)?,
        };
        let set = self
            .engine
            .set_no_queue(id, self.devices.no_queue(&options.device))
            .and_then(|()| self.engine.set_parallel(id, options.parallel))
            .and_then(|()| self.engine.set_queue_map(id, &options.map))
            .and_then(|()| self.engine.set_steering(id, &options.steering))
            .and_then(|()| self.engine.set_security(id, &options.security))
            .and_then(|()| self.engine.set_tx_queue_len(id, settings.tx_queue_len))
            .and_then(|()| self.engine.set_up(id, settings.up));
        let group = options.rate_group.as_deref();
        let set = set.map_err(ControlError::from);
        if let Err(error) = set.and_then(|()| self.join_rate_group(id, group)) {
            self.engine.remove_port(id)?;
            return Err(error);
        }
        let kind = LinkKind::Port {
            id,
            options: Box::new(options),
            actions: Vec::new(),
        };
        let index = self.insert(settings, kind);
        if has_root {
            self.note_tree(index, TreeSpec::new());
        }
        let joined = self.set_master_as(index, master, member.options);
        if let Err(error) = joined.and_then(|()| self.set_member(index, &member, &[])) {
            self.delete(index)?;
            return Err(error);
        }
        self.set_open(index, is_open);
        Ok((index, id, device.rx))
    }

    /// Checks what a new port is to be, before its device is opened.
    fn check_new(&self, new: &PortSpec<D::Spec>) -> Result<(), ControlError> {
        self.check(&new.settings, None, Some(&new.options.device))?;
        let master = self.named(new.master.as_deref())?;
        master.map_or(Ok(()), |master| self.master(master).map(drop))
    }

    /// The number of a link that is named, if one is.
    pub(super) fn named(&self, name: Option<&str>) -> Result<Option<u32>, ControlError> {
        let link = name.map(|name| self.link_named(name)).transpose()?;
        Ok(link.map(|link| link.index))
    }

    /// Opens a device for a port to [add](Control::add_opened), or for one that is to have
    /// [another](Control::exchange_device). May block for the kernel to make an interface.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self, port: &PortSpec<D::Spec>) -> Result<DeviceOf<D>, ControlError> {
        self.open_with(&port.settings, &port.options)
    }

    fn open_with(
        &self,
        settings: &Settings,
        options: &PortOptions<D::Spec>,
    ) -> Result<DeviceOf<D>, ControlError> {
        let opened = self.devices.open(&options.device, settings, options.queues);
        opened.map_err(|source| ControlError::device(settings, source))
    }

    /// A port's device is gone: it is down until it is opened again.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn close_device(&mut self, index: u32) -> Result<(), ControlError> {
        let port = self.port(index)?;
        self.engine.replace(port, Vec::new(), Vec::new())?;
        self.set_open(index, false);
        Ok(())
    }

    /// Opens a port's device again, with the settings that the link has.
    ///
    /// # Errors
    /// If there is no such port, or the device cannot be opened.
    pub fn reopen_device(&mut self, index: u32) -> Result<(), ControlError> {
        let port = self.port(index)?;
        let link = self.link(index)?;
        let LinkKind::Port { options, .. } = &link.kind else {
            return Err(ControlError::NoPort(link.settings.name.clone()));
        };
        let opened = self.open_with(&link.settings, options)?;
        let features = opened.features;
        self.engine.replace(port, opened.rx, opened.tx)?;
        self.engine.set_features(port, features)?;
        self.set_open(index, true);
        self.note(Change::Link(index));
        Ok(())
    }

    /// Gives a port a device that is [open](Control::open) in place of the one that it has, with
    /// what goes by its queues: their number, the tree, the map and the policy of `to`. All else
    /// of the port stays ([`Engine::exchange`](crate::Engine::exchange)).
    ///
    /// # Errors
    /// If there is no such port, or the engine refuses. Nothing is changed then.
    pub fn exchange_device(
        &mut self,
        index: u32,
        to: &PortSpec<D::Spec>,
        device: DeviceOf<D>,
    ) -> Result<(), ControlError> {
        let port = self.port(index)?;
        let PortOptions {
            device: spec,
            queues,
            policy,
            map,
            ..
        } = &to.options;
        let qdisc = TreeSpec::from(to.qdisc.clone());
        let has_root = !qdisc.is_empty();
        let before = self.read_tree(index, |tree, _| tree.spec().clone())?;
        let had_root = !before.is_empty();
        self.engine.exchange(
            port,
            Exchange {
                rx: device.rx,
                tx: device.tx,
                features: device.features,
                qdisc,
                policy: policy.clone(),
                map: map.clone(),
                no_queue: self.devices.no_queue(spec),
            },
        )?;
        if let Some(link) = self.links.get_mut(&index) {
            link.open = true;
            if had_root && !has_root {
                link.has_default = link.settings.up;
            }
            if let LinkKind::Port { options, .. } = &mut link.kind {
                options.device = spec.clone();
                options.queues = *queues;
                options.policy = policy.clone();
                options.map = map.clone();
            }
        }
        self.note(Change::Link(index));
        self.note_tree(index, before);
        Ok(())
    }

    fn set_open(&mut self, index: u32, open: bool) {
        if let Some(link) = self.links.get_mut(&index) {
            link.open = open;
        }
    }

    /// As [`set_actions`](Control::set_actions), with the targets' names. What a port has already
    /// is not touched.
    ///
    /// # Errors
    /// As there.
    pub fn set_action_specs(
        &mut self,
        index: u32,
        actions: &[ActionSpec],
    ) -> Result<(), ControlError> {
        let actions = actions.iter().map(|action| {
            Ok(Action {
                mode: action.mode,
                dir: action.dir,
                to: self.link_named(&action.to)?.index,
            })
        });
        let actions: Vec<_> = actions.collect::<Result<_, ControlError>>()?;
        match &self.link(index)?.kind {
            LinkKind::Port { actions: known, .. } if *known == actions => Ok(()),
            _ => self.set_actions(index, &actions),
        }
    }

    /// Attaches actions to what leaves a port, in place of those it has, in this order.
    ///
    /// # Errors
    /// If the port or the target of an action is not there. Nothing is changed then.
    pub fn set_actions(&mut self, index: u32, actions: &[Action]) -> Result<(), ControlError> {
        let port = self.port(index)?;
        let specs = actions.iter().map(|action| {
            Ok(MirredSpec {
                mode: action.mode,
                dir: action.dir,
                to: self.port(action.to)?,
            })
        });
        let specs: Vec<_> = specs.collect::<Result<_, ControlError>>()?;
        self.engine.set_actions(port, &specs)?;
        if let Some(link) = self.links.get_mut(&index)
            && let LinkKind::Port { actions: known, .. } = &mut link.kind
        {
            *known = actions.to_vec();
        }
        Ok(())
    }

    /// Shares out a port's transmit queues and what it receives in another way, has its tree run
    /// at all of its queues or at one, and limits what it may send. Device, queues and policy
    /// stay: they are [exchanged](Control::exchange_device) together.
    ///
    /// # Errors
    /// If there is no such port, or a map does not fit it. Nothing is changed then.
    pub fn set_options(
        &mut self,
        index: u32,
        after: &PortOptions<D::Spec>,
    ) -> Result<(), ControlError> {
        let id = self.port(index)?;
        let Some(before) = self.link(index)?.options().cloned() else {
            return Ok(());
        };
        let after = PortOptions {
            device: before.device.clone(),
            queues: before.queues,
            policy: before.policy.clone(),
            ..after.clone()
        };
        let PortOptions {
            device: _,
            queues: _,
            policy: _,
            map,
            steering,
            rate_group,
            security,
            parallel,
        } = &after;
        // Before anything is changed: it is the one step that may fail and is not undone.
        self.group_limits(rate_group.as_deref())?;
        if before.map != *map {
            self.engine.set_queue_map(id, map)?;
        }
        if before.steering != *steering
            && let Err(error) = self.engine.set_steering(id, steering)
        {
            self.engine.set_queue_map(id, &before.map)?;
            return Err(error.into());
        }
        if before.rate_group != *rate_group {
            self.join_rate_group(id, rate_group.as_deref())?;
        }
        if before.security != *security {
            self.engine.set_security(id, security)?;
        }
        if before.parallel != *parallel {
            self.engine.set_parallel(id, *parallel)?;
        }
        if let Some(link) = self.links.get_mut(&index)
            && let LinkKind::Port { options, .. } = &mut link.kind
        {
            **options = after;
        }
        Ok(())
    }

    /// What happened to ports by themselves, by link. To be called every now and then.
    pub fn take_events(&mut self) -> Vec<(u32, PortEvent)> {
        let mut events = Vec::new();
        for event in self.engine.take_events() {
            let (PortEvent::Gone(id) | PortEvent::Link(id, _)) = event;
            let Some(index) = self.link_of(id) else {
                continue;
            };
            if let PortEvent::Link(_, state) = event
                && let Some(link) = self.links.get_mut(&index)
            {
                link.settings.mtu = state.mtu.unwrap_or(link.settings.mtu);
            }
            events.push((index, event));
            self.note(Change::Link(index));
        }
        events
    }
}
