//! loom models of the word and of its change, with the shipped types. What is asserted is what has
//! been drawn: none twice, none lost, and all threads agree on what a new epoch begins with.

use loom::thread;

use super::*;

/// A second's worth of tokens comes due after the model: nothing is earned meanwhile.
const NOW: Time = Time(1_000_000_000);

fn rate(burst: u64) -> Arc<SharedRate> {
    let spec = RateSpec {
        rate: 1,
        burst,
        unit: 10,
    };
    SharedRate::new(spec, &Members::new(3))
}

fn with_burst(shared: &SharedRate, burst: u64) -> RateSpec {
    RateSpec {
        burst,
        ..shared.spec()
    }
}

/// Tokens in the bucket and in pots: those that were there but for those that were spent.
#[test]
fn what_is_drawn_is_drawn_once() {
    loom::model(|| {
        let shared = rate(25);
        let [mut a, mut b] = [0, 1].map(|instance| shared.pot(instance));
        let other = thread::spawn(move || {
            let ok = b.reserve(10, 1, NOW).is_ok();
            (ok, b)
        });
        let first = a.reserve(10, 1, NOW).is_ok();
        let (second, b) = other.join().unwrap();
        assert!(first && second);
        assert_eq!(a.credit() + b.credit() + shared.tokens(NOW), 25);
    });
}

/// Of two that need what only one can have, one gets it and the other a turn; with a third that
/// pours back what it has.
#[test]
fn one_draws_one_reserves_one_pours_back() {
    loom::model(|| {
        let shared = rate(18);
        let [mut a, mut b, mut c] = [0, 1, 2].map(|instance| shared.pot(instance));
        assert_eq!(c.reserve(5, 1, NOW), Ok(()));
        let poured = c.credit();
        let back = thread::spawn(move || drop(c));
        let other = thread::spawn(move || {
            let ok = b.reserve(10, 1, NOW);
            (ok, b)
        });
        let first = a.reserve(10, 1, NOW);
        back.join().unwrap();
        let (second, b) = other.join().unwrap();
        // 18 are there, 20 are needed.
        let late = [first, second].iter().filter(|ok| ok.is_err()).count();
        assert!(late > 0, "{poured}");
        assert_eq!(a.credit() + b.credit() + shared.tokens(NOW), 18);
    });
}

/// While the parameters change each draw is from the old bucket or from the new one.
#[test]
fn a_change_loses_nothing() {
    loom::model(|| {
        let shared = rate(100);
        let [mut a, mut b] = [0, 1].map(|instance| shared.pot(instance));
        let (x, y) = (shared.clone(), shared.clone());
        let change = thread::spawn(move || x.set(with_burst(&y, 60), NOW));
        let other = thread::spawn(move || {
            let ok = b.reserve(50, 1, NOW);
            (ok, b)
        });
        let first = a.reserve(50, 1, NOW);
        change.join().unwrap();
        let (second, b) = other.join().unwrap();
        // Before the change 100 were there, after it at most 60 that were left.
        let tokens = shared.tokens(NOW);
        let held = a.credit() + b.credit() + tokens;
        assert!([100, 60].contains(&held), "{held} {first:?} {second:?}");
        assert_eq!(tokens < 0, first.is_err() || second.is_err());
    });
}

/// Two changes while an instance draws: it goes through both, and pours back into the last.
#[test]
fn changes_follow_each_other() {
    loom::model(|| {
        let shared = rate(100);
        let mut a = shared.pot(0);
        let x = shared.clone();
        let change = thread::spawn(move || {
            x.set(with_burst(&x, 200), NOW);
            x.set(with_burst(&x, 300), NOW);
        });
        assert_eq!(a.reserve(30, 1, NOW), Ok(()));
        drop(a);
        change.join().unwrap();
        assert_eq!(shared.tokens(NOW), 100);
    });
}
