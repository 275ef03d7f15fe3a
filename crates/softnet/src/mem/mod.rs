//! The packet pool: one arena, a cache for each thread, a depot of bundles behind them.
//!
//! Any thread may allocate and free, registered or not; nobody waits for anybody. The first use gives the thread a *home* in the pool, with a
//! cache of up to 256 buffers that it enters without an atomic operation on a shared line (a [biased lock](crate::sync::Biased)). An empty cache takes
//! a *bundle* of up to 64 buffers from the depot, a full one gives half away in bundles. A bundle moves in one exchange.
//!
//! **Packets go home.** Each buffer records the home that allocated it. Freed by another thread, it is collected there in an outbox for its home; a
//! full outbox goes to the home's inbox as one bundle, in one exchange. Home takes its inbox in before it looks into the depot, and when its
//! thread calls [`Pool::poll_home`]. An inbox is bounded ([`Pool::set_defer_max`]); what does not fit goes to the depot. A home that sleeps is
//! woken at half the bound, once.
//!
//! *Unless they are needed here:* a thread that allocates as much as it frees for others (two workers that forward to each other) keeps what
//! it frees while its cache is less than half full: the lines are warm here, and home does not miss them. It is decided anew whenever
//! a bundle goes home: a thread that allocated fewer than a bundle's worth since the last one keeps nothing.
//!
//! **Nothing is stranded.** A thread that exits gives back all it held. Before an allocation fails, the inboxes and then the caches of all other
//! threads are searched, except those whose thread is inside the pool at this very moment.
//!
//! **Why thread-held caches and not per-CPU ones** (restartable sequences). Measured against each other
//! (`docs/results/rseq.md`; AMD EPYC, 2 CPUs): allocating and freeing on one CPU takes 2.6 ns here and 4.5 ns with a cache per CPU that is entered by restartable
//! sequences, 2.1 against 2.8 ns in bulks of 8, 1.7 against 2.2 in bulks of 32. Both avoid atomic operations; a sequence has to announce itself and to look
//! for its CPU each time, and can only take effect with one store. It would bound what caches hold by CPUs rather than threads, but needs assembly for each
//! architecture, and is missing under valgrind, miri and musl, where thread-held caches would be needed beside it. That the caches of many
//! idle threads hold much is answered by stealing. The owner's side of the lock costs two plain stores because `membarrier` makes the thief pay (22 µs).
//!
//! **Why bundles of addresses and not chains**: see `bundle.rs`. **Why an outbox and not one push per freed list**: a push to a line that another
//! CPU uses costs as much as freeing many packets, and lists of one or two packets are common. What waits in an outbox is part of
//! the cache: it is used before anything is stolen, can itself be stolen, and is sent off before the thread sleeps ([`Pool::prepare_sleep`]).
//!
//! Memory: the arena lives until the last [`Pool`] handle is gone *and* all packets are back; see `close.rs`.

#![allow(
    unsafe_code,
    reason = "this module owns the header lines and buffers of packets"
)]

mod adopt;
mod alloc;
mod arena;
mod cache;
mod close;
mod config;
mod depot;
mod free;
mod header;
mod headers;
mod home;
mod inner;
mod list;
mod magazine;
mod memory;
mod meta;
mod outgoing;
mod packet;
#[cfg(debug_assertions)]
mod places;
mod pool;
mod read;
mod remote_free;
mod run;
mod session;
mod stats;
mod thread;

pub use adopt::PacketAdoption;
pub use config::{Exhausted, PoolConfig, PoolError};
use free::{buffer_size, free_list, free_one};
use header::{Flags, Header, SharedInfo};
use inner::Inner;
pub use list::PacketList;
pub use memory::Memory;
pub use packet::{HEADROOM, Packet, SHARED_INFO, Segments};
#[cfg(debug_assertions)]
pub use places::Outstanding;
pub use pool::Pool;
pub use run::{Entry, PacketRun, PacketRunner};
pub use stats::{HomeStats, PoolStats};

#[cfg(test)]
mod bug_tests;
#[cfg(test)]
mod defer_tests;
#[cfg(test)]
mod packet_tests;
#[cfg(test)]
mod pool_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod range_tests;
#[cfg(test)]
mod share_tests;
#[cfg(test)]
mod testing;
