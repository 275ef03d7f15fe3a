//! Entries of a bridge's forwarding database: set, removed, listed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use super::change::Change;
use super::devices::Devices;
use super::error::EngineError;
use super::info::FdbEntry;
use super::life::Engine;
use super::spec::FdbSpec;
use super::state::State;
use crate::forward::{Fdb, FdbRow, FdbState, Fixed, SetError, Station};
use softnet::time::Time;
use softnet::wire::EthernetAddress;

/// Entries that are read at once.
const PAGE: usize = 256;

impl<D: Devices> Engine<D> {
    /// Adds an entry for a station behind a port (`bridge fdb add … master`), or with `replace`
    /// puts it in place of the one that the station has.
    ///
    /// Nobody receives what a permanent entry takes: behind a bridge of Softnet there is no host,
    /// and frames for it are dropped. No entries are made for addresses of ports, for a port has
    /// none on this side.
    ///
    /// # Errors
    /// If there is no such port, it is part of no bridge or does not have the VLAN, no station can
    /// have the address, a permanent entry is sticky, there is an entry (unless `replace`), or no
    /// place is left.
    pub fn add_fdb(&self, index: u32, spec: FdbSpec, replace: bool) -> Result<(), EngineError> {
        let mut state = self.control()?;
        let stations = state.stations(index, spec.address, spec.vlan)?;
        state.fix(index, &stations, spec, replace)
    }

    /// As [`add_fdb`](Engine::add_fdb) with `replace`, but without a VLAN in no VLAN alone.
    pub(super) fn add_station(&self, index: u32, spec: FdbSpec) -> Result<(), EngineError> {
        let mut state = self.control()?;
        let stations = state.stations(index, spec.address, spec.vlan)?;
        state.fix(index, &stations[..1], spec, true)
    }

    /// Removes an entry for a station behind a port, learnt or added; without a VLAN the one of no
    /// VLAN and those of each VLAN of the port. One of a VLAN that the port no longer has can be
    /// removed, too.
    ///
    /// # Errors
    /// If there is no such port, it is part of no bridge, or there is no such entry.
    pub fn remove_fdb(
        &self,
        index: u32,
        address: EthernetAddress,
        vlan: Option<u16>,
    ) -> Result<(), EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let stations = match vlan {
            Some(vlan) => vec![Station { vlan, address }],
            None => state.stations(index, address, None)?,
        };
        let (number, bridge, known) = state.member(index)?;
        let now = state.clock.now();
        let mut removed = Vec::new();
        let is_meant = |row: &FdbRow| {
            row.port == number && row.station.address == address && stations.contains(&row.station)
        };
        state.each_row(bridge, |row| removed.extend(is_meant(row).then_some(*row)))?;
        let fdb = known.bridge.fdb();
        let unfixed = stations.iter().filter(|&&s| fdb.unfix(s, number, now));
        if unfixed.count() == 0 {
            return Err(EngineError::NoFdbEntry(address));
        }
        for row in removed {
            state.note_fdb(bridge, &row, true);
        }
        Ok(())
    }

    /// Removes the entries of a bridge that `select` chooses, and says how many. `select` must not
    /// call the engine.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn flush_fdb(
        &self,
        index: u32,
        select: impl Fn(&FdbEntry) -> bool,
    ) -> Result<usize, EngineError> {
        let mut guard = self.control()?;
        let state = &mut *guard;
        let fdb = state.bridge(index)?.bridge.fdb();
        let removed = RefCell::new(Vec::new());
        let select = |row: &FdbRow| {
            let selected = state.fdb_entry(row).is_some_and(|entry| select(&entry));
            removed.borrow_mut().extend(selected.then_some(*row));
            selected
        };
        let count = fdb.flush(select, state.clock.now());
        for row in removed.into_inner() {
            state.note_fdb(index, &row, true);
        }
        Ok(count)
    }

    /// At most `max` entries of a bridge, and where to go on for more; start `from` 0. An entry
    /// that is there from the first page to the last is in one of them, and once. Stops no worker.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn fdb_entries(
        &self,
        index: u32,
        from: usize,
        max: usize,
    ) -> Result<(Vec<FdbEntry>, Option<usize>), EngineError> {
        let state = self.state();
        let fdb = state.bridge(index)?.bridge.fdb();
        let (rows, next) = fdb.page(from, max, state.clock.now());
        let entries = rows.iter().filter_map(|row| state.fdb_entry(row));
        Ok((entries.collect(), next))
    }

    /// The entry of a bridge for a station in a VLAN, or in none.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn fdb_entry(
        &self,
        index: u32,
        address: EthernetAddress,
        vlan: Option<u16>,
    ) -> Result<Option<FdbEntry>, EngineError> {
        let state = self.state();
        let mut found = None;
        let station = Station {
            vlan: vlan.unwrap_or(0),
            address,
        };
        state.each_row(index, |row| {
            if row.station == station {
                found = state.fdb_entry(row);
            }
        })?;
        Ok(found)
    }

    /// The stations behind ports that were not learnt, by the number of the port, in order; but
    /// those of VLANs that their ports do not have, which nothing is sent to. Reads all addresses
    /// that bridges know.
    pub(super) fn fixed_stations(&self) -> Result<HashMap<u32, Vec<FdbSpec>>, EngineError> {
        let state = self.state();
        let mut stations: HashMap<u32, Vec<FdbSpec>> = HashMap::new();
        for &bridge in state.bridges.keys() {
            state.each_row(bridge, |row| {
                let Some(entry) = state.fdb_entry(row) else {
                    return;
                };
                let vlans = &state.slot(row.port).member.vlans;
                let has = entry.vlan.is_none_or(|vlan| vlans.contains(vlan));
                if entry.state != FdbState::Dynamic && has {
                    stations.entry(entry.port).or_default().push(FdbSpec {
                        address: entry.address,
                        vlan: entry.vlan,
                        state: entry.state,
                        sticky: entry.sticky,
                    });
                }
            })?;
        }
        let all = stations.values_mut();
        all.for_each(|stations| stations.sort_unstable_by_key(|s| (s.vlan, s.address)));
        Ok(stations)
    }
}

impl<D: Devices> State<D> {
    /// Makes entries for stations, all or none, and tells watchers.
    fn fix(
        &mut self,
        index: u32,
        stations: &[Station],
        spec: FdbSpec,
        replace: bool,
    ) -> Result<(), EngineError> {
        if spec.address.is_multicast() || spec.address.is_zero() {
            return Err(EngineError::BadStation(spec.address));
        }
        if spec.sticky && spec.state == FdbState::Permanent {
            return Err(EngineError::StickyPermanent);
        }
        let (number, master, known) = self.member(index)?;
        let bridge = known.bridge.clone();
        if spec.state == FdbState::Permanent && !known.local_addresses {
            self.bridge_mut(master)?.local_addresses = true;
            // Before the entry: workers must look for it.
            self.publish();
            self.sync();
        }
        let (fdb, now) = (bridge.fdb(), self.clock.now());
        let mut done = Vec::with_capacity(stations.len());
        for &station in stations {
            let fixed = Fixed {
                station,
                port: number,
                state: spec.state,
                sticky: spec.sticky,
            };
            match fdb.fix(fixed, replace, now) {
                Ok(before) => done.push((station, before)),
                Err(error) => {
                    for (station, before) in done {
                        undo(fdb, station, number, before, now);
                    }
                    return Err(match error {
                        SetError::Exists => EngineError::FdbEntryExists(spec.address),
                        SetError::Full => EngineError::FdbFull(spec.address),
                    });
                }
            }
        }
        for &station in stations {
            let row = FdbRow {
                station,
                port: number,
                state: spec.state,
                sticky: spec.sticky,
                used: Duration::ZERO,
                updated: Duration::ZERO,
            };
            self.note_fdb(master, &row, false);
        }
        Ok(())
    }

    fn note_fdb(&mut self, bridge: u32, row: &FdbRow, gone: bool) {
        if let Some(entry) = self.fdb_entry(row) {
            let port = entry.port;
            self.changes.note(Change::Fdb {
                bridge,
                port,
                entry,
                gone,
            });
        }
    }

    /// Reads the whole table of a bridge.
    fn each_row(&self, bridge: u32, mut f: impl FnMut(&FdbRow)) -> Result<(), EngineError> {
        let (fdb, now) = (self.bridge(bridge)?.bridge.fdb(), self.clock.now());
        let mut from = Some(0);
        while let Some(place) = from {
            let (rows, next) = fdb.page(place, PAGE, now);
            rows.iter().for_each(&mut f);
            from = next;
        }
        Ok(())
    }

    /// An entry as it is shown; none behind a port that has just left.
    fn fdb_entry(&self, row: &FdbRow) -> Option<FdbEntry> {
        Some(FdbEntry {
            address: row.station.address,
            vlan: (row.station.vlan != 0).then_some(row.station.vlan),
            port: self.link_at(row.port)?.index,
            state: row.state,
            sticky: row.sticky,
            used: row.used,
            updated: row.updated,
        })
    }

    /// The stations that an address stands for behind a member of a bridge, at least one.
    fn stations(
        &self,
        index: u32,
        address: EthernetAddress,
        vlan: Option<u16>,
    ) -> Result<Vec<Station>, EngineError> {
        let (number, ..) = self.member(index)?;
        let port = self.slot(number);
        let vlans = &port.member.vlans;
        let station = |vlan| Station { vlan, address };
        match vlan {
            Some(vlan) if vlans.contains(vlan) => Ok(vec![station(vlan)]),
            Some(vlan) => Err(EngineError::NoVlan {
                port: port.device.name().to_string(),
                vlan,
            }),
            None => Ok([0]
                .into_iter()
                .chain(vlans.iter().map(|(vlan, _)| vlan))
                .map(station)
                .collect()),
        }
    }
}

/// Gives a station the entry back that it had before one was made behind `port`.
fn undo(fdb: &Fdb, station: Station, port: u16, before: Option<FdbRow>, now: Time) {
    let Some(before) = before else {
        fdb.unfix(station, port, now);
        return;
    };
    let fixed = Fixed {
        station,
        port: before.port,
        state: before.state,
        sticky: before.sticky,
    };
    let made = Duration::from_nanos(now.nanos()).saturating_sub(before.updated);
    // It takes the place of the other.
    let _ = fdb.fix(fixed, true, Time::ZERO + made);
}
