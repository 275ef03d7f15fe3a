//! What a pool is made of, why it could not be made, and that it is exhausted.

/// What a pool is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Number of buffers.
    pub buffers: usize,
    /// Bytes of a buffer, including 256 for headroom and bookkeeping; a multiple of 64, at most 65,536.
    pub buffer_size: usize,
}

impl Default for PoolConfig {
    /// 65,536 buffers of 2 KiB: an Ethernet frame of 1,792 bytes fits in one.
    fn default() -> Self {
        PoolConfig {
            buffers: 65_536,
            buffer_size: 2048,
        }
    }
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PoolError {
    /// `buffer_size` is out of range.
    #[error("buffer size {0} is not a multiple of 64 between 512 and 65536")]
    BufferSize(usize),
    /// `buffers` is out of range.
    #[error("a pool needs between 1 and 16777216 buffers, not {0}")]
    Buffers(usize),
    /// The system has not that much memory.
    #[error("no memory for {0} bytes of packet buffers; ask for fewer buffers")]
    Memory(usize),
    /// The memory given is too small or not aligned to 64 bytes.
    #[error("a memory area of {given} bytes does not hold {needed} bytes aligned to 64")]
    Area {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
}

/// The pool had no buffer left. Counted in [`PoolStats::exhausted`](super::PoolStats::exhausted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet pool is exhausted")]
pub struct Exhausted;
