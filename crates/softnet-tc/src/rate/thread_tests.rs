//! Threads at once, also under miri.

use super::*;

/// Units spent, in pots and left add up to what there was, while pots come and go and the
/// parameters change.
#[test]
fn threads_share_what_there_is() {
    const THREADS: usize = 3;
    let rounds = if cfg!(miri) { 200 } else { 20_000 };
    let spec = RateSpec {
        rate: 1000,
        burst: 1 << 30,
        unit: 100,
    };
    let shared = SharedRate::new(spec, &Members::new(THREADS));
    let now = Time(1_000_000_000);
    let spent: u64 = std::thread::scope(|scope| {
        let run = |instance| {
            let shared = &shared;
            move || {
                let (mut pot, mut spent) = (shared.pot(instance), 0);
                for round in 0..rounds {
                    let units = 1 + round % 100;
                    if pot.reserve(units, 1, now).is_ok() {
                        pot.spend(units);
                        spent += units;
                    }
                    if round % 10 == 0 {
                        drop(pot);
                        pot = shared.pot(instance);
                    }
                }
                spent
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|i| scope.spawn(run(i))).collect();
        for round in 0..rounds / 10 {
            // Never less than what there is: nothing overflows.
            let burst = (1 << 30) + (round % 2);
            shared.set(RateSpec { burst, ..spec }, now);
            std::thread::yield_now();
        }
        shared.set(spec, now);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(spent > 0);
    assert_eq!(shared.tokens(now) + spent as i64, 1 << 30);
}
