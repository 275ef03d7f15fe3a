//! Filter of TCP's acknowledgments (`ack-filter`): drops a pure one that waits, when a later one of
//! the same connection says all that it says.
//!
//! Signals that must not be lost (RFC 5681, 2018, 2883, 3168, 7323): data, flags but ACK, ECN's,
//! duplicates (they count as signs of loss), SACK blocks that the later one does not cover,
//! D-SACKs, timestamps that are not older, and any option that is not known. So an acknowledgment
//! is dropped only if the later one acknowledges more, by number or by SACK blocks. In the careful
//! mode one such is left in the queue; in the aggressive mode none is, where the new one comes
//! right behind it with the same ECN flags.
//!
//! Packets are hostile: each header is checked against the frame.

use std::net::IpAddr;

use softnet::mem::{Packet, PacketList};
use softnet::wire::L4;

/// Packets of a flow that are looked at, the oldest first.
const LOOKED_AT: usize = 128;

const ACK: u16 = 0x010;
const SYN: u16 = 0x002;
/// ECE and CWR.
const ECN: u16 = 0x0C0;

/// Kinds of options.
const END: u8 = 0;
const NOP: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;
const MD5: u8 = 19;

/// A TCP packet, as far as the filter looks.
#[derive(Debug)]
struct Segment<'a> {
    ends: (IpAddr, IpAddr),
    ports: (u16, u16),
    /// The cumulative acknowledgment.
    ack: u32,
    /// Flags, with those that are reserved.
    flags: u16,
    options: &'a [u8],
    has_data: bool,
}

/// True if a sequence number is behind another one (RFC 9293 3.4).
fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}

impl<'a> Segment<'a> {
    fn read(packet: &'a Packet) -> Option<Segment<'a>> {
        let headers = packet.parse().ok()?;
        let L4::Tcp {
            source,
            destination,
        } = headers.transport
        else {
            return None;
        };
        let data = packet.data();
        let ends = headers.addresses(data)?;
        let start = usize::from(headers.transport_offset);
        let tcp = data.get(start..)?;
        let flags = u16::from_be_bytes([*tcp.get(12)?, *tcp.get(13)?]);
        let len = usize::from(flags >> 12) * 4;
        let options = tcp.get(20..len)?;
        let end = usize::try_from(headers.network_end).ok()?;
        Some(Segment {
            ends,
            ports: (source, destination),
            ack: be32(tcp, 8)?,
            flags: flags & 0xFFF,
            options,
            has_data: end.checked_sub(start)? != len,
        })
    }

    /// The first option of a kind; none behind one whose length is wrong.
    fn option(&self, kind: u8) -> Option<&'a [u8]> {
        let mut options = Options(self.options);
        options
            .find_map(|option| option.ok().filter(|(of, _)| *of == kind))
            .map(|(_, value)| value)
    }

    /// Value and echo of the timestamp option; 0 without.
    fn timestamp(&self) -> (u32, u32) {
        let option = self.option(TIMESTAMP).filter(|option| option.len() == 8);
        let at = |from| option.and_then(|option| be32(option, from)).unwrap_or(0);
        (at(0), at(4))
    }

    /// Blocks of the SACK option.
    fn blocks(&self) -> impl Iterator<Item = (u32, u32)> + Clone + use<'a> {
        let option = self.option(SACK).unwrap_or_default();
        option
            .chunks_exact(8)
            .filter_map(|block| Some((be32(block, 0)?, be32(block, 4)?)))
    }

    /// True if flags and options say nothing that must not be lost, beside numbers that are
    /// compared elsewhere. `newer` is the timestamp of the one that comes later.
    fn is_plain(&self, newer: (u32, u32)) -> bool {
        if self.flags & !ECN != ACK || self.has_data {
            return false;
        }
        Options(self.options).all(|option| match option {
            Ok((MD5, _)) => true,
            Ok((SACK, blocks)) => blocks.len() % 8 == 0,
            Ok((TIMESTAMP, value)) if value.len() == 8 => {
                let (sent, echo) = (be32(value, 0), be32(value, 4));
                !sent.is_none_or(|sent| is_after(sent, newer.0))
                    && !echo.is_none_or(|echo| is_after(echo, newer.1))
            }
            _ => false,
        })
    }

    /// True if a later one's SACK blocks cover this one's. The second: they cover more.
    fn is_covered_by(&self, later: &Segment<'_>) -> (bool, bool) {
        let bytes = |blocks: &mut dyn Iterator<Item = (u32, u32)>| {
            blocks.fold(0_u32, |sum, (start, end)| {
                sum.wrapping_add(end.wrapping_sub(start))
            })
        };
        let mut own = self.blocks();
        if own.clone().next().is_none() {
            return (true, later.blocks().next().is_some());
        }
        let is_covered = own.all(|(start, end)| {
            // A D-SACK reports something else.
            !is_after(self.ack, start)
                && later
                    .blocks()
                    .any(|(from, to)| !is_after(from, start) && !is_after(end, to))
        });
        (
            is_covered,
            bytes(&mut later.blocks()) > bytes(&mut self.blocks()),
        )
    }

    /// True if `later`, of the same connection, says all that this one says.
    fn is_needless(&self, later: &Segment<'_>, newer: (u32, u32)) -> bool {
        if !self.is_plain(newer) || is_after(self.ack, later.ack) {
            return false;
        }
        let (covered, more) = self.is_covered_by(later);
        covered && (more || self.ack != later.ack)
    }
}

/// The options of a TCP header: kind and value, or an error at the end of what can be read.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u8, &'a [u8]), ()>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&kind, rest) = self.0.split_first()?;
            match kind {
                END => return None,
                NOP => self.0 = rest,
                _ => {
                    let len = rest.first().map_or(0, |&len| usize::from(len));
                    let value = rest.get(1..len.wrapping_sub(1));
                    let next = value.and_then(|_| rest.get(len - 1..));
                    self.0 = next.unwrap_or_default();
                    return Some(value.map(|value| (kind, value)).ok_or(()));
                }
            }
        }
    }
}

/// Takes out of a flow an acknowledgment that a new packet, which comes behind, makes needless.
pub(super) fn filter(queue: &mut PacketList, new: &Packet, aggressive: bool) -> Option<Packet> {
    if queue.is_empty() {
        return None;
    }
    let later = Segment::read(new)?;
    if later.flags & (ACK | SYN) != ACK {
        return None;
    }
    let newer = later.timestamp();
    // The oldest that may go, and its ECN flags.
    let mut oldest: Option<(usize, u16)> = None;
    let mut found = 0;
    for (index, packet) in queue.iter().take(LOOKED_AT).enumerate() {
        let same = |of: &Segment<'_>| of.ends == later.ends && of.ports == later.ports;
        let Some(earlier) = Segment::read(packet).filter(same) else {
            continue;
        };
        // A change of these flags is news.
        if oldest.is_some_and(|(_, flags)| flags != earlier.flags & ECN) {
            oldest = None;
            found -= 1;
        }
        if !earlier.is_needless(&later, newer) {
            continue;
        }
        let (index, _) = *oldest.get_or_insert((index, earlier.flags & ECN));
        found += 1;
        if found > 1 {
            return take(queue, index);
        }
    }
    let (index, flags) = oldest?;
    let is_last = index + 1 == queue.len();
    (aggressive && is_last && flags == later.flags & ECN).then(|| take(queue, index))?
}

/// Takes one packet out of a list.
fn take(queue: &mut PacketList, index: usize) -> Option<Packet> {
    let mut front = PacketList::new();
    queue.split_front(index, &mut front);
    let packet = queue.pop_front();
    front.append(queue);
    *queue = front;
    packet
}
