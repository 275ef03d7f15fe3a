//! Bytes that a packet takes on the link behind the shaper, and what was seen of lengths.

use softnet::qdisc::WireSize;

use super::ewma;
use super::spec::{CakeSpec, Framing};

/// The most that `overhead` and `mpu` count.
const MOST: i32 = 1 << 16;

/// Cost of packets on the link (`cake_overhead`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// `None`: packets count from the Ethernet header on.
    overhead: Option<i32>,
    mpu: u64,
    framing: Framing,
    pub(super) seen: Seen,
}

/// Lengths seen, of the network layer and on the link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) most: [u64; 2],
    /// 0: none yet.
    pub(super) least: [u64; 2],
    /// Average bytes in front of the network layer, in 2^-16.
    offset: u64,
}

impl Seen {
    fn note(&mut self, which: usize, len: u64) {
        self.most[which] = self.most[which].max(len);
        let least = &mut self.least[which];
        if *least == 0 || *least > len {
            *least = len;
        }
    }

    /// Average bytes in front of the network layer.
    pub(super) fn offset(&self) -> u64 {
        (self.offset + 0x8000) >> 16
    }
}

impl Link {
    /// Takes other parameters; lengths are seen anew if they count otherwise.
    pub(super) fn set(&mut self, spec: &CakeSpec) {
        if spec.overhead != self.overhead {
            let offset = self.seen.offset;
            self.seen = Seen {
                offset,
                ..Seen::default()
            };
        }
        // What is more would let nothing pass for hours; tc allows -64 to 256.
        self.overhead = spec.overhead.map(|bytes| bytes.clamp(-MOST, MOST));
        self.mpu = spec.mpu.min(MOST.cast_unsigned()).into();
        self.framing = spec.framing;
    }

    /// Takes note of a frame whose network layer starts at `offset`.
    #[inline]
    pub(super) fn see(&mut self, size: WireSize, offset: u64) {
        self.seen.offset = ewma(self.seen.offset, offset << 16, 8);
        let last = size.bytes.saturating_sub((size.packets - 1) * size.each);
        for len in [size.first().bytes, last] {
            let (own, charged) = self.charge(len, offset);
            self.seen.note(0, own);
            self.seen.note(1, charged);
        }
    }

    /// Bytes charged for a frame whose network layer starts at `offset`: for each of its wire
    /// packets.
    #[inline]
    pub(super) fn cost(&self, size: WireSize, offset: u64) -> u64 {
        if size.packets == 1 {
            return self.charge(size.bytes, offset).1;
        }
        let others = size.packets - 1;
        let last = size.bytes.saturating_sub(others * size.each);
        others * self.charge(size.each, offset).1 + self.charge(last, offset).1
    }

    /// The most that a packet of so many bytes costs.
    pub(super) fn most(&self, len: u64) -> u64 {
        self.charge(len, 0).1
    }

    /// Bytes of the part of a packet that counts, and what is charged for them.
    fn charge(&self, len: u64, offset: u64) -> (u64, u64) {
        let own = match self.overhead {
            Some(_) => len.saturating_sub(offset),
            None => len,
        };
        let len = own.saturating_add_signed(self.overhead.unwrap_or(0).into());
        let len = len.max(self.mpu);
        let charged = match self.framing {
            Framing::Plain => len,
            Framing::Atm => len.div_ceil(48) * 53,
            Framing::Ptm => len + len.div_ceil(64),
        };
        (own, charged)
    }
}
