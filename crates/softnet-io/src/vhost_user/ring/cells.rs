//! A ring in the model checker's memory.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU16, fence};

use super::notify::Area;
use super::{Areas, RingConfig};
use crate::vhost_user::memory::{LOADED, STORED};

/// Accesses in the order in which they are shipped, but for what a twin leaves out.
pub(super) trait Order: Send + 'static {
    /// Loads of the flags of a line.
    const LINE: Ordering = LOADED;
    /// Stores of the flags of descriptors that are given back.
    const GIVEN_BACK: Ordering = STORED;
    /// Fences are left out if false.
    const FENCES: bool = true;
}

/// The order without a twin's flaw.
pub(super) enum Shipped {}

impl Order for Shipped {}

/// A twin without fences.
pub(super) enum Unfenced {}

impl Order for Unfenced {
    const FENCES: bool = false;
}

/// A part of a ring. Each field is as many cells as it has 16-bit words: rings promise no more than
/// that of fields that both sides access.
pub(super) struct Cells<O = Shipped>(Words, PhantomData<O>);

type Words = Arc<Vec<AtomicU16>>;

impl<O> Cells<O> {
    fn relaxed(&self, at: usize) -> u16 {
        self.0[at / 2].load(Ordering::Relaxed)
    }
}

impl<O: Order> Area for Cells<O> {
    fn load(&self, at: usize) -> u16 {
        self.0[at / 2].load(LOADED)
    }

    fn store(&self, at: usize, value: u16) {
        self.0[at / 2].store(value, STORED);
    }

    fn read_u16(&self, at: usize) -> u16 {
        self.relaxed(at)
    }

    fn read_u32(&self, at: usize) -> u32 {
        u32::from(self.relaxed(at)) | u32::from(self.relaxed(at + 2)) << 16
    }

    fn read_words(&self, at: usize) -> [u64; 2] {
        [at, at + 8]
            .map(|at| u64::from(self.read_u32(at)) | u64::from(self.read_u32(at + 4)) << 32)
    }

    fn load_flags(&self, at: usize) -> [u16; 4] {
        std::array::from_fn(|n| self.0[(at + 16 * n + 14) / 2].load(O::LINE))
    }

    fn write_u16(&self, at: usize, value: u16) {
        self.0[at / 2].store(value, Ordering::Relaxed);
    }

    fn write_u32(&self, at: usize, value: u32) {
        self.write_u16(at, value as u16);
        self.write_u16(at + 2, (value >> 16) as u16);
    }

    fn write_pair(&self, at: usize, values: [u32; 2]) {
        self.write_u32(at, values[0]);
        self.write_u32(at + 4, values[1]);
    }

    fn store_pair(&self, at: usize, values: [u32; 2]) {
        self.write_u32(at, values[0]);
        self.write_u16(at + 4, values[1] as u16);
        self.0[(at + 6) / 2].store((values[1] >> 16) as u16, O::GIVEN_BACK);
    }

    fn fence() {
        if O::FENCES {
            fence(Ordering::SeqCst);
        }
    }
}

/// The parts of one ring, for the device and for the driver.
pub(super) fn areas<O>(config: &RingConfig) -> (Areas<Cells<O>>, Areas<Cells>) {
    let n = usize::from(config.size);
    let (driver, device) = if config.packed {
        (4, 4)
    } else {
        (6 + 2 * n, 6 + 8 * n)
    };
    let words =
        |len: usize| -> Words { Arc::new((0..len / 2).map(|_| AtomicU16::new(0)).collect()) };
    let parts = [words(16 * n), words(driver), words(device)];
    (side(parts.clone()), side(parts))
}

fn side<O>(parts: [Words; 3]) -> Areas<Cells<O>> {
    let [descriptors, driver, device] = parts.map(|words| Cells(words, PhantomData));
    Areas {
        descriptors,
        driver,
        device,
    }
}
