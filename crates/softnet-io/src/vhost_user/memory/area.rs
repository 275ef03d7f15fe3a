//! A part of a ring in guest memory, a field at a time.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64};

use zerocopy::{FromBytes, IntoBytes};

use super::{LOADED, Region, STORED};

/// A part of a ring in guest memory, read and written a field at a time. Each access is one that
/// the compiler neither repeats nor leaves out.
///
/// Offsets are in bytes. They are the ring's own, bounded by its size, so an offset outside of the
/// area is a bug and panics.
#[derive(Debug)]
pub struct GuestArea {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    /// Keeps it mapped.
    pub(super) region: Arc<Region>,
}

// SAFETY: as the region that it points into.
unsafe impl Send for GuestArea {}
// SAFETY: as above.
unsafe impl Sync for GuestArea {}

impl GuestArea {
    /// True if the memory was taken away.
    pub fn is_lost(&self) -> bool {
        self.region.is_lost()
    }

    /// Where a field of type `T` is.
    #[inline]
    fn field<T>(&self, at: usize) -> *mut T {
        let end = at.checked_add(size_of::<T>());
        let fits = end.is_some_and(|end| end <= self.len);
        assert!(fits, "a field at {at} of {} bytes", self.len);
        // SAFETY: inside of the area, as just checked.
        let field = unsafe { self.start.add(at) }.cast::<T>().as_ptr();
        assert!(field.is_aligned(), "a field at {at} is not aligned");
        field
    }

    /// An index or a flag that says what the driver has written: what it wrote before is seen
    /// after.
    #[inline]
    pub fn load_u16(&self, at: usize) -> u16 {
        let field = self.field::<u16>(at);
        // SAFETY: mapped and aligned; a reference to an atomic bears other writers, and ends here.
        let field = unsafe { AtomicU16::from_ptr(field) };
        u16::from_le(field.load(LOADED))
    }

    /// As [`load_u16`](GuestArea::load_u16), of the flags of four descriptors of a packed ring: the
    /// last two of each 16 bytes from `at` on.
    #[inline]
    pub fn load_flags(&self, at: usize) -> [u16; 4] {
        let line = self.field::<[[u16; 8]; 4]>(at).cast::<u16>();
        std::array::from_fn(|n| {
            // SAFETY: as in `load_u16`: all of the line is inside of the area and aligned.
            let field = unsafe { AtomicU16::from_ptr(line.wrapping_add(8 * n + 7)) };
            u16::from_le(field.load(LOADED))
        })
    }

    /// An index or a flag that says what was written: the driver that sees it sees what was
    /// written before.
    #[inline]
    pub fn store_u16(&self, at: usize, value: u16) {
        let field = self.field::<u16>(at);
        // SAFETY: as in `load_u16`.
        let field = unsafe { AtomicU16::from_ptr(field) };
        field.store(value.to_le(), STORED);
    }

    /// As [`store_u16`](GuestArea::store_u16), of several fields at once.
    #[inline]
    pub fn store_u64(&self, at: usize, value: u64) {
        let field = self.field::<u64>(at);
        // SAFETY: as in `load_u16`.
        let field = unsafe { AtomicU64::from_ptr(field) };
        field.store(value.to_le(), STORED);
    }

    /// A descriptor or another field, read once, in no order to others.
    #[inline]
    pub fn read<T: FromBytes>(&self, at: usize) -> T {
        let field = self.field::<T>(at);
        // SAFETY: mapped and aligned, and any bytes are a valid T.
        unsafe { field.read_volatile() }
    }

    /// A descriptor or another field, written once, in no order to others.
    #[inline]
    pub fn write<T: IntoBytes>(&self, at: usize, value: T) {
        let field = self.field::<T>(at);
        // SAFETY: mapped and aligned.
        unsafe { field.write_volatile(value) }
    }
}
