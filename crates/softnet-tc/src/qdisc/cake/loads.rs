//! Flows with a backlog that each host has over all instances of a `cake`.
//!
//! Each instance adds and takes away its own, as flows come to have a backlog and lose it, not for
//! each packet. What is read is a hint that may be a moment old: a host's share is a little more or
//! less until the next round, and nothing else depends on it. So the operations are relaxed; that
//! each is one atomic step makes the sums right in the end. Hosts that hash alike count as one.

use std::sync::{Arc, OnceLock};

use softnet::sync::primitive::{AtomicU32, Ordering};

use super::table::PLACES;
use super::tins::MAX_TINS;

/// Loads of the hosts of one tin, as sources and as destinations.
#[derive(Debug)]
pub(super) struct Loads([Box<[AtomicU32]>; 2]);

impl Loads {
    fn new() -> Loads {
        let none = || (0..PLACES).map(|_| AtomicU32::new(0)).collect();
        Loads([none(), none()])
    }

    fn of(&self, end: usize, hash: u32) -> &AtomicU32 {
        &self.0[end][hash as usize % PLACES]
    }

    /// A flow of a host comes to have a backlog, or loses it.
    pub(super) fn count(&self, end: usize, hash: u32, comes: bool) {
        let load = self.of(end, hash);
        if comes {
            load.fetch_add(1, Ordering::Relaxed);
        } else {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn get(&self, end: usize, hash: u32) -> u32 {
        self.of(end, hash).load(Ordering::Relaxed)
    }
}

/// Loads of each tin, made when that has its first packet.
#[derive(Debug, Default)]
pub(super) struct AllLoads([OnceLock<Arc<Loads>>; MAX_TINS]);

impl AllLoads {
    pub(super) fn tin(&self, tin: usize) -> Option<Arc<Loads>> {
        let loads = self.0.get(tin)?;
        Some(loads.get_or_init(|| Arc::new(Loads::new())).clone())
    }
}
