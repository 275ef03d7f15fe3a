//! Captured packets as a pcapng file.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use softnet_engine::capture::{CaptureStats, Direction, Record};

use super::line;
use crate::pcapng::{self, Block, PACKET, halves};

/// A type of block.
const STATISTICS: u32 = 5;

/// A pcapng file with one interface, the port.
pub(super) struct Pcapng<W> {
    out: W,
    /// When it was begun, in nanoseconds since 1970.
    start: u64,
    /// Packets that were missed before the last one that was written.
    missed: u64,
}

impl<W: Write> Pcapng<W> {
    pub(super) fn new(mut out: W, port: &str, snap: u32) -> io::Result<Pcapng<W>> {
        pcapng::begin(&mut out, Some(port), snap)?;
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
        let mut block = Block::packet(time, record.len, frame);
        let facts = line::facts(record, |waited| format!("{waited} ns"));
        if !facts.is_empty() {
            block.comment(&facts);
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
            block.comment(&text);
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
