//! The memory of a pool: header lines in aligned slabs, buffers in one block beside them.
//!
//! A header line finds its pool without storing a pointer: headers lie in slabs of [`SLAB`] bytes
//! aligned to their size, whose first line is the [`Slab`] structure. Each header belongs to the
//! buffer of the same number for ever. Headers are written and buffers touched when first used,
//! so a pool that is too large costs address space only.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;

use super::{Header, Inner, PoolConfig, PoolError};

/// Bytes of a header slab, and its alignment.
const SLAB: usize = 64 * 1024;
/// Header lines in a slab: all lines but the first.
const PER_SLAB: usize = SLAB / size_of::<Header>() - 1;

/// First line of a header slab. Never changes after the arena was adopted.
#[repr(C, align(64))]
pub(super) struct Slab {
    pub(super) pool: NonNull<Inner>,
    /// [`Inner::id`].
    pub(super) id: u64,
    /// Number of the slab's first header.
    first: usize,
    /// [`Arena::usable`], which is asked for each packet that is queued.
    pub(super) usable: usize,
}

impl Slab {
    /// The slab that `header` lies in.
    ///
    /// # Safety
    /// `header` is a header of an arena that lives at least for `'a`.
    #[inline(always)]
    pub(super) unsafe fn of<'a>(header: NonNull<Header>) -> &'a Slab {
        // The provenance is that of the whole slab block (see `Arena::header`).
        let slab = header.as_ptr().map_addr(|a| a & !(SLAB - 1)).cast::<Slab>();
        // SAFETY: each header of an arena lies in a slab that starts with this line; it is
        // written before the first header is used.
        unsafe { &*slab }
    }
}

/// Header slabs and buffers of one pool.
pub(super) struct Arena {
    slabs: Block,
    data: Block,
    buffers: usize,
    buffer_size: usize,
    #[cfg(feature = "check")]
    pub(super) ledger: Box<[std::sync::atomic::AtomicU32]>,
    /// Dropped with the arena.
    #[cfg(test)]
    pub(super) witness: std::sync::OnceLock<Box<dyn Send + Sync>>,
}

impl Arena {
    pub(super) fn new(config: PoolConfig) -> Result<Arena, PoolError> {
        let PoolConfig {
            buffers,
            buffer_size,
        } = config;
        if !(512..=65_536).contains(&buffer_size) || buffer_size % 64 != 0 {
            return Err(PoolError::BufferSize(buffer_size));
        }
        if !(1..=1 << 24).contains(&buffers) {
            return Err(PoolError::Buffers(buffers));
        }
        let bytes = buffers
            .checked_mul(buffer_size)
            .ok_or(PoolError::Buffers(buffers))?;
        Ok(Arena {
            slabs: Block::new(buffers.div_ceil(PER_SLAB) * SLAB, SLAB)?,
            data: Block::new(bytes, 4096)?,
            buffers,
            buffer_size,
            #[cfg(feature = "check")]
            ledger: (0..buffers).map(|_| 0.into()).collect(),
            #[cfg(test)]
            witness: std::sync::OnceLock::new(),
        })
    }

    /// Writes the first lines of the slabs, which from now on lead to `pool`.
    ///
    /// # Safety
    /// Called once, before any header is used; `pool` owns this arena.
    pub(super) unsafe fn adopt(&self, pool: NonNull<Inner>, id: u64) {
        for slab in 0..self.buffers.div_ceil(PER_SLAB) {
            let line = Slab {
                pool,
                id,
                first: slab * PER_SLAB,
                usable: self.usable(),
            };
            // SAFETY: `slab * SLAB` is inside the block of slabs; aligned by the block's
            // alignment.
            unsafe { self.slabs.start.add(slab * SLAB).cast::<Slab>().write(line) };
        }
    }

    /// # Safety
    /// `index < self.len()`.
    pub(super) unsafe fn header(&self, index: usize) -> NonNull<Header> {
        debug_assert!(index < self.buffers);
        let (slab, line) = (index / PER_SLAB, index % PER_SLAB + 1);
        // SAFETY: inside the block by the caller's promise. Derived from the block's own pointer,
        // so that `Slab::of` may go back.
        unsafe {
            let place = slab * SLAB + line * size_of::<Header>();
            self.slabs.start.add(place).cast()
        }
    }

    /// Header `index`, written for the first time.
    ///
    /// # Safety
    /// `index < self.len()`, and nothing refers to the header yet.
    pub(super) unsafe fn first_use(&self, index: usize) -> NonNull<Header> {
        // SAFETY: by the caller's promise; the line is inside the block of slabs and the buffer
        // inside the data.
        unsafe {
            let header = self.header(index);
            // Slabs are zeroed, and all other fields may be zero.
            let buffer = self.data.start.add(index * self.buffer_size);
            (&raw mut (*header.as_ptr()).buf).write(buffer);
            header
        }
    }

    /// Where all header lines of this arena lie, and none of another one.
    #[inline(always)]
    pub(super) fn headers(&self) -> Range<usize> {
        let start = self.slabs.start.addr().get();
        start..start + self.slabs.bytes
    }

    /// The number of a header of this arena.
    pub(super) fn index(&self, header: NonNull<Header>) -> usize {
        // SAFETY: every header lies in a slab of its arena, which `self` keeps.
        let slab = unsafe { Slab::of(header) };
        slab.first + (header.addr().get() % SLAB) / size_of::<Header>() - 1
    }

    /// The buffer that belongs to a header of this arena.
    pub(super) fn buffer(&self, header: NonNull<Header>) -> NonNull<u8> {
        // SAFETY: the index is below `buffers`, and the data holds that many.
        unsafe { self.data.start.add(self.index(header) * self.buffer_size) }
    }

    pub(super) fn len(&self) -> usize {
        self.buffers
    }

    /// All buffers.
    pub(super) fn area(&self) -> NonNull<[u8]> {
        let bytes = self.buffers * self.buffer_size;
        NonNull::slice_from_raw_parts(self.data.start, bytes)
    }

    pub(super) fn buffer_size(&self) -> usize {
        self.buffer_size
    }

    /// Bytes of a buffer that a packet may use. Positions in it are 16 bits wide, and the end of
    /// the data is one, so the last byte of the largest buffer (65,536) is left out.
    pub(super) fn usable(&self) -> usize {
        self.buffer_size.min(usize::from(u16::MAX))
    }
}

/// One zeroed allocation. Large ones come from the system untouched, so memory is used only when
/// first written.
#[derive(Debug)]
struct Block {
    /// The allocation.
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
    fn new(bytes: usize, align: usize) -> Result<Block, PoolError> {
        // Aligned by hand: the allocator hands out zero pages as they are, but clears what it is
        // asked to align, which would touch all of it.
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

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; the pool drops its arena only when all
        // buffers are back.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}
