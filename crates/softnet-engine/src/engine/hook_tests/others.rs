//! Threads that are no workers of the engine.

use std::sync::Barrier;

use softnet_tc::{FilterKey, HookFilters};

use super::*;

/// Links that share a block run the same filters, also one that joins the others later: two threads
/// that send to them at once lose no count.
#[test]
fn threads_take_turns_at_a_block() {
    const EACH: u64 = 20_000;
    let bench = Bench::new(2);
    let shared = Hook {
        egress: HookFilters {
            block: 7,
            ..HookFilters::default()
        },
        ..Hook::new(HookKind::Clsact)
    };
    bench.hook("a", Some(shared.clone()));
    let filter = FilterSpec {
        parent: Handle::NONE,
        ..Bench::filter(Side::Egress, 1, Control::Drop.into())
    };
    let put = bench.engine.put_in_block(7, FilterOp::Add, filter);
    put.unwrap();
    bench.hook("b", Some(shared));
    let (bench, start) = (&bench, &Barrier::new(2));
    let send = |name: &str| {
        let index = bench.index(name);
        let device = bench.engine.state().port(index).unwrap().device.clone();
        let now = bench.engine.clock().now();
        start.wait();
        for _ in 0..EACH {
            device.transmit(bench.frame(1, 2, 0).into(), now);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| send("a"));
        send("b");
    });
    let sum = bench.engine.read_block(7, |block| {
        let key = FilterKey {
            chain: 0,
            prio: 1,
            handle: 1,
        };
        let found = block.list().get(key);
        block.filter_sum(found.unwrap()).1.packets
    });
    assert_eq!(sum.unwrap(), 2 * EACH);
}
