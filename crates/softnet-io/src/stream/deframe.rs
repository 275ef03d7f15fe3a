//! Frames out of a stream of bytes.

use std::ops::Range;

use softnet::wire::MAX_FRAME;

/// Bytes of a frame's length.
pub(super) const LENGTH: usize = 4;
/// Half a frame and a whole one.
const CAPACITY: usize = 2 * (LENGTH + MAX_FRAME);

/// A length that no frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it sent a frame of {0} bytes; the most is {MAX_FRAME}")]
pub struct TooLong(pub u32);

/// Bytes that were received and not taken yet, in a buffer of fixed size.
#[derive(Debug, Default)]
pub struct Deframer {
    /// Empty until it is needed.
    bytes: Vec<u8>,
    filled: Range<usize>,
}

impl From<Vec<u8>> for Deframer {
    /// With bytes that were received before: at most as many as ever wait.
    fn from(mut bytes: Vec<u8>) -> Deframer {
        bytes.truncate(CAPACITY);
        Deframer {
            filled: 0..bytes.len(),
            bytes,
        }
    }
}

impl Deframer {
    /// Bytes that were not taken.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.filled.clone()]
    }

    /// Room for what is received next, never empty when all whole frames were taken.
    pub fn room(&mut self) -> &mut [u8] {
        self.bytes.resize(CAPACITY, 0);
        if self.filled.is_empty() {
            self.filled = 0..0;
        } else if self.bytes.len() - self.filled.end < LENGTH + MAX_FRAME {
            // What is left is less than a frame.
            self.bytes.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        &mut self.bytes[self.filled.end..]
    }

    /// Bytes were written to the start of the room.
    ///
    /// # Panics
    /// If the room is smaller.
    pub fn received(&mut self, bytes: usize) {
        assert!(
            bytes <= self.bytes.len() - self.filled.end,
            "out of the room"
        );
        self.filled.end += bytes;
    }

    /// The next frame, if it is there as a whole.
    ///
    /// # Errors
    /// [`TooLong`]: the stream has no frame from here on.
    pub fn take(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let waiting = &self.bytes[self.filled.clone()];
        let Some((length, rest)) = waiting.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        if length as usize > MAX_FRAME {
            return Err(TooLong(length));
        }
        let Some(frame) = rest.get(..length as usize) else {
            return Ok(None);
        };
        self.filled.start += LENGTH + frame.len();
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of any lengths, received in pieces of any size.
    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let lengths = [0, 1, 14, 60, 1514, 9014, MAX_FRAME, 3, MAX_FRAME, MAX_FRAME];
        let frame = |i: usize| vec![i as u8; lengths[i]];
        let mut stream = Vec::new();
        for (i, length) in lengths.into_iter().enumerate() {
            stream.extend((length as u32).to_be_bytes());
            stream.extend(frame(i));
        }
        for piece in [1, 2, 3, 5, 1000, 65_537, stream.len()] {
            let (mut deframer, mut found) = (Deframer::default(), 0);
            let mut rest = &stream[..];
            while !rest.is_empty() {
                let room = deframer.room();
                let n = piece.min(rest.len()).min(room.len());
                room[..n].copy_from_slice(&rest[..n]);
                deframer.received(n);
                rest = &rest[n..];
                while let Some(got) = deframer.take().expect("lengths are right") {
                    assert!(got == frame(found), "frame {found} in pieces of {piece}");
                    found += 1;
                }
            }
            assert_eq!(found, lengths.len());
        }
    }

    /// Frames wait as well as the start of one: a poll takes no more than its budget.
    #[test]
    fn a_full_buffer_is_taken_over() {
        let mut before = Deframer::default();
        // Frames of no bytes.
        let length = before.room().len();
        before.received(length);
        let mut after = Deframer::from(before.waiting().to_owned());
        assert_eq!(after.waiting().len(), length);
        let mut frames = 0;
        while after.take() == Ok(Some(&[][..])) {
            frames += 1;
        }
        assert_eq!(frames, length / LENGTH);
    }

    #[test]
    fn a_length_that_lies_is_refused_before_its_frame_is_there() {
        for length in [MAX_FRAME as u32 + 1, u32::MAX] {
            let mut deframer = Deframer::default();
            deframer.room()[..4].copy_from_slice(&length.to_be_bytes());
            deframer.received(3);
            assert_eq!(deframer.take(), Ok(None));
            deframer.received(1);
            assert_eq!(deframer.take(), Err(TooLong(length)));
            assert_eq!(deframer.take(), Err(TooLong(length)));
        }
    }
}
