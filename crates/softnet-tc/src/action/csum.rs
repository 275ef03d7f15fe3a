//! `csum`: checksums, computed anew (tc-csum(8), the kernel's `act_csum.c`).

use std::fmt;

use softnet::mem::Packet;
use softnet::wire::{self, L4, Network, PartialSum};

use super::words::{Words, WordsError};
use super::{Control, Run, Tally, edit};

/// Parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Csum {
    /// Headers whose checksums are meant (`TCA_CSUM_UPDATE_FLAG_*`).
    pub flags: u32,
}

const IP4H: u32 = 1;
const ICMP: u32 = 2;
const IGMP: u32 = 4;
const TCP: u32 = 8;
const UDP: u32 = 16;
const UDPLITE: u32 = 32;
const SCTP: u32 = 64;

const NAMES: [(&str, u32); 7] = [
    ("ip4h", IP4H),
    ("icmp", ICMP),
    ("igmp", IGMP),
    ("tcp", TCP),
    ("udp", UDP),
    ("udplite", UDPLITE),
    ("sctp", SCTP),
];

impl Csum {
    pub(super) fn run(&self, control: Control, run: &mut Run<'_>) -> Control {
        if control == Control::Drop {
            return control;
        }
        match self.update(run) {
            Some(()) => control,
            None => {
                run.tally.add(Tally::DROPS, 1);
                run.dropped = true;
                Control::Drop
            }
        }
    }

    /// `None`: the packet is cut short, or cannot be changed.
    fn update(&self, run: &mut Run<'_>) -> Option<()> {
        let Some(headers) = run.headers() else {
            return Some(());
        };
        if headers.network == Network::Other {
            return Some(());
        }
        let (network, transport) = headers.offsets();
        let end = headers.network_end as usize;
        let start = network.max(transport);
        edit::make_writable(run.packet, run.cx, start).then_some(())?;
        let field = |at: usize| {
            let bytes = run.packet.data().get(network + at..)?.first_chunk()?;
            Some(usize::from(u16::from_be_bytes(*bytes)))
        };
        let mut is_whole = headers.transport != L4::Fragment;
        if headers.network == Network::V4 {
            // A first fragment counts as a packet.
            is_whole |= field(6)? & 0x1fff == 0;
            let flag = match headers.protocol {
                1 => ICMP,
                2 => IGMP,
                6 => TCP,
                17 => UDP,
                132 => SCTP,
                136 => UDPLITE,
                _ => 0,
            };
            // It says that it is longer than it is.
            if self.flags & flag != 0 && network + field(2)? > run.packet.len() {
                return None;
            }
        }
        if is_whole && headers.transport != L4::None {
            let len = end.checked_sub(transport)?;
            self.transport(run.packet, &headers, transport, len)?;
        }
        if headers.network == Network::V4 && self.flags & IP4H != 0 {
            let data = run.packet.data_mut();
            let len = usize::from(data.get(network)? & 0xf) * 4;
            let header = data.get_mut(network..network + len)?;
            header.get_mut(10..12)?.fill(0);
            let sum = wire::checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some(())
    }

    fn transport(
        &self,
        packet: &mut Packet,
        headers: &wire::Headers,
        at: usize,
        len: usize,
    ) -> Option<()> {
        let is_v6 = headers.network == Network::V6;
        // Flag, place of the checksum, bytes of the header, and whether addresses count.
        let (flag, field, least, pseudo) = match headers.protocol {
            1 if !is_v6 => (ICMP, 2, 8, false),
            2 if !is_v6 => (IGMP, 2, 8, false),
            58 if is_v6 => (ICMP, 2, 8, true),
            6 => (TCP, 16, 20, true),
            17 => (UDP, 6, 8, true),
            136 => (UDPLITE, 6, 8, true),
            132 => (SCTP, 8, 12, false),
            _ => return Some(()),
        };
        if self.flags & flag == 0 {
            return Some(());
        }
        if packet.gso().is_some() && matches!(flag, TCP | UDP | SCTP) {
            // Each segment is given its own.
            return Some(());
        }
        (len >= least).then_some(())?;
        let (mut covered, mut told_len) = (len, len);
        let data = packet.data();
        if matches!(flag, UDP | UDPLITE) {
            let [a, b] = *data.get(at + 4..)?.first_chunk()?;
            let told = usize::from(u16::from_be_bytes([a, b]));
            let [a, b] = *data.get(at + 6..)?.first_chunk()?;
            let unused = !is_v6 && flag == UDP && [a, b] == [0, 0];
            told_len = told;
            // What is wrong or has none stays so.
            match flag {
                UDP if told != len || unused => return Some(()),
                UDPLITE if told != 0 && (told < 8 || told > len) => return Some(()),
                UDPLITE if told != 0 => covered = told,
                _ => {}
            }
        }
        let place = at + field;
        if flag == SCTP {
            packet.data_mut().get_mut(place..place + 4)?.fill(0);
            let crc = crc32c(packet, at, covered)?;
            let bytes = crc.to_le_bytes();
            packet.data_mut()[place..place + 4].copy_from_slice(&bytes);
        } else {
            packet.data_mut().get_mut(place..place + 2)?.fill(0);
            let mut sum = bytes_sum(packet, at, covered)?;
            if pseudo {
                sum += headers.pseudo_header(packet.data(), told_len as u32);
            }
            let folded = !wire::fold(sum);
            // 0 says that there is none (RFC 768).
            let zero = matches!(flag, UDP | UDPLITE) && folded == 0;
            let bytes = (if zero { 0xffff } else { folded }).to_be_bytes();
            packet.data_mut()[place..place + 2].copy_from_slice(&bytes);
        }
        packet.set_checksum(None);
        Some(())
    }

    pub(super) fn check(&self) -> Result<(), WordsError> {
        match self.flags & !127 {
            0 => Ok(()),
            _ => Err(WordsError::new("csum knows no such checksum")),
        }
    }

    pub(super) fn read(words: &mut Words<'_>) -> Result<Csum, WordsError> {
        let mut flags = 0;
        loop {
            let word = words.peek();
            let found = NAMES.iter().find(|(name, _)| Some(*name) == word);
            match found {
                Some((_, flag)) => flags |= flag,
                None if word == Some("and") => {}
                None => break,
            }
            words.next();
        }
        match flags {
            0 => Err(WordsError::new(
                "csum needs ip4h, icmp, igmp, tcp, udp, udplite or sctp",
            )),
            flags => Ok(Csum { flags }),
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("csum")?;
        let named = NAMES.iter().filter(|(_, flag)| self.flags & flag != 0);
        named
            .into_iter()
            .try_for_each(|(name, _)| write!(f, " {name}"))
    }
}

/// The parts of a packet's bytes from `at` on.
fn parts(packet: &Packet, at: usize, len: usize) -> impl Iterator<Item = &[u8]> {
    let (mut skip, mut left) = (at, len);
    packet.segments().filter_map(move |segment| {
        let part = segment.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(segment.len());
        let part = &part[..part.len().min(left)];
        left -= part.len();
        (!part.is_empty()).then_some(part)
    })
}

/// The sum of the bytes. `None`: there are not so many.
fn bytes_sum(packet: &Packet, at: usize, len: usize) -> Option<u64> {
    let mut sum = PartialSum::default();
    let mut found = 0;
    for part in parts(packet, at, len) {
        sum.add(part);
        found += part.len();
    }
    (found == len).then(|| sum.get())
}

/// CRC-32C (RFC 9260 A), reflected.
fn crc32c(packet: &Packet, at: usize, len: usize) -> Option<u32> {
    let mut crc = u32::MAX;
    let mut found = 0;
    for part in parts(packet, at, len) {
        for &byte in part {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                let carry = crc & 1 != 0;
                crc >>= 1;
                if carry {
                    crc ^= 0x82f6_3b78;
                }
            }
        }
        found += part.len();
    }
    (found == len).then_some(!crc)
}
