//! Entries of a bridge's forwarding database: set, removed, listed.

use std::time::Duration;

use super::state::State;
use super::{BridgeId, Engine, EngineError, PortId};
use crate::forward::{FdbRow, FdbState, Fixed, SetError, Station};
use crate::rx::RxQueue;
use softnet::tx::TxRing;
use softnet::wire::EthernetAddress;

/// An entry of a bridge's forwarding database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// The station's address.
    pub address: EthernetAddress,
    /// Its VLAN, in a bridge that filters VLANs.
    pub vlan: Option<u16>,
    /// The port that it is behind.
    pub port: PortId,
    /// How long the entry lasts.
    pub state: FdbState,
    /// Learning does not move it to another port.
    pub sticky: bool,
    /// How long ago a frame was last sent there, in whole seconds.
    pub used: Duration,
    /// How long ago it was made or last confirmed, in whole seconds.
    pub updated: Duration,
}

/// An entry to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbSpec {
    /// The station's address.
    pub address: EthernetAddress,
    /// Its VLAN. None: no VLAN, and each VLAN of the port.
    pub vlan: Option<u16>,
    /// How long the entry lasts.
    pub state: FdbState,
    /// Learning does not move it to another port.
    pub sticky: bool,
}

impl<Q: RxQueue + 'static, R: TxRing + 'static> Engine<Q, R> {
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
    pub fn add_fdb(&self, port: PortId, spec: FdbSpec, replace: bool) -> Result<(), EngineError> {
        self.fix(port, spec, replace, true)
    }

    /// As [`add_fdb`](Engine::add_fdb) with `replace`, but without a VLAN in no VLAN alone.
    pub(crate) fn add_station(&self, port: PortId, spec: FdbSpec) -> Result<(), EngineError> {
        self.fix(port, spec, true, false)
    }

    fn fix(
        &self,
        port: PortId,
        spec: FdbSpec,
        replace: bool,
        in_vlans: bool,
    ) -> Result<(), EngineError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut stations = self.stations(state, port, spec.address, spec.vlan)?;
        if !in_vlans {
            stations.truncate(1);
        }
        if spec.address.is_multicast() || spec.address.is_zero() {
            return Err(EngineError::BadStation(spec.address));
        }
        if spec.sticky && spec.state == FdbState::Permanent {
            return Err(EngineError::StickyPermanent);
        }
        let (index, known) = self.bridge_of(state, port)?;
        let bridge = known.bridge.clone();
        if spec.state == FdbState::Permanent && !known.local_addresses {
            if let Some(known) = &mut state.bridges[index] {
                known.local_addresses = true;
            }
            // Before the entry: workers must look for it.
            self.publish(state);
            state.sync();
        }
        let now = self.clock.now();
        for (done, &station) in stations.iter().enumerate() {
            let fixed = Fixed {
                station,
                port: port.index,
                state: spec.state,
                sticky: spec.sticky,
            };
            if let Err(error) = bridge.fdb().fix(fixed, replace, now) {
                for &station in stations[..done].iter().filter(|_| !replace) {
                    bridge.fdb().unfix(station, port.index, now);
                }
                return Err(match error {
                    SetError::Exists => EngineError::FdbEntryExists(spec.address),
                    SetError::Full => EngineError::FdbFull(spec.address),
                });
            }
        }
        Ok(())
    }

    /// Removes an entry for a station behind a port, learnt or added; without a VLAN the one of no
    /// VLAN and those of each VLAN of the port. One of a VLAN that the port no longer has can be
    /// removed, too.
    ///
    /// # Errors
    /// If there is no such port, it is part of no bridge, or there is no such entry.
    pub fn remove_fdb(
        &self,
        port: PortId,
        address: EthernetAddress,
        vlan: Option<u16>,
    ) -> Result<(), EngineError> {
        let state = self.state();
        let stations = match vlan {
            Some(vlan) => vec![Station { vlan, address }],
            None => self.stations(&state, port, address, None)?,
        };
        let (_, bridge) = self.bridge_of(&state, port)?;
        let fdb = bridge.bridge.fdb();
        let now = self.clock.now();
        let removed = stations.iter().filter(|&&s| fdb.unfix(s, port.index, now));
        if removed.count() == 0 {
            return Err(EngineError::NoFdbEntry(address));
        }
        Ok(())
    }

    /// Removes the entries that `select` chooses, and says how many.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn flush_fdb(
        &self,
        bridge: BridgeId,
        select: impl Fn(&FdbEntry) -> bool,
    ) -> Result<usize, EngineError> {
        let state = self.state();
        let fdb = self.bridge(&state, bridge)?.bridge.fdb();
        let select = |row: &FdbRow| self.fdb_entry(&state, row).is_some_and(|e| select(&e));
        Ok(fdb.flush(select, self.clock.now()))
    }

    /// At most `max` entries of a bridge, and where to go on for more; start `from` 0. An entry
    /// that is there from the first page to the last is in one of them, and once. Stops no worker.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn fdb_entries(
        &self,
        bridge: BridgeId,
        from: usize,
        max: usize,
    ) -> Result<(Vec<FdbEntry>, Option<usize>), EngineError> {
        let state = self.state();
        let fdb = self.bridge(&state, bridge)?.bridge.fdb();
        let (rows, next) = fdb.page(from, max, self.clock.now());
        let entries = rows.iter().filter_map(|row| self.fdb_entry(&state, row));
        Ok((entries.collect(), next))
    }

    /// None behind a port that has just left.
    fn fdb_entry(&self, state: &State<Q, R>, row: &FdbRow) -> Option<FdbEntry> {
        let port = state.ports.get(usize::from(row.port))?.as_ref()?;
        Some(FdbEntry {
            address: row.station.address,
            vlan: (row.station.vlan != 0).then_some(row.station.vlan),
            port: self.port_id(row.port, port.serial),
            state: row.state,
            sticky: row.sticky,
            used: row.used,
            updated: row.updated,
        })
    }

    /// The stations that an address stands for behind a member of a bridge.
    fn stations(
        &self,
        state: &State<Q, R>,
        port: PortId,
        address: EthernetAddress,
        vlan: Option<u16>,
    ) -> Result<Vec<Station>, EngineError> {
        let known = self.port(state, port)?;
        let name = || known.device.name().to_string();
        let Some(membership) = &known.bridge else {
            return Err(EngineError::NotInBridge(name()));
        };
        let vlans = &membership.member.vlans;
        let station = |vlan| Station { vlan, address };
        match vlan {
            Some(vlan) if vlans.contains(vlan) => Ok(vec![station(vlan)]),
            Some(vlan) => Err(EngineError::NoVlan { port: name(), vlan }),
            None => Ok([0]
                .into_iter()
                .chain(vlans.iter().map(|(vlan, _)| vlan))
                .map(station)
                .collect()),
        }
    }
}
