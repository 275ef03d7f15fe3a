//! Groups as the control path sees them: listed, entered and removed as `bridge mdb` does, and
//! watched.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::member::Member;
use super::options::Family;
use super::state::{Entry, State};
use super::table::{Group, Key};
use softnet::time::Time;

/// A member of a group, or of a source of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MdbRow {
    pub(crate) vlan: u16,
    pub(crate) group: Group,
    pub(crate) source: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) permanent: bool,
    /// All sources pass but those listed.
    pub(crate) exclude: bool,
    /// The mode and the sources count.
    pub(crate) has_sources: bool,
    /// Frames of the source do not pass.
    pub(crate) blocked: bool,
    /// It gets the source because it excludes others.
    pub(crate) star_exclude: bool,
    pub(crate) fastleave: bool,
    /// Time for which it is still a member; zero: no time is set.
    pub(crate) left: Duration,
    pub(crate) sources: Vec<(IpAddr, Duration)>,
}

/// A change, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum McastChange {
    Group { row: MdbRow, gone: bool },
    Router { port: u16, gone: bool },
}

/// A port behind which multicast routers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouterRow {
    pub(crate) port: u16,
    /// By family, if there is one: the time left, zero if it does not end.
    pub(crate) left: [Option<Duration>; 2],
}

/// Why an entry cannot be made or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MdbError {
    Exists,
    Full,
    Missing,
    /// Snooping is off.
    Off,
}

fn left(until: Option<Time>, now: Time) -> Duration {
    until.map_or(Duration::ZERO, |until| until.since(now))
}

impl State {
    fn row(&self, key: Key, port: u16, member: &Member, now: Time) -> MdbRow {
        let family = key.family();
        let sources = member.sources.iter();
        let fastleave = self.ports.get(&port).is_some_and(|p| p.options.fastleave);
        MdbRow {
            vlan: key.vlan,
            group: key.group,
            source: None,
            port,
            permanent: member.permanent,
            exclude: member.exclude,
            has_sources: family.is_some_and(|family| self.options.has_sources(family)),
            blocked: false,
            star_exclude: false,
            fastleave: fastleave && !member.permanent,
            left: left(member.until.filter(|_| !member.permanent), now),
            sources: sources
                .map(|(&ip, source)| (ip, left(source.until, now)))
                .collect(),
        }
    }

    /// Tells watchers of a member.
    pub(super) fn tell(&mut self, key: Key, port: u16, gone: bool) {
        let entry = self.groups.get(&key);
        if let Some(member) = entry.and_then(|entry| entry.members.get(&port)) {
            let now = self.now;
            let mut row = self.row(key, port, member, now);
            row.fastleave &= gone;
            self.note(McastChange::Group { row, gone });
        }
    }

    /// All members of all groups.
    pub(super) fn rows(&self, now: Time) -> Vec<MdbRow> {
        let mut rows = Vec::new();
        for (&key, entry) in &self.groups {
            for (&port, member) in &entry.members {
                let mut row = self.row(key, port, member, now);
                // A member that stays has not left fast.
                row.fastleave = false;
                rows.push(row);
            }
            self.source_rows(key, entry, &mut rows, now);
        }
        rows
    }

    /// The sources of a group, each with those that get it or not.
    fn source_rows(&self, key: Key, entry: &Entry, rows: &mut Vec<MdbRow>, now: Time) {
        let has_sources = |family: Family| self.options.has_sources(family);
        let known = entry
            .members
            .values()
            .flat_map(|member| member.sources.keys());
        let known = known.filter(|_| key.family().is_some_and(has_sources));
        let fixed = entry.fixed.iter().map(|(source, _)| source);
        let sources: BTreeSet<IpAddr> = known.chain(fixed).copied().collect();
        for source in sources {
            let ports: BTreeSet<u16> = entry
                .members
                .keys()
                .copied()
                .chain(entry.fixed.iter().map(|&(_, port)| port))
                .collect();
            for port in ports {
                let member = entry.members.get(&port);
                let of = member.and_then(|member| member.sources.get(&source));
                let permanent = entry.fixed.contains(&(source, port));
                let star = member.is_some_and(|member| member.exclude);
                if of.is_none() && !permanent && !star {
                    continue;
                }
                let mut row = self.row(key, port, &Member::default(), now);
                row.source = Some(source);
                row.permanent = permanent;
                row.blocked = !permanent && of.is_some_and(|source| source.until.is_none());
                row.star_exclude = !permanent && of.is_none();
                row.fastleave = false;
                rows.push(row);
            }
        }
    }

    /// The ports behind which routers are.
    pub(super) fn router_rows(&self, now: Time) -> Vec<RouterRow> {
        let ports = self.ports.iter();
        let of = |until: Time| match until {
            Time::MAX => Duration::ZERO,
            until => until.since(now),
        };
        let rows = ports.map(|(&port, known)| RouterRow {
            port,
            left: known.routers.map(|until| until.map(of)),
        });
        rows.filter(|row| row.left.iter().any(Option::is_some))
            .collect()
    }

    /// Enters a port as a member of a group, or of a source of it. One that is not permanent is a
    /// member as by a report.
    pub(super) fn fix(
        &mut self,
        key: Key,
        source: Option<IpAddr>,
        port: u16,
        permanent: bool,
        now: Time,
    ) -> Result<(), MdbError> {
        if !self.options.snooping {
            return Err(MdbError::Off);
        }
        let known = self.groups.get(&key);
        if known.is_none() && self.groups.len() >= self.options.hash_max as usize {
            return Err(MdbError::Full);
        }
        let exists = known.is_some_and(|entry| match source {
            Some(source) => entry.fixed.contains(&(source, port)),
            None => entry.members.contains_key(&port),
        });
        if exists {
            return Err(MdbError::Exists);
        }
        let until = now + self.options.membership_interval;
        if let Some(port) = self.ports.get_mut(&port) {
            port.groups += 1;
        }
        let entry = self.groups.entry(key).or_default();
        match source {
            Some(source) => drop(entry.fixed.insert((source, port))),
            None => {
                let mut member = Member::of_all(until);
                member.permanent = permanent;
                if permanent {
                    member.until = None;
                }
                entry.members.insert(port, member);
            }
        }
        self.touch(key, port);
        self.tell_fixed(key, source, port, false, now);
        Ok(())
    }

    /// Removes what [`fix`](State::fix) or a report has entered.
    pub(super) fn unfix(
        &mut self,
        key: Key,
        source: Option<IpAddr>,
        port: u16,
        now: Time,
    ) -> Result<(), MdbError> {
        let entry = self.groups.get_mut(&key).ok_or(MdbError::Missing)?;
        let Some(source) = source else {
            if !entry.members.contains_key(&port) {
                return Err(MdbError::Missing);
            }
            self.remove(key, port);
            return Ok(());
        };
        if !entry.fixed.remove(&(source, port)) {
            return Err(MdbError::Missing);
        }
        if let Some(port) = self.ports.get_mut(&port) {
            port.groups = port.groups.saturating_sub(1);
        }
        self.tell_fixed(key, Some(source), port, true, now);
        self.drop_if_empty(key);
        self.touch(key, port);
        Ok(())
    }

    fn tell_fixed(&mut self, key: Key, source: Option<IpAddr>, port: u16, gone: bool, now: Time) {
        if source.is_none() {
            self.tell(key, port, gone);
            return;
        }
        let mut row = self.row(key, port, &Member::default(), now);
        row.source = source;
        row.permanent = true;
        row.fastleave = false;
        self.note(McastChange::Group { row, gone });
    }
}
