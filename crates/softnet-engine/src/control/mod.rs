//! The control object: an engine's ports and bridges as links with numbers and names, which a
//! configuration file, its reload and rtnetlink add, change and remove while packets flow.
//!
//! One caller at a time (programs keep it in a mutex). Workers never wait for it: it changes what
//! they use by the [`Engine`]'s calls. Each change takes effect as a whole or not at all.

mod apply;
mod bridge;
mod changes;
mod devices;
mod error;
mod link;
mod ports;
mod rate_groups;
mod spec;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

pub use apply::{ApplyError, Missing};
pub use changes::Change;
pub use devices::{Devices, Opened};
pub use error::ControlError;
pub use link::{Action, Link, LinkKind};
pub use ports::{DeviceOf, OpenPort};
pub use spec::{
    ALIAS_MAX, ActionSpec, BridgeSpec, MemberSpec, NAME_MAX, PortOptions, PortSpec, Settings, Spec,
};

use crate::engine::{BridgeId, Engine, PortId};
use crate::forward::BridgePortOptions;
use rate_groups::RateGroups;
use softnet::wire::EthernetAddress;

/// An engine with its links.
#[derive(Debug)]
pub struct Control<D: Devices> {
    engine: Engine<D::Rx, D::Tx>,
    devices: D,
    /// By number.
    links: BTreeMap<u32, Link<D::Spec>>,
    /// Numbers of all links, by name.
    names: HashMap<String, u32>,
    /// Numbers of the links that are ports.
    ports: HashMap<PortId, u32>,
    rate_groups: RateGroups,
    /// The number of the last link.
    last: u32,
    /// The last handle that was chosen for a qdisc.
    chosen: u16,
    generation: u64,
    changes: VecDeque<Change>,
    /// Changes were lost since [`take_changes`](Control::take_changes) was called.
    overrun: bool,
}

impl<D: Devices> Control<D> {
    /// Controls an engine that has no ports and no bridges yet.
    pub fn new(engine: Engine<D::Rx, D::Tx>, devices: D) -> Control<D> {
        Control {
            engine,
            devices,
            links: BTreeMap::new(),
            names: HashMap::new(),
            ports: HashMap::new(),
            rate_groups: RateGroups::default(),
            last: 0,
            chosen: 0x8000,
            generation: 0,
            changes: VecDeque::new(),
            overrun: false,
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

    /// Has the workers told of several changes at once, when `f` returns. See [`Engine::hold`].
    pub fn at_once<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        self.hold();
        let result = f(self);
        self.release();
        result
    }

    /// As [`at_once`](Control::at_once), of the changes until [`release`](Control::release).
    pub fn hold(&mut self) {
        self.engine.hold();
    }

    /// Ends [`hold`](Control::hold).
    pub fn release(&mut self) {
        self.engine.release();
    }

    /// How devices are opened.
    pub fn devices(&self) -> &D {
        &self.devices
    }

    /// Differs after a link has come or gone, as the kernel's `dev_base_seq`: a dump of links in
    /// parts tells by it whether it is consistent.
    pub fn generation(&self) -> u64 {
        self.generation
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
        let known = self.names.get(name);
        let known = known.and_then(|index| self.links.get(index));
        known.ok_or_else(|| ControlError::NoLinkNamed(name.to_owned()))
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
        Ok(self.insert(settings, LinkKind::Bridge(id)))
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
        self.names.remove(&link.settings.name);
        if let Some(port) = link.port() {
            self.ports.remove(&port);
        }
        self.generation += 1;
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

    /// Gives a link other settings, all or none; it keeps its address where they have none. A
    /// device that is gone is opened with them.
    ///
    /// # Errors
    /// If one of them is not valid, the name is taken, or the device cannot follow. Nothing is
    /// changed then.
    pub fn change(&mut self, index: u32, after: &Settings) -> Result<(), ControlError> {
        let link = self.link(index)?;
        let before = link.settings.clone();
        let after = &Settings {
            address: after.address.or(before.address),
            ..after.clone()
        };
        if before == *after {
            return Ok(());
        }
        match &link.kind {
            LinkKind::Port { options, id, .. } => {
                let device = &options.device;
                self.check(after, Some(&before), Some(device))?;
                // What bears the name of a device that is gone may be another's.
                if link.open {
                    let changed = self.devices.change(device, &before, after);
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
        if self.names.remove(&before.name).is_some() {
            self.names.insert(after.name.clone(), index);
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

    fn insert(&mut self, mut settings: Settings, kind: LinkKind<D::Spec>) -> u32 {
        settings.address.get_or_insert_with(random_address);
        self.last += 1;
        let index = self.last;
        let link = Link {
            index,
            has_default: settings.up,
            settings,
            open: true,
            kind,
            master: None,
            port_number: 0,
        };
        self.names.insert(link.settings.name.clone(), index);
        self.ports.extend(link.port().map(|port| (port, index)));
        self.links.insert(index, link);
        self.generation += 1;
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

    /// Smallest and largest MTU of a port with this driver; of a bridge without one.
    pub fn mtus(&self, device: Option<&D::Spec>) -> (u32, u32) {
        /// Those of the kernel's bridges.
        const BRIDGE: (u32, u32) = (68, 65_535);
        device.map_or(BRIDGE, |device| self.devices.mtus(device))
    }

    /// Checks settings of a link, which has others now if it is there already.
    fn check(
        &self,
        settings: &Settings,
        before: Option<&Settings>,
        device: Option<&D::Spec>,
    ) -> Result<(), ControlError> {
        if !settings.has_valid_name() {
            return Err(ControlError::BadName(settings.name.clone()));
        }
        let renamed = before.is_none_or(|before| before.name != settings.name);
        if renamed && self.link_named(&settings.name).is_ok() {
            return Err(ControlError::Exists(settings.name.clone()));
        }
        let bad = |address: EthernetAddress| address.is_multicast() || address.is_zero();
        if settings.address.is_some_and(bad) {
            return Err(ControlError::BadAddress);
        }
        let (least, most) = self.mtus(device);
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
mod apply_tests;
#[cfg(all(test, not(miri)))]
mod tests;
