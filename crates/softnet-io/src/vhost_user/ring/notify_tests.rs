//! No notification is sent that was not asked for.

use super::tests::{DATA, Setup, config};
use super::*;

/// Through some rounds of the ring: no notification while the other side polls, one when it
/// sleeps.
#[test]
fn notifications_only_when_asked_for() {
    for (packed, event_index) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut setup = Setup::new(RingConfig {
            event_index,
            ..config(packed, 8)
        });
        setup.driver.disarm();
        if event_index && !packed {
            // As at the start, the event is the first chain. Nobody says otherwise in a split ring.
            setup.send(DATA, &[0; 100]);
            setup.receive(64).unwrap();
            setup.queue.must_notify();
            setup.driver.reap();
        }
        for _ in 0..100 {
            for _ in 0..3 {
                assert!(!setup.send(DATA, &[0; 100]), "{packed} {event_index}");
                assert!(setup.queue.peek());
                setup.receive(64).unwrap();
                assert!(!setup.queue.must_notify());
                assert_eq!(setup.driver.reap().len(), 1);
            }
            assert!(setup.queue.arm());
            assert!(setup.send(DATA, &[0; 100]));
            // New chains since the last look.
            assert!(!setup.queue.arm());
            setup.queue.disarm();
            assert!(setup.driver.arm());
            setup.receive(64).unwrap();
            assert!(setup.queue.must_notify());
            assert!(!setup.queue.must_notify(), "once");
            assert!(!setup.driver.arm());
            setup.driver.disarm();
            assert_eq!(setup.driver.reap().len(), 1);
        }
    }
}
