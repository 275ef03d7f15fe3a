//! Generated arrivals: UDP flows with a rate, a size and a rhythm, the same on every run.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::tcp::MSS;
use softnet::mem::{Packet, Pool};
use softnet::time::Time;
use softnet::wire::{checksum, fold, pseudo_header, sum_bytes};

/// Protocol numbers.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// Bytes of Ethernet, IP and UDP headers.
const HEADERS_V4: u16 = 14 + 20 + 8;
const HEADERS_V6: u16 = 14 + 40 + 8;
/// The longest frame that is generated: what fits a packet buffer of 2 KiB.
const MAX_SIZE: u16 = 1700;

/// When the packets of a flow come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// At equal distances in bytes.
    Constant,
    /// At random, independently of one another.
    Poisson,
    /// In bursts of so many packets at once, as far apart as the rate asks for.
    Bursts(u32),
}

/// A flow to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Mean rate in bytes per second.
    pub rate: u64,
    /// Frame length in bytes; where it is a range, each length is as likely as the others.
    pub size: RangeInclusive<u16>,
    /// When the first packet may come.
    pub start: Time,
    /// For how many nanoseconds packets come.
    pub duration: u64,
    /// Their rhythm.
    pub pattern: Pattern,
    /// For what is random. Flows of one seed are alike.
    pub seed: u64,
    /// Source address and port.
    pub source: (IpAddr, u16),
    /// Destination address and port.
    pub destination: (IpAddr, u16),
    /// Differentiated services code point.
    pub dscp: u8,
    /// Priority.
    pub priority: u32,
    /// Mark.
    pub mark: u32,
}

/// Why a flow cannot be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// No or too much rate.
    #[error("the rate must be between 1 byte/s and 1 Tbyte/s")]
    Rate,
    /// A size that holds no headers, or no buffer holds.
    #[error("frames must have {HEADERS_V4} (IPv6: {HEADERS_V6}) to {MAX_SIZE} bytes")]
    Size,
    /// Addresses of two families.
    #[error("source and destination must both be IPv4 or both be IPv6 addresses")]
    Family,
    /// Larger than 6 bits.
    #[error("a DSCP is a number from 0 to 63")]
    Dscp,
    /// A burst without packets.
    #[error("a burst has at least one packet")]
    Burst,
}

/// A sequence of equally distributed numbers (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is small.
    fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u32
    }

    /// Exponentially distributed with mean 1.
    fn exponential(&mut self) -> f64 {
        // 53 bits, never 0.
        let uniform = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -uniform.ln()
    }
}

/// The arrivals of a flow: times and frame lengths. Make the frames with [`Flow::packet`].
#[derive(Clone, Debug)]
pub struct Arrivals {
    flow: Flow,
    random: Random,
    /// When the next packet comes, from the start of the flow, in billionths of a byte at its
    /// rate.
    at: u128,
    in_burst: u32,
    burst_bytes: u64,
}

impl Flow {
    /// When its packets come, and how long they are.
    ///
    /// # Errors
    /// If the flow makes no sense.
    pub fn arrivals(&self) -> Result<Arrivals, FlowError> {
        let least = match (self.source.0, self.destination.0) {
            (IpAddr::V4(_), IpAddr::V4(_)) => HEADERS_V4,
            (IpAddr::V6(_), IpAddr::V6(_)) => HEADERS_V6,
            _ => return Err(FlowError::Family),
        };
        if !(1..=1_000_000_000_000).contains(&self.rate) {
            return Err(FlowError::Rate);
        }
        if self.size.is_empty() || *self.size.start() < least || *self.size.end() > MAX_SIZE {
            return Err(FlowError::Size);
        }
        if self.dscp > 63 {
            return Err(FlowError::Dscp);
        }
        if self.pattern == Pattern::Bursts(0) {
            return Err(FlowError::Burst);
        }
        Ok(Arrivals {
            flow: self.clone(),
            random: Random(self.seed),
            at: 0,
            in_burst: 0,
            burst_bytes: 0,
        })
    }

    /// A frame of `len` bytes of this flow, with right checksums; `None` if the pool has no buffer
    /// that holds it.
    pub fn packet(&self, len: u16, pool: &Pool) -> Option<Packet> {
        let v4 = self.source.0.is_ipv4();
        let payload = len.checked_sub(14 + if v4 { 20 } else { 40 })?;
        let mut header = [0; 8];
        header[4..6].copy_from_slice(&payload.to_be_bytes());
        self.frame(UDP, &mut header, 6, payload, 0, pool)
    }

    /// A frame with a transport header, whose ports and checksum are filled in, and zeros behind
    /// it: `payload` bytes in all.
    fn frame(
        &self,
        protocol: u8,
        header: &mut [u8],
        sum_at: usize,
        payload: u16,
        ecn: u8,
        pool: &Pool,
    ) -> Option<Packet> {
        let (source, destination) = match (self.source.0, self.destination.0) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.octets().to_vec(), b.octets().to_vec()),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.octets().to_vec(), b.octets().to_vec()),
            _ => return None,
        };
        let v4 = source.len() == 4;
        let start = 14 + if v4 { 20 } else { 40 };
        let len = start + usize::from(payload);
        if usize::from(payload) < header.len() {
            return None;
        }
        let class = self.dscp << 2 | ecn;
        let mut frame = vec![0; len];
        // Locally administered stations 2 and 1.
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0, 0]);
        if v4 {
            frame[12..14].copy_from_slice(&[0x08, 0x00]);
            frame[14..16].copy_from_slice(&[0x45, class]);
            frame[16..18].copy_from_slice(&(payload + 20).to_be_bytes());
            frame[22..24].copy_from_slice(&[64, protocol]);
            frame[26..30].copy_from_slice(&source);
            frame[30..34].copy_from_slice(&destination);
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            frame[14..16].copy_from_slice(&[0x60 | class >> 4, class << 4]);
            frame[18..20].copy_from_slice(&payload.to_be_bytes());
            frame[20..22].copy_from_slice(&[protocol, 64]);
            frame[22..38].copy_from_slice(&source);
            frame[38..54].copy_from_slice(&destination);
        }
        header[0..2].copy_from_slice(&self.source.1.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination.1.to_be_bytes());
        // The data are zeros.
        let sum =
            pseudo_header(&source, &destination, protocol, u32::from(payload)) + sum_bytes(header);
        let sum = match !fold(sum) {
            0 if protocol == UDP => 0xffff,
            sum => sum,
        };
        header[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
        frame[start..start + header.len()].copy_from_slice(header);
        let mut packet = pool.alloc().ok()?;
        packet.set_priority(self.priority);
        packet.set_mark(self.mark);
        packet.append(&frame).then_some(packet)
    }
}

/// A full segment of a connection with these addresses, its number where the sequence number is;
/// `None` if the pool has no buffer that holds it.
pub(super) fn segment(flow: &Flow, number: u32, ecn: u8, pool: &Pool) -> Option<Packet> {
    // 32 bytes with the timestamp option of RFC 7323.
    let mut header = [0; 32];
    header[4..8].copy_from_slice(&number.to_be_bytes());
    header[12..16].copy_from_slice(&[0x80, 0x10, 0xff, 0xff]);
    header[20..24].copy_from_slice(&[1, 1, 8, 10]);
    let payload = header.len() as u16 + MSS as u16;
    flow.frame(TCP, &mut header, 16, payload, ecn, pool)
}

impl Iterator for Arrivals {
    /// When, and how long the frame is.
    type Item = (Time, u16);

    fn next(&mut self) -> Option<(Time, u16)> {
        let nanos = u64::try_from(self.at / u128::from(self.flow.rate)).ok()?;
        if nanos >= self.flow.duration {
            return None;
        }
        let (least, most) = (*self.flow.size.start(), *self.flow.size.end());
        let len = least + self.random.below(u32::from(most - least) + 1) as u16;
        let bytes = u128::from(len) * 1_000_000_000;
        match self.flow.pattern {
            Pattern::Constant => self.at += bytes,
            Pattern::Poisson => self.at += (bytes as f64 * self.random.exponential()) as u128,
            Pattern::Bursts(count) => {
                self.in_burst += 1;
                self.burst_bytes += u64::from(len);
                if self.in_burst >= count {
                    self.at += u128::from(self.burst_bytes) * 1_000_000_000;
                    (self.in_burst, self.burst_bytes) = (0, 0);
                }
            }
        }
        Some((self.flow.start.plus_nanos(nanos), len))
    }
}
