//! Who wakes whom.
//!
//! Either side sleeps only after it has said from when on it wants to be notified, *and then* has
//! found nothing new. The other side makes its work visible, *and then* reads what was said. Each
//! is a store and a later load of another location, which a processor may swap; a full fence
//! between them on both sides forbids the case that each load misses the other side's store. So
//! either the sleeper sees the work, or the worker sees the wish.
//!
//! **The driver may be asked late**, once for several batches: a receive queue asks when the frames
//! of its poll have gone on. What was given back since the driver was last asked is counted, and
//! the fence comes when it is asked, behind all of that. So it makes no difference when the driver
//! says its wish: either that is read, or the driver finds all that was given back. But it has to
//! be asked before this side sleeps; `peek`, `arm` and `poll` of the queue do so.
//!
//! The loom models in `notify_models` drive both kinds of ring through this, and fail where the
//! device has no fence.

use std::sync::atomic::{Ordering, fence};

use crate::vhost_user::memory::GuestArea;

/// A part of a ring: fields that both sides access. All numbers are little-endian there.
pub(super) trait Area {
    /// An index or flags, with Acquire: what the driver wrote before is seen after.
    fn load(&self, at: usize) -> u16;
    /// An index or flags, with Release.
    fn store(&self, at: usize, value: u16);
    /// Another field, in no order.
    fn read_u16(&self, at: usize) -> u16;
    /// Another field, in no order.
    fn read_u32(&self, at: usize) -> u32;
    /// Two fields, in no order.
    fn read_words(&self, at: usize) -> [u64; 2];
    /// The flags of four descriptors of a packed ring, as [`load`](Area::load).
    fn load_flags(&self, at: usize) -> [u16; 4] {
        std::array::from_fn(|n| self.load(at + 16 * n + 14))
    }
    /// Four descriptors, as [`read_words`](Area::read_words).
    fn read_line(&self, at: usize) -> [[u64; 2]; 4] {
        std::array::from_fn(|n| self.read_words(at + 16 * n))
    }
    /// Another field, in no order.
    fn write_u16(&self, at: usize, value: u16);
    /// Another field, in no order.
    fn write_u32(&self, at: usize, value: u32);
    /// Two fields, in no order.
    fn write_pair(&self, at: usize, values: [u32; 2]);
    /// Two fields, the second of which has flags: at once, as far as a crash can tell, and with
    /// Release.
    fn store_pair(&self, at: usize, values: [u32; 2]);
    /// A full fence.
    fn fence();
}

impl Area for GuestArea {
    #[inline]
    fn load(&self, at: usize) -> u16 {
        self.load_u16(at)
    }

    #[inline]
    fn store(&self, at: usize, value: u16) {
        self.store_u16(at, value);
    }

    #[inline]
    fn read_u16(&self, at: usize) -> u16 {
        u16::from_le(self.read(at))
    }

    #[inline]
    fn read_u32(&self, at: usize) -> u32 {
        u32::from_le(self.read(at))
    }

    #[inline]
    fn read_words(&self, at: usize) -> [u64; 2] {
        self.read::<[u64; 2]>(at).map(u64::from_le)
    }

    #[inline]
    fn load_flags(&self, at: usize) -> [u16; 4] {
        GuestArea::load_flags(self, at)
    }

    #[inline]
    fn read_line(&self, at: usize) -> [[u64; 2]; 4] {
        self.read::<[[u64; 2]; 4]>(at)
            .map(|words| words.map(u64::from_le))
    }

    #[inline]
    fn write_u16(&self, at: usize, value: u16) {
        self.write(at, value.to_le());
    }

    #[inline]
    fn write_u32(&self, at: usize, value: u32) {
        self.write(at, value.to_le());
    }

    #[inline]
    fn write_pair(&self, at: usize, values: [u32; 2]) {
        self.write(at, values.map(u32::to_le));
    }

    #[inline]
    fn store_pair(&self, at: usize, values: [u32; 2]) {
        self.store_u64(at, u64::from(values[0]) | u64::from(values[1]) << 32);
    }

    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// True if the place that the driver waits for was given back: it is `behind` places behind the
/// device's position, which has moved by `moved` since the driver was last told. The place directly
/// behind is 1.
#[inline]
pub(super) fn passed(behind: u32, moved: u32) -> bool {
    behind.wrapping_sub(1) < moved
}
