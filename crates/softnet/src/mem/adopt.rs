//! Adoption lists of packets: [`BatchList`] with owned values at its ends.

use std::ptr::NonNull;

use super::list::Chain;
use super::{Header, Packet, PacketList};
use crate::sync::{BatchList, Linked, Taken};

// SAFETY: both functions use `Header::next`, which only the list that holds the packet touches.
unsafe impl Linked for Header {
    unsafe fn next(node: NonNull<Self>) -> Option<NonNull<Self>> {
        // SAFETY: valid and owned by the caller's promise.
        unsafe { (*node.as_ptr()).next }
    }
    unsafe fn set_next(node: NonNull<Self>, next: Option<NonNull<Self>>) {
        // SAFETY: valid and owned by the caller's promise.
        unsafe { (*node.as_ptr()).next = next }
    }
}

/// Many threads push lists of packets, one takes them all, in order of the pushes. Nobody waits.
#[derive(Debug)]
pub struct PacketAdoption {
    list: BatchList<Header>,
}

impl PacketAdoption {
    /// An empty list, made for a backlog of up to `expected` packets
    /// (see [`BatchList::expecting`]).
    pub fn expecting(expected: usize) -> Self {
        PacketAdoption {
            list: BatchList::expecting(expected),
        }
    }

    /// Pushes all of `packets`, in one atomic operation. Returns how many waited before them.
    ///
    /// # Errors
    /// With the packets, if the list is not empty and would hold more than `limit` of them.
    pub fn push(&self, packets: PacketList, limit: usize) -> Result<usize, PacketList> {
        let count = packets.len();
        self.push_weighed(packets, count, limit)
    }

    /// As [`push`](PacketAdoption::push), for packets that count as `weight`, at least their
    /// number: what waits, and [`len`](PacketAdoption::len), is then a sum of weights.
    ///
    /// # Errors
    /// With the packets, if the list is not empty and would weigh more than `limit`.
    pub fn push_weighed(
        &self,
        mut packets: PacketList,
        weight: usize,
        limit: usize,
    ) -> Result<usize, PacketList> {
        let Some(chain) = newest_first(&mut packets) else {
            return Ok(self.len());
        };
        // SAFETY: the chain is ours, linked from the newest (`head`) to the oldest (`tail`).
        let pushed = unsafe { self.list.push(chain.head, chain.tail, weight, limit) };
        pushed.ok_or_else(|| {
            // SAFETY: not pushed, so still ours.
            unsafe { give_back(chain, &mut packets) };
            packets
        })
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Packets in the list.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes everything, oldest first, as the next batch; see [`BatchList::take_batch`].
    pub fn take(&self) -> PacketList {
        let mut packets = PacketList::new();
        // SAFETY: `take_batch` gives every node to us.
        self.list
            .take_batch(|node| packets.push_front(unsafe { Packet::from_raw(node) }));
        packets
    }

    /// See [`BatchList::end_batch`].
    pub fn end_batch(&self) {
        self.list.end_batch();
    }

    /// See [`BatchList::mark`].
    pub fn mark(&self) -> u64 {
        self.list.mark()
    }

    /// See [`BatchList::passed`].
    pub fn passed(&self, mark: u64) -> bool {
        self.list.passed(mark)
    }
}

impl Drop for PacketAdoption {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Takes the packets out of a list, as a chain that runs from the newest to the oldest.
#[inline]
pub(super) fn newest_first(packets: &mut PacketList) -> Option<Chain> {
    if packets.len() > 1 {
        packets.reverse();
    }
    packets.take_chain()
}

/// Undoes [`newest_first`].
///
/// # Safety
/// The caller owns the chain, and gives it up. (The link behind the oldest may be anything.)
#[inline]
pub(super) unsafe fn give_back(chain: Chain, packets: &mut PacketList) {
    // SAFETY: by the caller's promise.
    unsafe {
        Header::set_next(chain.tail, None);
        packets.append_chain(chain);
    }
    if chain.len > 1 {
        packets.reverse();
    }
}

/// As a list of packets.
#[inline]
pub(super) fn oldest_first(taken: Taken<'_, Header>) -> PacketList {
    let mut packets = PacketList::new();
    // SAFETY: `taken` owns the nodes.
    taken.visit(|node| packets.push_front(unsafe { Packet::from_raw(node) }));
    packets
}
