//! At most so many source addresses at a time. Checked by all workers at once; none waits.
//!
//! A slot holds an address, or 0, and the second when it was last seen. Slots are never more than
//! the limit, and only an address in a slot passes.
//!
//! **A slot that changes hands is not taken again at once.** Who takes a slot first stores the
//! second, then exchanges the address (Release). Who finds the new address (Acquire) therefore also
//! finds its second, or a later one, and does not think that it is old. Who finds the old address
//! with the new second takes the slot for in use: at worst a frame of a new address is dropped
//! while another one takes the last slot.
//!
//! An address may get two slots, if two workers see it first at the same time while slots before
//! become free; one of them is not confirmed, and becomes old.

use super::fdb::{AGEING, note, seconds};
use softnet::sync::primitive::{AtomicU32, AtomicU64, Ordering};
use softnet::time::Time;
use softnet::wire::EthernetAddress;

#[derive(Debug, Default)]
struct Slot {
    /// 0: free.
    address: AtomicU64,
    seen: AtomicU32,
}

/// The source addresses of a port; see the module.
#[derive(Debug)]
pub(super) struct MacLimit(Box<[Slot]>);

impl MacLimit {
    pub(super) fn new(max: u16) -> MacLimit {
        MacLimit((0..max).map(|_| Slot::default()).collect())
    }

    /// True if a station's address is one of those that the port may have, or becomes one.
    pub(super) fn admits(&self, address: EthernetAddress, now: Time) -> bool {
        let (key, now) = (address.to_u64(), seconds(now));
        let is_known = |slot: &&Slot| slot.address.load(Ordering::Relaxed) == key;
        if let Some(slot) = self.0.iter().find(is_known) {
            note(&slot.seen, now);
            return true;
        }
        self.0.iter().any(|slot| slot.take(key, now))
    }

    /// Frees all slots.
    pub(super) fn clear(&self) {
        for slot in &self.0 {
            slot.address.store(0, Ordering::Relaxed);
        }
    }
}

impl Slot {
    /// Takes the slot if it is free or its address is old.
    fn take(&self, key: u64, now: u32) -> bool {
        let old = self.address.load(Ordering::Acquire);
        if old == key {
            return true;
        }
        let seen = self.seen.load(Ordering::Relaxed);
        if old != 0 && seen.saturating_add(AGEING.as_secs() as u32) > now {
            return false;
        }
        self.seen.store(now, Ordering::Relaxed);
        let order = (Ordering::Release, Ordering::Relaxed);
        let taken = self.address.compare_exchange(old, key, order.0, order.1);
        taken.is_ok() || taken == Err(key)
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two workers see new addresses when the only slot holds an old one: one of them gets it.
    ///
    /// Fails if the second is stored after the address, or without Acquire or Release.
    #[test]
    fn a_slot_is_taken_once() {
        loom::model(|| {
            let limit = Arc::new(MacLimit::new(1));
            let mac = |n| EthernetAddress([2, 0, 0, 0, 0, n]);
            assert!(limit.admits(mac(9), Time(0)));
            let now = Time(AGEING.as_nanos() as u64);
            let other = {
                let limit = limit.clone();
                thread::spawn(move || limit.admits(mac(1), now))
            };
            let own = limit.admits(mac(2), now);
            assert!(!(own && other.join().unwrap()), "one slot, two addresses");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn mac(n: u8) -> EthernetAddress {
        EthernetAddress([2, 0, 0, 0, 0, n])
    }

    fn at(second: u64) -> Time {
        Time(second * 1_000_000_000)
    }

    #[test]
    fn further_addresses_wait_until_one_is_old() {
        let limit = MacLimit::new(2);
        let start = 1_000_000;
        assert!(limit.admits(mac(1), at(start)) && limit.admits(mac(2), at(start)));
        assert!(!limit.admits(mac(3), at(start)));
        assert!(limit.admits(mac(1), at(start + 200)));
        assert!(!limit.admits(mac(3), at(start + 299)));
        assert!(
            limit.admits(mac(3), at(start + 300)),
            "in the place of the second"
        );
        assert!(!limit.admits(mac(2), at(start + 300)));
        assert!(limit.admits(mac(1), at(start + 300)));
        limit.clear();
        assert!(limit.admits(mac(2), at(start + 300)) && limit.admits(mac(4), at(start + 300)));
        assert!(!limit.admits(mac(1), at(start + 300)));
    }

    #[test]
    fn none_may_be_allowed() {
        assert!(!MacLimit::new(0).admits(mac(1), at(0)));
    }
}
