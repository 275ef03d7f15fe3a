//! Where packets were allocated, noted in debug builds to find leaks.

use std::collections::BTreeMap;
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A line of a leak report: packets that are out and were allocated at the same place. Displayed as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {packets} packets")]
pub struct Outstanding {
    /// Who called the pool.
    pub place: &'static Location<'static>,
    /// Buffers allocated there and not free.
    pub packets: usize,
}

/// One entry a buffer; null while it is free.
#[derive(Debug)]
pub(super) struct Places(Box<[AtomicPtr<Location<'static>>]>);

impl Places {
    pub(super) fn new(buffers: usize) -> Places {
        Places((0..buffers).map(|_| AtomicPtr::new(null_mut())).collect())
    }

    pub(super) fn set(&self, buffer: usize, place: Option<&'static Location<'static>>) {
        let place = place.map_or(null_mut(), |place| std::ptr::from_ref(place).cast_mut());
        self.0[buffer].store(place, Ordering::Relaxed);
    }

    pub(super) fn report(&self) -> Vec<Outstanding> {
        let mut packets = BTreeMap::new();
        for place in &self.0 {
            let place = place.load(Ordering::Relaxed);
            // SAFETY: null or made of a `&'static Location` in `set`.
            if let Some(place) = unsafe { place.as_ref() } {
                let key = (place.file(), place.line(), place.column());
                packets.entry(key).or_insert((place, 0)).1 += 1;
            }
        }
        packets
            .into_values()
            .map(|(place, packets)| Outstanding { place, packets })
            .collect()
    }
}
