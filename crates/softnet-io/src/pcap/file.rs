//! Files of packets, read packet by packet: pcap ("draft-ietf-opsawg-pcap") and pcapng
//! ("draft-ietf-opsawg-pcapng").

use std::io::{self, BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;

use super::ethernet;

/// First bytes of what gzip made.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Most bytes of a packet (libpcap's `MAXIMUM_SNAPLEN`).
const LONGEST_PACKET: u32 = 262_144;
/// Most bytes of a block.
const LONGEST_BLOCK: u32 = 1 << 20;
/// Most interfaces of a section.
const MOST_INTERFACES: usize = 4096;
const SECOND: u64 = 1_000_000_000;

/// Why a file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Something else.
    #[error("it is neither a pcap nor a pcapng file")]
    Unknown,
    /// It contradicts itself.
    #[error("packet {packet}: {what}")]
    Wrong {
        /// Number of the packet, from 1, that would have come next.
        packet: u64,
        /// The contradiction.
        what: &'static str,
    },
    /// It ends within a packet.
    #[error("packet {0} is cut off")]
    Cut(u64),
    /// The system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A packet of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Nanoseconds since 1970 at which it was captured.
    pub time: u64,
    /// Kind of the link (`LINKTYPE_*`).
    pub link_type: u32,
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// Bytes on the wire, at least those captured.
    pub len: u32,
}

impl<'a> Frame<'a> {
    /// The packet as an Ethernet frame: the header that it is missing, if it is, and what follows.
    /// `None`: a kind of link that is not Ethernet, nor like it.
    pub fn ethernet(&self) -> Option<(Option<[u8; 14]>, &'a [u8])> {
        if ethernet::is_ethernet(self.link_type) {
            return Some((None, self.data));
        }
        let (header, at) = ethernet::header(self.link_type, self.data)?;
        Some((Some(header), self.data.get(at..)?))
    }
}

/// An interface of a capture.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u32,
    snaplen: u32,
    /// Units of time a second.
    resolution: u64,
}

#[derive(Debug)]
enum Format {
    Pcap {
        interface: Interface,
    },
    /// The interfaces of the section.
    Pcapng {
        interfaces: Vec<Interface>,
    },
}

/// A file of packets that is being read.
#[derive(Debug)]
pub struct PacketFile<R> {
    input: R,
    format: Format,
    is_big_endian: bool,
    /// The latest packet or block.
    bytes: Vec<u8>,
    /// Packets so far.
    count: u64,
    /// The time of the latest.
    time: u64,
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

fn word(bytes: &[u8], at: usize, is_big_endian: bool) -> Option<u32> {
    let bytes = *bytes.get(at..)?.first_chunk()?;
    Some(match is_big_endian {
        true => u32::from_be_bytes(bytes),
        false => u32::from_le_bytes(bytes),
    })
}

fn half(bytes: &[u8], at: usize, is_big_endian: bool) -> Option<u16> {
    let bytes = *bytes.get(at..)?.first_chunk()?;
    Some(match is_big_endian {
        true => u16::from_be_bytes(bytes),
        false => u16::from_le_bytes(bytes),
    })
}

impl<'a> PacketFile<Box<dyn Read + 'a>> {
    /// Reads a file's head, also of one that gzip has compressed.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn unpacked(input: impl Read + 'a) -> Result<Self, FileError> {
        let mut input = BufReader::new(input);
        let is_packed = input.fill_buf()?.starts_with(&GZIP);
        PacketFile::new(match is_packed {
            true => Box::new(BufReader::new(MultiGzDecoder::new(input))),
            false => Box::new(input),
        })
    }
}

impl<R: Read> PacketFile<R> {
    /// Reads a file's head.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn new(mut input: R) -> Result<Self, FileError> {
        let mut magic = [0; 4];
        input
            .read_exact(&mut magic)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => FileError::Unknown,
                _ => FileError::Io(error),
            })?;
        let (is_big_endian, resolution) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1_000_000),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1_000_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, SECOND),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, SECOND),
            [0x0a, 0x0d, 0x0d, 0x0a] => (false, 0),
            _ => return Err(FileError::Unknown),
        };
        let mut file = PacketFile {
            input,
            format: Format::Pcapng {
                interfaces: Vec::new(),
            },
            is_big_endian,
            bytes: Vec::new(),
            count: 0,
            time: 0,
        };
        if resolution == 0 {
            file.section()?;
            return Ok(file);
        }
        file.read(20)?;
        let (snaplen, link_type) = (file.word(12), file.word(16));
        file.format = Format::Pcap {
            interface: Interface {
                // The upper bits tell of check sums behind frames.
                link_type: link_type.unwrap_or(0) & 0xffff,
                snaplen: snaplen.unwrap_or(0),
                resolution,
            },
        };
        Ok(file)
    }

    /// Packets read so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The most bytes of a packet that were captured, as far as the file says it.
    pub fn snaplen(&self) -> u32 {
        match &self.format {
            Format::Pcap { interface } if interface.snaplen > 0 => {
                interface.snaplen.min(LONGEST_PACKET)
            }
            _ => LONGEST_PACKET,
        }
    }

    fn wrong<T>(&self, what: &'static str) -> Result<T, FileError> {
        Err(FileError::Wrong {
            packet: self.count + 1,
            what,
        })
    }

    fn word(&self, at: usize) -> Option<u32> {
        word(&self.bytes, at, self.is_big_endian)
    }

    fn half(&self, at: usize) -> Option<u16> {
        half(&self.bytes, at, self.is_big_endian)
    }

    /// Reads so many bytes.
    fn read(&mut self, len: usize) -> Result<(), FileError> {
        self.bytes.resize(len, 0);
        self.input
            .read_exact(&mut self.bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => FileError::Cut(self.count + 1),
                _ => FileError::Io(error),
            })
    }

    /// Reads the first bytes of a record. False: the file has ended.
    fn start(&mut self, len: usize) -> Result<bool, FileError> {
        self.bytes.resize(len, 0);
        let first = loop {
            match self.input.read(&mut self.bytes[..1]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        if first == 0 {
            return Ok(false);
        }
        self.input
            .read_exact(&mut self.bytes[1..])
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => FileError::Cut(self.count + 1),
                _ => FileError::Io(error),
            })?;
        Ok(true)
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// [`FileError`]: there is none from here on.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FileError> {
        let (interface, place, captured, len) = match &self.format {
            Format::Pcap { interface } => {
                let interface = *interface;
                if !self.start(16)? {
                    return Ok(None);
                }
                let [seconds, fraction, captured, len] =
                    [0, 4, 8, 12].map(|at| self.word(at).unwrap_or(0));
                if u64::from(fraction) >= interface.resolution {
                    return self.wrong("its time has more than a second behind the point");
                }
                if captured > LONGEST_PACKET {
                    return self.wrong("it claims to have more than 262144 bytes");
                }
                if captured > len {
                    return self.wrong("more of it was captured than there was");
                }
                self.time = u64::from(seconds) * SECOND
                    + u64::from(fraction) * (SECOND / interface.resolution);
                self.read(captured as usize)?;
                (interface, 0, captured, len)
            }
            Format::Pcapng { .. } => match self.next_packet_block()? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        self.count += 1;
        let data = &self.bytes[place..place + captured as usize];
        Ok(Some(Frame {
            time: self.time,
            link_type: interface.link_type,
            data,
            len: len.max(captured),
        }))
    }

    /// Reads blocks up to the next packet: its interface, and where it is in the bytes.
    fn next_packet_block(&mut self) -> Result<Option<(Interface, usize, u32, u32)>, FileError> {
        loop {
            if !self.start(4)? {
                return Ok(None);
            }
            // The same in both byte orders.
            if self.word(0) == Some(SECTION) {
                self.section()?;
                continue;
            }
            let kind = self.word(0).unwrap_or(0);
            self.body()?;
            let Format::Pcapng { interfaces } = &self.format else {
                return self.wrong("it is in no section");
            };
            let of = |number: u32| interfaces.get(number as usize).copied();
            let (interface, time, place, captured, len) = match kind {
                INTERFACE => {
                    self.interface()?;
                    continue;
                }
                ENHANCED_PACKET => (
                    self.word(0).and_then(of),
                    self.word(4).zip(self.word(8)),
                    20,
                    self.word(12),
                    self.word(16),
                ),
                PACKET => (
                    self.half(0).and_then(|number| of(number.into())),
                    self.word(4).zip(self.word(8)),
                    20,
                    self.word(12),
                    self.word(16),
                ),
                SIMPLE_PACKET => {
                    let interface = of(0);
                    let len = self.word(0);
                    let most = interface.map_or(0, |interface| match interface.snaplen {
                        0 => u32::MAX,
                        snaplen => snaplen,
                    });
                    let there = self.bytes.len().saturating_sub(4) as u32;
                    let captured = len.map(|len| len.min(most).min(there));
                    (interface, None, 4, captured, len)
                }
                // Names, statistics, and what is not known.
                _ => continue,
            };
            let (Some(interface), Some(captured), Some(len)) = (interface, captured, len) else {
                return self.wrong("it is of no interface, or too short");
            };
            let end = (captured as usize).checked_add(place);
            if captured > LONGEST_PACKET || end.is_none_or(|end| end > self.bytes.len()) {
                return self.wrong("it claims to have more bytes than its block");
            }
            if let Some((high, low)) = time {
                let units = u64::from(high) << 32 | u64::from(low);
                let time = u128::from(units) * u128::from(SECOND);
                let time = time / u128::from(interface.resolution);
                self.time = u64::try_from(time).unwrap_or(u64::MAX);
            }
            return Ok(Some((interface, place, captured, len)));
        }
    }

    /// Reads a block from its length on. Its body is in the bytes then.
    fn body(&mut self) -> Result<(), FileError> {
        self.read(4)?;
        let total = self.word(0).unwrap_or(0);
        if total < 12 || !total.is_multiple_of(4) || total > LONGEST_BLOCK {
            return self.wrong("its block has a length that cannot be");
        }
        let rest = total as usize - 12;
        self.read(rest + 4)?;
        if self.word(rest) != Some(total) {
            return self.wrong("its block ends with another length");
        }
        self.bytes.truncate(rest);
        Ok(())
    }

    /// Reads a section's head behind its type.
    fn section(&mut self) -> Result<(), FileError> {
        let mut head = [0; 8];
        self.input
            .read_exact(&mut head)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => FileError::Cut(self.count + 1),
                _ => FileError::Io(error),
            })?;
        self.is_big_endian = match head[4..] {
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            _ => return self.wrong("its section has no byte order"),
        };
        let total = word(&head, 0, self.is_big_endian).unwrap_or(0);
        if total < 28 || !total.is_multiple_of(4) || total > LONGEST_BLOCK {
            return self.wrong("its section has a length that cannot be");
        }
        self.read(total as usize - 12)?;
        if self.half(0) != Some(1) {
            return self.wrong("its section is of a version that is not known");
        }
        self.format = Format::Pcapng {
            interfaces: Vec::new(),
        };
        Ok(())
    }

    /// Notes the interface in the bytes.
    fn interface(&mut self) -> Result<(), FileError> {
        let (Some(link_type), Some(snaplen)) = (self.half(0), self.word(4)) else {
            return self.wrong("an interface before it is too short");
        };
        let mut resolution = 1_000_000;
        let mut at = 8;
        while let (Some(code), Some(len)) = (self.half(at), self.half(at + 2))
            && code != 0
        {
            const RESOLUTION: u16 = 9;
            if code == RESOLUTION {
                // A power of ten, or of two.
                resolution = match self.bytes.get(at + 4) {
                    Some(&power @ 0..=18) => 10_u64.pow(power.into()),
                    Some(&power @ 0x80..=0xbf) => 1 << (power & 0x7f),
                    _ => return self.wrong("an interface before it has times that cannot be"),
                };
            }
            at += 4 + usize::from(len).next_multiple_of(4);
        }
        let interface = Interface {
            link_type: link_type.into(),
            snaplen,
            resolution,
        };
        match &mut self.format {
            Format::Pcapng { interfaces } if interfaces.len() < MOST_INTERFACES => {
                interfaces.push(interface);
                Ok(())
            }
            _ => self.wrong("its section has too many interfaces"),
        }
    }
}

#[cfg(test)]
mod tests;
