//! Where the buffers of a pool lie: on the heap, or in memory that somebody else provides (huge pages, a shared file, a driver's area).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use super::PoolError;

/// Memory for a pool's buffers; see [`Pool::with_memory`](super::Pool::with_memory). Dropped when all packets are back and all handles are gone.
///
/// # Safety
/// [`bytes`](Memory::bytes) always returns the same range, which stays readable and writable until the value is dropped, is initialised
/// (a fresh mapping is) and aligned to 64 bytes. The first 512 bytes of a buffer also hold pointers of the pool while the buffer is free. So nothing else may
/// write the range, but a trusted party (a device, the kernel) may write where a packet that the caller owns offers tailroom, as long as
/// the caller owns it.
pub unsafe trait Memory: fmt::Debug + Send + Sync {
    /// The range.
    fn bytes(&self) -> NonNull<[u8]>;
}

/// One zeroed allocation. Large ones come from the system untouched, so memory is used only when first written.
#[derive(Debug)]
pub(super) struct Block {
    /// What was allocated.
    allocation: NonNull<u8>,
    layout: Layout,
    /// The aligned part of it.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the block is plain memory that whoever owns the block may use from any thread.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block gives out its address only.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(bytes: usize, align: usize) -> Result<Block, PoolError> {
        // Aligned by hand: the allocator hands out zero pages as they are, but clears what it is asked to align, which would touch all of it.
        let layout = bytes
            .checked_add(align)
            .and_then(|size| Layout::from_size_align(size, 16).ok())
            .ok_or(PoolError::Memory(bytes))?;
        // SAFETY: the layout's size is not zero (at least one buffer).
        let allocation = unsafe { alloc_zeroed(layout) };
        let allocation = NonNull::new(allocation).ok_or(PoolError::Memory(bytes))?;
        let skip = allocation.align_offset(align);
        // SAFETY: `skip < align`, so `bytes` bytes from there lie inside the allocation.
        let start = unsafe { allocation.add(skip) };
        Ok(Block {
            allocation,
            layout,
            start,
            bytes,
        })
    }
}

// SAFETY: allocated in `new` with alignment of 64 or more, zeroed, and private.
unsafe impl Memory for Block {
    fn bytes(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start, self.bytes)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; the pool drops its arena only when all buffers are back.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}
