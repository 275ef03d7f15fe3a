//! Groups of ports that share a rate each way.

use std::collections::BTreeMap;

use softnet_tc::rate::{GroupSpec, RateGroup};

use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use super::state::{RateLimits, State};
use crate::rx::Command;

impl<D: Devices> Engine<D> {
    /// The groups, by name.
    pub fn rate_groups(&self) -> BTreeMap<String, GroupSpec> {
        let state = self.state();
        let groups = state.rate_groups.iter();
        groups
            .map(|(name, (spec, _))| (name.clone(), *spec))
            .collect()
    }

    /// Adds a group, or gives it other rates: for all of its ports at one moment. Ports are put
    /// into it by [their options](super::PortOptions::rate_group).
    ///
    /// # Errors
    /// If a driver, a qdisc or an action calls this.
    pub fn set_rate_group(&self, name: &str, spec: GroupSpec) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let now = state.clock.now();
        if let Some((known, limits)) = state.rate_groups.get_mut(name) {
            if *known == spec {
                return Ok(());
            }
            *known = spec;
            limits.to.set(spec, now);
            limits.from.set(spec, now);
            // Those that wait ask anew.
            for port in state.group_ports(name) {
                state.limit(port);
            }
            return Ok(());
        }
        let limits = RateLimits {
            to: RateGroup::new(spec),
            from: RateGroup::new(spec),
        };
        state.rate_groups.insert(name.to_owned(), (spec, limits));
        Ok(())
    }

    /// Removes a group.
    ///
    /// # Errors
    /// If there is none of this name, or a port is in it.
    pub fn delete_rate_group(&self, name: &str) -> Result<(), EngineError> {
        let mut state = self.control()?;
        if !state.group_ports(name).is_empty() {
            return Err(EngineError::GroupInUse(name.to_owned()));
        }
        let gone = state.rate_groups.remove(name);
        gone.map(drop)
            .ok_or_else(|| EngineError::NoGroup(name.to_owned()))
    }
}

impl<D: Devices> State<D> {
    /// The numbers of the ports in a group.
    fn group_ports(&self, name: &str) -> Vec<u16> {
        let links = self.links.values().filter(|link| {
            let options = link.options();
            options.is_some_and(|options| options.rate_group.as_deref() == Some(name))
        });
        links.map(|link| link.number).collect()
    }

    /// The limits of a group that a port names, if it names one.
    pub(super) fn limits(&self, name: Option<&str>) -> Result<Option<&RateLimits>, EngineError> {
        let limits = name.map(|name| {
            let group = self.rate_groups.get(name);
            let limits = group.map(|(_, limits)| limits);
            limits.ok_or_else(|| EngineError::NoGroup(name.to_owned()))
        });
        limits.transpose()
    }

    /// Limits what a port sends and what is received from it to what its group says, or no more.
    pub(super) fn limit(&mut self, number: u16) {
        let options = self.link_at(number).and_then(|link| link.options());
        let group = options.and_then(|options| options.rate_group.as_ref());
        let limits = group.and_then(|name| self.rate_groups.get(name));
        let limits = limits.map(|(_, limits)| limits.clone());
        let clock = self.clock.clone();
        let port = self.slot_mut(number);
        let to = limits.as_ref().map(|limits| limits.to.clone());
        port.tree.on((&*port.device, &clock)).set_group(to);
        self.sync();
        self.tell_napis(number, |napi| {
            let limit = limits.as_ref().map(|limits| Box::new(limits.from.join()));
            Command::Limit(napi, limit)
        });
    }
}
