//! An adoption list of packets: [`AdoptionList`] with owned values at its ends.

use std::ptr::NonNull;

use super::list::RawList;
use super::{Header, PacketList};
use crate::sync::{AdoptionList, Linked};

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
#[derive(Debug, Default)]
pub struct PacketAdoption {
    list: AdoptionList<Header>,
}

impl PacketAdoption {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Pushes all of `packets`, in one atomic operation.
    ///
    /// # Errors
    /// With the packets, if the list is not empty and would hold more than `limit` of them.
    pub fn push(&self, packets: PacketList, limit: usize) -> Result<(), PacketList> {
        let Some(raw) = packets.into_raw() else {
            return Ok(());
        };
        // The list's links run from newest to oldest.
        // SAFETY: the chain came out of a `PacketList` that owned it; turned around, it runs from `tail` to `head`.
        let pushed = unsafe {
            if raw.len > 1 {
                reverse(raw.head);
            }
            self.list.push(raw.tail, raw.head, raw.len, limit)
        };
        if pushed {
            return Ok(());
        }
        // SAFETY: still ours; reversing again restores the order, and the push may have left a link behind the oldest.
        unsafe {
            Header::set_next(raw.head, None);
            if raw.len > 1 {
                reverse(raw.tail);
            }
            Err(PacketList::from_raw(raw))
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Packets that wait to be taken.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes everything, oldest first.
    pub fn take(&self) -> PacketList {
        let mut raw: Option<RawList> = None;
        self.list.take(|node| {
            // SAFETY: `take` gave the node to us; its link is ours to change.
            let bytes = unsafe {
                Header::set_next(node, raw.map(|r| r.head));
                u64::from((*node.as_ptr()).total_len)
            };
            raw = Some(match raw {
                None => RawList {
                    head: node,
                    tail: node,
                    len: 1,
                    bytes,
                },
                Some(r) => RawList {
                    head: node,
                    len: r.len + 1,
                    bytes: r.bytes + bytes,
                    ..r
                },
            });
        });
        // SAFETY: linked above from the oldest (`head`) to the newest (`tail`, whose link is `None`), and ours.
        raw.map_or_else(PacketList::new, |raw| unsafe { PacketList::from_raw(raw) })
    }
}

/// Turns a chain around.
///
/// # Safety
/// The caller owns the chain.
unsafe fn reverse(first: NonNull<Header>) {
    let (mut previous, mut next) = (None, Some(first));
    while let Some(node) = next {
        // SAFETY: owned by the caller's promise.
        unsafe {
            next = Header::next(node);
            Header::set_next(node, previous);
        }
        previous = Some(node);
    }
}

impl Drop for PacketAdoption {
    fn drop(&mut self) {
        drop(self.take());
    }
}
