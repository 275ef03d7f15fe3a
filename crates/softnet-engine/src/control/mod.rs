//! The control object: an engine's ports and bridges as links with numbers and names, which a
//! configuration file, its reload and rtnetlink add, change and remove while packets flow.
//!
//! One caller at a time (programs keep it in a mutex). Workers never wait for it: it changes what
//! they use by the [`Engine`]'s calls. Each change takes effect as a whole or not at all.

mod bridge;
mod devices;
mod error;
mod link;
mod rate_groups;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

pub use devices::{Devices, Opened};
pub use error::ControlError;
pub use link::{ALIAS_MAX, Action, Link, LinkKind, NAME_MAX, NewPort, PortOptions, Settings};

use crate::engine::{BridgeId, Engine, FdbEntry, MirredSpec, PortId, PortSetup};
use crate::forward::{BridgePortOptions, MirredDir, MirredMode};
use crate::{Device, PortEvent};
use rate_groups::RateGroups;
use softnet::time::Time;
use softnet::wire::EthernetAddress;
use softnet_tc::{DeviceTree, Handle, Live, SpecError, TreeSpec};

/// What has changed, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link is new or has changed.
    Link(u32),
    /// A link is gone: its number, and its last name.
    LinkGone(u32, String),
    /// What a bridge does at a port, or the VLANs of a port or bridge.
    Bridge(u32),
    /// A port is not part of a bridge any more.
    Left {
        /// The port.
        port: u32,
        /// Its name.
        name: String,
        /// The bridge.
        bridge: u32,
    },
    /// An entry of a forwarding database was made or changed, or is gone, by request.
    Fdb {
        /// The bridge.
        bridge: u32,
        /// The port that the station is behind.
        port: u32,
        /// The entry.
        entry: FdbEntry,
        /// Whether it was removed.
        gone: bool,
    },
}

/// An engine with its links.
#[derive(Debug)]
pub struct Control<D: Devices> {
    engine: Engine<D::Rx, D::Tx>,
    devices: D,
    /// By number.
    links: BTreeMap<u32, Link<D::Spec>>,
    rate_groups: RateGroups,
    /// The number of the last link.
    last: u32,
    /// The last handle that was chosen for a qdisc.
    chosen: u16,
    generation: u64,
    changes: Vec<Change>,
}

impl<D: Devices> Control<D> {
    /// Controls an engine that has no ports and no bridges yet.
    pub fn new(engine: Engine<D::Rx, D::Tx>, devices: D) -> Control<D> {
        Control {
            engine,
            devices,
            links: BTreeMap::new(),
            rate_groups: RateGroups::default(),
            last: 0,
            chosen: 0x8000,
            generation: 0,
            changes: Vec::new(),
        }
    }

    /// The engine, to read its counters. Ports and bridges are changed by the control object.
    pub fn engine(&self) -> &Engine<D::Rx, D::Tx> {
        &self.engine
    }

    /// The engine, to stop it.
    pub fn into_engine(self) -> Engine<D::Rx, D::Tx> {
        self.engine
    }

    /// How devices are opened.
    pub fn devices(&self) -> &D {
        &self.devices
    }

    /// Differs after every change of links or trees: a dump in parts tells by it whether it is
    /// consistent.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What has changed since the last call, in order; at most the last few thousand changes.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Whether [`take_changes`](Control::take_changes) would return any.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The links, by number.
    pub fn links(&self) -> &BTreeMap<u32, Link<D::Spec>> {
        &self.links
    }

    /// A link.
    ///
    /// # Errors
    /// If there is none of this number.
    pub fn link(&self, index: u32) -> Result<&Link<D::Spec>, ControlError> {
        self.links.get(&index).ok_or(ControlError::NoLink(index))
    }

    /// The link of a name.
    ///
    /// # Errors
    /// If there is none.
    pub fn link_named(&self, name: &str) -> Result<&Link<D::Spec>, ControlError> {
        let mut links = self.links.values();
        let known = links.find(|link| link.settings.name == name);
        known.ok_or_else(|| ControlError::NoLinkNamed(name.to_owned()))
    }

    /// Opens devices, and adds their ports to the engine, all or none. They receive when all of
    /// them are in their bridges, so that what hosts send first finds its way.
    ///
    /// # Errors
    /// The first port that cannot be added, by its place in the list, and why: its name is not
    /// valid or is taken, its device cannot be opened, or the engine refuses it. Nothing is
    /// changed then.
    pub fn add_ports(
        &mut self,
        ports: Vec<NewPort<D::Spec>>,
    ) -> Result<Vec<u32>, (usize, ControlError)> {
        let mut added = Vec::with_capacity(ports.len());
        let mut receivers = Vec::with_capacity(ports.len());
        let mut failed = None;
        let mut actions = Vec::with_capacity(ports.len());
        for (place, mut port) in ports.into_iter().enumerate() {
            actions.push(std::mem::take(&mut port.actions));
            match self.prepare(port) {
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
                let set = self.set_named_actions(index, actions);
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
    pub fn add_port(&mut self, port: NewPort<D::Spec>) -> Result<u32, ControlError> {
        let added = self.add_ports(vec![port]).map_err(|(_, error)| error)?;
        added.first().copied().ok_or(ControlError::NoLink(0))
    }

    /// Opens a device, and adds its port without receive queues, which are returned.
    fn prepare(
        &mut self,
        new: NewPort<D::Spec>,
    ) -> Result<(u32, PortId, Vec<D::Rx>), ControlError> {
        let NewPort {
            settings,
            spec,
            queues,
            qdisc,
            master,
            member,
            options,
            actions: _,
        } = new;
        self.check(&settings, None, Some(&spec))?;
        if let Some(master) = master {
            self.master(master)?;
        }
        let opened = self.open(&spec, &settings, queues)?;
        let id = self.engine.add_port(PortSetup {
            name: settings.name.clone(),
            rx: Vec::new(),
            tx: opened.tx,
            features: opened.features,
            qdisc: qdisc.unwrap_or_default(),
            policy: options.policy.clone(),
        })?;
        let set = self
            .engine
            .set_no_queue(id, self.devices.no_queue(&spec))
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
            spec,
            options: Box::new(options),
            actions: Vec::new(),
        };
        let index = self.insert(settings, queues, kind);
        if let Err(error) = self.set_master_as(index, master, member) {
            self.delete(index)?;
            return Err(error);
        }
        Ok((index, id, opened.rx))
    }

    fn open(
        &self,
        spec: &D::Spec,
        settings: &Settings,
        queues: usize,
    ) -> Result<Opened<D::Rx, D::Tx>, ControlError> {
        let opened = self.devices.open(spec, settings, queues);
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
        let LinkKind::Port { spec, .. } = &link.kind else {
            return Err(ControlError::NoPort(link.settings.name.clone()));
        };
        let opened = self.open(spec, &link.settings, link.queues)?;
        self.engine.replace(port, opened.rx, opened.tx)?;
        self.set_open(index, true);
        self.note(Change::Link(index));
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
    pub fn set_named_actions(
        &mut self,
        index: u32,
        actions: &[(MirredMode, MirredDir, String)],
    ) -> Result<(), ControlError> {
        let actions = actions.iter().map(|(mode, dir, to)| {
            Ok(Action {
                mode: *mode,
                dir: *dir,
                to: self.link_named(to)?.index,
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

    /// Adds a bridge without members.
    ///
    /// # Errors
    /// If the name is not valid or is taken.
    pub fn add_bridge(&mut self, settings: Settings) -> Result<u32, ControlError> {
        self.check(&settings, None, None)?;
        let id = self.engine.add_bridge(settings.name.as_str(), &[])?;
        if let Err(error) = self.engine.set_bridge_up(id, settings.up) {
            self.engine.remove_bridge(id)?;
            return Err(error.into());
        }
        Ok(self.insert(settings, 1, LinkKind::Bridge(id)))
    }

    /// Removes a link. What a port holds is dropped and counted; a bridge's members stay. So do
    /// other ports' actions, which then send nowhere: what they redirect is dropped.
    ///
    /// # Errors
    /// If there is none of this number.
    pub fn delete(&mut self, index: u32) -> Result<(), ControlError> {
        match self.link(index)?.kind {
            LinkKind::Port { id, .. } => drop(self.engine.remove_port(id)?),
            LinkKind::Bridge(id) => self.engine.remove_bridge(id)?,
        }
        let Some(link) = self.links.remove(&index) else {
            return Err(ControlError::NoLink(index));
        };
        if let Some(bridge) = link.master {
            let (port, name) = (index, link.settings.name.clone());
            self.note(Change::Left { port, name, bridge });
        }
        let mut left = Vec::new();
        for other in self.links.values_mut() {
            if other.master == Some(index) {
                other.master = None;
                other.port_number = 0;
                left.push((other.index, other.settings.name.clone()));
            }
        }
        for (port, name) in left {
            let bridge = index;
            self.note(Change::Left { port, name, bridge });
            self.note(Change::Link(port));
        }
        self.note(Change::LinkGone(index, link.settings.name));
        Ok(())
    }

    /// Gives a link other settings, all or none. A device that is gone is opened with them.
    ///
    /// # Errors
    /// If one of them is not valid, the name is taken, or the device cannot follow. Nothing is
    /// changed then.
    pub fn change(&mut self, index: u32, after: &Settings) -> Result<(), ControlError> {
        let link = self.link(index)?;
        let before = link.settings.clone();
        if before == *after {
            return Ok(());
        }
        match &link.kind {
            LinkKind::Port { spec, id, .. } => {
                self.check(after, Some(&before), Some(spec))?;
                // What bears the name of a device that is gone may be another's.
                if link.open {
                    let changed = self.devices.change(spec, &before, after);
                    changed.map_err(|source| ControlError::device(&before, source))?;
                }
                self.engine.rename_port(*id, after.name.as_str())?;
                self.engine.set_mtu(*id, after.mtu)?;
                self.engine.set_tx_queue_len(*id, after.tx_queue_len)?;
                self.engine.set_up(*id, after.up)?;
            }
            LinkKind::Bridge(id) => {
                self.check(after, Some(&before), None)?;
                self.engine.rename_bridge(*id, after.name.as_str())?;
                self.engine.set_bridge_up(*id, after.up)?;
            }
        }
        if let Some(link) = self.links.get_mut(&index) {
            link.settings = after.clone();
            link.has_default |= after.up;
        }
        self.note(Change::Link(index));
        Ok(())
    }

    /// Makes a port part of a bridge, of another one, or of none.
    ///
    /// # Errors
    /// If there are no such links, or they are of the wrong kind. Nothing is changed then.
    pub fn set_master(&mut self, index: u32, master: Option<u32>) -> Result<(), ControlError> {
        self.set_master_as(index, master, BridgePortOptions::default())
    }

    /// As [`set_master`](Control::set_master); a bridge that it was no part of has these options
    /// for it from the first frame on.
    ///
    /// # Errors
    /// As there.
    pub fn set_master_as(
        &mut self,
        index: u32,
        master: Option<u32>,
        options: BridgePortOptions,
    ) -> Result<(), ControlError> {
        let link = self.link(index)?;
        let name = link.settings.name.clone();
        let bridge = master.map(|master| self.master(master)).transpose()?;
        if link.master == master {
            return Ok(());
        }
        let port = link.port();
        let port = port.ok_or_else(|| ControlError::NoPort(name.clone()))?;
        let before = link.master;
        if before.is_some() {
            self.engine.leave(port)?;
        }
        if let Some(bridge) = bridge {
            self.engine.join_as(bridge, &[port], options)?;
        }
        let number = master.map_or(0, |master| self.free_number(master));
        if let Some(link) = self.links.get_mut(&index) {
            link.master = master;
            link.port_number = number;
        }
        if let Some(bridge) = before {
            let port = index;
            self.note(Change::Left { port, name, bridge });
        }
        self.note(Change::Link(index));
        if master.is_some() {
            self.note(Change::Bridge(index));
        }
        Ok(())
    }

    /// Changes the tree of a port. The caller tells those who watch.
    ///
    /// # Errors
    /// If there is no such port, or what `f` fails with. Nothing is changed then.
    pub fn edit_tree<T>(
        &mut self,
        index: u32,
        f: impl FnOnce(&mut Live<'_, (&Device<D::Tx>, Time)>) -> Result<T, SpecError>,
    ) -> Result<T, ControlError> {
        let port = self.port(index)?;
        self.generation += 1;
        let (result, no_root) = self.engine.edit_tree(port, |tree| {
            let had_root = !tree.spec().is_empty();
            let result = f(tree)?;
            Ok((result, had_root && tree.spec().is_empty()))
        })?;
        if no_root && let Some(link) = self.links.get_mut(&index) {
            link.has_default = link.settings.up;
        }
        Ok(result)
    }

    /// Makes the tree of a port what `spec` says; see [`Live::apply`]. Nobody is told of it.
    ///
    /// # Errors
    /// If there is no such port, or the tree does not fit it. Nothing is changed then.
    pub fn set_tree(&mut self, index: u32, spec: &TreeSpec) -> Result<(), ControlError> {
        if self.read_tree(index, |tree, _| tree.spec() == spec)? {
            return Ok(());
        }
        self.edit_tree(index, |tree| tree.apply(spec))
    }

    /// Shares out a port's transmit queues and what it receives in another way, has its tree run at
    /// all of its queues or at one, and limits what it may send. Its policy stays what it is.
    ///
    /// # Errors
    /// If there is no such port, or a map does not fit it. Nothing is changed then.
    pub fn set_options(&mut self, index: u32, after: &PortOptions) -> Result<(), ControlError> {
        let link = self.link(index)?;
        let LinkKind::Port { id, options, .. } = &link.kind else {
            return Err(ControlError::NoPort(link.settings.name.clone()));
        };
        let (id, before) = (*id, options.clone());
        if before.map != after.map {
            self.engine.set_queue_map(id, &after.map)?;
        }
        if before.steering != after.steering
            && let Err(error) = self.engine.set_steering(id, &after.steering)
        {
            self.engine.set_queue_map(id, &before.map)?;
            return Err(error.into());
        }
        if before.rate_group != after.rate_group {
            self.join_rate_group(id, after.rate_group.as_deref())?;
        }
        if before.security != after.security {
            self.engine.set_security(id, &after.security)?;
        }
        if before.parallel != after.parallel {
            self.generation += 1;
            self.engine.set_parallel(id, after.parallel)?;
        }
        if let Some(link) = self.links.get_mut(&index)
            && let LinkKind::Port { options, .. } = &mut link.kind
        {
            options.map = after.map.clone();
            options.steering = after.steering.clone();
            options.security = after.security.clone();
            options.parallel = after.parallel;
            options.rate_group.clone_from(&after.rate_group);
        }
        Ok(())
    }

    /// The next handle for a qdisc of a port that is given none: of the numbers from 8001 to fffe,
    /// each is chosen once in this engine before one is chosen again, as in the kernel
    /// (`qdisc_alloc_handle`). [`Handle::NONE`] if the port uses all of them.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn choose_handle(&mut self, index: u32) -> Result<Handle, ControlError> {
        const NUMBERS: std::ops::Range<u16> = 0x8001..u16::MAX;
        let mut chosen = self.chosen;
        let handle = self.read_tree(index, |tree, _| {
            let free = |handle: &Handle| tree.spec().node(*handle).is_none();
            let next = std::iter::repeat_with(|| {
                chosen = if NUMBERS.contains(&(chosen + 1)) {
                    chosen + 1
                } else {
                    NUMBERS.start
                };
                Handle::new(chosen, 0)
            });
            next.take(NUMBERS.len()).find(free).unwrap_or(Handle::NONE)
        })?;
        self.chosen = chosen;
        Ok(handle)
    }

    /// Reads the tree of a port. No queue is taken from its owner.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn read_tree<T>(
        &self,
        index: u32,
        f: impl FnOnce(&DeviceTree, &[softnet::qdisc::QdiscStats]) -> T,
    ) -> Result<T, ControlError> {
        Ok(self.engine.read_tree(self.port(index)?, f)?)
    }

    /// What happened to ports by themselves, by link. To be called every now and then.
    pub fn take_events(&mut self) -> Vec<(u32, PortEvent)> {
        let mut events = Vec::new();
        for event in self.engine.take_events() {
            let (PortEvent::Gone(id) | PortEvent::Link(id, _)) = event;
            let mut links = self.links.values_mut();
            let Some(link) = links.find(|link| link.port() == Some(id)) else {
                continue;
            };
            if let PortEvent::Link(_, state) = event {
                link.settings.mtu = state.mtu.unwrap_or(link.settings.mtu);
            }
            let index = link.index;
            events.push((index, event));
            self.note(Change::Link(index));
        }
        events
    }

    /// The engine's name of a port.
    ///
    /// # Errors
    /// If there is no link of this number, or it is a bridge.
    pub fn port(&self, index: u32) -> Result<PortId, ControlError> {
        let link = self.link(index)?;
        let named = || ControlError::NoPort(link.settings.name.clone());
        link.port().ok_or_else(named)
    }

    /// The engine's name of a bridge.
    fn master(&self, index: u32) -> Result<BridgeId, ControlError> {
        let link = self.link(index)?;
        let named = || ControlError::NoBridge(link.settings.name.clone());
        link.bridge().ok_or_else(named)
    }

    fn insert(&mut self, settings: Settings, queues: usize, kind: LinkKind<D::Spec>) -> u32 {
        self.last += 1;
        let index = self.last;
        let link = Link {
            index,
            has_default: settings.up,
            settings,
            queues,
            open: true,
            kind,
            master: None,
            port_number: 0,
        };
        self.links.insert(index, link);
        self.note(Change::Link(index));
        index
    }

    /// The smallest number that no port of a bridge has (`find_portno`).
    fn free_number(&self, master: u32) -> u16 {
        let members = self.links.values();
        let members = members.filter(|link| link.master == Some(master));
        let taken: BTreeSet<u16> = members.map(|link| link.port_number).collect();
        // There are fewer ports than numbers.
        (1..=u16::MAX).find(|n| !taken.contains(n)).unwrap_or(0)
    }

    fn note(&mut self, change: Change) {
        /// Changes kept for those who watch.
        const KEPT: usize = 4096;
        // No dump of links shows entries.
        if !matches!(change, Change::Fdb { .. }) {
            self.generation += 1;
        }
        if self.changes.len() < KEPT && self.changes.last() != Some(&change) {
            self.changes.push(change);
        }
    }

    /// Smallest and largest MTU of a port with this driver; of a bridge without one.
    pub fn mtus(&self, spec: Option<&D::Spec>) -> (u32, u32) {
        /// Those of the kernel's bridges.
        const BRIDGE: (u32, u32) = (68, 65_535);
        spec.map_or(BRIDGE, |spec| self.devices.mtus(spec))
    }

    /// Checks settings of a link, which has others now if it is there already.
    fn check(
        &self,
        settings: &Settings,
        before: Option<&Settings>,
        spec: Option<&D::Spec>,
    ) -> Result<(), ControlError> {
        if !settings.has_valid_name() {
            return Err(ControlError::BadName(settings.name.clone()));
        }
        let renamed = before.is_none_or(|before| before.name != settings.name);
        if renamed && self.link_named(&settings.name).is_ok() {
            return Err(ControlError::Exists(settings.name.clone()));
        }
        if settings.address.is_multicast() || settings.address.0 == [0; 6] {
            return Err(ControlError::BadAddress);
        }
        let (least, most) = self.mtus(spec);
        if settings.mtu < least {
            return Err(ControlError::MtuTooSmall);
        }
        if settings.mtu > most {
            return Err(ControlError::MtuTooLarge);
        }
        Ok(())
    }
}

/// A random unicast address of the locally administered kind, as the kernel would choose.
fn random_address() -> EthernetAddress {
    // The standard library's hash keys are random for each process and differ for each state.
    let random = RandomState::new().hash_one(());
    let [a, b, c, d, e, f, ..] = random.to_ne_bytes();
    EthernetAddress([(a & 0xfc) | 0x02, b, c, d, e, f])
}

#[cfg(all(test, not(miri)))]
mod tests;
