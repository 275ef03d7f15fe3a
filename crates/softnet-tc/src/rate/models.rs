//! loom models of the word and of its change, with the shipped types. What is asserted is what has
//! been drawn: none twice, none lost, and all threads agree on the parameters.

use loom::thread;

use super::word::{Draw, Lack};
use super::*;

/// A second's worth of tokens comes due after the model: nothing is earned meanwhile.
const NOW: Time = Time(1_000_000_000);

fn spec(rate: u64, burst: u64, unit: u64) -> RateSpec {
    RateSpec { rate, burst, unit }
}

fn rate(burst: u64) -> Arc<SharedRate> {
    SharedRate::new(spec(1, burst, 10), &Members::new(3))
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

/// Two need what only one can have: one gets it and the other a turn; with a third that pours back
/// what it has.
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

/// One gives back what it has for what it needs, while another draws: none is there twice, and
/// none is lost.
#[test]
fn an_exchange_is_one_step() {
    loom::model(|| {
        let shared = rate(25);
        let drawn = shared.word.draw(8, 8, Lack::Nothing, NOW);
        assert_eq!(drawn, Draw::Granted(8));
        let x = shared.clone();
        // There is never so much for the other: what is given back is drawn again in the same step.
        let other = thread::spawn(move || x.word.draw(20, 20, Lack::Nothing, NOW));
        let held = match shared.word.exchange(8, 10, 20, Lack::Nothing, NOW) {
            Draw::Granted(units) => units,
            draw => panic!("{draw:?}"),
        };
        assert_eq!((held, other.join().unwrap()), (20, Draw::Lacking));
        assert_eq!(held as i64 + shared.tokens(NOW), 25);
    });
}

/// While the parameters change each draw is from the old bucket or from the new one.
/// INV-RATE-2.
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

/// Who reads while two changes rewrite both slots finds parameters that belong together. The
/// changes are made by the thread that runs first: of those that touch a word loom remembers the
/// last alone, and a change loads the word itself before it swaps it, so it would not see that it
/// matters when the reader loads it.
/// INV-RATE-3.
#[test]
fn parameters_are_read_whole() {
    loom::model(|| {
        let shared = SharedRate::new(spec(10, 10, 10), &Members::new(1));
        let x = shared.clone();
        let reader = thread::spawn(move || x.word.view());
        shared.set(spec(20, 20, 20), NOW);
        shared.set(spec(30, 30, 30), NOW);
        let view = reader.join().unwrap();
        let n = 10 * (view.number + 1);
        assert_eq!(view.spec, spec(n, n, n));
        assert_eq!(shared.word.view().number, 2);
    });
}

/// A change comes with a time before that of a draw: the draw is no debt at the lower rate.
#[test]
fn a_late_change_makes_no_debt() {
    loom::model(|| {
        let shared = SharedRate::new(spec(1_000_000, 100, 10), &Members::new(1));
        let (x, mut a) = (shared.clone(), shared.pot(0));
        let change = thread::spawn(move || x.set(spec(1, 100, 10), NOW));
        let later = NOW.plus_nanos(1_000_000_000);
        let drawn = a.reserve(30, 1, later);
        change.join().unwrap();
        assert_eq!(drawn, Ok(()));
        assert_eq!(shared.tokens(later) + a.credit(), 100);
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

/// Two changes at once are each whole, and one is the last.
#[test]
fn changes_at_once_follow_each_other() {
    loom::model(|| {
        let shared = SharedRate::new(spec(10, 10, 10), &Members::new(1));
        let x = shared.clone();
        let change = thread::spawn(move || x.set(spec(20, 20, 20), NOW));
        shared.set(spec(30, 30, 30), NOW);
        change.join().unwrap();
        let view = shared.word.view();
        assert_eq!(view.number, 2);
        assert!(
            [spec(20, 20, 20), spec(30, 30, 30)].contains(&view.spec),
            "{view:?}"
        );
    });
}

/// Two draw at different times, then comes a change with a time before both.
#[test]
fn the_latest_of_two_draws_is_known() {
    loom::model(|| {
        let shared = SharedRate::new(spec(1_000_000, 100, 10), &Members::new(1));
        let x = shared.clone();
        let [first, last] = [1, 2].map(|s| NOW.plus_nanos(s * 1_000_000_000));
        let other = thread::spawn(move || x.word.draw(10, 10, Lack::Nothing, last));
        let draws = [
            shared.word.draw(10, 10, Lack::Nothing, first),
            other.join().unwrap(),
        ];
        assert_eq!(draws, [Draw::Granted(10); 2]);
        shared.set(spec(1, 100, 10), NOW);
        assert!(shared.tokens(last) >= 80, "{}", shared.tokens(last));
    });
}

/// Nobody drew until the count has wrapped, to where it looks like one of an empty bucket.
#[test]
fn who_draws_first_after_a_long_time_makes_no_debt() {
    loom::model(|| {
        let spec = spec(1_000_000_000_000, 1000, 10);
        let shared = SharedRate::new(spec, &Members::new(1));
        // 984 units before 2^54.
        let now = Time(18_014_398_509_481);
        let x = shared.clone();
        let other = thread::spawn(move || x.word.draw(10, 10, Lack::Nothing, now));
        let first = shared.word.draw(10, 10, Lack::Nothing, now);
        let draws = [first, other.join().unwrap()];
        assert_eq!(draws, [Draw::Granted(10); 2]);
        assert_eq!(shared.tokens(now), 980);
    });
}
