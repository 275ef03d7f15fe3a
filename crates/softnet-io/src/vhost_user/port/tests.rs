//! Rings are made without their locks; a guest that is slow to be told loses its port.

use std::sync::Arc;

use super::super::call::Late;
use super::super::memory::GuestMemory;
use super::super::ring::tests::{RING, config, memory};
use super::*;

/// The flags of a packed ring's second descriptor. Available while the first is not: the driver is
/// writing a chain, of which the first comes last.
const FLAGS: u64 = RING + 16 + 14;
const AVAILABLE: u16 = 1 << 7;

fn wanted(memory: &Arc<GuestMemory>) -> [Option<Wanted>; 2] {
    let kick = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let ring = Wanted {
        config: config(true, 8),
        memory: memory.clone(),
        call: None,
        kick: Arc::new(kick),
        enabled: true,
    };
    [None, Some(ring)]
}

/// Nobody who moves packets finds the ring taken while its driver writes, or does not end to.
#[test]
fn a_packed_ring_is_looked_at_without_its_lock() {
    let memory = Arc::new(memory());
    memory.write_from(FLAGS, &AVAILABLE.to_le_bytes()).unwrap();
    let wanted = wanted(&memory);
    let port = Port::new(1, GuestSpec::default()).unwrap();
    let ring = || port.pairs[0].from_guest.try_lock().unwrap();
    let mut looks = 0;
    let mut write = |last: u32| {
        assert!(ring().is_none());
        looks += 1;
        if looks == last {
            memory.write_from(FLAGS, &[0; 2]).unwrap();
        }
        looks < 100
    };
    port.apply_waiting(&wanted, &mut || write(3)).unwrap();
    assert!(ring().is_some());
    assert_eq!(looks, 3);

    // Other rings in its place, too, and one whose driver does not end.
    memory.write_from(FLAGS, &AVAILABLE.to_le_bytes()).unwrap();
    let mut other = wanted;
    other[1].as_mut().unwrap().config.size = 4;
    let mut looks = 0;
    let failed = port.apply_waiting(&other, &mut || {
        assert!(ring().is_none());
        looks += 1;
        looks < 3
    });
    assert!(matches!(failed, Err(SetupFailed { number: 1, .. })));
    assert_eq!(looks, 3);
    assert!(ring().is_none());
}

/// Now and then to tell a guest may be a lot of work. The third time ends the port, whatever was
/// done to its ring in between.
#[test]
fn a_guest_that_is_slow_to_be_told_again_and_again_loses_its_port() {
    let memory = Arc::new(memory());
    let mut wanted = wanted(&memory);
    let call = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    wanted[1].as_mut().unwrap().call = Some(Arc::new(call));
    let port = Port::new(1, GuestSpec::default()).unwrap();
    port.apply(&wanted).unwrap();
    let late = |late| {
        let mut ring = port.pairs[0].from_guest.lock();
        let running = ring.as_mut().unwrap();
        running.was_late(late);
        (running.is_broken(), running.call.is_some())
    };
    assert_eq!(late(Late::Slow), (false, true));
    assert_eq!(late(Late::Slow), (false, true));
    wanted[1].as_mut().unwrap().config.mergeable = false;
    port.apply(&wanted).unwrap();
    assert_eq!(late(Late::Slow), (true, false));
    port.fail();
    assert_eq!(port.take_attention(), Attention::CallBlocked(1));

    // One that blocks does so once.
    let mut none = wanted.clone();
    none[1] = None;
    port.apply(&none).unwrap();
    port.apply(&wanted).unwrap();
    assert_eq!(late(Late::Blocked), (true, false));
}
