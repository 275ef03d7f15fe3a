//! Generated arrivals: UDP flows with a rate, a size and a rhythm, the same on every run.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use softnet::mem::{Packet, Pool};
use softnet::time::Time;

use super::frame::Template;

/// Protocol numbers.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// Bytes of Ethernet, IP and UDP headers.
const HEADERS_V4: u16 = 14 + 20 + 8;
const HEADERS_V6: u16 = 14 + 40 + 8;
/// The longest frame that is generated: what fits a packet buffer of 2 KiB.
const MAX_SIZE: u16 = 1700;

/// Parts of a byte, and nanoseconds of a second.
const BILLION: u64 = 1_000_000_000;

/// Flows and connections that can be told apart.
pub(super) const MAX_FLOWS: usize = u16::MAX as usize;

/// When the packets of a flow come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// At equal distances in bytes.
    Constant,
    /// At random, independently of one another.
    Poisson,
    /// In bursts of so many packets at once, as far apart as the rate asks for.
    Bursts(u32),
    /// So many nanoseconds apart, whatever the rate is.
    Every(u64),
    /// At equal distances in bytes for `on` nanoseconds, then none for `off`, and so on. The rate
    /// is that of the former.
    OnOff {
        /// Nanoseconds in which packets come.
        on: u64,
        /// Nanoseconds in which none do.
        off: u64,
    },
}

/// Direction of packets on the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Through the tree.
    #[default]
    Forward,
    /// Through the tree of what comes back.
    Reverse,
}

impl Direction {
    /// The other one.
    pub fn other(self) -> Direction {
        match self {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        }
    }
}

/// A flow to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Mean rate in bytes per second; with [`Pattern::OnOff`], of the time in which packets come.
    /// With [`Pattern::Every`] it has no meaning.
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
    /// Direction of its packets; what answers them has the other one.
    pub direction: Direction,
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
    /// Packets come for no time at all.
    #[error("`on` must be longer than nothing")]
    On,
    /// Packets come all at once, and there is no end of them.
    #[error("packets must be a nanosecond apart at least")]
    Apart,
    /// Addresses, ports and protocol of another one.
    #[error(
        "addresses, ports and protocol are those of another flow; give it another source port"
    )]
    Same,
    /// A direction without a tree.
    #[error("there is no policy for the reverse direction")]
    Direction,
    /// More than can be told apart.
    #[error("there are more than {MAX_FLOWS} flows and connections")]
    Many,
}

/// A sequence of equally distributed numbers (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

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

    /// Above 0 and up to 1, with 53 bits.
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }
}

/// The arrivals of a flow: times and frame lengths. Make the frames with [`Flow::packet`].
#[derive(Clone, Debug)]
pub struct Arrivals {
    flow: Flow,
    random: Random,
    /// When the next packet comes, from the start of the flow: nanoseconds, and what is beyond
    /// them in billionths of a byte at its rate.
    at: u64,
    beyond: u64,
    /// The last length, and how far apart frames of it are, as above.
    step: (u16, u64, u64),
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
        if matches!(self.pattern, Pattern::OnOff { on: 0, .. }) {
            return Err(FlowError::On);
        }
        if self.pattern == Pattern::Every(0) {
            return Err(FlowError::Apart);
        }
        Ok(Arrivals {
            flow: self.clone(),
            random: Random(self.seed),
            at: 0,
            beyond: 0,
            step: (0, 0, 0),
            in_burst: 0,
            burst_bytes: 0,
        })
    }

    /// The flow of its answers.
    pub(super) fn back(&self) -> Flow {
        Flow {
            source: self.destination,
            destination: self.source,
            direction: self.direction.other(),
            ..self.clone()
        }
    }

    /// A frame of `len` bytes of this flow, with right checksums; `None` if the pool has no buffer
    /// that holds it.
    pub fn packet(&self, len: u16, pool: &Pool) -> Option<Packet> {
        Template::datagrams(self, len)?.packet(len, pool)
    }
}

impl Arrivals {
    /// The time passes that so many billionths of a byte take.
    fn pass(&mut self, bytes: u128) {
        let (bytes, rate) = (u128::from(self.beyond) + bytes, self.flow.rate);
        let (nanos, beyond) = match u64::try_from(bytes) {
            Ok(bytes) => (bytes / rate, bytes % rate),
            Err(_) => {
                let (bytes, rate) = (bytes, u128::from(rate));
                let nanos = u64::try_from(bytes / rate).unwrap_or(u64::MAX);
                (nanos, (bytes % rate) as u64)
            }
        };
        self.at = self.at.saturating_add(nanos);
        self.beyond = beyond;
    }

    /// The time of a frame passes. The length is mostly that of the frame before: nothing is
    /// divided then.
    #[inline]
    fn pass_frame(&mut self, len: u16) {
        let rate = self.flow.rate;
        if self.step.0 != len {
            let bytes = u64::from(len) * BILLION;
            self.step = (len, bytes / rate, bytes % rate);
        }
        let (_, nanos, beyond) = self.step;
        self.at = self.at.saturating_add(nanos);
        self.beyond += beyond;
        if self.beyond >= rate {
            self.at = self.at.saturating_add(1);
            self.beyond -= rate;
        }
    }
}

impl Iterator for Arrivals {
    /// When, and how long the frame is.
    type Item = (Time, u16);

    fn next(&mut self) -> Option<(Time, u16)> {
        let mut nanos = self.at;
        if let Pattern::OnOff { on, off } = self.flow.pattern {
            nanos = nanos.saturating_add((nanos / on).saturating_mul(off));
        }
        if nanos >= self.flow.duration {
            return None;
        }
        let (least, most) = (*self.flow.size.start(), *self.flow.size.end());
        let len = least + self.random.below(u32::from(most - least) + 1) as u16;
        match self.flow.pattern {
            Pattern::Constant | Pattern::OnOff { .. } => self.pass_frame(len),
            Pattern::Every(nanos) => self.at = self.at.saturating_add(nanos),
            Pattern::Poisson => {
                let bytes = u64::from(len) * BILLION;
                let gap = bytes as f64 * self.random.exponential();
                self.pass(gap as u128);
            }
            Pattern::Bursts(count) => {
                self.in_burst += 1;
                self.burst_bytes += u64::from(len);
                if self.in_burst >= count {
                    self.pass(u128::from(self.burst_bytes) * u128::from(BILLION));
                    (self.in_burst, self.burst_bytes) = (0, 0);
                }
            }
        }
        Some((self.flow.start.plus_nanos(nanos), len))
    }
}
