//! Reading a frame across its segments, and copying from one into another.

use super::{Exhausted, HEADROOM, Packet, Pool, Segments};
use crate::stats::DropReason;
use crate::wire::PartialSum;

/// Reads the bytes of a frame from a position on.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    part: &'a [u8],
    segments: Segments<'a>,
}

impl<'a> Reader<'a> {
    /// The next bytes that lie together, at most `n`. None at the end of the frame.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> &'a [u8] {
        while self.part.is_empty() {
            match self.segments.next() {
                Some(part) => self.part = part,
                None => return &[],
            }
        }
        let (next, rest) = self.part.split_at(n.min(self.part.len()));
        self.part = rest;
        next
    }
}

impl Packet {
    /// Reads from byte `offset` on.
    #[inline]
    pub(crate) fn read_from(&self, mut offset: usize) -> Reader<'_> {
        let mut reader = Reader {
            part: &[],
            segments: self.segments(),
        };
        while offset > 0 {
            match reader.take(offset) {
                [] => break,
                skipped => offset -= skipped.len(),
            }
        }
        reader
    }

    /// Partial sum of the frame from byte `start` to its end.
    #[inline]
    pub(crate) fn sum(&self, start: usize) -> u64 {
        let (mut reader, mut sum) = (self.read_from(start), PartialSum::default());
        while let part @ [_, ..] = reader.take(usize::MAX) {
            sum.add(part);
        }
        sum.get()
    }

    /// Appends the next `n` bytes of another frame, in further buffers of `pool` if they do not
    /// fit in this one; fewer if that frame ends before.
    pub(crate) fn append_from(
        &mut self,
        reader: &mut Reader<'_>,
        n: usize,
        pool: &Pool,
    ) -> Result<(), Exhausted> {
        let mut left = n;
        let mut further: Option<Packet> = None;
        while left > 0 {
            let target = further.as_mut().unwrap_or(&mut *self);
            let tailroom = target.tailroom_mut();
            if tailroom.is_empty() {
                let mut next = pool.alloc()?;
                next.reserve(0);
                if let Some(full) = further.replace(next) {
                    self.append_segment(full);
                }
                continue;
            }
            let part = reader.take(left.min(tailroom.len()));
            if part.is_empty() {
                break;
            }
            tailroom[..part.len()].copy_from_slice(part);
            target.extend(part.len());
            left -= part.len();
        }
        if let Some(last) = further {
            self.append_segment(last);
        }
        Ok(())
    }

    /// Copies a chain into one buffer of `pool`, with as much headroom as that leaves. Does
    /// nothing to a frame of one segment.
    ///
    /// # Errors
    /// [`DropReason::NoBuffer`] if the pool has none left, [`DropReason::TooLong`] if the frame is
    /// longer than a buffer. The frame is unchanged then.
    pub fn linearize(&mut self, pool: &Pool) -> Result<(), DropReason> {
        if !self.is_chained() {
            return Ok(());
        }
        let mut copy = pool.alloc().map_err(|_| DropReason::NoBuffer)?;
        copy.reserve(0);
        let tailroom = copy.tailroom_mut().len();
        let spare = tailroom.checked_sub(self.len());
        copy.reserve(spare.ok_or(DropReason::TooLong)?.min(HEADROOM));
        for segment in self.segments() {
            let fits = copy.append(segment);
            debug_assert!(fits, "the buffer is as long as the frame");
        }
        copy.copy_metadata(self);
        copy.set_accounted(self.accounted());
        *self = copy;
        Ok(())
    }

    /// A copy of data and metadata in new buffers of `pool`; `None` if the pool has none left.
    pub fn copy(&self, pool: &Pool) -> Option<Packet> {
        let mut copy = pool.alloc().ok()?;
        copy.reserve(self.offset().min(HEADROOM));
        copy.append_from(&mut self.read_from(0), self.len(), pool)
            .ok()?;
        copy.copy_metadata(self);
        Some(copy)
    }
}
