//! Allocation tracking: in debug builds, the place in the program that allocated each packet, to
//! find leaks.

use std::collections::BTreeMap;
use std::panic::Location;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::arena::Slab;
use super::{Header, Pool};

/// A line of a leak report: packets that are out and were allocated at the same place. Displayed
/// as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {packets} packets")]
pub struct Outstanding {
    /// Who called the pool.
    pub place: &'static Location<'static>,
    /// Buffers allocated there and not free.
    pub packets: usize,
}

/// One entry a buffer; null while it is free. Release builds have none.
pub(super) struct Tracking(Box<[AtomicPtr<Location<'static>>]>);

impl Tracking {
    pub(super) fn new(buffers: usize) -> Tracking {
        let entries = if cfg!(debug_assertions) { buffers } else { 0 };
        Tracking((0..entries).map(|_| AtomicPtr::new(null_mut())).collect())
    }
}

impl Tracking {
    /// Notes who allocated the packets linked from `first`.
    ///
    /// # Safety
    /// The caller owns them; they are of the pool that this belongs to.
    pub(super) unsafe fn allocated(&self, first: NonNull<Header>, by: &'static Location<'static>) {
        let mut next = Some(first);
        while let Some(header) = next {
            // SAFETY: by the caller's promise.
            let index = unsafe { Slab::index(header) };
            self.0[index].store(std::ptr::from_ref(by).cast_mut(), Ordering::Relaxed);
            // SAFETY: as above.
            next = unsafe { header.as_ref().next };
        }
    }
}

/// Notes that a packet is being freed.
///
/// # Safety
/// The caller owns it.
#[inline(always)]
pub(super) unsafe fn freed(header: NonNull<Header>) {
    if cfg!(debug_assertions) {
        // SAFETY: its pool outlives a packet.
        let entries = unsafe { &Slab::of(header).pool.as_ref().tracking.0 };
        // SAFETY: as above.
        entries[unsafe { Slab::index(header) }].store(null_mut(), Ordering::Relaxed);
    }
}

impl Pool {
    /// The packets that are out, by the place in the program that allocated them (in release
    /// builds: none). What is listed when all should be back has leaked. Segments and shared
    /// packets count as one each.
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let mut packets = BTreeMap::new();
        for place in &self.inner().tracking.0 {
            let place = place.load(Ordering::Relaxed);
            // SAFETY: null, or made of a `&'static Location` in `allocated`.
            if let Some(place) = unsafe { place.as_ref() } {
                let key = (place.file(), place.line(), place.column());
                packets.entry(key).or_insert((place, 0)).1 += 1;
            }
        }
        let lines = packets.into_values();
        let lines = lines.map(|(place, packets)| Outstanding { place, packets });
        lines.collect()
    }
}
