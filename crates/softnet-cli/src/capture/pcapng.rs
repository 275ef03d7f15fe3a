//! Captured packets as a pcapng file ("draft-ietf-opsawg-pcapng").

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use softnet_engine::capture::{CaptureStats, Direction, Record};

use super::{Started, line};

/// Types of blocks.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;

/// A block's body while it is made.
struct Block(Vec<u8>);

impl Block {
    fn new(words: &[u32]) -> Block {
        Block(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let len = value.len().min(usize::from(u16::MAX));
        self.0.extend_from_slice(&code.to_le_bytes());
        self.0.extend_from_slice(&(len as u16).to_le_bytes());
        self.padded(&value[..len]);
    }

    fn write(mut self, kind: u32, out: &mut impl Write) -> io::Result<()> {
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
fn halves(time: u64) -> [u32; 2] {
    [(time >> 32) as u32, (time & 0xffff_ffff) as u32]
}

/// A pcapng file with one interface, the port.
pub(super) struct Pcapng<W> {
    out: W,
    /// When it was begun, in nanoseconds since 1970.
    start: u64,
    /// Packets that were missed before the last one that was written.
    missed: u64,
}

impl<W: Write> Pcapng<W> {
    pub(super) fn new(mut out: W, of: &Started) -> io::Result<Pcapng<W>> {
        // Version 1.0, of a length that is not known yet.
        let mut section = Block::new(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
        let program = concat!("softnet ", env!("CARGO_PKG_VERSION"));
        section.option(4, program.as_bytes());
        section.write(SECTION, &mut out)?;
        let mut interface = Block::new(&[ETHERNET, of.snap]);
        interface.option(2, of.port.as_bytes());
        // Times in nanoseconds.
        interface.option(9, &[9]);
        interface.write(INTERFACE, &mut out)?;
        out.flush()?;
        let start = SystemTime::now().duration_since(UNIX_EPOCH);
        let start = start.map_or(0, |since| since.as_nanos());
        Ok(Pcapng {
            out,
            start: u64::try_from(start).unwrap_or(u64::MAX),
            missed: 0,
        })
    }

    /// Appends a packet; `missed` is how many were until now.
    pub(super) fn packet(
        &mut self,
        time: u64,
        record: &Record,
        frame: &[u8],
        missed: u64,
    ) -> io::Result<()> {
        let [high, low] = halves(time);
        let len = record.len.max(frame.len() as u32);
        let mut block = Block::new(&[0, high, low, frame.len() as u32, len]);
        block.padded(frame);
        let facts = line::facts(record, |waited| format!("{waited} ns"));
        if !facts.is_empty() {
            block.option(1, facts.as_bytes());
        }
        let direction: u32 = match record.direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        block.option(2, &direction.to_le_bytes());
        let since = missed.saturating_sub(self.missed);
        if since > 0 {
            block.option(4, &since.to_le_bytes());
            self.missed = missed;
        }
        if let Some(queue) = record.queue {
            block.option(6, &u32::from(queue).to_le_bytes());
        }
        if record.reason.is_some() {
            // As traffic control says it: TC_ACT_SHOT.
            let mut verdict = vec![1];
            verdict.extend_from_slice(&2_u64.to_le_bytes());
            block.option(7, &verdict);
        }
        block.write(PACKET, &mut self.out)
    }

    /// Appends what was captured in all, and what not.
    pub(super) fn statistics(
        &mut self,
        end: u64,
        stats: CaptureStats,
        written: u64,
    ) -> io::Result<()> {
        let [high, low] = halves(end);
        let mut block = Block::new(&[0, high, low]);
        if stats.unseen > 0 {
            let text = format!("{} dropped packets could not be captured", stats.unseen);
            block.option(1, text.as_bytes());
        }
        for (code, time) in [(2, self.start), (3, end)] {
            block.option(code, &halves(time).map(u32::to_le_bytes).concat());
        }
        // `isb_ifrecv`, `isb_ifdrop`, `isb_usrdeliv`.
        for (code, number) in [(4, stats.matched), (5, stats.missed), (8, written)] {
            block.option(code, &number.to_le_bytes());
        }
        block.write(STATISTICS, &mut self.out)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
