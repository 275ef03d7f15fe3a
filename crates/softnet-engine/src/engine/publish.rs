//! The view that workers forward by: made of the state, and handed to them when that has changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::devices::Devices;
use super::state::{PortOf, State};
use crate::forward::{Arrival, Entry, Forwarder, Joined, Member, Members, Role, VlanTag};
use crate::rx::{Command, View};
use softnet::mem::Pool;
use softnet::wire::EthernetAddress;

/// Part of a change that workers have to know.
pub(super) enum Publish {
    /// They do not forward by it.
    Nothing,
    /// They forward by it.
    Soon,
    /// They forward by it, and then a bridge forgets what was learnt in VLANs that its ports no
    /// longer have.
    Vlans(u32),
}

/// Changes that [`Engine::hold`](super::Engine::hold) keeps back.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Calls of it beyond those of [`release`](super::Engine::release).
    pub(super) depth: u32,
    /// The workers were not told of all that has changed.
    pub(super) stale: bool,
    /// They were told of what was kept back, but may not forward by it yet.
    pub(super) unsynced: bool,
    /// Bridges that have yet to forget what was learnt in VLANs that ports no longer have: once
    /// no worker learns there any more.
    pub(super) lost_vlans: BTreeSet<u32>,
    /// Times that workers were told.
    pub(super) published: u64,
}

impl<D: Devices> State<D> {
    /// Members of each bridge that is up, by which workers forward.
    /// Bridges know of groups what their ports and options are from now on; one that is down
    /// knows no port.
    fn members(&self) -> HashMap<u32, Arc<Members>> {
        let now = self.clock.now();
        let is_up = |index: &u32| self.links.get(index).is_some_and(|link| link.settings.up);
        let member = |&number: &u16| {
            let port = self.slot(number);
            is_up(&port.index).then(|| (number, port.member.clone()))
        };
        let is_down = |(index, _): &(&u32, _)| !is_up(index);
        for (&index, bridge) in self.bridges.iter().filter(is_down) {
            let (options, address) = (bridge.options.multicast, self.address(index));
            bridge
                .bridge
                .snooping()
                .configure(options, address, &[], now);
        }
        let up = self.bridges.iter().filter(|(index, _)| is_up(index));
        let members = up.map(|(&index, bridge)| {
            let mut there: Vec<_> = bridge.ports.iter().filter_map(member).collect();
            // Who floods goes through them in this order.
            there.sort_unstable_by_key(|&(number, _)| number);
            let (ports, members): (Vec<u16>, Vec<Member>) = there.into_iter().unzip();
            let groups = ports.iter().zip(&members);
            let groups = groups.map(|(&number, member)| Joined {
                number,
                options: member.options.multicast,
                fresh: self.slot(number).fresh,
            });
            bridge.bridge.snooping().configure(
                bridge.options.multicast,
                self.address(index),
                &groups.collect::<Vec<_>>(),
                now,
            );
            let members = Members::new(
                bridge.bridge.clone(),
                ports,
                members,
                bridge.options.vlan_filtering,
                bridge.local_addresses,
            );
            (index, Arc::new(members))
        });
        members.collect()
    }

    /// The address of a link.
    fn address(&self, index: u32) -> EthernetAddress {
        let link = self.links.get(&index);
        link.map_or_else(EthernetAddress::default, |link| link.address())
    }

    /// The VLAN links that are up, by the link below them.
    fn vlans_of(&self) -> HashMap<u32, Vec<(VlanTag, u16)>> {
        let mut of: HashMap<u32, Vec<_>> = HashMap::new();
        for port in self.ports.iter().flatten() {
            if let Role::Vlan(parent, tag) = port.role
                && let Some(link) = self.links.get(&port.index)
                && link.settings.up
            {
                let parent = self.slot(parent).index;
                of.entry(parent).or_default().push((tag, link.number));
            }
        }
        of.values_mut().for_each(|vlans| vlans.sort_unstable());
        of
    }

    /// View that the workers forward by.
    pub(super) fn view(&self) -> Arc<View<D::Rx, D::Tx>> {
        let bridges = self.members();
        let entry = |port: &PortOf<D>| {
            let link = self.links.get(&port.index);
            let master = link.filter(|link| link.settings.up)?.master?;
            bridges.get(&master).cloned()
        };
        let vlans = self.vlans_of();
        let arrival = |port: &PortOf<D>| {
            let vlans = vlans.get(&port.index).cloned().unwrap_or_default();
            let hooks = port.hooks.clone();
            let is_any = hooks.is_some() || !vlans.is_empty();
            is_any.then(|| Box::new(Arrival { hooks, vlans }))
        };
        let entry = |port: &PortOf<D>| Entry {
            device: port.device.clone(),
            bridge: entry(port),
            link: port.link.clone(),
            guard: port.guard.clone(),
            role: port.role,
            arrival: arrival(port),
        };
        let ports = self.ports.iter();
        Arc::new(View {
            forwarder: Forwarder {
                ports: ports.clone().map(|p| p.as_ref().map(entry)).collect(),
                links: self.targets.clone(),
                bridges: bridges.values().cloned().collect(),
                pool: self.pool.clone(),
                copied: self.copied.clone(),
                orphans: self.orphans.clone(),
            },
            peers: ports
                .map(|p| p.as_ref().map_or_else(Vec::new, |p| p.napis.clone()))
                .collect(),
            pools: self.pools(),
        })
    }

    /// Has every worker forward by the state as it is, at once or when it is
    /// [released](super::Engine::release).
    pub(super) fn publish_soon(&mut self) {
        match self.held.depth {
            0 => self.publish_and_sync(),
            _ => self.held.stale = true,
        }
    }

    /// As [`publish_soon`](State::publish_soon); then a bridge forgets what was learnt in VLANs
    /// that its ports no longer have.
    pub(super) fn publish_vlans(&mut self, bridge: u32) {
        self.held.lost_vlans.insert(bridge);
        self.publish_soon();
    }

    pub(super) fn publish_and_sync(&mut self) {
        self.publish();
        self.sync();
        for bridge in std::mem::take(&mut self.held.lost_vlans) {
            self.forget_lost_vlans(bridge);
        }
        (self.held.stale, self.held.unsynced) = (false, false);
    }

    /// Hands the workers what they forward by, and each device its share of the buffers. What was
    /// kept back stays so until workers have it for sure.
    pub(super) fn publish(&mut self) {
        self.held.unsynced |= self.held.stale;
        self.held.stale = !self.held.lost_vlans.is_empty();
        self.held.published += 1;
        self.set_targets();
        let view = self.view();
        // All devices together get half of the smaller pool: the other half is for what waits to
        // be enqueued, and for what is in flight.
        let smaller = view.pools.iter().map(Pool::memory).min().unwrap_or(0);
        let devices = || self.ports.iter().flatten().map(|port| &port.device);
        let share = smaller / 2 / devices().count().max(1) as u64;
        devices().for_each(|device| device.set_buffer_quota(share));
        self.tell_all(|| Command::View(view.clone()));
    }

    /// The pools that packets come from, each once, the engine's first.
    pub(super) fn pools(&self) -> Vec<Pool> {
        let mut pools = vec![self.pool.clone()];
        for pool in self.ports.iter().flatten().flat_map(|port| &port.pools) {
            if !pools.iter().any(|known| known.is_same(pool)) {
                pools.push(pool.clone());
            }
        }
        pools
    }
}
