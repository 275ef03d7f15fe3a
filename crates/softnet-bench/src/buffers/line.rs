//! The header line of a baseline's or a general allocator's packet, and lists of them: what
//! Softnet's own are, without what only the pool's user needs.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// A header line. Where the source aligns it to its size, it is one line of the cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Line {
    next: Option<NonNull<Line>>,
    /// The packet's data.
    data: NonNull<u8>,
    /// Who made it.
    owner: usize,
    frame_len: u32,
    fields: [u32; 9],
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    pub(crate) fn new(data: NonNull<u8>, owner: usize) -> Line {
        Line {
            next: None,
            data,
            owner,
            frame_len: 0,
            fields: [0; 9],
        }
    }

    pub(crate) fn data(&self) -> NonNull<u8> {
        self.data
    }

    pub(crate) fn owner(&self) -> usize {
        self.owner
    }
}

/// An owned packet of `Source`; it must go back there, or it leaks.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Owned<Source>(NonNull<Line>, PhantomData<fn() -> Source>);

// SAFETY: the only handle to its line and data, which are plain memory.
unsafe impl<Source> Send for Owned<Source> {}

impl<Source> Owned<Source> {
    /// # Safety
    /// `line` is initialised, is valid until it is given back to its source, and nothing else
    /// refers to it.
    pub(crate) unsafe fn new(line: NonNull<Line>) -> Owned<Source> {
        Owned(line, PhantomData)
    }

    pub(crate) fn into_raw(self) -> NonNull<Line> {
        self.0
    }

    pub(crate) fn frame_len(&self) -> usize {
        // SAFETY: valid and ours alone, by the promise to `new`.
        unsafe { self.0.as_ref() }.frame_len as usize
    }
}

/// A FIFO of packets of one source; what is in it when it is dropped leaks.
#[derive(Debug)]
pub(crate) struct Chain<Source> {
    head: Option<NonNull<Line>>,
    /// Valid while `head` is `Some`.
    tail: Option<NonNull<Line>>,
    source: PhantomData<fn() -> Source>,
}

impl<Source> Default for Chain<Source> {
    fn default() -> Self {
        Chain {
            head: None,
            tail: None,
            source: PhantomData,
        }
    }
}

impl<Source> Chain<Source> {
    pub(crate) fn push(&mut self, packet: Owned<Source>) {
        let mut raw = packet.into_raw();
        // SAFETY: the chain owns `raw`, just taken over, and `tail`, one of its packets.
        unsafe {
            raw.as_mut().next = None;
            match self.tail {
                Some(mut tail) if self.head.is_some() => tail.as_mut().next = Some(raw),
                _ => self.head = Some(raw),
            }
        }
        self.tail = Some(raw);
    }

    pub(crate) fn pop(&mut self) -> Option<Owned<Source>> {
        let raw = self.head?;
        // SAFETY: the chain owns the packet; it is unlinked here, so the handle made is the only
        // one.
        unsafe {
            self.head = raw.as_ref().next;
            Some(Owned::new(raw))
        }
    }
}
