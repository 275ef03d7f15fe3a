//! A port as a member of a group: which sources it listens to, and until when (RFC 3376 6.4, RFC
//! 3810 7.4; `br_multicast_isinc_allow` and its like).
//!
//! In the mode INCLUDE it gets the sources whose time has not come. In EXCLUDE it gets all, until
//! the group's time has come, but the sources that have no time; a source whose time comes has
//! none any more.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use softnet::time::Time;
use softnet::wire::RecordKind;

/// Sources that a port may name of a group (the kernel's `PG_SRC_ENT_LIMIT`).
pub(super) const MAX_SOURCES: usize = 32;

/// A source of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) until: Option<Time>,
    /// Queries that are still to ask for it.
    pub(super) queries: u32,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) exclude: bool,
    /// Set by an administrator: no report and no time changes it.
    pub(super) permanent: bool,
    pub(super) until: Option<Time>,
    pub(super) sources: BTreeMap<IpAddr, Source>,
    /// Queries that are still to ask for the group.
    pub(super) queries: u32,
    /// When they go on.
    pub(super) next_query: Option<Time>,
}

/// Questions that follow from a record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) group: bool,
    pub(super) sources: Vec<IpAddr>,
}

/// The end of a member's time, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Same,
    Changed,
    /// It is none any more.
    Gone,
}

impl Source {
    fn is_pending(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until > now)
    }
}

impl Member {
    /// One who listens to all sources until then.
    pub(super) fn of_all(until: Time) -> Member {
        Member {
            exclude: true,
            until: Some(until),
            ..Member::default()
        }
    }

    /// Enters a source, if there is a place left for it.
    fn enter(&mut self, source: IpAddr, until: Option<Time>) {
        if self.sources.len() < MAX_SOURCES || self.sources.contains_key(&source) {
            self.sources.entry(source).or_default().until = until;
        }
    }

    /// Takes a record to heart. `full` is when it ends to count.
    pub(super) fn apply(
        &mut self,
        kind: RecordKind,
        sources: &[IpAddr],
        now: Time,
        full: Time,
    ) -> Ask {
        let named: BTreeSet<IpAddr> = sources.iter().copied().collect();
        let known: Vec<IpAddr> = self.sources.keys().copied().collect();
        let pending = |member: &Member, source: &IpAddr| {
            member
                .sources
                .get(source)
                .is_some_and(|s| s.is_pending(now))
        };
        let mut ask = Ask::default();
        match kind {
            RecordKind::IsInclude | RecordKind::Allow => {
                named
                    .iter()
                    .for_each(|&source| self.enter(source, Some(full)));
            }
            RecordKind::ToInclude => {
                let left = |source: &&IpAddr| {
                    (!self.exclude || pending(self, source)) && !named.contains(source)
                };
                ask.sources = known.iter().filter(left).copied().collect();
                ask.group = self.exclude;
                named
                    .iter()
                    .for_each(|&source| self.enter(source, Some(full)));
            }
            RecordKind::IsExclude | RecordKind::ToExclude => {
                let group = self.until;
                let asks = kind == RecordKind::ToExclude;
                self.sources.retain(|source, _| named.contains(source));
                for &source in &named {
                    if !known.contains(&source) {
                        let until = match (self.exclude, asks) {
                            (false, _) => None,
                            (true, false) => Some(full),
                            (true, true) => group,
                        };
                        self.enter(source, until);
                    }
                    if asks && pending(self, &source) {
                        ask.sources.push(source);
                    }
                }
                self.exclude = true;
                self.until = Some(full);
            }
            RecordKind::Block => {
                for &source in &named {
                    if self.exclude && !known.contains(&source) {
                        self.enter(source, self.until);
                    }
                    if pending(self, &source) {
                        ask.sources.push(source);
                    }
                }
            }
        }
        ask
    }

    /// When something happens to it next by itself.
    pub(super) fn due(&self) -> Option<Time> {
        let sources = self.sources.values().filter_map(|source| source.until);
        let group = self.until.filter(|_| !self.permanent);
        group
            .into_iter()
            .chain(self.next_query)
            .chain(sources)
            .min()
    }

    /// Lets time pass, but for queries (`br_multicast_port_group_expired`,
    /// `br_multicast_group_src_expired`).
    pub(super) fn expire(&mut self, now: Time) -> Fate {
        if self.permanent {
            return Fate::Same;
        }
        let before = (self.exclude, self.sources.len());
        let mut changed = false;
        for source in self.sources.values_mut() {
            if source.until.is_some() && !source.is_pending(now) {
                source.until = None;
                changed = true;
            }
        }
        if self.until.is_some_and(|until| until <= now) {
            self.until = None;
            self.exclude = false;
        }
        if !self.exclude {
            self.sources.retain(|_, source| source.until.is_some());
            if self.sources.is_empty() && self.until.is_none() {
                return Fate::Gone;
            }
        }
        match changed || before != (self.exclude, self.sources.len()) {
            true => Fate::Changed,
            false => Fate::Same,
        }
    }

    /// There is nothing that it listens to.
    pub(super) fn is_idle(&self) -> bool {
        !self.exclude && self.sources.is_empty() && !self.permanent && self.until.is_none()
    }

    /// Nobody answers after this time: then it ends. Whether it would have lasted longer.
    pub(super) fn shorten(&mut self, to: Time) -> bool {
        let longer = self.until.is_none_or(|until| until > to);
        if longer {
            self.until = Some(to);
        }
        longer
    }

    /// As [`shorten`](Member::shorten), of a source.
    pub(super) fn shorten_source(&mut self, source: IpAddr, to: Time, queries: u32) {
        if let Some(source) = self.sources.get_mut(&source)
            && source.until.is_some_and(|until| until > to)
        {
            source.until = Some(to);
            source.queries = queries;
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);
    const FULL: Time = Time(2_000);

    fn ip(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    fn ips(list: &[u8]) -> Vec<IpAddr> {
        list.iter().map(|&n| ip(n)).collect()
    }

    /// A member with sources that it gets, and such that it does not.
    fn member(exclude: bool, gets: &[u8], not: &[u8]) -> Member {
        let of = |list: &[u8], until| -> Vec<(IpAddr, Source)> {
            let source = Source { until, queries: 0 };
            list.iter().map(|&n| (ip(n), source)).collect()
        };
        Member {
            exclude,
            until: exclude.then_some(Time(1_500)),
            sources: [of(gets, Some(Time(1_200))), of(not, None)]
                .concat()
                .into_iter()
                .collect(),
            ..Member::default()
        }
    }

    fn parts(member: &Member) -> (bool, Vec<IpAddr>, Vec<IpAddr>) {
        let with = |pending| {
            let sources = member.sources.iter();
            let some = sources.filter(move |(_, s)| s.is_pending(NOW) == pending);
            some.map(|(ip, _)| *ip).collect()
        };
        (member.exclude, with(true), with(false))
    }

    /// The tables of RFC 3376 6.4.1 and 6.4.2: before, record, after, asked.
    #[test]
    fn the_tables_of_the_rfc() {
        use RecordKind::{Allow, Block, IsExclude, IsInclude, ToExclude, ToInclude};
        type Row<'a> = (
            (bool, &'a [u8], &'a [u8]),
            (RecordKind, &'a [u8]),
            (bool, &'a [u8], &'a [u8]),
            (bool, &'a [u8]),
        );
        let rows: &[Row<'_>] = &[
            (
                (false, &[1, 2], &[]),
                (IsInclude, &[2, 3]),
                (false, &[1, 2, 3], &[]),
                (false, &[]),
            ),
            (
                (false, &[1, 2], &[]),
                (IsExclude, &[2, 3]),
                (true, &[2], &[3]),
                (false, &[]),
            ),
            (
                (true, &[1, 2], &[3]),
                (IsInclude, &[2, 3]),
                (true, &[1, 2, 3], &[]),
                (false, &[]),
            ),
            (
                (true, &[1, 2], &[3]),
                (IsExclude, &[2, 3, 4]),
                (true, &[2, 4], &[3]),
                (false, &[]),
            ),
            (
                (false, &[1, 2], &[]),
                (Allow, &[3]),
                (false, &[1, 2, 3], &[]),
                (false, &[]),
            ),
            (
                (false, &[1, 2], &[]),
                (Block, &[2, 3]),
                (false, &[1, 2], &[]),
                (false, &[2]),
            ),
            (
                (false, &[1, 2], &[]),
                (ToExclude, &[2, 3]),
                (true, &[2], &[3]),
                (false, &[2]),
            ),
            (
                (false, &[1, 2], &[]),
                (ToInclude, &[2, 3]),
                (false, &[1, 2, 3], &[]),
                (false, &[1]),
            ),
            (
                (true, &[1, 2], &[3]),
                (Allow, &[3, 4]),
                (true, &[1, 2, 3, 4], &[]),
                (false, &[]),
            ),
            (
                (true, &[1, 2], &[3]),
                (Block, &[2, 3, 4]),
                (true, &[1, 2, 4], &[3]),
                (false, &[2, 4]),
            ),
            (
                (true, &[1, 2], &[3]),
                (ToExclude, &[2, 3, 4]),
                (true, &[2, 4], &[3]),
                (false, &[2, 4]),
            ),
            (
                (true, &[1, 2], &[3]),
                (ToInclude, &[2, 3]),
                (true, &[1, 2, 3], &[]),
                (true, &[1]),
            ),
        ];
        for &((exclude, gets, not), (kind, named), after, asked) in rows {
            let mut member = member(exclude, gets, not);
            let ask = member.apply(kind, &ips(named), NOW, FULL);
            let expected = (after.0, ips(after.1), ips(after.2));
            assert_eq!(
                parts(&member),
                expected,
                "{exclude} {gets:?} {not:?} {kind:?} {named:?}"
            );
            assert_eq!(
                (ask.group, ask.sources),
                (asked.0, ips(asked.1)),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn sources_are_bounded() {
        let mut member = Member::default();
        let many: Vec<IpAddr> = (0..=u8::MAX).map(ip).collect();
        for kind in [RecordKind::Allow, RecordKind::ToExclude, RecordKind::Block] {
            member.apply(kind, &many, NOW, FULL);
            assert_eq!(member.sources.len(), MAX_SOURCES);
        }
    }

    #[test]
    fn time_ends_modes_sources_and_members() {
        let mut listener = member(true, &[1], &[2]);
        assert_eq!(listener.due(), Some(Time(1_200)));
        assert_eq!(listener.expire(Time(1_200)), Fate::Changed);
        assert_eq!(parts(&listener), (true, vec![], ips(&[1, 2])));
        assert_eq!(listener.expire(Time(1_400)), Fate::Same);
        assert_eq!(listener.expire(Time(1_500)), Fate::Gone);
        let mut listener = member(true, &[1], &[2]);
        listener.sources.get_mut(&ip(1)).unwrap().until = Some(FULL);
        assert_eq!(listener.expire(Time(1_500)), Fate::Changed);
        assert_eq!(parts(&listener), (false, ips(&[1]), vec![]));
        assert_eq!(listener.expire(FULL), Fate::Gone);
    }
}
