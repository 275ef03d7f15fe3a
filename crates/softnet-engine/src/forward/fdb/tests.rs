use super::*;

fn mac(n: u32) -> EthernetAddress {
    let b = n.to_be_bytes();
    EthernetAddress([2, 0, b[0], b[1], b[2], b[3]])
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn learns_moves_and_ages() {
    let fdb = Fdb::new(64, Duration::from_secs(10));
    let (a, b) = (mac(1), mac(2));
    assert_eq!(fdb.lookup(a, Time(0)), None);
    fdb.learn(a, 0, Time(0));
    fdb.learn(b, 7, Time(0));
    assert_eq!(fdb.lookup(a, Time(9 * SECOND)), Some(0));
    fdb.learn(a, 3, Time(5 * SECOND));
    assert_eq!(
        fdb.lookup(a, Time(14 * SECOND)),
        Some(3),
        "a station that moved is found"
    );
    assert_eq!(
        fdb.lookup(b, Time(10 * SECOND)),
        None,
        "an old entry is not used"
    );
    fdb.forget_port(3);
    assert_eq!(fdb.lookup(a, Time(5 * SECOND)), None);
    assert_eq!(fdb.len(), 1);
}

/// However many addresses appear behind one port, a quiet station behind another stays known,
/// and so does one that comes later.
#[test]
fn a_port_that_floods_addresses_evicts_only_its_own() {
    let fdb = Fdb::new(32, AGEING);
    let (quiet, late) = (mac(1), mac(2));
    fdb.learn(quiet, 0, Time(0));
    let flood = |start: u32| {
        for n in 0..10_000 {
            fdb.learn(
                mac(start + n),
                1,
                Time(SECOND + u64::from(n) * SECOND / 100),
            );
        }
    };
    flood(1_000);
    assert_eq!(fdb.lookup(quiet, Time(101 * SECOND)), Some(0));
    assert_eq!(fdb.len(), fdb.sets.len() * WAYS, "full");
    fdb.learn(late, 2, Time(101 * SECOND));
    flood(20_000);
    let known = [quiet, late].map(|a| fdb.lookup(a, Time(101 * SECOND)));
    assert_eq!(known, [Some(0), Some(2)]);
}

/// Ports that want more of a set than it has end with equal shares, whoever came first.
#[test]
fn ports_that_fill_a_set_share_it() {
    let fdb = Fdb::new(WAYS, AGEING);
    (0..100).for_each(|n| fdb.learn(mac(n), 7, Time(u64::from(n))));
    (100..200).for_each(|n| fdb.learn(mac(n), 8, Time(u64::from(n))));
    (200..300).for_each(|n| fdb.learn(mac(n), 7, Time(u64::from(n))));
    let of = |port: u64| {
        let entries = fdb.sets[0].entries.iter();
        entries
            .filter(|e| port_of(e.load(Ordering::Relaxed)) == port + 1)
            .count()
    };
    assert_eq!((of(7), of(8)), (2, 2));
}

/// Threads that see one address behind different ports make one entry for it.
#[test]
fn an_address_is_never_in_two_entries() {
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    for round in 0..rounds {
        let fdb = Fdb::new(WAYS, AGEING);
        std::thread::scope(|scope| {
            for port in 0..3 {
                let fdb = &fdb;
                scope.spawn(move || fdb.learn(mac(round), port, Time(0)));
            }
        });
        assert_eq!(fdb.len(), 1);
    }
}

#[test]
fn is_bounded_and_gives_up_the_oldest() {
    let fdb = Fdb::new(32, AGEING);
    let capacity = fdb.sets.len() * WAYS;
    for n in 0..10_000 {
        fdb.learn(mac(n), (n % 4) as u16, Time(u64::from(n) * SECOND));
    }
    assert!(fdb.len() <= capacity);
    assert_eq!(fdb.lookup(mac(9_999), Time(9_999 * SECOND)), Some(3));
}

#[test]
fn the_zero_address_is_an_address_like_any_other() {
    let fdb = Fdb::new(8, AGEING);
    assert_eq!(fdb.lookup(EthernetAddress([0; 6]), Time(0)), None);
    fdb.learn(EthernetAddress([0; 6]), 2, Time(0));
    assert_eq!(fdb.lookup(EthernetAddress([0; 6]), Time(0)), Some(2));
}

fn fixed(address: EthernetAddress, port: u16, state: FdbState) -> Fixed {
    Fixed {
        station: Station::new(address),
        port,
        state,
        sticky: false,
    }
}

/// All entries, in pages of `max`.
fn all(fdb: &Fdb, max: usize, now: Time) -> Vec<FdbRow> {
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(place) = from {
        let (rows, next) = fdb.page(place, max, now);
        assert!(rows.len() <= max && (next.is_none() || rows.len() == max));
        all.extend(rows);
        from = next;
    }
    all
}

/// As in the kernel: a station that moves takes its static entry along, unless it is sticky.
#[test]
fn static_entries_do_not_age_and_sticky_ones_do_not_move() {
    let fdb = Fdb::new(64, Duration::from_secs(10));
    let [still, sticky, dynamic] = [1, 2, 3].map(mac);
    let late = Time(1_000 * SECOND);
    fdb.fix(fixed(still, 1, FdbState::Static), false, Time(0))
        .unwrap();
    let stuck = Fixed {
        sticky: true,
        ..fixed(sticky, 1, FdbState::Static)
    };
    fdb.fix(stuck, false, Time(0)).unwrap();
    fdb.fix(fixed(dynamic, 1, FdbState::Dynamic), false, Time(0))
        .unwrap();
    assert_eq!(fdb.lookup(dynamic, Time(9 * SECOND)), Some(1));
    let known = [still, sticky, dynamic].map(|a| fdb.lookup(a, late));
    assert_eq!(known, [Some(1), Some(1), None]);
    for address in [still, sticky] {
        fdb.learn(address, 2, late);
    }
    let later = Time(2_000 * SECOND);
    assert_eq!(fdb.lookup(still, later), Some(2), "moved, and still static");
    assert_eq!(fdb.lookup(sticky, later), Some(1));
    // Confirmed by what the station sends.
    fdb.learn(still, 2, later);
    let rows = all(&fdb, 1, Time(2_007 * SECOND));
    let row = rows.iter().find(|row| row.station.address == still);
    let row = row.unwrap();
    assert_eq!((row.state, row.port), (FdbState::Static, 2));
    assert_eq!([row.used, row.updated], [7, 7].map(Duration::from_secs));
    let sticky: Vec<_> = rows.iter().filter(|row| row.sticky).collect();
    assert_eq!(sticky[0].updated, Duration::from_secs(2_007));
    assert_eq!(sticky[0].used, Duration::from_secs(7));
}

/// Learnt entries go with their port's link, set ones with the port.
#[test]
fn links_and_ports_that_go_take_different_entries() {
    let fdb = Fdb::new(64, AGEING);
    fdb.fix(fixed(mac(1), 1, FdbState::Static), false, Time(0))
        .unwrap();
    fdb.fix(fixed(mac(2), 1, FdbState::Permanent), false, Time(0))
        .unwrap();
    fdb.learn(mac(3), 1, Time(0));
    fdb.learn(mac(4), 2, Time(0));
    fdb.forget_learnt(1);
    assert_eq!(fdb.lookup(mac(3), Time(0)), None);
    assert_eq!((fdb.lookup(mac(1), Time(0)), fdb.len()), (Some(1), 3));
    fdb.forget_port(1);
    assert_eq!(fdb.lookup(mac(1), Time(0)), None);
    assert_eq!((fdb.lookup(mac(4), Time(0)), fdb.len()), (Some(2), 1));
}

/// One address in several VLANs is several stations, none of which a bridge without VLANs knows.
#[test]
fn a_station_is_an_address_in_a_vlan() {
    let fdb = Fdb::new(64, AGEING);
    let station = |vlan| Station {
        vlan,
        address: mac(1),
    };
    for vlan in [1, 2, 4094] {
        fdb.learn_in(station(vlan), vlan % 100, Time(0));
    }
    assert_eq!(fdb.lookup(mac(1), Time(0)), None);
    assert_eq!(fdb.find(station(0), Time(0)), None);
    let found = [1, 2, 3, 4094].map(|vlan| fdb.find(station(vlan), Time(0)).map(|hit| hit.port));
    assert_eq!(found, [Some(1), Some(2), None, Some(94)]);
    fdb.learn(mac(1), 7, Time(0));
    let hit = Hit {
        port: 7,
        local: false,
    };
    assert_eq!(fdb.find(station(0), Time(0)), Some(hit));
    let unfix = |port| fdb.unfix(station(2), port, Time(0));
    assert!(!unfix(1), "behind another port");
    assert!(unfix(2) && !unfix(2));
    let mut vlans: Vec<_> = all(&fdb, 2, Time(0))
        .iter()
        .map(|r| r.station.vlan)
        .collect();
    vlans.sort_unstable();
    assert_eq!(vlans, [0, 1, 4094]);
    let flushed = fdb.flush(|row| row.station.vlan != 0 && row.port == 1, Time(0));
    assert_eq!((flushed, fdb.len()), (1, 2));
}

/// An address of the bridge's own is not learnt behind a port.
#[test]
fn a_permanent_entry_is_local_and_stays() {
    let fdb = Fdb::new(64, AGEING);
    fdb.fix(fixed(mac(1), 1, FdbState::Permanent), false, Time(0))
        .unwrap();
    fdb.learn_in(Station::new(mac(1)), 2, Time(0));
    fdb.learn_in(Station::new(mac(1)), 1, Time(0));
    let hit = fdb.find(Station::new(mac(1)), Time(u64::MAX)).unwrap();
    assert_eq!((hit.port, hit.local, fdb.len()), (1, true, 1));
    // The other states take its place, and give it back.
    for (state, local) in [
        (FdbState::Static, false),
        (FdbState::Permanent, true),
        (FdbState::Dynamic, false),
    ] {
        fdb.fix(fixed(mac(1), 3, state), true, Time(0)).unwrap();
        let hit = fdb.find(Station::new(mac(1)), Time(0)).unwrap();
        assert_eq!((hit.port, hit.local, fdb.len()), (3, local, 1));
        assert_eq!(all(&fdb, 9, Time(0))[0].state, state);
    }
}

/// Static entries are not evicted, so a set may have no place left; what is too old counts as
/// absent.
#[test]
fn static_entries_keep_their_places() {
    let fdb = Fdb::new(1, Duration::from_secs(10));
    let places = fdb.sets.len() * WAYS;
    let exists = fdb.fix(fixed(mac(0), 1, FdbState::Static), false, Time(0));
    assert_eq!(exists, Ok(None));
    let again = fdb.fix(fixed(mac(0), 2, FdbState::Static), false, Time(0));
    assert_eq!(again, Err(SetError::Exists));
    for n in 1..places as u32 {
        fdb.learn(mac(100 + n), 2, Time(0));
        fdb.fix(fixed(mac(n), 1, FdbState::Static), false, Time(0))
            .unwrap();
    }
    let full = fdb.fix(fixed(mac(99), 1, FdbState::Static), false, Time(0));
    assert_eq!(full, Err(SetError::Full));
    (200..300).for_each(|n| fdb.learn(mac(n), 2, Time(0)));
    let known = (0..places as u32).filter(|&n| fdb.lookup(mac(n), Time(0)) == Some(1));
    assert_eq!(known.count(), places);
    fdb.flush(|_| true, Time(0));
    fdb.learn(mac(1), 2, Time(0));
    let old = fdb.fix(fixed(mac(1), 1, FdbState::Static), false, Time(10 * SECOND));
    assert_eq!(old, Ok(None));
}

/// A sticky entry that is too old keeps its station nowhere, and cannot be removed: the kernel's
/// would be gone.
#[test]
fn what_is_too_old_counts_as_absent() {
    let fdb = Fdb::new(64, Duration::from_secs(10));
    let sticky = |now| {
        let fixed = Fixed {
            sticky: true,
            ..fixed(mac(1), 1, FdbState::Dynamic)
        };
        fdb.fix(fixed, true, now).unwrap();
    };
    let learn = |port, now| {
        fdb.learn(mac(1), port, now);
        fdb.lookup(mac(1), now)
    };
    sticky(Time(0));
    assert_eq!(learn(2, Time(9 * SECOND)), Some(1));
    assert_eq!(learn(2, Time(10 * SECOND)), Some(2));
    sticky(Time(0));
    assert_eq!(learn(1, Time(10 * SECOND)), Some(1));
    assert_eq!(learn(2, Time(10 * SECOND)), Some(2), "no longer sticky");
    let unfix = |now| fdb.unfix(Station::new(mac(1)), 2, now);
    assert!(!unfix(Time(20 * SECOND)));
    assert_eq!(learn(2, Time(20 * SECOND)), Some(2));
    assert!(unfix(Time(29 * SECOND)));
    assert_eq!(fdb.len(), 0);
}

/// The kernel's bridge is a hub then.
#[test]
fn without_ageing_time_nothing_is_learnt() {
    let fdb = Fdb::new(64, AGEING);
    fdb.learn(mac(1), 1, Time(0));
    fdb.fix(fixed(mac(2), 1, FdbState::Static), false, Time(0))
        .unwrap();
    fdb.set_ageing(Duration::ZERO);
    fdb.learn(mac(1), 1, Time(0));
    fdb.learn(mac(3), 1, Time(0));
    let known = [1, 2, 3].map(|n| fdb.lookup(mac(n), Time(0)));
    assert_eq!(known, [None, Some(1), None]);
    fdb.set_ageing(Duration::from_millis(1));
    fdb.learn(mac(3), 1, Time(0));
    assert_eq!(
        fdb.lookup(mac(3), Time(0)),
        Some(1),
        "rounded up to a second"
    );
}

/// A table of the largest size that a bridge can be told to have: nearly all have a place, each
/// port's share is its own, and all that is known goes to a table of another size.
#[test]
fn a_million_addresses_are_known() {
    const MILLION: u32 = 1 << 20;
    let fdb = Fdb::new(MILLION as usize, AGEING);
    let port = |n: u32| (n % 1000) as u16;
    (0..MILLION).for_each(|n| fdb.learn(mac(n), port(n), Time(0)));
    let known = |fdb: &Fdb| {
        let known = (0..MILLION).filter(|&n| fdb.lookup(mac(n), Time(0)) == Some(port(n)));
        known.count() as u32
    };
    let all = known(&fdb);
    assert!(all > MILLION / 100 * 94, "{all}");
    // One port that floods addresses evicts its own alone, and those that had two in a set.
    (0..MILLION).for_each(|n| fdb.learn(mac(MILLION + n), 1000, Time(SECOND)));
    let left = known(&fdb);
    assert!(left > all / 100 * 94, "{left} of {all}");
    let small = Fdb::new(8192, AGEING);
    let fixed = |n: u32| Fixed {
        station: Station::new(mac(n)),
        port: 7,
        state: FdbState::Static,
        sticky: true,
    };
    for n in 0..100 {
        small.fix(fixed(n), true, Time(0)).unwrap();
    }
    (100..1000).for_each(|n| small.learn(mac(n), port(n), Time(SECOND)));
    let now = Time(2 * SECOND);
    let large = Fdb::new(MILLION as usize, AGEING);
    large.learn(mac(500), 9, now);
    large.take_over(&small, now).unwrap();
    let rows = |fdb: &Fdb| {
        let (mut rows, next) = fdb.page(0, 10_000, now);
        assert_eq!(next, None);
        rows.sort_by_key(|row| row.station.address);
        rows
    };
    let (before, after) = (rows(&small), rows(&large));
    assert_eq!(after.len(), before.len());
    for (before, after) in before.iter().zip(&after) {
        match before.station.address == mac(500) {
            true => assert_eq!((after.port, after.updated), (9, Duration::ZERO)),
            false => assert_eq!(before, after),
        }
    }
}

#[test]
fn a_table_too_small_for_what_is_fixed_is_refused() {
    let (large, small) = (Fdb::new(64, AGEING), Fdb::new(1, AGEING));
    for n in 0..5 {
        let station = Station::new(mac(n));
        let (port, state) = (1, FdbState::Static);
        let fixed = Fixed {
            station,
            port,
            state,
            sticky: false,
        };
        large.fix(fixed, false, Time(0)).unwrap();
    }
    assert!(small.take_over(&large, Time(0)).is_err());
}
