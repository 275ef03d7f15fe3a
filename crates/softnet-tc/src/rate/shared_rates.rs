//! Rates that the instances of a tree share, as they are made.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use softnet::qdisc::Next;
use softnet::time::Time;

use crate::handle::Handle;
use crate::rate::Members;

/// Which instance of its tree a qdisc is made for.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Number among the [`members`](SharedRates::members).
    pub index: usize,
    /// Things that the instances share.
    pub rates: Arc<SharedRates>,
}

impl Instance {
    /// At the end of a call: when it runs again. Each qdisc says it that waits for a shared rate or
    /// for several children; the one above all others has the last word.
    #[inline]
    pub(crate) fn announce(&self, next: Next, now: Time) {
        let next = match next {
            Next::At(time) => time,
            Next::Ready | Next::Idle => now,
        };
        self.rates.members.announce(self.index, next);
    }
}

/// Things that the instances of a tree share. Each, a rate above all, is made by the instance that
/// asks first and handed to each of the others once. From then on only the instances have it, and
/// it goes with the last one: a class in the place of one of its name gets another. Only the
/// control path locks it.
#[derive(Debug)]
pub struct SharedRates {
    members: Arc<Members>,
    pending: Mutex<BTreeMap<(Handle, u8), Pending>>,
}

/// Things that not all instances have taken.
#[derive(Debug)]
struct Pending {
    part: Arc<dyn Any + Send + Sync>,
    left: usize,
}

impl SharedRates {
    pub(crate) fn new(instances: usize) -> SharedRates {
        SharedRates {
            members: Members::new(instances),
            pending: Mutex::default(),
        }
    }

    /// The instances.
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Each instance has what the first has: nothing is left for a later class of that name.
    pub(crate) fn assert_taken(&self) {
        let pending = || self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(pending().is_empty(), "{:?}", pending());
    }

    /// The thing that the instances of a class or qdisc share under this number. Each instance asks
    /// once, when it is made or when parameters call for it, as all of them do then.
    pub fn share<T: Any + Send + Sync>(
        &self,
        class: Handle,
        number: u8,
        make: impl FnOnce(&Arc<Members>) -> Arc<T>,
    ) -> Arc<T> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (class, number);
        if let Entry::Occupied(mut known) = pending.entry(key)
            && let Ok(part) = known.get().part.clone().downcast()
        {
            known.get_mut().left -= 1;
            if known.get().left == 0 {
                known.remove();
            }
            return part;
        }
        let made = make(&self.members);
        let part = made.clone();
        if let Some(left @ 1..) = self.members.count().checked_sub(1) {
            pending.insert(key, Pending { part, left });
        }
        made
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::rate::{RateSpec, SharedRate};

    #[test]
    fn each_instance_takes_a_rate_once() {
        let rates = SharedRates::new(3);
        let spec = |rate| RateSpec {
            rate,
            burst: 3000,
            unit: 1500,
        };
        let take = |class, number, rate| {
            let make = |members: &Arc<Members>| SharedRate::new(spec(rate), members);
            rates.share(Handle::new(1, class), number, make)
        };
        let (first, other) = (take(1, 0, 1000), take(1, 1, 2000));
        let beside = take(2, 0, 3000);
        let second = take(1, 0, 0);
        assert!(Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&other, &take(1, 1, 0)));
        assert!(Arc::ptr_eq(&beside, &take(2, 0, 0)));
        assert_eq!(first.spec().rate, 1000);
        assert!(Arc::ptr_eq(&first, &take(1, 0, 0)));
        // All have taken it: another class of that name gets another.
        let fresh = take(1, 0, 4000);
        assert!(!Arc::ptr_eq(&first, &fresh));
        assert_eq!(fresh.spec().rate, 4000);
        assert_eq!(Arc::strong_count(&first), 2, "of the instances alone");
        assert_eq!(rates.members().count(), 3);
    }

    #[test]
    fn one_instance_shares_with_nobody() {
        let rates = SharedRates::new(1);
        let part = || rates.share(Handle::new(1, 0), 0, |_| Arc::new(0));
        assert!(!Arc::ptr_eq(&part(), &part()));
    }
}
