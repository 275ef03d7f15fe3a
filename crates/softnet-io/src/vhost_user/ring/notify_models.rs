//! No notification is lost, in either kind of ring.

use loom::model::Builder;

use super::cells::{Cells, Order, Shipped, Unfenced, areas};
use super::model::{Driver, Part};
use super::tests::config;
use super::*;

/// A buffer without bytes, which needs no memory.
const EMPTY: Part = Part {
    address: 0,
    len: 0,
    flags: 0,
};

/// The constructor of a ring.
type New<O, R> = fn(&RingConfig, Areas<Cells<O>>) -> R;

/// All interleavings: there are few, so that preemptions have no bound.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = None;
    builder.check(model);
}

/// Takes a chain and gives it back.
fn give_one_back(device: &mut impl Ring) {
    let (memory, mut batch) = (GuestMemory::default(), Batch::default());
    device.take(&memory, false, 1, &mut batch).unwrap();
    assert_eq!(batch.chains.len(), 1);
    device.complete(&batch, 1);
}

/// Both sides of a ring whose first chain came back, neither of which wants to be told: the events
/// of a split ring, which nothing takes back, are passed.
fn sides<O: Order, R: Ring>(config: RingConfig, new: New<O, R>) -> (R, Driver<Cells>) {
    let (ours, theirs) = areas(&config);
    let mut device = new(&config, ours);
    let mut driver = Driver::new(config, theirs);
    device.disarm();
    driver.disarm();
    assert!(driver.offer(0, &[EMPTY]));
    driver.publish();
    give_one_back(&mut device);
    device.must_notify();
    assert_eq!(driver.reap().len(), 1);
    (device, driver)
}

/// The device polls, arms, and sleeps; the driver offers two chains, each by itself. Whoever
/// sleeps on a chain is woken for it.
fn kick<O: Order, R: Ring + Send + 'static>(config: RingConfig, new: New<O, R>) {
    explore(move || {
        let (mut device, mut driver) = sides(config, new);
        let offers = loom::thread::spawn(move || {
            let mut kicks = 0;
            for token in 0..2 {
                assert!(driver.offer(token, &[EMPTY]));
                kicks += u32::from(driver.publish());
            }
            kicks
        });
        let (memory, mut batch) = (GuestMemory::default(), Batch::default());
        let mut take = |device: &mut R| {
            device.take(&memory, false, 32, &mut batch).unwrap();
            batch.chains.len()
        };
        // Asleep with less than all only if a kick is on the way.
        let mut taken = take(&mut device);
        let asleep = device.arm();
        if !asleep {
            taken = take(&mut device);
        }
        let kicks = offers.join().unwrap();
        if asleep && taken < 2 {
            assert!(kicks > 0, "asleep with {taken} of 2 chains");
            assert_eq!(take(&mut device), 2);
        }
    });
}

/// The moments in which the device asks whether the driver wants to be told of what came back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// Behind each chain.
    AtOnce,
    /// Behind the last one, as a receive queue whose frames go on first.
    Late,
}

/// The device gives two chains back, each by itself; the driver reaps, arms, and sleeps.
fn call<O: Order, R: Ring + Send + 'static>(config: RingConfig, asks: Asks, new: New<O, R>) {
    explore(move || {
        let (mut device, mut driver) = sides(config, new);
        for token in 0..2 {
            assert!(driver.offer(token, &[EMPTY]));
        }
        driver.publish();
        let completes = loom::thread::spawn(move || {
            let mut calls = 0;
            for is_last in [false, true] {
                give_one_back(&mut device);
                if is_last || asks == Asks::AtOnce {
                    calls += u32::from(device.must_notify());
                }
            }
            calls
        });
        let mut reaped = driver.reap().len();
        let asleep = driver.arm();
        if !asleep {
            reaped += driver.reap().len();
        }
        let calls = completes.join().unwrap();
        if asleep && reaped < 2 {
            assert!(calls > 0, "asleep with {reaped} of 2 chains");
            assert_eq!(reaped + driver.reap().len(), 2);
        }
    });
}

fn split<O: Order>(config: &RingConfig, areas: Areas<Cells<O>>) -> Split<Cells<O>> {
    Split::new(config, areas)
}

fn packed<O: Order>(config: &RingConfig, areas: Areas<Cells<O>>) -> Packed<Cells<O>> {
    Packed::new(config, areas).unwrap()
}

/// Without event indices and with them.
fn both(packed: bool) -> [RingConfig; 2] {
    [false, true].map(|event_index| RingConfig {
        event_index,
        ..config(packed, 2)
    })
}

#[test]
fn no_kick_is_lost() {
    for config in both(false) {
        kick(config, split::<Shipped>);
    }
    for config in both(true) {
        kick(config, packed::<Shipped>);
    }
}

#[test]
fn no_call_is_lost() {
    for asks in [Asks::AtOnce, Asks::Late] {
        for config in both(false) {
            call(config, asks, split::<Shipped>);
        }
        for config in both(true) {
            call(config, asks, packed::<Shipped>);
        }
    }
}

// The twins: the device's load passes its store.

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_split_ring_loses_a_kick() {
    kick(both(false)[0], split::<Unfenced>);
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_split_ring_with_event_indices_loses_a_kick() {
    kick(both(false)[1], split::<Unfenced>);
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_packed_ring_loses_a_kick() {
    kick(both(true)[0], packed::<Unfenced>);
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_packed_ring_with_event_indices_loses_a_kick() {
    kick(both(true)[1], packed::<Unfenced>);
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_split_ring_loses_a_call() {
    call(both(false)[0], Asks::Late, split::<Unfenced>);
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_split_ring_with_event_indices_loses_a_call() {
    call(both(false)[1], Asks::Late, split::<Unfenced>);
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_packed_ring_loses_a_call() {
    call(both(true)[0], Asks::Late, packed::<Unfenced>);
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_packed_ring_with_event_indices_loses_a_call() {
    call(both(true)[1], Asks::Late, packed::<Unfenced>);
}
