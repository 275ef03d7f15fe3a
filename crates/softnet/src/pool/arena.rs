//! The memory of a pool: header lines in aligned slabs, buffers in one block beside them.
//!
//! A header line finds its pool without storing a pointer: headers lie in slabs of [`SLAB`] bytes aligned to their size,
//! whose first line is the [`Slab`] structure. All memory is zeroed when made, so buffers may always be read as bytes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::{Inner, PoolConfig, PoolError};
use crate::packet::Header;

/// Bytes of a header slab, and its alignment.
const SLAB: usize = 64 * 1024;
/// Header lines in a slab: all lines but the first.
const PER_SLAB: usize = SLAB / size_of::<Header>() - 1;

/// First line of a header slab.
#[repr(C, align(64))]
pub(super) struct Slab {
    pool: NonNull<Inner>,
}

impl Slab {
    /// The slab that `header` lies in.
    pub(super) fn of(header: NonNull<Header>) -> NonNull<Slab> {
        // Never null: slabs are not at address 0. The provenance is that of the whole slab block (see `Arena::header`).
        let slab = header.as_ptr().map_addr(|a| a & !(SLAB - 1));
        NonNull::new(slab.cast()).unwrap_or(NonNull::dangling())
    }

    pub(super) fn pool(&self) -> NonNull<Inner> {
        self.pool
    }
}

/// Header slabs and buffers of one pool.
#[derive(Debug)]
pub(super) struct Arena {
    slabs: Block,
    data: Block,
    buffers: usize,
    buffer_size: usize,
}

impl Arena {
    pub(super) fn new(config: PoolConfig) -> Result<Arena, PoolError> {
        let PoolConfig { buffers, buffer_size } = config;
        if !(512..=65_536).contains(&buffer_size) || buffer_size % 64 != 0 {
            return Err(PoolError::BufferSize(buffer_size));
        }
        if !(1..=1 << 24).contains(&buffers) {
            return Err(PoolError::Buffers(buffers));
        }
        let bytes = buffers.checked_mul(buffer_size).ok_or(PoolError::Buffers(buffers))?;
        Ok(Arena {
            slabs: Block::new(buffers.div_ceil(PER_SLAB) * SLAB, SLAB)?,
            data: Block::new(bytes, 4096)?,
            buffers,
            buffer_size,
        })
    }

    /// Writes the slabs and header lines, which from now on lead to `pool`.
    ///
    /// # Safety
    /// Called once, before any header is handed out; `pool` owns this arena.
    pub(super) unsafe fn adopt(&self, pool: NonNull<Inner>) {
        for slab in 0..self.buffers.div_ceil(PER_SLAB) {
            // SAFETY: `slab * SLAB` is inside the block of slabs; aligned by the block's alignment.
            unsafe { self.slabs.at(slab * SLAB).cast::<Slab>().write(Slab { pool }) };
        }
        for index in 0..self.buffers {
            // SAFETY: inside the blocks by `index < buffers`; nothing refers to the line yet.
            unsafe {
                let buf = self.data.at(index * self.buffer_size);
                self.header(index).write(Header::new(buf));
            }
        }
    }

    /// # Safety
    /// `index < self.buffers`.
    unsafe fn header(&self, index: usize) -> NonNull<Header> {
        let (slab, line) = (index / PER_SLAB, index % PER_SLAB + 1);
        // SAFETY: inside the block by the caller's promise. Derived from the block's own pointer, so that `Slab::of` may go back.
        unsafe { self.slabs.at(slab * SLAB + line * size_of::<Header>()).cast() }
    }

    pub(super) fn headers(&self) -> impl Iterator<Item = NonNull<Header>> + '_ {
        // SAFETY: the range ends at `buffers`.
        (0..self.buffers).map(|index| unsafe { self.header(index) })
    }

    pub(super) fn len(&self) -> usize {
        self.buffers
    }

    pub(super) fn buffer_size(&self) -> usize {
        self.buffer_size
    }
}

/// One zeroed allocation. Large ones come from the system untouched, so memory is used only when first written.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

impl Block {
    fn new(bytes: usize, align: usize) -> Result<Block, PoolError> {
        let layout = Layout::from_size_align(bytes, align).map_err(|_| PoolError::Memory(bytes))?;
        // SAFETY: the layout's size is not zero (at least one buffer).
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(PoolError::Memory(bytes))?;
        Ok(Block { start, layout })
    }

    /// # Safety
    /// `offset` is inside the block.
    unsafe fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.layout.size());
        // SAFETY: by the caller's promise.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; the pool drops its arena only when all buffers are back.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
