use loom::sync::Arc;
use loom::thread;

use super::entries::{FdbState, Fixed};
use super::*;

/// Two workers that see one address behind different ports, while its old port is flushed: at most
/// one entry is left, and it is of a port where the address was seen.
///
/// Fails if `Set::try_change` does not heed that the flag is taken.
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

/// A place changes hands while a worker looks up: from a station to another one, with another
/// address, in another VLAN. A lookup never combines the word of one with the tag of the other, to
/// find a station that was never there.
///
/// Fails without the second load in `Set::entry`, the Acquire fence before it or the Acquire of the
/// first load; and in `Set::write` without the clearing of the word, the Release fence behind it or
/// the Release of the last store.
#[test]
fn word_and_tag_belong_together() {
    let [a, b] = [1, 2].map(|n| EthernetAddress([2, 0, 0, 0, 0, n]));
    let station = |vlan, address| Station { vlan, address };
    let (old, new) = (station(10, a), station(20, b));
    for mixed in [station(20, a), station(10, b)] {
        loom::model(move || {
            // One set. What it holds first is too old for `new`, which takes its place.
            let fdb = Arc::new(Fdb::new(1, AGEING));
            fdb.learn_in(old, 1, Time(0));
            // The writer is the thread that runs first: loom looks for races with the last access
            // to a variable only, and the writer's own loads would hide the reader's.
            let reader = {
                let fdb = fdb.clone();
                thread::spawn(move || fdb.find(mixed, Time(0)))
            };
            fdb.learn_in(new, 2, Time(AGEING.as_nanos() as u64));
            assert_eq!(reader.join().unwrap(), None);
            assert_eq!(fdb.len(), 1);
            assert_eq!(fdb.find(new, Time(0)).map(|hit| hit.port), Some(2));
        });
    }
}

/// A link goes down while what was learnt behind it is made static: the static entry stays.
///
/// Fails if `Fdb::remove_words` stores 0 whatever the word is by then.
#[test]
fn a_static_entry_survives_the_link() {
    loom::model(|| {
        let fdb = Arc::new(Fdb::new(1, AGEING));
        let address = EthernetAddress([2, 0, 0, 0, 0, 1]);
        fdb.learn(address, 1, Time(0));
        let worker = {
            let fdb = fdb.clone();
            thread::spawn(move || fdb.forget_learnt(1))
        };
        let fixed = Fixed {
            station: Station::new(address),
            port: 1,
            state: FdbState::Static,
            sticky: false,
        };
        fdb.fix(fixed, true, Time(0)).unwrap();
        worker.join().unwrap();
        assert_eq!(fdb.lookup(address, Time(u64::MAX)), Some(1));
    });
}
