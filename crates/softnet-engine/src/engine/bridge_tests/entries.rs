//! Stations of bridges.

use super::*;

#[test]
fn entries_are_set_listed_and_removed() {
    let mut b = Bridged::new(3);
    let [p0, p1, p2] = [0, 1, 2].map(|n| b.net.ports[n].id);
    let (fixed, local) = (b.spec(7, FdbState::Static), b.spec(8, FdbState::Permanent));
    b.net.engine.add_fdb(p1, fixed, false).unwrap();
    // The port has a VLAN, by default.
    let known: Vec<_> = b
        .entries()
        .iter()
        .map(|e| (e.address, e.vlan, e.port, e.state))
        .collect();
    let entry = |vlan| (mac(7), vlan, p1, FdbState::Static);
    assert_eq!(known, [entry(None), entry(Some(1))]);
    assert_eq!(b.send(0, 7, 1), [1]);
    let exists = b.net.engine.add_fdb(p2, fixed, false);
    assert!(matches!(exists, Err(EngineError::FdbEntryExists(_))));
    b.net.engine.add_fdb(p2, fixed, true).unwrap();
    assert_eq!(b.send(0, 7, 1), [2]);
    // Frames for the bridge itself are received by nobody.
    b.net.engine.add_fdb(p1, local, false).unwrap();
    assert_eq!(b.send(0, 8, 1), [0; 0]);
    assert_eq!(b.net.engine.stats().drops(), [(DropReason::NoForward, 1)]);
    assert_eq!(b.send(2, 1, 7), [0], "learning goes on beside it");
    // All or none, VLAN by VLAN.
    let tagged_static = |station| FdbSpec {
        address: mac(station),
        vlan: Some(1),
        ..fixed
    };
    b.net.engine.add_fdb(p0, tagged_static(9), false).unwrap();
    let partly = b.net.engine.add_fdb(p0, b.spec(9, FdbState::Static), false);
    assert!(matches!(partly, Err(EngineError::FdbEntryExists(_))));
    assert_eq!(
        b.entries().iter().filter(|e| e.address == mac(9)).count(),
        1
    );
    let engine = &b.net.engine;
    let refused = |spec| engine.add_fdb(p0, spec, true).unwrap_err();
    let group = FdbSpec {
        address: EthernetAddress([1, 0, 0, 0, 0, 1]),
        ..fixed
    };
    assert!(matches!(refused(group), EngineError::BadStation(_)));
    let none = FdbSpec {
        vlan: Some(2),
        ..fixed
    };
    assert!(matches!(refused(none), EngineError::NoVlan { vlan: 2, .. }));
    let sticky = FdbSpec {
        sticky: true,
        ..local
    };
    assert!(matches!(refused(sticky), EngineError::StickyPermanent));
    let missing = engine.remove_fdb(p0, mac(7), None);
    assert!(
        matches!(missing, Err(EngineError::NoFdbEntry(_))),
        "behind another port"
    );
    engine.remove_fdb(p2, mac(7), None).unwrap();
    // A static entry outlives its VLAN, and can still be removed.
    engine.add_fdb(p2, tagged_static(10), false).unwrap();
    engine.remove_vlans(p2, 1..=1).unwrap();
    engine.remove_fdb(p2, mac(10), Some(1)).unwrap();
    let learnt = |entry: &FdbEntry| entry.state == FdbState::Dynamic;
    assert_eq!(engine.flush_fdb(b.bridge, learnt).unwrap(), 1);
    engine.set_master(p1, None).unwrap();
    let left: Vec<_> = b.entries().iter().map(|e| e.address).collect();
    assert_eq!(left, [mac(9)], "static entries leave with the port");
    b.net.stop();
}

/// Where a station of several VLANs cannot have an entry in one of them, those in the others are
/// what they were.
#[test]
fn a_station_is_fixed_in_all_vlans_or_none() {
    let b = Bridged::new(2);
    let [p0, p1] = [0, 1].map(|port| b.net.ports[port].id);
    b.add_vlans(0, 7..=7, TAGGED);
    let engine = &b.net.engine;
    // Static entries fill sets, until a station has no place in VLAN 7, but has one without a VLAN,
    // where it gets an entry behind the other port. (Which sets these are is random.)
    let address = |n: u32| {
        let [_, b, c, d] = n.to_be_bytes();
        EthernetAddress([2, 0, 1, b, c, d])
    };
    let tagged = |n| FdbSpec {
        address: address(n),
        vlan: Some(7),
        state: FdbState::Static,
        sticky: false,
    };
    let untagged = |n| FdbSpec {
        vlan: None,
        ..tagged(n)
    };
    let fits = |port, spec| match engine.add_fdb(port, spec, false) {
        Ok(()) => true,
        Err(EngineError::FdbFull(_)) => false,
        Err(other) => panic!("{other}"),
    };
    // The other port has no VLAN, and so the station has no entry in VLAN 1 there.
    engine.remove_vlans(p1, 1..=1).unwrap();
    let full = (0..100_000).find(|&n| !fits(p0, tagged(n)) && fits(p1, untagged(n)));
    let full = full.expect("the table has an end");
    let (full, untagged) = (tagged(full), untagged(full));
    let of_vlan = |vlan| engine.fdb_entry(b.bridge, full.address, vlan).unwrap();
    let before = of_vlan(None).expect("it was made");
    engine.take_changes();
    let refused = engine.add_fdb(p0, untagged, true);
    assert!(matches!(refused, Err(EngineError::FdbFull(_))));
    assert_eq!(
        of_vlan(None).map(|entry| (entry.port, entry.state)),
        Some((p1, before.state))
    );
    assert_eq!((of_vlan(Some(1)), of_vlan(Some(7))), (None, None));
    assert_eq!(engine.take_changes().0, []);
    b.net.stop();
}

/// A table of another size takes over what is known, and frames find their way.
#[test]
fn a_table_of_another_size_knows_what_the_one_before_did() {
    let mut bench = Bridged::new(3);
    assert_eq!(bench.send(2, 0, 9), [0, 1]);
    let fixed = bench.spec(8, FdbState::Static);
    let port = bench.net.ports[1].id;
    bench.net.engine.add_fdb(port, fixed, false).unwrap();
    for size in [1 << 20, 16] {
        bench.options(|options| options.fdb_max_learned = size);
        for (station, port) in [(9, 2), (8, 1)] {
            let got = bench.send(0, station, 7);
            assert_eq!(got, [port], "station {station}, {size}");
        }
    }
    let refused = |size| {
        let (engine, bridge) = (&bench.net.engine, bench.bridge);
        let options = BridgeOptions {
            fdb_max_learned: size,
            ..engine.bridge(bridge).unwrap().options
        };
        let error = engine.set_bridge(bridge, options).unwrap_err();
        assert_eq!(engine.bridge(bridge).unwrap().options.fdb_max_learned, 16);
        error.to_string()
    };
    assert!(refused(0).ends_with("1 to 1048576 addresses, not 0"));
    assert!(refused((1 << 20) + 1).ends_with("not 1048577"));
}
