//! The forwarding database as the control path sees it: entries are set, removed and listed, while
//! workers learn and look up.

use std::time::Duration;

use super::{
    Changing, Entry, Fdb, LOCAL, STATIC, STICKY, Set, Station, VLAN, WAYS, is_tagged, port_of,
    seconds,
};
use softnet::sync::primitive::{Ordering, thread};
use softnet::time::Time;
use softnet::wire::EthernetAddress;

/// Lifetime of an entry of the forwarding database, in the words of `bridge fdb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdbState {
    /// Does not age, and the address ends at the bridge: what is sent there is not forwarded.
    Permanent,
    /// Does not age.
    Static,
    /// Ages, as what was learnt.
    Dynamic,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FdbRow {
    pub(crate) station: Station,
    pub(crate) port: u16,
    pub(crate) state: FdbState,
    /// Learning does not move it.
    pub(crate) sticky: bool,
    /// Time since a packet was sent there.
    pub(crate) used: Duration,
    /// Time since it was made or confirmed.
    pub(crate) updated: Duration,
}

/// Why an entry cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetError {
    Exists,
    /// Only static entries are where it would have its place.
    Full,
}

/// An entry that is to be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    pub(crate) station: Station,
    pub(crate) port: u16,
    pub(crate) state: FdbState,
    pub(crate) sticky: bool,
}

impl Fixed {
    fn entry(&self) -> Entry {
        let local = self.state == FdbState::Permanent;
        let flags = if local { LOCAL } else { 0 } | if self.sticky { STICKY } else { 0 };
        let mut entry = Entry::new(self.station, self.port, flags);
        if self.state != FdbState::Dynamic {
            entry.word |= STATIC;
        }
        entry
    }
}

impl FdbRow {
    fn entry(&self) -> Entry {
        let fixed = Fixed {
            station: self.station,
            port: self.port,
            state: self.state,
            sticky: self.sticky,
        };
        fixed.entry()
    }
}

impl Fdb {
    /// Makes an entry, in place of one that the address has if `replace`, which is returned.
    pub(crate) fn fix(
        &self,
        fixed: Fixed,
        replace: bool,
        now: Time,
    ) -> Result<Option<FdbRow>, SetError> {
        let Fixed { station, .. } = fixed;
        let (set, now) = (self.set(station.key()), seconds(now));
        let new = fixed.entry();
        let _changing = set.change();
        let seen = |way: usize| set.seen[way].load(Ordering::Relaxed);
        let mut before = None;
        let way = match set.find(station) {
            Some((way, word, _)) if !replace && self.is_fresh(word, seen(way), now) => {
                return Err(SetError::Exists);
            }
            Some((way, ..)) => {
                before = self.row(set, way, now);
                way
            }
            None => {
                let learnt = |&way: &usize| set.entries[way].load(Ordering::Relaxed) & STATIC == 0;
                let oldest = || (0..WAYS).filter(learnt).min_by_key(|&way| seen(way));
                let way = self.place(set, new.word, now).or_else(oldest);
                way.ok_or(SetError::Full)?
            }
        };
        set.used[way].store(now, Ordering::Relaxed);
        set.write(way, new, now);
        Ok(before)
    }

    /// Takes over what another table knows, but for addresses that are in this one; of what is
    /// learnt, as much as has a place.
    ///
    /// # Errors
    /// The first address whose static entry has no place here.
    pub(crate) fn take_over(&self, other: &Fdb, now: Time) -> Result<(), EthernetAddress> {
        let second = seconds(now);
        for statics in [true, false] {
            for (set, way) in other.places() {
                let row = other.row(set, way, second);
                let is_due = |row: &FdbRow| (row.state != FdbState::Dynamic) == statics;
                if let Some(row) = row.filter(is_due) {
                    self.insert(&row, second)?;
                }
            }
        }
        Ok(())
    }

    fn insert(&self, row: &FdbRow, now: u32) -> Result<(), EthernetAddress> {
        let set = self.set(row.station.key());
        let new = row.entry();
        let _changing = set.change();
        if set.find(row.station).is_some() {
            return Ok(());
        }
        let ago = |time: Duration| now.saturating_sub(time.as_secs() as u32);
        match self.place(set, new.word, now) {
            Some(way) => {
                set.used[way].store(ago(row.used), Ordering::Relaxed);
                set.write(way, new, ago(row.updated));
                Ok(())
            }
            None if row.state == FdbState::Dynamic => Ok(()),
            None => Err(row.station.address),
        }
    }

    fn places(&self) -> impl Iterator<Item = (&Set, usize)> {
        let sets = self.sets.iter();
        sets.flat_map(|set| (0..WAYS).map(move |way| (&**set, way)))
    }

    /// Removes an address's entry if it is behind `port`. False if there is none.
    pub(crate) fn unfix(&self, station: Station, port: u16, now: Time) -> bool {
        let (set, now) = (self.set(station.key()), seconds(now));
        let _changing = set.change();
        let found = set.find(station);
        let found = found.filter(|&(_, word, _)| port_of(word) == u64::from(port) + 1);
        if let Some((way, ..)) = found {
            set.entries[way].store(0, Ordering::Relaxed);
        }
        found.is_some_and(|(way, word, _)| {
            self.is_fresh(word, set.seen[way].load(Ordering::Relaxed), now)
        })
    }

    /// Removes the entries that `select` chooses, and says how many.
    pub(crate) fn flush(&self, select: impl Fn(&FdbRow) -> bool, now: Time) -> usize {
        let now = seconds(now);
        let mut removed = 0;
        for set in &self.sets {
            let _changing = set.change();
            for way in 0..WAYS {
                if self.row(set, way, now).is_some_and(|row| select(&row)) {
                    set.entries[way].store(0, Ordering::Relaxed);
                    removed += 1;
                }
            }
        }
        removed
    }

    /// At most `max` entries from `place` on, and the place to go on from unless that is all. An
    /// entry that is there all the time is in one page, and once.
    pub(crate) fn page(
        &self,
        place: usize,
        max: usize,
        now: Time,
    ) -> (Vec<FdbRow>, Option<usize>) {
        let now = seconds(now);
        let mut rows = Vec::new();
        for place in place..self.sets.len().saturating_mul(WAYS) {
            if let Some(row) = self.row(&self.sets[place / WAYS], place % WAYS, now) {
                if rows.len() == max {
                    return (rows, Some(place));
                }
                rows.push(row);
            }
        }
        (rows, None)
    }

    /// The entry at a place, unless it is too old.
    fn row(&self, set: &Set, way: usize, now: u32) -> Option<FdbRow> {
        let (word, tag) = set.entry(way)?;
        let seen = set.seen[way].load(Ordering::Relaxed);
        if !self.is_fresh(word, seen, now) {
            return None;
        }
        let tagged = is_tagged(word);
        let [_, _, mut first, b, c, d, e, f] = (word >> 16).to_be_bytes();
        first &= 0xFE;
        let state = match (word & STATIC != 0, tagged && tag & LOCAL != 0) {
            (_, true) => FdbState::Permanent,
            (true, false) => FdbState::Static,
            (false, false) => FdbState::Dynamic,
        };
        let since = |second: u32| Duration::from_secs(now.saturating_sub(second).into());
        Some(FdbRow {
            station: Station {
                vlan: if tagged { (tag & VLAN) as u16 } else { 0 },
                address: EthernetAddress([first, b, c, d, e, f]),
            },
            port: port_of(word) as u16 - 1,
            state,
            sticky: tag & STICKY != 0,
            used: since(set.used[way].load(Ordering::Relaxed)),
            updated: since(seen),
        })
    }
}

impl Set {
    /// Waits until nobody else makes or moves an entry.
    fn change(&self) -> Changing<'_> {
        loop {
            match self.try_change() {
                Some(changing) => return changing,
                None => thread::yield_now(),
            }
        }
    }
}
