//! All that a bridge knows of groups: who is a member, who queries, where routers are, and what
//! happens next by itself. Owned by one thread at a time.
//!
//! **Nobody takes the table from others.** A port may be a member of so many groups (an eighth of
//! the table, unless it is told a number), and so many records of it are heeded a second. What is
//! over that is not entered; the port itself then gets all frames to groups for as long as a report
//! counts, so that no host behind it misses what it asked for, and no other port gets more. (The
//! kernel's bridge stops to snoop altogether when its table is full.)

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use super::member::{Fate, Member};
use super::options::{Family, MulticastOptions, PortMulticast};
use super::querier::Querier;
use super::query::Query;
use super::row::McastChange;
use super::table::{Key, Table, Way};
use super::timers::Timers;
use softnet::time::Time;
use softnet::wire::{EthernetAddress, GroupQuery, RecordKind, is_unsnooped};

/// Part of the table that a port may fill if it is told nothing else.
const SHARE: u32 = 8;
/// Changes that are kept for those who watch.
const KEPT: usize = 1024;

/// A message about membership, as it is handed to the owner.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) port: u16,
    pub(super) vlan: u16,
    pub(super) at: Time,
    pub(super) said: Said,
}

/// See [`Heard`].
#[derive(Debug)]
pub(super) enum Said {
    Report(IpAddr),
    Leave(IpAddr),
    Records(Vec<Record>),
    Query { query: GroupQuery, from: IpAddr },
    Router(Family),
    LinkUp,
    LinkDown,
}

/// A record of a report.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) kind: RecordKind,
    pub(super) group: IpAddr,
    pub(super) sources: Vec<IpAddr>,
}

/// An event that comes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A member's time, or the next query for it.
    Member(Key, u16),
    /// The next general query at a port.
    Query(Family, u16),
    /// Another querier is silent.
    Other(Family),
    /// A router is silent.
    Router(Family, u16),
    /// A port gets no longer what is for others.
    Greedy(u16),
}

/// A port.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) options: PortMulticast,
    /// Until when a router is known there, by family.
    pub(super) routers: [Option<Time>; 2],
    /// General queries that were sent there since the querier has begun, by family.
    pub(super) queried: [u32; 2],
    /// Queries for groups that wait to be sent there.
    pub(super) waiting: usize,
    /// It gets all frames to groups until then.
    pub(super) greedy: Time,
    /// Groups that it is a member of by report.
    pub(super) groups: u32,
    /// The time at which all records that were heeded would have come at the rate.
    pub(super) records: Time,
}

/// A group: its members, and sources of which ports get frames by an administrator's word.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) members: BTreeMap<u16, Member>,
    pub(super) fixed: BTreeSet<(IpAddr, u16)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    pub(super) options: MulticastOptions,
    /// The time that has come so far.
    pub(super) now: Time,
    pub(super) address: EthernetAddress,
    pub(super) ports: BTreeMap<u16, Port>,
    pub(super) groups: BTreeMap<Key, Entry>,
    pub(super) queriers: [Querier; 2],
    pub(super) timers: Timers<What>,
    /// Queries to send, with their ports.
    pub(super) queries: VecDeque<(u16, Query)>,
    /// Changes for those who watch, and whether some were lost.
    pub(super) changes: (VecDeque<McastChange>, bool),
    /// Groups that workers are to know anew, and whether they are to know the rest.
    pub(super) dirty: BTreeSet<Key>,
    pub(super) heed: bool,
}

impl State {
    pub(super) fn new() -> State {
        State {
            options: MulticastOptions {
                snooping: false,
                ..MulticastOptions::default()
            },
            now: Time::ZERO,
            address: EthernetAddress::default(),
            ports: BTreeMap::new(),
            groups: BTreeMap::new(),
            queriers: Default::default(),
            timers: Timers::new(),
            queries: VecDeque::new(),
            changes: (VecDeque::new(), false),
            dirty: BTreeSet::new(),
            heed: true,
        }
    }

    pub(super) fn querier(&mut self, family: Family) -> &mut Querier {
        &mut self.queriers[family as usize]
    }

    /// Takes what was heard to heart. Time has come up to it.
    pub(super) fn hear(&mut self, heard: Heard) {
        self.expire(heard.at);
        if !self.options.snooping || !self.ports.contains_key(&heard.port) {
            return;
        }
        let Heard {
            port,
            vlan,
            at,
            said,
        } = heard;
        match said {
            Said::LinkUp => self.begin_queries(port, at),
            Said::LinkDown => self.forget_port(port, false),
            Said::Router(family) => self.mark_router(family, port, at),
            Said::Query { query, from } => self.queried(port, vlan, &query, from, at),
            Said::Leave(group) => self.leave(Key::ip(vlan, group), port, at),
            Said::Report(group) => {
                if self.admit(port, 1, at) {
                    self.report(Key::ip(vlan, group), group, port, at);
                }
            }
            Said::Records(records) => {
                if self.admit(port, records.len() as u64, at) {
                    for record in &records {
                        self.record(vlan, record, port, at);
                    }
                }
            }
        }
    }

    /// The member that a port is of a group, made if there is place (`br_multicast_add_group`).
    fn member(
        &mut self,
        key: Key,
        number: u16,
        new: impl FnOnce() -> Member,
        now: Time,
    ) -> Option<&mut Member> {
        let is_member = |entry: &Entry| entry.members.contains_key(&number);
        if !self.groups.get(&key).is_some_and(is_member) {
            let port = self.ports.get_mut(&number)?;
            let full = !self.groups.contains_key(&key)
                && self.groups.len() >= self.options.hash_max as usize;
            let most = match port.options.max_groups {
                0 => (self.options.hash_max / SHARE).max(1),
                max => max,
            };
            if full || port.groups >= most {
                // What an administrator has limited is not made up for.
                if full || port.options.max_groups == 0 {
                    self.be_greedy(number, now);
                }
                return None;
            }
            port.groups += 1;
            let entry = self.groups.entry(key).or_default();
            entry.members.insert(number, new());
        }
        self.groups.get_mut(&key)?.members.get_mut(&number)
    }

    /// A report of IGMPv1, IGMPv2 or MLDv1.
    fn report(&mut self, key: Key, group: IpAddr, port: u16, now: Time) {
        if is_unsnooped(group) || !group.is_multicast() {
            return;
        }
        let until = now + self.options.membership_interval;
        let is_new = self.is_no_member(key, port);
        let Some(member) = self.member(key, port, || Member::of_all(until), now) else {
            return;
        };
        if !member.permanent {
            member.until = Some(until);
            if !std::mem::replace(&mut member.exclude, true) && !is_new {
                // RFC 3376 7.3.2: as if the record said: all sources.
                member.sources.clear();
            }
        }
        self.touch(key, port);
        if is_new {
            self.tell(key, port, false);
        }
    }

    fn is_no_member(&self, key: Key, port: u16) -> bool {
        let entry = self.groups.get(&key);
        !entry.is_some_and(|entry| entry.members.contains_key(&port))
    }

    /// A record of IGMPv3 or MLDv2 (`br_ip4_multicast_igmp3_report`).
    fn record(&mut self, vlan: u16, record: &Record, port: u16, now: Time) {
        let (kind, group) = (record.kind, record.group);
        if is_unsnooped(group) || !group.is_multicast() {
            return;
        }
        let key = Key::ip(vlan, group);
        let family = Family::of(group.is_ipv4());
        let includes = matches!(kind, RecordKind::IsInclude | RecordKind::ToInclude);
        let nothing = includes && record.sources.is_empty();
        if !self.options.has_sources(family) {
            return match nothing {
                true => self.leave(key, port, now),
                false => self.report(key, group, port, now),
            };
        }
        let is_new = self.is_no_member(key, port);
        if nothing && is_new {
            return;
        }
        let full = now + self.options.group_interval();
        let Some(member) = self.member(key, port, Member::default, now) else {
            return;
        };
        if member.permanent {
            return;
        }
        let before = (member.exclude, member.sources.len());
        let ask = member.apply(kind, &record.sources, now, full);
        let mut changed = is_new || before != (member.exclude, member.sources.len());
        if member.is_idle() {
            self.remove(key, port);
            return;
        }
        changed |= ask.group || !ask.sources.is_empty();
        if !ask.sources.is_empty() {
            self.ask_sources(key, port, &ask.sources, now);
        }
        if ask.group {
            self.ask_group(key, port, now);
        }
        self.touch(key, port);
        if changed {
            self.tell(key, port, false);
        }
    }

    /// Somebody behind a port has left a group (`br_multicast_leave_group`).
    fn leave(&mut self, key: Key, port: u16, now: Time) {
        let Some(entry) = self.groups.get(&key) else {
            return;
        };
        let is_known = entry
            .members
            .get(&port)
            .is_some_and(|member| !member.permanent);
        let fastleave = self
            .ports
            .get(&port)
            .is_some_and(|port| port.options.fastleave);
        if fastleave {
            if is_known {
                self.remove(key, port);
            }
            return;
        }
        let Some(family) = key.family() else { return };
        if now < self.querier(family).other {
            // It asks, and that is heard.
            return;
        }
        let until = now + self.options.last_member_time();
        if self.options.querier {
            let query = Query {
                group: key.ip_group(),
                ..Query::general(family)
            };
            self.ask(port, query);
            self.timers.set(What::Query(family, port), Some(until));
        }
        if is_known {
            self.change(key, port, |member| {
                member.shorten(until);
            });
        }
    }

    /// Changes a member that is there.
    pub(super) fn change(&mut self, key: Key, port: u16, f: impl FnOnce(&mut Member)) {
        let entry = self.groups.get_mut(&key);
        if let Some(member) = entry.and_then(|entry| entry.members.get_mut(&port)) {
            f(member);
            self.touch(key, port);
        }
    }

    /// A member has changed: its time, and what workers know.
    pub(super) fn touch(&mut self, key: Key, port: u16) {
        let entry = self.groups.get(&key);
        let due = entry.and_then(|entry| entry.members.get(&port)?.due());
        self.timers.set(What::Member(key, port), due);
        self.dirty.insert(key);
    }

    /// A port is no member any more.
    pub(super) fn remove(&mut self, key: Key, port: u16) {
        self.tell(key, port, true);
        let Some(entry) = self.groups.get_mut(&key) else {
            return;
        };
        if entry.members.remove(&port).is_some()
            && let Some(port) = self.ports.get_mut(&port)
        {
            port.groups = port.groups.saturating_sub(1);
        }
        self.drop_if_empty(key);
        self.timers.set(What::Member(key, port), None);
        self.dirty.insert(key);
    }

    /// A group that has nobody any more is forgotten.
    pub(super) fn drop_if_empty(&mut self, key: Key) {
        let entry = self.groups.get(&key);
        if entry.is_some_and(|entry| entry.members.is_empty() && entry.fixed.is_empty()) {
            self.groups.remove(&key);
        }
    }

    /// Lets happen what was to happen by now.
    pub(super) fn expire(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(what) = self.timers.pop(now) {
            self.happen(what, now);
        }
    }

    fn happen(&mut self, what: What, now: Time) {
        match what {
            What::Member(key, port) => self.expire_member(key, port, now),
            What::Query(family, port) => self.send_general(family, port, now),
            What::Other(family) => self.begin_own(family, now),
            What::Router(family, port) => self.unmark_router(family, port),
            What::Greedy(_) => self.heed = true,
        }
    }

    fn expire_member(&mut self, key: Key, port: u16, now: Time) {
        let entry = self.groups.get_mut(&key);
        let Some(member) = entry.and_then(|entry| entry.members.get_mut(&port)) else {
            return;
        };
        match member.expire(now) {
            Fate::Gone => return self.remove(key, port),
            Fate::Changed => self.tell(key, port, false),
            Fate::Same => {}
        }
        self.ask_again(key, port, now);
        self.touch(key, port);
    }

    /// Notes a change for those who watch.
    pub(super) fn note(&mut self, change: McastChange) {
        let (kept, lost) = &mut self.changes;
        if kept.len() == KEPT {
            kept.pop_front();
            *lost = true;
        }
        kept.push_back(change);
    }

    /// Has workers know what has changed.
    pub(super) fn publish(&mut self, table: &Table, now: Time) {
        for key in std::mem::take(&mut self.dirty) {
            table.set(key, self.ways(key));
        }
        if std::mem::take(&mut self.heed) {
            table.set_heed(self.heeded(now));
        }
    }

    /// The members of a group as workers know them.
    fn ways(&self, key: Key) -> Option<super::table::Ways> {
        let entry = self.groups.get(&key)?;
        let mut ways: BTreeMap<u16, Way> = BTreeMap::new();
        for (&port, member) in &entry.members {
            let sources = member.sources.iter();
            let way = Way {
                port,
                any: true,
                exclude: member.exclude,
                sources: sources
                    .map(|(ip, source)| (*ip, source.until.is_some()))
                    .collect(),
            };
            ways.insert(port, way);
        }
        for &(source, port) in &entry.fixed {
            let way = ways.entry(port).or_insert_with(|| Way {
                port,
                any: false,
                exclude: false,
                sources: Box::default(),
            });
            let mut sources: BTreeMap<_, _> = way.sources.iter().copied().collect();
            sources.insert(source, true);
            way.sources = sources.into_iter().collect();
        }
        Some(ways.into_values().collect())
    }
}
