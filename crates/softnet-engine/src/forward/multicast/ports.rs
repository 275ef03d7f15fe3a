//! The ports of a bridge, as far as groups go: what they are told, what is asked there, and how
//! much of them is heeded.

use std::collections::BTreeSet;
use std::time::Duration;

use super::options::{Family, McastRouter, MulticastOptions, PortMulticast};
use super::state::{State, What};
use super::table::Key;
use softnet::time::Time;
use softnet::wire::EthernetAddress;

/// Records of a port that are heeded in a second, and as many at once after a pause.
const RECORDS: u64 = 4096;
/// A port of the bridge, as it is told to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    pub(crate) number: u16,
    pub(crate) options: PortMulticast,
    /// The hosts behind it came up with it, so that all they reported is heard.
    pub(crate) fresh: bool,
}

impl State {
    /// The bridge's options and ports are these from now on.
    pub(super) fn configure(
        &mut self,
        options: MulticastOptions,
        address: EthernetAddress,
        ports: &[Joined],
        now: Time,
    ) {
        let options = options.bounded();
        let before = std::mem::replace(&mut self.options, options);
        self.address = address;
        self.heed = true;
        self.now = self.now.max(now);
        let there: BTreeSet<u16> = ports.iter().map(|port| port.number).collect();
        let gone = self.ports.keys().copied();
        let gone: Vec<u16> = gone.filter(|port| !there.contains(port)).collect();
        for port in gone {
            self.forget_port(port, true);
            self.ports.remove(&port);
        }
        if before.snooping && !options.snooping {
            let ports: Vec<u16> = self.ports.keys().copied().collect();
            ports
                .into_iter()
                .for_each(|port| self.forget_port(port, false));
            for family in Family::ALL {
                self.querier(family).other = Time::ZERO;
                self.timers.set(What::Other(family), None);
            }
        }
        let asks = |options: &MulticastOptions| options.snooping && options.querier;
        let begins = asks(&options) && !asks(&before);
        if !asks(&options) {
            self.take_queries(usize::MAX);
        }
        // Ports that were there before may have hosts that nobody has asked yet.
        if begins && !self.ports.is_empty() {
            for family in Family::ALL {
                let delay = now + options.query_response_interval;
                let querier = self.querier(family);
                if now >= querier.other {
                    querier.delay = delay;
                }
            }
        }
        for &Joined {
            number,
            options: settings,
            fresh,
        } in ports
        {
            let known = self.ports.get(&number).map(|port| port.options);
            self.ports.entry(number).or_default().options = settings;
            if known != Some(settings) {
                let before = known.map(|known| known.router);
                self.set_router(number, before, settings.router, now);
            }
            if known.is_none() && asks(&options) && !fresh {
                self.be_greedy_until(number, now + options.query_response_interval, now);
            }
            if known.is_none() || begins {
                self.begin_queries(number, now);
            }
        }
    }

    /// A port's link is up: hosts behind it are asked.
    pub(super) fn begin_queries(&mut self, number: u16, now: Time) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.queried = [0, 0];
            for family in Family::ALL {
                self.timers.set(What::Query(family, number), Some(now));
            }
        }
    }

    /// Heeds so many records of a port now, or not at all; see [`state`](super::state).
    pub(super) fn admit(&mut self, number: u16, records: u64, now: Time) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        let Some(port) = self.ports.get_mut(&number) else {
            return false;
        };
        let cost = Duration::from_nanos(records * 1_000_000_000 / RECORDS);
        let next = port.records.max(now) + cost;
        let admitted = next <= now + SECOND;
        if admitted {
            port.records = next;
        } else {
            self.be_greedy(number, now);
        }
        admitted
    }

    /// A port gets all frames to groups for as long as a report counts.
    pub(super) fn be_greedy(&mut self, number: u16, now: Time) {
        self.be_greedy_until(number, now + self.options.membership_interval, now);
    }

    /// A port gets all frames to groups until then, or for longer if it does already.
    fn be_greedy_until(&mut self, number: u16, until: Time, now: Time) {
        if let Some(port) = self.ports.get_mut(&number)
            && port.greedy < until
        {
            self.heed |= port.greedy <= now;
            port.greedy = until;
            self.timers.set(What::Greedy(number), Some(until));
        }
    }

    /// Forgets what was learnt behind a port (`br_multicast_disable_port`); with `all`, everything.
    pub(super) fn forget_port(&mut self, number: u16, all: bool) {
        let keys: Vec<Key> = self.groups.keys().copied().collect();
        for key in keys {
            let Some(entry) = self.groups.get_mut(&key) else {
                continue;
            };
            if all && entry.fixed.iter().any(|fixed| fixed.1 == number) {
                entry.fixed.retain(|fixed| fixed.1 != number);
                self.dirty.insert(key);
            }
            let member = entry.members.get(&number);
            if member.is_some_and(|member| all || !member.permanent) {
                self.remove(key, number);
            }
            self.drop_if_empty(key);
        }
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        port.greedy = Time::ZERO;
        if all {
            port.groups = 0;
        }
        self.timers.set(What::Greedy(number), None);
        let is_fixed = port.options.router == McastRouter::On;
        let was: Vec<Family> = Family::ALL
            .into_iter()
            .filter(|&f| port.routers[f as usize].is_some())
            .collect();
        for family in Family::ALL {
            self.timers.set(What::Query(family, number), None);
        }
        if all || !is_fixed {
            for family in was {
                self.unmark_router(family, number);
            }
        }
        self.heed = true;
    }

    /// Ports that get all frames to groups of a family.
    pub(super) fn takes_all(&self, family: Family, now: Time) -> Box<[u16]> {
        let ports = self.ports.iter();
        let takes =
            ports.filter(|(_, port)| port.routers[family as usize].is_some() || port.greedy > now);
        takes.map(|(&number, _)| number).collect()
    }
}
