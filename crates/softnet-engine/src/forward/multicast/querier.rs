//! Who queries, and behind which ports multicast routers are.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::options::{Family, McastRouter};
use super::query::Query;
use super::row::McastChange;
use super::state::{State, What};
use super::table::{Asked, Heed, Key};
use crate::forward::guard::link_local;
use softnet::time::Time;
use softnet::wire::GroupQuery;

/// Queries for groups that may wait to be sent to a port: as many as a report may ask for.
const WAITING: usize = super::MAX_RECORDS;

/// The querier of a family.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Querier {
    /// Address and port of another one that was heard last.
    pub(super) heard: Option<(IpAddr, u16)>,
    /// It counts until then.
    pub(super) other: Time,
    /// Hosts have not had the time to answer until then.
    pub(super) delay: Time,
}

impl State {
    fn is_querier(&self, family: Family, now: Time) -> bool {
        let other = self.queriers[family as usize].other;
        self.options.snooping && self.options.querier && now >= other
    }

    /// A query was received (`br_ip4_multicast_query`, `br_ip6_multicast_query`).
    pub(super) fn queried(
        &mut self,
        port: u16,
        vlan: u16,
        query: &GroupQuery,
        from: IpAddr,
        now: Time,
    ) {
        let family = Family::of(from.is_ipv4());
        let has_sources = self.options.has_sources(family);
        if query.sources || query.long && query.suppress && has_sources && query.group.is_some() {
            return;
        }
        // IGMPv1 has no response time, and no query for a group.
        let first = family == Family::V4 && !query.long && query.max_response.is_zero();
        let (group, response) = match first {
            true => (None, Duration::from_secs(10)),
            false => (query.group, query.max_response),
        };
        let Some(group) = group else {
            self.general_query(family, port, from, response, now);
            return;
        };
        let until = now + response.saturating_mul(self.options.last_member_count);
        let key = Key::ip(vlan, group);
        let members = self.groups.get(&key).map(|entry| &entry.members);
        let heed = members
            .into_iter()
            .flatten()
            .filter(|(_, member)| !member.permanent && (!has_sources || member.exclude));
        let ports: Vec<u16> = heed.map(|(&port, _)| port).collect();
        for port in ports {
            self.change(key, port, |member| {
                member.shorten(until);
            });
        }
    }

    /// Another querier may take the place of the one before (`br_multicast_select_querier`).
    fn general_query(
        &mut self,
        family: Family,
        port: u16,
        from: IpAddr,
        response: Duration,
        now: Time,
    ) {
        let own = match family {
            // The bridge has no address, so that any other is preferred.
            Family::V4 => None,
            Family::V6 => Some(link_local(self.address).into()),
        };
        let is_querier = self.is_querier(family, now);
        let interval = self.options.querier_interval;
        let querier = self.querier(family);
        let present = match now < querier.other {
            true => querier.heard.map(|(address, _)| address),
            false => own.filter(|_| is_querier),
        };
        let unnamed = |address: &IpAddr| *address == Ipv4Addr::UNSPECIFIED;
        if present.is_some_and(|present| !unnamed(&present) && from > present) {
            return;
        }
        querier.heard = Some((from, port));
        if now >= querier.other {
            querier.delay = now + response;
        }
        querier.other = now + interval;
        let until = querier.other;
        self.timers.set(What::Other(family), Some(until));
        self.heed = true;
        self.mark_router(family, port, now);
    }

    /// The other querier is silent: the bridge asks, if it is to (`br_multicast_querier_expired`).
    pub(super) fn begin_own(&mut self, family: Family, now: Time) {
        self.heed = true;
        let ports: Vec<u16> = self.ports.keys().copied().collect();
        for number in ports {
            if let Some(port) = self.ports.get_mut(&number) {
                port.queried[family as usize] = 0;
            }
            self.timers.set(What::Query(family, number), Some(now));
        }
    }

    /// Sends a general query to a port if the bridge is querier
    /// (`br_multicast_port_query_expired`).
    pub(super) fn send_general(&mut self, family: Family, number: u16, now: Time) {
        if !self.is_querier(family, now) {
            return;
        }
        let options = self.options;
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        let queried = &mut port.queried[family as usize];
        *queried = queried.saturating_add(1).min(options.startup_query_count);
        let interval = match *queried < options.startup_query_count {
            true => options.startup_query_interval,
            false => options.query_interval,
        };
        self.queries.push_back((number, Query::general(family)));
        self.timers
            .set(What::Query(family, number), Some(now + interval));
    }

    /// Asks who is still a member of a group behind a port (`__grp_send_query_and_rexmit`).
    pub(super) fn ask_group(&mut self, key: Key, port: u16, now: Time) {
        let Some(family) = key.family() else { return };
        let options = self.options;
        let asks = self.is_querier(family, now);
        if asks {
            self.query(key, port, Vec::new());
        }
        let end = now + options.last_member_time();
        self.change(key, port, |member| {
            if asks {
                member.queries = options.last_member_count.saturating_sub(1);
                member.next_query = Some(now + options.last_member_interval);
            }
            if member.exclude {
                member.shorten(end);
            }
        });
    }

    /// Asks who still listens to sources of a group (`__grp_src_query_marked_and_rexmit`).
    pub(super) fn ask_sources(&mut self, key: Key, port: u16, sources: &[IpAddr], now: Time) {
        let Some(family) = key.family() else { return };
        let options = self.options;
        let asks = self.is_querier(family, now);
        let end = now + options.last_member_time();
        let left = options.last_member_count.saturating_sub(1);
        self.change(key, port, |member| {
            for &source in sources {
                member.shorten_source(source, end, if asks { left } else { 0 });
            }
            if asks {
                let next = now + options.last_member_interval;
                let before = member.next_query.unwrap_or(next);
                member.next_query = Some(before.min(next));
            }
        });
        if asks {
            self.query(key, port, sources.to_vec());
        }
    }

    /// Asks once more what has to be asked again (`br_multicast_port_group_rexmit`).
    pub(super) fn ask_again(&mut self, key: Key, port: u16, now: Time) {
        let Some(family) = key.family() else { return };
        let entry = self.groups.get(&key);
        let member = entry.and_then(|entry| entry.members.get(&port));
        let next = member.and_then(|member| member.next_query);
        if next.is_none_or(|next| next > now) {
            return;
        }
        let asks = self.is_querier(family, now);
        let interval = self.options.last_member_interval;
        let (mut group, mut sources) = (false, Vec::new());
        self.change(key, port, |member| {
            group = member.queries > 0;
            member.queries = member.queries.saturating_sub(1);
            for (&ip, source) in &mut member.sources {
                if source.queries > 0 {
                    source.queries -= 1;
                    sources.push(ip);
                }
            }
            let more = member.queries > 0 || member.sources.values().any(|s| s.queries > 0);
            member.next_query = more.then_some(now + interval);
        });
        if asks && group {
            self.query(key, port, Vec::new());
        }
        if asks && !sources.is_empty() {
            self.query(key, port, sources);
        }
    }

    fn query(&mut self, key: Key, port: u16, sources: Vec<IpAddr>) {
        if let Some(family) = key.family() {
            let query = Query {
                family,
                group: key.ip_group(),
                to_group: true,
                sources,
            };
            self.ask(port, query);
        }
    }

    /// Has a query for a group sent to a port, unless too many wait for that. Hosts that are not
    /// asked then are so by the next query for all groups.
    pub(super) fn ask(&mut self, number: u16, query: Query) {
        if let Some(port) = self.ports.get_mut(&number)
            && port.waiting < WAITING
        {
            port.waiting += 1;
            self.queries.push_back((number, query));
        }
    }

    /// The queries to send next, at most so many.
    pub(super) fn take_queries(&mut self, most: usize) -> Vec<(u16, Query)> {
        let most = most.min(self.queries.len());
        let taken: Vec<_> = self.queries.drain(..most).collect();
        for (number, query) in &taken {
            if query.group.is_some()
                && let Some(port) = self.ports.get_mut(number)
            {
                port.waiting = port.waiting.saturating_sub(1);
            }
        }
        taken
    }

    /// A multicast router is behind a port (`br_multicast_mark_router`).
    pub(super) fn mark_router(&mut self, family: Family, number: u16, now: Time) {
        let until = now + self.options.querier_interval;
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        if matches!(port.options.router, McastRouter::Off | McastRouter::On) {
            return;
        }
        let is_new = port.routers.iter().all(Option::is_none);
        self.heed |= port.routers[family as usize].replace(until).is_none();
        self.timers.set(What::Router(family, number), Some(until));
        if is_new {
            self.note(McastChange::Router {
                port: number,
                gone: false,
            });
        }
    }

    /// No multicast router is behind a port any more.
    pub(super) fn unmark_router(&mut self, family: Family, number: u16) {
        self.timers.set(What::Router(family, number), None);
        let Some(port) = self.ports.get_mut(&number) else {
            return;
        };
        let was = port.routers[family as usize].take().is_some();
        self.heed |= was;
        if was && port.routers.iter().all(Option::is_none) {
            self.note(McastChange::Router {
                port: number,
                gone: true,
            });
        }
    }

    /// A port is told whether routers are behind it (`br_multicast_set_port_router`).
    pub(super) fn set_router(
        &mut self,
        number: u16,
        before: Option<McastRouter>,
        after: McastRouter,
        now: Time,
    ) {
        if before == Some(after) && after != McastRouter::Refresh {
            return;
        }
        match after {
            McastRouter::Learn if before.is_none() => {}
            McastRouter::Off | McastRouter::Learn => {
                Family::ALL
                    .into_iter()
                    .for_each(|family| self.unmark_router(family, number));
            }
            McastRouter::Refresh => {
                Family::ALL
                    .into_iter()
                    .for_each(|family| self.mark_router(family, number, now));
            }
            McastRouter::On => {
                let Some(port) = self.ports.get_mut(&number) else {
                    return;
                };
                let is_new = port.routers.iter().all(Option::is_none);
                port.routers = [Some(Time::MAX); 2];
                for family in Family::ALL {
                    self.timers.set(What::Router(family, number), None);
                }
                self.heed = true;
                if is_new {
                    self.note(McastChange::Router {
                        port: number,
                        gone: false,
                    });
                }
            }
        }
    }

    /// All that workers heed beside the groups.
    pub(super) fn heeded(&self, now: Time) -> Heed {
        let options = &self.options;
        let asked = |family: Family| {
            let querier = &self.queriers[family as usize];
            Asked {
                own: options.querier,
                other: querier.other,
                delay: querier.delay,
            }
        };
        Heed {
            snoops: options.snooping,
            asked: Family::ALL.map(asked),
            routers: Family::ALL.map(|family| self.takes_all(family, now)),
            sources: Family::ALL.map(|family| options.has_sources(family)),
        }
    }
}
