//! How packets are handed out: from the thread's own cache if it holds enough, else in a session.

#[cfg(debug_assertions)]
use std::panic::Location;
use std::sync::atomic::Ordering;

use super::cache::Chain;
use super::{Exhausted, Pool, session, thread};
use super::{Header, Packet, PacketList};

impl Pool {
    /// An empty packet with [`HEADROOM`](crate::mem::HEADROOM) free bytes in front.
    ///
    /// # Errors
    /// [`Exhausted`] if no buffer is free anywhere in the pool.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn alloc(&self) -> Result<Packet, Exhausted> {
        if let Some(home) = thread::find(self.id) {
            // SAFETY: the home that `find` found belongs to this thread and lives as long as it does not register with another.
            let home = unsafe { home.as_ref() };
            // SAFETY: as above; nothing in a home allocates.
            if let Some(cache) = unsafe { home.enter() }
                && let Some(header) = cache.pop()
            {
                drop(cache);
                #[cfg(debug_assertions)]
                self.inner().note(header, Some(Location::caller()));
                // SAFETY: the cache gave this buffer out to us alone.
                return Ok(unsafe {
                    Header::reset(header, home.index, None);
                    Packet::from_raw(header)
                });
            }
        }
        let chain = self.alloc_slow(1).ok_or(Exhausted)?;
        // SAFETY: a chain of one packet, which is ours alone.
        Ok(unsafe { Packet::from_raw(chain.head) })
    }

    /// Appends up to `n` empty packets to `list`; returns how many. Fewer than `n` means that the pool is exhausted.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn alloc_bulk(&self, n: usize, list: &mut PacketList) -> usize {
        let mut got = 0;
        if let Some(home) = thread::find(self.id) {
            // SAFETY: as in `alloc`.
            let home = unsafe { home.as_ref() };
            // SAFETY: as in `alloc`.
            if let Some(cache) = unsafe { home.enter() }
                && let Some(chain) = cache.take(n, home.index)
            {
                drop(cache);
                self.note_all(&chain);
                // SAFETY: the chain came out of the cache, which gave it to us alone; its packets are empty and linked.
                unsafe { list.append_empty(chain.head, chain.tail, chain.len) };
                if chain.len == n {
                    return n;
                }
                got = chain.len;
            }
        }
        let Some(chain) = self.alloc_slow(n - got) else {
            return got;
        };
        // SAFETY: as above.
        unsafe { list.append_empty(chain.head, chain.tail, chain.len) };
        got + chain.len
    }

    /// Up to `n` packets, linked. Returned rather than put into the caller's list: a list whose address does not get out
    /// stays in registers, where moving it costs nothing.
    #[cold]
    #[inline(never)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn alloc_slow(&self, n: usize) -> Option<Chain> {
        let mut all: Option<Chain> = None;
        loop {
            let got = all.as_ref().map_or(0, |chain| chain.len);
            if got >= n {
                return all;
            }
            // SAFETY: we have a handle; callers are not inside.
            let chain = unsafe { session::enter(self.inner.0, |session| session.alloc(n - got)) };
            let Some(chain) = chain else {
                self.inner().exhausted.fetch_add(1, Ordering::Relaxed);
                return all;
            };
            self.note_all(&chain);
            all = Some(match all {
                None => chain,
                Some(before) => {
                    // SAFETY: both chains are ours; `tail` is the last of its chain.
                    unsafe { (*before.tail.as_ptr()).next = Some(chain.head) };
                    Chain {
                        head: before.head,
                        tail: chain.tail,
                        len: got + chain.len,
                    }
                }
            });
        }
    }

    /// Remembers who allocated the packets (debug builds only).
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn note_all(&self, chain: &Chain) {
        #[cfg(not(debug_assertions))]
        let _ = chain;
        #[cfg(debug_assertions)]
        {
            let mut next = Some(chain.head);
            while let Some(header) = next {
                self.inner().note(header, Some(Location::caller()));
                // SAFETY: the chain is ours.
                next = unsafe { header.as_ref().next };
            }
        }
    }
}
