//! Classes that change while they share, and the tokens that they show.

use super::*;
use crate::account::ClassCounters;

/// Nobody below it asks for what it asked for as a leaf.
#[test]
fn a_leaf_that_becomes_an_inner_class_asks_for_nothing() {
    let now = Time(SECOND);
    let sharing = sharing(0, &Arc::new(SharedRates::new(1)));
    let mut scheduler = Scheduler::new(10, Some(sharing));
    for (slot, above) in [(0, None), (1, Some(0)), (2, Some(1))] {
        let minor = 1 + slot as u16;
        scheduler.add(slot, minor, above, &class(1000, RATE), Arc::default(), now);
        scheduler.activate(slot);
        scheduler.change_mode(slot, Mode::MayBorrow, MS, now);
        scheduler.check_asked();
    }
}

/// It waits for a minute, and then the rate is another.
#[test]
fn a_class_that_waits_learns_of_a_higher_rate() {
    let mut cores = Cores::new(2, 29);
    let slow = HtbClassSpec {
        burst: 0,
        cburst: 0,
        ..HtbClassSpec::new(125)
    };
    cores.add(1, None, slow);
    cores.load(1, &[1, 1]);
    cores.run_until(SECOND + 10 * MS);
    let begin = SECOND + 10 * MS;
    cores.change(1, class(RATE, RATE), begin);
    (0..2).for_each(|core| cores.set_flows(core, 1, 1, begin));
    cores.run_until(begin + SECOND);
    assert!(
        cores.total(begin) >= 0.9 * RATE as f64,
        "{}",
        cores.total(begin)
    );
}

/// Tokens in `tc -s class`: the bucket and this instance's pot.
#[test]
fn tokens_are_those_in_the_bucket_and_in_the_pots() {
    let sharing = sharing(0, &Arc::new(SharedRates::new(1)));
    let spec = HtbClassSpec {
        burst: 10 * PACKET,
        ceil: 2_000_000,
        cburst: 20 * PACKET,
        ..HtbClassSpec::new(1_000_000)
    };
    let mut scheduler = Scheduler::new(10, Some(sharing));
    let counters = Arc::<ClassCounters>::default();
    scheduler.add(0, 1, None, &spec, counters.clone(), Time(SECOND));
    let tokens = || {
        let stats = counters.own.htb(spec.rate, spec.ceil);
        (stats.tokens, stats.ctokens)
    };
    scheduler.activate(0);
    for left in (0..10).rev() {
        let sent = scheduler.serve(Time(SECOND), |_, _| {
            Taken::Sent(Sent {
                frames: 1,
                size: WireSize {
                    packets: 1,
                    bytes: PACKET,
                    each: PACKET,
                },
                emptied: false,
                flows: 1,
            })
        });
        assert!(sent);
        // Ticks of 64 ns: here 1 byte comes in 1 µs, and 2 for the ceil.
        let ticks = |bytes: u64, rate: u64| (bytes * (SECOND / rate) / 64) as i32;
        let ceil = ticks((left + 10) * PACKET, spec.ceil);
        assert_eq!(tokens(), (ticks(left * PACKET, spec.rate), ceil));
    }
}
