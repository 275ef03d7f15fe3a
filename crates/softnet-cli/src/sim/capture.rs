//! Captures: reads pcap files with the pcap-file crate, frame by frame, and writes them.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, PcapError, TsResolution};
use softnet::mem::{Packet, Pool};
use softnet::time::Time;
use softnet::wire::MAX_FRAME;
use softnet_io::middleware::PcapWriter;

use super::outside::Outside;
use crate::failure::{Exit, Failure};
use crate::report::note;

const SECOND: u64 = 1_000_000_000;
/// First bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

fn failure(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failure, format!("{}: {what}", path.display()))
}

/// The text of an error and of what is behind it.
fn describe(error: &PcapError) -> String {
    crate::failure::chain(error)
}

/// One frame of a capture.
#[derive(Debug)]
struct Frame {
    /// Nanoseconds since 1970.
    time: u64,
    /// The captured bytes of it.
    data: Vec<u8>,
    /// The frame's length on the wire.
    len: usize,
}

/// Reads a capture. Times count from its first frame.
#[derive(Debug)]
pub(super) struct CaptureReader {
    path: PathBuf,
    reader: PcapReader<File>,
    next: Option<Frame>,
    base: u64,
    count: u64,
}

impl CaptureReader {
    pub(super) fn open(path: &Path) -> Result<CaptureReader, Failure> {
        let open = || {
            File::open(path)
                .map_err(|error| failure(path, format_args!("cannot be read: {error}")))
        };
        let mut magic = [0; 4];
        if std::io::Read::read_exact(&mut open()?, &mut magic).is_ok() && magic == PCAPNG {
            let text = "is a pcapng file; make it a pcap file with `editcap -F nsecpcap` or \
                        `tcpdump -r … -w …`";
            return Err(failure(path, text));
        }
        let reader = PcapReader::new(open()?).map_err(|error| {
            failure(
                path,
                format_args!("is not a pcap file: {}", describe(&error)),
            )
        })?;
        let link = reader.header().datalink;
        if link != DataLink::ETHERNET {
            return Err(failure(
                path,
                format_args!("has frames of link type {link:?}; only Ethernet can be simulated"),
            ));
        }
        let mut capture = CaptureReader {
            path: path.to_owned(),
            reader,
            next: None,
            base: 0,
            count: 0,
        };
        capture.fill()?;
        capture.base = capture.next.as_ref().map_or(0, |frame| frame.time);
        Ok(capture)
    }

    /// When the first frame was captured.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The most bytes captured of a frame.
    pub(super) fn snaplen(&self) -> u32 {
        self.reader.header().snaplen
    }

    /// When the next frame arrives.
    pub(super) fn next_time(&mut self) -> Result<Option<Time>, Failure> {
        if self.next.is_none() {
            self.fill()?;
        }
        // A frame that was captured before the first one is taken to have come with it.
        Ok(self
            .next
            .as_ref()
            .map(|frame| Time(frame.time.saturating_sub(self.base))))
    }

    /// The next frame as a packet of its length on the wire; what was not captured of it is zeros.
    /// `None`, and counted, if that cannot be.
    pub(super) fn take(&mut self, pool: &Pool, outside: &mut Outside) -> Option<Packet> {
        let frame = self.next.take()?;
        if frame.len > MAX_FRAME {
            outside.too_long += 1;
            return None;
        }
        let packet = packet(&frame, pool);
        outside.no_buffer += u64::from(packet.is_none());
        packet
    }

    fn fill(&mut self) -> Result<(), Failure> {
        let resolution = self.reader.header().ts_resolution;
        let Some(raw) = self.reader.next_raw_packet() else {
            return Ok(());
        };
        self.count += 1;
        let raw = match raw {
            Ok(raw) => raw,
            // As a capture program that was killed leaves it.
            Err(PcapError::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                note(format_args!(
                    "{}: frame {} is cut off, and left out",
                    self.path.display(),
                    self.count
                ));
                return Ok(());
            }
            Err(error) => {
                let text = format!("frame {}: {}", self.count, describe(&error));
                return Err(failure(&self.path, text));
            }
        };
        let fraction = match resolution {
            TsResolution::MicroSecond => u64::from(raw.ts_frac) * 1000,
            TsResolution::NanoSecond => u64::from(raw.ts_frac),
        };
        if fraction >= SECOND || raw.incl_len > raw.orig_len {
            let text = format!("frame {} contradicts itself in time or length", self.count);
            return Err(failure(&self.path, text));
        }
        self.next = Some(Frame {
            time: u64::from(raw.ts_sec) * SECOND + fraction,
            data: raw.data.into_owned(),
            len: raw.orig_len as usize,
        });
        Ok(())
    }
}

fn packet(frame: &Frame, pool: &Pool) -> Option<Packet> {
    const ZEROS: [u8; 2048] = [0; 2048];
    let mut packet = pool.alloc().ok()?;
    let mut missing = frame.len - frame.data.len();
    let mut data = frame.data.as_slice();
    let mut fill = |part: &mut Packet| {
        let room = part.tailroom_mut().len();
        let (now, rest) = data.split_at(data.len().min(room));
        data = rest;
        let zeros = missing.min(room - now.len()).min(ZEROS.len());
        missing -= zeros;
        // Both fit the room.
        let _ = part.append(now);
        let _ = part.append(&ZEROS[..zeros]);
        data.is_empty() && missing == 0
    };
    let mut whole = fill(&mut packet);
    while !whole {
        let mut part = pool.alloc().ok()?;
        part.reserve(0);
        whole = fill(&mut part);
        packet.append_segment(part);
    }
    Some(packet)
}

/// Writes what leaves.
#[derive(Debug)]
pub(super) struct CaptureWriter {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
}

impl CaptureWriter {
    /// Times count from `base` nanoseconds since 1970; at most `snaplen` bytes of a frame are
    /// written.
    pub(super) fn create(path: &Path, base: u64, snaplen: u32) -> Result<CaptureWriter, Failure> {
        let create = || PcapWriter::new(BufWriter::new(File::create(path)?), base, snaplen);
        Ok(CaptureWriter {
            path: path.to_owned(),
            writer: create().map_err(|error| not_written(path, &error))?,
        })
    }

    pub(super) fn write(&mut self, time: Time, packet: &Packet) -> Result<(), Failure> {
        let result = self.writer.write(time, packet);
        result.map_err(|error| not_written(&self.path, &error))
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let result = self.writer.flush();
        result.map_err(|error| not_written(&self.path, &error))
    }
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        // It says all.
        ErrorKind::InvalidInput => failure(path, error),
        _ => failure(path, format_args!("cannot be written: {error}")),
    }
}
