//! Makes an engine what a [`Spec`] says, by as few changes as it takes, and reads it back.
//!
//! Devices come first, since they are what can fail: all that are new are opened while those that
//! are there stay; then those that are in conflict with another are exchanged one by one. Only then
//! the engine is changed, and what the specification does not have is removed last, so that
//! whatever is refused before can be undone.

use std::collections::HashSet;

use super::devices::{DeviceOf, Devices};
use super::error::EngineError;
use super::info::LinkInfo;
use super::life::{Engine, check_caller};
use super::links::random_address;
use super::spec::{
    ActionSpec, BridgeSpec, FdbSpec, MemberSpec, PortSpec, Settings, Spec, vlans_beside,
};
use crate::forward::Virtual;
use softnet_tc::{Indev, QdiscSpec, TreeSpec};

/// A specification was not applied.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be {step}")]
pub struct ApplyError {
    /// The place of the port in the specification, if it is about one.
    pub port: Option<usize>,
    /// The object: `port "a"`.
    pub what: Box<str>,
    /// The step that failed: `opened`.
    pub step: &'static str,
    /// The reason.
    pub source: EngineError,
    /// The next port whose device cannot be opened.
    pub next: Option<Box<ApplyError>>,
    /// The reason why not all of what was before came back.
    pub lost: Option<Box<ApplyError>>,
}

impl ApplyError {
    fn new(what: String, step: &'static str) -> impl FnOnce(EngineError) -> ApplyError {
        move |source| ApplyError {
            port: None,
            what: what.into(),
            step,
            source,
            next: None,
            lost: None,
        }
    }
}

/// A device that was opened for each port; none for one that has its own, or is missing.
type Devs<D> = Vec<Option<DeviceOf<D>>>;
/// Ports that were added without their devices, by number, and the reasons.
pub type Missing = Vec<(u32, EngineError)>;

/// Which link becomes which port and bridge; the others are removed.
struct Plan<S> {
    /// There is an address in each port's settings: the device keeps that of the link when it is
    /// made again, so that its neighbours' tables stay right.
    spec: Spec<S>,
    ports: Vec<Option<u32>>,
    bridges: Vec<Option<u32>>,
}

impl<D: Devices> Engine<D> {
    /// All links as they are, in the order in which they were added. It stays as it is when they
    /// get other names.
    ///
    /// # Errors
    /// If the engine does not know a link.
    pub fn spec(&self) -> Result<Spec<D::Spec>, EngineError> {
        let mut spec = Spec {
            rate_groups: self.rate_groups(),
            ..Spec::default()
        };
        for number in self.blocks() {
            let mut list = self.read_block(number, |block| block.list().clone())?;
            list.map_indevs(Indev::apart);
            spec.blocks.insert(number, list);
        }
        let mut stations = self.fixed_stations()?;
        let links = self.links();
        for link in links.values() {
            let settings = link.settings.clone();
            if self.is_loopback(link) {
                continue;
            }
            let Some(options) = link.options() else {
                let bridge = self.bridge(link.index)?;
                spec.bridges.push(BridgeSpec {
                    settings,
                    options: bridge.options,
                    vlans: vlans_beside(&bridge.options, &bridge.vlans),
                });
                continue;
            };
            let name = |index: u32| Some(links.get(&index)?.settings.name.clone());
            let actions = link.actions().iter().filter_map(|action| {
                Some(ActionSpec {
                    mode: action.mode,
                    dir: action.dir,
                    to: name(action.to)?,
                })
            });
            let mut tree = self.read_tree(link.index, |tree, _| tree.spec().clone())?;
            tree.map_indevs(Indev::apart);
            let mut member = MemberSpec::default();
            if let Some(master) = link.master {
                let known = self.bridge_port(link.index)?;
                member = MemberSpec {
                    options: known.options,
                    vlans: vlans_beside(&self.bridge(master)?.options, &known.vlans),
                    stations: stations.remove(&link.index).unwrap_or_default(),
                };
            }
            spec.ports.push(PortSpec {
                settings,
                options: options.clone(),
                qdisc: match tree == TreeSpec::new() {
                    true => QdiscSpec::Default,
                    false => QdiscSpec::Tree(tree),
                },
                master: link.master.and_then(name),
                member,
                actions: actions.collect(),
            });
        }
        Ok(spec)
    }

    /// Adds, changes and removes ports, bridges and rate groups, all of it or nothing. What is as
    /// the specification says keeps all it has; so does a port that has another name in it, but
    /// the same device. A new port whose device cannot be opened is added without it, unless
    /// `strict`; those are returned.
    ///
    /// # Errors
    /// What could not be done first; of devices that cannot be opened, all.
    pub fn apply(&self, spec: &Spec<D::Spec>, strict: bool) -> Result<Missing, ApplyError> {
        check_caller().map_err(ApplyError::new("a specification".into(), "applied"))?;
        let plan = Plan::of(spec, self);
        let read = ApplyError::new("the running state".into(), "read");
        let before = Plan::before(self).map_err(read)?;
        let (mut closed, mut missing) = (Vec::new(), Vec::new());
        let skip = (!strict).then_some(&mut missing);
        let opened = plan.open(self, &mut closed, skip);
        // What is undone is not told to workers before.
        self.at_once(|engine| {
            let done = opened.and_then(|devices| plan.commit(engine, devices));
            done.map_err(|mut error| {
                error.lost = before.restore(engine, &closed).err().map(Box::new);
                error
            })
        })?;
        let index = |(place, why): (usize, _)| {
            let name = &spec.ports[place].settings.name;
            Some((self.link_named(name).ok()?.index, why))
        };
        Ok(missing.into_iter().filter_map(index).collect())
    }
}

impl<D: Devices> Engine<D> {
    /// A link is `lo`, which is part of no specification.
    fn is_loopback(&self, link: &LinkInfo<D::Spec>) -> bool {
        let device = link.device();
        let link = device.and_then(|device| self.devices.virtual_link(device));
        link == Some(Virtual::Loopback)
    }
}

impl<S: Clone + PartialEq> Plan<S> {
    /// A link becomes the port that has its device, else the one that has its name.
    fn of<D: Devices<Spec = S>>(spec: &Spec<S>, engine: &Engine<D>) -> Plan<S> {
        let mut spec = spec.clone();
        let mut ports = vec![None; spec.ports.len()];
        let known = engine.links();
        let mut links: Vec<_> = known.values().collect();
        for by_name in [false, true] {
            let targets = spec.ports.iter_mut().zip(&mut ports);
            for (port, target) in targets.filter(|(_, target)| target.is_none()) {
                let place = links.iter().position(|link| match link.device() {
                    Some(_) if by_name => link.settings.name == port.settings.name,
                    Some(device) => engine.devices().conflict(device, &port.options.device),
                    None => false,
                });
                if let Some(link) = place.map(|place| links.remove(place)) {
                    *target = Some(link.index);
                    port.settings.address = port.settings.address.or(link.settings.address);
                    let stays = link.device() == Some(&port.options.device);
                    if stays && engine.devices().is_foreign(&port.options.device) {
                        // The interface's, which the link follows.
                        port.settings.mtu = link.settings.mtu;
                    }
                }
            }
        }
        for port in &mut spec.ports {
            port.settings.address.get_or_insert_with(random_address);
        }
        let bridges = spec.bridges.iter().map(|bridge| {
            let link = engine.link_named(&bridge.settings.name).ok()?;
            link.is_bridge().then_some(link.index)
        });
        Plan {
            bridges: bridges.collect(),
            spec,
            ports,
        }
    }

    /// Plan back to what there is, for after a failure.
    fn before<D: Devices<Spec = S>>(engine: &Engine<D>) -> Result<Plan<S>, EngineError> {
        let links = engine.links();
        let (bridges, ports) = links
            .values()
            .filter(|link| !engine.is_loopback(link))
            .partition::<Vec<_>, _>(|link| link.is_bridge());
        let number = |link: &std::sync::Arc<LinkInfo<S>>| Some(link.index);
        Ok(Plan {
            spec: engine.spec()?,
            ports: ports.into_iter().map(number).collect(),
            bridges: bridges.into_iter().map(number).collect(),
        })
    }

    /// The ports with their places and links.
    fn ports(&self) -> impl Iterator<Item = (usize, &PortSpec<S>, Option<u32>)> {
        let ports = self.spec.ports.iter().zip(&self.ports).enumerate();
        ports.map(|(place, (port, &link))| (place, port, link))
    }

    fn failed(
        &self,
        place: usize,
        step: &'static str,
    ) -> impl FnOnce(EngineError) -> ApplyError + use<S> {
        let what = format!("port {:?}", self.spec.ports[place].settings.name);
        move |source| ApplyError {
            port: Some(place),
            ..ApplyError::new(what, step)(source)
        }
    }

    /// Opens the devices that are not there. `closed` are the links whose own device had to go;
    /// `missing` are new ports whose device cannot be opened, if that is no failure.
    fn open<D: Devices<Spec = S>>(
        &self,
        engine: &Engine<D>,
        closed: &mut Vec<u32>,
        mut missing: Option<&mut Vec<(usize, EngineError)>>,
    ) -> Result<Devs<D>, ApplyError> {
        let mut devices: Devs<D> = self.ports.iter().map(|_| None).collect();
        let mut failed = Vec::new();
        for in_the_way in [false, true] {
            for ((place, port, index), device) in self.ports().zip(&mut devices) {
                let to = &port.options;
                let link = index.and_then(|index| engine.link(index).ok());
                let options = link.as_ref().and_then(|link| link.options());
                let has_device = options.is_some_and(|options| {
                    options.device == to.device
                        && options.queues == to.queues
                        && options.policy == to.policy
                });
                let open = link.as_ref().filter(|link| link.open);
                let open = open.and_then(|link| link.device());
                let must_go = open.is_some_and(|open| engine.devices().conflict(open, &to.device));
                if has_device || device.is_some() || must_go != in_the_way {
                    continue;
                }
                if let Some(index) = index.filter(|_| in_the_way) {
                    closed.push(index);
                    let gone = engine.close_device(index);
                    gone.map_err(self.failed(place, "closed"))?;
                }
                match (engine.open(port), &mut missing, index) {
                    (Ok(opened), ..) => *device = Some(opened),
                    (Err(error), Some(missing), None) => missing.push((place, error)),
                    (Err(error), ..) => failed.push(self.failed(place, "opened")(error)),
                }
                if in_the_way && !failed.is_empty() {
                    // No other device has to go.
                    break;
                }
            }
            let failed = failed.drain(..).rev();
            let all = failed.reduce(|next, error| ApplyError {
                next: Some(Box::new(next)),
                ..error
            });
            if let Some(error) = all {
                return Err(error);
            }
        }
        Ok(devices)
    }

    /// Changes the engine. After a failure some of it may be done, and nothing is removed.
    fn commit<D: Devices<Spec = S>>(
        &self,
        engine: &Engine<D>,
        devices: Devs<D>,
    ) -> Result<(), ApplyError> {
        let Spec {
            ports,
            bridges,
            rate_groups,
            blocks,
        } = &self.spec;
        self.free_names(engine)?;
        // Filters follow links, and trees are compared with those of the plan by names.
        for (place, port, link) in self.ports() {
            if let Some(index) = link {
                let named = engine.change(index, |link| link.name.clone_from(&port.settings.name));
                named.map_err(self.failed(place, "changed"))?;
            }
        }
        for (name, &group) in rate_groups {
            let set = engine.set_rate_group(name, group);
            set.map_err(ApplyError::new(format!("rate group {name:?}"), "made"))?;
        }
        for (bridge, &link) in bridges.iter().zip(&self.bridges) {
            let what = format!("bridge {:?}", bridge.settings.name);
            let set = engine.set_bridge_spec(bridge, link);
            set.map_err(ApplyError::new(what, "made"))?;
        }
        let stations = engine.fixed_stations();
        let mut stations =
            stations.map_err(ApplyError::new("the running state".into(), "read"))?;
        let mut new = Vec::new();
        let mut places = Vec::new();
        for ((place, port, link), device) in self.ports().zip(devices) {
            match link {
                None => {
                    places.push(place);
                    new.push((port.clone(), device));
                }
                Some(index) => {
                    let known = stations.remove(&index).unwrap_or_default();
                    let changed = engine.change_port(index, port, device, &known);
                    changed.map_err(self.failed(place, "changed"))?;
                }
            }
        }
        let added = engine.add_opened(new);
        added.map_err(|(place, error)| self.failed(places[place], "opened")(error))?;
        for (place, port, _) in self.ports() {
            let link = engine
                .link_named(&port.settings.name)
                .map(|link| link.index);
            link.and_then(|index| engine.set_action_specs(index, &port.actions))
                .map_err(self.failed(place, "changed"))?;
        }
        for number in engine.blocks() {
            let list = blocks.get(&number).cloned().unwrap_or_default();
            let set = engine.set_block(number, &list);
            set.map_err(ApplyError::new(format!("block {number}"), "changed"))?;
        }
        let named = ports.iter().map(|port| &port.settings.name);
        let named = named.chain(bridges.iter().map(|bridge| &bridge.settings.name));
        let named: HashSet<&String> = named.collect();
        let links = engine.links();
        let surplus = links
            .values()
            .filter(|link| !named.contains(&link.settings.name) && !engine.is_loopback(link));
        let surplus: Vec<u32> = surplus.map(|link| link.index).collect();
        let failed = ApplyError::new("what is not in it".into(), "removed");
        engine.delete_all(&surplus).map_err(failed)?;
        for name in engine.rate_groups().into_keys() {
            if rate_groups.contains_key(&name) {
                continue;
            }
            let deleted = engine.delete_rate_group(&name);
            deleted.map_err(ApplyError::new(format!("rate group {name:?}"), "removed"))?;
        }
        Ok(())
    }

    /// Gives links whose names others are to have, or that are to have others, names of nobody.
    fn free_names<D: Devices<Spec = S>>(&self, engine: &Engine<D>) -> Result<(), ApplyError> {
        let ports = self
            .ports()
            .map(|(_, port, link)| (&port.settings.name, link));
        let bridges = self.spec.bridges.iter().zip(&self.bridges);
        let bridges = bridges.map(|(bridge, &link)| (&bridge.settings.name, link));
        for (name, link) in ports.chain(bridges) {
            let Ok(known) = engine.link_named(name) else {
                continue;
            };
            if Some(known.index) == link {
                continue;
            }
            let index = known.index;
            let mut names = (0_u32..).map(|n| format!("softnet~{n}"));
            let free = names.find(|name| engine.link_named(name).is_err());
            let renamed = engine.change(index, |link| link.name = free.unwrap_or_default());
            renamed.map_err(ApplyError::new(format!("link {name:?}"), "renamed"))?;
        }
        Ok(())
    }

    /// Makes all what it was. `closed` are links whose device was closed.
    fn restore<D: Devices<Spec = S>>(
        &self,
        engine: &Engine<D>,
        closed: &[u32],
    ) -> Result<(), ApplyError> {
        let devices = self.open(engine, &mut Vec::new(), None)?;
        for &index in closed {
            let is_open = engine.link(index).is_ok_and(|link| link.open);
            let reopened = match is_open {
                true => Ok(()),
                false => engine.reopen_device(index),
            };
            reopened.map_err(ApplyError::new(format!("link {index}"), "opened again"))?;
        }
        self.commit(engine, devices)
    }
}

impl<D: Devices> Engine<D> {
    /// Changes a port that is there, but for its actions. What does not differ is not touched.
    fn change_port(
        &self,
        index: u32,
        to: &PortSpec<D::Spec>,
        device: Option<DeviceOf<D>>,
        stations: &[FdbSpec],
    ) -> Result<(), EngineError> {
        let PortSpec {
            settings,
            options,
            qdisc,
            master,
            member,
            actions: _,
        } = to;
        let name = master.as_ref();
        let master = name.map(|name| self.link_named(name)).transpose()?;
        let master = master.map(|link| link.index);
        // A bridge that it leaves forgets what is behind it.
        let stays = self.link(index)?.master == master;
        if let Some(device) = device {
            if !stays {
                // No frame of the new device in the bridge of the old one.
                self.set_master(index, None)?;
            }
            self.exchange_device(index, to, device)?;
        }
        self.change(index, |known: &mut Settings| known.clone_from(settings))?;
        self.set_options(index, |known| known.clone_from(options))?;
        self.set_tree(index, &TreeSpec::from(qdisc.clone()))?;
        self.set_master_as(index, master, member.options)?;
        self.set_member(index, member, if stays { stations } else { &[] })
    }
}
