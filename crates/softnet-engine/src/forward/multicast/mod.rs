//! Multicast snooping (RFC 4541), as the kernel's bridge does it (`net/bridge/br_multicast.c`):
//! frames to a group go to the ports behind which somebody has reported to be a member, and to
//! multicast routers. Only as long as somebody queries, so that members report again: else they go
//! to all ports, as without snooping. What is to 224.0.0.0/24 or `ff02::1` always does.
//!
//! **Workers never wait.** A frame is looked at by the published [`table`]. A message about
//! membership is rare: the worker that has one puts it into the inbox, which is bounded, and takes
//! the [`State`] to heart what is there, unless another thread has it: that one then goes round
//! once more ([`RunState::begin_or_miss`]), so that no message stays. The control path takes the
//! state in the same way. The work for a message is bounded: [`MAX_RECORDS`] records of
//! [`MAX_NAMED`] sources, and so many records a second of a port.
//!
//! **Time.** `due` is the time at which something happens by itself; a worker looks at it in each
//! round ([`tend`](Snooping::tend)) and does not sleep longer. Whoever has changed the state writes
//! it, and is a worker, which looks again before it sleeps, or the control path, which tells the
//! workers of a new view afterwards. A worker that was turned away writes zero, and looks again.
//!
//! **Differences from the kernel.** Reports of IGMPv3 and MLDv2, too, go to routers only while
//! somebody queries (RFC 4541 2.1.1): no host needs those of others. For a table that is full see
//! [`state`].

mod member;
mod options;
mod ports;
mod querier;
mod query;
mod row;
mod state;
mod table;
mod timers;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::Guard;
use crossbeam_queue::ArrayQueue;

use softnet::mem::Packet;
use softnet::stats::DropReason;
use softnet::sync::primitive::{AtomicBool, AtomicU64, Ordering};
use softnet::sync::{RunGuard, RunState};
use softnet::time::Time;
use softnet::wire::{self, EthernetAddress, GroupRecord, Membership, Multicast};

use options::Family;
pub use options::{McastRouter, MulticastOptions, PortMulticast};
pub(crate) use ports::Joined;
use row::RouterRow;
pub(crate) use row::{McastChange, MdbError, MdbRow};
use state::{Heard, Record, Said, State};
pub use table::Group;
pub(crate) use table::Key;
pub(super) use table::Takers;
use table::{Heed, Table, Ways};

/// Messages that may wait for the state.
const INBOX: usize = 1024;
/// Queries that are sent at once: each is a call of a device.
const QUERIES: usize = 32;
/// Records of a report that are read: those of a frame of 1,500 bytes, and more.
const MAX_RECORDS: usize = 256;
/// Sources of a record that are read: more than a member may have.
const MAX_NAMED: usize = 2 * member::MAX_SOURCES;

/// Groups of a bridge; see the module.
pub(crate) struct Snooping {
    table: Table,
    inbox: ArrayQueue<Heard>,
    state: RunState<State>,
    /// When something happens by itself, in nanoseconds.
    due: AtomicU64,
    /// There are changes for those who watch.
    news: AtomicBool,
}

impl std::fmt::Debug for Snooping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snooping").finish_non_exhaustive()
    }
}

/// Where a frame to a group goes.
pub(super) enum Scope {
    /// To all ports.
    All,
    /// To some.
    Only(Only),
}

/// Members of a group, and routers.
pub(super) struct Only {
    ways: Option<Ways>,
    heed: Guard<Arc<Heed>>,
    family: Family,
    /// If sources count.
    source: Option<IpAddr>,
}

impl Only {
    /// The ports, each once, in order.
    pub(super) fn takers(&self) -> Takers<'_> {
        Takers {
            ways: self.ways.as_deref().unwrap_or_default(),
            routers: &self.heed.routers[self.family as usize],
            source: self.source,
        }
    }
}

/// A frame that the bridge itself sends, and its port.
pub(super) type Own = (u16, Vec<u8>);

impl Snooping {
    pub(super) fn new() -> Snooping {
        Snooping {
            table: Table::new(),
            inbox: ArrayQueue::new(INBOX),
            state: RunState::new(State::new()),
            due: AtomicU64::new(u64::MAX),
            news: AtomicBool::new(false),
        }
    }

    /// Where a frame to a group goes, which a port received in a VLAN. What it says of groups is
    /// taken to heart if it `is_new`.
    ///
    /// # Errors
    /// [`DropReason::BadHeader`] of an IP header or a message about membership that is not right.
    pub(super) fn scope(
        &self,
        packet: &Packet,
        vlan: u16,
        port: u16,
        is_new: bool,
        now: Time,
    ) -> Result<Scope, DropReason> {
        let heed = self.table.heed();
        if !heed.snoops {
            return Ok(Scope::All);
        }
        let trusted = packet.checksum().is_some();
        let Some(read) = wire::multicast(packet.data(), packet.len(), trusted)? else {
            let (to, _) = packet.ethernet()?;
            let group = Group::Mac(to);
            let ways = self.table.find(Key { vlan, group });
            return Ok(match ways {
                None => Scope::All,
                ways => Scope::Only(Only {
                    ways,
                    heed,
                    family: Family::V4,
                    source: None,
                }),
            });
        };
        let family = Family::of(read.group.is_ipv4());
        let heed = match read.message {
            Some(message) if is_new => {
                self.hear(message, &read, vlan, port, now);
                self.table.heed()
            }
            _ => heed,
        };
        let (ways, confined) = match read.message {
            Some(Membership::Report(_) | Membership::Records(_)) => (None, true),
            Some(Membership::Query(_) | Membership::Leave(_)) => (None, false),
            Some(Membership::Router) | None => {
                let ways = self.table.find(Key::ip(vlan, read.group));
                let known = ways.is_some();
                (ways, known || !read.is_unsnooped())
            }
        };
        if !confined || !heed.is_asked(family, now) {
            return Ok(Scope::All);
        }
        let source = heed.sources[family as usize].then_some(read.source);
        Ok(Scope::Only(Only {
            ways,
            heed,
            family,
            source,
        }))
    }

    #[cold]
    fn hear(&self, message: Membership<'_>, read: &Multicast<'_>, vlan: u16, port: u16, at: Time) {
        let record = |record: GroupRecord<'_>| Record {
            kind: record.kind,
            group: record.group,
            sources: record.sources().take(MAX_NAMED).collect(),
        };
        let said = match message {
            Membership::Report(group) => Said::Report(group),
            Membership::Leave(group) => Said::Leave(group),
            Membership::Records(records) => {
                Said::Records(records.take(MAX_RECORDS).map(record).collect())
            }
            Membership::Query(query) => Said::Query {
                query,
                from: read.source,
            },
            Membership::Router => Said::Router(Family::of(read.group.is_ipv4())),
        };
        self.tell(Heard {
            port,
            vlan,
            at,
            said,
        });
    }

    /// The link of a port came up or went down.
    pub(super) fn link(&self, port: u16, up: bool, at: Time) {
        let said = if up { Said::LinkUp } else { Said::LinkDown };
        let vlan = 0;
        self.tell(Heard {
            port,
            vlan,
            at,
            said,
        });
    }

    /// Hands a message over. One that finds the inbox full is lost, as on a wire: hosts repeat
    /// what they report.
    fn tell(&self, heard: Heard) {
        let at = heard.at;
        let _ = self.inbox.push(heard);
        match self.state.begin_or_miss() {
            Some(state) => self.leave(state, at),
            None => self.due.store(0, Ordering::Relaxed),
        }
    }

    /// Takes to heart what is in the inbox, has workers know what has changed, and gives the state
    /// up.
    fn leave(&self, mut state: RunGuard<'_, State>, now: Time) {
        loop {
            while let Some(heard) = self.inbox.pop() {
                state.hear(heard);
            }
            state.publish(&self.table, now);
            if !state.changes.0.is_empty() {
                self.news.store(true, Ordering::Relaxed);
            }
            let due = match state.queries.is_empty() {
                true => state.timers.first().unwrap_or(Time::MAX),
                false => Time::ZERO,
            };
            self.due.store(due.nanos(), Ordering::Relaxed);
            match state.end() {
                Ok(()) => return,
                Err(missed) => state = missed,
            }
        }
    }

    /// When [`tend`](Snooping::tend) has something to do.
    pub(super) fn due(&self) -> Time {
        Time(self.due.load(Ordering::Relaxed))
    }

    /// Does what is due, unless another thread does. The frames that the bridge then sends, not
    /// all at once.
    pub(super) fn tend(&self, now: Time) -> Vec<Own> {
        if self.due() > now {
            return Vec::new();
        }
        let Some(mut state) = self.state.begin_or_miss() else {
            return Vec::new();
        };
        state.expire(now);
        let queries = state.take_queries(QUERIES);
        let (options, address) = (state.options, state.address);
        self.leave(state, now);
        let frames = queries.into_iter();
        frames
            .map(|(port, query)| (port, query.frame(&options, address)))
            .collect()
    }

    /// Options of the bridge and its ports from now on; ports that are not there any more, or are
    /// down, are forgotten.
    pub(crate) fn configure(
        &self,
        options: MulticastOptions,
        address: EthernetAddress,
        ports: &[Joined],
        now: Time,
    ) {
        let mut state = self.state.begin_slow();
        state.expire(now);
        state.configure(options, address, ports, now);
        self.leave(state, now);
    }

    /// Reads or changes the state for the control path.
    fn with<T>(&self, now: Time, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.begin_slow();
        state.expire(now);
        let result = f(&mut state);
        self.leave(state, now);
        result
    }

    /// All members of groups, and the ports behind which routers are.
    pub(crate) fn rows(&self, now: Time) -> (Vec<MdbRow>, Vec<RouterRow>) {
        self.with(now, |state| (state.rows(now), state.router_rows(now)))
    }

    /// Groups that a port is a member of.
    pub(crate) fn groups_of(&self, port: u16, now: Time) -> u32 {
        self.with(now, |state| {
            state.ports.get(&port).map_or(0, |of| of.groups)
        })
    }

    /// Makes a port a member of a group, or of one of its sources.
    pub(crate) fn fix(
        &self,
        key: Key,
        source: Option<IpAddr>,
        port: u16,
        permanent: bool,
        now: Time,
    ) -> Result<(), MdbError> {
        self.with(now, |state| state.fix(key, source, port, permanent, now))
    }

    /// Removes a port from a group, or from one of its sources.
    pub(crate) fn unfix(
        &self,
        key: Key,
        source: Option<IpAddr>,
        port: u16,
        now: Time,
    ) -> Result<(), MdbError> {
        self.with(now, |state| state.unfix(key, source, port, now))
    }

    /// There are changes for [`changes`](Snooping::changes) to return.
    pub(crate) fn has_changes(&self) -> bool {
        self.news.load(Ordering::Relaxed)
    }

    /// Changes since the last call, and whether some were lost.
    pub(crate) fn changes(&self, now: Time) -> (Vec<McastChange>, bool) {
        if !self.news.swap(false, Ordering::Relaxed) {
            return (Vec::new(), false);
        }
        let (kept, lost) = self.with(now, |state| std::mem::take(&mut state.changes));
        (kept.into(), lost)
    }
}

#[cfg(all(test, not(miri), not(loom)))]
pub(crate) mod testing;
#[cfg(all(test, not(miri), not(loom)))]
mod tests;
