//! A driver whose packets are recorded as a pcap file.

use std::io::{self, Write};

use softnet::mem::{Packet, PacketList};
use softnet::time::{Clock, Time};
use softnet::tx::{Sent, TxRing, Xmit};
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::{pass_on_rx, pass_on_tx};

const SECOND: u64 = 1_000_000_000;

/// Writes a pcap file of Ethernet frames with nanoseconds.
#[derive(Debug)]
pub struct PcapWriter<W> {
    out: W,
    base: u64,
    snaplen: u32,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file's header. Times count from `base` nanoseconds since 1970; at most `snaplen`
    /// bytes of a frame are written.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, base: u64, snaplen: u32) -> io::Result<Self> {
        // Nanoseconds, version 2.4, UTC, Ethernet.
        let words = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, snaplen, 1];
        out.write_all(&words.map(u32::to_le_bytes).concat())?;
        Ok(PcapWriter { out, base, snaplen })
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// Those of `out`; [`io::ErrorKind::InvalidInput`] for a time beyond the year 2106, which the
    /// format cannot say.
    pub fn write(&mut self, time: Time, packet: &Packet) -> io::Result<()> {
        let nanos = self.base.saturating_add(time.nanos());
        let seconds = u32::try_from(nanos / SECOND).map_err(|_| {
            let what = "a packet leaves later than a pcap file can say (the year 2106)";
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let len = packet.len() as u32;
        let mut left = len.min(self.snaplen);
        let words = [seconds, (nanos % SECOND) as u32, left, len];
        self.out.write_all(&words.map(u32::to_le_bytes).concat())?;
        for segment in packet.segments() {
            let part = &segment[..segment.len().min(left as usize)];
            self.out.write_all(part)?;
            left -= part.len() as u32;
        }
        Ok(())
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A driver whose packets are recorded: what it received, and what it sent or dropped. An error
/// ends the recording, not the driver.
///
/// ```
/// use softnet::mem::{Pool, PoolConfig};
/// use softnet::time::Clock;
/// use softnet::tx::{Sent, TxRing};
/// use softnet_io::Null;
/// use softnet_io::middleware::{Capture, PcapWriter};
///
/// let mut file = Vec::new();
/// let null = Null::open(1, 1500)?.tx.remove(0);
/// let pcap = PcapWriter::new(&mut file, 0, 65_535)?;
/// let mut ring = Capture::new(null, pcap, Clock::monotonic());
///
/// let pool = Pool::new(PoolConfig { buffers: 4, buffer_size: 2048 })?;
/// let mut packet = pool.alloc()?;
/// packet.append(&[2; 60]);
/// ring.xmit(&mut packet.into(), &mut Sent::default());
/// assert!(ring.error().is_none());
/// // The headers of file and frame, and the frame.
/// assert_eq!(file.len(), 24 + 16 + 60);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Capture<D, W> {
    driver: D,
    pcap: PcapWriter<W>,
    /// The time of transmission.
    clock: Clock,
    /// The records of a batch, and the end of each.
    records: Vec<u8>,
    ends: Vec<usize>,
    error: Option<io::Error>,
}

impl<D, W: Write> Capture<D, W> {
    /// Records what `driver` does. `clock` is that of the engine.
    pub fn new(driver: D, pcap: PcapWriter<W>, clock: Clock) -> Self {
        Capture {
            driver,
            pcap,
            clock,
            records: Vec::new(),
            ends: Vec::new(),
            error: None,
        }
    }

    /// The error that ended the recording.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    fn note(&mut self, result: io::Result<()>) {
        if self.error.is_none() {
            self.error = result.err();
        }
    }
}

impl<D: TxRing, W: Write + Send> TxRing for Capture<D, W> {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        if self.error.is_some() {
            return self.driver.xmit(packets, sent);
        }
        // The driver frees what it takes, which is known afterwards.
        let now = self.clock.now();
        self.records.clear();
        self.ends.clear();
        let mut records = PcapWriter {
            out: &mut self.records,
            base: self.pcap.base,
            snaplen: self.pcap.snaplen,
        };
        let mut result = Ok(());
        for packet in &*packets {
            result = result.and_then(|()| records.write(now, packet));
            self.ends.push(records.out.len());
        }
        let xmit = self.driver.xmit(packets, sent);
        let taken = self.ends.len() - packets.len();
        let end = taken.checked_sub(1).map_or(0, |last| self.ends[last]);
        let written = self.pcap.out.write_all(&self.records[..end]);
        self.note(result.and(written));
        xmit
    }

    pass_on_tx!(available restart bind connect file);
}

impl<D: RxQueue, W: Write + Send> RxQueue for Capture<D, W> {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let before = rx.packets().len();
        let polled = self.driver.poll(rx);
        if self.error.is_none() {
            let mut packets = rx.packets().iter().skip(before);
            let result = packets.try_for_each(|packet| self.pcap.write(rx.now, packet));
            self.note(result);
        }
        polled
    }

    pass_on_rx!();
}
