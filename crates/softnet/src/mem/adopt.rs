//! Adoption lists of packets: [`BatchList`] with owned values at its ends.

use super::{Header, PacketList};
use crate::sync::{BatchList, NodeList};

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
        let Some(chain) = packets.take_nodes() else {
            return Ok(self.len());
        };
        // SAFETY: the chain is ours.
        let pushed = unsafe { self.list.push(&chain, weight, limit) };
        pushed.ok_or_else(|| {
            // SAFETY: not pushed, so still ours.
            unsafe { packets.put_front(chain) };
            packets
        })
    }

    /// True if the list is empty.
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
        // SAFETY: `take_batch` gives every chain to us.
        self.list
            .take_batch(|chain| unsafe { packets.put_front(chain) });
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
