//! Links: ports and bridges as `ip link` shows them, their settings, and their end.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::change::Change;
use super::devices::Devices;
use super::error::EngineError;
use super::info::{LinkInfo, LinkKind, Links};
use super::life::Engine;
use super::spec::Settings;
use super::state::{PortOf, State};
use crate::forward::{Role, Virtual};
use softnet::tx::{DeviceStats, Features};
use softnet::wire::EthernetAddress;

/// Smallest and largest MTU of a bridge, in bytes, as of the kernel's.
pub const BRIDGE_MTUS: (u32, u32) = (68, 65_535);

impl<D: Devices> Engine<D> {
    /// Number that differs after a link has come or gone, as the kernel's `dev_base_seq`: a dump of
    /// links in parts tells by it whether it is consistent.
    pub fn generation(&self) -> u64 {
        self.state().generation
    }

    /// The links, by number, as they are now.
    pub fn links(&self) -> Links<D::Spec> {
        self.state().links.clone()
    }

    /// A link as it is now.
    ///
    /// # Errors
    /// If there is none of this number.
    pub fn link(&self, index: u32) -> Result<Arc<LinkInfo<D::Spec>>, EngineError> {
        self.state().link(index).cloned()
    }

    /// The link of a name as it is now.
    ///
    /// # Errors
    /// If there is none.
    pub fn link_named(&self, name: &str) -> Result<Arc<LinkInfo<D::Spec>>, EngineError> {
        let state = self.state();
        let link = state
            .names
            .get(name)
            .and_then(|index| state.links.get(index));
        link.cloned()
            .ok_or_else(|| EngineError::NoLinkNamed(name.to_owned()))
    }

    /// Smallest and largest MTU of a port with this driver; of a bridge without one.
    pub fn mtus(&self, device: Option<&D::Spec>) -> (u32, u32) {
        device.map_or(BRIDGE_MTUS, |device| self.devices.mtus(device))
    }

    /// Removes a link, while packets flow. Its name is free when this returns; other links' actions
    /// that send there then send nowhere: what they redirect is dropped. Returns what it counted.
    ///
    /// A port's queues are closed, its bridge has forgotten the addresses behind it, and what it
    /// counted is part of [`EngineStats::removed`](super::EngineStats); packets that it holds are
    /// dropped. A bridge's ports stay; what they receive is dropped.
    ///
    /// # Errors
    /// If there is none of this number.
    pub fn delete(&self, index: u32) -> Result<DeviceStats, EngineError> {
        let counted = self.delete_all(&[index])?;
        Ok(counted.into_iter().next().unwrap_or_default())
    }

    /// As [`delete`](Engine::delete), for many links: the workers are told, and waited for, as
    /// often as for one, and devices are closed at once. Returns what each counted.
    ///
    /// # Errors
    /// If there is none of one of the numbers; nothing is changed then.
    pub fn delete_all(&self, indices: &[u32]) -> Result<Vec<DeviceStats>, EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let with_vlans = state.with_vlans(indices);
        let indices = &with_vlans[..];
        let mut links = Vec::with_capacity(indices.len());
        for (place, &index) in indices.iter().enumerate() {
            let link = state.link(index)?;
            if let Ok(port) = state.port(index)
                && port.role == Role::Loopback
            {
                return Err(EngineError::Stays(link.settings.name.clone()));
            }
            if indices[..place].contains(&index) {
                return Err(EngineError::NoLink(index));
            }
            links.push(link.clone());
        }
        let ports = links.iter().filter(|link| !link.is_bridge());
        let numbers: Vec<u16> = ports.map(|link| link.number).collect();
        let mut counted = state.remove_ports(&numbers, &self.devices)?.into_iter();
        let counted = links.iter().map(|link| match link.is_bridge() {
            true => {
                state.remove_bridge(link.index);
                DeviceStats::default()
            }
            false => counted.next().unwrap_or_default(),
        });
        let counted = counted.collect();
        for link in links {
            let (port, name) = (link.index, link.settings.name.clone());
            if let Some(bridge) = link.master {
                state.changes.note(Change::Left { port, name, bridge });
            }
            let name = link.settings.name.clone();
            state.actions.link_gone(port);
            state.changes.note(Change::LinkGone(port, name));
        }
        Ok(counted)
    }

    /// Changes settings of a link, all or none; it keeps its address where `f` leaves none. When
    /// this returns, every worker knows. Control path: may block for the kernel to change an
    /// interface.
    ///
    /// A port or bridge that is down neither forwards nor is forwarded to; what waits in a port's
    /// queues is dropped then, and so is what is sent there.
    ///
    /// `f` runs under the engine's lock: it must not call the engine, and other calls wait for it.
    ///
    /// # Errors
    /// If one of them is not valid, the name is taken, or the device cannot follow. Nothing is
    /// changed then.
    pub fn change(&self, index: u32, f: impl FnOnce(&mut Settings)) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let link = state.link(index)?.clone();
        let before = &link.settings;
        let mut after = before.clone();
        f(&mut after);
        after.address = after.address.or(before.address);
        if *before == after {
            return Ok(());
        }
        self.check(state, &after, Some(before), link.device())?;
        let is_foreign = link
            .device()
            .is_some_and(|device| self.devices.is_foreign(device));
        if is_foreign && (before.mtu, before.address) != (after.mtu, after.address) {
            return Err(EngineError::Foreign(before.name.clone()));
        }
        // What bears the name of a device that is gone may be another's.
        if let Some(device) = link.device().filter(|_| link.open) {
            let changed = self.devices.change(device, before, &after);
            changed.map_err(|source| EngineError::device(before, source))?;
        }
        if !link.is_bridge() {
            let clock = state.clock.clone();
            let port = state.slot_mut(link.number);
            if before.tx_queue_len != after.tx_queue_len {
                let mut tree = port.tree.on((&*port.device, &clock));
                tree.set_tx_queue_len(after.tx_queue_len)?;
            }
            if before.name != after.name {
                port.device.rename(after.name.clone());
            }
            if before.mtu != after.mtu {
                port.set_features(Features {
                    mtu: after.mtu,
                    ..port.features
                })?;
            }
        }
        if before.name != after.name {
            state.names.remove(&before.name);
            state.names.insert(after.name.clone(), index);
            for vlan in state.with_vlans(&[index]).into_iter().skip(1) {
                let number = link.number;
                let is_child = |p: &PortOf<D>| matches!(p.role, Role::Vlan(of, _) if of == number);
                if state.port(vlan).is_ok_and(is_child)
                    && let Some(options) = state.known_mut(vlan).options_mut()
                {
                    self.devices.rename_parent(&mut options.device, &after.name);
                }
            }
            state.follow_name(index, &after.name);
        }
        let up = after.up;
        let known = state.known_mut(index);
        known.has_default |= up;
        known.settings = after;
        if before.up != up {
            state.follow_up(&link, up)?;
        }
        state.changes.note(Change::Link(index));
        Ok(())
    }

    /// Checks settings of a link, which has others now if it is there already.
    pub(super) fn check(
        &self,
        state: &State<D>,
        settings: &Settings,
        before: Option<&Settings>,
        device: Option<&D::Spec>,
    ) -> Result<(), EngineError> {
        if Settings::wrong_name(&settings.name).is_some() {
            return Err(EngineError::BadName(settings.name.clone()));
        }
        let renamed = before.is_none_or(|before| before.name != settings.name);
        if renamed && state.names.contains_key(&settings.name) {
            return Err(EngineError::Exists(settings.name.clone()));
        }
        let link = device.and_then(|device| self.devices.virtual_link(device));
        let bad = |address: EthernetAddress| match link {
            Some(Virtual::Loopback) => address.is_multicast(),
            _ => address.is_multicast() || address.is_zero(),
        };
        if settings.address.is_some_and(bad) {
            return Err(EngineError::BadAddress);
        }
        let (least, most) = self.mtus(device);
        if settings.mtu < least {
            return Err(EngineError::MtuTooSmall);
        }
        if settings.mtu > most {
            return Err(EngineError::MtuTooLarge);
        }
        Ok(())
    }
}

impl<D: Devices> State<D> {
    /// Enters a link that is new, and tells watchers of it.
    pub(super) fn insert(
        &mut self,
        mut settings: Settings,
        kind: LinkKind<D::Spec>,
        (number, queues): (u16, usize),
        open: bool,
    ) -> u32 {
        settings.address.get_or_insert_with(random_address);
        self.last += 1;
        let index = self.last;
        self.names.insert(settings.name.clone(), index);
        let link = LinkInfo {
            index,
            has_default: settings.up,
            settings,
            open,
            kind,
            master: None,
            port_number: 0,
            number,
            queues,
        };
        Arc::make_mut(&mut self.links).insert(index, Arc::new(link));
        self.generation += 1;
        self.changes.note(Change::Link(index));
        index
    }

    /// Strikes out a link.
    pub(super) fn strike(&mut self, index: u32) {
        if let Some(link) = Arc::make_mut(&mut self.links).remove(&index) {
            self.names.remove(&link.settings.name);
            self.indevs.link_gone(index);
            self.generation += 1;
        }
    }

    /// Has workers follow a link that was taken up or down.
    fn follow_up(&mut self, link: &LinkInfo<D::Spec>, up: bool) -> Result<(), EngineError> {
        if link.is_bridge() {
            self.publish_soon();
            return Ok(());
        }
        let device = self.slot(link.number).device.clone();
        if up {
            if link.open {
                device.activate()?;
            }
            self.publish_soon();
        } else {
            self.publish_and_sync();
            device.deactivate()?;
            self.forget_learnt(link.number);
        }
        Ok(())
    }
}

/// A random unicast address of the locally administered kind, as the kernel would choose.
pub(super) fn random_address() -> EthernetAddress {
    // The standard library's hash keys are random for each process and differ for each state.
    let random = RandomState::new().hash_one(());
    let [a, b, c, d, e, f, ..] = random.to_ne_bytes();
    EthernetAddress([(a & 0xfc) | 0x02, b, c, d, e, f])
}
