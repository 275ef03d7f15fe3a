//! Groups of a bridge: members entered, removed and listed, and ports with multicast routers, as
//! `bridge mdb` shows them.

use std::net::IpAddr;
use std::time::Duration;

use super::change::Change;
use super::devices::Devices;
use super::error::EngineError;
use super::life::Engine;
use super::state::State;
use crate::forward::{Group, Key, McastChange, MdbError, MdbRow};
use softnet::wire::is_unsnooped;

/// A member of a group of a bridge, or of a source of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdbEntry {
    /// Group.
    pub group: Group,
    /// VLAN, in a bridge that filters VLANs.
    pub vlan: Option<u16>,
    /// The source that it is about; `None`: the group as a whole.
    pub source: Option<IpAddr>,
    /// Number of the link of the port.
    pub port: u32,
    /// Set by an administrator: it does not end by itself.
    pub permanent: bool,
    /// All sources pass but those whose time is zero; else only those with a time.
    pub exclude: bool,
    /// Mode and sources count: the bridge heeds IGMPv3, or MLDv2.
    pub has_sources: bool,
    /// Frames of the source do not pass.
    pub blocked: bool,
    /// The port gets the source as it gets all but others.
    pub star_exclude: bool,
    /// It has ended by `fastleave`.
    pub fastleave: bool,
    /// Time for which it is still a member. Zero: none is set.
    pub left: Duration,
    /// Sources, with the time for which they pass.
    pub sources: Vec<(IpAddr, Duration)>,
}

/// A port of a bridge behind which multicast routers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MdbRouter {
    /// Number of the link of the port.
    pub port: u32,
    /// Time for which one of IPv4 is still known. Zero: for ever.
    pub ipv4: Option<Duration>,
    /// As `ipv4`, of IPv6.
    pub ipv6: Option<Duration>,
}

/// A member to enter or to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MdbSpec {
    /// Group.
    pub group: Group,
    /// VLAN; `None`: no VLAN, of a bridge that does not filter.
    pub vlan: Option<u16>,
    /// Source; `None`: all sources.
    pub source: Option<IpAddr>,
    /// It does not end by itself.
    pub permanent: bool,
}

impl MdbSpec {
    fn key(&self) -> Key {
        Key {
            vlan: self.vlan.unwrap_or(0),
            group: self.group,
        }
    }

    /// The group is one of which ports can be members (`br_mdb_add`, `is_valid_mdb_entry`).
    fn is_valid(&self) -> bool {
        let family = |source: IpAddr| !source.is_multicast() && !source.is_unspecified();
        match (self.group, self.source) {
            (Group::Mac(group), None) => group.is_multicast() && self.permanent,
            (Group::Mac(_), Some(_)) => false,
            (Group::Ip(group), source) => {
                let fits = |source: IpAddr| family(source) && source.is_ipv4() == group.is_ipv4();
                let lasts = self.permanent || source.is_none();
                group.is_multicast() && !is_unsnooped(group) && source.is_none_or(fits) && lasts
            }
        }
    }
}

impl<D: Devices> Engine<D> {
    /// Makes a port a member of a group of its bridge (`bridge mdb add`).
    ///
    /// # Errors
    /// If there is no such port, it is part of no bridge, does not have the VLAN or is down, no
    /// port can be a member of the group, the port is one already, the table is full, or snooping
    /// is off.
    pub fn add_mdb(&self, index: u32, spec: MdbSpec) -> Result<(), EngineError> {
        let state = self.state();
        let (number, _, bridge) = state.member(index)?;
        if !spec.is_valid() {
            return Err(EngineError::BadGroup(spec.group));
        }
        let port = state.slot(number);
        if let Some(vlan) = spec.vlan
            && !port.member.vlans.contains(vlan)
        {
            let port = port.device.name().to_string();
            return Err(EngineError::NoVlan { port, vlan });
        }
        let now = state.clock.now();
        let snooping = bridge.bridge.snooping();
        let fixed = snooping.fix(spec.key(), spec.source, number, spec.permanent, now);
        fixed.map_err(|error| refusal(error, spec.group))
    }

    /// Removes a port from a group of its bridge, however it came there (`bridge mdb del`).
    ///
    /// # Errors
    /// If there is no such port, it is part of no bridge, or is no such member.
    pub fn remove_mdb(&self, index: u32, spec: MdbSpec) -> Result<(), EngineError> {
        let state = self.state();
        let (number, _, bridge) = state.member(index)?;
        let (snooping, now) = (bridge.bridge.snooping(), state.clock.now());
        let removed = snooping.unfix(spec.key(), spec.source, number, now);
        removed.map_err(|error| refusal(error, spec.group))
    }

    /// The members of a bridge's groups, in order, and its ports with multicast routers.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn mdb(&self, index: u32) -> Result<(Vec<MdbEntry>, Vec<MdbRouter>), EngineError> {
        let state = self.state();
        let snooping = state.bridge(index)?.bridge.snooping();
        let (rows, routers) = snooping.rows(state.clock.now());
        let entries = rows.into_iter().filter_map(|row| state.mdb_entry(row));
        let routers = routers.iter().filter_map(|row| {
            Some(MdbRouter {
                port: state.link_at(row.port)?.index,
                ipv4: row.left[0],
                ipv6: row.left[1],
            })
        });
        Ok((entries.collect(), routers.collect()))
    }
}

fn refusal(error: MdbError, group: Group) -> EngineError {
    match error {
        MdbError::Exists => EngineError::MdbEntryExists(group),
        MdbError::Full => EngineError::MdbFull(group),
        MdbError::Missing => EngineError::NoMdbEntry(group),
        MdbError::Off => EngineError::NoSnooping,
    }
}

impl<D: Devices> State<D> {
    /// An entry as it is shown; none of a port that has just left.
    fn mdb_entry(&self, row: MdbRow) -> Option<MdbEntry> {
        Some(MdbEntry {
            group: row.group,
            vlan: (row.vlan != 0).then_some(row.vlan),
            source: row.source,
            port: self.link_at(row.port)?.index,
            permanent: row.permanent,
            exclude: row.exclude,
            has_sources: row.has_sources,
            blocked: row.blocked,
            star_exclude: row.star_exclude,
            fastleave: row.fastleave,
            left: row.left,
            sources: row.sources,
        })
    }

    /// Bridges have changes that [`note_groups`](State::note_groups) would note.
    pub(super) fn groups_changed(&self) -> bool {
        let mut bridges = self.bridges.values();
        bridges.any(|bridge| bridge.bridge.snooping().has_changes())
    }

    /// Notes what has changed of groups, for those who watch.
    pub(super) fn note_groups(&mut self) {
        let now = self.clock.now();
        let changed = self.bridges.iter().map(|(&index, bridge)| {
            let (changes, lost) = bridge.bridge.snooping().changes(now);
            (index, changes, lost)
        });
        for (bridge, changes, lost) in changed.collect::<Vec<_>>() {
            self.changes.overrun |= lost;
            for change in changes {
                let change = match change {
                    McastChange::Group { row, gone } => self.mdb_entry(row).map(|entry| {
                        let entry = Box::new(entry);
                        Change::Mdb {
                            bridge,
                            entry,
                            gone,
                        }
                    }),
                    McastChange::Router { port, gone } => {
                        self.link_at(port).map(|link| Change::McastRouter {
                            bridge,
                            port: link.index,
                            gone,
                        })
                    }
                };
                change
                    .into_iter()
                    .for_each(|change| self.changes.note(change));
            }
        }
    }
}
