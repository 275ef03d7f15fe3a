//! Packets on their way from the daemon: each a length (4 bytes, little-endian), a [`Record`] and
//! the frame. Between them, numbers of packets, which are known by their length.

use std::io;

use softnet_engine::capture::{CaptureStats, RECORD_LEN, Record};

/// Bytes of the three numbers: fewer than a record has.
const STATS_LEN: usize = 24;
const _: () = assert!(STATS_LEN < RECORD_LEN);
/// More bytes than any packet has.
const LONGEST: usize = 1 << 20;

/// Something that comes from the daemon.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    Packet(Record, &'a [u8]),
    Stats(CaptureStats),
}

/// Appends a packet: its record and the frame, or the first bytes of it.
pub(super) fn put_packet(out: &mut Vec<u8>, packet: &[u8]) {
    let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(packet);
}

/// Appends numbers of packets.
pub(super) fn put_stats(out: &mut Vec<u8>, stats: CaptureStats) {
    out.extend_from_slice(&(STATS_LEN as u32).to_le_bytes());
    let CaptureStats {
        matched,
        missed,
        unseen,
    } = stats;
    out.extend([matched, missed, unseen].map(u64::to_le_bytes).concat());
}

/// Something from the start of `bytes` that is there whole, and the rest.
pub(super) fn read(bytes: &[u8]) -> io::Result<Option<(Item<'_>, &[u8])>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the daemon sends no packets");
    let Some((len, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*len) as usize;
    if len > LONGEST {
        return Err(wrong());
    }
    let Some((item, rest)) = rest.split_at_checked(len) else {
        return Ok(None);
    };
    let item = if len == STATS_LEN {
        let number = |at: usize| {
            let number = item.get(at..).and_then(<[u8]>::first_chunk);
            number.map_or(0, |number| u64::from_le_bytes(*number))
        };
        Item::Stats(CaptureStats {
            matched: number(0),
            missed: number(8),
            unseen: number(16),
        })
    } else {
        let (record, frame) = Record::read(item).ok_or_else(wrong)?;
        Item::Packet(record, frame)
    };
    Ok(Some((item, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_in_pieces_is_read_whole() {
        let stats = CaptureStats {
            matched: 3,
            missed: 1,
            unseen: 2,
        };
        let mut packet = vec![0; RECORD_LEN];
        packet.extend_from_slice(b"frame");
        let mut sent = Vec::new();
        put_packet(&mut sent, &packet);
        put_stats(&mut sent, stats);
        for end in 0..4 + packet.len() {
            assert_eq!(read(&sent[..end]).unwrap(), None);
        }
        let (item, rest) = read(&sent).unwrap().unwrap();
        assert!(matches!(item, Item::Packet(_, b"frame")), "{item:?}");
        assert_eq!(read(rest).unwrap(), Some((Item::Stats(stats), &[][..])));
        assert!(read(&[0xff; 4]).is_err() && read(&[1, 0, 0, 0, 0]).is_err());
    }
}
