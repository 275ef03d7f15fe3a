//! The memory of a pool: header lines in aligned slabs, buffers in one block beside them.
//!
//! A header line finds its pool without storing a pointer: headers lie in slabs of [`SLAB`] bytes aligned to their size,
//! whose first line is the [`Slab`] structure. Each header belongs to the buffer of the same number for ever.
//! Headers are written and buffers touched when first used, so a pool that is too large costs address space only.

use std::ptr::NonNull;

use super::Header;
use super::memory::{Block, Memory};
use super::{Inner, PoolConfig, PoolError};

/// Bytes of a header slab, and its alignment.
const SLAB: usize = 64 * 1024;
/// Header lines in a slab: all lines but the first.
const PER_SLAB: usize = SLAB / size_of::<Header>() - 1;

/// First line of a header slab. Never changes after the arena was adopted.
#[repr(C, align(64))]
pub(super) struct Slab {
    pool: NonNull<Inner>,
    /// [`Inner::id`].
    id: u64,
    /// Number of the slab's first header.
    first: usize,
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
        // SAFETY: each header of an arena lies in a slab that starts with this line; it is written before the first header is used.
        unsafe { &*slab }
    }

    #[inline(always)]
    pub(super) fn pool(&self) -> NonNull<Inner> {
        self.pool
    }

    #[inline(always)]
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

/// Header slabs and buffers of one pool.
#[derive(Debug)]
pub(super) struct Arena {
    slabs: Block,
    data: Box<dyn Memory>,
    buffers: usize,
    buffer_size: usize,
}

impl Arena {
    /// Buffers in `memory`, or on the heap.
    pub(super) fn new(
        config: PoolConfig,
        memory: Option<Box<dyn Memory>>,
    ) -> Result<Arena, PoolError> {
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
        let data = match memory {
            Some(memory) => memory,
            None => Box::new(Block::new(bytes, 4096)?),
        };
        let range = data.bytes();
        if range.len() < bytes || range.addr().get() % 64 != 0 {
            return Err(PoolError::Area {
                given: range.len(),
                needed: bytes,
            });
        }
        let slabs = Block::new(buffers.div_ceil(PER_SLAB) * SLAB, SLAB)?;
        Ok(Arena {
            slabs,
            data,
            buffers,
            buffer_size,
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
            };
            // SAFETY: `slab * SLAB` is inside the block of slabs; aligned by the block's alignment.
            unsafe {
                self.slabs
                    .bytes()
                    .cast::<u8>()
                    .add(slab * SLAB)
                    .cast::<Slab>()
                    .write(line)
            };
        }
    }

    /// # Safety
    /// `index < self.len()`.
    pub(super) unsafe fn header(&self, index: usize) -> NonNull<Header> {
        debug_assert!(index < self.buffers);
        let (slab, line) = (index / PER_SLAB, index % PER_SLAB + 1);
        // SAFETY: inside the block by the caller's promise. Derived from the block's own pointer, so that `Slab::of` may go back.
        unsafe {
            self.slabs
                .bytes()
                .cast::<u8>()
                .add(slab * SLAB + line * size_of::<Header>())
                .cast()
        }
    }

    /// Header `index`, written for the first time.
    ///
    /// # Safety
    /// `index < self.len()`, and nothing refers to the header yet.
    pub(super) unsafe fn first_use(&self, index: usize) -> NonNull<Header> {
        // SAFETY: by the caller's promise; the line is inside the block of slabs and the buffer inside the data.
        unsafe {
            let header = self.header(index);
            header.write(Header::new(
                self.data.bytes().cast::<u8>().add(index * self.buffer_size),
            ));
            header
        }
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
        unsafe {
            self.data
                .bytes()
                .cast::<u8>()
                .add(self.index(header) * self.buffer_size)
        }
    }

    pub(super) fn len(&self) -> usize {
        self.buffers
    }

    /// Bytes of a buffer that a packet may use. Positions in it are 16 bits wide, and the end of
    /// the data is one, so the last byte of the largest buffer (65,536) is left out.
    pub(super) fn usable(&self) -> usize {
        self.buffer_size.min(usize::from(u16::MAX))
    }
}
