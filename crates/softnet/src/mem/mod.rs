//! Packet memory: packets and their lists, and the pool that their buffers come from and go back
//! to.
//!
//! A [`Packet`] owns one buffer of a [`Pool`]: a 64-byte header line with the metadata and, apart
//! from it, the data. A [`PacketList`] is a FIFO that links packets through their headers and is
//! freed in bulk.
//!
//! # The pool
//!
//! One arena of buffers; a thread cache for each thread that uses the pool; a depot behind them.
//!
//! Any thread may allocate and free; nobody waits for anybody. The first use registers the
//! thread: it then owns a cache of up to 256 buffers that it enters without an atomic operation
//! on a shared line (a biased lock, `sync/biased.rs`). An empty cache takes a *magazine* of up to
//! 64 buffers from the depot, a full one gives half away in magazines. A magazine moves in one
//! exchange. A thread that cannot be registered (it exits, or there are too many), or whose cache
//! is being stolen from, uses the depot.
//!
//! **Buffers return to their owner.** Each buffer records the thread cache that allocated it.
//! Freed by another thread, it is collected there in a magazine for its owner; a full magazine
//! goes to the owner's *remote-free list*, in one exchange. (One push per freed list would cost
//! as much as freeing many packets, and lists of one or two packets are common.) The owner takes
//! its list in before it looks into the depot, and when its thread calls
//! [`Pool::poll_remote_free`]. The list is bounded ([`Pool::set_defer_max`]); what is too much
//! goes to the depot. An owner that sleeps is woken at half the bound, once.
//!
//! *Unless they are needed here:* a thread that allocates as much as it frees for others (two
//! workers that forward to each other) keeps what it frees while its cache is less than half
//! full: the lines are warm here, and the owner does not miss them. It is decided anew whenever a
//! magazine is sent: a thread that allocated fewer than a magazine's worth since the last one
//! keeps nothing.
//!
//! **Nothing is stranded.** A thread that exits gives back all it held. Magazines in the making
//! are used before anything is stolen, can be stolen themselves, and are sent before the thread
//! sleeps ([`Pool::prepare_sleep`]). Before an allocation fails, the remote-free lists and then
//! the caches of all other threads are searched, except those whose thread is inside the pool, or
//! that another thread searches, at this very moment.
//!
//! **Why caches of threads and not of CPUs** (restartable sequences). Measured against each other
//! (`docs/results/rseq.md`; AMD EPYC, 2 CPUs): allocating and freeing on one CPU takes 2.6 ns
//! here and 4.5 ns with a cache per CPU that is entered by restartable sequences, 2.1 against 2.8
//! ns in bulks of 8, 1.7 against 2.2 in bulks of 32. Both avoid atomic operations; a sequence has
//! to announce itself and to look for its CPU each time, and can only take effect with one store.
//! It would bound what caches hold by CPUs rather than threads, but needs assembly for each
//! architecture, and is missing under valgrind, miri and musl. That the caches of many idle
//! threads hold much is answered by stealing. The owner's side of the lock costs two plain stores
//! because `membarrier` makes the thief pay (22 µs).
//!
//! The arena lives until the last [`Pool`] handle is gone *and* all packets are back; see
//! `close.rs`.

#![allow(
    unsafe_code,
    reason = "this module owns the header lines and buffers of packets"
)]
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]

mod alloc;
mod arena;
mod cache;
mod close;
mod free;
mod header;
mod list;
mod magazine;
mod meta;
mod packet;
mod pool;
mod read;
mod remote_free;
mod slow;
mod stats;
mod thread;
mod thread_cache;

use free::{buffer_size, free_list, free_one, own_buffer};
use header::{Flags, Header, SharedInfo};
pub use list::PacketList;
#[doc(hidden)]
pub use meta::{AccountedLen, Turn};
pub use packet::{HEADROOM, Packet, SHARED_INFO, Segments};
use pool::Inner;
pub use pool::{Exhausted, Pool, PoolConfig, PoolError};
pub use stats::PoolStats;

#[cfg(all(test, not(loom)))]
mod bug_tests;
#[cfg(all(test, not(loom)))]
mod close_tests;
#[cfg(all(test, not(loom)))]
mod defer_tests;
#[cfg(all(test, not(loom)))]
mod packet_tests;
#[cfg(all(test, not(loom)))]
mod pool_tests;
#[cfg(all(test, not(loom)))]
mod property_tests;
#[cfg(all(test, not(loom)))]
mod range_tests;
#[cfg(all(test, not(loom)))]
mod share_tests;
#[cfg(any(test, feature = "testing", feature = "check", feature = "controls"))]
mod testing;
#[cfg(any(test, feature = "testing"))]
pub use testing::ThreadStats;
#[cfg(feature = "check")]
use testing::check;
#[cfg(feature = "check")]
pub use testing::check::{Holder, POISON};

/// An adoption list of packets.
#[doc(hidden)]
pub type PacketAdoption = crate::sync::BatchList<PacketList>;

/// A length or place in one buffer, or a number of a thread or in a magazine.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "pools are made so that these fit"
)]
const fn short(n: usize) -> u16 {
    debug_assert!(n <= 0xffff);
    n as u16
}

/// A length of a frame, or a number of a buffer.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "as above")]
const fn word(n: usize) -> u32 {
    debug_assert!(n <= 0xffff_ffff);
    n as u32
}

/// A number of things in memory.
#[inline(always)]
fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
