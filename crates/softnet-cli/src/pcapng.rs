//! Blocks of pcapng files ("draft-ietf-opsawg-pcapng").

use std::io::{self, Write};

/// Types of blocks.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
pub(crate) const PACKET: u32 = 6;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;

/// A block's body while it is made.
pub(crate) struct Block(Vec<u8>);

impl Block {
    pub(crate) fn new(words: &[u32]) -> Block {
        Block(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// A packet of the first interface: nanoseconds since 1970, its length and the bytes of it
    /// that are there. Write it as a [`PACKET`].
    pub(crate) fn packet(time: u64, len: u32, frame: &[u8]) -> Block {
        let [high, low] = halves(time);
        let there = frame.len() as u32;
        let mut block = Block::new(&[0, high, low, there, len.max(there)]);
        block.padded(frame);
        block
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub(crate) fn option(&mut self, code: u16, value: &[u8]) {
        let len = value.len().min(usize::from(u16::MAX));
        self.0.extend_from_slice(&code.to_le_bytes());
        self.0.extend_from_slice(&(len as u16).to_le_bytes());
        self.padded(&value[..len]);
    }

    /// A comment: as much of it as fits an option.
    pub(crate) fn comment(&mut self, text: &str) {
        let end = text.floor_char_boundary(usize::from(u16::MAX));
        self.option(1, &text.as_bytes()[..end]);
    }

    pub(crate) fn write(mut self, kind: u32, out: &mut impl Write) -> io::Result<()> {
        // The end of the options.
        self.0.extend_from_slice(&[0; 4]);
        let len = (self.0.len() as u32 + 12).to_le_bytes();
        out.write_all(&kind.to_le_bytes())?;
        out.write_all(&len)?;
        out.write_all(&self.0)?;
        out.write_all(&len)
    }
}

/// A time as its two words.
pub(crate) fn halves(time: u64) -> [u32; 2] {
    [(time >> 32) as u32, (time & 0xffff_ffff) as u32]
}

/// Begins a file with one interface of Ethernet, of which at most `snap` bytes of a frame are
/// there. Times are in nanoseconds.
pub(crate) fn begin(out: &mut impl Write, name: Option<&str>, snap: u32) -> io::Result<()> {
    // Version 1.0, of a length that is not known yet.
    let mut section = Block::new(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
    let program = concat!("softnet ", env!("CARGO_PKG_VERSION"));
    section.option(4, program.as_bytes());
    section.write(SECTION, out)?;
    let mut interface = Block::new(&[ETHERNET, snap]);
    if let Some(name) = name {
        interface.option(2, name.as_bytes());
    }
    interface.option(9, &[9]);
    interface.write(INTERFACE, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_is_too_long_is_cut_between_letters() {
        let mut block = Block::new(&[]);
        block.comment(&"\u{b5}".repeat(40_000));
        let len = u16::from_le_bytes([block.0[2], block.0[3]]);
        assert_eq!(len, u16::MAX - 1);
        let text = std::str::from_utf8(&block.0[4..4 + usize::from(len)]);
        assert!(text.is_ok() && block.0.len() == 4 + 65_536);
    }
}
