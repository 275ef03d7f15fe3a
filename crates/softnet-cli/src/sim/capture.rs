//! Captures: reads them frame by frame, as a port of the driver `pcap` does, and writes them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Cursor, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use softnet::mem::{Packet, Pool};
use softnet::time::Time;
use softnet::wire::MAX_FRAME;
use softnet_io::pcap::{FileError, PacketFile};
use softnet_tc::sim::Story;

use super::explain;
use super::outside::Outside;
use crate::failure::{Exit, Failure};
use crate::pcapng::{self, Block, PACKET};
use crate::report::note;

/// A capture that cannot be read is a mistake, as a policy is that cannot.
fn unread(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Config, format!("{}: {what}", path.display()))
}

/// All that is piped in.
pub(super) fn piped() -> Result<Arc<[u8]>, Failure> {
    let mut bytes = Vec::new();
    match io::stdin().lock().read_to_end(&mut bytes) {
        Ok(_) => Ok(Arc::from(bytes)),
        Err(error) => Err(unread(
            Path::new("-"),
            format_args!("cannot be read: {error}"),
        )),
    }
}

/// Both paths lead to one file.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    of(one).is_some_and(|one| of(other) == Some(one))
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
pub(super) struct CaptureReader {
    path: PathBuf,
    file: PacketFile<Box<dyn Read>>,
    next: Option<Frame>,
    base: u64,
}

impl CaptureReader {
    /// Opens a file, `-` for what is piped in, which `piped` is if that was read already.
    pub(super) fn open(path: &Path, piped: Option<Arc<[u8]>>) -> Result<CaptureReader, Failure> {
        let input: Box<dyn Read> = match (path.to_str(), piped) {
            (Some("-"), Some(piped)) => Box::new(Cursor::new(piped)),
            (Some("-"), None) => Box::new(io::stdin().lock()),
            _ => Box::new(
                File::open(path)
                    .map_err(|error| unread(path, format_args!("cannot be read: {error}")))?,
            ),
        };
        let file = PacketFile::unpacked(input).map_err(|error| match error {
            FileError::Io(error) => unread(path, format_args!("cannot be read: {error}")),
            error => unread(path, error),
        })?;
        let mut capture = CaptureReader {
            path: path.to_owned(),
            file,
            next: None,
            base: 0,
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
        self.file.snaplen()
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
        let number = self.file.count() + 1;
        let frame = match self.file.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            // As a capture program that was killed leaves it.
            Err(FileError::Cut(_)) => {
                let path = self.path.display();
                note(format_args!(
                    "{path}: frame {number} is cut off, and left out"
                ));
                return Ok(());
            }
            Err(FileError::Io(error)) => {
                let text = format!("packet {number} cannot be read: {error}");
                return Err(unread(&self.path, text));
            }
            Err(error) => return Err(unread(&self.path, error)),
        };
        let Some((header, data)) = frame.ethernet() else {
            let text = format!(
                "packet {number} has link type {}; what is read is Ethernet, raw IP and Linux \
                 cooked captures",
                frame.link_type
            );
            return Err(unread(&self.path, text));
        };
        let header = header.as_ref().map_or(&[][..], |header| header);
        self.next = Some(Frame {
            time: frame.time,
            len: frame.len as usize - (frame.data.len() - data.len()) + header.len(),
            data: [header, data].concat(),
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

/// A frame that left.
#[derive(Debug)]
struct Left {
    time: Time,
    len: u32,
    /// The bytes of it that are written.
    data: Vec<u8>,
}

/// Writes what leaves, each packet with its story.
#[derive(Debug)]
pub(super) struct CaptureWriter {
    path: PathBuf,
    out: BufWriter<File>,
    base: u64,
    snaplen: usize,
    /// Frames that were not written yet.
    left: Vec<Left>,
}

impl CaptureWriter {
    /// Times count from `base` nanoseconds since 1970; at most `snaplen` bytes of a frame are
    /// written.
    pub(super) fn create(path: &Path, base: u64, snaplen: u32) -> Result<CaptureWriter, Failure> {
        let begun = File::create(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            pcapng::begin(&mut out, None, snaplen)?;
            Ok(out)
        });
        Ok(CaptureWriter {
            path: path.to_owned(),
            out: begun.map_err(|error| not_written(path, &error))?,
            base,
            snaplen: snaplen as usize,
            left: Vec::new(),
        })
    }

    /// A packet leaves; it is written when its story is known.
    pub(super) fn leaves(&mut self, time: Time, packet: &Packet) {
        let mut data = Vec::with_capacity(packet.len().min(self.snaplen));
        for segment in packet.segments() {
            let part = segment.len().min(self.snaplen - data.len());
            data.extend_from_slice(&segment[..part]);
        }
        self.left.push(Left {
            time,
            len: packet.len() as u32,
            data,
        });
    }

    /// Writes the packets that left, with the stories that they have, in their order.
    pub(super) fn write(&mut self, stories: Vec<Option<Story>>) -> Result<(), Failure> {
        let mut stories = stories.into_iter();
        for left in self.left.drain(..) {
            let time = self.base.saturating_add(left.time.0);
            let mut block = Block::packet(time, left.len, &left.data);
            if let Some(story) = stories.next().flatten() {
                block.comment(explain::text(story.number, Some(&story)).trim_end());
            }
            let result = block.write(PACKET, &mut self.out);
            result.map_err(|error| not_written(&self.path, &error))?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.write(Vec::new())?;
        let result = self.out.flush();
        result.map_err(|error| not_written(&self.path, &error))
    }
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let text = format!("{}: cannot be written: {error}", path.display());
    Failure::new(Exit::Failure, text)
}
