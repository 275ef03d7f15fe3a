//! Allocation of packets: from the thread's own cache if it holds any, else on the slow path.

use super::list::Chain;
use super::{Exhausted, Header, Packet, PacketList, Pool, slow, thread};

impl Pool {
    /// An empty packet with [`HEADROOM`](super::HEADROOM) free bytes in front.
    ///
    /// # Errors
    /// [`Exhausted`] if no buffer is free anywhere in the pool but in caches that are in use now;
    /// and up to 1,024 times in turn where the caches of other threads had little to give before.
    #[inline]
    pub fn alloc(&self) -> Result<Packet, Exhausted> {
        // SAFETY: used here only; nothing in a cache allocates.
        let header = if let Some((thread, cache)) = unsafe { thread::enter(self.id) }
            && let Some(header) = cache.pop()
        {
            drop(cache);
            // SAFETY: the cache gave this buffer out to us alone.
            unsafe { Header::reset(header, thread.index, None) };
            header
        } else {
            self.alloc_slow(1).ok_or(Exhausted)?.head
        };
        // SAFETY: a fresh header, which is ours alone.
        let packet = unsafe { Packet::from_raw(header) };
        #[cfg(feature = "check")]
        super::check::allocated(&packet);
        Ok(packet)
    }

    /// A packet with these bytes, in as many segments as they need.
    ///
    /// # Errors
    /// [`Exhausted`] if the pool has not enough buffers.
    ///
    /// # Panics
    /// If there are 4 GiB of bytes or more.
    pub fn packet(&self, bytes: &[u8]) -> Result<Packet, Exhausted> {
        let filled = |bytes: &[u8]| {
            let mut packet = self.alloc()?;
            packet.tailroom_mut()[..bytes.len()].copy_from_slice(bytes);
            packet.extend(bytes.len());
            Ok(packet)
        };
        let (first, rest) = bytes.split_at(bytes.len().min(self.payload_size()));
        let mut packet = filled(first)?;
        for segment in rest.chunks(self.payload_size()) {
            packet.append_segment(filled(segment)?);
        }
        Ok(packet)
    }

    /// Appends up to `n` empty packets to `list`; returns how many. Fewer than `n` means that the
    /// pool is exhausted.
    // Part of the caller, whose list then stays in registers.
    #[inline(always)]
    pub fn alloc_bulk(&self, n: usize, list: &mut PacketList) -> usize {
        #[cfg(any(test, feature = "controls"))]
        if self.inner().controls.no_bulk() {
            return self.alloc_each(n, list);
        }
        let mut got = 0;
        #[cfg(feature = "check")]
        let before = list.len();
        // SAFETY: as in `alloc`.
        if let Some((thread, cache)) = unsafe { thread::enter(self.id) }
            && let Some(chain) = cache.take(n, thread.index)
        {
            drop(cache);
            got = chain.len;
            // SAFETY: the chain came out of the cache, which gave it to us alone; its packets are
            // empty and linked.
            unsafe { list.append_chain(chain) };
        }
        while got < n
            && let Some(chain) = self.alloc_slow(n - got)
        {
            got += chain.len;
            // SAFETY: as above.
            unsafe { list.append_chain(chain) };
        }
        #[cfg(feature = "check")]
        list.iter().skip(before).for_each(super::check::allocated);
        got
    }

    /// At least one packet and at most `n`, linked. Returned rather than put into the caller's
    /// list: a list whose address does not escape stays in registers.
    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, n: usize) -> Option<Chain> {
        // SAFETY: we have a handle; callers are not inside.
        unsafe { slow::enter(self.inner.0, |slow| slow.alloc(n)) }
    }
}
