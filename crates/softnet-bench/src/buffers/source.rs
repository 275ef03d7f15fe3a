//! The pools and allocators that are measured, by name.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::pinned::{self, BATCH, Cpus, HandOff};
use super::{Buffers, Reading, Softnet};
use crate::baselines::depot::Depot;
use crate::error::BenchError;
use crate::peers::allocators;
use crate::peers::dpdk::Dpdk;
use crate::report::OURS;

/// Softnet's own pool, one packet at a time.
pub(crate) const PER_PACKET: &str = "per-packet";
/// Softnet's pool with deferral turned off: what deferral costs where all is local.
pub(crate) const NO_DEFER: &str = "no-defer";
/// The pool before packets returned to their owners.
pub(crate) const DEPOT: &str = "depot";
/// DPDK's pool, freed to as MBUF_FAST_FREE lets a driver do, which the forwarding loop does in any
/// case.
pub(crate) const FAST_FREE: &str = "dpdk-fast-free";

/// A pool or allocator that can be measured.
pub(crate) trait Source {
    fn same_thread(&self, bulk: usize, time: Duration) -> Result<Reading, BenchError>;
    fn forward(&self, bulk: bool, time: Duration) -> Result<Reading, BenchError>;
    fn hand_off(&self, plan: HandOff, time: Duration) -> Result<Reading, BenchError>;
}

/// The source of this name, with as many packets if it is a pool.
pub(crate) fn named(name: &str, cpus: Cpus, buffers: usize) -> Result<Rc<dyn Source>, BenchError> {
    Ok(match name {
        OURS | PER_PACKET => local(Softnet::new(buffers, true)?, cpus),
        NO_DEFER => local(Softnet::new(buffers, false)?, cpus),
        DEPOT => local(Depot::new(buffers)?, cpus),
        "dpdk" | FAST_FREE => Rc::new(Peer {
            cpus,
            buffers,
            fast_free: name == FAST_FREE,
            dpdk: RefCell::new(None),
        }),
        allocator => allocators::named(allocator, cpus),
    })
}

/// A source within this program.
pub(crate) fn local<B: Buffers + 'static>(buffers: B, cpus: Cpus) -> Rc<dyn Source> {
    Rc::new(Local { buffers, cpus })
}

struct Local<B> {
    buffers: B,
    cpus: Cpus,
}

impl<B: Buffers> Source for Local<B> {
    fn same_thread(&self, bulk: usize, time: Duration) -> Result<Reading, BenchError> {
        pinned::same_thread(&self.buffers, self.cpus.b, bulk, time)
    }

    fn forward(&self, bulk: bool, time: Duration) -> Result<Reading, BenchError> {
        pinned::forward(&self.buffers, self.cpus.b, bulk, time)
    }

    fn hand_off(&self, plan: HandOff, time: Duration) -> Result<Reading, BenchError> {
        pinned::hand_off(&self.buffers, self.cpus, plan, time)
    }
}

/// Started at its first turn.
struct Peer {
    cpus: Cpus,
    buffers: usize,
    fast_free: bool,
    dpdk: RefCell<Option<Dpdk>>,
}

impl Peer {
    fn with(
        &self,
        measure: impl FnOnce(&mut Dpdk) -> Result<Reading, BenchError>,
    ) -> Result<Reading, BenchError> {
        let mut dpdk = self.dpdk.borrow_mut();
        measure(match &mut *dpdk {
            Some(dpdk) => dpdk,
            none => none.insert(Dpdk::start(self.cpus, self.buffers)?),
        })
    }
}

impl Source for Peer {
    fn same_thread(&self, bulk: usize, time: Duration) -> Result<Reading, BenchError> {
        self.with(|dpdk| dpdk.same_thread(bulk, self.fast_free, time))
    }

    fn forward(&self, _bulk: bool, time: Duration) -> Result<Reading, BenchError> {
        self.with(|dpdk| dpdk.forward(BATCH, time))
    }

    fn hand_off(&self, plan: HandOff, time: Duration) -> Result<Reading, BenchError> {
        self.with(|dpdk| dpdk.hand_off(plan, time))
    }
}

/// A variant that was left out when this program was built.
#[cfg(not(feature = "allocators"))]
pub(crate) struct NotBuilt;

#[cfg(not(feature = "allocators"))]
impl Source for NotBuilt {
    fn same_thread(&self, _bulk: usize, _time: Duration) -> Result<Reading, BenchError> {
        let why = "built without the feature `allocators`";
        Err(BenchError::Unavailable(why.to_owned()))
    }

    fn forward(&self, _bulk: bool, time: Duration) -> Result<Reading, BenchError> {
        self.same_thread(0, time)
    }

    fn hand_off(&self, _plan: HandOff, time: Duration) -> Result<Reading, BenchError> {
        self.same_thread(0, time)
    }
}
