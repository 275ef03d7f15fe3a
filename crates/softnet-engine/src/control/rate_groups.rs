//! Groups of ports that share a rate each way.

use std::collections::BTreeMap;

use softnet_tc::rate::{GroupSpec, RateGroup};

use super::{Control, ControlError, Devices, LinkKind};
use crate::RateLimits;
use crate::engine::PortId;

/// The groups, by name: what they let pass, and the limits that their ports have.
#[derive(Debug, Default)]
pub(super) struct RateGroups(BTreeMap<String, (GroupSpec, RateLimits)>);

impl RateGroups {
    pub(super) fn limits(&self, name: &str) -> Option<&RateLimits> {
        self.0.get(name).map(|(_, limits)| limits)
    }
}

impl<D: Devices> Control<D> {
    /// The groups, by name.
    pub fn rate_groups(&self) -> impl Iterator<Item = (&str, &GroupSpec)> {
        let groups = self.rate_groups.0.iter();
        groups.map(|(name, (spec, _))| (name.as_str(), spec))
    }

    /// Adds a group, or gives it other rates: for all of its ports at one moment.
    ///
    /// # Errors
    /// If a port cannot be told; the rates are what is asked for all the same.
    pub fn set_rate_group(&mut self, name: &str, spec: GroupSpec) -> Result<(), ControlError> {
        let now = self.engine.clock().now();
        if let Some((known, limits)) = self.rate_groups.0.get_mut(name) {
            if *known == spec {
                return Ok(());
            }
            *known = spec;
            limits.to.set(spec, now);
            limits.from.set(spec, now);
            // Those that wait ask anew.
            let limits = limits.clone();
            for port in self.group_ports(name) {
                self.engine.set_rate_group(port, Some(&limits))?;
            }
            return Ok(());
        }
        let limits = RateLimits {
            to: RateGroup::new(spec),
            from: RateGroup::new(spec),
        };
        self.rate_groups.0.insert(name.to_owned(), (spec, limits));
        Ok(())
    }

    /// Removes a group.
    ///
    /// # Errors
    /// If there is none of this name, or a port is in it.
    pub fn delete_rate_group(&mut self, name: &str) -> Result<(), ControlError> {
        if !self.group_ports(name).is_empty() {
            return Err(ControlError::GroupInUse(name.to_owned()));
        }
        let gone = self.rate_groups.0.remove(name);
        gone.map(drop)
            .ok_or_else(|| ControlError::NoGroup(name.to_owned()))
    }

    fn group_ports(&self, name: &str) -> Vec<PortId> {
        let ports = self.links.values().filter_map(|link| match &link.kind {
            LinkKind::Port { id, options, .. } => {
                (options.rate_group.as_deref() == Some(name)).then_some(*id)
            }
            LinkKind::Bridge(_) => None,
        });
        ports.collect()
    }

    /// Puts a port into the group of its options.
    pub(super) fn join_rate_group(
        &self,
        port: PortId,
        name: Option<&str>,
    ) -> Result<(), ControlError> {
        Ok(self.engine.set_rate_group(port, self.group_limits(name)?)?)
    }

    /// The limits of a group that a port names, if it names one.
    pub(super) fn group_limits(
        &self,
        name: Option<&str>,
    ) -> Result<Option<&RateLimits>, ControlError> {
        let limits = name.map(|name| {
            let limits = self.rate_groups.limits(name);
            limits.ok_or_else(|| ControlError::NoGroup(name.to_owned()))
        });
        limits.transpose()
    }
}
