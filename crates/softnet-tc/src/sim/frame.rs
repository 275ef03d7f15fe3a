//! Frames of a flow, copied from one that is made once.

use std::net::IpAddr;

use softnet::mem::{Packet, Pool};
use softnet::time::Time;
use softnet::wire::{FIXED_KEY, checksum, fold, parse, pseudo_header, sum_bytes};

use super::flow::{Direction, Flow, TCP, UDP};
use super::tcp::MSS;

/// Places in the transport header: of a sequence number, of the number that is acknowledged, of the
/// time in the timestamp option as it is written here; and of the data of a datagram.
const SEQUENCE: usize = 4;
const ACKNOWLEDGED: usize = 8;
const TIMESTAMP: usize = 24;
const DATA: usize = 8;
/// Bytes of the time in a reply.
const STAMP: usize = 8;

/// The longest frame of a flow. Others have its first bytes, and lengths, number and checksums of
/// their own.
#[derive(Debug)]
pub(super) struct Template {
    frame: Vec<u8>,
    /// Start of the transport header.
    start: usize,
    /// Place of its checksum.
    sum_at: usize,
    protocol: u8,
    /// Partial sums without what differs: of the IPv4 header, and of transport and pseudo-header.
    ip_sum: u64,
    sum: u64,
    priority: u32,
    mark: u32,
    hash: u32,
}

impl Template {
    /// UDP datagrams in frames of up to `len` bytes; `None` if that is too short.
    pub(super) fn datagrams(flow: &Flow, len: u16) -> Option<Template> {
        Template::new(flow, UDP, &[0; 8], 6, usize::from(len), 0)
    }

    /// Replies to datagrams in frames of up to `len` bytes.
    pub(super) fn replies(flow: &Flow, len: u16) -> Option<Template> {
        let ip = if flow.source.0.is_ipv4() { 20 } else { 40 };
        Template::datagrams(flow, len.max(14 + ip + (DATA + STAMP) as u16))
    }

    /// Full segments of a connection, each with its number as sequence number.
    pub(super) fn segments(flow: &Flow, ecn: u8) -> Option<Template> {
        Template::tcp(flow, MSS as usize, ecn)
    }

    /// Acknowledgments without data; they are not ECN-capable (RFC 3168 6.1.4).
    pub(super) fn acknowledgments(flow: &Flow) -> Option<Template> {
        Template::tcp(flow, 0, 0)
    }

    fn tcp(flow: &Flow, data: usize, ecn: u8) -> Option<Template> {
        // 32 bytes with the timestamp option of RFC 7323.
        let mut header = [0; 32];
        header[12..16].copy_from_slice(&[0x80, 0x10, 0xff, 0xff]);
        header[20..24].copy_from_slice(&[1, 1, 8, 10]);
        let ip = if flow.source.0.is_ipv4() { 20 } else { 40 };
        let len = 14 + ip + header.len() + data;
        Template::new(flow, TCP, &header, 16, len, ecn)
    }

    /// Zeros are behind the headers.
    fn new(
        flow: &Flow,
        protocol: u8,
        header: &[u8],
        sum_at: usize,
        len: usize,
        ecn: u8,
    ) -> Option<Template> {
        let (source, destination) = match (flow.source.0, flow.destination.0) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.octets().to_vec(), b.octets().to_vec()),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.octets().to_vec(), b.octets().to_vec()),
            _ => return None,
        };
        let v4 = source.len() == 4;
        let start = 14 + if v4 { 20 } else { 40 };
        let payload = u16::try_from(len.checked_sub(start)?).ok()?;
        if usize::from(payload) < header.len() {
            return None;
        }
        let class = flow.dscp << 2 | ecn;
        let mut frame = vec![0; len];
        // Locally administered stations 2 and 1.
        let stations: [u8; 14] = match flow.direction {
            Direction::Forward => [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0, 0],
            Direction::Reverse => [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0],
        };
        frame[..14].copy_from_slice(&stations);
        if v4 {
            frame[12..14].copy_from_slice(&[0x08, 0x00]);
            frame[14..16].copy_from_slice(&[0x45, class]);
            frame[22..24].copy_from_slice(&[64, protocol]);
            frame[26..30].copy_from_slice(&source);
            frame[30..34].copy_from_slice(&destination);
        } else {
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            frame[14..16].copy_from_slice(&[0x60 | class >> 4, class << 4]);
            frame[20..22].copy_from_slice(&[protocol, 64]);
            frame[22..38].copy_from_slice(&source);
            frame[38..54].copy_from_slice(&destination);
        }
        frame[start..start + header.len()].copy_from_slice(header);
        frame[start..start + 2].copy_from_slice(&flow.source.1.to_be_bytes());
        frame[start + 2..start + 4].copy_from_slice(&flow.destination.1.to_be_bytes());
        let mut template = Template {
            start,
            sum_at: start + sum_at,
            protocol,
            ip_sum: sum_bytes(&frame[14..start]),
            sum: pseudo_header(&source, &destination, protocol, 0)
                + sum_bytes(&frame[start..start + header.len()]),
            priority: flow.priority,
            mark: flow.mark,
            hash: 0,
            frame: Vec::new(),
        };
        template.fill(&mut frame, payload, 0);
        template.hash =
            parse(&frame, len).map_or(0, |headers| headers.flow_hash_with(&frame, &FIXED_KEY));
        debug_assert!(!v4 || checksum(&frame[14..34]) == 0);
        template.frame = frame;
        Some(template)
    }

    /// Writes lengths, number and checksums. `payload` is the length behind the IP header.
    fn fill(&self, frame: &mut [u8], payload: u16, number: u32) {
        let start = self.start;
        if start == 34 {
            let total = payload + 20;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            let sum = !fold(self.ip_sum + u64::from(total.to_be()));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            frame[18..20].copy_from_slice(&payload.to_be_bytes());
        }
        let mut sum = self.sum + u64::from(u32::from(payload).to_be());
        if self.protocol == UDP {
            frame[start + 4..start + 6].copy_from_slice(&payload.to_be_bytes());
            sum += u64::from(payload.to_be());
        } else {
            self.put(frame, SEQUENCE, number);
            sum += u64::from(number.to_be());
        }
        self.seal(frame, sum);
    }

    /// Writes a word of the transport header.
    fn put(&self, frame: &mut [u8], place: usize, word: u32) {
        let at = self.start + place;
        frame[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }

    /// Writes the checksum that this is the partial sum of.
    fn seal(&self, frame: &mut [u8], sum: u64) {
        let sum = match !fold(sum) {
            0 if self.protocol == UDP => 0xffff,
            sum => sum,
        };
        frame[self.sum_at..self.sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// A frame of `len` bytes; `None` if the template is shorter, or the pool has no buffer that
    /// holds it.
    pub(super) fn packet(&self, len: u16, pool: &Pool) -> Option<Packet> {
        self.frame_of(usize::from(len), 0, pool)
    }

    /// The segment of this number.
    pub(super) fn segment(&self, number: u32, pool: &Pool) -> Option<Packet> {
        self.frame_of(self.frame.len(), number, pool)
    }

    #[inline]
    fn frame_of(&self, len: usize, number: u32, pool: &Pool) -> Option<Packet> {
        let least = if self.protocol == UDP { 8 } else { 32 };
        let frame = self.frame.get(..len)?;
        let payload = len.checked_sub(self.start).filter(|&len| len >= least)?;
        let mut packet = pool.alloc().ok()?;
        packet.set_priority(self.priority);
        packet.set_mark(self.mark);
        packet.set_flow_hash(self.hash);
        if !packet.append(frame) {
            return None;
        }
        if len != self.frame.len() || number != 0 {
            // Not longer than the frame, whose length has 16 bits.
            self.fill(packet.data_mut(), payload as u16, number);
        }
        Some(packet)
    }

    /// The acknowledgment of all segments before `number`; its timestamp is `id`.
    pub(super) fn acknowledgment(&self, number: u32, id: u32, pool: &Pool) -> Option<Packet> {
        let mut packet = self.frame_of(self.frame.len(), 0, pool)?;
        let payload = (self.frame.len() - self.start) as u32;
        let frame = packet.data_mut();
        self.put(frame, ACKNOWLEDGED, number);
        self.put(frame, TIMESTAMP, id);
        let words = [payload, number, id].map(|word| u64::from(word.to_be()));
        self.seal(frame, self.sum + words.iter().sum::<u64>());
        Some(packet)
    }

    /// The reply of `len` bytes, or of as many as it takes, to a datagram that was sent at `time`.
    pub(super) fn reply(&self, len: u16, time: Time, pool: &Pool) -> Option<Packet> {
        let least = self.start + DATA + STAMP;
        let len = usize::from(len).clamp(least, self.frame.len().max(least));
        let mut packet = self.frame_of(len, 0, pool)?;
        let payload = (len - self.start) as u16;
        let (high, low) = ((time.0 >> 32) as u32, time.0 as u32);
        let frame = packet.data_mut();
        self.put(frame, DATA, high);
        self.put(frame, DATA + 4, low);
        // The length is in the header and in the pseudo-header.
        let words = [u32::from(payload), high, low].map(|word| u64::from(word.to_be()));
        let sum = self.sum + u64::from(payload.to_be()) + words.iter().sum::<u64>();
        self.seal(frame, sum);
        Some(packet)
    }

    /// Number of a segment that may have got or lost VLAN tags, whose IP header starts at `at`.
    pub(super) fn number(&self, data: &[u8], at: usize) -> u32 {
        self.word(data, at, SEQUENCE)
    }

    /// The timestamp of an acknowledgment, with `at` as above.
    pub(super) fn id(&self, data: &[u8], at: usize) -> u32 {
        self.word(data, at, TIMESTAMP)
    }

    /// The time in a reply, with `at` as above.
    pub(super) fn time(&self, data: &[u8], at: usize) -> Time {
        let [high, low] = [DATA, DATA + 4].map(|place| u64::from(self.word(data, at, place)));
        Time(high << 32 | low)
    }

    fn word(&self, data: &[u8], at: usize, place: usize) -> u32 {
        let at = at + (self.start - 14) + place;
        let bytes = data.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |&bytes| u32::from_be_bytes(bytes))
    }
}
