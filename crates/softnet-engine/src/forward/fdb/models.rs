use loom::sync::Arc;
use loom::thread;

use super::entries::{FdbState, Fixed};
use super::*;

/// Two workers that see one address behind different ports, while its old port is flushed: at most
/// one entry is left, and it is of a port where the address was seen.
#[test]
fn an_address_has_one_entry() {
    loom::model(|| {
        let fdb = Arc::new(Fdb::new(1, AGEING));
        let address = EthernetAddress([2, 0, 0, 0, 0, 1]);
        fdb.learn(address, 9, Time(0));
        let threads = [1, 2].map(|port| {
            let fdb = fdb.clone();
            thread::spawn(move || fdb.learn(address, port, Time(0)))
        });
        fdb.forget_port(9);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(fdb.len() <= 1, "one address in two entries");
        let port = fdb.lookup(address, Time(0));
        assert!(matches!(port, None | Some(1 | 2)), "{port:?}");
    });
}

fn station(vlan: u16) -> Station {
    Station {
        vlan,
        address: EthernetAddress([2, 0, 0, 0, 0, 1]),
    }
}

/// A place changes hands between two VLANs of one address while a worker looks both up: it never
/// combines the word of one with the tag of the other.
#[test]
fn word_and_tag_belong_together() {
    loom::model(|| {
        let fdb = Arc::new(Fdb::new(1, AGEING));
        fdb.learn_in(station(10), 1, Time(0));
        let writer = {
            let fdb = fdb.clone();
            thread::spawn(move || {
                assert!(fdb.unfix(station(10), 1));
                // The same set, as there is one, and the same place.
                fdb.learn_in(station(20), 2, Time(0));
            })
        };
        for (vlan, port) in [(20, 2), (10, 1)] {
            let found = fdb.find(station(vlan), Time(0));
            assert!(
                found.is_none_or(|hit| hit.port == port),
                "{vlan}: {found:?}"
            );
        }
        writer.join().unwrap();
        assert_eq!(fdb.find(station(20), Time(0)).map(|hit| hit.port), Some(2));
    });
}

/// A link goes down while what was learnt behind it is made static: the static entry stays.
#[test]
fn a_static_entry_survives_the_link() {
    loom::model(|| {
        let fdb = Arc::new(Fdb::new(1, AGEING));
        fdb.learn_in(station(0), 1, Time(0));
        let worker = {
            let fdb = fdb.clone();
            thread::spawn(move || fdb.forget_learnt(1))
        };
        let fixed = Fixed {
            station: station(0),
            port: 1,
            state: FdbState::Static,
            sticky: false,
        };
        fdb.fix(fixed, true, Time(0)).unwrap();
        worker.join().unwrap();
        assert_eq!(fdb.lookup(station(0).address, Time(u64::MAX)), Some(1));
    });
}
