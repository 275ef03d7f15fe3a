//! A FIFO of packets, linked through their header lines: push, pop, append and split without
//! allocation.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::{Header, Packet, size};
use crate::sync::{self, Linked, NodeList};

/// An owned list of packets with its packet and byte counts. Dropping it frees the packets in
/// bulk.
#[derive(Default)]
pub struct PacketList {
    head: Option<NonNull<Header>>,
    /// Valid while `head` is `Some`.
    tail: Option<NonNull<Header>>,
    len: usize,
    bytes: u64,
}

// SAFETY: the list owns its packets, and packets are `Send`.
unsafe impl Send for PacketList {}
// SAFETY: `&PacketList` gives only shared reads.
unsafe impl Sync for PacketList {}

impl PacketList {
    /// An empty list.
    pub const fn new() -> PacketList {
        PacketList {
            head: None,
            tail: None,
            len: 0,
            bytes: 0,
        }
    }

    /// Packets (frames) in the list.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Sum of the packets' lengths in bytes, as they were when added.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sum of [`Packet::wire_packets`].
    pub fn wire_packets(&self) -> u64 {
        self.iter().map(Packet::wire_packets).sum()
    }

    /// Adds a packet at the end.
    #[inline]
    pub fn push_back(&mut self, packet: Packet) {
        let chain = Chain::of(packet);
        // SAFETY: the list owns the chain, just taken over.
        unsafe {
            (*chain.tail.as_ptr()).next = None;
            self.append_chain(chain);
        }
    }

    /// Puts a packet back at the front.
    pub fn push_front(&mut self, packet: Packet) {
        // SAFETY: the list owns the chain, just taken over.
        unsafe { self.put_front(Chain::of(packet)) };
    }

    /// Takes the first packet.
    pub fn pop_front(&mut self) -> Option<Packet> {
        let raw = self.head?;
        // SAFETY: the list owns the packet; it is unlinked here, so the handle made is the only
        // one.
        let packet = unsafe {
            self.head = raw.as_ref().next;
            Packet::from_raw(raw)
        };
        self.len -= 1;
        self.bytes -= packet.len() as u64;
        Some(packet)
    }

    /// The first packet.
    pub fn front(&self) -> Option<&Packet> {
        self.iter().next()
    }

    /// Calls `change` for every packet, first to last, where it is. All stay in the list, also if
    /// that panics.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&mut Packet)) {
        let mut before = None;
        while let Some(raw) = self.behind(before) {
            // SAFETY: the list owns the packet; nobody else uses it until `place` puts it back.
            let (packet, next) = unsafe { (Packet::from_raw(raw), raw.as_ref().next) };
            self.bytes -= packet.len() as u64;
            let mut place = Place {
                list: self,
                before,
                packet: ManuallyDrop::new(packet),
                next,
            };
            change(&mut place.packet);
            before = Some(place.packet.0);
        }
    }

    /// The first packet, or the one behind one of the list.
    #[inline(always)]
    fn behind(&self, before: Option<NonNull<Header>>) -> Option<NonNull<Header>> {
        match before {
            None => self.head,
            // SAFETY: the list owns it.
            Some(before) => unsafe { before.as_ref().next },
        }
    }

    /// Moves all packets of `other` to the end of this list, in order; one step, whatever the
    /// length.
    pub fn append(&mut self, other: &mut PacketList) {
        if let Some(chain) = other.take_chain() {
            // SAFETY: the other list owned the chain and gave it up.
            unsafe { self.append_chain(chain) };
        }
    }

    /// Moves the first `n` packets (or all) to the end of `to`.
    pub fn split_front(&mut self, n: usize, to: &mut PacketList) {
        if n >= self.len {
            to.append(self);
        } else {
            self.split(n as u64, to, |_| 1);
        }
    }

    /// Moves packets from the front to the end of `to` until they stand for `n` wire packets or
    /// more, or all. Returns for how many they stand.
    pub fn split_wire_packets(&mut self, n: usize, to: &mut PacketList) -> usize {
        size(self.split(n as u64, to, Packet::wire_packets))
    }

    /// Moves packets from the front to the end of `to` until they cost `budget` or more, or all.
    /// Returns what they cost.
    fn split(&mut self, budget: u64, to: &mut PacketList, cost: impl Fn(&Packet) -> u64) -> u64 {
        let (mut front, mut spent) = (PacketList::new(), 0);
        for packet in self.iter() {
            if spent >= budget {
                break;
            }
            spent += cost(packet);
            front.len += 1;
            front.bytes += packet.len() as u64;
            front.tail = Some(packet.0);
        }
        // Moved in one piece: each packet that was counted is linked to the next.
        if let Some(mut last) = front.tail {
            front.head = self.head;
            // SAFETY: the list owns it.
            self.head = unsafe { last.as_mut().next.take() };
            self.len -= front.len;
            self.bytes -= front.bytes;
            to.append(&mut front);
        }
        spent
    }

    /// The packets, first to last.
    pub fn iter(&self) -> Iter<'_> {
        Iter { link: &self.head }
    }

    /// Takes the list's content out.
    pub fn take(&mut self) -> PacketList {
        std::mem::take(self)
    }

    /// Gives up ownership of the packets.
    #[inline]
    pub(super) fn take_chain(&mut self) -> Option<Chain> {
        let head = self.head.take()?;
        let chain = Chain {
            head,
            // Always `Some`; a default costs less than a branch.
            tail: self.tail.unwrap_or(head),
            len: self.len,
            bytes: self.bytes,
        };
        (self.len, self.bytes) = (0, 0);
        Some(chain)
    }

    /// Takes over packets, at the end.
    ///
    /// # Safety
    /// Nothing else refers to the packets. They are linked from `head` to `tail`, whose `next` is
    /// `None`; the counts are right.
    #[inline]
    pub(super) unsafe fn append_chain(&mut self, chain: Chain) {
        match self.tail {
            // SAFETY: `tail` is this list's own last packet.
            Some(mut last) if self.head.is_some() => unsafe {
                last.as_mut().next = Some(chain.head);
            },
            _ => self.head = Some(chain.head),
        }
        self.tail = Some(chain.tail);
        self.len += chain.len;
        self.bytes += chain.bytes;
    }
}

/// A packet that is changed in its place of a list. It may be another one afterwards, of another
/// length.
struct Place<'a> {
    list: &'a mut PacketList,
    before: Option<NonNull<Header>>,
    packet: ManuallyDrop<Packet>,
    next: Option<NonNull<Header>>,
}

impl Drop for Place<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let raw = self.packet.0;
        self.list.bytes += self.packet.len() as u64;
        // SAFETY: the list owns the packets before and behind, and takes over this one.
        unsafe {
            (*raw.as_ptr()).next = self.next;
            match self.before {
                None => self.list.head = Some(raw),
                Some(before) => (*before.as_ptr()).next = Some(raw),
            }
        }
        if self.next.is_none() {
            self.list.tail = Some(raw);
        }
    }
}

/// Packets linked by `next` that are in no list. Whoever has the chain owns them.
pub(super) type Chain = sync::Chain<Header>;

impl Chain {
    /// One packet.
    #[inline(always)]
    fn of(packet: Packet) -> Chain {
        let bytes = packet.len() as u64;
        Chain {
            bytes,
            ..Chain::one(packet.into_raw())
        }
    }
}

// SAFETY: the links are `Header::next`, which only the list that holds the packet touches.
unsafe impl Linked for Header {
    unsafe fn next(node: NonNull<Self>) -> Option<NonNull<Self>> {
        // SAFETY: valid and owned by the caller's promise.
        unsafe { (*node.as_ptr()).next }
    }
    unsafe fn set_next(node: NonNull<Self>, next: Option<NonNull<Self>>) {
        // SAFETY: valid and owned by the caller's promise.
        unsafe { (*node.as_ptr()).next = next }
    }
    #[inline(always)]
    unsafe fn bytes(node: NonNull<Self>) -> u64 {
        // SAFETY: valid and owned by the caller's promise.
        u64::from(unsafe { (*node.as_ptr()).total_len })
    }
}

// SAFETY: a list owns its packets, and gives the chain of all of them up.
unsafe impl NodeList for PacketList {
    type Node = Header;

    const IS_OF_PACKETS: bool = true;

    #[inline]
    fn take_nodes(&mut self) -> Option<Chain> {
        self.take_chain()
    }

    #[inline]
    unsafe fn put_front(&mut self, chain: Chain) {
        // SAFETY: the list owns the chain, just taken over.
        unsafe { (*chain.tail.as_ptr()).next = self.head };
        if self.head.is_none() {
            self.tail = Some(chain.tail);
        }
        self.head = Some(chain.head);
        self.len += chain.len;
        self.bytes += chain.bytes;
    }
}

impl Drop for PacketList {
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            super::free_list(self);
        }
    }
}

impl fmt::Debug for PacketList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketList")
            .field("len", &self.len)
            .field("bytes", &self.bytes)
            .finish()
    }
}

impl FromIterator<Packet> for PacketList {
    #[inline]
    fn from_iter<I: IntoIterator<Item = Packet>>(packets: I) -> Self {
        let mut list = PacketList::new();
        list.extend(packets);
        list
    }
}

impl Extend<Packet> for PacketList {
    #[inline]
    fn extend<I: IntoIterator<Item = Packet>>(&mut self, packets: I) {
        let mut packets = packets.into_iter();
        let Some(first) = packets.next() else { return };
        let mut open = Open {
            list: self,
            chain: Chain::of(first),
        };
        packets.for_each(|packet| open.push(packet));
    }
}

/// Packets that follow each other, before they go to a list in one piece: each link is written
/// once. Also if the iterator that they come from panics.
struct Open<'a> {
    list: &'a mut PacketList,
    /// Owned; the tail's `next` is not valid yet.
    chain: Chain,
}

impl Open<'_> {
    #[inline(always)]
    fn push(&mut self, packet: Packet) {
        self.chain.bytes += packet.len() as u64;
        self.chain.len += 1;
        let raw = packet.into_raw();
        // SAFETY: the chain owns its tail.
        unsafe { (*self.chain.tail.as_ptr()).next = Some(raw) };
        self.chain.tail = raw;
    }
}

impl Drop for Open<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let chain = Chain { ..self.chain };
        // SAFETY: the chain owned its packets, linked from `head` to `tail`, and gives them up.
        unsafe {
            (*chain.tail.as_ptr()).next = None;
            self.list.append_chain(chain);
        }
    }
}

impl From<Packet> for PacketList {
    fn from(packet: Packet) -> Self {
        let mut list = PacketList::new();
        list.push_back(packet);
        list
    }
}

/// Takes packets out of a list from the front.
#[derive(Debug)]
pub struct IntoIter(PacketList);

impl Iterator for IntoIter {
    type Item = Packet;
    fn next(&mut self) -> Option<Packet> {
        self.0.pop_front()
    }
}

impl IntoIterator for PacketList {
    type Item = Packet;
    type IntoIter = IntoIter;
    fn into_iter(self) -> IntoIter {
        IntoIter(self)
    }
}

/// Borrowing iterator; see [`PacketList::iter`].
#[derive(Debug)]
pub struct Iter<'a> {
    /// The link that leads to the next packet: the list's `head`, or the `next` field of the
    /// packet before.
    link: &'a Option<NonNull<Header>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Packet;
    fn next(&mut self) -> Option<&'a Packet> {
        let raw = (*self.link)?;
        // SAFETY: the list, borrowed for 'a, owns the packet behind the link, so that nothing
        // changes it meanwhile. `Packet` is a transparent wrapper of `NonNull<Header>`, and so is
        // an `Option` of it that is `Some`.
        unsafe {
            let packet = &*std::ptr::from_ref(self.link).cast::<Packet>();
            self.link = &(*raw.as_ptr()).next;
            Some(packet)
        }
    }
}

impl<'a> IntoIterator for &'a PacketList {
    type Item = &'a Packet;
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}
