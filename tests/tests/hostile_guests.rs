//! Hostile guests: whatever one does to its port, two others on the same worker lose nothing, and
//! the port counts or says what it was.
//!
//! Elsewhere are tests that need more than a guest, or that can tell without a clock:
//!
//! - the time of a worker that a port takes, whatever its polls or its device's writes cost:
//!   `fairness.rs` of softnet-engine, and `a_batch_that_takes_long_is_not_written_at_once` of
//!   softnet-io's `tap_limits.rs`;
//! - modules that a container's renames load: `workers_have_no_capabilities` of softnet-io's
//!   `vhost_user` tests;
//! - rings that are set up or taken away while others wait for them:
//!   `a_packed_ring_is_looked_at_without_its_lock` (softnet-io);
//! - offloads that a guest switched off: `receive_offloads_are_offered_or_not` (softnet-io);
//! - checksums that a guest says to be right: `a_guest_verifies_no_checksum` (softnet-io);
//! - events that are slow to be written:
//!   `a_guest_that_is_slow_to_be_told_again_and_again_loses_its_port` (softnet-io).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use softnet_tests::attack::{ATTACKS, Scene, Victims};
use softnet_tests::wait_for;

/// Frames of the victims during an attack.
const FRAMES: u32 = 2000;

/// Exchanges so many frames, all of which must come.
fn exchange(victims: &mut Victims, frames: u32) {
    let end = victims.received() + frames;
    wait_for("the victims' frames", || {
        let send = victims.received() < end;
        victims.turn(send);
        !send && victims.under_way() == 0
    });
}

/// Says so when it is dropped, in a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One after the other, with each kind of ring.
#[test]
fn others_lose_nothing() {
    let Some(scene) = Scene::build(None) else {
        return;
    };
    let mut victims = Victims::connect(&scene);
    exchange(&mut victims, 100);
    for packed in [false, true] {
        for attack in ATTACKS {
            println!("{} packed: {packed}", attack.name);
            let before = scene.attacked();
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut attacker = scene.attacker(packed);
                    while !done.load(Ordering::Relaxed) {
                        attacker.step(attack);
                    }
                });
                let _done = Ends(&done);
                exchange(&mut victims, FRAMES);
                wait_for(attack.name, || scene.has_seen(attack, &before));
            });
        }
    }
    exchange(&mut victims, 100);
    let stats = scene.stop();
    for port in &stats.ports[..2] {
        assert!(port.device.drops.is_empty(), "{port:?}");
    }
}
